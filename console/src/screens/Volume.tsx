import { Alert, Group, SegmentedControl, SimpleGrid, Stack, Text, Title } from '@mantine/core'
import { useState } from 'react'
import { useEvents, useMissingEvents, useNode, useNodes, useVolume } from '../api/queries'
import type { ClusterNode, Volume } from '../api/types'
import { useCounted } from '../live/histogram'
import { useLiveVolume } from '../live/live'
import { EventLine, newestFirst } from '../parts/events'
import { Histogram } from '../parts/Histogram'
import { Icon } from '../parts/Icon'
import { LivePanel } from '../parts/LivePanel'
import { MissingNote } from '../parts/MissingNote'
import { Facts, Panel } from '../parts/Panel'
import { Empty, ProblemAlert, To } from '../parts/Problem'
import { CopyBadge, State } from '../parts/State'
import { SyncRow } from '../parts/SyncRow'
import { link } from '../route'
import { comparisonWord } from '../words/comparison'
import { keyOf } from '../words/events'
import { LOSS_TONE } from '../words/losses'
import { agreement, etcdDecides } from '../words/record'
import { scrubWord } from '../words/scrub'
import { size } from '../words/size'
import { copyStateMeaning, syncsOf } from '../words/sync'
import { isElsewhere, kindMeans, servers, spaceWords, volumeState } from '../words/volume'
import { VolumeActions } from './VolumeActions'
import { PathsPanel } from './VolumePaths'
import { SnapshotsPanel } from './VolumeSnapshots'

export function VolumeScreen({ name }: { name: string }) {
  const volume = useVolume(name)
  const nodes = useNodes()
  const samples = useLiveVolume(volume.data?.id)
  if (!volume.data) {
    if (volume.error) return <NoVolume name={name} error={volume.error} />
    return <Empty>Loading volume {name}…</Empty>
  }
  const one = volume.data
  const at = volume.dataUpdatedAt
  const { tone, word, why } = volumeState(one)
  return (
    <Stack gap="md">
      <Group justify="space-between" align="flex-start">
        <div>
          <Text size="sm">
            <To href="#/volumes">Volumes</To> /
          </Text>
          <Group gap="sm">
            <Title order={1} size="h3" style={{ overflowWrap: 'anywhere' }}>
              {one.name}
            </Title>
            <State tone={tone} title={why}>
              {word}
            </State>
          </Group>
        </div>
        <VolumeActions volume={one} />
      </Group>
      {volume.error && <ProblemAlert error={volume.error} what="The figures below are out of date" />}
      {(one.problem || one.fork) && (
        <Alert color={tone === 'critical' ? 'red' : 'yellow'} icon={<Icon name={tone} />} title={alertTitle(one)}>
          <Text size="sm">{one.problem ?? why}</Text>
          {one.fork && (
            <Text size="sm">
              Since {new Date(one.fork.since * 1000).toLocaleString()} (by that node’s clock).{' '}
              {one.fork.split && 'The preferred node serves its side. The other side is kept unchanged until you choose which side to keep, under “More”.'}
            </Text>
          )}
        </Alert>
      )}
      <SimpleGrid cols={{ base: 1, lg: 2 }} spacing="md">
        <CopiesPanel volume={one} nodes={nodes.data ?? undefined} at={at} />
        <LossPanel volume={one} at={at} />
      </SimpleGrid>
      <LivePanel title="Load now" what="to this volume" samples={samples} />
      <HistogramPanel volume={one} />
      <PathsPanel volume={one} nodes={nodes.data ?? undefined} at={at} />
      <SnapshotsPanel volume={one} />
      <EventsPanel volume={one} />
      <FactsPanel volume={one} at={at} />
    </Stack>
  )
}

function alertTitle(volume: Volume): string {
  if (volume.fork?.split) return 'Split brain: the copies have diverged'
  if (volume.fork) return `Node ${volume.fork.node} continues alone`
  return volume.health === 'unavailable' ? 'This volume is unavailable' : 'This node does not serve the volume; other nodes do'
}

/** Why a volume cannot be shown. */
export function NoVolume({ name, error }: { name: string; error: unknown }) {
  return (
    <Stack gap="md">
      <div>
        <Text size="sm">
          <To href="#/volumes">Volumes</To> /
        </Text>
        <Title order={1} size="h3" style={{ overflowWrap: 'anywhere' }}>
          {name}
        </Title>
      </div>
      <ProblemAlert error={error} what="The volume cannot be shown" />
    </Stack>
  )
}

function HistogramPanel({ volume }: { volume: Volume }) {
  const [chosen, setChosen] = useState<string>()
  const nodes = servers(volume)
  const node = nodes.find((one) => String(one.node) === chosen) ?? nodes[0]
  const counted = useCounted(volume.id, node?.node)
  const choice = nodes.length > 1 && <SegmentedControl size="xs" aria-label="Through which node" value={String(node?.node)} onChange={setChosen} data={nodes.map((one) => ({ value: String(one.node), label: one.name }))} />
  return (
    <Panel title="Latency distribution" at={counted.at} right={choice} note={`Through ${node?.name ?? 'this node'}, since this page was opened. Measured from receipt of the complete request to its response.`}>
      {counted.problem && !counted.of ? <ProblemAlert error={counted.problem} what="No latency figures" /> : <Histogram of={counted.of} />}
    </Panel>
  )
}

function CopiesPanel({ volume, nodes, at }: { volume: Volume; nodes?: ClusterNode[]; at: number }) {
  const copies = volume.copies ?? []
  const compared = comparisonWord(volume.comparison)
  return (
    <Panel title="Copies" at={at}>
      {copies.length === 0 ? (
        <Empty>
          Unknown: the cluster’s record does not list this volume, or this node does not take part in its cluster.
        </Empty>
      ) : (
        <Stack gap="sm">
          {copies.map((copy) => {
            const down = nodes?.find((node) => node.id === copy.node)?.up === false
            return (
              <div key={copy.slot}>
                <Group gap="xs">
                  <CopyBadge copy={copy} nodes={nodes} />
                  <Text size="sm">
                    on <To href="#/nodes">{copy.node_name || `node ${copy.node}`}</To> (node {copy.node}
                    {copy.here ? ', this node' : ''})
                    {copy.leaves ? ', being removed' : ''}
                  </Text>
                </Group>
                <Text size="xs" c="dimmed">
                  {down ? 'It resyncs automatically when its node is back.' : `It ${copyStateMeaning(copy.state)}.`}
                </Text>
              </div>
            )
          })}
          {syncsOf([volume]).map((sync) => (
            <SyncRow key={sync.copy.slot} {...sync} at={at} />
          ))}
          {volume.reason && (
            <Text size="sm" c="dimmed">
              Last change (epoch {volume.epoch}): {volume.reason}
            </Text>
          )}
          {compared && (
            <Text size="sm" c="dimmed">
              Last verified: {compared}
            </Text>
          )}
        </Stack>
      )}
    </Panel>
  )
}

function LossPanel({ volume, at }: { volume: Volume; at: number }) {
  const agreed = agreement(volume, etcdDecides(useNode().data))
  const copies = volume.copies ?? []
  const losses = volume.losses ?? []
  return (
    <Panel title="Failure tolerance" note={losses.length > 0 ? 'If one of these nodes is lost now:' : undefined} at={at}>
      {copies.length === 0 ? (
        <Text size="sm">
          {volume.kind === 'ram' ? 'Its data is lost when this node restarts: it is in memory and has no other copy.' : 'If this node is lost, the volume is unavailable until it returns: it has no other copy.'}
        </Text>
      ) : losses.length === 0 ? (
        <Empty>Unknown at the moment: this node does not know the state of the other nodes.</Empty>
      ) : (
        <Stack gap={8}>
          {losses.map((loss) => (
            <Group key={loss.node} gap="xs" wrap="nowrap" align="flex-start">
              <State tone={LOSS_TONE[loss.outcome]}>{copies.find((copy) => copy.node === loss.node)?.node_name || `node ${loss.node}`}</State>
              <Text size="sm">{loss.text}</Text>
            </Group>
          ))}
          {agreed && (
            <Text size="sm" c="dimmed">
              {agreed}
            </Text>
          )}
        </Stack>
      )}
    </Panel>
  )
}

/** Maximum number of events shown here; the Events screen has more. */
const EVENTS_MAX = 8

function EventsPanel({ volume }: { volume: Volume }) {
  // By its identity, which survives a rename and is unique.
  const wanted = { subject: volume.id }
  const events = useEvents(wanted)
  const missing = useMissingEvents(wanted)
  const all = newestFirst(events.data ?? [])
  return (
    <Panel title="Events" at={events.dataUpdatedAt} note="Events of this volume since the last start of each node, including those under earlier names; newest first." right={<To href="#/events" small>All</To>}>
      <MissingNote what="Events" missing={missing} />
      {events.error ? (
        <ProblemAlert error={events.error} what="The events cannot be read" />
      ) : !events.data ? (
        <Empty>Loading…</Empty>
      ) : all.length === 0 ? (
        <Empty>No events of this volume. Nodes keep the latest events since their last start.</Empty>
      ) : (
        <Stack gap={8}>
          {all.slice(0, EVENTS_MAX).map((event) => (
            <EventLine key={keyOf(event)} event={event} />
          ))}
          {all.length > EVENTS_MAX && <Text size="sm" c="dimmed">and {all.length - EVENTS_MAX} earlier ones.</Text>}
        </Stack>
      )}
    </Panel>
  )
}

function FactsPanel({ volume, at }: { volume: Volume; at: number }) {
  return (
    <Panel title="Properties" at={at}>
      <SimpleGrid cols={{ base: 1, md: 2 }} spacing="md">
        <Facts
          of={[
            ['Size', `${size(volume.size)} (${volume.size.toLocaleString()} bytes)`],
            ['Kind', kindMeans(volume.kind)],
            [isElsewhere(volume) ? 'Pool' : 'Pool on this node', <To key="pool" href={link('pools')}>{volume.pool}</To>],
            [volume.kind === 'log' ? 'Used' : 'Reserved', spaceWords(volume)],
          ]}
        />
        <Facts
          of={[
            ['Block size', `${volume.block_size} bytes, ${volume.physical_block_size} physical`],
            ['Striped over', volume.slices === 1 ? 'one slice (one core)' : `${volume.slices} slices (up to ${volume.slices} cores)`],
            ['Created', new Date(volume.created * 1000).toLocaleString()],
            ['Last scrubbed', scrubWord(volume.scrub) ?? '–'],
            ['Linux device', <code key="naa">/dev/disk/by-id/wwn-0x{volume.naa}</code>],
            ['Volume ID', <code key="id">{volume.id}</code>],
          ]}
        />
      </SimpleGrid>
    </Panel>
  )
}
