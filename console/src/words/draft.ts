// A volume that is being asked for, and what is wrong with it so far.

import type { ClusterNode, Pool, Target, Volume, VolumeCreate } from '../api/types'
import { parseSize, size } from './size'

export interface Draft {
  name: string
  size: string
  kind: 'thick' | 'ram'
  blockSize: 512 | 4096
  place: 'copies' | 'nodes' | 'alone' | undefined
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
  /** Empty without a cluster. */
  nodes: ClusterNode[]
  volumes: Volume[]
  pools: Pool[]
  targets: Target[]
}

export const STEPS: { name: string; fields: (keyof Draft)[] }[] = [
  { name: 'Size and kind', fields: ['name', 'size'] },
  { name: 'Location and copies', fields: ['place', 'copies', 'nodes', 'pool'] },
  { name: 'Hosts', fields: ['target', 'lun', 'host'] },
  { name: 'Review', fields: [] },
]

export function problemsOf(draft: Draft, known: Known): Partial<Record<keyof Draft, string>> {
  const problems: Partial<Record<keyof Draft, string>> = {}
  if (draft.name === '') problems.name = 'A volume needs a name'
  else if (!/^[A-Za-z0-9_.-]{1,63}$/.test(draft.name)) problems.name = 'Only letters, digits, - _ and . ; 63 at most'
  else if (known.volumes.some((volume) => volume.name === draft.name)) problems.name = 'There is a volume of that name'
  const bytes = parseSize(draft.size)
  if (bytes === undefined) problems.size = 'A number with K, M, G or T: 10G'
  const cluster = known.nodes.length > 0
  if (cluster && draft.place === undefined) problems.place = 'Choose one'
  const able = known.nodes.filter((node) => !node.witness && node.up)
  if (cluster && draft.place === 'copies') {
    if (!Number.isInteger(draft.copies) || draft.copies < 1 || draft.copies > 4) problems.copies = 'One to four'
    else if (draft.copies > able.length) problems.copies = `Only ${able.length} nodes that may have volumes are up`
  }
  if (cluster && draft.place === 'nodes') {
    if (draft.nodes.length < 1) problems.nodes = 'Choose one at least'
    else if (draft.nodes.length > 4) problems.nodes = 'Four at most'
  }
  const here = draft.place !== 'nodes' || !cluster || draft.nodes.some((id) => known.nodes.find((node) => node.id === id)?.here)
  const pool = draft.pool === null ? (known.pools.length === 1 ? known.pools[0] : known.pools.find((pool) => pool.name === 'default')) : known.pools.find((pool) => pool.name === draft.pool)
  if (here) {
    if (known.pools.length === 0) problems.pool = 'This node has no pool: make one under “Pools and disks”'
    else if (!pool) problems.pool = 'There are several pools: choose one'
    else if (pool.state !== 'online') problems.pool = `Pool ${pool.name} takes no volumes now`
    else if (draft.kind === 'thick' && bytes !== undefined && bytes > pool.free) problems.pool = `${size(bytes)} do not fit: ${pool.name} has ${size(pool.free)} free`
  }
  if (draft.map) {
    const target = draft.target || `iqn.2026-11.io.ursa:${draft.name}`
    if (draft.target !== '' && !/^(iqn\.\d{4}-\d\d\.[a-z0-9.:-]+|eui\.[0-9A-Fa-f]{16}|naa\.[0-9A-Fa-f]{16,32})$/.test(draft.target)) problems.target = 'An iSCSI name: iqn.2026-11.io.ursa:NAME, in small letters'
    const maps = known.targets.find((one) => one.name === target)?.maps ?? []
    if (draft.lun !== '' && maps.some((map) => map.lun === draft.lun && map.host === draft.host)) problems.lun = `LUN ${draft.lun} of that target is taken for ${draft.host}`
  }
  return problems
}

/** What is sent to the node. */
export function requestOf(draft: Draft): VolumeCreate {
  const request: VolumeCreate = { name: draft.name, size: parseSize(draft.size) ?? 0, kind: draft.kind, block_size: draft.blockSize, map: draft.map }
  if (draft.place === 'copies') request.copies = draft.copies
  if (draft.place === 'nodes') request.nodes = draft.nodes
  if (draft.pool !== null) request.pool = draft.pool
  if (draft.map) {
    if (draft.host !== 'local') request.host = draft.host
    if (draft.target !== '') request.target = draft.target
    if (draft.lun !== '') request.lun = draft.lun
  }
  return request
}
