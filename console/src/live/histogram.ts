// How long requests to a volume took since somebody looks at it: the difference of what the node has counted.

import { useEffect, useState } from 'react'
import { raw } from '../api/client'
import { type VolumeCounters, between, parseMetrics } from './metrics'

/** How often is looked. What a node with many volumes has counted is long. */
const EVERY_MS = 2000

export interface Counted {
  of?: VolumeCounters
  /** When it was read, in milliseconds since 1970; 0 before the first time. */
  at: number
  problem?: unknown
}

export function useCounted(volume: string): Counted {
  const [counted, setCounted] = useState<Counted>({ at: 0 })
  useEffect(() => {
    let begun: VolumeCounters | undefined
    let timer: number | undefined
    let gone = false
    async function look() {
      try {
        if (!document.hidden) {
          const now = parseMetrics(await (await raw('/metrics')).text(), [volume]).volumes.get(volume)
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
  }, [volume])
  return counted
}
