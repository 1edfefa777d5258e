// Figures of each second: how many requests, bytes, and how long they took. Kept for the last minutes, in this page only.

import { useSyncExternalStore } from 'react'
import { raw } from '../api/client'
import { type Counters, type Metrics, type VolumeCounters, between, parseMetrics, sum } from './metrics'

/** How often is looked. */
const EVERY_MS = 1000
/** How many samples are kept: five minutes. */
export const KEPT = 300

/** One second. Rates are a second; latencies seconds, undefined when nothing was done. */
export interface Sample {
  /** Seconds since 1970. */
  at: number
  reads: number
  writes: number
  readBytes: number
  writeBytes: number
  readLatency?: number
  writeLatency?: number
}

export interface Live {
  /** All volumes together, the oldest first. */
  total: Sample[]
  /** The last second of each volume, by name. */
  volumes: Map<string, Sample>
  /** The last minutes of those volumes that somebody looks at. */
  watched: Map<string, Sample[]>
  /** What was done with these since somebody looks at them. */
  done: Map<string, VolumeCounters>
  /** When the last look was, in milliseconds; 0 before the first. */
  at: number
  problem?: unknown
}

let live: Live = { total: [], volumes: new Map(), watched: new Map(), done: new Map(), at: 0 }
/** What had been done with a volume when somebody began to look at it. */
const begun = new Map<string, VolumeCounters>()
let last: { at: number; metrics: Metrics } | undefined
const listeners = new Set<() => void>()
let timer: number | undefined

function sample(at: number, seconds: number, reads: Counters, writes: Counters): Sample {
  return {
    at,
    reads: reads.operations / seconds,
    writes: writes.operations / seconds,
    readBytes: reads.bytes / seconds,
    writeBytes: writes.bytes / seconds,
    readLatency: reads.operations ? reads.seconds / reads.operations : undefined,
    writeLatency: writes.operations ? writes.seconds / writes.operations : undefined,
  }
}

async function look() {
  try {
    const text = await (await raw('/metrics')).text()
    const now = Date.now()
    const metrics = parseMetrics(text, [...live.watched.keys()])
    if (last && now > last.at) take(now, (now - last.at) / 1000, last.metrics, metrics)
    last = { at: now, metrics }
  } catch (problem) {
    live = { ...live, problem }
    last = undefined
  }
  for (const listener of listeners) listener()
  if (listeners.size > 0) timer = window.setTimeout(() => void look(), EVERY_MS)
  else timer = undefined
}

function take(now: number, seconds: number, earlier: Metrics, after: Metrics) {
  const at = now / 1000
  const volumes = new Map<string, Sample>()
  const watched = new Map(live.watched)
  const done = new Map<string, VolumeCounters>()
  const reads: Counters[] = []
  const writes: Counters[] = []
  for (const [name, counters] of after.volumes) {
    const read = between(earlier.volumes.get(name)?.read, counters.read)
    const write = between(earlier.volumes.get(name)?.write, counters.write)
    reads.push(read)
    writes.push(write)
    const one = sample(at, seconds, read, write)
    volumes.set(name, one)
    const kept = watched.get(name)
    if (!kept) continue
    watched.set(name, [...kept.slice(1 - KEPT), one])
    // Not what was read before: of volumes that nobody looked at no latencies were.
    const from = begun.get(name) ?? counters
    begun.set(name, from)
    done.set(name, { read: between(from.read, counters.read), write: between(from.write, counters.write) })
  }
  const total = [...live.total.slice(1 - KEPT), sample(at, seconds, sum(reads), sum(writes))]
  live = { total, volumes, watched, done, at: now }
}

function subscribe(listener: () => void) {
  listeners.add(listener)
  if (timer === undefined) {
    timer = 0
    void look()
  }
  return () => {
    listeners.delete(listener)
  }
}

export function useLive(): Live {
  return useSyncExternalStore(subscribe, () => live)
}

const NOTHING: Sample[] = []

/** The last minutes of a volume, from the first look at it on. */
export function useLiveVolume(name: string): Sample[] {
  const { watched } = useLive()
  if (!watched.has(name)) live.watched.set(name, [])
  return watched.get(name) ?? NOTHING
}
