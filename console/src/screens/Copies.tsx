import { Alert, Checkbox, Group, Radio, Select, Stack, Table, Text, Title } from '@mantine/core'
import { useState } from 'react'
import { api, data } from '../api/client'
import { useNode, useNodes, usePools, useVolume } from '../api/queries'
import { replaceCopy } from '../api/replace'
import type { ClusterNode, Pool, StrategyChosen, Volume } from '../api/types'
import { DeedButton, useDoing } from '../parts/deed'
import { Panel } from '../parts/Panel'
import { Paste } from '../parts/Paste'
import { Empty, ProblemAlert, To } from '../parts/Problem'
import { Rows } from '../parts/Rows'
import { CopyBadge, State } from '../parts/State'
import { SyncRow } from '../parts/SyncRow'
import { Tried } from '../parts/Tried'
import { link } from '../route'
import { type CopyDeed, changeCopy, ursa } from '../words/command'
import { withRole } from '../words/links'
import { poolChoices, poolProblem } from '../words/pools'
import { NO_VOTES, etcdDecides } from '../words/record'
import { plural } from '../words/size'
import { copyState, syncsOf } from '../words/sync'
import { NoVolume } from './Volume'

/** As the API has it. */
const COPIES_MAX = 4

/** Adds, moves and takes away copies of a volume, and chooses what a node does that hears of nobody. */
export function Copies({ name }: { name: string }) {
  const volume = useVolume(name)
  const nodes = useNodes()
  const etcd = etcdDecides(useNode().data)
  if (!volume.data) return volume.error ? <NoVolume name={name} error={volume.error} /> : <Empty>The node is being asked for volume {name}.</Empty>
  const one = volume.data
  return (
    <Stack gap="md" maw={900}>
      <div>
        <Text size="sm">
          <To href="#/volumes">Volumes</To> / <To href={link('volumes', name)}>{name}</To> /
        </Text>
        <Title order={1} size="h3">
          Copies of {one.name}
        </Title>
      </div>
      {(one.copies ?? []).length === 0 || !nodes.data ? (
        <Panel title="Copies" at={volume.dataUpdatedAt}>
          <Empty>This volume is on one node alone, in no record of the cluster, and cannot get copies. Create one that has them, and copy the data over on a host.</Empty>
        </Panel>
      ) : (
        <>
          <Now volume={one} nodes={nodes.data} at={volume.dataUpdatedAt} />
          <Partners volume={one} nodes={nodes.data} at={nodes.dataUpdatedAt} />
          <Change volume={one} nodes={nodes.data} />
          {etcd ? <NoStrategy /> : <StrategyPanel volume={one} nodes={nodes.data} />}
        </>
      )}
    </Stack>
  )
}

function Now({ volume, nodes, at }: { volume: Volume; nodes: ClusterNode[]; at: number }) {
  const loss = (node: number) => volume.losses?.find((one) => one.node === node)?.text
  return (
    <Panel title="Now" at={at}>
      <Stack gap="sm">
        {(volume.copies ?? []).map((copy) => (
          <Group key={copy.slot} gap="xs" wrap="nowrap" align="flex-start">
            <CopyBadge copy={copy} nodes={nodes} />
            <Text size="sm">
              <b>{copy.node_name || `node ${copy.node}`}</b>
              {copy.leaves ? ', to be taken away' : ''}{loss(copy.node) ? `; ${loss(copy.node)}` : ''}.
            </Text>
          </Group>
        ))}
        {syncsOf([volume]).map((sync) => (
          <SyncRow key={sync.copy.slot} {...sync} at={at} />
        ))}
      </Stack>
    </Panel>
  )
}

/** The nodes that have copies, or could, and by which links. */
function Partners({ volume, nodes, at }: { volume: Volume; nodes: ClusterNode[]; at: number }) {
  const here = nodes.find((node) => node.here)
  const has = (node: ClusterNode) => volume.copies?.find((copy) => copy.node === node.id)
  return (
    <Panel title="Partners and links" at={at} note={`All nodes that may have volumes, as ${here?.name ?? 'the node that is asked'} sees them. Links between nodes carry the data of copies, heartbeats and what nodes agree on; one marked (replication) or (heartbeat) is kept for that.`}>
      <Rows width={620} head={['Node', 'Link', 'Has', 'Between nodes', 'For hosts (iSCSI)']} dense>
        {nodes.filter((node) => !node.witness).map((node) => {
          const copy = has(node)
          return (
            <Table.Tr key={node.id}>
              <Table.Td>{node.name}</Table.Td>
              <Table.Td>
                <State tone={!node.up ? 'critical' : node.maintenance ? 'warning' : 'ok'}>{!node.up ? 'nothing is heard' : node.maintenance ? 'maintenance' : node.here ? 'asked by this page' : 'up'}</State>
              </Table.Td>
              <Table.Td>{copy ? `a copy, ${copyState(copy.state)}` : 'no copy of it'}</Table.Td>
              <Table.Td>{node.addresses.map((address) => withRole(node, address)).join(', ')}</Table.Td>
              <Table.Td>{node.portals.join(', ') || 'none'}</Table.Td>
            </Table.Tr>
          )
        })}
      </Rows>
      <Text size="xs" c="dimmed" mt="xs">A node that has a copy and was away is given only what it missed, by itself. A copy on a node that has none is new: all of the volume’s data goes there once. What an address is kept for is said under <To href={link('nodes')}>Nodes</To>, “Networks by role”.</Text>
    </Panel>
  )
}

function Change({ volume, nodes }: { volume: Volume; nodes: ClusterNode[] }) {
  const [deed, setDeed] = useState<CopyDeed>('add')
  const [from, setFrom] = useState<string | null>(null)
  const [to, setTo] = useState<string | null>(null)
  const [pool, setPool] = useState<string | null>(null)
  const pools = usePools()
  const { busy, error, run, forget } = useDoing()
  const copies = volume.copies ?? []
  const name = (id: number) => nodes.find((node) => node.id === id)?.name ?? `node ${id}`
  const free = nodes.filter((node) => !node.witness && !copies.some((copy) => copy.node === node.id))
  const isNew = deed === 'add' || deed === 'move'
  const gets = isNew ? to : deed === 'replace' ? from : null
  const there = (pools.data ?? []).filter((one) => gets !== null && one.node === Number(gets))
  const problem = whyNot(deed, volume, { nodes, from, there, pool })
  const ready = problem === undefined && (deed === 'add' || copies.some((copy) => copy.node === Number(from))) && (!isNew || to !== null)
  const command = changeCopy(deed, volume.name, { from, to, pool })
  const path = { params: { path: { name: volume.id } } }
  const body = { node: Number(to), ...(pool === null ? {} : { pool }), ...(deed === 'move' ? { instead_of: Number(from) } : {}) }
  async function act() {
    const done = await run(
      () =>
        deed === 'remove'
          ? data(api.DELETE('/v1/volumes/{name}/copies/{node}', { params: { path: { name: volume.id, node: Number(from) } } }))
          : deed === 'replace'
            ? replaceCopy({ volume: volume.id, node: Number(from), pool, gone: () => {
                // What is left to be done, should that be refused.
                setDeed('add')
                setTo(from)
              } })
            : data(api.POST('/v1/volumes/{name}/copies', { ...path, body })),
      deed === 'remove' ? 'The copy goes.' : 'The copy is being made; it gets the data in the background.',
    )
    if (done) {
      setFrom(null)
      setTo(null)
      setPool(null)
    }
  }
  return (
    <Panel title="Change" note="All of this while hosts use the volume.">
      <Stack gap="md">
        <Radio.Group
          value={deed}
          onChange={(value) => {
            setDeed(value as CopyDeed)
            setPool(null)
            forget()
          }}
          label="What"
        >
          <Stack gap={6} mt={6}>
            <Radio value="add" label="Add a copy on another node" description="A new copy is given all of the volume’s data in the background, beside what hosts do" />
            <Radio value="move" label="Move a copy to another node" description="The same; the old one goes when the new one is in sync, so there is never a copy less" />
            <Radio value="replace" label="Replace a copy on its node" description="For one whose disk or pool was lost: it is given up as it is, and made anew from the others, in a pool of the same node" />
            <Radio value="remove" label="Take a copy away" description="It is deleted on its node, with all that it has; never the last one in sync" />
          </Stack>
        </Radio.Group>
        <Group align="flex-end">
          {deed !== 'add' && (
            <Select
              label={deed === 'move' ? 'From' : 'Of node'}
              data={copies.map((copy) => ({ value: String(copy.node), label: `${name(copy.node)}: ${copyState(copy.state)}` }))}
              value={from}
              onChange={(node) => {
                setFrom(node)
                if (deed === 'replace') setPool(null)
              }}
            />
          )}
          {isNew && (
            <Select
              label={deed === 'move' ? 'To' : 'On node'}
              data={free.map((node) => ({ value: String(node.id), label: `${node.name}${node.up ? '' : ' (down)'}${node.maintenance ? ' (maintenance)' : ''}`, disabled: !node.up || node.maintenance }))}
              value={to}
              onChange={(node) => {
                setTo(node)
                setPool(null)
              }}
            />
          )}
          {deed !== 'remove' && <Select label="Pool there" description="Empty: the only one, or default" placeholder={gets === null ? 'Choose the node first' : undefined} data={poolChoices(there)} value={pool} onChange={setPool} disabled={gets === null} clearable w={320} maw="100%" />}
        </Group>
        <Text size="sm" c={problem ? 'orange' : undefined} fw={problem ? 600 : undefined}>{problem ?? exposure(deed, volume, from)}</Text>
        {ready &&
          (!isNew ? (
            <Tried method="DELETE" path={`/v1/volumes/${volume.id}/copies/${from}`} failure="It cannot be taken away" />
          ) : (
            <Tried path={`/v1/volumes/${volume.id}/copies`} body={body} failure="It cannot be done so" />
          ))}
        <Paste text={command} label="The same on the command line" />
        {error !== undefined && <ProblemAlert error={error} change="done" />}
        <Group justify="flex-end">
          <DeedButton color={isNew ? undefined : 'red'} loading={busy} because={problem ?? (ready ? undefined : 'Choose the node first.')} onClick={() => void act()}>
            {deed === 'add' ? 'Add the copy' : deed === 'move' ? 'Move the copy' : deed === 'replace' ? 'Replace the copy' : 'Take the copy away'}
          </DeedButton>
        </Group>
      </Stack>
    </Panel>
  )
}

/** Why it cannot be done; undefined if nothing is known that is against it. */
function whyNot(deed: CopyDeed, volume: Volume, { nodes, from, there, pool }: { nodes: ClusterNode[]; from: string | null; there: Pool[]; pool: string | null }): string | undefined {
  const copies = volume.copies ?? []
  const isNew = deed === 'add' || deed === 'move'
  if (isNew && nodes.every((node) => node.witness || copies.some((copy) => copy.node === node.id))) return 'Every node that may have volumes has a copy already.'
  if (deed === 'add' && copies.length >= COPIES_MAX) return `It has ${COPIES_MAX} copies; there cannot be more.`
  if (isNew || from === null) return undefined
  const inSync = copies.filter((copy) => copy.state === 'in_sync')
  if (inSync.length === 1 && inSync[0]?.node === Number(from)) return 'It is the last copy in sync: that one stays.'
  if (deed === 'remove') return undefined
  // The old copy goes before the new one is asked for: what would refuse that is to be known before.
  const node = nodes.find((node) => node.id === Number(from))
  if (!node || !node.up || node.maintenance) return `${node?.name ?? `Node ${from}`} is ${node?.up ? 'in maintenance' : 'down'}: it could not make the copy anew.`
  // The space of the old copy is free by then, and it is not known here which pool that is.
  return there.length === 0 ? `${node.name} has not said which pools it has.` : poolProblem(there, pool, 0)
}

/** What it means for what can be lost. */
function exposure(deed: CopyDeed, volume: Volume, from: string | null): string {
  const copies = volume.copies ?? []
  const inSync = copies.filter((copy) => copy.state === 'in_sync').length
  const leaving = copies.find((copy) => copy.node === Number(from))
  switch (deed) {
    case 'add':
      return `When it is in sync there are ${plural(copies.length + 1, 'copy', 'copies')}; until then the volume outlives what it outlives now. Each write then goes to one node more.`
    case 'move':
      return 'Meanwhile the old copy counts; a move that is not wanted any more is taken back under “Jobs”, or ends when the new copy is taken away before it is in sync.'
    case 'replace':
      return 'It is taken away first, with all that it has: until the new one is in sync, there is a copy less.'
    case 'remove': {
      const left = inSync - (leaving?.state === 'in_sync' ? 1 : 0)
      return left >= 2 ? `${left} copies in sync are left.` : left === 1 ? `One copy in sync is left: ${volume.kind === 'ram' ? 'it is in memory, and lost with each restart of its node' : 'when its node is lost, nobody can use the volume until it is back'}.` : 'No copy in sync would be left: that is refused.'
    }
  }
}

/** Where there is nothing to choose. */
function NoStrategy() {
  return (
    <Panel title="When a node hears of nobody">
      <Text size="sm">{NO_VOTES} There is nothing to choose.</Text>
    </Panel>
  )
}

function StrategyPanel({ volume, nodes }: { volume: Volume; nodes: ClusterNode[] }) {
  const now = volume.strategy?.strategy ?? 'prefer'
  const [chosen, setChosen] = useState<'prefer' | 'heartbeat'>(now)
  const [agreed, setAgreed] = useState(false)
  const [oneWay, setOneWay] = useState(false)
  const { busy, error, run } = useDoing()
  const two = nodes.length === 2
  async function act() {
    await run(async () => {
      const found = await data(api.PUT('/v1/volumes/{name}/strategy', { params: { path: { name: volume.id } }, body: { strategy: chosen, ...(chosen === 'heartbeat' ? { accept_split_brain: agreed } : {}) } }))
      // Not asked what it would do, it says what was chosen.
      setOneWay((found as StrategyChosen).one_way)
    }, 'The strategy is chosen.')
  }
  return (
    <Panel title="When a node hears of nobody" note={two ? undefined : 'Of three nodes that vote a majority decides, whatever is chosen here. It matters for two nodes alone.'}>
      <Stack gap="md">
        <Radio.Group value={chosen} onChange={(value) => setChosen(value as typeof chosen)} label="Strategy">
          <Stack gap={8} mt={6}>
            <Radio value="prefer" label="Wait (prefer)" description="Of two nodes one decides: it goes on when the other is lost; when it is lost itself, the other waits for it. Never two truths." />
            <Radio value="heartbeat" label="Go on alone (heartbeat)" description="The other one goes on alone after about six seconds, too. But two nodes cannot tell a lost node from a lost link: if only the link is lost, both go on, and what one of them has written is given up later." />
          </Stack>
        </Radio.Group>
        {chosen === 'heartbeat' && now !== 'heartbeat' && (
          <>
            <Alert color="yellow">Give the nodes two networks, with an address of each, and let hosts not reach both nodes while these do not reach each other. A third node, if only a small one as a witness, is the better answer.</Alert>
            <Checkbox label="I accept that both nodes may go on, and data of one of them be given up then" checked={agreed} onChange={(event) => setAgreed(event.currentTarget.checked)} />
          </>
        )}
        {oneWay && <Alert color="yellow">A node is known by one address only: when that network is lost, both nodes go on.</Alert>}
        <Text size="xs" c="dimmed">
          The same: <code>{ursa('volume', 'strategy', volume.name, chosen, chosen === 'heartbeat' ? '--accept-split-brain' : undefined)}</code>
        </Text>
        {error !== undefined && <ProblemAlert error={error} change="chosen" />}
        <Group justify="flex-end">
          <DeedButton variant="default" loading={busy} because={chosen === now ? 'It is so already.' : chosen === 'heartbeat' && !agreed ? 'Accept the risk first.' : undefined} onClick={() => void act()}>
            Choose it
          </DeedButton>
        </Group>
      </Stack>
    </Panel>
  )
}
