import { Alert, Checkbox, Group, MultiSelect, SegmentedControl, Stack, Table, Text, TextInput, Title } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { useState } from 'react'
import { useForbidden } from '../api/access'
import { useFindings, useMissingSnapshots, useSchedules, useSnapshots } from '../api/queries'
import type { Finding, Snapshot } from '../api/types'
import { Age } from '../parts/Age'
import { useNow } from '../parts/clock'
import { DeedButton } from '../parts/deed'
import { Icon } from '../parts/Icon'
import { MissingNote } from '../parts/MissingNote'
import { Empty, ProblemAlert, To } from '../parts/Problem'
import { Rows } from '../parts/Rows'
import { COLOR, State } from '../parts/State'
import { link } from '../route'
import { expiresIn } from '../words/expiry'
import { keyOf, linkOf, toneOf } from '../words/findings'
import { labelChoices, labelTexts, labelsOf } from '../words/labels'
import { moment } from '../words/size'
import { copiesWord, freesWord, keptBecause, pauseWord, snapshotLink, snapshotState } from '../words/snapshot'
import { type Order, type Which, aboutSnapshots, filterOf, filtered } from '../words/snapshotlist'
import { ChangeSnapshots } from './ChangeSnapshots'
import { FreeingPanel } from './Freeing'
import { DeleteSnapshots, SnapshotMenu } from './SnapshotActions'
import { TakeSnapshot } from './TakeSnapshot'

/** Maximum number of rows; the filter finds the others. */
const ROWS_MAX = 200
/** Maximum number of volumes named in a row; the snapshot's own screen names all. */
const VOLUMES_SHOWN = 3

/** `query`: the filter at first. */
export function Snapshots({ query }: { query: URLSearchParams }) {
  const snapshots = useSnapshots()
  const schedules = useSchedules().data ?? []
  const findings = useFindings().data ?? []
  const missing = useMissingSnapshots()
  const forbidden = useForbidden('change')
  const now = useNow() / 1000
  const [filter, setFilter] = useState(() => filterOf(query))
  const [text] = useDebouncedValue(filter.text, 120)
  const [chosen, setChosen] = useState<ReadonlySet<number>>(new Set())
  const [taking, setTaking] = useState(false)
  const [doomed, setDoomed] = useState<Snapshot[]>()
  const [expiring, setExpiring] = useState<Snapshot[]>()
  const all = snapshots.data
  const labels = labelChoices(all ?? [])
  const found = filtered(all ?? [], { ...filter, text }, schedules, now)
  const shown = found.slice(0, ROWS_MAX)
  const deletable = shown.filter((one) => keptBecause(one) === undefined)
  // Only what is on the screen: nobody deletes what the filter hides.
  const marked = deletable.filter((one) => chosen.has(one.number))
  const choose = (numbers: number[], on: boolean) =>
    setChosen((before) => new Set(on ? [...before, ...numbers] : [...before].filter((number) => !numbers.includes(number))))
  const because = marked.length === 0 ? 'Select snapshots first.' : undefined
  const count = marked.length > 0 ? ` (${marked.length})` : ''
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
      {aboutSnapshots(findings).map((finding) => <FindingNote key={keyOf(finding)} finding={finding} />)}
      <FreeingPanel />
      {!all ? (
        !snapshots.error && <Empty>Loading…</Empty>
      ) : all.length === 0 ? (
        <Empty>No snapshots yet. A snapshot keeps what one or several log volumes held at one point in time, whatever is written to them afterwards.</Empty>
      ) : (
        <>
          <Group gap="sm">
            <TextInput placeholder="Name, volume, label, schedule" aria-label="Filter" value={filter.text} onChange={(event) => setFilter({ ...filter, text: event.currentTarget.value })} style={{ flex: '1 1 240px', maxWidth: 420 }} />
            {labels.length > 0 && <MultiSelect aria-label="With labels" placeholder={filter.labels.length === 0 ? 'With any labels' : undefined} data={labels} value={filter.labels} onChange={(labels) => setFilter({ ...filter, labels })} searchable clearable miw={170} />}
            <SegmentedControl
              aria-label="Which snapshots"
              value={filter.which}
              onChange={(which) => setFilter({ ...filter, which: which as Which })}
              data={[
                { value: 'all', label: `All ${all.length}` },
                { value: 'old', label: 'Old, never expire' },
                { value: 'held', label: 'On hold' },
              ]}
            />
            <SegmentedControl
              aria-label="Sort order"
              value={filter.order}
              onChange={(order) => setFilter({ ...filter, order: order as Order })}
              data={[
                { value: 'newest', label: 'Newest first' },
                { value: 'frees', label: 'By what they free' },
              ]}
            />
          </Group>
          <Group gap="sm">
            <Checkbox
              label="Select all"
              title={forbidden}
              disabled={forbidden !== undefined || deletable.length === 0}
              checked={deletable.length > 0 && marked.length === deletable.length}
              indeterminate={marked.length > 0 && marked.length < deletable.length}
              onChange={(event) => choose(deletable.map((one) => one.number), event.currentTarget.checked)}
            />
            <DeedButton variant="default" because={because} onClick={() => setExpiring(marked)}>
              {`Set expiry of selected${count}`}
            </DeedButton>
            <DeedButton variant="default" because={because} onClick={() => setDoomed(marked)}>
              {`Delete selected${count}`}
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
      {expiring && <ChangeSnapshots snapshots={expiring} close={() => setExpiring(undefined)} />}
      {doomed && <DeleteSnapshots snapshots={doomed} close={() => setDoomed(undefined)} />}
    </Stack>
  )
}

function FindingNote({ finding }: { finding: Finding }) {
  const tone = toneOf(finding)
  return (
    <Alert color={COLOR[tone]} icon={<Icon name={tone} />} title={finding.cause}>
      <Text size="sm">
        {finding.action && `${finding.action}. `}
        <To href={linkOf(finding)}>Show them</To>
      </Text>
    </Alert>
  )
}

function Row({ snapshot, marked, mark, forbidden }: { snapshot: Snapshot; marked: boolean; mark: (on: boolean) => void; forbidden?: string }) {
  const because = forbidden ?? keptBecause(snapshot)
  return (
    <Table.Tr>
      <Table.Td>
        <Checkbox aria-label={`Select ${snapshot.name}`} title={because} disabled={because !== undefined} checked={marked} onChange={(event) => mark(event.currentTarget.checked)} />
      </Table.Td>
      <Table.Td style={{ overflowWrap: 'anywhere' }}>
        <Text span inherit fw={600}>
          <To href={snapshotLink(snapshot)}>{snapshot.name}</To>
        </Text>
        <SnapshotNote snapshot={snapshot} />
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
        <SnapshotMenu snapshot={snapshot} />
      </Table.Td>
    </Table.Tr>
  )
}

/** Its labels, its schedule and when it expires, if it has any of these. */
export function SnapshotNote({ snapshot }: { snapshot: Snapshot }) {
  const now = useNow() / 1000
  const parts = [...labelTexts(labelsOf(snapshot)), snapshot.schedule ? `by schedule ${snapshot.schedule}` : undefined, expiresIn(snapshot, now)].filter(Boolean)
  return parts.length === 0 ? null : <Text size="xs" c="dimmed">{parts.join(', ')}</Text>
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
