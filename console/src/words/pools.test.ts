import { expect, it } from 'vitest'
import type { Pool } from '../api/types'
import { isShort, logSpace, poolChoices, poolProblem } from './pools'

const GIB = 2 ** 30
const pool = (name: string, more: Partial<Pool> = {}): Pool => ({ name, state: 'online', disks: [], extent: 1, free: GIB, used: GIB, total: 2 * GIB, volumes: 0, node: 1, node_name: 'n1', ...more })

it('selects the pool that a node would use', () => {
  expect(poolProblem([pool('fast')], null, GIB)).toBeUndefined()
  expect(poolProblem([pool('fast'), pool('default')], null, 0)).toBeUndefined()
  expect(poolProblem([pool('fast'), pool('slow')], null, 0)).toBe('There are several pools: choose one')
  expect(poolProblem([pool('fast'), pool('slow')], 'slow', 0)).toBeUndefined()
  expect(poolProblem([pool('fast')], 'slow', 0)).toBe('Pool slow not found')
  expect(poolProblem([pool('fast', { state: 'disk_failed' })], null, 0)).toBe('Pool fast cannot take volumes now')
  expect(poolProblem([pool('fast')], null, 2 * GIB)).toBe('Not enough space: 2GiB needed, fast has 1GiB free')
  expect(poolProblem([], null, 0)).toMatch(/^This node has no pool/)
})

it('offers each name once, with the free space', () => {
  const offered = poolChoices([pool('fast'), pool('slow', { state: 'disk_failed' }), pool('fast', { node: 2, node_name: '', free: 0 })])
  expect(offered.map((one) => [one.value, one.disabled])).toEqual([['fast', false], ['slow', true]])
  expect(offered[0]?.label).toBe('fast: 1GiB free of 2GiB on n1, 0B free of 2GiB on node 2')
  expect(offered[1]?.label).toBe('slow: 1GiB free of 2GiB')
})

it('shows the space of log volumes, and when a pool is overcommitted', () => {
  const logs = { lent: GIB, used: GIB / 4, room: GIB / 2, percent: 91 }
  const space = 'Log volumes use 256MiB of 1GiB lent to them, and can take 512MiB more.'
  expect(logSpace(logs)).toBe(space)
  expect(logSpace({ ...logs, snapshots: GIB / 8, freeing: GIB / 16 })).toBe(`${space} Snapshots hold 128MiB of what they use. 64MiB of deleted snapshots is being freed.`)
  expect(isShort(pool('fast', { used: 1.7 * GIB }))).toBe(false)
  expect(isShort(pool('fast', { used: 1.9 * GIB }))).toBe(true)
  expect(isShort(pool('fast', { used: 1.9 * GIB, logs }))).toBe(false)
  expect(isShort(pool('fast', { logs: { ...logs, level: 90 } }))).toBe(true)
})
