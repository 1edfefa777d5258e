// The names of nodes, and how long they have been in their state.

import type { ClusterNode, Since } from '../api/types'

export const nameOf = (node: Pick<ClusterNode, 'id' | 'name'>): string => (node.name ? `${node.name} (node ${node.id})` : `node ${node.id}`)

/** The state of a node that is not up: other nodes may reach it although the queried one does not. */
export const downWord = (node: ClusterNode) => ((node.reached_by ?? []).length > 0 ? 'cut off' : 'down')

/** Since when a node has been down, or in maintenance. */
export function nodeSince(node: ClusterNode): Since | undefined {
  if (!node.up) return node.down_since ?? undefined
  return typeof node.maintenance_since === 'number' ? { at: node.maintenance_since } : undefined
}
