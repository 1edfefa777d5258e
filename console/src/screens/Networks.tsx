import { Radio, Select, Stack, Table, Text } from '@mantine/core'
import { useState } from 'react'
import { api, data } from '../api/client'
import type { ClusterNode } from '../api/types'
import { Ask, DeedButton, Said } from '../parts/deed'
import { Panel } from '../parts/Panel'
import { Rows } from '../parts/Rows'
import { nameOf } from '../words/nodes'
import { KEPT_FOR, type KeptFor, WHO_CALLS, keptFor, linkFor, noneForData, withRole } from '../words/links'
import { listed } from '../words/missing'

/** Shows and sets what each address is used for. A node may have several addresses of a role. */
export function Networks({ nodes, at }: { nodes: ClusterNode[]; at: number }) {
  const [chosen, setChosen] = useState<number>()
  const node = nodes.find((one) => one.id === chosen)
  const single = nodes.filter((node) => node.addresses.length < 2)
  return (
    <Panel title="Networks by role" at={at} note="Between nodes: replication, heartbeats and the cluster’s record, all encrypted. An address carries all of it, or is dedicated to replication or heartbeats. For hosts: iSCSI, preferably on separate networks.">
      <Rows width={560} head={['Node', 'Between nodes', 'For hosts (iSCSI)', '']} dense>
        {nodes.map((node) => (
          <Table.Tr key={node.id}>
            <Table.Td>{node.name}</Table.Td>
            <Table.Td>{node.addresses.map((address) => <Text key={address} size="sm">{withRole(node, address)}</Text>)}</Table.Td>
            <Table.Td>{node.witness ? 'none (witness)' : node.portals.length > 0 ? node.portals.map((portal) => <Text key={portal} size="sm">{portal}</Text>) : 'none'}</Table.Td>
            <Table.Td ta="right">
              <DeedButton size="compact-sm" variant="default" onClick={() => setChosen(node.id)}>
                Reserve
              </DeedButton>
            </Table.Td>
          </Table.Tr>
        ))}
      </Rows>
      {single.length > 0 && (
        <Text size="xs" c="dimmed" mt="xs">
          {listed(single.map((node) => node.name))} {single.length === 1 ? 'has' : 'have'} a single address for other nodes: if that network is lost, so is the link. To use a second network, give two addresses when a node joins: <code>--listen ADDRESS,ADDRESS</code>.
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
      title={`Dedicate an address of ${nameOf(node)}`}
      label="Save"
      ready={role !== now && problem === undefined}
      command={linkFor(node, address, role)}
      act={() => data(api.PUT('/v1/nodes/{id}/links', { params: { path: { id: node.id } }, body: { address, role: role === 'all' ? null : role } }))}
      done={`${address} ${role === 'all' ? 'now carries all links' : `dedicated to ${role}`}.`}
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
      <Radio.Group label="Use for" value={role} onChange={(one) => setWanted(one as KeptFor)} error={problem}>
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
