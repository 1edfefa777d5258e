// Scrubs: how the last one ended, and when the next one is due.

import type { Pool, Scrub, Volume } from '../api/types'
import { moment, plural, size } from './size'

/** `…: no bad blocks; next after …`; undefined for what cannot be scrubbed. */
export function scrubWord(scrub: Volume['scrub']): string | undefined {
  if (!scrub) return undefined
  const bad = scrub.bad_blocks ?? 0
  const unrepaired = scrub.unrepaired_blocks ?? 0
  const outcome = scrub.stopped ? 'stopped early' : badBlocks(bad, unrepaired)
  const last = scrub.last ? `${moment(scrub.last)}: ${outcome}` : 'never'
  const next = scrub.done_bytes != null ? `next scrub in progress, ${size(scrub.done_bytes)} done` : scrub.overdue ? 'overdue' : `next after ${moment(scrub.next)}`
  return `${last}; ${next}`
}

/** The same of all volumes of a pool. */
export function poolScrubWord(scrub: Pool['scrub']): string | undefined {
  if (!scrub) return undefined
  const unrepaired = scrub.unrepaired_blocks ?? 0
  const unfinished = scrub.unfinished ?? 0
  return [
    scrub.oldest ? `Oldest scrub: ${moment(scrub.oldest)}` : 'No volume has been scrubbed yet',
    ...(unrepaired > 0 ? [`${plural(unrepaired, 'bad block')} cannot be read`] : []),
    ...(unfinished > 0 ? [`${plural(unfinished, 'scrub')} in progress`] : []),
  ].join('; ')
}

/** The progress or result of a scrub. */
export function scrubVerdict(found: Scrub): { text: string; colour?: string } {
  const first = found.first_unrepaired != null ? ` First LBA: ${found.first_unrepaired}.` : ''
  const blocks = `${badBlocks(found.bad_blocks, found.bad_blocks - found.repaired_blocks)}.${first}`
  if (found.state === 'running') return { text: `${size(found.done_bytes)} of ${size(found.total_bytes)} done, ${blocks}` }
  if (found.state === 'interrupted') return { text: `Interrupted: ${found.problem ?? 'reason unknown'}. It resumes automatically.` }
  if (found.state === 'stopped') return { text: `Scrub stopped after ${size(found.done_bytes)}, ${blocks}`, colour: 'red' }
  return { text: `Everything in use was read: ${blocks}`, colour: found.unrepaired_blocks > 0 ? 'red' : 'green' }
}

function badBlocks(bad: number, unrepaired: number): string {
  if (bad === 0) return 'no bad blocks'
  return unrepaired > 0 ? `${plural(bad, 'bad block')}, ${unrepaired} of them cannot be read` : `${plural(bad, 'bad block')}, all repaired`
}
