// Running jobs, as text.

import type { ClusterNode, Job } from '../api/types'
import { duration, rate, size } from './size'
import { restraint, toGo } from './sync'

/** What is done, with whom: `moves from n1 to n2`. */
export function jobWord(job: Job, nodes: ClusterNode[]): string {
  const name = (id: number | null | undefined) => named(id, nodes)
  const waits = job.state === 'waiting'
  if (job.paused && job.state === 'paused') return `on ${name(job.node)}: paused by ${job.paused.by}`
  switch (job.kind) {
    case 'sync':
      return `on ${name(job.node)}: ${waits ? 'waiting to resync' : 'resyncing'}`
    case 'add_copy':
      return `on ${name(job.node)}: ${waits ? 'waiting to add a copy' : 'adding a copy'}`
    case 'move_copy':
      return `from ${name(job.from_node)} to ${name(job.node)}: ${waits ? 'waiting to move a copy' : 'moving a copy'}`
    case 'remove_copy':
      return `on ${name(job.node)}: removing a copy`
    case 'verify':
      return `${waits ? 'waiting to verify its copies' : 'verifying its copies'}${known(job.node) ? `, by ${name(job.node)}` : ''}`
    case 'change':
      return `${known(job.node) ? `on ${name(job.node)}: ` : ''}${waits ? 'waiting' : 'in progress'}`
  }
}

/** What has ended, with whom: `from n1 to n2: the move of a copy`. */
export function endWord(job: Job, nodes: ClusterNode[]): string {
  const name = (id: number | null | undefined) => named(id, nodes)
  switch (job.kind) {
    case 'sync':
      return `on ${name(job.node)}: resync of a copy`
    case 'add_copy':
      return `on ${name(job.node)}: addition of a copy`
    case 'move_copy':
      return `from ${name(job.from_node)} to ${name(job.node)}: move of a copy`
    case 'remove_copy':
      return `on ${name(job.node)}: removal of a copy`
    case 'verify':
      return `verify of its copies${known(job.node) ? `, by ${name(job.node)}` : ''}`
    case 'change':
      return known(job.node) ? `on ${name(job.node)}` : ''
  }
}

/** How it has ended, in a word, and how bad that is. */
export function endState(job: Job): { word: string; tone: 'ok' | 'warning' | 'critical' | 'off' } {
  if (job.state === 'cancelled') return { word: 'cancelled', tone: 'off' }
  if (job.state === 'failed') return { word: 'failed', tone: 'warning' }
  const found = job.ended?.found
  if (found && found.different_bytes > 0) return { word: 'copies differ', tone: 'critical' }
  if (found && !found.equal) return { word: 'not fully compared', tone: 'warning' }
  return { word: found ? 'equal' : 'done', tone: 'ok' }
}

/** `12 min ago, took 48 s`. `now`: in seconds since 1970. */
export function endLine(job: Job, now: number): string {
  if (!job.ended) return ''
  const ago = `${duration(now - job.ended.at)} ago`
  return known(job.ended.took_s) ? `${ago}, took ${duration(job.ended.took_s)}` : ago
}

/** Why it was done, and what somebody should know of its end. */
export function endWhy(job: Job): string {
  const parts = [job.cause ? `Cause: ${job.cause}` : undefined, job.ended?.reason].filter(Boolean)
  return parts.length > 0 ? `${parts.join('; ')}.` : ''
}

/** `3GiB of 10GiB done, 64MiB/s, 48 s to go`; what is not known is left out. `age`: how long ago that was so, in seconds. */
export function jobLine(job: Job, age = 0): string {
  const parts: string[] = []
  if (known(job.bytes_done) && known(job.bytes_total) && job.bytes_total > 0) parts.push(`${size(job.bytes_done)} of ${size(job.bytes_total)} done`)
  // The rate before a pause does not tell when the job will end.
  if (job.state === 'paused') return parts.join(', ')
  if (known(job.rate) && job.rate > 0) parts.push(rate(job.rate))
  if (known(job.eta_s)) parts.push(`${duration(toGo(job.eta_s, age))} to go`)
  else if (known(job.age_s)) parts.push(`for ${duration(job.age_s)}`)
  return parts.join(', ')
}

/** Why it is done, and what keeps it from getting on, or from going faster. `now`: in seconds since 1970. */
export function jobWhy(job: Job, now: number): string {
  const note = job.paused
    ? `paused by ${job.paused.by} ${duration(now - job.paused.since)} ago: this copy adds no redundancy until it is in sync`
    : job.waits_for
      ? `waits for ${job.waits_for}`
      : restraint(job)
  const parts = [job.cause ? `Cause: ${job.cause}` : undefined, note].filter(Boolean)
  return parts.length > 0 ? `${parts.join('; ')}.` : ''
}

/** What it means that it stands still. */
export const PAUSE_MEANING =
  'It stays paused until it is resumed, even if nodes restart. Missed writes are still recorded: nothing is lost, and nothing is copied twice. But the copy adds no redundancy until it is in sync, and it misses more writes the longer it is paused.'

/** What becomes of it when it is taken back. */
export function cancelMeaning(job: Job): string {
  switch (job.kind) {
    case 'remove_copy':
      return 'The copy stays where it is.'
    case 'move_copy':
      return 'The new copy is removed, and the old one stays. No data is lost.'
    case 'verify':
      return 'The verify stops; findings so far are kept. It changes no data.'
    default:
      return 'The copy that is being added is removed; the others stay as they are. No data is lost.'
  }
}

function named(id: number | null | undefined, nodes: ClusterNode[]): string {
  return nodes.find((node) => node.id === id)?.name || `node ${id ?? '?'}`
}

function known<T>(value: T | null | undefined): value is T {
  return value !== null && value !== undefined
}
