// Whether the cluster's record is in a site's etcd: nodes have no votes then, and what requires voting nodes
// is refused.

import type { Node, Volume } from '../api/types'

/** Whether etcd has the record of the cluster that the node is in, makes or joins. */
export const etcdDecides = (node: Node | undefined): boolean => node?.record_place === 'etcd'

/** Where the record of the node's cluster is, and whether it can be changed; undefined without one, or where it does not say. */
export function recordWord(record: Node['record']): string | undefined {
  if (!record) return undefined
  const place = record.place === 'etcd' ? `in etcd${record.endpoints?.length ? ` (${record.endpoints.join(', ')})` : ''}` : 'on the voters'
  return record.answers ? `${place}; it answers` : `${place}; it does not answer: volume I/O continues, but nothing can be changed and no node can be declared lost`
}

/** Why there is no witness, no node that decides alone, and no going on alone. */
export const NO_VOTES = 'etcd has the cluster’s record and decides which nodes continue. Nodes do not vote, and two nodes are enough.'

/** Who says what becomes of a volume when nodes do not hear each other; undefined of a single copy, with which no other node can continue. */
export function agreement(volume: Volume, etcd: boolean): string | undefined {
  const chosen = volume.split_brain_policy
  if ((volume.copies ?? []).length < 2) return undefined
  if (etcd) return 'If nodes lose each other, etcd decides which ones continue: it has the cluster’s record.'
  return chosen?.policy === 'heartbeat'
    ? `Chosen by ${chosen.by}, ${new Date(chosen.at * 1000).toLocaleString()}: a node that loses contact with the other one continues alone after about six seconds (heartbeat).`
    : 'If nodes lose each other, the majority of the voters decides which ones continue.'
}

/** What a volume with so many copies outlives, in a cluster of so many nodes. */
export function exposure(kind: Volume['kind'], copies: number, nodes: number, etcd: boolean): string {
  if (copies < 2) return `Single copy: ${singleMeans(kind)}. The node serves it even without quorum, and you can add a copy on another node later`
  const last = kind === 'ram' ? '. Its data is lost with the last node that has a copy in sync' : ''
  if (nodes < 3 && !etcd) return `It survives the loss of the node that is not preferred. With a third node (a witness is enough), it survives the loss of either${last}`
  const second = copies > 2 && (etcd || nodes > 4) ? ', and of a second one later' : ''
  return `It survives the loss of any one of its nodes${second}, after a pause of about a second${etcd ? ', while etcd answers' : ''}${last}`
}

/** What it means that a volume has a single copy. */
export function singleMeans(kind: Volume['kind']): string {
  return kind === 'ram' ? 'its data is lost whenever the node restarts' : 'it is unavailable while the node is down, and its data is lost if its pool is lost'
}
