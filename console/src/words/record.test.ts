import { expect, it } from 'vitest'
import type { Node } from '../api/types'
import { volume } from './fixtures'
import { agreement, etcdDecides, exposure } from './record'

const node: Node = { name: 'n1', version: '0', cores: 1, uptime: 1, portals: [], changes: [] }

it('knows where the record is to be, without a cluster, too', () => {
  expect(etcdDecides({ ...node, record_place: 'etcd' })).toBe(true)
  expect(etcdDecides({ ...node, record_place: 'nodes' })).toBe(false)
  expect(etcdDecides(node)).toBe(false)
  expect(etcdDecides(undefined)).toBe(false)
})

it('names who decides', () => {
  const db = volume('db', [[1, 'in_sync'], [2, 'in_sync']])
  expect(agreement(db, false)).toContain('the majority of the nodes that vote')
  expect(agreement(db, true)).not.toMatch(/vote|majority/)
  expect(agreement({ ...db, strategy: { strategy: 'heartbeat', by: 'eva', at: 9 } }, false)).toContain('Chosen by eva')
})

it('says what is outlived: with etcd no third node is needed', () => {
  expect(exposure(1, 3, true)).toContain('One copy')
  expect(exposure(2, 2, false)).toContain('a third node')
  expect(exposure(2, 2, true)).toBe('It outlives the loss of any one of its nodes, after a stall of about a second, while etcd answers')
  expect(exposure(2, 3, false)).toBe('It outlives the loss of any one of its nodes, after a stall of about a second')
  expect(exposure(3, 3, false)).not.toContain('second one')
  expect(exposure(3, 5, false)).toContain('a second one later')
  expect(exposure(3, 3, true)).toContain('a second one later')
})
