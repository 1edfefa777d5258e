import { expect, it } from 'vitest'
import type { Volume } from '../api/types'
import { volume } from './fixtures'
import { copiesWord, isElsewhere, nodesWord, servers, volumeLink, volumeState } from './volume'

it('has a word for each health', () => {
  const state = (health: Volume['health'], more: Partial<Volume> = {}) => volumeState(volume('db', [[1, 'in_sync'], [2, 'out_of_sync']], { health, ...more }))
  expect(state('split_brain')).toMatchObject({ tone: 'critical', word: 'split brain' })
  expect(state('unavailable')).toEqual({ tone: 'critical', word: 'unavailable', why: 'No node with a copy in sync responds.' })
  expect(state('unavailable', { problem: 'a write to this copy failed' }).why).toBe('a write to this copy failed')
  expect(state('continued_alone', { fork: { node: 2, since: 5, split: false } }).why).toBe('Node 2 continues alone with it.')
  expect(state('resyncing')).toEqual({ tone: 'working', word: 'resyncing', why: '1 of 2 copies are in sync.' })
  expect(state('degraded')).toMatchObject({ tone: 'warning', word: 'degraded' })
})

it('says that other nodes serve a volume, and this one does not', () => {
  const both = (more: Partial<Volume>) => volumeState(volume('db', [[1, 'in_sync'], [3, 'in_sync']], { serving: false, ...more })).word
  expect(both({})).toBe('not on this node')
  expect(both({ health: 'degraded', problem: 'a write to this copy failed' })).toBe('not on this node')
  expect(both({ health: 'degraded' }), 'a node is down').toBe('degraded')
  expect(volumeState(volume('db', [[2, 'in_sync'], [3, 'in_sync']], { serving: false })).tone, 'it has no copy').toBe('ok')
})

it('shows the nodes of a volume', () => {
  const there = volume('my db', [[2, 'in_sync']], { serving: false })
  expect(volumeState(there)).toEqual({ tone: 'ok', word: 'healthy', why: 'Served by one node, single copy.' })
  expect([isElsewhere(there), nodesWord(there), copiesWord(there), volumeLink(there)]).toEqual([true, 'n2', '1 of 1 in sync', '#/volumes/my%20db'])
  expect(isElsewhere(volume('db', [[1, 'in_sync']]))).toBe(false)
  expect(nodesWord(volume('db', [[1, 'in_sync'], [3, 'out_of_sync']]))).toBe('n1, n3')
})

it('shows this node for a volume that the record does not list', () => {
  const single = volume('db', [])
  expect([isElsewhere(single), nodesWord(single), copiesWord(single), volumeState(single).word]).toEqual([false, 'this node', 'single copy', 'healthy'])
})

it('lists the nodes that count host I/O, the best one first', () => {
  const asked = (copies: Parameters<typeof volume>[1]) => servers(volume('db', copies)).map((one) => one.node)
  expect(asked([[2, 'in_sync'], [1, 'out_of_sync'], [3, 'in_sync']])).toEqual([1, 2, 3])
  // The node that receives the request has no copy of it, and counts nothing of it.
  expect(asked([[3, 'out_of_sync'], [2, 'in_sync']])).toEqual([2, 3])
  expect(asked([])).toEqual([])
  expect(servers(volume('db', [[2, 'in_sync']]))).toEqual([{ node: 2, name: 'n2' }])
})
