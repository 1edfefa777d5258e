// The input for a new volume, and what is wrong with it so far.

import type { ClusterNode, Pool, Target, Volume, VolumeCreate } from '../api/types'
import { ISCSI_NAME_HINT, defaultTarget, isIscsiName } from './iscsi'
import { LUN_MAX, nameProblem } from './names'
import { poolProblem } from './pools'
import { parseSize } from './size'

export interface Draft {
  name: string
  size: string
  kind: 'thick' | 'ram' | 'log'
  blockSize: 512 | 4096
  /** With 512-byte blocks: report physical blocks of 512 bytes, too. */
  native512: boolean
  /** Null: one per core. */
  slices: number | null
  /** Ursa chooses the nodes for `copies` copies, or the user does. */
  place: 'copies' | 'nodes' | undefined
  copies: number
  nodes: number[]
  pool: string | null
  map: boolean
  host: string
  target: string
  lun: number | ''
}

export const emptyDraft: Draft = {
  name: '',
  size: '',
  kind: 'thick',
  blockSize: 512,
  native512: false,
  slices: null,
  place: undefined,
  copies: 2,
  nodes: [],
  pool: null,
  map: true,
  host: 'local',
  target: '',
  lun: '',
}

export interface Known {
  /** Empty if the node does not take part in its cluster. */
  nodes: ClusterNode[]
  volumes: Volume[]
  /** Of all nodes that reported their pools. */
  pools: Pool[]
  targets: Target[]
}

/** As in the API: powers of two. */
export const SLICES = [1, 2, 4, 8, 16, 32, 64]

/** The pools of the nodes that get copies, or may get one. */
export function poolsOf(draft: Draft, known: Known): Pool[] {
  const nodes = draft.place === 'copies' ? known.nodes.filter(takesCopies) : certain(draft, known)
  return nodes.flatMap((node) => poolsOn(node, known))
}

/** Whether there is only one node: a volume has a single copy there, and there is nothing to choose. */
export const isSingle = (nodes: ClusterNode[]) => nodes.length < 2

/** Whether a node takes new copies. Nodes in maintenance keep theirs, and take no new ones. */
export const takesCopies = (node: ClusterNode) => node.up && !node.witness && !node.maintenance

/**
 * The nodes known to get a copy: if Ursa chooses, only the queried node, if it takes copies. That node
 * chooses the others and checks their pools.
 */
function certain(draft: Draft, known: Known): ClusterNode[] {
  if (draft.place === 'nodes') return known.nodes.filter((node) => draft.nodes.includes(node.id))
  return known.nodes.filter((node) => node.here && takesCopies(node))
}

const poolsOn = (node: ClusterNode, known: Known) => known.pools.filter((pool) => pool.node === node.id)

/**
 * What is wrong with the pools of the chosen nodes. Another node that has not reported its pools is not
 * checked.
 */
function unplaced(draft: Draft, known: Known, bytes: number): string | undefined {
  const needs = draft.kind === 'thick' ? bytes : 0
  for (const node of certain(draft, known)) {
    const pools = poolsOn(node, known)
    const problem = pools.length > 0 || node.here ? poolProblem(pools, draft.pool, needs) : undefined
    if (problem !== undefined) return node.here ? problem : `${node.name}: ${problem}`
  }
  return undefined
}

export const STEPS: { name: string; fields: (keyof Draft)[] }[] = [
  { name: 'Size and kind', fields: ['name', 'size'] },
  { name: 'Location and copies', fields: ['place', 'copies', 'nodes', 'pool'] },
  { name: 'Hosts', fields: ['target', 'lun', 'host'] },
  { name: 'Review', fields: [] },
]

export function problemsOf(draft: Draft, known: Known): Partial<Record<keyof Draft, string>> {
  const problems: Partial<Record<keyof Draft, string>> = {}
  const wrongName = draft.name === '' ? 'Enter a name' : nameProblem(draft.name)
  if (wrongName !== undefined) problems.name = wrongName
  else if (known.volumes.some((volume) => volume.name === draft.name)) problems.name = 'A volume with this name already exists'
  const bytes = parseSize(draft.size)
  if (bytes === undefined) problems.size = 'Enter a number with K, M, G or T, for example 10G'
  if (!isSingle(known.nodes) && draft.place === undefined) problems.place = 'Choose one'
  const able = known.nodes.filter(takesCopies)
  if (draft.place === 'copies') {
    if (!Number.isInteger(draft.copies) || draft.copies < 1 || draft.copies > 4) problems.copies = 'Choose 1 to 4'
    else if (draft.copies > able.length) problems.copies = able.length === 1 ? 'Only one node can take copies now' : `Only ${able.length} nodes can take copies now: nodes that are down or in maintenance cannot`
  }
  if (draft.place === 'nodes') {
    if (draft.nodes.length < 1) problems.nodes = 'Choose at least one node'
    else if (draft.nodes.length > 4) problems.nodes = 'Choose at most four nodes'
    else if (!draft.nodes.every((id) => able.some((node) => node.id === id))) problems.nodes = 'A chosen node cannot take copies now: deselect it, or wait until it is up and out of maintenance'
  }
  const wrongPool = unplaced(draft, known, bytes ?? 0)
  if (wrongPool !== undefined) problems.pool = wrongPool
  if (draft.map) {
    const target = draft.target || defaultTarget(draft.name)
    if (draft.target !== '' && !isIscsiName(draft.target)) problems.target = `Not a valid iSCSI name. Use ${ISCSI_NAME_HINT}`
    const maps = known.targets.find((one) => one.name === target)?.maps ?? []
    if (draft.lun !== '' && (draft.lun < 0 || draft.lun > LUN_MAX)) problems.lun = `Enter 0 to ${LUN_MAX}`
    else if (draft.lun !== '' && maps.some((map) => map.lun === draft.lun && map.host === draft.host)) problems.lun = `LUN ${draft.lun} of this target is already mapped to ${draft.host}`
  }
  return problems
}

/** Sets who chooses the nodes. With only one node, the volume can have a single copy only. */
export function placedBy(place: Draft['place'], draft: Draft, nodes: ClusterNode[]): Partial<Draft> {
  const single = nodes.filter((node) => !node.witness).length < 2
  return { place, copies: single ? 1 : draft.copies }
}

/** `with 2 copies, on nodes chosen by Ursa`. */
export function whereWords({ nodes, copies }: VolumeCreate, known: ClusterNode[]): string {
  const name = (id: number) => known.find((node) => node.id === id)?.name ?? `node ${id}`
  if (nodes) return `${nodes.length === 1 ? 'with a single copy' : 'with copies'} on ${nodes.map(name).join(', ')}`
  if (!copies) return 'on this node'
  return copies === 1 ? 'with a single copy, on a node chosen by Ursa' : `with ${copies} copies, on nodes chosen by Ursa`
}

/** The request to the node. */
export function requestOf(draft: Draft): VolumeCreate {
  const request: VolumeCreate = { name: draft.name, size: parseSize(draft.size) ?? 0, kind: draft.kind, block_size: draft.blockSize, map: draft.map }
  if (draft.place === 'copies') request.copies = draft.copies
  if (draft.place === 'nodes') request.nodes = draft.nodes
  if (draft.blockSize === 512 && draft.native512) request.native_512 = true
  if (draft.slices !== null) request.slices = draft.slices
  if (draft.pool !== null) request.pool = draft.pool
  if (draft.map) {
    if (draft.host !== 'local') request.host = draft.host
    if (draft.target !== '') request.target = draft.target
    if (draft.lun !== '') request.lun = draft.lun
  }
  return request
}
