// Events of all nodes: their identities, and which nodes have seen them.

import type { Event } from '../api/types'
import { listed } from './missing'

/** Numbers are a node's own: with that node they tell events apart. */
export const keyOf = (event: Pick<Event, 'id' | 'seen_by'>) => `${event.seen_by?.[0] ?? ''}/${event.id}`

/** `seen by node 1`, `seen by nodes 1, 2 and 3`; undefined without a cluster. */
export function seenBy({ seen_by }: Pick<Event, 'seen_by'>): string | undefined {
  if (!seen_by || seen_by.length === 0) return undefined
  return `seen by ${seen_by.length > 1 ? 'nodes' : 'node'} ${listed([...seen_by].sort((a, b) => a - b).map(String))}`
}

/** Until when a field says (`2026-11-23T08:05`, by the clock of whoever reads, with all of that minute), in seconds since 1970; undefined: none, or none since then. */
export function secondsOf(moment: string): number | undefined {
  const seconds = Math.floor(Date.parse(moment) / 1000)
  return seconds >= 0 ? seconds + 59 : undefined
}

/** Where a disk does not read. */
export function place({ node, pool, disk, offset, len, lba, blocks }: NonNullable<Event['range']>): string {
  const ofNode = node === undefined || node === null ? '' : ` on node ${node}`
  const lbas = blocks === 1 ? `LBA ${lba}` : `LBA ${lba} to ${lba + blocks - 1}`
  return `disk ${disk} of pool ${pool}${ofNode}, bytes ${offset} to ${offset + len - 1}, ${lbas}`
}
