import { Group, Menu } from '@mantine/core'
import { useState } from 'react'
import { useForbidden } from '../api/access'
import { api, data } from '../api/client'
import type { Snapshot } from '../api/types'
import { Ask, DeedButton, Said } from '../parts/deed'
import { Tried } from '../parts/Tried'
import { ursa } from '../words/command'
import { releaseMeaning } from '../words/expiry'
import { listed } from '../words/missing'
import { plural } from '../words/size'
import { busyBecause, confirmation, keptBecause, numberOf, volumesWord } from '../words/snapshot'
import { ChangeSnapshots } from './ChangeSnapshots'
import { RestoreSnapshot } from './RestoreSnapshot'

type Open = 'restore' | 'change' | 'hold' | 'delete'

/** The dialogs of one snapshot. `gone` is called when it has been deleted. */
function Dialogs({ snapshot, open, close, gone }: { snapshot: Snapshot; open: Open | undefined; close: () => void; gone?: () => void }) {
  switch (open) {
    case undefined:
      return null
    case 'restore':
      return <RestoreSnapshot snapshot={snapshot} close={close} />
    case 'change':
      return <ChangeSnapshots snapshots={[snapshot]} close={close} />
    case 'hold':
      return <HoldSnapshot snapshot={snapshot} close={close} />
    case 'delete':
      return <DeleteSnapshots snapshots={[snapshot]} close={close} gone={gone} />
  }
}

/** The buttons of one snapshot, for its own screen. */
export function SnapshotButtons({ snapshot, gone }: { snapshot: Snapshot; gone?: () => void }) {
  const [open, setOpen] = useState<Open>()
  const busy = busyBecause(snapshot)
  return (
    <Group gap="xs">
      <DeedButton because={busy} onClick={() => setOpen('restore')}>
        Restore
      </DeedButton>
      <DeedButton variant="default" because={busy} onClick={() => setOpen('change')}>
        Change
      </DeedButton>
      <DeedButton variant="default" because={busy} onClick={() => setOpen('hold')}>
        {snapshot.held ? 'Release' : 'Hold'}
      </DeedButton>
      <DeedButton variant="default" because={keptBecause(snapshot)} onClick={() => setOpen('delete')}>
        Delete
      </DeedButton>
      <Dialogs snapshot={snapshot} open={open} close={() => setOpen(undefined)} gone={gone} />
    </Group>
  )
}

/** The same for a row of a list: all but the first are in a menu. */
export function SnapshotMenu({ snapshot }: { snapshot: Snapshot }) {
  const [open, setOpen] = useState<Open>()
  const forbidden = useForbidden('change')
  const busy = busyBecause(snapshot)
  const kept = keptBecause(snapshot)
  return (
    <Group gap={6} justify="flex-end" wrap="nowrap">
      <DeedButton size="compact-sm" variant="default" because={busy} onClick={() => setOpen('restore')}>
        Restore
      </DeedButton>
      <Menu position="bottom-end" disabled={forbidden !== undefined || busy !== undefined}>
        <Menu.Target>
          <DeedButton size="compact-sm" variant="default" because={busy}>
            More
          </DeedButton>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Item onClick={() => setOpen('change')}>Change</Menu.Item>
          <Menu.Item onClick={() => setOpen('hold')}>{snapshot.held ? 'Release' : 'Hold'}</Menu.Item>
          <Menu.Item color="red" title={kept} disabled={kept !== undefined} onClick={() => setOpen('delete')}>Delete</Menu.Item>
        </Menu.Dropdown>
      </Menu>
      <Dialogs snapshot={snapshot} open={open} close={() => setOpen(undefined)} />
    </Group>
  )
}

function HoldSnapshot({ snapshot, close }: { snapshot: Snapshot; close: () => void }) {
  // As it was when the dialog opened: the list follows the change before the dialog is closed.
  const [first] = useState(snapshot)
  const { name, held } = first
  return (
    <Ask
      opened
      close={close}
      title={held ? `Release ${name}` : `Put ${name} on hold`}
      label={held ? 'Release snapshot' : 'Put on hold'}
      command={ursa('snapshot', held ? 'release' : 'hold', name)}
      act={() => data(api.PATCH('/v1/snapshots/{snapshot}', { params: { path: { snapshot: numberOf(first) } }, body: { held: !held } }))}
      done={held ? `Snapshot ${name} is released.` : `Snapshot ${name} is on hold: it cannot be deleted.`}
    >
      <Said>{held ? releaseMeaning(first, Date.now() / 1000) : 'It cannot be deleted until it is released, and is not deleted when it expires.'}</Said>
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
