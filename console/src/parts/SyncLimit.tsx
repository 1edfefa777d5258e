import { Group, Stack, Text, TextInput } from '@mantine/core'
import { useState } from 'react'
import { api, data } from '../api/client'
import { useSyncLimit } from '../api/queries'
import { parseSize, rate, size } from '../words/size'
import { DeedButton, useDoing } from './deed'
import { Panel } from './Panel'
import { ProblemAlert } from './Problem'

/** The rate limit of all resyncs together. */
export function SyncLimit() {
  const limit = useSyncLimit()
  const [text, setText] = useState('')
  const { busy, error, run } = useDoing()
  const bytes = parseSize(text)
  const now = limit.data?.bytes_per_second
  const send = (bytes_per_second: number | null) => run(() => data(api.PUT('/v1/cluster/resync-limit', { body: { bytes_per_second } })), 'Resync limit changed.')
  return (
    <Panel title="Resync limit" at={limit.dataUpdatedAt} note="For all nodes together. Each node also throttles its resyncs automatically while hosts write.">
      <Stack gap="sm">
        <Text size="sm">{limit.error ? 'The limit cannot be read now.' : now ? `At most ${rate(now)}.` : 'No cluster limit. Each node follows its own setting (resync-bytes-per-second-max, default 512M).'}</Text>
        <Group align="flex-end" gap="xs">
          <TextInput label="Limit per second" placeholder="500M" value={text} onChange={(event) => setText(event.currentTarget.value)} error={text !== '' && (bytes === undefined || bytes < 2 ** 20) ? `For example 500M; at least ${size(2 ** 20)}` : undefined} />
          <DeedButton variant="default" loading={busy} because={bytes === undefined || bytes < 2 ** 20 ? 'Enter a limit per second, for example 500M.' : undefined} onClick={() => void send(bytes ?? null)}>
            Set limit
          </DeedButton>
          {now && (
            <DeedButton variant="default" loading={busy} onClick={() => void send(null)}>
              Remove limit
            </DeedButton>
          )}
        </Group>
        <Text size="xs" c="dimmed">
          Command line: <code>ursa node resync-limit {text || '500M'}</code>
        </Text>
        {error !== undefined && <ProblemAlert error={error} change="changed" />}
      </Stack>
    </Panel>
  )
}
