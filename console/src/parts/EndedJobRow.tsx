import { Box, Group, Text } from '@mantine/core'
import type { ClusterNode, Job } from '../api/types'
import { endLine, endState, endWhy, endWord, jobLink } from '../words/job'
import { useNow } from './clock'
import { To } from './Problem'
import { State } from './State'

/** The result of an ended job. */
export function EndedJobRow({ job, nodes }: { job: Job; nodes: ClusterNode[] }) {
  const now = useNow()
  const to = jobLink(job)
  const { word, tone } = endState(job)
  const why = endWhy(job)
  return (
    <Box>
      <Group justify="space-between" gap="xs">
        <Text size="sm" style={{ overflowWrap: 'anywhere' }}>
          {to === undefined ? job.subject : <To href={to}>{job.subject}</To>} {endWord(job, nodes)}
        </Text>
        <Group gap="sm">
          <Text size="sm" className="figure">
            {endLine(job, now / 1000)}
          </Text>
          <State tone={tone}>{word}</State>
        </Group>
      </Group>
      {why !== '' && (
        <Text size="xs" c="dimmed" mt={2}>
          {why}
        </Text>
      )}
    </Box>
  )
}
