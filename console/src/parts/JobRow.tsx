import { Box, Group, Progress, Text } from '@mantine/core'
import type { ReactNode } from 'react'
import type { ClusterNode, Job } from '../api/types'
import { link } from '../route'
import { jobLine, jobWord } from '../words/job'
import { To } from './Problem'

/** How far a job is. */
export function JobRow({ job, nodes, right }: { job: Job; nodes: ClusterNode[]; right?: ReactNode }) {
  const done = job.progress ?? undefined
  const why = [
    done !== undefined ? `${Math.round(100 * done)} % done.` : '',
    job.cause ? `Why: ${job.cause}${job.waits_for ? ';' : ''}` : '',
    job.waits_for ? `waits for ${job.waits_for}` : '',
  ].filter(Boolean)
  return (
    <Box>
      <Group justify="space-between" gap="xs">
        <Text size="sm" style={{ overflowWrap: 'anywhere' }}>
          {job.kind === 'change' ? job.subject : <To href={link('volumes', job.subject)}>{job.subject}</To>} {jobWord(job, nodes)}
        </Text>
        <Group gap="sm">
          <Text size="sm" className="figure">
            {jobLine(job)}
          </Text>
          {right}
        </Group>
      </Group>
      {done !== undefined && (
        <Progress.Root size="md" mt={3}>
          <Progress.Section value={100 * done} color={job.state === 'waiting' ? 'yellow' : 'blue'} aria-label={`${Math.round(100 * done)} % done`} />
        </Progress.Root>
      )}
      {why.length > 0 && (
        <Text size="xs" c="dimmed" mt={2}>
          {why.join(' ')}
        </Text>
      )}
    </Box>
  )
}
