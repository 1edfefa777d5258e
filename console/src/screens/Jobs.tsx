import { Stack, Text, Title } from '@mantine/core'
import { useState } from 'react'
import { api, data } from '../api/client'
import { useEndedJobs, useJobs, useMissingJobs, useNodes } from '../api/queries'
import type { ClusterNode, Job } from '../api/types'
import { Ask, DeedButton, Said, useDoing } from '../parts/deed'
import { EndedJobRow } from '../parts/EndedJobRow'
import { JobRow } from '../parts/JobRow'
import { MissingNote } from '../parts/MissingNote'
import { Panel } from '../parts/Panel'
import { Empty, ProblemAlert } from '../parts/Problem'
import { SyncLimit } from '../parts/SyncLimit'
import { VerifySchedule } from '../parts/VerifySchedule'
import { Tried } from '../parts/Tried'
import { ursa } from '../words/command'
import { cancelMeaning, jobWord, pauseMeaning } from '../words/job'

/** Maximum number of jobs shown per kind. */
const JOBS_MAX = 100
/** Maximum number of ended jobs shown. */
const ENDED_MAX = 20

export function Jobs() {
  const jobs = useJobs()
  const ended = useEndedJobs()
  const missing = useMissingJobs()
  const nodes = useNodes().data ?? []
  const [doomed, setDoomed] = useState<Job>()
  const [stopping, setStopping] = useState<Job>()
  const changes = (jobs.data ?? []).filter((job) => job.kind === 'change')
  const copies = (jobs.data ?? []).filter((job) => job.kind !== 'change')
  const rows = (of: Job[]) => (
    <Stack gap="md">
      {of.slice(0, JOBS_MAX).map((job) => (
        <JobRow
          key={job.id}
          job={job}
          nodes={nodes}
          at={jobs.dataUpdatedAt}
          right={
            <>
              {job.can_be_paused && (
                <DeedButton size="compact-sm" variant="default" onClick={() => setStopping(job)}>
                  Pause
                </DeedButton>
              )}
              {job.paused && <Resume job={job} />}
              {job.can_be_cancelled && (
                <DeedButton size="compact-sm" variant="default" onClick={() => setDoomed(job)}>
                  Cancel
                </DeedButton>
              )}
            </>
          }
        />
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
      {nodes.length > 1 && <SyncLimit />}
      {nodes.length > 1 && <VerifySchedule />}
      <Panel title="Changes in progress" at={jobs.dataUpdatedAt} note="On all nodes. A change that waits for a disk continues when the disk responds, and does not block other changes.">
        {changes.length === 0 ? <Empty>No changes in progress.</Empty> : rows(changes)}
      </Panel>
      <EndedPanel nodes={nodes} ended={ended} />
      {stopping && (
        <Ask
          opened
          close={() => setStopping(undefined)}
          title={`Pause: ${stopping.subject} ${jobWord(stopping, nodes)}`}
          label="Pause job"
          command={ursa('job', 'pause', stopping.id)}
          act={() => data(api.POST('/v1/jobs/{id}/pause', { params: { path: { id: stopping.id } } }))}
          done="Job paused."
        >
          <Said>{pauseMeaning(stopping)}</Said>
        </Ask>
      )}
      {doomed && (
        <Ask
          opened
          close={() => setDoomed(undefined)}
          title={`Cancel job: ${doomed.subject} ${jobWord(doomed, nodes)}`}
          label="Cancel job"
          dismiss="Keep job"
          danger
          command={ursa('job', 'cancel', doomed.id)}
          act={() => data(api.DELETE('/v1/jobs/{id}', { params: { path: { id: doomed.id } } }))}
          done="Job cancelled."
        >
          <Said>{cancelMeaning(doomed)}</Said>
          <Tried method="DELETE" path={`/v1/jobs/${encodeURIComponent(doomed.id)}`} failure="The job cannot be cancelled" />
        </Ask>
      )}
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

function Resume({ job }: { job: Job }) {
  const { busy, error, run } = useDoing()
  return (
    <>
      <DeedButton size="compact-sm" loading={busy} onClick={() => void run(() => data(api.POST('/v1/jobs/{id}/resume', { params: { path: { id: job.id } } })), 'Job resumed.')}>
        Resume
      </DeedButton>
      {error !== undefined && <ProblemAlert error={error} change="resumed" />}
    </>
  )
}
