import { expect, it } from 'vitest'
import type { FloatingAddress } from '../api/types'
import { node, volume } from './fixtures'
import { portalsOf } from './portals'

const floating = (address: string, nodes: number[]): FloatingAddress => ({ address, nodes, waits: false, state: 'held' })

it('lists the portals of every node with a copy, and floating IPs', () => {
  const nodes = [node(1, { portals: ['10.0.0.1:3261', '10.1.0.1:3261'] }), node(2, { portals: ['10.0.0.2:3261'] }), node(3), node(4, { witness: true })]
  const addresses = [floating('10.0.0.9/24', []), floating('fd00::9/64', [2]), floating('10.0.0.8/24', [3])]
  expect(portalsOf(volume('db', [[1, 'in_sync'], [2, 'in_sync']]), nodes, addresses)).toEqual(['10.0.0.1:3261', '10.1.0.1:3261', '10.0.0.2:3261', '10.0.0.9:3261', '[fd00::9]:3261'])
  expect(portalsOf(volume('single', [[3, 'in_sync']]), nodes, addresses)).toEqual(['10.0.0.3:3260', '10.0.0.9:3260', '10.0.0.8:3260'])
  expect(portalsOf(undefined, nodes, [])).toHaveLength(4)
})
