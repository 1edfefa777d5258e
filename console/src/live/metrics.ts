// What a node has done for a volume, and how long it took.

import type { FlowCounters } from '../api/types'

export const KINDS = ['read', 'write'] as const
export type Kind = (typeof KINDS)[number]

export interface Counters {
  /** Commands done. */
  operations: number
  /** Their total time in seconds. */
  seconds: number
  bytes: number
  /** Cumulative counts, `[bound in seconds, commands]`, in ascending order; the last bound is Infinity. */
  buckets: [number, number][]
}

export type VolumeCounters = Record<Kind, Counters>

/** The counters of reads or writes that a node reports. */
export function countersOf({ latencies, ...sums }: FlowCounters): Counters {
  return { ...sums, buckets: latencies.map(({ bound, operations }) => [bound ?? Infinity, operations]) }
}

export function none(): Counters {
  return { operations: 0, seconds: 0, bytes: 0, buckets: [] }
}

/** The difference between two readings. A counter that decreased restarted from zero with the node. */
export function between(before: Counters | undefined, after: Counters): Counters {
  const from = before && before.operations <= after.operations && before.bytes <= after.bytes ? before : none()
  const earlier = new Map(from.buckets)
  return {
    operations: after.operations - from.operations,
    seconds: Math.max(0, after.seconds - from.seconds),
    bytes: after.bytes - from.bytes,
    buckets: after.buckets.map(([bound, many]) => [bound, many - (earlier.get(bound) ?? 0)]),
  }
}

/** The latency quantile `part`: the bound of its bucket. Undefined without commands. */
export function quantile(of: Counters, part: number): number | undefined {
  const all = of.buckets.at(-1)?.[1] ?? 0
  if (all <= 0) return undefined
  const bucket = of.buckets.find(([, many]) => many >= part * all)
  return bucket && Number.isFinite(bucket[0]) ? bucket[0] : of.buckets.at(-2)?.[0]
}

export interface Bar {
  /** Its upper bound, in seconds. */
  bound: number
  read: number
  write: number
}

/** The number of commands in each latency range, from the first range that has any to the last. */
export function distribution(of: VolumeCounters): Bar[] {
  const each = (kind: Kind) => new Map(of[kind].buckets.map(([bound, many], at, all) => [bound, many - (all[at - 1]?.[1] ?? 0)] as const))
  const read = each('read')
  const write = each('write')
  const bounds = [...new Set([...read.keys(), ...write.keys()])].sort((a, b) => a - b)
  const bars = bounds.map((bound) => ({ bound, read: read.get(bound) ?? 0, write: write.get(bound) ?? 0 }))
  const used = bars.map((bar) => bar.read + bar.write > 0)
  const first = used.indexOf(true)
  return first < 0 ? [] : bars.slice(first, used.lastIndexOf(true) + 1)
}
