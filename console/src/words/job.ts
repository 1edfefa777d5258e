// Running jobs, as text.

import type { ClusterNode, Job } from '../api/types'
import { link } from '../route'
import { duration, rate, size } from './size'
import { restraint, toGo } from './sync'

/** The screen of what a job is about; undefined for a change, which names anything. */
export function jobLink({ kind, subject }: Job): string | undefined {
  if (kind === 'change') return undefined
  return kind === 'free_snapshots' ? '#/pools' : link('volumes', subject)
}

/** What a job does, and on which nodes: `from n1 to n2: moving a copy`. */
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
      return `${waits ? 'waiting to verify its copies' : 'verifying its copies'}, by ${name(job.node)}`
    case 'scrub':
      return `on ${name(job.node)}: ${waits ? 'waiting to scrub' : 'scrubbing'}`
    case 'convert':
      return `on ${name(job.node)}: ${waits ? 'waiting to convert' : 'converting'}`
    case 'free_snapshots':
      return `on ${name(job.node)}: freeing deleted snapshots`
    case 'change':
      return `on ${name(job.node)}: ${waits ? 'waiting' : 'in progress'}`
  }
}

/** What an ended job did, and on which nodes: `from n1 to n2: move of a copy`. */
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
      return `verify of its copies, by ${name(job.node)}`
    case 'scrub':
      return `on ${name(job.node)}: scrub`
    case 'convert':
      return `on ${name(job.node)}: conversion`
    case 'free_snapshots':
      return `on ${name(job.node)}: freeing of deleted snapshots`
    case 'change':
      return `on ${name(job.node)}`
  }
}

/** The result of an ended job in a word, and its severity. */
export function endState(job: Job): { word: string; tone: 'ok' | 'warning' | 'critical' | 'off' } {
  if (job.state === 'cancelled') return { word: 'cancelled', tone: 'off' }
  if (job.state === 'failed') return { word: 'failed', tone: 'warning' }
  const found = job.ended?.found
  if (found && found.different_bytes > 0) return { word: 'copies differ', tone: 'critical' }
  if (found && !found.equal) return { word: 'not fully compared', tone: 'warning' }
  return { word: found ? 'identical' : 'done', tone: 'ok' }
}

/** `12 min ago, took 48 s`. `now`: in seconds since 1970. */
export function endLine(job: Job, now: number): string {
  if (!job.ended) return ''
  const ago = `${duration(now - job.ended.at)} ago`
  return known(job.ended.took_s) ? `${ago}, took ${duration(job.ended.took_s)}` : ago
}

/** The cause of an ended job, and details of its result. */
export function endWhy(job: Job): string {
  const parts = [job.cause ? `Cause: ${job.cause}` : undefined, job.ended?.reason].filter(Boolean)
  return parts.length > 0 ? `${parts.join('; ')}.` : ''
}

/** `3GiB of 10GiB done, 64MiB/s, 48 s to go`, without unknown parts. `age`: age of the data in seconds. */
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

/** The cause of a job, and what stalls or slows it. `now`: in seconds since 1970. */
export function jobWhy(job: Job, now: number): string {
  const note = job.paused
    ? `paused by ${job.paused.by} ${duration(now - job.paused.since)} ago: ${job.kind === 'free_snapshots' ? 'deleted snapshots keep their space' : 'this copy adds no redundancy until it is in sync'}`
    : job.waits_for
      ? `waits for ${job.waits_for}`
      : restraint(job)
  const parts = [job.cause ? `Cause: ${job.cause}` : undefined, note].filter(Boolean)
  return parts.length > 0 ? `${parts.join('; ')}.` : ''
}

/** What a pause of the job means. */
export const pauseMeaning = ({ kind }: Job): string =>
  kind === 'free_snapshots'
    ? 'Snapshots that are deleted keep their space in this pool until you resume the job, or the pool is opened again.'
    : PAUSED_RESYNC

const PAUSED_RESYNC =
  'The job stays paused until you resume it, even if nodes restart. Ursa still records missed writes: no data is lost or copied twice. The copy adds no redundancy until it is in sync, and misses more writes the longer the pause.'

/** What cancelling the job does. */
export function cancelMeaning(job: Job): string {
  switch (job.kind) {
    case 'remove_copy':
      return 'The copy stays where it is.'
    case 'move_copy':
      return 'The new copy is removed, and the old one stays. No data is lost.'
    case 'verify':
      return 'The verify stops; findings so far are kept. It changes no data.'
    case 'scrub':
      return 'The scrub stops; findings so far are kept. The next one begins from the start.'
    case 'convert':
      return 'The volume keeps its former kind. Copies that have been converted already are converted back. No data is lost.'
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
