import { Group, Stack, Switch, Table, Text, TextInput, Title } from '@mantine/core'
import { useState } from 'react'
import { api, data } from '../api/client'
import { useNode, useNodes, useSessions, useSyncLimit } from '../api/queries'
import type { ClusterNode } from '../api/types'
import { Ask, DeedButton, Said, useDoing } from '../parts/deed'
import { Paste } from '../parts/Paste'
import { Facts, Panel } from '../parts/Panel'
import { Empty, ProblemAlert } from '../parts/Problem'
import { State } from '../parts/State'
import { nameOf } from '../words/health'
import { ursa } from '../words/command'
import { duration, parseSize, plural, rate, size } from '../words/size'

export function Nodes() {
  const nodes = useNodes()
  return (
    <Stack gap="md">
      <Title order={1} size="h3">
        Nodes
      </Title>
      {nodes.error && <ProblemAlert error={nodes.error} what="The nodes cannot be listed" />}
      {nodes.data === null ? <Alone /> : nodes.data && <ClusterNodes nodes={nodes.data} at={nodes.dataUpdatedAt} />}
      <Here />
      {nodes.data && <SyncLimit />}
    </Stack>
  )
}

function Alone() {
  const [open, setOpen] = useState<'init' | 'join'>()
  const [listen, setListen] = useState('')
  const [token, setToken] = useState('')
  const [witness, setWitness] = useState(false)
  const address = <TextInput label="Where to listen for other nodes" description="An address of this machine that the others reach; two, separated by commas, if there are two networks. Without a port: 3270." placeholder="10.0.0.1" value={listen} onChange={(event) => setListen(event.currentTarget.value)} data-autofocus />
  const list = listen.split(',').map((one) => one.trim()).filter((one) => one !== '')
  return (
    <Panel title="No cluster yet">
      <Empty
        action={
          <Group>
            <DeedButton deed="administer" onClick={() => setOpen('init')}>
              Make a cluster of this node
            </DeedButton>
            <DeedButton deed="administer" variant="default" onClick={() => setOpen('join')}>
              Join another node’s cluster
            </DeedButton>
          </Group>
        }
      >
        This node is alone. In a cluster of three nodes (the third may be a small machine without volumes, a witness) volumes have copies, and outlive the loss of any node.
      </Empty>
      <Ask opened={open === 'init'} close={() => setOpen(undefined)} title="Make a cluster of this node" label="Make it" ready={list.length > 0} command={ursa('node', 'init', '--listen', list.join(',') || 'ADDRESS')} act={() => data(api.POST('/v1/cluster', { body: { listen: list } }))} done="This node is a cluster now: let others join.">
        {address}
      </Ask>
      <Ask opened={open === 'join'} close={() => setOpen(undefined)} title="Join another node’s cluster" label="Join" ready={list.length > 0 && token !== ''} command={`ursa node join TOKEN --listen ${list.join(',') || 'ADDRESS'}${witness ? ' --witness' : ''}`} act={() => data(api.POST('/v1/cluster/join', { body: { listen: list, token, witness } }))} done="It joins: in some seconds it votes.">
        <TextInput label="Token" description="Made by the cluster’s first node, under “Nodes”; good for one node, once" value={token} onChange={(event) => setToken(event.currentTarget.value.trim())} autoComplete="off" />
        {address}
        <Switch label="As a witness" description="It votes, and never has a volume" checked={witness} onChange={(event) => setWitness(event.currentTarget.checked)} />
      </Ask>
    </Panel>
  )
}

function ClusterNodes({ nodes, at }: { nodes: ClusterNode[]; at: number }) {
  const [chosen, setChosen] = useState<{ node: ClusterNode; what: 'maintain' | 'remove' }>()
  const [inviting, setInviting] = useState(false)
  const [preferring, setPreferring] = useState<ClusterNode>()
  const two = nodes.length === 2
  const close = () => setChosen(undefined)
  const node = chosen?.node
  return (
    <Panel title={plural(nodes.length, 'node')} at={at} right={<DeedButton deed="administer" size="compact-sm" onClick={() => setInviting(true)}>Let a node join</DeedButton>}>
      <Table.ScrollContainer minWidth={860}>
        <Table verticalSpacing={7}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Node</Table.Th>
              <Table.Th>State</Table.Th>
              <Table.Th>Votes</Table.Th>
              <Table.Th>Copies in sync</Table.Th>
              <Table.Th>For other nodes</Table.Th>
              <Table.Th>For hosts (iSCSI)</Table.Th>
              <Table.Th />
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {nodes.map((one) => (
              <Table.Tr key={one.id}>
                <Table.Td>
                  <b>{one.name}</b>
                  <Text size="xs" c="dimmed">
                    node {one.id}
                    {one.here ? ', asked by this page' : ''}
                  </Text>
                </Table.Td>
                <Table.Td>
                  <State tone={!one.up ? 'critical' : one.maintenance ? 'warning' : 'ok'}>{!one.up ? 'down' : one.maintenance ? 'maintenance' : 'up'}</State>
                  {!one.up && one.maintenance && <Text size="xs">in maintenance</Text>}
                </Table.Td>
                <Table.Td>
                  {one.votes ? 'yes' : 'no'}
                  {one.leads ? ', leads the record' : ''}
                  {one.witness ? ', witness' : ''}
                  {one.preferred ? ', decides alone' : ''}
                </Table.Td>
                <Table.Td>
                  {one.witness ? '–' : `${one.in_sync} of ${one.copies}`}
                </Table.Td>
                <Table.Td>{one.addresses.join(', ')}</Table.Td>
                <Table.Td>{one.portals.join(', ') || '–'}</Table.Td>
                <Table.Td>
                  <Group gap={6} justify="flex-end" wrap="nowrap">
                    <DeedButton size="compact-sm" variant="default" onClick={() => setChosen({ node: one, what: 'maintain' })}>
                      {one.maintenance ? 'End maintenance' : 'Maintenance'}
                    </DeedButton>
                    {two && !one.witness && (
                      <DeedButton deed="administer" size="compact-sm" variant="default" because={one.preferred ? 'It decides already.' : undefined} onClick={() => setPreferring(one)}>
                        Let it decide
                      </DeedButton>
                    )}
                    <DeedButton deed="administer" size="compact-sm" variant="default" because={one.here ? 'A node cannot take itself out: open the console of another one.' : one.copies > 0 ? 'It has copies of volumes: move them away before.' : undefined} onClick={() => setChosen({ node: one, what: 'remove' })}>
                      Take out
                    </DeedButton>
                  </Group>
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
      {node && (
        <>
          <Ask
            opened={chosen?.what === 'maintain'}
            close={close}
            title={node.maintenance ? `End the maintenance of ${nameOf(node)}` : `Maintenance of ${nameOf(node)}`}
            label={node.maintenance ? 'End it' : 'Begin it'}
            command={ursa('node', 'maintenance', node.id, node.maintenance ? 'off' : 'on')}
            act={() => data(api.PUT('/v1/nodes/{id}/maintenance', { params: { path: { id: node.id } }, body: { on: !node.maintenance } }))}
            done={node.maintenance ? 'Its copies are given what they missed.' : 'It can be stopped now.'}
          >
            <Said>
              {node.maintenance
                ? 'Its copies are given what they missed, by themselves.'
                : 'Its copies leave what is in sync, and hosts go on through the other nodes; then it can be stopped. It gets no new copies meanwhile, and stays in maintenance until you end it, over restarts, too. It is refused while a volume has no other copy in sync.'}
            </Said>
          </Ask>
          <Ask opened={chosen?.what === 'remove'} close={close} title={`Take ${nameOf(node)} out of the cluster`} label="Take it out for good" danger typed={node.name || String(node.id)} command={ursa('node', 'remove', node.id)} act={() => data(api.DELETE('/v1/nodes/{id}', { params: { path: { id: node.id } } }))} done={`${nameOf(node)} is not of the cluster any more.`}>
            <Said>For good: its number is never given again. To come back it must be made anew and join with a token.</Said>
          </Ask>
        </>
      )}
      {preferring && (
        <Ask opened close={() => setPreferring(undefined)} title={`Let ${nameOf(preferring)} decide`} label="Let it decide" command={ursa('node', 'prefer', preferring.id)} act={() => data(api.PUT('/v1/cluster/preferred', { body: { node: preferring.id } }))} done={`${nameOf(preferring)} decides now.`}>
          <Said>Of two nodes without a witness one decides: when the other is lost, it goes on; when it is lost itself, the other waits for it.</Said>
        </Ask>
      )}
      <Invite opened={inviting} close={() => setInviting(false)} />
    </Panel>
  )
}

function Invite({ opened, close }: { opened: boolean; close: () => void }) {
  const [token, setToken] = useState<string>()
  return (
    <Ask
      opened={opened}
      close={() => {
        setToken(undefined)
        close()
      }}
      title="Let a node join"
      label={token ? 'Make another token' : 'Make a token'}
      stays
      command="ursa node token"
      act={async () => setToken((await data(api.POST('/v1/cluster/tokens', { body: {} }))).token)}
    >
      <Said>A token is a secret that lets one node in, once, within an hour, and until this node is restarted. Only the node that made the cluster makes tokens. A node that joins must have no targets and host groups of its own.</Said>
      {token && <Paste label="On the node that is to join, with an address of it that this one reaches (for a witness add --witness)" text={`ursa node join ${token} --listen ADDRESS`} />}
    </Ask>
  )
}

function Here() {
  const node = useNode()
  const sessions = useSessions()
  if (!node.data) return null
  const one = node.data
  const by = new Map<number, { sessions: number; commands: number }>()
  for (let core = 0; core < one.cores; core += 1) by.set(core, { sessions: 0, commands: 0 })
  for (const session of sessions.data ?? []) {
    if (session.node_name && session.node_name !== one.name) continue
    const of = by.get(session.core)
    if (of) {
      of.sessions += 1
      of.commands += session.commands
    }
  }
  return (
    <Panel title={`${one.name}, which this page asks`} at={node.dataUpdatedAt}>
      <Facts
        of={[
          ['Program', `Ursa ${one.version}, up for ${duration(one.uptime)}`],
          ['iSCSI', one.portals.join(', ')],
          ['Problems', one.problems?.length ? one.problems.join('; ') : 'none'],
          ['Changes', one.changes.length ? one.changes.map((change) => `${change.what}, for ${duration(change.age)}: waits for ${change.waits_for}`).join('; ') : 'none under way'],
          ['Cores', [...by].map(([core, of]) => `core ${core}: ${plural(of.sessions, 'session')}`).join(', ')],
        ]}
      />
    </Panel>
  )
}

function SyncLimit() {
  const limit = useSyncLimit()
  const [text, setText] = useState('')
  const { busy, error, run } = useDoing()
  const bytes = parseSize(text)
  const now = limit.data?.bytes_per_second
  const send = (bytes_per_second: number | null) => run(() => data(api.PUT('/v1/cluster/sync-limit', { body: { bytes_per_second } })), 'The limit is changed.')
  return (
    <Panel title="How fast copies are brought in sync" at={limit.dataUpdatedAt} note="All nodes together. Each node besides slows down by itself while hosts write.">
      <Stack gap="sm">
        <Text size="sm">{limit.error ? 'It cannot be read now.' : now ? `${rate(now)} at most.` : 'No limit but what each node’s own setting says (sync-bytes-per-second-max, 512M unless told otherwise).'}</Text>
        <Group align="flex-end" gap="xs">
          <TextInput label="Limit a second" placeholder="500M" value={text} onChange={(event) => setText(event.currentTarget.value)} error={text !== '' && (bytes === undefined || bytes < 2 ** 20) ? `As 500M; ${size(2 ** 20)} at least` : undefined} />
          <DeedButton variant="default" loading={busy} because={bytes === undefined || bytes < 2 ** 20 ? 'Say how much a second: 500M' : undefined} onClick={() => void send(bytes ?? null)}>
            Limit
          </DeedButton>
          {now && (
            <DeedButton variant="default" loading={busy} onClick={() => void send(null)}>
              No limit
            </DeedButton>
          )}
        </Group>
        <Text size="xs" c="dimmed">
          The same: <code>ursa node sync-limit {text || '500M'}</code>
        </Text>
        {error !== undefined && <ProblemAlert error={error} what="Not changed" />}
      </Stack>
    </Panel>
  )
}
