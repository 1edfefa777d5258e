// When snapshots are deleted automatically.

import type { Snapshot, SnapshotSchedule } from '../api/types'
import { parseInterval } from './interval'
import { duration } from './size'

/** Times after which a snapshot can expire, in seconds, as in the API: a minute to ten years. */
const AFTER_MIN = 60
const AFTER_MAX = 315_619_200

/** When a node reports a snapshot that never expires as old, in seconds: 30 days (docs/use/findings.md). */
const OLD_AFTER = 30 * 86_400

/** What is wrong with a time like `7d`; undefined if it is empty. */
export function expiryProblem(text: string): string | undefined {
  const seconds = parseInterval(text)
  if (text === '') return undefined
  if (seconds === undefined) return 'Enter a number with m, h or d, for example 12h or 7d'
  return seconds < AFTER_MIN || seconds > AFTER_MAX ? 'From one minute to ten years (3653d)' : undefined
}

/** When a snapshot will be deleted that expires after this time from `now`, in seconds since 1970. */
export function expiresAt(text: string, now: number): string | undefined {
  const seconds = expiryProblem(text) === undefined ? parseInterval(text) : undefined
  return seconds === undefined ? undefined : `Deleted on ${new Date((now + seconds) * 1000).toLocaleString()}, unless it is on hold then`
}

/** When it is deleted automatically. */
export function expiryWord({ expires, held }: Snapshot): string {
  if (expires == null) return 'never'
  const at = new Date(expires * 1000).toLocaleString()
  return held ? `${at}, not while it is on hold` : at
}

/** `expires in 6 d 3 h`; undefined if it never does. `now`: in seconds since 1970. */
export function expiresIn({ expires, held }: Snapshot, now: number): string | undefined {
  if (expires == null) return undefined
  if (expires > now) return `expires in ${duration(expires - now)}`
  return held ? 'expired, but on hold' : 'expired'
}

/** What becomes of a snapshot that is released from its hold. `now`: in seconds since 1970. */
export function releaseMeaning({ expires }: Snapshot, now: number): string {
  return expires != null && expires <= now ? 'It has expired: it is deleted a few seconds after you release it. To keep it, change its expiry first.' : 'It can be deleted again.'
}

/** The schedule that has taken a snapshot, if it still exists: a later one may have its name. */
export const scheduleOf = (snapshot: Snapshot, schedules: SnapshotSchedule[]) => schedules.find(({ name, created }) => name === snapshot.schedule && created <= snapshot.created)

/** Whether it is old and nothing deletes it: people may have forgotten it (finding `snapshots-old`). */
export function isForgotten(snapshot: Snapshot, schedules: SnapshotSchedule[], now: number): boolean {
  const { held, expires, state, created } = snapshot
  return state === 'complete' && !held && expires == null && scheduleOf(snapshot, schedules) === undefined && created + OLD_AFTER <= now
}
