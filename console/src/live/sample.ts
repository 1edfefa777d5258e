// What several nodes, or several volumes, did in a second, added up.

import type { LiveFlow } from '../api/types'

export interface Flows {
  read: LiveFlow
  write: LiveFlow
}

/** One second. Rates are per second; latencies are in seconds, undefined without operations. */
export interface Sample {
  /** Seconds since 1970. */
  at: number
  reads: number
  writes: number
  readBytes: number
  writeBytes: number
  readLatency?: number
  writeLatency?: number
  /** 99th percentile on the slowest node. */
  readP99?: number
  writeP99?: number
}

/** A step of the history: undefined where nothing was recorded. */
export type Step = { [name in keyof Sample]: name extends 'at' ? number : number | undefined }

export function sampleOf(at: number, of: Flows[]): Sample {
  const reads = of.map((one) => one.read)
  const writes = of.map((one) => one.write)
  return {
    at,
    reads: sum(reads, (flow) => flow.operations),
    writes: sum(writes, (flow) => flow.operations),
    readBytes: sum(reads, (flow) => flow.bytes),
    writeBytes: sum(writes, (flow) => flow.bytes),
    readLatency: mean(reads),
    writeLatency: mean(writes),
    readP99: slowest(reads),
    writeP99: slowest(writes),
  }
}

const sum = (flows: LiveFlow[], of: (flow: LiveFlow) => number) => flows.reduce((all, flow) => all + of(flow), 0)

function mean(flows: LiveFlow[]): number | undefined {
  const measured = flows.filter((flow) => flow.mean_us !== undefined && flow.mean_us !== null && flow.operations > 0)
  const operations = sum(measured, (flow) => flow.operations)
  return operations > 0 ? sum(measured, (flow) => flow.operations * (flow.mean_us ?? 0)) / operations / 1e6 : undefined
}

function slowest(flows: LiveFlow[]): number | undefined {
  const known = flows.flatMap((flow) => (flow.p99_us === undefined || flow.p99_us === null ? [] : [flow.p99_us]))
  return known.length > 0 ? Math.max(...known) / 1e6 : undefined
}
