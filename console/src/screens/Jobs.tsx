import { Stack, Table, Text, Title } from '@mantine/core'
import { useNode, useVolumes } from '../api/queries'
import { Panel } from '../parts/Panel'
import { Empty, ProblemAlert, To } from '../parts/Problem'
import { SyncRow } from '../parts/SyncRow'
import { duration, plural } from '../words/size'
import { syncsOf } from '../words/sync'

/** So many syncs are shown. */
const SYNCS_MAX = 100

export function Jobs() {
  const volumes = useVolumes()
  const node = useNode()
  const syncs = syncsOf(volumes.data ?? [])
  return (
    <Stack gap="md">
      <Title order={1} size="h3">
        Jobs
      </Title>
      {volumes.error && <ProblemAlert error={volumes.error} what="What is under way cannot be read" />}
      <Panel title="Copies that are brought in sync" at={volumes.dataUpdatedAt} right={<To href="#/nodes" small>Limit them</To>}>
        {syncs.length === 0 ? (
          <Empty>No copy is being brought in sync. It begins by itself when a node comes back, and when a copy is added or moved.</Empty>
        ) : (
          <Stack gap="md">
            {syncs.slice(0, SYNCS_MAX).map((sync) => (
              <SyncRow key={`${sync.volume.id} ${sync.copy.slot}`} {...sync} named />
            ))}
            {syncs.length > SYNCS_MAX && <Text size="sm" c="dimmed">{plural(syncs.length - SYNCS_MAX, 'more')} </Text>}
          </Stack>
        )}
      </Panel>
      <Panel title="Changes under way" at={node.dataUpdatedAt} note={`Of node ${node.data?.name ?? ''}, which this page asks. One that waits for a disk goes on when the disk answers, and holds up no change of anything else.`}>
        {(node.data?.changes ?? []).length === 0 ? (
          <Empty>No change is under way.</Empty>
        ) : (
          <Table.ScrollContainer minWidth={480}>
            <Table>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>What</Table.Th>
                  <Table.Th>For</Table.Th>
                  <Table.Th>Waits for</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {node.data?.changes.map((change) => (
                  <Table.Tr key={change.what}>
                    <Table.Td>{change.what}</Table.Td>
                    <Table.Td>{duration(change.age)}</Table.Td>
                    <Table.Td>{change.waits_for}</Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </Table.ScrollContainer>
        )}
      </Panel>
    </Stack>
  )
}
