import { expect, it } from 'vitest'
import { node } from './fixtures'
import { downWord, nodeSince } from './nodes'
import { lasting } from './since'

it('distinguishes a node that is cut off from one that is down', () => {
  expect([node(3, { up: false }), node(3, { up: false, reached_by: [2] })].map(downWord)).toEqual(['down', 'cut off'])
})

it('knows since when a node is down, or in maintenance', () => {
  expect(nodeSince(node(2, { maintenance: true, maintenance_since: 70 }))).toEqual({ at: 70 })
  expect(nodeSince(node(2, { up: false, down_since: { at: 50 }, maintenance_since: 70 }))).toEqual({ at: 50 })
  expect(nodeSince(node(2))).toBeUndefined()
})

it('shows how certain an age is', () => {
  expect([lasting('3 min', { at: 5 }), lasting('3 min', { at: 5, or_earlier: true }), lasting('3 min', undefined)]).toEqual(['for 3 min', 'for at least 3 min', 'seen here for 3 min'])
})
