import { Group, NumberInput, Stack, Text } from '@mantine/core'
import { useState } from 'react'
import { api, data } from '../api/client'
import { useVerifySchedule } from '../api/queries'
import { duration } from '../words/size'
import { DeedButton, useDoing } from './deed'
import { Panel } from './Panel'
import { ProblemAlert } from './Problem'

const DAY = 86_400

/** How often copies are verified automatically. */
export function VerifySchedule() {
  const schedule = useVerifySchedule()
  const [days, setDays] = useState<number | string>(30)
  const { busy, error, run } = useDoing()
  const now = schedule.data?.seconds
  const wanted = typeof days === 'number' && days >= 1 ? days : undefined
  const send = (seconds: number | null) => run(() => data(api.PUT('/v1/cluster/verify-schedule', { body: { seconds } })), 'Verify schedule changed.')
  return (
    <Panel title="Verify schedule" at={schedule.dataUpdatedAt} note="Verifies one volume at a time, only while all its copies are in sync, and at low priority: it leaves nine tenths of the time to hosts.">
      <Stack gap="sm">
        <Text size="sm">{schedule.error ? 'The schedule cannot be read now.' : now ? `Each volume is verified every ${duration(now)}.` : schedule.data ? 'No schedule: volumes are verified on request only.' : 'Loading…'}</Text>
        <Group align="flex-end" gap="xs">
          <NumberInput label="Interval in days" value={days} onChange={setDays} min={1} allowDecimal={false} w={160} />
          <DeedButton variant="default" loading={busy} because={wanted === undefined ? 'Enter a number of days.' : undefined} onClick={() => void send(wanted === undefined ? null : wanted * DAY)}>
            Set interval
          </DeedButton>
          {now && (
            <DeedButton variant="default" loading={busy} onClick={() => void send(null)}>
              Turn off
            </DeedButton>
          )}
        </Group>
        <Text size="xs" c="dimmed">
          Command line: <code>ursa node verify-interval {wanted ?? 30}d</code>
        </Text>
        {error !== undefined && <ProblemAlert error={error} change="changed" />}
      </Stack>
    </Panel>
  )
}
