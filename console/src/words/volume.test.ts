import { expect, it } from 'vitest'
import { node, volume } from './fixtures'
import { copiesWord, isElsewhere, nodesWord, servers, volumeLink, volumeState } from './volume'

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

it('says which nodes have a volume, and where it is shown', () => {
  const there = volume('my db', [[2, 'in_sync']], { serving: false })
  expect(volumeState(there)).toEqual({ tone: 'ok', word: 'in sync', why: 'Served by one node, single copy.' })
  expect([isElsewhere(there), nodesWord(there), copiesWord(there), volumeLink(there)]).toEqual([true, 'n2', '1 of 1 in sync', '#/volumes/my%20db'])
  expect(volumeState(there, [node(1), node(2, { up: false })]).word).toBe('unavailable')
  expect(isElsewhere(volume('db', [[1, 'in_sync']]))).toBe(false)
  expect(nodesWord(volume('db', [[1, 'in_sync'], [3, 'out_of_sync']]))).toBe('n1, n3')
})

it('says of a volume of a node without a cluster that this node has it', () => {
  const single = volume('db', [])
  expect([isElsewhere(single), nodesWord(single), copiesWord(single), volumeState(single).word]).toEqual([false, 'this node', 'single copy', 'in sync'])
  expect(volumeState({ ...single, serving: false, problem: 'its pool is not open' }).word).toBe('unavailable')
})

it('names the nodes that count what hosts do, the best one first', () => {
  const asked = (copies: Parameters<typeof volume>[1]) => servers(volume('db', copies)).map((one) => one.node)
  expect(asked([[2, 'in_sync'], [1, 'out_of_sync'], [3, 'in_sync']])).toEqual([1, 2, 3])
  // None of it is on the node that is asked, which counts nothing of it.
  expect(asked([[3, 'out_of_sync'], [2, 'in_sync']])).toEqual([2, 3])
  expect(asked([])).toEqual([])
  expect(servers(volume('db', [[2, 'in_sync']]))).toEqual([{ node: 2, name: 'n2' }])
})
