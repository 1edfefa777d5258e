// Which snapshots a list shows, and in which order.

import type { Finding, Snapshot, SnapshotSchedule } from '../api/types'
import { isForgotten } from './expiry'
import { hasLabels, labelTexts, labelsOf } from './labels'
import { freesBytes } from './snapshot'

/** `old`: those that the finding `snapshots-old` counts. */
export type Which = 'all' | 'old' | 'held'
/** Newest first, or those whose deletion frees most. */
export type Order = 'newest' | 'frees'

export interface SnapshotFilter {
  /** In the name, the number, a volume, a label or the schedule. */
  text: string
  which: Which
  order: Order
  labels: string[]
}

/** The filter in the address of the screen: `#/snapshots?show=old&sort=frees&find=db`. */
export function filterOf(query: URLSearchParams): SnapshotFilter {
  const show = query.get('show')
  return { text: query.get('find') ?? '', which: show === 'old' || show === 'held' ? show : 'all', order: query.get('sort') === 'frees' ? 'frees' : 'newest', labels: [] }
}

/** Those that match. `now`: in seconds since 1970. */
export function filtered(all: Snapshot[], { text, which, order, labels }: SnapshotFilter, schedules: SnapshotSchedule[], now: number): Snapshot[] {
  const wanted = text.trim().toLowerCase()
  const fields = (one: Snapshot) => [one.name, String(one.number), one.schedule ?? '', ...labelTexts(labelsOf(one)), ...one.volumes.map((of) => of.volume)]
  const found = all.filter(
    (one) =>
      (which !== 'held' || one.held) &&
      (which !== 'old' || isForgotten(one, schedules, now)) &&
      hasLabels(one, labels) &&
      fields(one).some((field) => field.toLowerCase().includes(wanted)),
  )
  return order === 'newest' ? found.reverse() : found.sort((a, b) => freesBytes(b.volumes) - freesBytes(a.volumes))
}

/** The findings that are acted on in the list of snapshots. */
export const aboutSnapshots = (found: Finding[]) => found.filter(({ code }) => code === 'snapshots-old' || code === 'snapshot-space')
