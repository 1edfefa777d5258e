// The names of nodes, and how long they have been in their state.

import type { ClusterNode, Since } from '../api/types'

export const nameOf = (node: Pick<ClusterNode, 'id' | 'name'>): string => (node.name ? `${node.name} (node ${node.id})` : `node ${node.id}`)

/** What a node is that is not up: others may reach it, though the node that was asked does not. */
export const downWord = (node: ClusterNode) => ((node.reached_by ?? []).length > 0 ? 'cut off' : 'down')

/** Since when a node is down, or in maintenance. */
export function nodeSince(node: ClusterNode): Since | undefined {
  if (!node.up) return node.down_since ?? undefined
  return typeof node.maintenance_since === 'number' ? { at: node.maintenance_since } : undefined
}
