// Which snapshots a schedule keeps: the same decision as of the node that deletes them
// (crates/node/src/control/snapshots/retention.rs), to show it before a schedule is changed.

import type { Snapshot, SnapshotSchedule } from '../api/types'
import { scheduleOf } from './expiry'

export type Retention = Pick<SnapshotSchedule, 'keep' | 'daily' | 'weekly' | 'monthly'>

/** A snapshot that a schedule has taken: its number, and when, in seconds since 1970. */
type Taken = Pick<Snapshot, 'number' | 'created'>

const DAY = 86_400
/** A Monday, 00:00 UTC: intervals are counted from it. */
const MONDAY = 4 * DAY

const day = (at: number) => Math.floor(at / DAY)
const week = (at: number) => Math.floor((at - MONDAY) / (7 * DAY))
function month(at: number): number {
  const date = new Date(at * 1000)
  return 12 * date.getUTCFullYear() + date.getUTCMonth()
}

/** The snapshots that no rule keeps, oldest first. */
export function expired<T extends Taken>({ keep, daily, weekly, monthly }: Retention, all: T[]): T[] {
  const sorted = [...all].sort((a, b) => a.number - b.number)
  const newest = [...sorted].reverse()
  const kept = new Set([...newest.slice(0, keep), ...lastOfEach(newest, daily, day), ...lastOfEach(newest, weekly, week), ...lastOfEach(newest, monthly, month)])
  return sorted.filter((one) => !kept.has(one))
}

/** The last snapshot of each of the latest `count` periods that have one. */
function lastOfEach<T extends Taken>(newest: T[], count: number, period: (at: number) => number): T[] {
  const seen = new Set<number>()
  return newest.filter(({ created }) => !seen.has(period(created)) && seen.add(period(created))).slice(0, count)
}

/** The next time after `now` at which a snapshot is due, in seconds since 1970. */
export const nextDue = (every: number, now: number) => MONDAY + every * (Math.floor((now - MONDAY) / every) + 1)

/** What a schedule with other rules keeps and deletes of its snapshots after its next one. */
export function afterChange(schedule: SnapshotSchedule, to: Retention & { every: number }, snapshots: Snapshot[], now: number): { kept: number; deleted: Snapshot[] } {
  const its = snapshots.filter((one) => one.state === 'complete' && !one.held && scheduleOf(one, [schedule]) !== undefined)
  const next: Taken = { number: Infinity, created: nextDue(to.every, now) }
  const gone = new Set<Taken>(expired<Taken>(to, [...its, next]))
  const deleted = its.filter((one) => gone.has(one))
  return { kept: its.length - deleted.length, deleted }
}
