// Events of all nodes: their identities, and which nodes have seen them.

import type { Event } from '../api/types'
import { listed } from './missing'

/** A unique key: event numbers are unique on their node only. */
export const keyOf = (event: Pick<Event, 'id' | 'seen_by'>) => `${event.seen_by[0]}/${event.id}`

/** `seen by node 1`, `seen by nodes 1, 2 and 3`. */
export function seenBy({ seen_by }: Pick<Event, 'seen_by'>): string {
  return `seen by ${seen_by.length > 1 ? 'nodes' : 'node'} ${listed([...seen_by].sort((a, b) => a - b).map(String))}`
}

/**
 * The end of the minute in a time field (`2026-11-23T08:05`, local time), in seconds since 1970; undefined if
 * the field is empty or before 1970.
 */
export function secondsOf(moment: string): number | undefined {
  const seconds = Math.floor(Date.parse(moment) / 1000)
  return seconds >= 0 ? seconds + 59 : undefined
}

/** The range that a disk cannot read. */
export function place({ node, pool, disk, offset, len, lba, blocks }: NonNullable<Event['range']>): string {
  const lbas = blocks === 1 ? `LBA ${lba}` : `LBA ${lba} to ${lba + blocks - 1}`
  return `disk ${disk} of pool ${pool} on node ${node}, bytes ${offset} to ${offset + len - 1}, ${lbas}`
}
