import { Alert, Group, SimpleGrid, Stack, Table, Text, Title } from '@mantine/core'
import { useMissingSessions, useNodes, useSessions, useVolume } from '../api/queries'
import type { ClusterNode, Session, Volume } from '../api/types'
import { Icon } from '../parts/Icon'
import { Histogram } from '../parts/Histogram'
import { LivePanel } from '../parts/LivePanel'
import { useLive, useLiveVolume } from '../live/live'
import { MissingNote } from '../parts/MissingNote'
import { Facts, Panel } from '../parts/Panel'
import { Empty, ProblemAlert, To } from '../parts/Problem'
import { State } from '../parts/State'
import { SyncRow } from '../parts/SyncRow'
import { link } from '../route'
import { LOSS_TONE } from '../words/losses'
import { duration, size } from '../words/size'
import { copyState, copyStateMeaning, syncsOf } from '../words/sync'
import { isElsewhere, volumeState } from '../words/volume'
import { VolumeActions } from './VolumeActions'

export function VolumeScreen({ name }: { name: string }) {
  const volume = useVolume(name)
  const nodes = useNodes()
  const live = useLive()
  const samples = useLiveVolume(name)
  if (!volume.data) {
    if (volume.error) return <ProblemAlert error={volume.error} what={`Volume ${name}`} />
    return <Empty>The node is being asked for volume {name}.</Empty>
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
      {volume.error && <ProblemAlert error={volume.error} what="The figures below are old" />}
      {(one.problem || one.fork) && (
        <Alert color={tone === 'critical' ? 'red' : 'yellow'} icon={<Icon name={tone} />} title={one.fork?.split ? 'This volume is split' : one.fork ? `Node ${one.fork.node} goes on alone` : 'This volume is not served'}>
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
      <LivePanel title="Load now" note="What hosts do with it through the node that this page asks, since this page looks." samples={samples} at={live.at} problem={live.problem} />
      <Panel title="How long requests take" at={live.at} note="Through the node that this page asks, since this page looks: from the arrival of all data of a request to its answer.">
        <Histogram of={live.done.get(one.name)} />
      </Panel>
      <PathsPanel volume={one} nodes={nodes.data ?? undefined} at={at} />
      <FactsPanel volume={one} at={at} />
    </Stack>
  )
}

function CopiesPanel({ volume, nodes, at }: { volume: Volume; nodes?: ClusterNode[]; at: number }) {
  const copies = volume.copies ?? []
  return (
    <Panel title="Copies" at={at}>
      {copies.length === 0 ? (
        <Empty>
          It is on this node alone, and the others do not know of it. A volume that shall outlive a node is made with copies:{' '}
          <To href="#/create">create one with two or three</To>, and copy the data over on a host.
        </Empty>
      ) : (
        <Stack gap="sm">
          {copies.map((copy) => {
            const down = nodes?.find((node) => node.id === copy.node)?.up === false
            return (
              <div key={copy.slot}>
                <Group gap="xs">
                  <State tone={down ? 'off' : copy.state === 'in_sync' ? 'ok' : copy.state === 'joining' || (copy.sync && !copy.sync.waits_for) ? 'working' : 'warning'}>
                    {down ? 'node is down' : copyState(copy.state)}
                  </State>
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
            <SyncRow key={sync.copy.slot} {...sync} />
          ))}
          {volume.reason && (
            <Text size="sm" c="dimmed">
              Last change (epoch {volume.epoch}): {volume.reason}
            </Text>
          )}
        </Stack>
      )}
    </Panel>
  )
}

function LossPanel({ volume, at }: { volume: Volume; at: number }) {
  const copies = volume.copies ?? []
  const losses = volume.losses ?? []
  return (
    <Panel title="What happens if a node fails" at={at}>
      {copies.length === 0 ? (
        <Text size="sm">
          {volume.kind === 'ram' ? 'Its data is lost when this node is restarted: it is in memory, and has no other copy.' : 'If this node is lost, nobody can use it until the node is back: it has no other copy.'}
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
            {volume.strategy?.strategy === 'heartbeat'
              ? `Chosen by ${volume.strategy.by}, ${new Date(volume.strategy.at * 1000).toLocaleString()}: a node that hears of nobody goes on alone after five seconds (heartbeat).`
              : 'What becomes of it is agreed on by the majority of the nodes that vote.'}
          </Text>
        </Stack>
      )}
    </Panel>
  )
}

function PathsPanel({ volume, nodes, at }: { volume: Volume; nodes?: ClusterNode[]; at: number }) {
  const sessions = useSessions()
  const missing = useMissingSessions()
  const targets = new Set(volume.maps.map((map) => map.target))
  const on = (sessions.data ?? []).filter((session) => session.target && targets.has(session.target))
  const ways = (volume.copies ?? []).flatMap((copy) => {
    const node = nodes?.find((one) => one.id === copy.node)
    return node ? node.portals.map((portal) => ({ copy, node, portal })) : []
  })
  return (
    <Panel title="Paths and initiators" at={Math.min(at, sessions.dataUpdatedAt || at)} right={<To href={`#/hosts?target=${encodeURIComponent(volume.maps[0]?.target ?? '')}`} small>Attach a host</To>}>
      <Stack gap="md">
        {volume.maps.length === 0 ? (
          <Empty>Nobody sees it: it is not mapped for any host group. Map it under “More”.</Empty>
        ) : (
          <Table.ScrollContainer minWidth={520}>
            <Table verticalSpacing={5} withRowBorders={false}>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>Host group</Table.Th>
                  <Table.Th>Target</Table.Th>
                  <Table.Th>LUN</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {volume.maps.map((map) => (
                  <Table.Tr key={`${map.target} ${map.lun} ${map.host}`}>
                    <Table.Td>{map.host === 'local' ? 'local (each node’s own machine)' : map.host}</Table.Td>
                    <Table.Td style={{ overflowWrap: 'anywhere' }}>{map.target}</Table.Td>
                    <Table.Td>{map.lun}</Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </Table.ScrollContainer>
        )}
        {ways.length > 0 && (
          <Table.ScrollContainer minWidth={420}>
            <Table verticalSpacing={5} withRowBorders={false}>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>Way to it</Table.Th>
                  <Table.Th>Node</Table.Th>
                  <Table.Th>Hosts can use it</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {ways.map(({ copy, node, portal }) => (
                  <Table.Tr key={`${node.id} ${portal}`}>
                    <Table.Td>{portal}</Table.Td>
                    <Table.Td>{node.name}</Table.Td>
                    <Table.Td>{!node.up ? 'no: the node is down' : copy.state !== 'in_sync' ? 'no: its copy is not in sync' : 'yes'}</Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </Table.ScrollContainer>
        )}
        <Sessions on={on} cluster={nodes !== undefined} failed={sessions.error} />
        <MissingNote what="Sessions" missing={missing} />
      </Stack>
    </Panel>
  )
}

function Sessions({ on, cluster, failed }: { on: Session[]; cluster: boolean; failed: unknown }) {
  if (failed) return <ProblemAlert error={failed} what="The sessions cannot be listed" />
  if (on.length === 0) return <Text size="sm" c="dimmed">No initiator is logged in to its target.</Text>
  return (
    <Table.ScrollContainer minWidth={680}>
      <Table verticalSpacing={5} withRowBorders={false}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Initiator</Table.Th>
            {cluster && <Table.Th>Node</Table.Th>}
            <Table.Th>From</Table.Th>
            <Table.Th>Core</Table.Th>
            <Table.Th>For</Table.Th>
            <Table.Th ta="right">Commands</Table.Th>
            <Table.Th ta="right">Received</Table.Th>
            <Table.Th ta="right">Sent</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {on.map((session) => (
            <Table.Tr key={`${session.node ?? ''} ${session.tsih}`}>
              <Table.Td style={{ overflowWrap: 'anywhere' }}>{session.alias || session.initiator}</Table.Td>
              {cluster && <Table.Td>{session.node_name ?? session.node}</Table.Td>}
              <Table.Td>{session.addresses.join(', ')}</Table.Td>
              <Table.Td>{session.core}</Table.Td>
              <Table.Td>{duration(session.age)}</Table.Td>
              <Table.Td ta="right">{session.commands.toLocaleString()}</Table.Td>
              <Table.Td ta="right">{size(session.bytes_received)}</Table.Td>
              <Table.Td ta="right">{size(session.bytes_sent)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
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
