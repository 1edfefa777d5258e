import { Table, Text } from '@mantine/core'
import type { Missing, NodeLink } from '../api/types'
import { MissingNote } from '../parts/MissingNote'
import { Panel } from '../parts/Panel'
import { Rows } from '../parts/Rows'
import { State } from '../parts/State'
import { type Between, SEEN, linkLines } from '../words/between'
import { nameOf } from '../words/nodes'

/** The links of each pair of nodes, as both nodes report them. */
export function NodeLinks({ pairs, missing, at }: { pairs: Between[]; missing: Missing[]; at: number }) {
  if (pairs.length === 0) return null
  return (
    <Panel title="Links between nodes" at={at} note="Each pair of nodes has one link for heartbeats and the cluster’s record, and several for replication. Both nodes report how they see them.">
      <MissingNote what="Links" missing={missing} />
      <Rows width={720} head={['Between', 'State', 'First node reports', 'Second node reports']}>
        {pairs.map(({ nodes: [one, other], words, seen }) => (
          <Table.Tr key={`${one.id} ${other.id}`}>
            <Table.Td>
              {nameOf(one)} and {nameOf(other)}
            </Table.Td>
            <Table.Td>
              <State tone={SEEN[seen].tone}>{SEEN[seen].word}</State>
            </Table.Td>
            <Table.Td>
              <Word of={words[0]} />
            </Table.Td>
            <Table.Td>
              <Word of={words[1]} />
            </Table.Td>
          </Table.Tr>
        ))}
      </Rows>
    </Panel>
  )
}

function Word({ of }: { of: NodeLink | undefined }) {
  if (!of) return <Text size="sm" c="dimmed">No report.</Text>
  return (
    <>
      {linkLines(of).map((line) => (
        <Text key={line} size="sm" style={{ overflowWrap: 'anywhere' }}>
          {line}
        </Text>
      ))}
    </>
  )
}
