import { expect, it } from 'vitest'
import type { Pool } from '../api/types'
import { type Known, emptyDraft, placedBy, poolsOf, problemsOf, requestOf, whereWords } from './draft'
import { node, volume } from './fixtures'

const pool: Pool = { name: 'default', state: 'online', disks: [], extent: 1, free: 2 ** 30, used: 2 ** 30, total: 2 ** 31, volumes: 1, node: 1, node_name: 'n1' }
const known: Known = { nodes: [node(1), node(2), node(3, { witness: true })], volumes: [volume('db', [[2, 'in_sync']])], pools: [pool], targets: [{ name: 'iqn.2026-11.io.ursa:x', maps: [{ lun: 0, host: 'local', volume_id: 'v' }] }] }
const good = { ...emptyDraft, name: 'mail', size: '512M', place: 'copies' as const }

it('accepts what a node accepts', () => {
  expect(problemsOf(good, known)).toEqual({})
  expect(problemsOf({ ...good, place: undefined }, { ...known, nodes: [node(1)] })).toEqual({})
  expect(requestOf(good)).toEqual({ name: 'mail', size: 2 ** 29, kind: 'thick', block_size: 512, map: true, copies: 2 })
  expect(requestOf({ ...good, place: 'nodes', nodes: [2], map: false, host: 'web', lun: 3 })).toEqual({ name: 'mail', size: 2 ** 29, kind: 'thick', block_size: 512, map: false, nodes: [2] })
})

it('shows what is wrong before the request is sent', () => {
  const wrong = (change: object) => Object.keys(problemsOf({ ...good, ...change }, known))
  expect(wrong({ name: 'db' })).toEqual(['name'])
  expect(wrong({ name: 'a b' })).toEqual(['name'])
  for (const name of ['', '-db', '_db', '.db']) expect(wrong({ name }), name).toEqual(['name'])
  expect(wrong({ size: '10' + 'X' })).toEqual(['size'])
  expect(wrong({ size: '2G' })).toEqual(['pool'])
  expect(wrong({ size: '2G', kind: 'ram' })).toEqual([])
  expect(wrong({ place: undefined })).toEqual(['place'])
  expect(wrong({ copies: 3 })).toEqual(['copies'])
  expect(problemsOf({ ...good, copies: 2 }, { ...known, nodes: [node(1), node(2, { maintenance: true })] })).toHaveProperty('copies')
  expect(problemsOf({ ...good, place: 'nodes', nodes: [1, 2] }, { ...known, nodes: [node(1), node(2)] })).not.toHaveProperty('nodes')
  expect(problemsOf({ ...good, place: 'nodes', nodes: [1, 2] }, { ...known, nodes: [node(1), node(2, { up: false })] })).toHaveProperty('nodes')
  expect(wrong({ place: 'nodes' })).toEqual(['nodes'])
  // The node that receives the request is not one of them: its pools do not matter.
  expect(wrong({ place: 'nodes', nodes: [2], size: '2G' })).toEqual([])
  expect(wrong({ target: 'x' })).toEqual(['target'])
  expect(wrong({ target: 'iqn.2026-11.io.ursa:my_vm' })).toEqual([])
  expect(wrong({ target: 'iqn.2026-11.io.ursa:x', lun: 0 })).toEqual(['lun'])
  expect(wrong({ target: 'iqn.2026-11.io.ursa:x', lun: 1 })).toEqual([])
  expect(wrong({ lun: 255 })).toEqual([])
  expect(wrong({ lun: 256 })).toEqual(['lun'])
  // The default target.
  expect(wrong({ name: 'X', lun: 0 })).toEqual(['lun'])
})

it('accepts a single copy, on a node chosen by Ursa or by the user', () => {
  const single = (change: object, nodes = known.nodes) => [problemsOf({ ...good, ...change }, { ...known, nodes }), whereWords(requestOf({ ...good, ...change }), nodes)]
  expect(single({ copies: 1 })).toEqual([{}, 'with a single copy, on a node chosen by Ursa'])
  expect(single({ place: 'nodes', nodes: [2] })).toEqual([{}, 'with a single copy on n2'])
  expect(single({ place: 'nodes', nodes: [1, 2] })[1]).toBe('with copies on n1, n2')
  expect(single({})[1]).toBe('with 2 copies, on nodes chosen by Ursa')
  expect(single({ place: undefined }, [node(1)])).toEqual([{}, 'on this node'])
  // The default is two copies, unless only one node can have one.
  expect(placedBy('copies', emptyDraft, known.nodes)).toEqual({ place: 'copies', copies: 2 })
  expect(placedBy('copies', emptyDraft, [node(1), node(2, { up: false })])).toEqual({ place: 'copies', copies: 2 })
  expect(placedBy('copies', emptyDraft, [node(1), node(2, { witness: true })])).toEqual({ place: 'copies', copies: 1 })
})

it('requests slices and native blocks only if chosen and possible', () => {
  expect(requestOf({ ...good, slices: 8, native512: true })).toMatchObject({ slices: 8, native_512: true })
  expect(requestOf({ ...good, blockSize: 4096, native512: true })).not.toHaveProperty('native_512')
})

it('checks the pools of the nodes that get copies', () => {
  const of = (id: number, name: string, more: Partial<Pool> = {}): Pool => ({ ...pool, name, node: id, node_name: `n${id}`, ...more })
  const three: Known = { ...known, nodes: [node(1), node(2), node(3)], pools: [of(1, 'default'), of(2, 'fast'), of(2, 'slow'), of(3, 'fast', { free: 0 })] }
  const names = (change: object) => poolsOf({ ...good, ...change }, three).map((one) => `${one.node} ${one.name}`)
  expect(names({ place: 'nodes', nodes: [2] })).toEqual(['2 fast', '2 slow'])
  expect(names({ place: undefined })).toEqual(['1 default'])
  expect(names({})).toHaveLength(4)
  const wrong = (change: object) => problemsOf({ ...good, ...change }, three).pool
  expect(wrong({ place: 'nodes', nodes: [2] })).toBe('n2: There are several pools: choose one')
  expect(wrong({ place: 'nodes', nodes: [2], pool: 'fast' })).toBeUndefined()
  expect(wrong({ place: 'nodes', nodes: [1, 2], pool: 'fast' })).toBe('Pool fast not found')
  expect(wrong({ place: 'nodes', nodes: [2, 3], pool: 'fast' })).toMatch(/^n3: Not enough space: 512MiB needed/)
  // If Ursa chooses, the node that receives the request gets one copy. It chooses the other nodes, and
  // reports problems with them.
  expect(wrong({ pool: 'fast' })).toBe('Pool fast not found')
  expect(wrong({ pool: 'default' })).toBeUndefined()
  // A node without volumes needs no pool.
  expect(problemsOf({ ...good, copies: 1 }, { ...three, nodes: [node(1, { witness: true }), node(2)], pools: [of(2, 'fast')] }).pool).toBeUndefined()
})
