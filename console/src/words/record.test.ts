import { expect, it } from 'vitest'
import type { Node } from '../api/types'
import { volume } from './fixtures'
import { agreement, etcdDecides, exposure, recordWord, singleMeans } from './record'

const node: Node = { name: 'n1', version: '0', cores: 1, uptime: 1, map_memory: { used: 0, limit: 1 }, portals: [], changes: [] }

it('knows where the record is', () => {
  expect(etcdDecides({ ...node, record_place: 'etcd' })).toBe(true)
  expect(etcdDecides({ ...node, record_place: 'nodes' })).toBe(false)
  expect(etcdDecides(node)).toBe(false)
  expect(etcdDecides(undefined)).toBe(false)
})

it('shows where the record is, and whether it answers', () => {
  expect(recordWord(undefined, 1)).toBeUndefined()
  expect(recordWord(null, 1)).toBeUndefined()
  expect(recordWord({ place: 'nodes', answers: true }, 3)).toBe('on the voters; available')
  expect(recordWord({ place: 'nodes', answers: false }, 1)).toBe('on this node; unavailable: volume I/O continues, but nothing can be changed')
  expect(recordWord({ place: 'etcd', answers: true, endpoints: ['http://10.0.0.7:2379', 'http://10.0.0.8:2379'] }, 2)).toBe('in etcd (http://10.0.0.7:2379, http://10.0.0.8:2379); available')
  expect(recordWord({ place: 'etcd', answers: false }, 2)).toBe('in etcd; unavailable: volume I/O continues, but nothing can be changed and no node can be declared lost')
})

it('names what decides', () => {
  const db = volume('db', [[1, 'in_sync'], [2, 'in_sync']])
  expect(agreement(db, false)).toContain('the majority of the voters')
  expect(agreement(db, true)).not.toMatch(/vote|majority/)
  expect(agreement({ ...db, split_brain_policy: { policy: 'heartbeat', by: 'eva', at: 9 } }, false)).toContain('Chosen by eva')
  for (const etcd of [false, true]) expect(agreement(volume('db', [[2, 'in_sync']]), etcd), 'nobody could continue').toBeUndefined()
})

it('says which losses a volume survives: with etcd, no third node is needed', () => {
  expect(exposure('thick', 1, 3, true)).toBe('Single copy: it is unavailable while the node is down, and its data is lost if its pool is lost. The node serves it even without quorum, and you can add a copy on another node later')
  expect(exposure('thick', 2, 2, false)).toContain('a third node')
  expect(exposure('thick', 2, 2, true)).toBe('It survives the loss of any one of its nodes, after a pause of about a second, as long as etcd is available')
  expect(exposure('thick', 2, 3, false)).toBe('It survives the loss of any one of its nodes, after a pause of about a second')
  expect(exposure('thick', 3, 3, false)).not.toContain('second one')
  expect(exposure('thick', 3, 5, false)).toContain('a second one later')
  expect(exposure('thick', 3, 3, true)).toContain('a second one later')
})

it('says when data in memory is lost, not that it returns with its node', () => {
  expect(exposure('ram', 1, 3, false)).toMatch(/^Single copy: its data is lost whenever the node restarts\. /)
  expect(singleMeans('ram')).toBe('its data is lost whenever the node restarts')
  expect(singleMeans('thick')).toContain('its data is lost if its pool is lost')
  for (const etcd of [false, true]) {
    for (const nodes of [2, 3]) expect(exposure('ram', 2, nodes, etcd)).toBe(`${exposure('thick', 2, nodes, etcd)}. Its data is lost with the last node that has a copy in sync`)
  }
})
