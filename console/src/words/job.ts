// Work under way, in words.

import type { ClusterNode, Job } from '../api/types'
import { duration, rate, size } from './size'
import { restraint, toGo } from './sync'

/** What is done, with whom: `moves from n1 to n2`. */
export function jobWord(job: Job, nodes: ClusterNode[]): string {
  const name = (id: number | null | undefined) => nodes.find((node) => node.id === id)?.name || `node ${id ?? '?'}`
  const waits = job.state === 'waiting'
  if (job.paused && job.state === 'paused') return `on ${name(job.node)}: paused by ${job.paused.by}`
  switch (job.kind) {
    case 'sync':
      return `on ${name(job.node)}: ${waits ? 'waits to be brought in sync' : 'being brought in sync'}`
    case 'add_copy':
      return `on ${name(job.node)}: a copy more${waits ? ' waits to be made' : ' is being made'}`
    case 'move_copy':
      return `from ${name(job.from_node)} to ${name(job.node)}: a copy ${waits ? 'waits to be moved' : 'is being moved'}`
    case 'remove_copy':
      return `on ${name(job.node)}: a copy is to be taken away`
    case 'verify':
      return waits ? 'waits for its turn to be compared' : 'its copies are being compared'
    case 'change':
      return waits ? 'waits' : 'under way'
  }
}

/** `3GiB of 10GiB done, 64MiB/s, 48 s to go`; what is not known is left out. `age`: how long ago that was so, in seconds. */
export function jobLine(job: Job, age = 0): string {
  const parts: string[] = []
  if (known(job.bytes_done) && known(job.bytes_total) && job.bytes_total > 0) parts.push(`${size(job.bytes_done)} of ${size(job.bytes_total)} done`)
  // What it has just been doing says nothing of when it goes on.
  if (job.state === 'paused') return parts.join(', ')
  if (known(job.rate) && job.rate > 0) parts.push(rate(job.rate))
  if (known(job.eta_s)) parts.push(`${duration(toGo(job.eta_s, age))} to go`)
  else if (known(job.age_s)) parts.push(`for ${duration(job.age_s)}`)
  return parts.join(', ')
}

/** Why it is done, and what keeps it from getting on, or from going faster. `now`: in seconds since 1970. */
export function jobWhy(job: Job, now: number): string {
  const note = job.paused
    ? `paused by ${job.paused.by} ${duration(now - job.paused.since)} ago: it protects nothing until it is in sync`
    : job.waits_for
      ? `waits for ${job.waits_for}`
      : restraint(job)
  const parts = [job.cause ? `Why: ${job.cause}` : undefined, note].filter(Boolean)
  return parts.length > 0 ? `${parts.join('; ')}.` : ''
}

/** What it means that it stands still. */
export const PAUSE_MEANING =
  'It stands still until somebody has it go on, over restarts of nodes, too. What the copy misses is still noted: nothing is lost, and nothing is copied twice. But it protects nothing until it is in sync, and the longer it waits, the more it misses.'

/** What becomes of it when it is taken back. */
export function cancelMeaning(job: Job): string {
  switch (job.kind) {
    case 'remove_copy':
      return 'The copy stays where it is.'
    case 'move_copy':
      return 'The new copy is taken away again, and the old one stays. Nothing that hosts have written is lost.'
    case 'verify':
      return 'The comparison ends; what was found so far is kept. Nothing is changed by it.'
    default:
      return 'The copy that is being made is taken away again; the others stay as they are. Nothing that hosts have written is lost.'
  }
}

function known<T>(value: T | null | undefined): value is T {
  return value !== null && value !== undefined
}
