// Nodes, volumes, snapshots and schedules for tests.

import type { ClusterNode, CopyState, Finding, Snapshot, SnapshotCopy, SnapshotSchedule, Volume } from '../api/types'

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

/** A snapshot; of each volume, the copies on nodes 1, 2, ... */
export function snapshot(name: string, volumes: Record<string, Partial<SnapshotCopy>[]>, more: Partial<Snapshot> = {}): Snapshot {
  const copy = (has: Partial<SnapshotCopy>, at: number): SnapshotCopy => ({ node: at + 1, node_name: `n${at + 1}`, state: 'present', frees_is_exact: true, ...has })
  return {
    number: 7,
    name,
    state: 'complete',
    created: 1_795_348_984,
    pause_us: 12_340,
    held: false,
    volumes: Object.entries(volumes).map(([volume, copies]) => ({ volume, volume_id: `id-${volume}`, size: 2 ** 30, copies: copies.map(copy) })),
    ...more,
  }
}

/** An hourly schedule that was created before the snapshots above. */
export function schedule(name: string, more: Partial<SnapshotSchedule> = {}): SnapshotSchedule {
  return { name, volumes: ['db', 'logs'], every: 3600, keep: 24, daily: 7, weekly: 0, monthly: 0, paused: false, created: 1_700_000_000, snapshots: 0, ...more }
}
