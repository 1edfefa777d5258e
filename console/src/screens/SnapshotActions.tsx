import { Alert, MultiSelect, Text, TextInput } from '@mantine/core'
import { useState } from 'react'
import { api, data } from '../api/client'
import { useSnapshots, useVolumes } from '../api/queries'
import type { Snapshot, SnapshotCreate } from '../api/types'
import { Ask, DeedButton, Said } from '../parts/deed'
import { Paste } from '../parts/Paste'
import { Tried } from '../parts/Tried'
import { go } from '../route'
import { ursa } from '../words/command'
import { listed } from '../words/missing'
import { NAME_HINT } from '../words/names'
import { plural } from '../words/size'
import { VOLUMES_MAX, busyBecause, confirmation, keptBecause, nameAt, newNameProblem, numberOf, snapshotLink, volumesWord, withoutSnapshots } from '../words/snapshot'

/** Maximum number of volumes to choose from at once; typing finds the others. */
const CHOICES_MAX = 100

/** Takes a snapshot, and then shows it. `volume`: the ID of the volume that is chosen first. */
export function TakeSnapshot({ volume, close }: { volume?: string; close: () => void }) {
  const volumes = useVolumes().data ?? []
  const known = useSnapshots().data ?? []
  const [name, setName] = useState('')
  const [ids, setIds] = useState(volume === undefined ? [] : [volume])
  const chosen = ids.map((id) => volumes.find((one) => one.id === id)).filter((one) => one !== undefined)
  const names = chosen.map((one) => one.name)
  const { thick, ram } = withoutSnapshots(chosen)
  const wrong = newNameProblem(name, known)
  return (
    <Ask
      opened
      close={close}
      title="Take snapshot"
      label="Take"
      ready={chosen.length > 0 && thick.length === 0 && ram.length === 0 && wrong === undefined}
      command={ursa('snapshot', 'create', names.join() || 'VOLUME', ...(name ? ['--name', name] : []))}
      act={async () => {
        const wanted: SnapshotCreate = { volumes: chosen.map((one) => one.id), name: name || nameAt(Date.now()) }
        go(snapshotLink(await data(api.POST('/v1/snapshots', { body: wanted }))))
      }}
      done="Snapshot taken."
    >
      <Said>Keeps what the volumes hold at one point in time, on all copies in sync. Hosts wait meanwhile: for 500 ms at most, or the snapshot is not taken. What it holds is as after a power cut of the hosts; for a clean file system, freeze it first.</Said>
      <TextInput label="Name" description={`Empty: the time. ${NAME_HINT}`} placeholder={nameAt(Date.now())} value={name} onChange={(event) => setName(event.currentTarget.value)} error={wrong} data-autofocus />
      <MultiSelect
        label="Volumes"
        description="All at the same instant, for example a database and its log"
        data={volumes.map((one) => ({ value: one.id, label: one.kind === 'log' ? one.name : `${one.name} (${one.kind})` }))}
        value={ids}
        onChange={setIds}
        limit={CHOICES_MAX}
        maxValues={VOLUMES_MAX}
        nothingFoundMessage="No volume matches"
        searchable
        openOnFocus={false}
        hidePickedOptions
      />
      {thick.length > 0 && (
        <Alert color="yellow" title={`${listed(thick)}: only log volumes have snapshots`}>
          <Text size="sm" mb="xs">Convert {thick.length === 1 ? 'this thick volume' : 'these thick volumes'} first. Hosts can use a volume meanwhile; its pool needs space for both kinds until a copy has been converted. “Jobs” shows the progress.</Text>
          <Paste text={thick.map((one) => ursa('volume', 'convert', one, '--kind', 'log')).join('\n')} label="To convert" />
        </Alert>
      )}
      {ram.length > 0 && <Alert color="yellow" title={`${listed(ram)}: RAM volumes cannot have snapshots`}>Only log volumes have snapshots, and a RAM volume cannot be converted.</Alert>}
    </Ask>
  )
}

/** The buttons of one snapshot. `gone` is called when it has been deleted. */
export function SnapshotButtons({ snapshot, size, gone }: { snapshot: Snapshot; size?: 'compact-sm'; gone?: () => void }) {
  const [open, setOpen] = useState<'hold' | 'delete'>()
  const close = () => setOpen(undefined)
  return (
    <>
      <DeedButton size={size} variant="default" because={busyBecause(snapshot)} onClick={() => setOpen('hold')}>
        {snapshot.held ? 'Release' : 'Hold'}
      </DeedButton>
      <DeedButton size={size} variant="default" because={keptBecause(snapshot)} onClick={() => setOpen('delete')}>
        Delete
      </DeedButton>
      {open === 'hold' && <HoldSnapshot snapshot={snapshot} close={close} />}
      {open === 'delete' && <DeleteSnapshots snapshots={[snapshot]} close={close} gone={gone} />}
    </>
  )
}

function HoldSnapshot({ snapshot, close }: { snapshot: Snapshot; close: () => void }) {
  // As it was when the dialog opened: the list follows the change before the dialog is closed.
  const [{ name, held }] = useState(snapshot)
  return (
    <Ask
      opened
      close={close}
      title={held ? `Release ${name}` : `Put ${name} on hold`}
      label={held ? 'Release snapshot' : 'Put on hold'}
      command={ursa('snapshot', held ? 'release' : 'hold', name)}
      act={() => data(api.PATCH('/v1/snapshots/{snapshot}', { params: { path: { snapshot: numberOf(snapshot) } }, body: { held: !held } }))}
      done={held ? `Snapshot ${name} is released.` : `Snapshot ${name} is on hold: it cannot be deleted.`}
    >
      <Said>{held ? 'It can be deleted again.' : 'It cannot be deleted until it is released.'}</Said>
    </Ask>
  )
}

/** Deletes snapshots one after the other. `gone` is called when all of them have been deleted. */
export function DeleteSnapshots({ snapshots, close, gone }: { snapshots: Snapshot[]; close: () => void; gone?: () => void }) {
  // As they were when the dialog opened, and those of them that it has not deleted yet.
  const [first] = useState(snapshots)
  const [left, setLeft] = useState(first)
  const typed = confirmation(first)
  const deleted = first.filter((one) => !left.includes(one))
  const many = first.length > 1
  return (
    <Ask
      opened
      close={close}
      title={many ? `Delete ${plural(first.length, 'snapshot')}` : `Delete ${typed}`}
      label={many ? 'Delete snapshots' : 'Delete snapshot'}
      danger
      typed={typed}
      command={ursa('snapshot', 'delete', ...left.map((one) => one.name))}
      act={async () => {
        for (const one of left) {
          await data(api.DELETE('/v1/snapshots/{snapshot}', { params: { path: { snapshot: numberOf(one) } } }))
          setLeft((before) => before.filter((other) => other !== one))
        }
        gone?.()
      }}
      done={many ? `${plural(first.length, 'snapshot')} deleted.` : `Snapshot ${typed} deleted.`}
    >
      <Said>
        {many ? `${listed(first.map((one) => one.name))} are deleted permanently.` : `What it holds of ${volumesWord(first[0]!)} is deleted permanently.`} The volumes themselves do not change. The space is freed in the background.
      </Said>
      {deleted.length > 0 && <Said>Deleted so far: {deleted.map((one) => one.name).join(', ')}.</Said>}
      {left.length > 0 && <Tried method="DELETE" path={left.map((one) => `/v1/snapshots/${one.number}`)} failure={many ? 'The snapshots cannot be deleted' : 'The snapshot cannot be deleted'} />}
    </Ask>
  )
}
