// What the addresses of nodes are used for.

import type { ClusterNode, LinkRole } from '../api/types'
import { ursa } from './command'

/** As on the command line: a role, or `all`. */
export type KeptFor = LinkRole | 'all'

export const KEPT_FOR: { role: KeptFor; label: string; means: string }[] = [
  { role: 'all', label: 'All links', means: 'Volume data, heartbeats and the cluster’s record, unless another address is dedicated to one of them' },
  { role: 'replication', label: 'Volume data (replication)', means: 'Replicated writes and resyncs. Heartbeats use it only if no other address answers' },
  { role: 'heartbeat', label: 'Heartbeats (heartbeat)', means: 'Heartbeats, leases and the cluster’s record. Never volume data' },
]

/** Which node opens a link, and when a change takes effect. */
export const WHO_CALLS = 'The node with the higher number opens the link, so set the role on every node except the last. Active links move one by one, within half a minute.'

export const keptFor = (node: ClusterNode, address: string): KeptFor => node.link_roles?.[address] ?? 'all'

/** `10.0.0.1:3270 (replication)`, as in `ursa node list`. */
export function withRole(node: ClusterNode, address: string): string {
  const role = keptFor(node, address)
  return role === 'all' ? address : `${address} (${role})`
}

/** Why an address cannot be dedicated to a role; undefined if it can. */
export function noneForData(node: ClusterNode, address: string, role: KeptFor): string | undefined {
  const left = node.addresses.some((one) => (one === address ? role : keptFor(node, one)) !== 'heartbeat')
  return left ? undefined : 'The node needs at least one address for volume data: add another address first.'
}

/** `ursa node link ...` */
export const linkFor = (node: ClusterNode, address: string, role: KeptFor): string => ursa('node', 'link', node.id, address, '--for', role)
