// How long requests to a volume took since somebody looks at it: the difference of what the node has counted.

import { useEffect, useState } from 'react'
import { api, data, raw } from '../api/client'
import { type Counters, type VolumeCounters, between, parseMetrics } from './metrics'

/** How often is looked. What a node with many volumes has counted is long. */
const EVERY_MS = 2000

export interface Counted {
  of?: VolumeCounters
  /** When it was read, in milliseconds since 1970; 0 before the first time. */
  at: number
  problem?: unknown
}

/** What the node that is asked has counted; of a volume that another one has alone, by its identity, what that one has. */
async function counters(volume: string, alone?: number): Promise<VolumeCounters | undefined> {
  if (alone === undefined) return parseMetrics(await (await raw('/metrics')).text(), [volume]).volumes.get(volume)
  const told = await data(api.GET('/v1/volumes/{name}/counters', { params: { path: { name: volume }, query: { node: alone } } }))
  const of = ({ latencies, ...sums }: typeof told.read): Counters => ({ ...sums, buckets: latencies.map(({ bound, operations }) => [bound ?? Infinity, operations]) })
  return { read: of(told.read), write: of(told.write) }
}

export function useCounted(volume: string, alone?: number): Counted {
  const [counted, setCounted] = useState<Counted>({ at: 0 })
  useEffect(() => {
    let begun: VolumeCounters | undefined
    let timer: number | undefined
    let gone = false
    async function look() {
      try {
        if (!document.hidden) {
          const now = await counters(volume, alone)
          begun ??= now
          const of = now && { read: between(begun?.read, now.read), write: between(begun?.write, now.write) }
          if (!gone) setCounted({ of, at: Date.now() })
        }
      } catch (problem) {
        if (!gone) setCounted((known) => ({ ...known, problem }))
      }
      if (!gone) timer = window.setTimeout(() => void look(), EVERY_MS)
    }
    void look()
    return () => {
      gone = true
      window.clearTimeout(timer)
    }
  }, [volume, alone])
  return counted
}
