// Where the cluster's record is in a site's etcd: nodes have no votes there, and what is for nodes that vote is refused.

import type { Node, Volume } from '../api/types'

/** Whether etcd has the record of the cluster that the node is in, makes or joins. */
export const etcdDecides = (node: Node | undefined): boolean => node?.record_place === 'etcd'

/** Where the record of the node's cluster is, and whether it can be changed; undefined without one, or where it does not say. */
export function recordWord(record: Node['record']): string | undefined {
  if (!record) return undefined
  const place = record.place === 'etcd' ? `in etcd${record.endpoints?.length ? ` (${record.endpoints.join(', ')})` : ''}` : 'in the nodes that vote'
  return record.answers ? `${place}; it answers` : `${place}; it does not answer: volumes go on, nothing can be changed, and no lost node is given up`
}

/** Why there is no witness, no node that decides alone, and no going on alone. */
export const NO_VOTES = 'etcd has the cluster’s record and decides which nodes go on: nodes do not vote, and two are enough.'

/** Who says what becomes of a volume when nodes do not hear each other. */
export function agreement(volume: Volume, etcd: boolean): string {
  const chosen = volume.strategy
  if (etcd) return 'What becomes of it is decided by etcd, which has the cluster’s record.'
  return chosen?.strategy === 'heartbeat'
    ? `Chosen by ${chosen.by}, ${new Date(chosen.at * 1000).toLocaleString()}: a node that hears of nobody goes on alone after about six seconds (heartbeat).`
    : 'What becomes of it is agreed on by the majority of the nodes that vote.'
}

/** What a volume with so many copies outlives, in a cluster of so many nodes. */
export function exposure(kind: Volume['kind'], copies: number, nodes: number, etcd: boolean): string {
  if (copies < 2) return kind === 'ram' ? 'One copy, in memory: its data is lost with each restart of its node' : 'One copy: nobody can use it while its node is down, and its data is lost if its pool is lost'
  const last = kind === 'ram' ? '. Its data is lost with the last node that has a copy in sync' : ''
  if (nodes < 3 && !etcd) return `It outlives the loss of the node that does not decide; a third node, if only a witness, would let it outlive either${last}`
  const second = copies > 2 && (etcd || nodes > 4) ? ', and of a second one later' : ''
  return `It outlives the loss of any one of its nodes${second}, after a stall of about a second${etcd ? ', while etcd answers' : ''}${last}`
}

/** What it means that one node alone has a volume. */
export function aloneMeans(kind: Volume['kind']): string {
  return kind === 'ram' ? 'its data is lost with each restart of the node' : 'nobody can use it while the node is down, and its data is lost if its pool is lost'
}
