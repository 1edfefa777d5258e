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
import { size } from '../words/size'
import { copyStateMeaning, syncsOf } from '../words/sync'
import { aloneAt, aloneOn, isElsewhere, servers, unserved, volumeState } from '../words/volume'
import { VolumeActions } from './VolumeActions'
import { PathsPanel } from './VolumePaths'

export function VolumeScreen({ name, node }: { name: string; node?: number }) {
  const volume = useVolume(name, node)
  const nodes = useNodes()
  const samples = useLiveVolume(volume.data?.id)
  if (!volume.data) {
    if (volume.error) return <NoVolume name={name} error={volume.error} />
    return <Empty>The node is being asked for volume {name}.</Empty>
  }
  const one = volume.data
  const at = volume.dataUpdatedAt
  const { tone, word, why } = volumeState(one, nodes.data ?? [])
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
      {volume.error && <ProblemAlert error={volume.error} what="The figures below are old" />}
      {(one.problem || one.fork) && (
        <Alert color={tone === 'critical' ? 'red' : 'yellow'} icon={<Icon name={tone} />} title={alertTitle(one, nodes.data ?? [])}>
          <Text size="sm">{one.problem ?? why}</Text>
          {one.fork && (
            <Text size="sm">
              Since {new Date(one.fork.since * 1000).toLocaleString()} (by that node’s clock).{' '}
              {one.fork.split && 'It is served by the node that decides, as that has it. What the other one has stays as it is, until you decide whose data is kept: under “More”.'}
            </Text>
          )}
        </Alert>
      )}
      <SimpleGrid cols={{ base: 1, lg: 2 }} spacing="md">
        <CopiesPanel volume={one} nodes={nodes.data ?? undefined} at={at} />
        <LossPanel volume={one} at={at} />
      </SimpleGrid>
      <LivePanel title="Load now" what="do with it" samples={samples} />
      <HistogramPanel volume={one} />
      <PathsPanel volume={one} nodes={nodes.data ?? undefined} at={at} />
      <EventsPanel volume={one} />
      <FactsPanel volume={one} at={at} />
    </Stack>
  )
}

function alertTitle(volume: Volume, nodes: ClusterNode[]): string {
  if (volume.fork?.split) return 'This volume is split'
  if (volume.fork) return `Node ${volume.fork.node} goes on alone`
  return unserved(volume, nodes) ? 'This volume is not served' : 'The node that this page asks does not serve it: other nodes do'
}

/** Why there is nothing to be shown of a volume. */
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
      <ProblemAlert error={error} what="It cannot be shown" />
    </Stack>
  )
}

function HistogramPanel({ volume }: { volume: Volume }) {
  const [chosen, setChosen] = useState<string>()
  const nodes = servers(volume)
  const node = nodes.find((one) => String(one.node) === chosen) ?? nodes[0]
  const counted = useCounted(volume.id, node?.node ?? aloneAt(volume))
  const choice = nodes.length > 1 && <SegmentedControl size="xs" aria-label="Through which node" value={String(node?.node)} onChange={setChosen} data={nodes.map((one) => ({ value: String(one.node), label: one.name }))} />
  return (
    <Panel title="How long requests take" at={counted.at} right={choice} note={`Through ${node?.name ?? aloneOn(volume)}, since this page looks: from the arrival of all data of a request to its answer.`}>
      {counted.problem && !counted.of ? <ProblemAlert error={counted.problem} what="No figures" /> : <Histogram of={counted.of} />}
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
          It is on {aloneOn(volume)} alone, in no record of the cluster: other nodes see it as long as that one answers. A volume that shall outlive a node is made with copies:{' '}
          <To href="#/create">create one with two or three</To>, and copy the data over on a host.
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
                    {copy.here ? ', asked by this page' : ''})
                    {copy.leaves ? ', to be taken away' : ''}
                  </Text>
                </Group>
                <Text size="xs" c="dimmed">
                  {down ? 'It gets what it misses by itself when its node is back.' : `It ${copyStateMeaning(copy.state)}.`}
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
              Compared: {compared}
            </Text>
          )}
        </Stack>
      )}
    </Panel>
  )
}

function LossPanel({ volume, at }: { volume: Volume; at: number }) {
  const etcd = etcdDecides(useNode().data)
  const copies = volume.copies ?? []
  const losses = volume.losses ?? []
  return (
    <Panel title="What happens if a node fails" at={at}>
      {copies.length === 0 ? (
        <Text size="sm">
          {volume.kind === 'ram' ? `Its data is lost when ${aloneOn(volume)} is restarted: it is in memory, and has no other copy.` : `If ${aloneOn(volume)} is lost, nobody can use it until the node is back: it has no other copy.`}
        </Text>
      ) : losses.length === 0 ? (
        <Empty>That cannot be said now: the node that this page asks does not know how the others are.</Empty>
      ) : (
        <Stack gap={8}>
          {losses.map((loss) => (
            <Group key={loss.node} gap="xs" wrap="nowrap" align="flex-start">
              <State tone={LOSS_TONE[loss.outcome]}>{copies.find((copy) => copy.node === loss.node)?.node_name || `node ${loss.node}`}</State>
              <Text size="sm">{loss.text}</Text>
            </Group>
          ))}
          <Text size="sm" c="dimmed">
            {agreement(volume, etcd)}
          </Text>
        </Stack>
      )}
    </Panel>
  )
}

/** So many events are shown here; their own screen has more. */
const EVENTS_MAX = 8

function EventsPanel({ volume }: { volume: Volume }) {
  // By what stays when it gets another name, and no other volume has.
  const wanted = { node: aloneAt(volume), subject: volume.id }
  const events = useEvents(wanted)
  const missing = useMissingEvents(wanted)
  const all = newestFirst(events.data ?? [])
  return (
    <Panel title="Events" at={events.dataUpdatedAt} note="What nodes have seen of it since they were started, whatever it was called, as far as they remember; the newest first." right={<To href="#/events" small>All</To>}>
      <MissingNote what="Events" missing={missing} />
      {events.error ? (
        <ProblemAlert error={events.error} what="The events cannot be read" />
      ) : !events.data ? (
        <Empty>The node is being asked.</Empty>
      ) : all.length === 0 ? (
        <Empty>No event of it is known. Nodes keep the newest events since they were started.</Empty>
      ) : (
        <Stack gap={8}>
          {all.slice(0, EVENTS_MAX).map((event) => (
            <EventLine key={keyOf(event)} event={event} />
          ))}
          {all.length > EVENTS_MAX && <Text size="sm" c="dimmed">and {all.length - EVENTS_MAX} before that.</Text>}
        </Stack>
      )}
    </Panel>
  )
}

function FactsPanel({ volume, at }: { volume: Volume; at: number }) {
  return (
    <Panel title="What it is" at={at}>
      <SimpleGrid cols={{ base: 1, md: 2 }} spacing="md">
        <Facts
          of={[
            ['Size', `${size(volume.size)} (${volume.size.toLocaleString()} bytes)`],
            ['Kind', volume.kind === 'ram' ? 'in memory: empty after each start of its node' : 'thick: all its space is taken'],
            [isElsewhere(volume) ? 'Pool' : 'Pool here', <To key="pool" href={link('pools')}>{volume.pool}</To>],
            ['Takes', `${size(volume.reserved)} ${volume.kind === 'ram' ? 'of memory at most' : 'of the pool'}`],
          ]}
        />
        <Facts
          of={[
            ['Blocks', `${volume.block_size} bytes, ${volume.physical_block_size} physical`],
            ['Striped over', volume.slices === 1 ? 'one slice, and so one core' : `${volume.slices} slices, and so up to as many cores`],
            ['Made', new Date(volume.created * 1000).toLocaleString()],
            ['On Linux', <code key="naa">/dev/disk/by-id/wwn-0x{volume.naa}</code>],
            ['Identity', <code key="id">{volume.id}</code>],
          ]}
        />
      </SimpleGrid>
    </Panel>
  )
}
