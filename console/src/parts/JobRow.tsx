import { Box, Group, Progress, Text } from '@mantine/core'
import type { ReactNode } from 'react'
import type { ClusterNode, Job } from '../api/types'
import { jobLine, jobLink, jobWhy, jobWord } from '../words/job'
import { useNow } from './clock'
import { To } from './Problem'

/** The progress of a job. `at`: when it was read, in milliseconds since 1970. */
export function JobRow({ job, nodes, at, right }: { job: Job; nodes: ClusterNode[]; at: number; right?: ReactNode }) {
  const now = useNow()
  const to = jobLink(job)
  const line = jobLine(job, (now - at) / 1000)
  const done = job.progress ?? undefined
  const why = [done !== undefined ? `${Math.round(100 * done)} % done.` : '', jobWhy(job, now / 1000)].filter(Boolean)
  return (
    <Box>
      <Group justify="space-between" gap="xs">
        <Text size="sm" style={{ overflowWrap: 'anywhere' }}>
          {to === undefined ? job.subject : <To href={to}>{job.subject}</To>} {jobWord(job, nodes)}
        </Text>
        {(line !== '' || right !== undefined) && (
          <Group gap="sm">
            {line !== '' && (
              <Text size="sm" className="figure">
                {line}
              </Text>
            )}
            {right}
          </Group>
        )}
      </Group>
      {done !== undefined && (
        <Progress.Root size="md" mt={3}>
          <Progress.Section value={100 * done} color={job.state !== 'running' ? 'yellow' : 'blue'} aria-label={`${Math.round(100 * done)} % done`} />
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
