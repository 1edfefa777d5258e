import { Checkbox, Group, Stack, Table, Text, TextInput, Title } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { useState } from 'react'
import { useForbidden } from '../api/access'
import { useMissingSnapshots, useSnapshots } from '../api/queries'
import type { Snapshot } from '../api/types'
import { Age } from '../parts/Age'
import { DeedButton } from '../parts/deed'
import { MissingNote } from '../parts/MissingNote'
import { Empty, ProblemAlert, To } from '../parts/Problem'
import { Rows } from '../parts/Rows'
import { State } from '../parts/State'
import { link } from '../route'
import { moment } from '../words/size'
import { copiesWord, freesWord, keptBecause, pauseWord, snapshotLink, snapshotState } from '../words/snapshot'
import { DeleteSnapshots, SnapshotButtons, TakeSnapshot } from './SnapshotActions'

/** Maximum number of rows; the filter finds the others. */
const ROWS_MAX = 200
/** Maximum number of volumes named in a row; the snapshot's own screen names all. */
const VOLUMES_SHOWN = 3

export function Snapshots() {
  const snapshots = useSnapshots()
  const missing = useMissingSnapshots()
  const forbidden = useForbidden('change')
  const [typed, setTyped] = useState('')
  const [text] = useDebouncedValue(typed, 120)
  const [chosen, setChosen] = useState<ReadonlySet<number>>(new Set())
  const [taking, setTaking] = useState(false)
  const [doomed, setDoomed] = useState<Snapshot[]>()
  const all = snapshots.data
  const wanted = text.trim().toLowerCase()
  const found = (all ?? []).filter((one) => [one.name, String(one.number), ...one.volumes.map((of) => of.volume)].some((field) => field.toLowerCase().includes(wanted))).reverse()
  const shown = found.slice(0, ROWS_MAX)
  const deletable = shown.filter((one) => keptBecause(one) === undefined)
  // Only what is on the screen: nobody deletes what the filter hides.
  const marked = deletable.filter((one) => chosen.has(one.number))
  const choose = (numbers: number[], on: boolean) =>
    setChosen((before) => new Set(on ? [...before, ...numbers] : [...before].filter((number) => !numbers.includes(number))))
  return (
    <Stack gap="md">
      <Group justify="space-between">
        <Title order={1} size="h3">
          Snapshots
        </Title>
        <DeedButton onClick={() => setTaking(true)}>Take snapshot</DeedButton>
      </Group>
      {snapshots.error && <ProblemAlert error={snapshots.error} what="The snapshots cannot be listed" />}
      <MissingNote what="Snapshot details" missing={missing} />
      {!all ? (
        !snapshots.error && <Empty>Loading…</Empty>
      ) : all.length === 0 ? (
        <Empty>No snapshots yet. A snapshot keeps what one or several log volumes held at one point in time, whatever is written to them afterwards.</Empty>
      ) : (
        <>
          <Group gap="sm">
            <TextInput placeholder="Name, volume" aria-label="Filter" value={typed} onChange={(event) => setTyped(event.currentTarget.value)} style={{ flex: '1 1 240px', maxWidth: 420 }} />
            <Checkbox
              label="Select all"
              title={forbidden}
              disabled={forbidden !== undefined || deletable.length === 0}
              checked={deletable.length > 0 && marked.length === deletable.length}
              indeterminate={marked.length > 0 && marked.length < deletable.length}
              onChange={(event) => choose(deletable.map((one) => one.number), event.currentTarget.checked)}
            />
            <DeedButton variant="default" because={marked.length === 0 ? 'Select snapshots first.' : undefined} onClick={() => setDoomed(marked)}>
              {marked.length > 0 ? `Delete selected (${marked.length})` : 'Delete selected'}
            </DeedButton>
            <Age at={snapshots.dataUpdatedAt} live />
          </Group>
          <Rows width={960} head={['', 'Name', 'State', 'Taken', 'Volumes', 'Copies', { right: 'Frees' }, { right: 'Pause' }, '']}>
            {shown.map((one) => (
              <Row key={one.number} snapshot={one} marked={marked.includes(one)} mark={(on) => choose([one.number], on)} forbidden={forbidden} />
            ))}
          </Rows>
          {shown.length === 0 && <Empty>None of {all.length} snapshots matches. Change the filter.</Empty>}
          {found.length > ROWS_MAX && <Text size="sm" c="dimmed">{found.length - ROWS_MAX} more not shown. Use the filter to find them.</Text>}
          <Text size="sm" c="dimmed">
            Copies: how many copies of each volume have the snapshot. Frees: what its deletion frees in a pool; “up to” if an older snapshot may need a part of it. Pause: for how long hosts had to wait while it was taken.
          </Text>
        </>
      )}
      {taking && <TakeSnapshot close={() => setTaking(false)} />}
      {doomed && <DeleteSnapshots snapshots={doomed} close={() => setDoomed(undefined)} />}
    </Stack>
  )
}

function Row({ snapshot, marked, mark, forbidden }: { snapshot: Snapshot; marked: boolean; mark: (on: boolean) => void; forbidden?: string }) {
  const because = forbidden ?? keptBecause(snapshot)
  return (
    <Table.Tr>
      <Table.Td>
        <Checkbox aria-label={`Select ${snapshot.name}`} title={because} disabled={because !== undefined} checked={marked} onChange={(event) => mark(event.currentTarget.checked)} />
      </Table.Td>
      <Table.Td fw={600} style={{ overflowWrap: 'anywhere' }}>
        <To href={snapshotLink(snapshot)}>{snapshot.name}</To>
      </Table.Td>
      <Table.Td>
        <SnapshotBadges snapshot={snapshot} />
      </Table.Td>
      <Table.Td>
        <span style={{ whiteSpace: 'nowrap' }}>{moment(snapshot.created)}</span> <Age at={snapshot.created * 1000} />
      </Table.Td>
      <Table.Td style={{ overflowWrap: 'anywhere' }}>
        <VolumeLinks snapshot={snapshot} />
      </Table.Td>
      <Table.Td>{copiesWord(snapshot.volumes)}</Table.Td>
      <Table.Td ta="right" style={{ whiteSpace: 'nowrap' }}>{freesWord(snapshot.volumes) ?? '–'}</Table.Td>
      <Table.Td ta="right" style={{ whiteSpace: 'nowrap' }}>{pauseWord(snapshot)}</Table.Td>
      <Table.Td>
        <Group gap={6} justify="flex-end" wrap="nowrap">
          <SnapshotButtons snapshot={snapshot} size="compact-sm" />
        </Group>
      </Table.Td>
    </Table.Tr>
  )
}

/** Its state, and whether it is on hold. */
export function SnapshotBadges({ snapshot }: { snapshot: Snapshot }) {
  const { tone, word, why } = snapshotState(snapshot)
  return (
    <Group gap={4}>
      <State tone={tone} title={why}>
        {word}
      </State>
      {snapshot.held && (
        <State tone="info" title="It cannot be deleted until it is released.">
          on hold
        </State>
      )}
    </Group>
  )
}

function VolumeLinks({ snapshot: { volumes } }: { snapshot: Snapshot }) {
  return (
    <>
      {volumes.slice(0, VOLUMES_SHOWN).map((of, at) => (
        <span key={of.volume_id}>
          {at > 0 && ', '}
          <To href={link('volumes', of.volume)}>{of.volume}</To>
        </span>
      ))}
      {volumes.length > VOLUMES_SHOWN && ` and ${volumes.length - VOLUMES_SHOWN} more`}
    </>
  )
}
