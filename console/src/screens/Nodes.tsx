import { Group, NumberInput, Progress, SimpleGrid, Stack, Switch, Table, Text, TextInput, Title } from '@mantine/core'
import { useState } from 'react'
import { api, data } from '../api/client'
import { useFindings, useNode, useNodes, useSessions } from '../api/queries'
import type { ClusterNode, LiveCore } from '../api/types'
import { useLive } from '../live/live'
import { useNow } from '../parts/clock'
import { Ask, DeedButton, Said } from '../parts/deed'
import { MissingNote } from '../parts/MissingNote'
import { Facts, Panel } from '../parts/Panel'
import { Paste } from '../parts/Paste'
import { Empty, ProblemAlert } from '../parts/Problem'
import { Rows } from '../parts/Rows'
import { State } from '../parts/State'
import { Tried } from '../parts/Tried'
import { ursa } from '../words/command'
import { isSingle } from '../words/draft'
import { unheard } from '../words/missing'
import { downWord, nameOf, nodeSince } from '../words/nodes'
import { readConfirmWord } from '../words/readconfirm'
import { NO_VOTES, etcdDecides, recordWord } from '../words/record'
import { lasting } from '../words/since'
import { duration, plural, size } from '../words/size'
import { Addresses } from './Addresses'
import { Networks } from './Networks'

export function Nodes() {
  const nodes = useNodes()
  const etcd = etcdDecides(useNode().data)
  const known = nodes.data ?? []
  return (
    <Stack gap="md">
      <Title order={1} size="h3">
        Nodes
      </Title>
      {nodes.error && <ProblemAlert error={nodes.error} what="The nodes cannot be listed" />}
      {known.length > 0 && <ClusterNodes nodes={known} at={nodes.dataUpdatedAt} etcd={etcd} />}
      {nodes.data && isSingle(known) && <MoreNodes only={known[0]} etcd={etcd} />}
      <Here nodes={known} />
      {known.length > 0 && <Networks nodes={known} at={nodes.dataUpdatedAt} />}
      {known.length > 0 && <Addresses nodes={known} />}
      <Load nodes={known} />
    </Stack>
  )
}

/** Whether other nodes can join the only node of a cluster. */
const listens = (only: ClusterNode) => only.addresses.length > 0

/**
 * How others join the only node of a cluster, and how it joins another one. Without `only`: the queried node
 * takes no part in its cluster.
 */
function MoreNodes({ only, etcd }: { only: ClusterNode | undefined; etcd: boolean }) {
  const [open, setOpen] = useState<'init' | 'join'>()
  const [listen, setListen] = useState('')
  const [token, setToken] = useState('')
  const [witness, setWitness] = useState(false)
  const asWitness = witness && !etcd
  const address = <TextInput label="Listen address" description="An address of this machine that the other nodes can reach; two, separated by a comma, for two networks. Default port: 3270." placeholder="10.0.0.1" value={listen} onChange={(event) => setListen(event.currentTarget.value)} data-autofocus />
  const list = listen.split(',').map((one) => one.trim()).filter((one) => one !== '')
  return (
    <Panel title="More nodes">
      <Empty
        action={
          <Group justify="center">
            {only && !listens(only) && (
              <DeedButton deed="administer" onClick={() => setOpen('init')}>
                Let others join
              </DeedButton>
            )}
            <DeedButton deed="administer" variant="default" onClick={() => setOpen('join')}>
              Join another cluster
            </DeedButton>
          </Group>
        }
      >
        {!only
          ? 'This node does not take part in its cluster: its findings say why. If its copy of the cluster’s record was lost, it can join again, as a new node.'
          : etcd
            ? 'There is only one node. Its settings name an etcd, which holds the cluster’s record once other nodes can join. With etcd, two nodes are enough for volumes with copies to survive the loss of either node. Set the same etcd on the other nodes.'
            : 'There is only one node. With three (the third may be a witness: a small machine without volumes), volumes with copies survive the loss of any one of them.'}
      </Empty>
      <Ask opened={open === 'init'} close={() => setOpen(undefined)} title="Let other nodes join" label="Listen" ready={list.length > 0} command={ursa('node', 'init', '--listen', list.join(',') || 'ADDRESS')} act={() => data(api.POST('/v1/cluster', { body: { listen: list } }))} done="Other nodes can join now: “Add node” creates a token for each.">
        {address}
      </Ask>
      <Ask opened={open === 'join'} close={() => setOpen(undefined)} title="Join another cluster" label="Join" ready={list.length > 0 && token !== ''} command={`ursa node join TOKEN --listen ${list.join(',') || 'ADDRESS'}${asWitness ? ' --witness' : ''}`} act={() => data(api.POST('/v1/cluster/join', { body: { listen: list, token, witness: asWitness } }))} done={etcd ? 'Joining the cluster.' : 'Joining the cluster. The node becomes a voter within a few seconds.'}>
        <Said>This node’s users and tokens become valid in the whole cluster, and those of the cluster on this node. If both have a user of one name, rename one first. You may have to log in again.</Said>
        <TextInput label="Join token" description="Create it on a node of the cluster, under “Nodes”. It lets one node join, once" value={token} onChange={(event) => setToken(event.currentTarget.value.trim())} autoComplete="off" />
        {address}
        <Switch label="As a witness" description={etcd ? NO_VOTES : 'The node votes and has no volumes'} disabled={etcd} checked={asWitness} onChange={(event) => setWitness(event.currentTarget.checked)} />
      </Ask>
    </Panel>
  )
}

function ClusterNodes({ nodes, at, etcd }: { nodes: ClusterNode[]; at: number; etcd: boolean }) {
  const [chosen, setChosen] = useState<{ node: ClusterNode; what: 'maintain' | 'remove' }>()
  const [inviting, setInviting] = useState(false)
  const [preferring, setPreferring] = useState<ClusterNode>()
  const [unpreferring, setUnpreferring] = useState<ClusterNode>()
  const two = nodes.length === 2
  const votes = !etcd && nodes.length > 1
  const closed = nodes.length === 1 && nodes.every((one) => !listens(one))
  const close = () => setChosen(undefined)
  const node = chosen?.node
  return (
    <Panel title={plural(nodes.length, 'node')} at={at} note={etcd && nodes.length > 1 ? NO_VOTES : undefined} right={<DeedButton deed="administer" size="compact-sm" because={closed ? 'Let others join first.' : undefined} onClick={() => setInviting(true)}>Add node</DeedButton>}>
      <Rows width={640} head={['Node', 'State', 'Version', 'Cores', votes && 'Role', 'Copies in sync', '']}>
        {nodes.map((one) => (
          <Table.Tr key={one.id}>
            <Table.Td>
              <b>{one.name}</b>
              <Text size="xs" c="dimmed">
                node {one.id}
                {one.here ? ', this node' : ''}
                {one.authority ? ', holds the cluster CA key' : ''}
              </Text>
            </Table.Td>
            <Table.Td>
              <State tone={!one.up ? 'critical' : one.maintenance ? 'warning' : 'ok'}>{!one.up ? downWord(one) : one.maintenance ? 'maintenance' : 'up'}</State>
              {!one.up && one.maintenance && <Text size="xs">in maintenance</Text>}
              <Lasting node={one} />
              {one.up && !one.maintenance && typeof one.uptime === 'number' && <Text size="xs" style={{ whiteSpace: 'nowrap' }}>for {duration(one.uptime)}</Text>}
            </Table.Td>
            <Table.Td>{one.version ?? '–'}</Table.Td>
            <Table.Td>{one.cores ?? '–'}</Table.Td>
            {votes && (
              <Table.Td>
                {!one.votes ? 'no vote' : one.record_stalled ? 'vote missing' : 'voter'}
                {one.leads ? ', leader' : ''}
                {one.witness ? ', witness' : ''}
                {one.preferred ? ', preferred' : ''}
              </Table.Td>
            )}
            <Table.Td>
              {one.witness ? '–' : `${one.in_sync} of ${one.copies}`}
            </Table.Td>
            <Table.Td>
              <Group gap={6} justify="flex-end" wrap="nowrap">
                <DeedButton size="compact-sm" variant="default" onClick={() => setChosen({ node: one, what: 'maintain' })}>
                  {one.maintenance ? 'End maintenance' : 'Start maintenance'}
                </DeedButton>
                {two && !etcd && !one.witness && !one.preferred && (
                  <DeedButton deed="administer" size="compact-sm" variant="default" onClick={() => setPreferring(one)}>
                    Prefer
                  </DeedButton>
                )}
                {!etcd && one.preferred && (
                  <DeedButton deed="administer" size="compact-sm" variant="default" onClick={() => setUnpreferring(one)}>
                    Clear preference
                  </DeedButton>
                )}
                <DeedButton deed="administer" size="compact-sm" variant="default" because={one.here ? 'A node cannot remove itself: open the console of another node.' : one.copies > 0 ? 'The node has copies of volumes: move or remove them first.' : undefined} onClick={() => setChosen({ node: one, what: 'remove' })}>
                  Remove
                </DeedButton>
              </Group>
            </Table.Td>
          </Table.Tr>
        ))}
      </Rows>
      {node && (
        <>
          <Ask
            opened={chosen?.what === 'maintain'}
            close={close}
            title={node.maintenance ? `End maintenance of ${nameOf(node)}` : `Start maintenance of ${nameOf(node)}`}
            label={node.maintenance ? 'End' : 'Start'}
            command={ursa('node', 'maintenance', node.id, node.maintenance ? 'off' : 'on')}
            act={() => data(api.PUT('/v1/nodes/{id}/maintenance', { params: { path: { id: node.id } }, body: { on: !node.maintenance } }))}
            done={node.maintenance ? 'Its copies resync what they missed.' : 'The node can be stopped now.'}
          >
            <Said>
              {node.maintenance
                ? 'Its copies automatically resync what they missed.'
                : 'Its copies go out of sync and hosts continue through the other nodes; then the node can be stopped. It takes no new copies meanwhile, and stays in maintenance, even across restarts, until you end it. Ursa refuses this while a volume has no other copy in sync.'}
            </Said>
            <Tried method="PUT" path={`/v1/nodes/${node.id}/maintenance`} body={{ on: !node.maintenance }} failure="Maintenance cannot be changed now" />
          </Ask>
          <Ask opened={chosen?.what === 'remove'} close={close} title={`Remove ${nameOf(node)} from the cluster`} label="Remove permanently" danger typed={node.name || String(node.id)} command={ursa('node', 'remove', node.id)} act={() => data(api.DELETE('/v1/nodes/{id}', { params: { path: { id: node.id } } }))} done={`${nameOf(node)} removed from the cluster.`}>
            <Said>This is permanent: its node number is never used again. To return, the node must be set up again and join with a new token.</Said>
            <Tried method="DELETE" path={`/v1/nodes/${node.id}`} failure="The node cannot be removed" />
          </Ask>
        </>
      )}
      {preferring && (
        <Ask opened close={() => setPreferring(undefined)} title={`Prefer ${nameOf(preferring)}`} label="Prefer" command={ursa('node', 'prefer', preferring.id)} act={() => data(api.PUT('/v1/cluster/preferred', { body: { node: preferring.id } }))} done={`${nameOf(preferring)} is now the preferred node.`}>
          <Said>Of two nodes without a witness, the preferred node continues when the other is lost; if the preferred node is lost, the other waits for it.</Said>
        </Ask>
      )}
      {unpreferring && (
        <Ask opened close={() => setUnpreferring(undefined)} title={`Clear preference for ${nameOf(unpreferring)}`} label="Clear preference" command={ursa('node', 'prefer', 'none')} act={() => data(api.PUT('/v1/cluster/preferred', { body: { node: null } }))} done="No node is preferred.">
          <Said>Without a witness, one of two nodes still continues when the other is lost: for now, the same one as before. With three voters the majority decides.</Said>
        </Ask>
      )}
      <Invite opened={inviting} close={() => setInviting(false)} etcd={etcd} />
    </Panel>
  )
}

/** How long a node has been down, or in maintenance. */
function Lasting({ node }: { node: ClusterNode }) {
  const now = useNow()
  const since = nodeSince(node)
  if (!since) return null
  return <Text size="xs" title={new Date(1000 * since.at).toLocaleString()}>{lasting(duration(now / 1000 - since.at), since)}</Text>
}

function Invite({ opened, close, etcd }: { opened: boolean; close: () => void; etcd: boolean }) {
  const [token, setToken] = useState<string>()
  const [hours, setHours] = useState<number | string>(1)
  const valid = typeof hours === 'number' && hours > 0 ? hours : 1
  return (
    <Ask
      opened={opened}
      close={() => {
        setToken(undefined)
        close()
      }}
      title="Add node"
      label={token ? 'Create another token' : 'Create token'}
      stays
      command={ursa('node', 'token', ...(valid === 1 ? [] : ['--valid', `${valid}h`]))}
      act={async () => setToken((await data(api.POST('/v1/cluster/tokens', { body: { valid_seconds: valid * 3600 } }))).token)}
    >
      <Said>A join token is a secret that lets one node join, once. It expires after the time below, or when the node that created the cluster restarts, since that node issues all tokens. A node joins with its volumes, targets and host groups; objects with the same name in the cluster must be identical.{etcd ? ' It needs the same etcd in its settings.' : ''}</Said>
      <NumberInput label="Valid for (hours)" description="At most 168 (seven days)" value={hours} onChange={setHours} min={1} max={168} allowDecimal={false} w={240} />
      {token && <Paste label={`Run this on the node that joins, with one of its addresses that the others can reach${etcd ? '' : ' (for a witness add --witness)'}`} text={`ursa node join ${token} --listen ADDRESS`} />}
    </Ask>
  )
}

function Here({ nodes }: { nodes: ClusterNode[] }) {
  const node = useNode()
  const found = useFindings()
  const here = nodes.find((one) => one.here)?.id
  if (!node.data) return null
  const one = node.data
  const own = (found.data ?? []).filter(({ seen_by }) => here === undefined || seen_by?.includes(here))
  const record = recordWord(one.record, nodes.length)
  const confirm = readConfirmWord(one.read_confirm)
  return (
    <Panel title={`This node: ${one.name}`} at={node.dataUpdatedAt}>
      <Facts
        of={[
          ['Version', `Ursa ${one.version}, up for ${duration(one.uptime)}`],
          ['iSCSI', one.portals.join(', ')],
          ['Block maps', `${size(one.map_memory.used)} of ${size(one.map_memory.limit)} (map-max): memory for the maps of log volumes`],
          ...(record === undefined ? [] : [['Cluster’s record', record] satisfies [string, string]]),
          ...(confirm === undefined ? [] : [['Confirmed reads', confirm] satisfies [string, string]]),
          ['Findings', !found.data ? 'unknown' : own.length > 0 ? own.map(({ cause }) => cause).join(' ') : 'none'],
          ['Changes', one.changes.length ? one.changes.map((change) => `${change.what}, for ${duration(change.age)}, waiting for ${change.waits_for}`).join('; ') : 'none in progress'],
        ]}
      />
    </Panel>
  )
}

/** How busy each core of each node is. */
function Load({ nodes }: { nodes: ClusterNode[] }) {
  const live = useLive()
  const node = useNode()
  const sessions = useSessions()
  const name = (id: number) => nodes.find((one) => one.id === id)?.name ?? node.data?.name ?? ''
  const on = (id: number, core: number) => (sessions.data ?? []).filter((session) => session.node === id && session.core === core).length
  return (
    <Panel title="Load per core" at={live.at} note="In the last second. An idle core polls for work for a moment, then sleeps: polling is not load.">
      <MissingNote what="Cores" missing={unheard(live, nodes)} />
      {live.nodes.length === 0 ? (
        live.problem ? <ProblemAlert error={live.problem} what="The load cannot be read" /> : <Empty>Waiting for the first sample…</Empty>
      ) : (
        <Stack gap="sm">
          {live.nodes.map((one) => (
            <Cores key={one.node} name={name(one.node)} cores={one.sample.cores} sessions={(core) => on(one.node, core)} />
          ))}
        </Stack>
      )}
    </Panel>
  )
}

function Cores({ name, cores, sessions }: { name: string; cores: LiveCore[]; sessions: (core: number) => number }) {
  return (
    <div>
      <Text size="sm" fw={600} mb={4}>{name}</Text>
      <SimpleGrid cols={{ base: 1, xs: 2, md: 3 }} spacing="xs" verticalSpacing={6}>
        {cores.map(({ cpu, polling }, core) => {
          const works = Math.max(0, cpu - polling)
          const whole = (part: number) => `${Math.round(100 * part)} %`
          return (
            <div key={core}>
              <Text size="xs">
                core {core}: <span className="figure">{whole(works)}</span> busy, <span className="figure">{whole(polling)}</span> polling; {plural(sessions(core), 'session')}
              </Text>
              <Progress.Root size="md" mt={2}>
                <Progress.Section value={100 * works} color={works > 0.9 ? 'red' : 'cyan'} aria-label={`core ${core} of ${name}: ${whole(works)} busy`} />
                <Progress.Section value={100 * Math.min(polling, 1 - works)} color="gray.5" aria-label={`${whole(polling)} polling`} />
              </Progress.Root>
            </div>
          )
        })}
      </SimpleGrid>
    </div>
  )
}
