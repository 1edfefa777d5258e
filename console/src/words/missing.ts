// Lists of all nodes: whose part is missing, and what only the node that has it changes.

import type { ClusterNode, Missing } from '../api/types'

/** `Pools of n3 (node 3) are missing: it did not answer within 2 s.` */
export function missingLine(what: string, missing: Missing[]): string {
  return missing.map(({ node, node_name, reason }) => `${what} of ${node_name ? `${node_name} (node ${node})` : `node ${node}`} are missing: ${reason}.`).join(' ')
}

/** Why something of a node is not changed here; undefined if the node that is asked has it. */
export function elsewhere(of: { node?: number | null; node_name?: string | null }, nodes: ClusterNode[] | null | undefined): string | undefined {
  const here = nodes?.find((node) => node.here)
  if (of.node === undefined || of.node === null || !here || here.id === of.node) return undefined
  return `It is of ${of.node_name || `node ${of.node}`}: open that node’s console.`
}
