import { Alert, Checkbox, MultiSelect, Text } from '@mantine/core'
import { useState } from 'react'
import { api, data } from '../api/client'
import { useRestoreNeedsForce } from '../api/queries'
import type { Snapshot, SnapshotRestore, SnapshotRestored } from '../api/types'
import { Ask, Said } from '../parts/deed'
import { Icon } from '../parts/Icon'
import { To } from '../parts/Problem'
import { Tried } from '../parts/Tried'
import { ursa } from '../words/command'
import { listed } from '../words/missing'
import { latency } from '../words/size'
import { numberOf, snapshotLink } from '../words/snapshot'

/** Maximum number of volumes to name in a restore: as in docs/openapi.json. */
const VOLUMES_MAX = 48

/**
 * Restores volumes to a snapshot: shows what would happen and which hosts use them, and then what was done.
 */
export function RestoreSnapshot({ snapshot, close }: { snapshot: Snapshot; close: () => void }) {
  // As it was when the dialog opened.
  const [first] = useState(snapshot)
  const { name, volumes } = first
  const [ids, setIds] = useState<string[]>([])
  const [discard, setDiscard] = useState(false)
  const [force, setForce] = useState(false)
  const [restored, setRestored] = useState<SnapshotRestored>()
  const needsForce = useRestoreNeedsForce(numberOf(first), ids, restored === undefined)
  const used = needsForce.data === true
  const names = volumes.filter(({ volume_id }) => ids.includes(volume_id)).map(({ volume }) => volume)
  const body: SnapshotRestore = { volumes: ids, discard, force: used && force }
  return (
    <Ask
      opened
      close={close}
      title={`Restore ${ids.length > 0 ? listed(names) : 'volumes'} to ${name}`}
      label="Restore"
      danger
      typed={discard && !restored ? name : undefined}
      ready={restored === undefined && needsForce.data !== undefined && !needsForce.error && (!used || force)}
      command={ursa('snapshot', 'restore', name, ...(names.length > 0 ? ['--volumes', names.join()] : []), discard ? '--discard' : undefined, used && force ? '--force' : undefined)}
      act={async () => {
        const done = await data(api.POST('/v1/snapshots/{snapshot}/restore', { params: { path: { snapshot: numberOf(first) } }, body }))
        if ('pause_us' in done) setRestored(done)
      }}
      stays
      dismiss={restored ? 'Close' : 'Cancel'}
    >
      {restored ? (
        <Text size="sm" role="status">
          <b>{listed(restored.volumes)} restored to snapshot {restored.snapshot}.</b> Hosts had to wait for {latency(restored.pause_us / 1e6)}.{' '}
          {restored.kept ? (
            <>
              What was there before is in snapshot <To href={snapshotLink(restored.kept)}>{restored.kept.name}</To>.
            </>
          ) : (
            'What was there before was discarded.'
          )}
        </Text>
      ) : (
        <>
          <Said>The volumes become what they were in the snapshot, all at one point in time. It takes the same time at any size, can be repeated, and changes no snapshot.</Said>
          {volumes.length > 1 && (
            <MultiSelect
              label="Volumes"
              description="A database and its log belong together: restore both"
              placeholder={ids.length === 0 ? 'All of the snapshot' : undefined}
              data={volumes.map(({ volume, volume_id }) => ({ value: volume_id, label: volume }))}
              value={ids}
              onChange={setIds}
              maxValues={VOLUMES_MAX}
              searchable
              openOnFocus={false}
              hidePickedOptions
              clearable
            />
          )}
          <Checkbox label="Discard what the volumes hold now" description="Otherwise it is kept as a snapshot, to which you can restore again" checked={discard} onChange={(event) => setDiscard(event.currentTarget.checked)} />
          {used && (
            <Alert color="yellow" icon={<Icon name="warning" />} title="Hosts may be using these volumes" role="alert">
              <Text size="sm" mb="xs">
                Hosts that are logged in see the volumes, or a node does not say whether some are: see below. What a host has cached does not match what is restored, and it would write that over it. Unmount the volumes there, or log out.
              </Text>
              <Checkbox label="The volumes are unmounted there: restore anyway" checked={force} onChange={(event) => setForce(event.currentTarget.checked)} />
            </Alert>
          )}
          {needsForce.data === undefined && !needsForce.error ? (
            <Text size="sm" c="dimmed">Checking what would happen…</Text>
          ) : (
            // With `force`, the answer names the hosts instead of refusing.
            <Tried key={String(needsForce.data)} path={`/v1/snapshots/${numberOf(first)}/restore`} body={{ ...body, force: true }} failure="The volumes cannot be restored" />
          )}
        </>
      )}
    </Ask>
  )
}
