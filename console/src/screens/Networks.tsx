import { Radio, Select, Stack, Table, Text } from '@mantine/core'
import { useState } from 'react'
import { api, data } from '../api/client'
import type { ClusterNode } from '../api/types'
import { Ask, DeedButton, Said } from '../parts/deed'
import { Panel } from '../parts/Panel'
import { Rows } from '../parts/Rows'
import { nameOf } from '../words/health'
import { KEPT_FOR, type KeptFor, WHO_CALLS, keptFor, linkFor, noneForData, withRole } from '../words/links'
import { listed } from '../words/missing'

/** What each network is for, and setting it. A node may have several of a role. */
export function Networks({ nodes, at }: { nodes: ClusterNode[]; at: number }) {
  const [chosen, setChosen] = useState<number>()
  const node = nodes.find((one) => one.id === chosen)
  const single = nodes.filter((node) => node.addresses.length < 2)
  return (
    <Panel title="Networks by role" at={at} note="Between nodes: the data of volumes, heartbeats, and the record that all agree on, encrypted; an address goes for all of it, or is kept for replication or heartbeats. For hosts: iSCSI, and best on other networks than the first.">
      <Rows width={560} head={['Node', 'Between nodes', 'For hosts (iSCSI)', '']} dense>
        {nodes.map((node) => (
          <Table.Tr key={node.id}>
            <Table.Td>{node.name}</Table.Td>
            <Table.Td>{node.addresses.map((address) => <Text key={address} size="sm">{withRole(node, address)}</Text>)}</Table.Td>
            <Table.Td>{node.witness ? 'none: a witness has no volumes' : node.portals.length > 0 ? node.portals.map((portal) => <Text key={portal} size="sm">{portal}</Text>) : 'none'}</Table.Td>
            <Table.Td ta="right">
              <DeedButton size="compact-sm" variant="default" onClick={() => setChosen(node.id)}>
                Keep for
              </DeedButton>
            </Table.Td>
          </Table.Tr>
        ))}
      </Rows>
      {single.length > 0 && (
        <Text size="xs" c="dimmed" mt="xs">
          {listed(single.map((node) => node.name))} {single.length === 1 ? 'has' : 'have'} one address for other nodes: when that network is lost, so is the link. A second one, on a network of its own: <code>--listen ADDRESS,ADDRESS</code> when a node joins.
        </Text>
      )}
      {node && <Keep key={node.id} node={node} close={() => setChosen(undefined)} />}
    </Panel>
  )
}

function Keep({ node, close }: { node: ClusterNode; close: () => void }) {
  const [address, setAddress] = useState(node.addresses[0] ?? '')
  const [wanted, setWanted] = useState<KeptFor>()
  const now = keptFor(node, address)
  const role = wanted ?? now
  const problem = noneForData(node, address, role)
  return (
    <Ask
      opened
      close={close}
      title={`Keep an address of ${nameOf(node)} for a kind of links`}
      label="Keep it so"
      ready={role !== now && problem === undefined}
      command={linkFor(node, address, role)}
      act={() => data(api.PUT('/v1/nodes/{id}/links', { params: { path: { id: node.id } }, body: { address, role: role === 'all' ? null : role } }))}
      done={`${address} is kept for ${role === 'all' ? 'all links' : role}.`}
    >
      <Select
        label="Address"
        data={node.addresses.map((one) => ({ value: one, label: withRole(node, one) }))}
        value={address}
        onChange={(one) => {
          setAddress(one ?? '')
          setWanted(undefined)
        }}
        allowDeselect={false}
      />
      <Radio.Group label="Kept for" value={role} onChange={(one) => setWanted(one as KeptFor)} error={problem}>
        <Stack gap={6} mt={6}>
          {KEPT_FOR.map(({ role, label, means }) => (
            <Radio key={role} value={role} label={label} description={means} />
          ))}
        </Stack>
      </Radio.Group>
      <Said>{WHO_CALLS}</Said>
    </Ask>
  )
}
