// When a pool is full if it goes on as in the days that were kept: a straight line, and how much that may be wrong.

import { duration, size } from './size'

/** How full a pool was, at equal distances. */
export interface Filling {
  /** Seconds since 1970 of the end of the first step. */
  from: number
  step: number
  used: (number | null)[]
  /** How large it is now. */
  size: number
}

export interface Forecast {
  /** In a sentence or two. */
  text: string
  /** It may be full within a month. */
  soon: boolean
}

/** The days are divided into so many parts at most; how different their growth was says how far to trust the mean. */
const PARTS_MAX = 7
const PARTS_MIN = 4
/** Less than this says nothing about days to come. */
const KNOWN_MIN = 4 * 3600
/** Four of five times the true mean is within so many standard errors, by how many parts there are less one (Student's t). */
const LIKELY: Record<number, number> = { 3: 1.64, 4: 1.53, 5: 1.48, 6: 1.44 }
const DAY = 86_400
const SOON = 30 * DAY
/** What is further away is not told. */
const FAR = 3 * 365 * DAY

export function forecast({ from, step, used, size: whole }: Filling): Forecast {
  const known = used.flatMap((value, index) => (value === null ? [] : [{ at: from + index * step, value }]))
  const [first, last] = [known[0], known.at(-1)]
  const span = first && last ? last.at - first.at : 0
  if (!first || !last || span < KNOWN_MIN || known.length <= PARTS_MIN) {
    const has = known.length === 0 ? 'none' : span === 0 ? 'hardly any' : duration(span)
    return { text: `No forecast yet: it needs ${duration(KNOWN_MIN)} of history, and has ${has}.`, soon: false }
  }
  const parts = Math.min(PARTS_MAX, Math.max(PARTS_MIN, Math.floor(span / DAY)))
  const growth = growthOfParts(known, parts)
  const mean = growth.reduce((sum, one) => sum + one, 0) / parts
  const spread = Math.sqrt(growth.reduce((sum, one) => sum + (one - mean) ** 2, 0) / (parts - 1) / parts)
  const margin = spread * (LIKELY[parts - 1] ?? 1.64)
  const seconds = span / parts
  const past = `Over the last ${duration(span)}`
  // Less than a thousandth of the pool in a year is none.
  const least = (whole / 1000 / (365 * DAY)) * seconds
  if (growth.every((one) => Math.abs(one) <= least)) return { text: `${past} nothing was added to it: no end is in sight.`, soon: false }
  if (mean <= least) return { text: `${past} it did not get fuller: no end is in sight.`, soon: false }
  const left = Math.max(0, whole - last.value)
  const time = (rate: number) => (left / rate) * seconds
  const aDay = size((mean / seconds) * DAY)
  const [likely, soonest] = [time(mean), time(mean + margin)]
  const latest = mean - margin > 0 ? time(mean - margin) : Infinity
  const rough = span < 2 * DAY ? ' So little history says little about weeks.' : ''
  if (soonest > FAR) return { text: `${past} ${aDay} a day were added: full in years, if it goes on so.${rough}`, soon: false }
  const range =
    latest > FAR
      ? `perhaps in ${rounded(soonest)}, perhaps never: it grew too unevenly to say`
      : rounded(soonest) === rounded(latest)
        ? 'it grew evenly'
        : `likely between ${rounded(soonest)} and ${rounded(latest)}, as unevenly as it grew`
  return { text: `${past} ${aDay} a day were added. If it goes on so, it is full in about ${likely > FAR ? 'years' : rounded(likely)} (${range}).${rough}`, soon: likely < SOON }
}

/** What was added in each of so many parts of the time. */
function growthOfParts(known: { at: number; value: number }[], parts: number): number[] {
  const first = known[0]!
  const span = known.at(-1)!.at - first.at
  // The last value that was known by then.
  const valueAt = (time: number) => known.findLast((one) => one.at <= time)?.value ?? first.value
  const edges = [...Array(parts + 1).keys()].map((edge) => (edge === parts ? known.at(-1)!.value : valueAt(first.at + (span * edge) / parts)))
  return edges.slice(1).map((value, index) => value - edges[index]!)
}

/** A time to come, no more exact than it can be known: `9 days`, `5 weeks`, `8 months`. */
function rounded(seconds: number): string {
  const days = seconds / DAY
  if (days < 1) return 'less than a day'
  if (days < 14) return many(days, 'day')
  if (days < 90) return many(days / 7, 'week')
  return days < 730 ? many(days / 30.4, 'month') : many(days / 365, 'year')
}

const many = (value: number, unit: string) => (Math.round(value) === 1 ? `1 ${unit}` : `${Math.round(value)} ${unit}s`)
