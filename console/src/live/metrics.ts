// What a node has done for each volume so far, read from its /metrics (Prometheus' text format).

export const KINDS = ['read', 'write'] as const
export type Kind = (typeof KINDS)[number]

export interface Counters {
  /** Commands done. */
  operations: number
  /** Seconds that they took altogether. */
  seconds: number
  bytes: number
  /** How many took at most so long: `[bound in seconds, commands]`, growing; the last bound is Infinity. */
  buckets: [number, number][]
}

export type VolumeCounters = Record<Kind, Counters>

export interface Metrics {
  volumes: Map<string, VolumeCounters>
}

const DURATION = 'ursa_volume_operation_duration_seconds'
const WANTED = [`${DURATION}_bucket`, `${DURATION}_sum`, `${DURATION}_count`, 'ursa_volume_bytes_total']

/** Latencies are read of all volumes, or of those that are named: they are most of what a node with many volumes writes. */
export function parseMetrics(text: string, latenciesOf?: string[]): Metrics {
  const wanted = latenciesOf?.map((volume) => `${DURATION}_bucket{volume="${volume}"`)
  const metrics: Metrics = { volumes: new Map() }
  for (const line of text.split('\n')) {
    const open = line.indexOf('{')
    const close = line.lastIndexOf('}')
    if (open < 0 || close < open || line.startsWith('#')) continue
    if (wanted && line.startsWith(`${DURATION}_bucket`) && !wanted.some((start) => line.startsWith(start))) continue
    const name = line.slice(0, open)
    if (!WANTED.includes(name)) continue
    const labels = parseLabels(line.slice(open + 1, close))
    const value = Number(line.slice(close + 1).trim().split(' ')[0])
    if (Number.isNaN(value)) continue
    const volume = labels.get('volume')
    const kind = labels.get('operation')
    if (volume === undefined || (kind !== 'read' && kind !== 'write')) continue
    let counters = metrics.volumes.get(volume)
    if (!counters) metrics.volumes.set(volume, (counters = { read: none(), write: none() }))
    const of = counters[kind]
    if (name.endsWith('_bucket')) {
      const bound = labels.get('le')
      of.buckets.push([bound === '+Inf' ? Infinity : Number(bound), value])
    } else if (name.endsWith('_sum')) of.seconds = value
    else if (name.endsWith('_count')) of.operations = value
    else of.bytes = value
  }
  return metrics
}

export function none(): Counters {
  return { operations: 0, seconds: 0, bytes: 0, buckets: [] }
}

function parseLabels(text: string): Map<string, string> {
  const labels = new Map<string, string>()
  for (const match of text.matchAll(/([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g)) {
    labels.set(match[1] ?? '', (match[2] ?? '').replace(/\\(.)/g, (_, c: string) => (c === 'n' ? '\n' : c)))
  }
  return labels
}

/** What has been done between two looks. A counter that went back began anew, with the node. */
export function between(before: Counters | undefined, after: Counters): Counters {
  const from = before && before.operations <= after.operations && before.bytes <= after.bytes ? before : none()
  const earlier = new Map(from.buckets)
  return {
    operations: after.operations - from.operations,
    seconds: Math.max(0, after.seconds - from.seconds),
    bytes: after.bytes - from.bytes,
    buckets: after.buckets.map(([bound, many]) => [bound, many - (earlier.get(bound) ?? 0)]),
  }
}

/** The latency that so much of the commands stay within: the bound of its bucket. Undefined if there were none. */
export function quantile(of: Counters, part: number): number | undefined {
  const all = of.buckets.at(-1)?.[1] ?? 0
  if (all <= 0) return undefined
  const bucket = of.buckets.find(([, many]) => many >= part * all)
  return bucket && Number.isFinite(bucket[0]) ? bucket[0] : of.buckets.at(-2)?.[0]
}

export interface Bar {
  /** The longest latency that falls into it, in seconds. */
  bound: number
  read: number
  write: number
}

/** How many commands fell into each range of latencies, from the first range with any to the last. */
export function distribution(of: VolumeCounters): Bar[] {
  const each = (kind: Kind) => new Map(of[kind].buckets.map(([bound, many], at, all) => [bound, many - (all[at - 1]?.[1] ?? 0)] as const))
  const read = each('read')
  const write = each('write')
  const bounds = [...new Set([...read.keys(), ...write.keys()])].sort((a, b) => a - b)
  const bars = bounds.map((bound) => ({ bound, read: read.get(bound) ?? 0, write: write.get(bound) ?? 0 }))
  const used = bars.map((bar) => bar.read + bar.write > 0)
  const first = used.indexOf(true)
  return first < 0 ? [] : bars.slice(first, used.lastIndexOf(true) + 1)
}
