import { Checkbox, Select, Stack, Table, Text, TextInput } from '@mantine/core'
import { useState } from 'react'
import { api, data } from '../api/client'
import { useAddresses } from '../api/queries'
import type { ClusterNode, FloatingAddress } from '../api/types'
import { useNow } from '../parts/clock'
import { Ask, DeedButton, Said } from '../parts/deed'
import { Panel } from '../parts/Panel'
import { Empty, ProblemAlert } from '../parts/Problem'
import { Rows } from '../parts/Rows'
import { State } from '../parts/State'
import { Tried } from '../parts/Tried'
import { type AddressDraft, addAddress, addressOf, addressProblem, bare, holderOf, isUnreadable, mayHave } from '../words/addresses'
import { ursa } from '../words/command'
import { nameOf } from '../words/nodes'
import type { Tone } from '../words/tone'

const TONES: Record<FloatingAddress['state'], Tone> = { held: 'ok', taking: 'working', nobody: 'critical', unknown: 'off', unreadable: 'warning' }

/** Lists floating IPs with their holders; adds and removes them. */
export function Addresses({ nodes }: { nodes: ClusterNode[] }) {
  const addresses = useAddresses()
  const now = useNow()
  const [adding, setAdding] = useState(false)
  const [doomed, setDoomed] = useState<FloatingAddress>()
  const named = (number: number) => nodes.find((node) => node.id === number)?.name ?? `node ${number}`
  return (
    <Panel
      title="Floating IPs"
      at={addresses.dataUpdatedAt}
      note="For hosts without multipath: one node holds each address at a time, and another node takes it over when that node is lost, stopped or in maintenance."
      right={
        <DeedButton deed="administer" size="compact-sm" onClick={() => setAdding(true)}>
          Add floating IP
        </DeedButton>
      }
    >
      {addresses.error && <ProblemAlert error={addresses.error} what="Floating IPs cannot be listed" />}
      {addresses.data?.length === 0 && <Empty>No floating IPs. Hosts use the addresses of the nodes. Add a floating IP for hosts without multipath.</Empty>}
      {addresses.data && addresses.data.length > 0 && (
        <Rows width={560} head={['Address', 'Held by', 'Allowed nodes', 'Device', '']} dense>
          {addresses.data.map((address) => (
            <Table.Tr key={address.address}>
              <Table.Td>{address.address}</Table.Td>
              <Table.Td>
                <State tone={TONES[address.state]}>{address.state}</State>
                <Text size="sm">{holderOf(address, now)}</Text>
                {address.troubles?.map((trouble) => (
                  <Text key={trouble.node} size="xs" c="red">
                    {nameOf({ id: trouble.node, name: trouble.node_name })}: {trouble.text}
                  </Text>
                ))}
              </Table.Td>
              <Table.Td>{mayHave(address, named)}</Table.Td>
              <Table.Td>{address.device ?? (isUnreadable(address) ? '–' : 'by network')}</Table.Td>
              <Table.Td ta="right">
                <DeedButton deed="administer" size="compact-sm" variant="default" because={isUnreadable(address) ? 'This node cannot read it: open the console of a node that runs the version that wrote it.' : undefined} onClick={() => setDoomed(address)}>
                  Remove
                </DeedButton>
              </Table.Td>
            </Table.Tr>
          ))}
        </Rows>
      )}
      {adding && <Add nodes={nodes} close={() => setAdding(false)} />}
      {doomed && <Remove key={doomed.address} address={bare(doomed)} close={() => setDoomed(undefined)} />}
    </Panel>
  )
}

function Add({ nodes, close }: { nodes: ClusterNode[]; close: () => void }) {
  const [draft, setDraft] = useState<AddressDraft>({ address: '', device: '', nodes: [], prefer: undefined })
  const set = (change: Partial<AddressDraft>) => setDraft({ ...draft, ...change })
  const able = nodes.filter((node) => !node.witness)
  const body = addressOf(draft)
  const problem = addressProblem(draft)
  return (
    <Ask
      opened
      close={close}
      title="Add floating IP"
      label="Add"
      ready={problem === undefined}
      command={addAddress(body)}
      act={() => data(api.POST('/v1/floating-ips', { body }))}
      done={`Floating IP ${body.address} added. A node takes it over shortly.`}
    >
      <Said>The holding node configures the address on a network device and needs CAP_NET_ADMIN for that. Hosts that log in there have this one path only.</Said>
      <TextInput label="Address" description="An unused address, with its prefix length" placeholder="192.0.2.10/24" value={draft.address} onChange={(event) => set({ address: event.currentTarget.value })} error={draft.address !== '' && problem} autoComplete="off" data-autofocus />
      <TextInput label="Network device" description="The same on each node. Empty: the device that has an address in the same network" placeholder="eth0" value={draft.device} onChange={(event) => set({ device: event.currentTarget.value })} autoComplete="off" />
      <Checkbox.Group label="Allowed nodes" description="Choose nodes with a copy of the volumes that hosts use through this address. None chosen: all but witnesses" value={draft.nodes.map(String)} onChange={(chosen) => set({ nodes: chosen.map(Number).sort((a, b) => a - b) })}>
        <Stack gap={6} mt={6}>
          {able.map((node) => (
            <Checkbox key={node.id} value={String(node.id)} label={nameOf(node)} />
          ))}
        </Stack>
      </Checkbox.Group>
      <Select
        label="Preferred node"
        description="It takes the address back after it has been up for a minute. Empty: no failback, the holder keeps it"
        data={able.filter((node) => draft.nodes.length === 0 || draft.nodes.includes(node.id)).map((node) => ({ value: String(node.id), label: nameOf(node) }))}
        value={body.prefer ? String(body.prefer) : null}
        onChange={(node) => set({ prefer: node === null ? undefined : Number(node) })}
        clearable
      />
    </Ask>
  )
}

function Remove({ address, close }: { address: string; close: () => void }) {
  return (
    <Ask
      opened
      close={close}
      title={`Remove floating IP ${address}`}
      label="Remove floating IP"
      danger
      typed={address}
      command={ursa('floating-ip', 'remove', address)}
      act={() => data(api.DELETE('/v1/floating-ips/{address}', { params: { path: { address } } }))}
      done={`Floating IP ${address} removed.`}
    >
      <Said>Hosts that use this address lose their disks: their sessions end, and no node answers there. If you add it again, it gets another portal group, and hosts must repeat discovery.</Said>
      <Tried method="DELETE" path={`/v1/floating-ips/${encodeURIComponent(address)}`} failure="The floating IP cannot be removed" />
    </Ask>
  )
}
