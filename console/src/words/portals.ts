// The portals for a host's logins, so that the loss of one node loses no volume: as `ursa host-setup linux
// --volume` finds them.

import type { ClusterNode, FloatingAddress, Volume } from '../api/types'

/**
 * The portals of all nodes that have the volume, node by node, then the floating IPs that these nodes may
 * hold.
 */
export function portalsOf(volume: Volume | undefined, nodes: ClusterNode[], floating: FloatingAddress[]): string[] {
  const having = new Set((volume?.copies ?? []).filter((copy) => !copy.leaves).map((copy) => copy.node))
  const has = (node: number) => having.size === 0 || having.has(node)
  const all = nodes.filter((node) => !node.witness && has(node.id)).flatMap((node) => node.portals)
  const port = all[0]?.replace(/^.*:/, '') ?? '3260'
  const addresses = floating.filter((one) => one.nodes.length === 0 || one.nodes.some(has)).map((one) => one.address.replace(/\/.*/, ''))
  return [...new Set([...all, ...addresses.map((address) => (address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`))])]
}
