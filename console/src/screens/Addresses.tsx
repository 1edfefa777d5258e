import { Table, Text } from '@mantine/core'
import { useAddresses, useNodes } from '../api/queries'
import { useNow } from '../parts/clock'
import { Panel } from '../parts/Panel'
import { Rows } from '../parts/Rows'
import { holderOf, mayHave } from '../words/addresses'

/** Floating addresses, and which node has each; nothing where there are none. */
export function Addresses() {
  const addresses = useAddresses()
  const nodes = useNodes().data ?? []
  const now = useNow()
  const named = (number: number) => nodes.find((node) => node.id === number)?.name ?? `node ${number}`
  if (!addresses.data?.length) return null
  return (
    <Panel title="Floating addresses" at={addresses.dataUpdatedAt} note="For hosts without multipathing: one node has each at a time, and another one when that is lost, stopped or in maintenance. ursa address add makes one, ursa address remove takes it away.">
      <Rows width={560} head={['Address', 'On', 'May have it', 'Device']} dense>
        {addresses.data.map((address) => (
          <Table.Tr key={address.address}>
            <Table.Td>{address.address}</Table.Td>
            <Table.Td>
              {holderOf(address, now)}
              {address.trouble && (
                <Text size="xs" c="red">
                  The node that was asked has it not: {address.trouble}
                </Text>
              )}
            </Table.Td>
            <Table.Td>{mayHave(address, named)}</Table.Td>
            <Table.Td>{address.device ?? 'by its network'}</Table.Td>
          </Table.Tr>
        ))}
      </Rows>
    </Panel>
  )
}
