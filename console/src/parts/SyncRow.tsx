import { Box, Group, Progress, Text } from '@mantine/core'
import { link } from '../route'
import { lasting } from '../words/since'
import { duration } from '../words/size'
import { type RunningSync, progress, restraint, syncLine } from '../words/sync'
import { useNow } from './clock'
import { To } from './Problem'

/** The progress of a copy's resync. `at`: when it was read, in milliseconds since 1970. */
export function SyncRow({ volume, copy, sync, at, named = false }: RunningSync & { at: number; named?: boolean }) {
  const now = useNow()
  const done = progress(sync)
  const held = restraint(sync)
  return (
    <Box>
      <Group justify="space-between" gap="xs">
        <Text size="sm">
          {named && (
            <>
              <To href={link('volumes', volume.name)}>{volume.name}</To> to{' '}
            </>
          )}
          {copy.node_name || `node ${copy.node}`}: {sync.paused ? `paused by ${sync.paused.by}` : sync.waits_for ? 'waiting' : copy.state === 'catching_up' ? 'catching up' : 'resyncing'}
        </Text>
        <Text size="sm" className="figure">
          {syncLine(sync, (now - at) / 1000)}
        </Text>
      </Group>
      {sync.total_bytes > 0 && (
        <Progress.Root size="md" mt={3}>
          <Progress.Section value={100 * done} color={sync.paused || sync.waits_for ? 'yellow' : 'blue'} aria-label={`${Math.round(100 * done)} % done`} />
        </Progress.Root>
      )}
      <Text size="xs" c="dimmed" mt={2}>
        {sync.total_bytes > 0 && `${Math.round(100 * done)} % done. `}Cause: {sync.cause}{sync.since ? `; out of sync ${lasting(duration(now / 1000 - sync.since.at), sync.since)}` : ''}
        {held ? `; ${held}` : ''}
        {sync.paused ? `; paused ${duration(now / 1000 - sync.paused.since)} ago: this copy adds no redundancy until it is in sync (resume it under “Jobs”)` : sync.waits_for ? `; waiting for ${sync.waits_for}` : ''}
      </Text>
    </Box>
  )
}
