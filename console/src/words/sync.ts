// The progress of a copy that is not in sync, in the words of `ursa volume show`.

import type { CopyState, CopySync, Volume, VolumeCopy } from '../api/types'
import { duration, rate, size } from './size'

export function copyState(state: CopyState): string {
  switch (state) {
    case 'in_sync':
      return 'in sync'
    case 'catching_up':
      return 'catching up'
    case 'out_of_sync':
      return 'out of sync'
  }
}

export function copyStateMeaning(state: CopyState): string {
  switch (state) {
    case 'in_sync':
      return 'has every acknowledged write'
    case 'catching_up':
      return 'takes all new writes; its resync is not complete'
    case 'out_of_sync':
      return 'may miss writes'
  }
}

/** What limits the rate of a resync or its job; undefined if nothing does. */
export function restraint(sync: Pick<CopySync, 'limited_by'>): string | undefined {
  switch (sync.limited_by) {
    case 'hosts':
      return 'slowed down by host writes'
    case 'node_limit':
      return 'limited by its source node'
    case 'cluster_limit':
      return 'limited by the cluster’s resync limit'
    case 'turn':
      return 'queued behind other volumes'
    // By whom and since when is shown beside it.
    case 'paused':
    default:
      return undefined
  }
}

/** The part that is done, from 0 to 1. */
export function progress(sync: CopySync): number {
  return sync.total_bytes > 0 ? Math.min(1, 1 - sync.left_bytes / sync.total_bytes) : 0
}

/** Counts down an estimate that is `age` seconds old. A stale estimate stops counting. */
export const toGo = (seconds: number, age: number) => Math.max(1, seconds - Math.min(age, OLD_S))
const OLD_S = 15

/** `3G of 10G left, 64M/s, 48 s to go`. `age`: age of the data in seconds. */
export function syncLine(sync: CopySync, age = 0): string {
  if (sync.total_bytes === 0) return 'nothing to copy yet'
  const parts = [`${size(sync.left_bytes)} of ${size(sync.total_bytes)} left`]
  if (sync.paused) return parts.join(', ')
  if (sync.bytes_per_second > 0) parts.push(rate(sync.bytes_per_second))
  if (sync.seconds_left !== null && sync.seconds_left !== undefined) parts.push(`${duration(toGo(sync.seconds_left, age))} to go`)
  return parts.join(', ')
}

export interface RunningSync {
  volume: Volume
  copy: VolumeCopy
  sync: CopySync
}

/** All copies that are resyncing, or waiting to. */
export function syncsOf(volumes: Volume[]): RunningSync[] {
  return volumes.flatMap((volume) =>
    (volume.copies ?? []).flatMap((copy) => (copy.sync ? [{ volume, copy, sync: copy.sync }] : [])),
  )
}
