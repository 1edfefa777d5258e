import { expect, it } from 'vitest'
import { between, distribution, none, parseMetrics, quantile } from './metrics'

const TEXT = `
# HELP ursa_volume_operation_duration_seconds From the arrival of all data of a command to its answer.
# TYPE ursa_volume_operation_duration_seconds histogram
ursa_volume_operation_duration_seconds_bucket{volume="d\\"b",operation="read",le="0.001"} 90
ursa_volume_operation_duration_seconds_bucket{volume="d\\"b",operation="read",le="0.002"} 99
ursa_volume_operation_duration_seconds_bucket{volume="d\\"b",operation="read",le="+Inf"} 100
ursa_volume_operation_duration_seconds_sum{volume="d\\"b",operation="read"} 0.05
ursa_volume_operation_duration_seconds_count{volume="d\\"b",operation="read"} 100
ursa_volume_bytes_total{volume="d\\"b",operation="read"} 409600
ursa_volume_bytes_total{volume="d\\"b",operation="unmap"} 7
ursa_pool_state{pool="default",state="online"} 1
`

it('reads what a node writes', () => {
  const read = parseMetrics(TEXT).volumes.get('d"b')!.read
  expect(read).toMatchObject({ operations: 100, seconds: 0.05, bytes: 409600 })
  expect(quantile(read, 0.5)).toBe(0.001)
  expect(quantile(read, 0.99)).toBe(0.002)
  expect(quantile(read, 1)).toBe(0.002)
  expect(parseMetrics(TEXT, ['other']).volumes.get('d"b')!.read).toMatchObject({ operations: 100, buckets: [] })
})

it('counts between two looks, also over a restart', () => {
  const after = parseMetrics(TEXT).volumes.get('d"b')!.read
  const before = { operations: 40, seconds: 0.02, bytes: 163840, buckets: [[0.001, 40], [0.002, 40], [Infinity, 40]] as [number, number][] }
  expect(between(before, after)).toMatchObject({ operations: 60, bytes: 245760, buckets: [[0.001, 50], [0.002, 59], [Infinity, 60]] })
  expect(between({ ...before, operations: 1000 }, after).operations).toBe(100)
  expect(between(undefined, after).operations).toBe(100)
})

it('says how many fell into each range', () => {
  const read = parseMetrics(TEXT).volumes.get('d"b')!.read
  const write = { ...none(), operations: 1, buckets: [[0.0005, 0], [0.001, 1], [0.002, 1], [Infinity, 1]] as [number, number][] }
  expect(distribution({ read, write })).toEqual([
    { bound: 0.001, read: 90, write: 1 },
    { bound: 0.002, read: 9, write: 0 },
    { bound: Infinity, read: 1, write: 0 },
  ])
  expect(distribution({ read: none(), write: none() })).toEqual([])
})
