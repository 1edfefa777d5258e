// The latency of requests to a volume since the screen was opened: the difference of the node's counters.

import { useEffect, useState } from 'react'
import { api, data } from '../api/client'
import { type VolumeCounters, between, countersOf } from './metrics'

/** Interval between readings. */
const EVERY_MS = 2000

export interface Counted {
  of?: VolumeCounters
  /** When it was read, in milliseconds since 1970; 0 before the first time. */
  at: number
  problem?: unknown
}

/** A node's counters of a volume, by volume ID; without `node`, those of the queried node. */
async function counters(volume: string, node?: number): Promise<VolumeCounters> {
  const told = await data(api.GET('/v1/volumes/{name}/counters', { params: { path: { name: volume }, query: { node } } }))
  return { read: countersOf(told.read), write: countersOf(told.write) }
}

export function useCounted(volume: string, node?: number): Counted {
  const [counted, setCounted] = useState<Counted>({ at: 0 })
  useEffect(() => {
    let begun: VolumeCounters | undefined
    let timer: number | undefined
    let gone = false
    // Another node's counters are not comparable with this one's.
    setCounted({ at: 0 })
    async function look() {
      try {
        if (!document.hidden) {
          const now = await counters(volume, node)
          begun ??= now
          const of = { read: between(begun.read, now.read), write: between(begun.write, now.write) }
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
  }, [volume, node])
  return counted
}
