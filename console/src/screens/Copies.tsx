import { Alert, Checkbox, Group, Radio, Select, Stack, Table, Text, Title } from '@mantine/core'
import { useState } from 'react'
import { api, data } from '../api/client'
import { useNode, useNodes, usePools, useVolume } from '../api/queries'
import { rebuildCopy } from '../api/rebuild'
import type { ClusterNode, Pool, PolicyChosen, Volume } from '../api/types'
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

/** As in the API. */
const COPIES_MAX = 4

/** Adds, moves, rebuilds and removes copies of a volume, and sets its split-brain policy. */
export function Copies({ name }: { name: string }) {
  const volume = useVolume(name)
  const nodes = useNodes()
  const etcd = etcdDecides(useNode().data)
  if (!volume.data) return volume.error ? <NoVolume name={name} error={volume.error} /> : <Empty>Loading volume {name}…</Empty>
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
      {!nodes.data ? (
        <Panel title="Copies" at={volume.dataUpdatedAt}>
          {nodes.error ? <ProblemAlert error={nodes.error} what="The nodes cannot be listed" /> : <Empty>Loading nodes…</Empty>}
        </Panel>
      ) : (
        <>
          <Now volume={one} nodes={nodes.data} at={volume.dataUpdatedAt} />
          <Others volume={one} nodes={nodes.data} at={nodes.dataUpdatedAt} />
          <Change volume={one} nodes={nodes.data} />
          {etcd ? <NoPolicy /> : <PolicyPanel volume={one} nodes={nodes.data} />}
        </>
      )}
    </Stack>
  )
}

/** The copy of the volume on a node. */
const copyOn = (volume: Volume, node: ClusterNode) => volume.copies?.find((copy) => copy.node === node.id)

function Now({ volume, nodes, at }: { volume: Volume; nodes: ClusterNode[]; at: number }) {
  const loss = (node: number) => volume.losses?.find((one) => one.node === node && one.outcome !== 'down')?.text
  return (
    <Panel title="Current copies" at={at}>
      <Stack gap="sm">
        {(volume.copies ?? []).map((copy) => (
          <Group key={copy.slot} gap="xs" wrap="nowrap" align="flex-start">
            <CopyBadge copy={copy} nodes={nodes} />
            <Text size="sm">
              <b>{copy.node_name || `node ${copy.node}`}</b>
              {copy.leaves ? ', being removed' : ''}{loss(copy.node) ? `; if it is lost: ${loss(copy.node)}` : ''}.
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

/** The nodes that have or could have copies, and their links. */
function Others({ volume, nodes, at }: { volume: Volume; nodes: ClusterNode[]; at: number }) {
  const here = nodes.find((node) => node.here)
  return (
    <Panel title="Nodes and links" at={at} note={`Nodes that can store copies, as seen from ${here?.name ?? 'this node'}. Links between nodes carry replication, heartbeats and the cluster’s record; an address marked (replication) or (heartbeat) is reserved for that.`}>
      <Rows width={620} head={['Node', 'Link', 'Copy', 'Between nodes', 'For hosts (iSCSI)']} dense>
        {nodes.filter((node) => !node.witness).map((node) => {
          const copy = copyOn(volume, node)
          return (
            <Table.Tr key={node.id}>
              <Table.Td>{node.name}</Table.Td>
              <Table.Td>
                <State tone={!node.up ? 'critical' : node.maintenance ? 'warning' : 'ok'}>{!node.up ? 'down' : node.maintenance ? 'maintenance' : node.here ? 'this node' : 'up'}</State>
              </Table.Td>
              <Table.Td>{copy ? copyState(copy.state) : 'no copy'}</Table.Td>
              <Table.Td>{node.addresses.map((address) => withRole(node, address)).join(', ')}</Table.Td>
              <Table.Td>{node.portals.join(', ') || 'none'}</Table.Td>
            </Table.Tr>
          )
        })}
      </Rows>
      <Text size="xs" c="dimmed" mt="xs">When a node with a copy returns, it automatically resyncs only what it missed. A copy on a new node needs one full resync. Addresses are reserved under <To href={link('nodes')}>Nodes</To>, “Networks by role”.</Text>
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
  const free = nodes.filter((node) => !node.witness && !copyOn(volume, node))
  const isNew = deed === 'add' || deed === 'move'
  const gets = isNew ? to : deed === 'rebuild' ? from : null
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
          : deed === 'rebuild'
            ? rebuildCopy({ volume: volume.id, node: Number(from), pool, gone: () => {
                // The step that remains if the addition is refused.
                setDeed('add')
                setTo(from)
              } })
            : data(api.POST('/v1/volumes/{name}/copies', { ...path, body })),
      deed === 'remove' ? 'Removing the copy.' : 'Copy created; it resyncs in the background.',
    )
    if (done) {
      setFrom(null)
      setTo(null)
      setPool(null)
    }
  }
  return (
    <Panel title="Change copies" note="You can do all of this while hosts use the volume.">
      <Stack gap="md">
        <Radio.Group
          value={deed}
          onChange={(value) => {
            setDeed(value as CopyDeed)
            setPool(null)
            forget()
          }}
          label="Action"
        >
          <Stack gap={6} mt={6}>
            <Radio value="add" label="Add copy on another node" description="The new copy gets all data of the volume in the background while hosts use it" />
            <Radio value="move" label="Move copy to another node" description="Adds a copy; the old copy is removed when the new one is in sync, so redundancy is never reduced" />
            <Radio value="rebuild" label="Rebuild copy on its node" description="For a lost disk or pool: deletes the copy and resyncs a new one from the others, in a pool of the same node" />
            <Radio value="remove" label="Remove copy" description="Deletes the copy and its data on its node; the last copy in sync cannot be removed" />
          </Stack>
        </Radio.Group>
        <Group align="flex-end">
          {deed !== 'add' && (
            <Select
              label={deed === 'move' ? 'From' : 'Node'}
              data={copies.map((copy) => ({ value: String(copy.node), label: `${name(copy.node)}: ${copyState(copy.state)}` }))}
              value={from}
              onChange={(node) => {
                setFrom(node)
                if (deed === 'rebuild') setPool(null)
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
          {deed !== 'remove' && <Select label="Pool on that node" description="Empty: the only pool, or the pool named default" placeholder={gets === null ? 'Choose a node first' : undefined} data={poolChoices(there)} value={pool} onChange={setPool} disabled={gets === null} clearable w={320} maw="100%" />}
        </Group>
        <Text size="sm" c={problem ? 'orange' : undefined} fw={problem ? 600 : undefined}>{problem ?? exposure(deed, volume, from)}</Text>
        {ready &&
          (!isNew ? (
            <Tried method="DELETE" path={`/v1/volumes/${volume.id}/copies/${from}`} failure="The copy cannot be removed" />
          ) : (
            <Tried path={`/v1/volumes/${volume.id}/copies`} body={body} failure="The copy cannot be created" />
          ))}
        <Paste text={command} label="Equivalent command" />
        {error !== undefined && <ProblemAlert error={error} change="done" />}
        <Group justify="flex-end">
          <DeedButton color={isNew ? undefined : 'red'} loading={busy} because={problem ?? (ready ? undefined : 'Choose a node first.')} onClick={() => void act()}>
            {deed === 'add' ? 'Add copy' : deed === 'move' ? 'Move copy' : deed === 'rebuild' ? 'Rebuild copy' : 'Remove copy'}
          </DeedButton>
        </Group>
      </Stack>
    </Panel>
  )
}

/** Why the change is not possible; undefined if no reason is known. */
function whyNot(deed: CopyDeed, volume: Volume, { nodes, from, there, pool }: { nodes: ClusterNode[]; from: string | null; there: Pool[]; pool: string | null }): string | undefined {
  const copies = volume.copies ?? []
  const isNew = deed === 'add' || deed === 'move'
  if (isNew && nodes.every((node) => node.witness || copyOn(volume, node))) return 'Every node that can have volumes already has a copy.'
  if (deed === 'add' && copies.length >= COPIES_MAX) return `The volume already has ${COPIES_MAX} copies, the maximum.`
  if (isNew || from === null) return undefined
  const inSync = copies.filter((copy) => copy.state === 'in_sync')
  if (inSync.length === 1 && inSync[0]?.node === Number(from)) return 'This is the last copy in sync and cannot be removed.'
  if (deed === 'remove') return undefined
  // The old copy is removed before the new one is requested, so reasons to refuse must be known before.
  const node = nodes.find((node) => node.id === Number(from))
  if (!node || !node.up || node.maintenance) return `${node?.name ?? `Node ${from}`} is ${node?.up ? 'in maintenance' : 'down'} and cannot rebuild the copy.`
  // The space of the old copy will be free by then, and the console does not know in which pool that is.
  return there.length === 0 ? `${node.name} has not reported its pools.` : poolProblem(there, pool, 0)
}

/** How the change affects redundancy. */
function exposure(deed: CopyDeed, volume: Volume, from: string | null): string {
  const copies = volume.copies ?? []
  const inSync = copies.filter((copy) => copy.state === 'in_sync').length
  const leaving = copies.find((copy) => copy.node === Number(from))
  switch (deed) {
    case 'add':
      return `When the new copy is in sync, the volume has ${plural(copies.length + 1, 'copy', 'copies')}; until then its failure tolerance does not change. Writes are then replicated to one more node.`
    case 'move':
      return 'The old copy counts until the move is complete. To stop the move, cancel it under “Jobs”, or remove the new copy before it is in sync.'
    case 'rebuild':
      return 'The old copy and its data are deleted first: redundancy is reduced until the new copy is in sync.'
    case 'remove': {
      const left = inSync - (leaving?.state === 'in_sync' ? 1 : 0)
      return left >= 2 ? `${left} copies in sync remain.` : left === 1 ? `One copy in sync remains: ${volume.kind === 'ram' ? 'it is in memory and lost with each restart of its node' : 'if its node is lost, the volume is unavailable until that node returns'}.` : 'No copy in sync would remain: Ursa refuses this.'
    }
  }
}

/** With etcd there is no policy to choose. */
function NoPolicy() {
  return (
    <Panel title="Split-brain policy">
      <Text size="sm">{NO_VOTES} A split-brain policy is not needed.</Text>
    </Panel>
  )
}

function PolicyPanel({ volume, nodes }: { volume: Volume; nodes: ClusterNode[] }) {
  const now = volume.split_brain_policy?.policy ?? 'prefer'
  const [chosen, setChosen] = useState<'prefer' | 'heartbeat'>(now)
  const [agreed, setAgreed] = useState(false)
  const [oneWay, setOneWay] = useState(false)
  const { busy, error, run } = useDoing()
  const two = nodes.length === 2
  async function act() {
    await run(async () => {
      const found = await data(api.PUT('/v1/volumes/{name}/split-brain-policy', { params: { path: { name: volume.id } }, body: { policy: chosen, ...(chosen === 'heartbeat' ? { accept_split_brain: agreed } : {}) } }))
      // Not a dry run, so the response says what was chosen.
      setOneWay((found as PolicyChosen).one_way)
    }, 'Split-brain policy set.')
  }
  return (
    <Panel title="Split-brain policy" note={two ? undefined : 'With three or more voters the majority decides, whatever the policy. It matters only for two nodes without a witness.'}>
      <Stack gap="md">
        <Radio.Group value={chosen} onChange={(value) => setChosen(value as typeof chosen)} label="If the link between the nodes is lost">
          <Stack gap={8} mt={6}>
            <Radio value="prefer" label="Preferred node continues (prefer)" description="The preferred node continues if the other one is lost. If the preferred node is lost, the volume is unavailable until it returns. Copies never diverge." />
            <Radio value="heartbeat" label="Continue alone (heartbeat)" description="Either node continues alone after about six seconds. But two nodes cannot tell a lost node from a lost link: if only the link is lost, both continue (split brain), and the writes of one of them are discarded later." />
          </Stack>
        </Radio.Group>
        {chosen === 'heartbeat' && now !== 'heartbeat' && (
          <>
            <Alert color="yellow">Connect the nodes over two networks, with an address in each, and make sure that hosts cannot reach both nodes while the nodes cannot reach each other. A third node, even a small witness, is the better solution.</Alert>
            <Checkbox label="I accept that both nodes may continue, and that the data of one of them is then discarded" checked={agreed} onChange={(event) => setAgreed(event.currentTarget.checked)} />
          </>
        )}
        {oneWay && <Alert color="yellow">One of the nodes has a single address: if that network is lost, both nodes continue alone.</Alert>}
        <Text size="xs" c="dimmed">
          Command line: <code>{ursa('volume', 'split-brain-policy', volume.name, chosen, chosen === 'heartbeat' ? '--accept-split-brain' : undefined)}</code>
        </Text>
        {error !== undefined && <ProblemAlert error={error} change="changed" />}
        <Group justify="flex-end">
          <DeedButton variant="default" loading={busy} because={chosen === now ? 'This policy is already set.' : chosen === 'heartbeat' && !agreed ? 'Accept the risk first.' : undefined} onClick={() => void act()}>
            Set policy
          </DeedButton>
        </Group>
      </Stack>
    </Panel>
  )
}
