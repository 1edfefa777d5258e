// The cases of crates/node/src/control/snapshots/retention.rs and schedule.rs: both decide the same.

import { describe, expect, it } from 'vitest'
import { schedule, snapshot } from './fixtures'
import { type Retention, afterChange, expired, nextDue } from './retention'

/** 2026-11-22, a Sunday, 00:00 UTC. */
const SUNDAY = 1_795_305_600
const HOUR = 3600
const DAY = 86_400
const NONE: Retention = { keep: 0, daily: 0, weekly: 0, monthly: 0 }

/** Snapshots at these times, numbered from 1. */
const at = (...times: number[]) => times.map((created, place) => ({ created, number: place + 1 }))
const numbers = (all: { number: number }[]) => all.map(({ number }) => number)
const kept = (retention: Retention, all: ReturnType<typeof at>) => numbers(all.filter((one) => !expired(retention, all).includes(one)))

describe('a schedule keeps', () => {
  it('the latest', () => {
    const all = at(SUNDAY, SUNDAY + HOUR, SUNDAY + 2 * HOUR)
    expect([numbers(expired({ ...NONE, keep: 2 }, all)), expired({ ...NONE, keep: 3 }, all)]).toEqual([[1], []])
    expect(numbers(expired({ ...NONE, keep: 1 }, [...all].reverse()))).toEqual([1, 2])
  })

  it('the last of each day that has one', () => {
    const all = at(SUNDAY - 2 * HOUR, SUNDAY - HOUR, SUNDAY, SUNDAY + 10 * HOUR)
    expect([1, 2, 9].map((daily) => kept({ ...NONE, daily }, all))).toEqual([[4], [2, 4], [2, 4]])
    expect(kept({ ...NONE, keep: 2, daily: 2 }, all)).toEqual([2, 3, 4])
    expect(kept({ ...NONE, daily: 2 }, at(SUNDAY - 40 * DAY, SUNDAY - 9 * DAY, SUNDAY))).toEqual([2, 3])
  })

  it('the last of each week, from Monday on, and of each month', () => {
    expect(kept({ ...NONE, weekly: 2 }, at(SUNDAY - DAY, SUNDAY + 23 * HOUR, SUNDAY + DAY, SUNDAY + 2 * DAY))).toEqual([2, 4])
    const all = at(...[0, 7, 8, 9, 39, 40].map((days) => SUNDAY + days * DAY))
    expect([3, 2].map((monthly) => kept({ ...NONE, monthly }, all))).toEqual([[3, 5, 6], [5, 6]])
  })

  it('later ones although a clock was wrong for a while', () => {
    const all = at(SUNDAY - 2 * DAY, SUNDAY - DAY, SUNDAY + 4000 * DAY, SUNDAY + 4000 * DAY + HOUR, SUNDAY + 4000 * DAY + 2 * HOUR, SUNDAY + HOUR, SUNDAY + 2 * HOUR)
    expect([kept({ ...NONE, keep: 3 }, all), kept({ ...NONE, daily: 3 }, all)]).toEqual([[5, 6, 7], [2, 5, 7]])
  })
})

it('is due at multiples of the interval in UTC', () => {
  const now = SUNDAY + 10 * HOUR + 1234
  expect([HOUR, 900, DAY, 7 * DAY].map((every) => nextDue(every, now) - SUNDAY)).toEqual([11 * HOUR, 10 * HOUR + 1800, DAY, DAY])
  expect(nextDue(HOUR, SUNDAY)).toBe(SUNDAY + HOUR)
})

it('says what a change of the rules deletes after the next snapshot', () => {
  const hourly = schedule('hourly', { created: SUNDAY - DAY })
  const taken = (number: number, more: Parameters<typeof snapshot>[2] = {}) => snapshot(`s${number}`, {}, { number, created: SUNDAY + number * HOUR, schedule: 'hourly', ...more })
  const all = [taken(1), taken(2, { held: true }), taken(3), taken(4), taken(5, { schedule: null }), taken(6, { schedule: 'daily' }), taken(7, { state: 'deleting' }), taken(8, { created: SUNDAY - 2 * DAY })]
  const after = (keep: number) => afterChange(hourly, { ...NONE, keep, every: HOUR }, all, SUNDAY + 9 * HOUR)
  // The next one counts, too. Those of an earlier schedule of that name are not its own.
  expect([after(3).kept, numbers(after(3).deleted)]).toEqual([2, [1]])
  expect([after(4).kept, numbers(after(4).deleted)]).toEqual([3, []])
  expect(numbers(after(1).deleted)).toEqual([1, 3, 4])
})
