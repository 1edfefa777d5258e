import { useEffect } from 'react'
import { useFindings } from '../api/queries'
import type { Finding } from '../api/types'
import { keyOf } from '../words/findings'

/** When this page first saw each current finding, in milliseconds since 1970. */
const firstSeen = new Map<string, number>()

export interface Health {
  /** Worst first; undefined before the first response. */
  found?: Finding[]
  /** Why the node does not answer. */
  failed: unknown
  /** When the findings were read. */
  at: number
}

export function useHealth(): Health {
  const { data: found, error, dataUpdatedAt } = useFindings()
  useEffect(() => {
    if (!found) return
    const keys = new Set(found.map(keyOf))
    for (const key of keys) if (!firstSeen.has(key)) firstSeen.set(key, Date.now())
    for (const key of firstSeen.keys()) if (!keys.has(key)) firstSeen.delete(key)
  }, [found])
  return { found, failed: error ?? undefined, at: dataUpdatedAt }
}

/**
 * When a finding began, in milliseconds since 1970: as the node reports, else when this page first saw it.
 */
export function sinceOf(finding: Finding): number {
  return finding.since ? finding.since.at * 1000 : (firstSeen.get(keyOf(finding)) ?? Date.now())
}
