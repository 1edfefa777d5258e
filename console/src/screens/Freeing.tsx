import { Stack } from '@mantine/core'
import { useJobs, useNodes } from '../api/queries'
import { JobRow } from '../parts/JobRow'
import { Panel } from '../parts/Panel'
import { useJobActions } from './JobActions'

/** The pools in which the space of deleted snapshots is being freed; nothing if there are none. */
export function FreeingPanel() {
  const jobs = useJobs()
  const nodes = useNodes().data ?? []
  const { buttons, dialogs } = useJobActions(nodes)
  const freeing = (jobs.data ?? []).filter((job) => job.kind === 'free_snapshots')
  return (
    <>
      {freeing.length > 0 && (
        <Panel title="Space of deleted snapshots" at={jobs.dataUpdatedAt} note="Freed in the background, pool by pool. If that slows hosts down, pause it.">
          <Stack gap="md">
            {freeing.map((job) => (
              <JobRow key={job.id} job={job} nodes={nodes} at={jobs.dataUpdatedAt} right={buttons(job)} />
            ))}
          </Stack>
        </Panel>
      )}
      {dialogs}
    </>
  )
}
