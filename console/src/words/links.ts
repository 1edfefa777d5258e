// What the addresses of nodes are used for.

import type { ClusterNode, LinkRole } from '../api/types'
import { ursa } from './command'

/** As the command line has it: a role, or `all`. */
export type KeptFor = LinkRole | 'all'

export const KEPT_FOR: { role: KeptFor; label: string; means: string }[] = [
  { role: 'all', label: 'All links', means: 'Volume data, heartbeats and the cluster’s record, unless another address is reserved for one of them' },
  { role: 'replication', label: 'Volume data (replication)', means: 'Replicated writes and resyncs. Heartbeats use it only if no other address answers' },
  { role: 'heartbeat', label: 'Heartbeats (heartbeat)', means: 'Heartbeats, leases and the cluster’s record. Never volume data' },
]

/** Who calls whom, and when it counts. */
export const WHO_CALLS = 'Of two nodes, the one with the higher number opens the link: set the role on every node except the last. Links that are up move within half a minute, one after the other.'

export const keptFor = (node: ClusterNode, address: string): KeptFor => node.link_roles?.[address] ?? 'all'

/** `10.0.0.1:3270 (replication)`, as `ursa node list` says it. */
export function withRole(node: ClusterNode, address: string): string {
  const role = keptFor(node, address)
  return role === 'all' ? address : `${address} (${role})`
}

/** Why an address cannot be kept for that; undefined if it can. */
export function noneForData(node: ClusterNode, address: string, role: KeptFor): string | undefined {
  const left = node.addresses.some((one) => (one === address ? role : keptFor(node, one)) !== 'heartbeat')
  return left ? undefined : 'No address of the node would be left for volume data: let the node listen on another address first.'
}

/** `ursa node link ...` */
export const linkFor = (node: ClusterNode, address: string, role: KeptFor): string => ursa('node', 'link', node.id, address, '--for', role)
