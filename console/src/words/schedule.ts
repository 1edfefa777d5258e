// Schedules of snapshots: their state and what they keep in words, and the input for one.

import type { Snapshot, SnapshotSchedule, SnapshotScheduleChange, SnapshotScheduleCreate, Volume } from '../api/types'
import { ursa } from './command'
import { interval, parseInterval } from './interval'
import { listed } from './missing'
import { isName, nameProblem } from './names'
import { type Retention, afterChange } from './retention'
import { duration, moment, plural } from './size'
import type { Tone } from './tone'

/** As in the API. */
const NAME_MAX = 42
const EVERY_MIN = 60
const EVERY_MAX = 366 * 86_400
const KEPT_MAX = 900

export function scheduleState({ paused, missed_since, problem }: SnapshotSchedule): { tone: Tone; word: string; why: string } {
  if (paused) return { tone: 'off', word: 'paused', why: 'It takes and deletes no snapshots until it is resumed.' }
  const cause = problem ? `The last attempt failed: ${problem}.` : 'No node has tried.'
  if (missed_since != null) return { tone: 'warning', word: 'missed', why: `The snapshot that was due at ${moment(missed_since)} is missing. ${cause} It is made good as soon as possible.` }
  if (problem) return { tone: 'working', word: 'retrying', why: `${cause} It is repeated every minute.` }
  return { tone: 'ok', word: 'active', why: 'Its last attempt succeeded.' }
}

const RULES = [
  ['keep', 'latest', ''],
  ['daily', 'daily', 'day'],
  ['weekly', 'weekly', 'week'],
  ['monthly', 'monthly', 'month'],
] as const

/** `24 latest, 7 daily`. */
export function keepsWord(of: Retention): string {
  const rules = RULES.filter(([rule]) => of[rule] > 0).map(([rule, word]) => `${of[rule]} ${word}`)
  return rules.length === 0 ? 'nothing' : rules.join(', ')
}

/** When it takes the next snapshot: `in 12 min`. `now`: in seconds since 1970. */
export function nextWord({ next }: SnapshotSchedule, now: number): string {
  if (next == null) return '–'
  return next <= now ? `due for ${duration(now - next)}` : `in ${duration(next - now)}`
}

/** What the user enters; counts are empty for none. */
export interface ScheduleDraft {
  name: string
  /** IDs. Of a volume that was deleted: its last name. */
  volumes: string[]
  every: string
  keep: number | string
  daily: number | string
  weekly: number | string
  monthly: number | string
}

export const emptySchedule: ScheduleDraft = { name: '', volumes: [], every: '1h', keep: 24, daily: 7, weekly: 4, monthly: '' }

export function draftOf(schedule: SnapshotSchedule, volumes: Volume[]): ScheduleDraft {
  const { name, every, keep, daily, weekly, monthly } = schedule
  const id = (named: string) => volumes.find((one) => one.name === named)?.id ?? named
  return { name, volumes: schedule.volumes.map(id), every: interval(every), keep: keep || '', daily: daily || '', weekly: weekly || '', monthly: monthly || '' }
}

const count = (value: number | string) => (typeof value === 'number' ? value : 0)

/** Which snapshots are kept. */
export const retentionOf = ({ keep, daily, weekly, monthly }: ScheduleDraft): Retention => ({ keep: count(keep), daily: count(daily), weekly: count(weekly), monthly: count(monthly) })

const totalOf = ({ keep, daily, weekly, monthly }: Retention) => keep + daily + weekly + monthly

/** What is wrong with the input; empty fields that are still to be filled in are not. */
export function scheduleProblems(draft: ScheduleDraft, known: SnapshotSchedule[], changed?: SnapshotSchedule): { name?: string; every?: string; keep?: string } {
  const problems: ReturnType<typeof scheduleProblems> = {}
  if (!changed) {
    const { name } = draft
    if (isName(name) && /^\d+$/.test(name)) problems.name = 'A name cannot consist of digits only'
    else if (known.some((one) => one.name === name)) problems.name = `Schedule ${name} exists already`
    else if (name.length > NAME_MAX) problems.name = `At most ${NAME_MAX} characters: the names of its snapshots also have the time`
    else if (nameProblem(name) !== undefined) problems.name = nameProblem(name)
  }
  const every = parseInterval(draft.every)
  if (every === undefined) problems.every = 'Enter a number with m, h or d, for example 15m, 1h or 1d'
  else if (every % 60 !== 0 || every < EVERY_MIN || every > EVERY_MAX) problems.every = 'In whole minutes, from one minute (1m) to 366 days (366d)'
  const total = totalOf(retentionOf(draft))
  if (total === 0) problems.keep = 'Enter at least one of these: nothing would be kept'
  else if (total > KEPT_MAX) problems.keep = `${total} snapshots: a schedule keeps at most ${KEPT_MAX}`
  return problems
}

/** The request that creates it. */
export function createRequest(draft: ScheduleDraft): SnapshotScheduleCreate {
  return { name: draft.name, volumes: draft.volumes, every: parseInterval(draft.every) ?? 0, ...retentionOf(draft) }
}

/** The request that changes a schedule: only what differs. */
export function changeRequest(schedule: SnapshotSchedule, draft: ScheduleDraft, volumes: Volume[]): SnapshotScheduleChange {
  const before = draftOf(schedule, volumes)
  const change: SnapshotScheduleChange = {}
  const every = parseInterval(draft.every)
  if ([...before.volumes].sort().join() !== [...draft.volumes].sort().join()) change.volumes = draft.volumes
  if (every !== schedule.every) change.every = every
  const { keep, daily, weekly, monthly } = retentionOf(draft)
  if (keep !== schedule.keep) change.keep = keep
  if (daily !== schedule.daily) change.daily = daily
  if (weekly !== schedule.weekly) change.weekly = weekly
  if (monthly !== schedule.monthly) change.monthly = monthly
  return change
}

/** `ursa snapshot schedule ...` with the options of a request. */
export function scheduleCommand(verb: 'create' | 'change', name: string, request: SnapshotScheduleChange, volumes: Volume[]): string {
  const named = (id: string) => volumes.find((one) => one.id === id)?.name ?? id
  const words: (string | number)[] = ['snapshot', 'schedule', verb, name || 'NAME']
  if (request.volumes) words.push('--volumes', request.volumes.map(named).join() || 'VOLUME')
  if (request.every != null) words.push('--every', request.every > 0 ? interval(request.every) : 'TIME')
  for (const [rule] of RULES) {
    const count = request[rule]
    if (count != null && (verb === 'change' || count > 0)) words.push(`--${rule}`, count)
  }
  return ursa(...words)
}

/** Which snapshots a schedule with these rules keeps, line by line. `every`: in seconds. */
export function keepsLines(every: number, of: Retention): string[] {
  const lines = RULES.filter(([rule]) => of[rule] > 0).map(([rule, , period]) => {
    const many = of[rule]
    if (rule === 'keep') return many === 1 ? 'the latest snapshot' : `the latest ${many} snapshots: they reach back ${duration(many * every)}`
    return `the last snapshot of each ${period}, for the latest ${plural(many, period)} with one`
  })
  return totalOf(of) > 1 ? [...lines, `at most ${totalOf(of)} in all; one that several rules keep counts once`] : lines
}

/** What becomes of its snapshots if the rules of a schedule are changed. `now`: in seconds since 1970. */
export function afterChangeWord(schedule: SnapshotSchedule, to: Retention & { every: number }, snapshots: Snapshot[], now: number): string {
  const { kept, deleted } = afterChange(schedule, to, snapshots, now)
  if (kept + deleted.length === 0) return 'It has no snapshots yet that it could delete.'
  if (deleted.length === 0) return `After its next snapshot, it still keeps all ${kept} that it has.`
  const names = listed(deleted.map(({ name }) => name))
  return `After its next snapshot, it deletes ${deleted.length} of the ${kept + deleted.length} that it has: ${names}. To keep one of them, put it on hold first.`
}
