// The state of a volume in one word.

import type { Volume, VolumeCopy } from '../api/types'
import { link } from '../route'
import { size } from './size'
import type { Tone } from './tone'

/** The health that the node reports. Also covers a volume that other nodes serve, but not the queried one. */
export function volumeState(volume: Volume): { tone: Tone; word: string; why: string } {
  const copies = volume.copies ?? []
  const inSync = copies.filter((copy) => copy.state === 'in_sync').length
  const counted = `${inSync} of ${copies.length} copies are in sync.`
  switch (volume.health) {
    case 'split_brain':
      return { tone: 'critical', word: 'split brain', why: 'Two nodes each have writes that the other lacks.' }
    case 'unavailable':
      return { tone: 'critical', word: 'unavailable', why: volume.problem ?? 'No node with a copy in sync responds.' }
    case 'continued_alone':
      return { tone: 'warning', word: 'continues alone', why: `Node ${volume.fork?.node} continues alone with it.` }
    case 'resyncing':
      return { tone: 'working', word: 'resyncing', why: counted }
    case 'degraded':
      if (inSync < copies.length) return { tone: 'warning', word: 'degraded', why: counted }
      return volume.problem ? NOT_HERE : { tone: 'warning', word: 'degraded', why: 'The node of a copy is down.' }
    case 'healthy':
      if (volume.serving === false && !isElsewhere(volume)) return NOT_HERE
      return { tone: 'ok', word: 'healthy', why: copies.length > 1 ? 'All copies are in sync.' : 'Served by one node, single copy.' }
  }
}

const NOT_HERE = { tone: 'warning', word: 'not on this node', why: 'Not served by this node. Other nodes serve it.' } as const

/** Whether all copies are on nodes other than the queried one, which then need not serve the volume. */
export function isElsewhere(volume: Volume): boolean {
  const copies = volume.copies ?? []
  return copies.length > 0 && !copies.some((copy) => copy.here)
}

/**
 * The nodes that have copies, and count host I/O: first the queried node, then those whose copy is in sync.
 */
export function servers(volume: Volume): { node: number; name: string }[] {
  const rank = (copy: VolumeCopy) => (copy.here ? 0 : copy.state === 'in_sync' ? 1 : 2)
  const copies = [...(volume.copies ?? [])].sort((a, b) => rank(a) - rank(b))
  return copies.map((copy) => ({ node: copy.node, name: copy.node_name || `node ${copy.node}` }))
}

/** The address of its screen. */
export const volumeLink = (volume: Volume): string => link('volumes', volume.name)

/** The names of the nodes that have it; `this node` if the record does not list it. */
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

const KINDS: Record<Volume['kind'], { word: string; means: string }> = {
  thick: { word: 'thick', means: 'thick: all its space is reserved' },
  ram: { word: 'in memory', means: 'RAM: empty after each restart of its node' },
  log: { word: 'log', means: 'log: thin, with checksums; it takes space only for what was written' },
}

export const kindWord = (kind: Volume['kind']) => KINDS[kind].word
export const kindMeans = (kind: Volume['kind']) => KINDS[kind].means

/** The space that it takes from its pool or from memory: reserved, or used by its blocks. */
export function spaceWords(volume: Volume): string {
  switch (volume.kind) {
    case 'thick':
      return `${size(volume.reserved)} of the pool`
    case 'ram':
      return `${size(volume.reserved)} of memory at most`
    case 'log':
      return `${size(volume.used)} of the pool`
  }
}
