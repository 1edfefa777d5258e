import { expect, it } from 'vitest'
import { node, volume } from './fixtures'
import { aloneOn, isElsewhere, nodesWord, servers, volumeLink, volumeState } from './volume'

it('takes no offence at a volume whose copies are all on other nodes', () => {
  expect(node(1).here).toBe(true)
  expect(volumeState(volume('db', [[2, 'in_sync'], [3, 'in_sync']], { serving: false })).tone).toBe('ok')
  expect(volumeState(volume('db', [[2, 'in_sync'], [3, 'out_of_sync']], { serving: false })).word).toBe('degraded')
  expect(volumeState(volume('db', [[1, 'in_sync'], [3, 'in_sync']], { serving: false })).word).toBe('not on this node')
})

it('says of a volume whose disk has failed here that others serve it, as long as another copy is in sync', () => {
  const failed = (copies: Parameters<typeof volume>[1]) => volume('db', copies, { serving: false, problem: 'a write to this copy failed' })
  expect(volumeState(failed([[1, 'out_of_sync'], [2, 'in_sync']]))).toMatchObject({ tone: 'warning', word: 'degraded' })
  expect(volumeState(failed([[1, 'in_sync'], [2, 'in_sync']]))).toMatchObject({ tone: 'warning', word: 'not on this node' })
  expect(volumeState(failed([[1, 'in_sync'], [2, 'out_of_sync']]))).toEqual({ tone: 'critical', word: 'unavailable', why: 'a write to this copy failed' })
  expect(volumeState(failed([[1, 'in_sync']])).word).toBe('unavailable')
})

it('says of a volume that nobody serves it while no node is there that has a copy in sync', () => {
  const down = (id: number, reached_by: number[] = []) => node(id, { up: false, reached_by })
  const both = volume('db', [[2, 'in_sync'], [3, 'in_sync']], { serving: false })
  expect(volumeState(both, [node(1), node(2), down(3)]).tone).toBe('ok')
  expect(volumeState(both, [node(1), down(2), down(3)])).toMatchObject({ tone: 'critical', word: 'unavailable' })
  expect(volumeState(both, [node(1), down(2), down(3, [4]), node(4)]).tone, 'others reach it').toBe('ok')
  const failed = volume('db', [[1, 'in_sync'], [2, 'in_sync']], { serving: false, problem: 'a write to this copy failed' })
  expect(volumeState(failed, [node(1), down(2), node(3)])).toMatchObject({ word: 'unavailable', why: 'a write to this copy failed' })
})

it('says of a volume that a node has alone which node that is', () => {
  const there = volume('my db', [], { node: 2, node_name: 'n2', serving: false })
  expect(volumeState(there).tone).toBe('ok')
  expect([isElsewhere(there), aloneOn(there), nodesWord(there), volumeLink(there)]).toEqual([true, 'n2 (node 2)', 'n2', '#/volumes/my%20db?node=2'])
  expect(volumeState({ ...there, problem: 'its pool is not open' }).word).toBe('unavailable')
  const here = volume('db', [], { node: 1, node_name: 'n1' })
  expect([isElsewhere(here), volumeLink(here)]).toEqual([false, '#/volumes/db?node=1'])
  const single = volume('db', [])
  expect([isElsewhere(single), aloneOn(single), nodesWord(single), volumeLink(single)]).toEqual([false, 'this node', 'this node', '#/volumes/db'])
  expect(nodesWord(volume('db', [[1, 'in_sync'], [3, 'out_of_sync']]))).toBe('n1, n3')
  expect(volumeLink(volume('db', [[1, 'in_sync']]))).toBe('#/volumes/db')
})

it('names the nodes that count what hosts do, the best one first', () => {
  const asked = (copies: Parameters<typeof volume>[1]) => servers(volume('db', copies)).map((one) => one.node)
  expect(asked([[2, 'in_sync'], [1, 'out_of_sync'], [3, 'in_sync']])).toEqual([1, 2, 3])
  // None of it is on the node that is asked, which counts nothing of it.
  expect(asked([[3, 'out_of_sync'], [2, 'in_sync']])).toEqual([2, 3])
  expect(asked([])).toEqual([])
  expect(servers(volume('db', [[2, 'in_sync']]))).toEqual([{ node: 2, name: 'n2' }])
})
