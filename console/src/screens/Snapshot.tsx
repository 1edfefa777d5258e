import { Group, SimpleGrid, Stack, Table, Text, Title } from '@mantine/core'
import { useSchedules, useSnapshot } from '../api/queries'
import type { Snapshot } from '../api/types'
import { Facts, Panel } from '../parts/Panel'
import { Empty, ProblemAlert, To } from '../parts/Problem'
import { Rows } from '../parts/Rows'
import { State } from '../parts/State'
import { go, link } from '../route'
import { expiryWord, scheduleOf } from '../words/expiry'
import { labelTexts, labelsOf } from '../words/labels'
import { size } from '../words/size'
import { copyOf, freesOfCopy, freesWord, pauseWord, snapshotState } from '../words/snapshot'
import { SnapshotButtons } from './SnapshotActions'
import { ChangesPanel } from './SnapshotChanges'
import { SnapshotBadges } from './Snapshots'

/** A snapshot by name or number: which copies have it. */
export function SnapshotScreen({ name }: { name: string }) {
  const snapshot = useSnapshot(name)
  const one = snapshot.data
  if (!one && !snapshot.error) return <Empty>Loading snapshot {name}…</Empty>
  return (
    <Stack gap="md">
      <Group justify="space-between" align="flex-start">
        <div>
          <Text size="sm">
            <To href="#/snapshots">Snapshots</To> /
          </Text>
          <Group gap="sm">
            <Title order={1} size="h3" style={{ overflowWrap: 'anywhere' }}>
              {one?.name ?? name}
            </Title>
            {one && <SnapshotBadges snapshot={one} />}
          </Group>
        </div>
        {one && <SnapshotButtons snapshot={one} gone={() => go('#/snapshots')} />}
      </Group>
      {snapshot.error && <ProblemAlert error={snapshot.error} what={one ? 'The figures below are out of date' : 'The snapshot cannot be shown'} />}
      {one && <FactsPanel snapshot={one} at={snapshot.dataUpdatedAt} />}
      {one && <CopiesPanel snapshot={one} at={snapshot.dataUpdatedAt} />}
      {one?.state === 'complete' && one.volumes.length > 0 && <ChangesPanel snapshot={one} />}
    </Stack>
  )
}

function FactsPanel({ snapshot, at }: { snapshot: Snapshot; at: number }) {
  return (
    <Panel title="Properties" at={at} note={snapshotState(snapshot).tone === 'ok' ? undefined : snapshotState(snapshot).why}>
      <SimpleGrid cols={{ base: 1, md: 2 }} spacing="md">
        <Facts
          of={[
            ['Taken', new Date(snapshot.created * 1000).toLocaleString()],
            ['Hosts had to wait for', pauseWord(snapshot)],
            ['On hold', snapshot.held ? 'yes, it cannot be deleted' : 'no'],
            ['Expires', expiryWord(snapshot)],
          ]}
        />
        <Facts
          of={[
            ['Number', snapshot.number],
            ['Deletion frees', freesWord(snapshot.volumes) ?? '–'],
            ['Labels', labelTexts(labelsOf(snapshot)).join(', ') || '–'],
            ['Schedule', <ScheduleOf key="schedule" snapshot={snapshot} />],
          ]}
        />
      </SimpleGrid>
    </Panel>
  )
}

/** The schedule that has taken it. */
function ScheduleOf({ snapshot }: { snapshot: Snapshot }) {
  const schedules = useSchedules().data
  if (!snapshot.schedule) return '–'
  if (schedules && !scheduleOf(snapshot, schedules)) return `${snapshot.schedule} (deleted: it does not delete the snapshot any more)`
  return <To href="#/schedules">{snapshot.schedule}</To>
}

function CopiesPanel({ snapshot, at }: { snapshot: Snapshot; at: number }) {
  const rows = snapshot.volumes.flatMap((of) => of.copies.map((copy) => ({ of, copy })))
  return (
    <Panel title="Volumes and copies" at={at} note="What was written in the last seconds is not counted in what the deletion frees.">
      {rows.length === 0 ? (
        <Empty>The cluster has no copies of {snapshot.volumes.map((of) => of.volume).join(', ')}: their pools may have been exported.</Empty>
      ) : (
        <Rows width={640} head={['Volume', { right: 'Size' }, 'Node', 'Copy', { right: 'Deletion frees' }]}>
          {rows.map(({ of, copy }) => {
            const { tone, word, why } = copyOf(copy)
            return (
              <Table.Tr key={`${of.volume_id} ${copy.node}`}>
                <Table.Td fw={600} style={{ overflowWrap: 'anywhere' }}>
                  <To href={link('volumes', of.volume)}>{of.volume}</To>
                </Table.Td>
                <Table.Td ta="right">{size(of.size)}</Table.Td>
                <Table.Td style={{ whiteSpace: 'nowrap' }}>
                  {copy.node_name || `node ${copy.node}`} (node {copy.node})
                </Table.Td>
                <Table.Td>
                  <State tone={tone} title={why}>
                    {word}
                  </State>
                  {tone !== 'ok' && <Text size="xs" c="dimmed">{why}</Text>}
                </Table.Td>
                <Table.Td ta="right">{freesOfCopy(copy)}</Table.Td>
              </Table.Tr>
            )
          })}
        </Rows>
      )}
    </Panel>
  )
}
