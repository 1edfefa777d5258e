// The state of a volume in a word.

import type { Volume } from '../api/types'
import type { Severity } from './health'

export function volumeState(volume: Volume): { tone: Severity; word: string; why: string } {
  const copies = volume.copies ?? []
  const inSync = copies.filter((copy) => copy.state === 'in_sync').length
  if (volume.fork?.split) return { tone: 'critical', word: 'split', why: 'Both nodes have data that the other has not.' }
  if (volume.problem) return { tone: 'critical', word: 'not served', why: volume.problem }
  if (copies.length > 0 && inSync === 0) return { tone: 'critical', word: 'no copy in sync', why: 'Nobody serves it.' }
  if (volume.fork) return { tone: 'warning', word: 'alone', why: `Node ${volume.fork.node} goes on alone with it.` }
  if (inSync < copies.length) {
    const syncing = copies.some((copy) => copy.sync && !copy.sync.waits_for)
    const why = `${inSync} of ${copies.length} copies are in sync.`
    return syncing ? { tone: 'working', word: 'syncing', why } : { tone: 'warning', word: 'degraded', why }
  }
  if (volume.serving === false && !isElsewhere(volume)) return { tone: 'warning', word: 'not here', why: 'It does not serve through the node that this page asks; through others it does.' }
  return { tone: 'ok', word: 'in sync', why: copies.length > 0 ? 'All copies are in sync.' : 'It is served, by one node alone.' }
}

/** Whether it has copies, and none on the node that was asked, which then need not serve it. */
export const isElsewhere = (volume: Volume) => (volume.copies ?? []).length > 0 && !(volume.copies ?? []).some((copy) => copy.here)

export function copiesWord(volume: Volume): string {
  const copies = volume.copies ?? []
  if (copies.length === 0) return 'one, on this node'
  return `${copies.filter((copy) => copy.state === 'in_sync').length} of ${copies.length} in sync`
}

export const kindWord = (kind: Volume['kind']) => (kind === 'ram' ? 'in memory' : 'thick')
