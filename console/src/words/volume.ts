// The state of a volume in a word.

import type { ClusterNode, Volume, VolumeCopy } from '../api/types'
import { link } from '../route'
import type { Severity } from './health'

/** `nodes`: those of the cluster, if they are known. */
export function volumeState(volume: Volume, nodes: ClusterNode[] = []): { tone: Severity; word: string; why: string } {
  const copies = volume.copies ?? []
  const inSync = copies.filter((copy) => copy.state === 'in_sync').length
  if (volume.fork?.split) return { tone: 'critical', word: 'split brain', why: 'Two nodes each have writes that the other lacks.' }
  const problem = unserved(volume, nodes)
  if (problem) return { tone: 'critical', word: 'unavailable', why: problem }
  if (copies.length > 0 && inSync === 0) return { tone: 'critical', word: 'unavailable', why: 'No copy is in sync.' }
  if (copies.length > 0 && !copies.some((copy) => canServe(copy, nodes))) return { tone: 'critical', word: 'unavailable', why: 'No node with a copy in sync responds.' }
  if (volume.fork) return { tone: 'warning', word: 'continues alone', why: `Node ${volume.fork.node} continues alone with it.` }
  if (inSync < copies.length) {
    const syncing = copies.some((copy) => copy.sync && !copy.sync.waits_for)
    const why = `${inSync} of ${copies.length} copies are in sync.`
    return syncing ? { tone: 'working', word: 'resyncing', why } : { tone: 'warning', word: 'degraded', why }
  }
  if ((volume.problem || volume.serving === false) && !isElsewhere(volume)) return { tone: 'warning', word: 'not on this node', why: 'Not served by this node. Other nodes serve it.' }
  return { tone: 'ok', word: 'in sync', why: copies.length > 1 ? 'All copies are in sync.' : 'Served by one node, single copy.' }
}

/** Why nobody serves it, if that is so. What the asked node says is of its own copy alone while another one is in sync: then that one serves. `nodes`: those of the cluster, if they are known. */
export function unserved(volume: Volume, nodes: ClusterNode[] = []): string | undefined {
  const servesElsewhere = (volume.copies ?? []).some((copy) => !copy.here && canServe(copy, nodes))
  return servesElsewhere ? undefined : (volume.problem ?? undefined)
}

/** Whether a copy is in sync, and its node is there. One that others reach is; so is one of which nobody has said that it is down. */
export function canServe(copy: VolumeCopy, nodes: ClusterNode[]): boolean {
  const isDown = (node: ClusterNode) => node.id === copy.node && !node.up && (node.reached_by ?? []).length === 0
  return copy.state === 'in_sync' && !nodes.some(isDown)
}

/** Whether all its copies are on other nodes than the one that was asked, which then need not serve it. */
export function isElsewhere(volume: Volume): boolean {
  const copies = volume.copies ?? []
  return copies.length > 0 && !copies.some((copy) => copy.here)
}

/** The nodes that have copies of it, and count what hosts do with it through them: the one that is asked first, then those whose copy is in sync. */
export function servers(volume: Volume): { node: number; name: string }[] {
  const rank = (copy: VolumeCopy) => (copy.here ? 0 : copy.state === 'in_sync' ? 1 : 2)
  const copies = [...(volume.copies ?? [])].sort((a, b) => rank(a) - rank(b))
  return copies.map((copy) => ({ node: copy.node, name: copy.node_name || `node ${copy.node}` }))
}

/** Where the console shows it. */
export const volumeLink = (volume: Volume): string => link('volumes', volume.name)

/** The nodes that have it, by name; without a cluster there is one. */
export function nodesWord(volume: Volume): string {
  const copies = volume.copies ?? []
  if (copies.length === 0) return 'this node'
  return copies.map((copy) => copy.node_name || `node ${copy.node}`).join(', ')
}

export function copiesWord(volume: Volume): string {
  const copies = volume.copies ?? []
  if (copies.length === 0) return 'single copy'
  return `${copies.filter((copy) => copy.state === 'in_sync').length} of ${copies.length} in sync`
}

export const kindWord = (kind: Volume['kind']) => (kind === 'ram' ? 'in memory' : 'thick')
