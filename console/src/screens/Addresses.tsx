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
import { State, type Tone } from '../parts/State'
import { Tried } from '../parts/Tried'
import { type AddressDraft, addAddress, addressOf, addressProblem, bare, holderOf, isUnreadable, mayHave } from '../words/addresses'
import { ursa } from '../words/command'
import { nameOf } from '../words/health'

const TONES: Record<FloatingAddress['state'], Tone> = { held: 'ok', taking: 'working', nobody: 'critical', unknown: 'off', unreadable: 'warning' }

/** Floating addresses, and which node has each; adding and removing them. */
export function Addresses({ nodes }: { nodes: ClusterNode[] }) {
  const addresses = useAddresses()
  const now = useNow()
  const [adding, setAdding] = useState(false)
  const [doomed, setDoomed] = useState<FloatingAddress>()
  const named = (number: number) => nodes.find((node) => node.id === number)?.name ?? `node ${number}`
  return (
    <Panel
      title="Floating addresses"
      at={addresses.dataUpdatedAt}
      note="For hosts without multipathing: one node has each at a time, and another one when that is lost, stopped or in maintenance."
      right={
        <DeedButton deed="administer" size="compact-sm" onClick={() => setAdding(true)}>
          Add an address
        </DeedButton>
      }
    >
      {addresses.error && <ProblemAlert error={addresses.error} what="Floating addresses cannot be listed" />}
      {addresses.data?.length === 0 && <Empty>There is none: hosts come by the addresses of nodes.</Empty>}
      {addresses.data && addresses.data.length > 0 && (
        <Rows width={560} head={['Address', 'On', 'May have it', 'Device', '']} dense>
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
              <Table.Td>{address.device ?? (isUnreadable(address) ? '–' : 'by its network')}</Table.Td>
              <Table.Td ta="right">
                <DeedButton deed="administer" size="compact-sm" variant="default" because={isUnreadable(address) ? 'This node cannot read it: open the console of a node of the version that has written it.' : undefined} onClick={() => setDoomed(address)}>
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
      title="Add a floating address"
      label="Add it"
      ready={problem === undefined}
      command={addAddress(body)}
      act={() => data(api.POST('/v1/addresses', { body }))}
      done={`${body.address} floats: a node takes it in a moment.`}
    >
      <Said>A node puts it on a network device of its machine, and needs the right to do that there (CAP_NET_ADMIN). Hosts that find the disks at it have that one path.</Said>
      <TextInput label="Address" description="One that no machine has, and the length of its network" placeholder="192.0.2.10/24" value={draft.address} onChange={(event) => set({ address: event.currentTarget.value })} error={draft.address !== '' && problem} autoComplete="off" data-autofocus />
      <TextInput label="Network device" description="The same on each node. Empty: the one that has an address of the same network" placeholder="eth0" value={draft.device} onChange={(event) => set({ device: event.currentTarget.value })} autoComplete="off" />
      <Checkbox.Group label="Nodes that may have it" description="Those with a copy of the volumes that hosts use through it; none chosen: all but witnesses" value={draft.nodes.map(String)} onChange={(chosen) => set({ nodes: chosen.map(Number).sort((a, b) => a - b) })}>
        <Stack gap={6} mt={6}>
          {able.map((node) => (
            <Checkbox key={node.id} value={String(node.id)} label={nameOf(node)} />
          ))}
        </Stack>
      </Checkbox.Group>
      <Select
        label="Preferred node"
        description="It has the address back when it has been up for a minute. Empty: who has it keeps it"
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
      title={`Remove ${address}`}
      label="Remove it"
      danger
      typed={address}
      command={ursa('address', 'remove', address)}
      act={() => data(api.DELETE('/v1/addresses/{address}', { params: { path: { address } } }))}
      done={`${address} is no floating address any more.`}
    >
      <Said>Hosts that come by it lose their disks: their sessions end, and nobody answers there any more. Added again it has another portal group: hosts that know it must discover it anew.</Said>
      <Tried method="DELETE" path={`/v1/addresses/${encodeURIComponent(address)}`} failure="It cannot be removed" />
    </Ask>
  )
}
