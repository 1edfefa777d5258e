import { Stack, Table, Text } from '@mantine/core'
import { useMissingSessions, useSessions } from '../api/queries'
import type { ClusterNode, Session, Volume } from '../api/types'
import { useLive } from '../live/live'
import { usePathRates } from '../live/paths'
import { MissingNote } from '../parts/MissingNote'
import { Panel } from '../parts/Panel'
import { Empty, ProblemAlert, To } from '../parts/Problem'
import { Rows } from '../parts/Rows'
import { State } from '../parts/State'
import { sessionKey } from '../words/hostpaths'
import { count, duration, latency, plural, rate, size } from '../words/size'

/** The host groups that see a volume, its paths, and the current I/O of each path. */
export function PathsPanel({ volume, nodes, at }: { volume: Volume; nodes?: ClusterNode[]; at: number }) {
  const sessions = useSessions()
  const missing = useMissingSessions()
  const targets = new Set(volume.maps.map((map) => map.target))
  const on = (sessions.data ?? []).filter((session) => session.target && targets.has(session.target))
  return (
    <Panel title="Paths and initiators" at={Math.min(at, sessions.dataUpdatedAt || at)} right={<To href={`#/hosts?volume=${encodeURIComponent(volume.name)}`} small>Set up host</To>}>
      <Stack gap="md">
        {volume.maps.length === 0 ? (
          <Empty>Not mapped to any host group, so no host can use the volume. Map it under “More”.</Empty>
        ) : (
          <Rows width={520} head={['Host group', 'Target', 'LUN']} dense>
            {volume.maps.map((map) => (
              <Table.Tr key={`${map.target} ${map.lun} ${map.host}`}>
                <Table.Td>{map.host === 'local' ? 'local (each node’s own machine)' : map.host}</Table.Td>
                <Table.Td style={{ overflowWrap: 'anywhere' }}>{map.target}</Table.Td>
                <Table.Td>{map.lun}</Table.Td>
              </Table.Tr>
            ))}
          </Rows>
        )}
        <Ways volume={volume} nodes={nodes ?? []} on={on} />
        <Sessions on={on} failed={sessions.error} shared={volume.maps.length > 0} />
        <MissingNote what="Sessions" missing={missing} />
      </Stack>
    </Panel>
  )
}

/** Each node that has a copy, with the I/O through it. */
function Ways({ volume, nodes, on }: { volume: Volume; nodes: ClusterNode[]; on: Session[] }) {
  const live = useLive()
  const copies = (volume.copies ?? []).flatMap((copy) => {
    const node = nodes.find((one) => one.id === copy.node)
    return node ? [{ copy, node }] : []
  })
  if (copies.length === 0) return null
  return (
    <Rows width={680} head={['Path through', 'Usable by hosts', { right: 'Sessions' }, { right: 'IOPS' }, { right: 'Bandwidth' }, { right: 'Mean latency, read and write' }]} dense>
      {copies.map(({ copy, node }) => {
        const heard = live.nodes.some((one) => one.node === node.id)
        const now = live.nodes.find((one) => one.node === node.id)?.sample.volumes.find((one) => one.id === volume.id)
        const figure = (text: string) => (heard ? text : '–')
        const usable = node.up && copy.state === 'in_sync'
        return (
          <Table.Tr key={node.id}>
            <Table.Td>
              {node.name}
              <Text size="xs" c="dimmed">{node.portals.join(', ')}</Text>
            </Table.Td>
            <Table.Td>
              <State tone={usable ? 'ok' : 'warning'}>{!node.up ? 'no: the node is down' : copy.state !== 'in_sync' ? 'no: its copy is out of sync' : 'yes'}</State>
            </Table.Td>
            <Table.Td ta="right">{on.filter((session) => session.node === node.id).length}</Table.Td>
            <Table.Td ta="right">{figure(count((now?.read.operations ?? 0) + (now?.write.operations ?? 0)))}</Table.Td>
            <Table.Td ta="right">{figure(rate((now?.read.bytes ?? 0) + (now?.write.bytes ?? 0)))}</Table.Td>
            <Table.Td ta="right">{now ? `${mean(now.read.mean_us)}, ${mean(now.write.mean_us)}` : '–'}</Table.Td>
          </Table.Tr>
        )
      })}
    </Rows>
  )
}

const mean = (micros: number | null | undefined) => (micros === undefined || micros === null ? '–' : latency(micros / 1e6))

function Sessions({ on, failed, shared }: { on: Session[]; failed: unknown; shared: boolean }) {
  const rates = usePathRates()
  if (failed) return <ProblemAlert error={failed} what="The sessions cannot be listed" />
  if (!shared) return null
  if (on.length === 0) return <Text size="sm" c="dimmed">No initiator is logged in to its target. Set up a host to connect one.</Text>
  return (
    <div>
      <Rows width={760} head={['Initiator', 'Node', 'From', 'Core', 'Age', { right: 'Commands/s' }, { right: 'From host' }, { right: 'To host' }]} dense>
        {on.map((session) => {
          const now = rates.get(sessionKey(session))
          return (
            <Table.Tr key={sessionKey(session)}>
              <Table.Td style={{ overflowWrap: 'anywhere' }}>{session.alias || session.initiator}</Table.Td>
              <Table.Td>{session.node_name}</Table.Td>
              <Table.Td>{session.addresses.join(', ')}</Table.Td>
              <Table.Td>{session.core}</Table.Td>
              <Table.Td style={{ whiteSpace: 'nowrap' }}>{duration(session.age)}</Table.Td>
              <Table.Td ta="right" title={`${plural(session.commands, 'command')} so far`}>{now ? count(now.commands) : '–'}</Table.Td>
              <Table.Td ta="right" title={`${size(session.bytes_received)} so far`}>{now ? rate(now.received) : '–'}</Table.Td>
              <Table.Td ta="right" title={`${size(session.bytes_sent)} so far`}>{now ? rate(now.sent) : '–'}</Table.Td>
            </Table.Tr>
          )
        })}
      </Rows>
      <Text size="xs" c="dimmed" mt="xs">These are the sessions of the target: their traffic covers all LUNs of that target, measured between the last two refreshes.</Text>
    </div>
  )
}
