// The I/O of each session, and so of each path: the difference between two readings of its counters.

import { useEffect, useRef, useState } from 'react'
import { useSessions } from '../api/queries'
import type { Session } from '../api/types'
import { type PathRate, ratesBetween } from '../words/hostpaths'

/** The current rates of each session, by `sessionKey`; empty before the second reading. */
export function usePathRates(): Map<string, PathRate> {
  const { data, dataUpdatedAt: at } = useSessions()
  const last = useRef<{ at: number; data: Session[] }>(undefined)
  const [rates, setRates] = useState<Map<string, PathRate>>(() => new Map())
  useEffect(() => {
    const before = last.current
    if (!data || before?.at === at) return
    last.current = { at, data }
    if (before) setRates(ratesBetween(before.data, data, (at - before.at) / 1000))
  }, [data, at])
  return rates
}
