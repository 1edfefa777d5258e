import { expect, it } from 'vitest'
import { addUp } from './history'

const series = (name: string, node: number, points: (number | null)[]) => ({ unit: 'ratio' as const, series: name, node, node_name: `n${node}`, points })

it('adds up nodes step by step, and leaves gaps where nothing was recorded', () => {
  const found = addUp({
    from: 1000,
    step_s: 10,
    series: [
      series('read_operations', 1, [100, null, 50, null]),
      series('read_operations', 2, [300, null, null, null]),
      series('read_mean_us', 1, [1000, null, 40, null]),
      series('read_mean_us', 2, [200, null, null, null]),
      series('read_p99_us', 1, [4096, null, 64, null]),
      series('read_p99_us', 2, [512, null, null, null]),
      series('cpu', 1, [0.75, null, 0.5, null]),
      series('cpu_polling', 1, [0.25, null, 0.5, null]),
      series('out_of_sync_bytes', 1, [7, null, 0, null]),
      series('out_of_sync_bytes', 2, [9, null, null, null]),
    ],
  })
  expect(found.load.map((one) => [one.at, one.reads, one.readLatency, one.readP99])).toEqual([
    [1010, 400, 0.0004, 0.004096],
    [1020, undefined, undefined, undefined],
    [1030, 50, 0.00004, 0.000064],
  ])
  expect(found.load[0]?.writes).toBeUndefined()
  expect(found.cores).toEqual([{ name: 'n1', values: [0.5, undefined, 0] }])
  expect(found.outOfSync).toEqual([9, undefined, 0])
})

it('returns nothing for no series', () => {
  expect(addUp({ from: 0, step_s: 10, series: [] })).toEqual({ load: [], cores: [], outOfSync: [] })
})
