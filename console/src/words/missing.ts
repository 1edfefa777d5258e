// Lists of all nodes: whose part is missing, and which node has the object to be changed.

import type { ClusterNode, Missing } from '../api/types'
import type { Live } from '../live/live'

/** `Pools of n3 (node 3) are missing: it did not answer within 2 s.` */
export function missingLine(what: string, missing: Missing[]): string {
  return missing.map(({ node, node_name, reason }) => `${what} of ${node_name ? `${node_name} (node ${node})` : `node ${node}`} are missing: ${reason}.`).join(' ')
}

/** The number of the node that has an object and changes it; undefined if the queried node has it. */
export function elsewhere({ node }: { node: number }, nodes: ClusterNode[] | undefined): number | undefined {
  return node === nodes?.find((one) => one.here)?.id ? undefined : node
}

/** Nodes without live data: those that cannot be queried, and those that are up and do not report. */
export function unheard(live: Pick<Live, 'nodes' | 'missing'>, nodes: ClusterNode[] | undefined): Missing[] {
  const heard = new Set(live.nodes.map((one) => one.node))
  const told = live.missing.filter((one) => !heard.has(one.node))
  const silent = (nodes ?? []).filter((node) => node.up && !node.witness && !heard.has(node.id) && !told.some((one) => one.node === node.id))
  return [...told, ...silent.map((node) => ({ node: node.id, node_name: node.name, reason: 'no data received yet' }))]
}

/** `db`, `db and mail`, `a, b, c and 7 more`. */
export function listed(names: string[]): string {
  if (names.length > 3) return `${names.slice(0, 3).join(', ')} and ${names.length - 3} more`
  return names.length < 2 ? names.join() : `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`
}
