import { expect, it } from 'vitest'
import type { Pool } from '../api/types'
import { type Known, emptyDraft, problemsOf, requestOf } from './draft'
import { node, volume } from './fixtures'

const pool: Pool = { name: 'default', state: 'online', disks: [], extent: 1, free: 2 ** 30, total: 2 ** 31, volumes: 1 }
const known: Known = { nodes: [node(1), node(2), node(3, { witness: true })], volumes: [volume('db', [])], pools: [pool], targets: [{ name: 'iqn.2026-11.io.ursa:x', maps: [{ lun: 0, host: 'local', volume_id: 'v' }] }] }
const good = { ...emptyDraft, name: 'mail', size: '512M', place: 'copies' as const }

it('accepts what a node would', () => {
  expect(problemsOf(good, known)).toEqual({})
  expect(problemsOf({ ...good, place: undefined }, { ...known, nodes: [] })).toEqual({})
  expect(requestOf(good)).toEqual({ name: 'mail', size: 2 ** 29, kind: 'thick', block_size: 512, map: true, copies: 2 })
  expect(requestOf({ ...good, place: 'alone', map: false, host: 'web', lun: 3 })).toEqual({ name: 'mail', size: 2 ** 29, kind: 'thick', block_size: 512, map: false })
})

it('says what is wrong before it is sent', () => {
  const wrong = (change: object) => Object.keys(problemsOf({ ...good, ...change }, known))
  expect(wrong({ name: 'db' })).toEqual(['name'])
  expect(wrong({ name: 'a b' })).toEqual(['name'])
  expect(wrong({ size: '10' + 'X' })).toEqual(['size'])
  expect(wrong({ size: '2G' })).toEqual(['pool'])
  expect(wrong({ size: '2G', kind: 'ram' })).toEqual([])
  expect(wrong({ place: undefined })).toEqual(['place'])
  expect(wrong({ copies: 3 })).toEqual(['copies'])
  expect(wrong({ place: 'nodes' })).toEqual(['nodes'])
  // The node that is asked is not one of them: its pools do not matter.
  expect(wrong({ place: 'nodes', nodes: [2], size: '2G' })).toEqual([])
  expect(wrong({ target: 'x' })).toEqual(['target'])
  expect(wrong({ target: 'iqn.2026-11.io.ursa:x', lun: 0 })).toEqual(['lun'])
  expect(wrong({ target: 'iqn.2026-11.io.ursa:x', lun: 1 })).toEqual([])
})
