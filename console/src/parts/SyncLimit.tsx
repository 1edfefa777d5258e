import { Group, Stack, Text, TextInput } from '@mantine/core'
import { useState } from 'react'
import { api, data } from '../api/client'
import { useSyncLimit } from '../api/queries'
import { parseSize, rate, size } from '../words/size'
import { DeedButton, useDoing } from './deed'
import { Panel } from './Panel'
import { ProblemAlert } from './Problem'

/** What all syncs together may take. */
export function SyncLimit() {
  const limit = useSyncLimit()
  const [text, setText] = useState('')
  const { busy, error, run } = useDoing()
  const bytes = parseSize(text)
  const now = limit.data?.bytes_per_second
  const send = (bytes_per_second: number | null) => run(() => data(api.PUT('/v1/cluster/sync-limit', { body: { bytes_per_second } })), 'The limit is changed.')
  return (
    <Panel title="How fast copies are brought in sync" at={limit.dataUpdatedAt} note="All nodes together. Each node besides slows down by itself while hosts write.">
      <Stack gap="sm">
        <Text size="sm">{limit.error ? 'It cannot be read now.' : now ? `${rate(now)} at most.` : 'No limit but what each node’s own setting says (sync-bytes-per-second-max, 512M unless told otherwise).'}</Text>
        <Group align="flex-end" gap="xs">
          <TextInput label="Limit a second" placeholder="500M" value={text} onChange={(event) => setText(event.currentTarget.value)} error={text !== '' && (bytes === undefined || bytes < 2 ** 20) ? `As 500M; ${size(2 ** 20)} at least` : undefined} />
          <DeedButton variant="default" loading={busy} because={bytes === undefined || bytes < 2 ** 20 ? 'Say how much a second: 500M' : undefined} onClick={() => void send(bytes ?? null)}>
            Limit
          </DeedButton>
          {now && (
            <DeedButton variant="default" loading={busy} onClick={() => void send(null)}>
              No limit
            </DeedButton>
          )}
        </Group>
        <Text size="xs" c="dimmed">
          The same: <code>ursa node sync-limit {text || '500M'}</code>
        </Text>
        {error !== undefined && <ProblemAlert error={error} change="changed" />}
      </Stack>
    </Panel>
  )
}
