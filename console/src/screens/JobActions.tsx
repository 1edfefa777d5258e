import { type ReactNode, useState } from 'react'
import { api, data } from '../api/client'
import type { ClusterNode, Job } from '../api/types'
import { Ask, DeedButton, Said, useDoing } from '../parts/deed'
import { ProblemAlert } from '../parts/Problem'
import { Tried } from '../parts/Tried'
import { ursa } from '../words/command'
import { cancelMeaning, jobWord, pauseMeaning } from '../words/job'

/** The buttons of jobs, and their dialogs, which stay open if the job ends meanwhile. */
export function useJobActions(nodes: ClusterNode[]): { buttons: (job: Job) => ReactNode; dialogs: ReactNode } {
  const [doomed, setDoomed] = useState<Job>()
  const [stopping, setStopping] = useState<Job>()
  const buttons = (job: Job) => (
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
  )
  const dialogs = (
    <>
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
    </>
  )
  return { buttons, dialogs }
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
