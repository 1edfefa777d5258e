// What is judged how, case by case: `ursa status` goes through the same table (`crates/ursa/src/cli/status/cases.rs` says how it is read), so that the two never judge differently.

// @ts-expect-error: only tests run in Node.js, whose types the page does not have
import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import type { ClusterNode, Missing, Node, NodeProblem, Pool, Volume } from '../api/types'
import { type Finding, type Observed, type Severity, findings, worst } from './health'

type Fields = Record<string, unknown>
type Judged = 'healthy' | 'degraded' | 'lost'

interface Given {
  node: Fields
  /** null: without a cluster. */
  nodes: Fields[] | null
  volumes: (Fields & { copies: (Fields & { sync?: Fields })[] })[]
  pools: Fields[]
  problems: NodeProblem[]
  silent: Missing[]
  missing: Missing[]
}

interface Case extends Partial<Given> {
  name: string
  health: Judged
  findings: { health: Judged; about: string }[]
}

interface Table {
  samples: Record<'node' | 'cluster_node' | 'volume' | 'copy' | 'sync' | 'pool', Fields>
  well: Given
  cases: Case[]
}

const table: Table = JSON.parse(readFileSync(new URL('../../../crates/ursa/src/cli/status/cases.json', import.meta.url), 'utf8'))

/** What the command line calls it: it does not tell apart what mends itself. */
const JUDGED: Record<Severity, Judged> = { critical: 'lost', warning: 'degraded', working: 'degraded', advice: 'healthy', ok: 'healthy' }

function observed(one: Case): Observed {
  const { samples } = table
  const given: Given = { ...table.well, ...one }
  const copies = (volume: Given['volumes'][number]) => volume.copies.map((copy) => ({ ...samples.copy, ...copy, ...(copy.sync && { sync: { ...samples.sync, ...copy.sync } }) }))
  return {
    node: { ...samples.node, ...given.node } as unknown as Node,
    nodes: given.nodes?.map((node) => ({ ...samples.cluster_node, ...node }) as unknown as ClusterNode),
    volumes: given.volumes.map((volume) => ({ ...samples.volume, ...volume, copies: copies(volume) }) as unknown as Volume),
    pools: given.pools.map((pool) => ({ ...samples.pool, ...pool }) as unknown as Pool),
    problems: given.problems,
    silent: given.silent,
    missing: given.missing,
    asked_at: 1000,
  }
}

it.each(table.cases)('judges as the command line does: $name', (one) => {
  const found = findings(observed(one))
  expect(JUDGED[worst(found)]).toBe(one.health)
  const left = [...found]
  for (const { health, about } of one.findings) {
    const isIt = (finding: Finding) => JUDGED[finding.severity] === health && finding.cause.toLowerCase().includes(about.toLowerCase())
    const at = left.findIndex(isIt)
    expect(at, `${health}, about ${about}, among ${JSON.stringify(found)}`).toBeGreaterThanOrEqual(0)
    left.splice(at, 1)
  }
  expect(left).toEqual([])
})
