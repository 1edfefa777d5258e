import { Stack, Text, Title } from '@mantine/core'
import { useEndedJobs, useJobs, useMissingJobs, useNodes } from '../api/queries'
import type { ClusterNode, Job } from '../api/types'
import { EndedJobRow } from '../parts/EndedJobRow'
import { JobRow } from '../parts/JobRow'
import { MissingNote } from '../parts/MissingNote'
import { Panel } from '../parts/Panel'
import { Empty, ProblemAlert } from '../parts/Problem'
import { SyncLimit } from '../parts/SyncLimit'
import { VerifySchedule } from '../parts/VerifySchedule'
import { ursa } from '../words/command'
import { FreeingPanel } from './Freeing'
import { useJobActions } from './JobActions'

/** Maximum number of jobs shown per kind. */
const JOBS_MAX = 100
/** Maximum number of ended jobs shown. */
const ENDED_MAX = 20

export function Jobs() {
  const jobs = useJobs()
  const ended = useEndedJobs()
  const missing = useMissingJobs()
  const nodes = useNodes().data ?? []
  const { buttons, dialogs } = useJobActions(nodes)
  const changes = (jobs.data ?? []).filter((job) => job.kind === 'change')
  const copies = (jobs.data ?? []).filter((job) => job.kind !== 'change' && job.kind !== 'free_snapshots')
  const rows = (of: Job[]) => (
    <Stack gap="md">
      {of.slice(0, JOBS_MAX).map((job) => (
        <JobRow key={job.id} job={job} nodes={nodes} at={jobs.dataUpdatedAt} right={buttons(job)} />
      ))}
      {of.length > JOBS_MAX && <Text size="sm" c="dimmed">{of.length - JOBS_MAX} more not shown.</Text>}
    </Stack>
  )
  return (
    <Stack gap="md">
      <Title order={1} size="h3">
        Jobs
      </Title>
      {jobs.error && <ProblemAlert error={jobs.error} what="The jobs cannot be listed" />}
      <MissingNote what="Verify jobs and changes" missing={missing} />
      <Panel title="Copies" at={jobs.dataUpdatedAt} note="Copies in the whole cluster that are being resynced, added, moved, removed or verified. The time left includes expected host writes.">
        {!jobs.data ? (
          <Empty>Loading…</Empty>
        ) : copies.length === 0 ? (
          <Empty>No resync in progress. Resyncs start automatically when a node returns, and when a copy is added or moved.</Empty>
        ) : (
          rows(copies)
        )}
      </Panel>
      <FreeingPanel />
      {nodes.length > 1 && <SyncLimit />}
      {nodes.length > 1 && <VerifySchedule />}
      <Panel title="Changes in progress" at={jobs.dataUpdatedAt} note="On all nodes. A change that waits for a disk continues when the disk responds, and does not block other changes.">
        {changes.length === 0 ? <Empty>No changes in progress.</Empty> : rows(changes)}
      </Panel>
      <EndedPanel nodes={nodes} ended={ended} />
      {dialogs}
    </Stack>
  )
}

function EndedPanel({ nodes, ended }: { nodes: ClusterNode[]; ended: ReturnType<typeof useEndedJobs> }) {
  const all = ended.data ?? []
  return (
    <Panel title="Recently ended" at={ended.dataUpdatedAt} note="In the last day. A node forgets its ended jobs when it restarts. Changes that took less than a second are not listed.">
      {ended.error ? (
        <ProblemAlert error={ended.error} what="Ended jobs cannot be listed" />
      ) : !ended.data ? (
        <Empty>Loading…</Empty>
      ) : all.length === 0 ? (
        <Empty>No jobs have ended in the last day.</Empty>
      ) : (
        <Stack gap="sm">
          {all.slice(0, ENDED_MAX).map((job, place) => (
            // Another comparison of the same volume is a job with the same name.
            <EndedJobRow key={`${job.id} ${place}`} job={job} nodes={nodes} />
          ))}
          {all.length > ENDED_MAX && <Text size="sm" c="dimmed">{all.length - ENDED_MAX} more. List all with {ursa('job', 'list', '--ended', '--node', 'all')}.</Text>}
        </Stack>
      )}
    </Panel>
  )
}
