import { Group, Stack, Text } from '@mantine/core'
import type { Event } from '../api/types'
import { place, seenBy } from '../words/events'
import type { Tone } from '../words/tone'
import { Age } from './Age'
import { State } from './State'

function toneOf(event: Event): Tone {
  switch (event.severity) {
    case 'critical':
      return 'critical'
    case 'warning':
      return 'warning'
    default:
      return 'ok'
  }
}

/** Newest first; the node lists them oldest first. */
export const newestFirst = (events: Event[]) => [...events].reverse()

export function EventLine({ event, full = false }: { event: Event; full?: boolean }) {
  return (
    <Group gap="xs" wrap="nowrap" align="flex-start">
      <State tone={toneOf(event)}>{event.severity}</State>
      <Stack gap={0} style={{ minWidth: 0, flex: 1 }}>
        <Text size="sm" style={{ overflowWrap: 'anywhere' }}>
          {event.text} <Age at={event.at * 1000} />
        </Text>
        {event.action && (full || toneOf(event) !== 'ok') && <Text size="xs"><b>What to do:</b> {event.action}</Text>}
        {full && (
          <Text size="xs" c="dimmed">
            {event.code}
            {event.cause ? ` (${event.cause})` : ''}
            {event.subject ? `, ${event.subject}` : ''}
            {event.node !== undefined && event.node !== null ? `, node ${event.node}` : ''}, {new Date(event.at * 1000).toLocaleString()}
            {event.range ? `, ${place(event.range)}` : ''}
            , {seenBy(event)}
          </Text>
        )}
      </Stack>
    </Group>
  )
}
