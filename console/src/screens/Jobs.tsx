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
import { PAUSE_MEANING, cancelMeaning, jobWord } from '../words/job'
import { plural } from '../words/size'

/** So many of a kind are shown. */
const JOBS_MAX = 100
/** So many that have ended are shown. */
const ENDED_MAX = 20

export function Jobs() {
  const jobs = useJobs()
  const ended = useEndedJobs()
  const missing = useMissingJobs()
  const known = useNodes().data
  const cluster = known !== null && known !== undefined
  const nodes = known ?? []
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
                  Take back
                </DeedButton>
              )}
            </>
          }
        />
      ))}
      {of.length > JOBS_MAX && <Text size="sm" c="dimmed">{plural(of.length - JOBS_MAX, 'more is', 'more are')} not shown.</Text>}
    </Stack>
  )
  return (
    <Stack gap="md">
      <Title order={1} size="h3">
        Jobs
      </Title>
      {jobs.error && <ProblemAlert error={jobs.error} what="What is under way cannot be read" />}
      <MissingNote what="Comparisons and changes" missing={missing} />
      <Panel title="Copies" at={jobs.dataUpdatedAt} note="Of the whole cluster: copies that are brought in sync, added, moved, taken away or compared. Times to go count what hosts add meanwhile.">
        {!jobs.data ? (
          <Empty>The node is being asked.</Empty>
        ) : copies.length === 0 ? (
          <Empty>No copy is being brought in sync. It begins by itself when a node comes back, and when a copy is added or moved.</Empty>
        ) : (
          rows(copies)
        )}
      </Panel>
      {cluster && <SyncLimit />}
      {cluster && <VerifySchedule />}
      <Panel title="Changes under way" at={jobs.dataUpdatedAt} note="Of all nodes. One that waits for a disk goes on when the disk answers, and holds up no change of anything else.">
        {changes.length === 0 ? <Empty>No change is under way.</Empty> : rows(changes)}
      </Panel>
      <EndedPanel nodes={nodes} ended={ended} />
      {stopping && (
        <Ask
          opened
          close={() => setStopping(undefined)}
          title={`Pause: ${stopping.subject} ${jobWord(stopping, nodes)}`}
          label="Pause it"
          command={ursa('job', 'pause', stopping.id)}
          act={() => data(api.POST('/v1/jobs/{id}/pause', { params: { path: { id: stopping.id } } }))}
          done="It is paused."
        >
          <Said>{PAUSE_MEANING}</Said>
        </Ask>
      )}
      {doomed && (
        <Ask
          opened
          close={() => setDoomed(undefined)}
          title={`Take back: ${doomed.subject} ${jobWord(doomed, nodes)}`}
          label="Take it back"
          danger
          command={ursa('job', 'cancel', doomed.id)}
          act={() => data(api.DELETE('/v1/jobs/{id}', { params: { path: { id: doomed.id } } }))}
          done="The job is taken back."
        >
          <Said>{cancelMeaning(doomed)}</Said>
          <Tried method="DELETE" path={`/v1/jobs/${encodeURIComponent(doomed.id)}`} failure="It cannot be taken back" />
        </Ask>
      )}
    </Stack>
  )
}

function EndedPanel({ nodes, ended }: { nodes: ClusterNode[]; ended: ReturnType<typeof useEndedJobs> }) {
  const all = ended.data ?? []
  return (
    <Panel title="Lately ended" at={ended.dataUpdatedAt} note="In the last day; a node that was restarted since has forgotten what it has seen end. Changes that took less than a second are not noted.">
      {ended.error ? (
        <ProblemAlert error={ended.error} what="What has ended cannot be read" />
      ) : !ended.data ? (
        <Empty>The node is being asked.</Empty>
      ) : all.length === 0 ? (
        <Empty>Nothing has ended in the last day, as far as is known.</Empty>
      ) : (
        <Stack gap="sm">
          {all.slice(0, ENDED_MAX).map((job, place) => (
            // A volume that is compared again has a job of the same name again.
            <EndedJobRow key={`${job.id} ${place}`} job={job} nodes={nodes} />
          ))}
          {all.length > ENDED_MAX && <Text size="sm" c="dimmed">{plural(all.length - ENDED_MAX, 'more is', 'more are')} listed by {ursa('job', 'list', '--ended', '--node', 'all')}.</Text>}
        </Stack>
      )}
    </Panel>
  )
}

function Resume({ job }: { job: Job }) {
  const { busy, error, run } = useDoing()
  return (
    <>
      <DeedButton size="compact-sm" loading={busy} onClick={() => void run(() => data(api.POST('/v1/jobs/{id}/resume', { params: { path: { id: job.id } } })), 'It goes on.')}>
        Go on
      </DeedButton>
      {error !== undefined && <ProblemAlert error={error} change="resumed" />}
    </>
  )
}
