import { Table } from '@mantine/core'
import type { CSSProperties, ReactNode } from 'react'

/** A column's name; `right`: of figures, which stand at the right. Nothing: a column that is not there. */
export type Column = string | { right: string } | false | null | undefined

/** A table, with `Table.Tr` inside. It scrolls sideways where it does not fit; on a phone each row becomes a list of names and values (style.css). */
export function Rows({ head, width, dense = false, hover = false, children }: {
  head: Column[]
  /** Below this it scrolls. */
  width: number
  /** Without lines between rows. */
  dense?: boolean
  hover?: boolean
  children: ReactNode
}) {
  const columns = head.filter((column) => column || column === '').map((column) => (typeof column === 'string' ? { name: column, right: false } : { name: (column as { right: string }).right, right: true }))
  // A style sheet writes these before the values where the head is hidden.
  const names = Object.fromEntries(columns.map(({ name }, at) => [`--column-${at + 1}`, JSON.stringify(name)]))
  return (
    <div className="rows" style={{ '--width': `${width}px`, ...names } as CSSProperties}>
      <Table verticalSpacing={dense ? 5 : 7} withRowBorders={!dense} highlightOnHover={hover}>
        <Table.Thead>
          <Table.Tr>
            {columns.map(({ name, right }, at) =>
              name === '' ? (
                <Table.Td key={at} />
              ) : (
                <Table.Th key={at} ta={right ? 'right' : undefined}>
                  {name}
                </Table.Th>
              ),
            )}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>{children}</Table.Tbody>
      </Table>
    </div>
  )
}
