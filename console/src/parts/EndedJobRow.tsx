import { Box, Group, Text } from '@mantine/core'
import type { ClusterNode, Job } from '../api/types'
import { link } from '../route'
import { endLine, endState, endWhy, endWord } from '../words/job'
import { useNow } from './clock'
import { To } from './Problem'
import { State } from './State'

/** The result of an ended job. */
export function EndedJobRow({ job, nodes }: { job: Job; nodes: ClusterNode[] }) {
  const now = useNow()
  const { word, tone } = endState(job)
  const why = endWhy(job)
  return (
    <Box>
      <Group justify="space-between" gap="xs">
        <Text size="sm" style={{ overflowWrap: 'anywhere' }}>
          {job.kind === 'change' ? job.subject : <To href={link('volumes', job.subject)}>{job.subject}</To>} {endWord(job, nodes)}
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
