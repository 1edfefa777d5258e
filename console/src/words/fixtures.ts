// Nodes and volumes for tests.

import type { ClusterNode, CopyState, Finding, Volume } from '../api/types'

export function node(id: number, more: Partial<ClusterNode> = {}): ClusterNode {
  return {
    id,
    name: `n${id}`,
    here: id === 1,
    up: true,
    votes: true,
    leads: id === 1,
    witness: false,
    copies: 1,
    in_sync: 1,
    addresses: [`10.0.0.${id}:3270`],
    portals: [`10.0.0.${id}:3260`],
    ...more,
  }
}

export function volume(name: string, copies: [number, CopyState][], more: Partial<Volume> = {}): Volume {
  return {
    id: `id-${name}`,
    name,
    pool: 'default',
    kind: 'thick',
    size: 2 ** 30,
    block_size: 512,
    physical_block_size: 4096,
    slices: 1,
    reserved: 2 ** 30,
    used: 2 ** 30,
    created: 0,
    naa: '6000',
    maps: [{ target: `iqn.2026-11.io.ursa:${name}`, lun: 0, host: 'local' }],
    health: 'healthy',
    serving: true,
    copies: copies.map(([id, state], slot) => ({
      node: id,
      node_name: `n${id}`,
      slot,
      state,
      here: id === 1,
    })),
    ...more,
  }
}

export function finding(code: Finding['code'], subject: Finding['subject'], more: Partial<Finding> = {}): Finding {
  return { code, severity: 'warning', subject, cause: 'Something is wrong.', action: 'Do something about it', command: 'ursa status', ...more }
}
