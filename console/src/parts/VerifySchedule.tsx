import { Group, NumberInput, Stack, Text } from '@mantine/core'
import { useState } from 'react'
import { api, data } from '../api/client'
import { useVerifySchedule } from '../api/queries'
import { duration } from '../words/size'
import { DeedButton, useDoing } from './deed'
import { Panel } from './Panel'
import { ProblemAlert } from './Problem'

const DAY = 86_400

/** How often copies are compared without anybody asking. */
export function VerifySchedule() {
  const schedule = useVerifySchedule()
  const [days, setDays] = useState<number | string>(30)
  const { busy, error, run } = useDoing()
  const now = schedule.data?.seconds
  const wanted = typeof days === 'number' && days >= 1 ? days : undefined
  const send = (seconds: number | null) => run(() => data(api.PUT('/v1/cluster/verify-schedule', { body: { seconds } })), 'The schedule is changed.')
  return (
    <Panel title="How often copies are compared" at={schedule.dataUpdatedAt} note="One volume at a time, only while all its copies are in sync, and slowly: hosts have nine tenths of the time.">
      <Stack gap="sm">
        <Text size="sm">{schedule.error ? 'It cannot be read now.' : now ? `The copies of each volume are compared every ${duration(now)}.` : schedule.data ? 'Only when somebody asks for it.' : 'The node is being asked.'}</Text>
        <Group align="flex-end" gap="xs">
          <NumberInput label="Every so many days" value={days} onChange={setDays} min={1} allowDecimal={false} w={160} />
          <DeedButton variant="default" loading={busy} because={wanted === undefined ? 'Say how many days' : undefined} onClick={() => void send(wanted === undefined ? null : wanted * DAY)}>
            Set
          </DeedButton>
          {now && (
            <DeedButton variant="default" loading={busy} onClick={() => void send(null)}>
              Never
            </DeedButton>
          )}
        </Group>
        <Text size="xs" c="dimmed">
          The same: <code>ursa node verify-every {wanted ?? 30}d</code>
        </Text>
        {error !== undefined && <ProblemAlert error={error} change="changed" />}
      </Stack>
    </Panel>
  )
}
