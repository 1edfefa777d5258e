// What all nodes do, second by second, as they report it (`/v1/live`). Only this page keeps it, for the last
// minutes.

import { useEffect, useSyncExternalStore } from 'react'
import { Refusal } from '../api/client'
import type { LiveSample, Missing } from '../api/types'
import { type Flows, type Sample, sampleOf } from './sample'

/** How often samples are summed. */
const EVERY_MS = 1000
/** How many samples are kept: five minutes. */
export const KEPT = 300
/**
 * A node without samples for this long is omitted. Samples of other nodes arrive up to two seconds late, and
 * not every second.
 */
const SILENT_MS = 5000
/** Delay before a lost stream is requested again. */
const AGAIN_MS = 3000

/** The latest sample of a node. */
export interface NodeNow {
  /** Its number. */
  node: number
  /** When it arrived, in milliseconds since 1970. */
  heard: number
  sample: LiveSample
}

export interface Live {
  /** The sum of all nodes and volumes, oldest first. */
  total: Sample[]
  /** The last second of each volume in use, by volume ID: the sum of all nodes. */
  volumes: Map<string, Sample>
  /** The last minutes of volumes on screen, by volume ID. */
  watched: Map<string, Sample[]>
  /** Nodes with a recent sample, by number. */
  nodes: NodeNow[]
  /** Nodes that cannot be queried. */
  missing: Missing[]
  /** When the last second was summed, in milliseconds since 1970; 0 before the first. */
  at: number
  problem?: unknown
}

const NO_STREAM = new Refusal({
  type: 'about:blank',
  title: 'No live data',
  status: 0,
  code: 'no_stream',
  detail: 'no live data from the node: it does not respond, or too many pages and programs already read it',
  hint: 'the page retries every few seconds; close consoles and streams (`ursa top`, scripts) that are not needed',
})

let live: Live = { total: [], volumes: new Map(), watched: new Map(), nodes: [], missing: [], at: 0 }
const heard = new Map<number, NodeNow>()
const missing = new Map<number, Missing>()
/** How many parts of the page show a volume, by volume ID. */
const watchers = new Map<string, number>()
const listeners = new Set<() => void>()
let stream: EventSource | undefined
let again: number | undefined
let ticks: number | undefined

function publish(next: Partial<Live>) {
  live = { ...live, ...next }
  for (const listener of listeners) listener()
}

function open() {
  if (stream || listeners.size === 0 || document.hidden) return
  const opened = new EventSource(new URL('/v1/live?node=all', location.origin))
  stream = opened
  opened.addEventListener('sample', (message) => {
    const sample = JSON.parse(message.data as string) as LiveSample
    heard.set(sample.node, { node: sample.node, heard: Date.now(), sample })
    if (live.problem) publish({ problem: undefined })
  })
  opened.addEventListener('missing', (message) => {
    const one = JSON.parse(message.data as string) as Missing
    missing.set(one.node, one)
  })
  opened.addEventListener('back', (message) => missing.delete((JSON.parse(message.data as string) as Missing).node))
  opened.addEventListener('error', () => {
    // The browser's own retries do not suffice: they end for good after an error status.
    if (stream !== opened) return
    close()
    publish({ problem: NO_STREAM })
    again = window.setTimeout(open, AGAIN_MS)
  })
  ticks ??= window.setInterval(tick, EVERY_MS)
}

function close() {
  stream?.close()
  stream = undefined
  heard.clear()
  missing.clear()
  window.clearTimeout(again)
  window.clearInterval(ticks)
  ticks = undefined
}

// A hidden page needs no figures, and browsers limit the number of connections to one host.
document.addEventListener('visibilitychange', () => (document.hidden ? close() : open()))

function tick() {
  const now = Date.now()
  const nodes = [...heard.values()].filter((one) => now - one.heard < SILENT_MS).sort((a, b) => a.node - b.node)
  if (nodes.length === 0) return
  const at = now / 1000
  const flows = new Map<string, Flows[]>()
  for (const { sample } of nodes) for (const volume of sample.volumes) flows.set(volume.id, [...(flows.get(volume.id) ?? []), volume])
  const volumes = new Map([...flows].map(([id, of]) => [id, sampleOf(at, of)]))
  const watched = new Map<string, Sample[]>()
  for (const id of watchers.keys()) watched.set(id, [...(live.watched.get(id) ?? []).slice(1 - KEPT), volumes.get(id) ?? sampleOf(at, [])])
  const total = [...live.total.slice(1 - KEPT), sampleOf(at, nodes.map((one) => one.sample))]
  publish({ total, volumes, watched, nodes, missing: [...missing.values()], at: now })
}

function subscribe(listener: () => void) {
  listeners.add(listener)
  open()
  return () => {
    listeners.delete(listener)
    if (listeners.size === 0) close()
  }
}

export function useLive(): Live {
  return useSyncExternalStore(subscribe, () => live)
}

const NOTHING: Sample[] = []

/** The last minutes of a volume, since the page first showed it. */
export function useLiveVolume(id: string | undefined): Sample[] {
  const { watched } = useLive()
  useEffect(() => {
    if (id === undefined) return undefined
    watchers.set(id, (watchers.get(id) ?? 0) + 1)
    return () => {
      const others = (watchers.get(id) ?? 1) - 1
      if (others > 0) watchers.set(id, others)
      else watchers.delete(id)
    }
  }, [id])
  return (id !== undefined && watched.get(id)) || NOTHING
}
