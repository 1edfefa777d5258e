import { Text } from '@mantine/core'
import { duration } from '../words/size'
import { useNow } from './clock'

/** A value that is refreshed every few seconds is stale from this age on: the node does not answer. */
const OLD_MS = 15_000

/** The age of a value: `2 s ago`. `at` is in milliseconds since 1970; 0 means never. */
export function Age({ at, live = false }: { at: number; live?: boolean }) {
  const now = useNow()
  if (at === 0) return <Text span size="xs" c="dimmed">no data yet</Text>
  const age = Math.max(0, now - at)
  const old = live && age > OLD_MS
  return (
    <Text
      span
      size="xs"
      c={old ? 'red' : 'dimmed'}
      fw={old ? 700 : undefined}
      title={new Date(at).toLocaleString()}
      style={{ whiteSpace: 'nowrap' }}
    >
      {age < 1000 ? 'now' : `${duration(age / 1000)} ago`}
    </Text>
  )
}
