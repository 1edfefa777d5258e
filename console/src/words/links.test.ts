import { expect, it } from 'vitest'
import { node } from './fixtures'
import { keptFor, linkFor, noneForData, withRole } from './links'

const DATA = '10.0.0.1:3270'
const BEATS = '192.168.0.1:3270'
const two = node(1, { addresses: [DATA, BEATS], link_roles: { [BEATS]: 'heartbeat' } })

it('shows the role of an address', () => {
  expect(keptFor(two, DATA)).toBe('all')
  expect(withRole(two, DATA)).toBe('10.0.0.1:3270')
  expect(withRole(two, BEATS)).toBe('192.168.0.1:3270 (heartbeat)')
  expect(withRole(node(2), '10.0.0.2:3270')).toBe('10.0.0.2:3270')
})

it('keeps one address for data', () => {
  expect(noneForData(two, DATA, 'replication')).toBeUndefined()
  expect(noneForData(two, DATA, 'heartbeat')).toMatch(/^The node needs at least one address for volume data/)
  expect(noneForData({ ...two, link_roles: {} }, DATA, 'heartbeat')).toBeUndefined()
  expect(noneForData(node(2), '10.0.0.2:3270', 'heartbeat')).toMatch(/^The node needs/)
})

it('has a command line', () => {
  expect(linkFor(two, DATA, 'replication')).toBe('ursa node link 1 10.0.0.1:3270 --for replication')
  expect(linkFor(two, '[fd00::1]:3270', 'all')).toBe("ursa node link 1 '[fd00::1]:3270' --for all")
})
