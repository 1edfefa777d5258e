import { Table } from '@mantine/core'
import type { CSSProperties, ReactNode } from 'react'

/** The name of a column; `right`: right-aligned, for numbers. A falsy value: no such column. */
export type Column = string | { right: string } | false | null | undefined

/**
 * A table of `Table.Tr`. It scrolls sideways if it does not fit; on a phone each row becomes a list of names
 * and values (style.css).
 */
export function Rows({ head, width, dense = false, hover = false, children }: {
  head: Column[]
  /** Below this width it scrolls. */
  width: number
  /** Whether to omit the lines between rows. */
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
