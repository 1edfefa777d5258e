// Whether the cluster's record is in a site's etcd: nodes have no votes then, and what requires voting nodes
// is refused.

import type { Node, Volume } from '../api/types'

/** Whether etcd holds the record of the node’s cluster, or will as soon as others can join it. */
export const etcdDecides = (node: Node | undefined): boolean => node?.record_place === 'etcd'

/** Where the cluster's record is, and whether it is available; undefined if the node does not report it. */
export function recordWord(record: Node['record'], nodes: number): string | undefined {
  if (!record) return undefined
  const place = record.place === 'etcd' ? `in etcd${record.endpoints?.length ? ` (${record.endpoints.join(', ')})` : ''}` : nodes > 1 ? 'on the voters' : 'on this node'
  const lost = nodes > 1 ? ' and no node can be declared lost' : ''
  return record.answers ? `${place}; available` : `${place}; unavailable: volume I/O continues, but nothing can be changed${lost}`
}

/** Why there is no witness, no preferred node, and no split-brain policy. */
export const NO_VOTES = 'etcd has the cluster’s record and decides which nodes continue. Nodes do not vote, and two nodes are enough.'

/** What decides which nodes continue with a volume when the link between them is lost; undefined for a single copy. */
export function agreement(volume: Volume, etcd: boolean): string | undefined {
  const chosen = volume.split_brain_policy
  if ((volume.copies ?? []).length < 2) return undefined
  if (etcd) return 'If the link between nodes is lost, etcd decides which ones continue: it has the cluster’s record.'
  return chosen?.policy === 'heartbeat'
    ? `Chosen by ${chosen.by}, ${new Date(chosen.at * 1000).toLocaleString()}: a node that loses contact with the other one continues alone after about six seconds (heartbeat).`
    : 'If the link between nodes is lost, the majority of the voters decides which ones continue.'
}

/** The losses that a volume with this many copies survives, in a cluster of this many nodes. */
export function exposure(kind: Volume['kind'], copies: number, nodes: number, etcd: boolean): string {
  if (copies < 2) return `Single copy: ${singleMeans(kind)}. The node serves it even without quorum, and you can add a copy on another node later`
  const last = kind === 'ram' ? '. Its data is lost with the last node that has a copy in sync' : ''
  if (nodes < 3 && !etcd) return `It survives the loss of the non-preferred node only. With a third node (a witness is enough), it survives the loss of either${last}`
  const second = copies > 2 && (etcd || nodes > 4) ? ', and of a second one later' : ''
  return `It survives the loss of any one of its nodes${second}, after a pause of about a second${etcd ? ', as long as etcd is available' : ''}${last}`
}

/** The risk of a single copy. */
export function singleMeans(kind: Volume['kind']): string {
  return kind === 'ram' ? 'its data is lost whenever the node restarts' : 'it is unavailable while the node is down, and its data is lost if its pool is lost'
}
