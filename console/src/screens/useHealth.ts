import { useEffect } from 'react'
import { useFindings } from '../api/queries'
import type { Finding } from '../api/types'
import { keyOf } from '../words/findings'

/** When this page first saw a finding, in milliseconds since 1970; forgotten when it is gone. */
const firstSeen = new Map<string, number>()

export interface Health {
  /** The worst first; undefined before the first answer. */
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

/** Since when a finding is there, in milliseconds since 1970: as the node says, else since this page has seen it. */
export function sinceOf(finding: Finding): number {
  return finding.since ? finding.since.at * 1000 : (firstSeen.get(keyOf(finding)) ?? Date.now())
}
