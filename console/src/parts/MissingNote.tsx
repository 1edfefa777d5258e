import { Group, Text } from '@mantine/core'
import type { Missing } from '../api/types'
import { missingLine } from '../words/missing'
import { State } from './State'

/** Names the nodes whose part of a list is missing; empty if the list is complete. */
export function MissingNote({ what, missing }: { what: string; missing: Missing[] }) {
  if (missing.length === 0) return null
  return (
    <Group gap="xs" wrap="nowrap" align="flex-start" role="status" mb="xs">
      <State tone="warning">incomplete</State>
      <Text size="sm" style={{ overflowWrap: 'anywhere' }}>
        {missingLine(what, missing)}
      </Text>
    </Group>
  )
}
