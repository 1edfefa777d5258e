import { expect, it } from 'vitest'
import type { FlowCounters } from '../api/types'
import { between, countersOf, distribution, none, quantile } from './metrics'

const READ: FlowCounters = {
  operations: 100,
  seconds: 0.05,
  bytes: 409600,
  // The last one has all, and no bound.
  latencies: [{ bound: 0.001, operations: 90 }, { bound: 0.002, operations: 99 }, { operations: 100 }],
}

it('reads a node’s metrics', () => {
  const read = countersOf(READ)
  expect(read).toEqual({ operations: 100, seconds: 0.05, bytes: 409600, buckets: [[0.001, 90], [0.002, 99], [Infinity, 100]] })
  expect(quantile(read, 0.5)).toBe(0.001)
  expect(quantile(read, 0.99)).toBe(0.002)
  expect(quantile(read, 1)).toBe(0.002)
})

it('counts between two readings, even across a restart', () => {
  const after = countersOf(READ)
  const before = { operations: 40, seconds: 0.02, bytes: 163840, buckets: [[0.001, 40], [0.002, 40], [Infinity, 40]] as [number, number][] }
  expect(between(before, after)).toMatchObject({ operations: 60, bytes: 245760, buckets: [[0.001, 50], [0.002, 59], [Infinity, 60]] })
  expect(between({ ...before, operations: 1000 }, after).operations).toBe(100)
  expect(between(undefined, after).operations).toBe(100)
})

it('counts operations in each bucket', () => {
  const read = countersOf(READ)
  const write = { ...none(), operations: 1, buckets: [[0.0005, 0], [0.001, 1], [0.002, 1], [Infinity, 1]] as [number, number][] }
  expect(distribution({ read, write })).toEqual([
    { bound: 0.001, read: 90, write: 1 },
    { bound: 0.002, read: 9, write: 0 },
    { bound: Infinity, read: 1, write: 0 },
  ])
  expect(distribution({ read: none(), write: none() })).toEqual([])
})
