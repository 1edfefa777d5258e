import { useEffect, useMemo } from 'react'
import { useMissingPools, useMissingProblems, useMissingSessions, useMissingVolumes, useNode, useNodes, usePools, useProblems, useVolumes } from '../api/queries'
import { type Finding, type Overall, allWell, findings, worst } from '../words/health'

/** When this page first saw a finding, in milliseconds since 1970; forgotten when it is gone. */
const firstSeen = new Map<string, number>()

export interface Health {
  found: Finding[]
  severity: Overall
  /** What is known to be well, if nothing is found. */
  well: string
  /** Whether all was read that is judged. */
  known: boolean
  /** Whether the node does not answer. */
  failed: unknown
  /** When the oldest of the figures was read. */
  at: number
}

export function useHealth(): Health {
  const node = useNode()
  const nodes = useNodes()
  const volumes = useVolumes()
  const pools = usePools()
  const problems = useProblems()
  const [noVolumes, noPools, noSessions, silent] = [useMissingVolumes(), useMissingPools(), useMissingSessions('seldom'), useMissingProblems()]
  const known = [node, nodes, volumes, pools, problems].every((query) => query.data !== undefined)
  const observed = useMemo(
    () => ({
      node: node.data,
      nodes: nodes.data ?? undefined,
      volumes: volumes.data ?? [],
      pools: pools.data ?? [],
      problems: problems.data ?? [],
      silent,
      missing: [...noVolumes, ...noPools, ...noSessions],
      asked_at: Math.floor(node.dataUpdatedAt / 1000),
    }),
    [node.data, node.dataUpdatedAt, nodes.data, volumes.data, pools.data, problems.data, silent, noVolumes, noPools, noSessions],
  )
  const found = useMemo(() => findings(observed), [observed])
  useEffect(() => {
    const keys = new Set(found.map((finding) => finding.key))
    for (const key of keys) if (!firstSeen.has(key)) firstSeen.set(key, Date.now())
    for (const key of firstSeen.keys()) if (!keys.has(key)) firstSeen.delete(key)
  }, [found])
  const failed = node.isError ? node.error : undefined
  const at = Math.min(...[nodes, volumes, pools, problems].map((query) => query.dataUpdatedAt))
  return { found, severity: worst(found), well: allWell(observed), known, failed, at }
}

/** Since when a finding is there, in milliseconds since 1970: as the node says, else since this page has seen it. */
export function sinceOf(finding: Finding): number {
  return finding.since ? finding.since.at * 1000 : (firstSeen.get(finding.key) ?? Date.now())
}
