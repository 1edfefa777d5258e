// The history of the last days that nodes have kept, added up over all of them.

import type { Kept } from '../api/types'
import type { Step } from '../live/sample'

type Series = Kept['series'][number]

export interface History {
  /** All nodes together; `at` is the end of each step. */
  load: Step[]
  /** How busy the cores of each node were, from 0 to 1, without polling. */
  cores: { name: string; values: (number | undefined)[] }[]
  /** Bytes that copies are missing. */
  outOfSync: (number | undefined)[]
}

/** The series to request. */
export const LOAD_SERIES = ['read_operations', 'write_operations', 'read_bytes', 'write_bytes', 'read_mean_us', 'write_mean_us', 'read_p99_us', 'write_p99_us', 'cpu', 'cpu_polling', 'out_of_sync_bytes']

const MICROS = 1e6

export function addUp(kept: Kept): History {
  const of = (name: string) => kept.series.filter((one) => one.series === name)
  const length = Math.max(0, ...kept.series.map((one) => one.points.length))
  const at = (series: Series[], index: number) => series.flatMap((one) => one.points[index] ?? [])
  const sum = (series: Series[], index: number) => {
    const values = at(series, index)
    return values.length > 0 ? values.reduce((all, one) => all + one, 0) : undefined
  }
  const greatest = (series: Series[], index: number) => {
    const values = at(series, index)
    return values.length > 0 ? Math.max(...values) : undefined
  }
  /** The mean over all nodes, weighted by their operations. */
  const weighed = (means: Series[], weights: Series[], index: number) => {
    let [all, weight] = [0, 0]
    for (const mean of means) {
      const value = mean.points[index]
      const many = weights.find((one) => one.node === mean.node)?.points[index]
      if (value === null || value === undefined || !many) continue
      all += value * many
      weight += many
    }
    return weight > 0 ? all / weight / MICROS : undefined
  }
  const scaled = (value: number | undefined) => (value === undefined ? undefined : value / MICROS)
  const [reads, writes, readBytes, writeBytes] = [of('read_operations'), of('write_operations'), of('read_bytes'), of('write_bytes')]
  const steps = [...Array(length).keys()]
  // Steps at the end that no node has kept yet are omitted: they are still in progress.
  while (steps.length > 0 && sum(reads, steps.at(-1)!) === undefined && steps.length > length - 2) steps.pop()
  const polling = of('cpu_polling')
  return {
    load: steps.map((step) => ({
      at: kept.from + (step + 1) * kept.step_s,
      reads: sum(reads, step),
      writes: sum(writes, step),
      readBytes: sum(readBytes, step),
      writeBytes: sum(writeBytes, step),
      readLatency: weighed(of('read_mean_us'), reads, step),
      writeLatency: weighed(of('write_mean_us'), writes, step),
      readP99: scaled(greatest(of('read_p99_us'), step)),
      writeP99: scaled(greatest(of('write_p99_us'), step)),
    })),
    cores: of('cpu').map((cpu) => ({
      name: cpu.node_name || `node ${cpu.node}`,
      values: steps.map((step) => {
        const [all, looking] = [cpu.points[step], polling.find((one) => one.node === cpu.node)?.points[step] ?? 0]
        return all === null || all === undefined ? undefined : Math.max(0, all - looking)
      }),
    })),
    outOfSync: steps.map((step) => greatest(of('out_of_sync_bytes'), step)),
  }
}
