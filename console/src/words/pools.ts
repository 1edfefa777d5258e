// Which pools a volume or a copy of it can be in.

import type { Pool } from '../api/types'
import { size } from './size'

/**
 * The pool that a node would use: the one with this name; without a name, the only one or the one named
 * default.
 */
function taken(pools: Pool[], name: string | null): Pool | undefined {
  if (name !== null) return pools.find((pool) => pool.name === name)
  return pools.length === 1 ? pools[0] : pools.find((pool) => pool.name === 'default')
}

/** Why a node with these pools cannot take `needs` bytes; undefined if it can. */
export function poolProblem(pools: Pool[], name: string | null, needs: number): string | undefined {
  if (pools.length === 0) return 'This node has no pool: create one under “Pools and disks”'
  const pool = taken(pools, name)
  if (!pool) return name === null ? 'There are several pools: choose one' : `Pool ${name} not found`
  if (pool.state !== 'online') return `Pool ${pool.name} cannot take volumes now`
  if (needs > pool.free) return `Not enough space: ${size(needs)} needed, ${pool.name} has ${size(pool.free)} free`
  return undefined
}

/** Pools to choose from, each name once, with the free space on each node. */
export function poolChoices(pools: Pool[]): { value: string; label: string; disabled: boolean }[] {
  const names = [...new Set(pools.map((pool) => pool.name))]
  return names.map((name) => {
    const of = pools.filter((pool) => pool.name === name)
    const free = (pool: Pool) => `${size(pool.free)} free of ${size(pool.total)}`
    const each = of.length === 1 ? of.map(free) : of.map((pool) => `${free(pool)} on ${pool.node_name || `node ${pool.node}`}`)
    return { value: name, label: `${name}: ${each.join(', ')}`, disabled: of.every((pool) => pool.state !== 'online') }
  })
}

/** Whether a pool is nearly full; a pool with log volumes reports its level itself. */
export function isShort(pool: Pool): boolean {
  return pool.logs ? (pool.logs.level ?? 0) >= 90 : (pool.total - pool.used) / pool.total < 0.1
}

/** The space of a pool that log volumes use, and can still take. */
export function logSpace({ lent, used, room, snapshots, freeing }: NonNullable<Pool['logs']>): string {
  const all = `Log volumes use ${size(used)} of ${size(lent)} lent to them, and can take ${size(room)} more.`
  const held = snapshots ? ` Snapshots hold ${size(snapshots)} of what they use.` : ''
  return `${all}${held}${freeing ? ` ${size(freeing)} of deleted snapshots is being freed.` : ''}`
}

/** What a file system lacks for the pools on it. */
export function lacking({ free, promised }: NonNullable<Pool['overcommit']>): string {
  return `its file system has ${size(free)} free, and pools on it may still need ${size(promised)}. When it is full, writes that need new space fail.`
}
