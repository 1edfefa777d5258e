import { expect, it } from 'vitest'
import type { Session } from '../api/types'
import { volume } from './fixtures'
import { hostPaths, ratesBetween, sessionKey } from './hostpaths'

function session(initiator: string, node: number, more: Partial<Session> = {}): Session {
  return { initiator, node, node_name: `n${node}`, isid: '1', tsih: node, core: 0, age: 1, addresses: ['10.0.0.9'], target: 'iqn.2026-11.io.ursa:db', commands: 0, bytes_received: 0, bytes_sent: 0, ...more }
}

it('knows which host lacks a path', () => {
  const volumes = [volume('db', [[1, 'in_sync'], [3, 'out_of_sync']]), volume('other', [[2, 'in_sync']])]
  const found = hostPaths([session('iqn.a', 1), session('iqn.a', 3), session('iqn.a', 3, { tsih: 9 }), session('iqn.b', 1, { alias: 'web' }), session('iqn.c', 1, { target: null })], volumes)
  expect(found.map(({ name, sessions, lacks }) => [name, [...sessions], lacks])).toEqual([
    ['web', [[1, 1]], [3]],
    ['iqn.a', [[1, 1], [3, 2]], []],
  ])
})

it('shows the rate of a path per second', () => {
  const before = session('iqn.a', 1, { commands: 10, bytes_received: 1000, bytes_sent: 0 })
  const after = session('iqn.a', 1, { commands: 30, bytes_received: 5000, bytes_sent: 200 })
  expect(ratesBetween([before], [after, session('iqn.a', 2)], 2)).toEqual(new Map([[sessionKey(after), { commands: 10, received: 2000, sent: 100 }]]))
  expect(ratesBetween([after], [before], 2).size).toBe(0)
})
