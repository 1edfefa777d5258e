// How much differs between two snapshots of a volume.

import type { SnapshotDiff } from '../api/types'
import { ursa } from './command'
import { percent, size } from './size'

/** What the pages so far add up to, in bytes. */
export interface Differences {
  /** Ranges with data. */
  data: number
  /** Ranges that are zeros now. */
  zeroed: number
  size: number
  /** Where the next page begins; undefined: this was the last one. */
  next?: number
}

/** Adds a page. */
export function withPage(before: Differences | undefined, { ranges, size, next }: SnapshotDiff): Differences {
  const sum = (zeroed: boolean) => ranges.filter((range) => range.zeroed === zeroed).reduce((sum, { len }) => sum + len, 0)
  return { data: (before?.data ?? 0) + sum(false), zeroed: (before?.zeroed ?? 0) + sum(true), size, next: next ?? undefined }
}

/** `3.1GiB of data has changed, 1MiB has become zeros.` `since`: whether it is compared with a snapshot. */
export function differencesWord({ data, zeroed, size: whole, next }: Differences, since: boolean): string {
  const found = [data > 0 ? `${size(data)} of data${since ? ' has changed' : ''}` : '', zeroed > 0 ? `${size(zeroed)} has become zeros` : ''].filter(Boolean).join(', ')
  if (next !== undefined) return `${percent(next, whole)} compared. So far: ${found || 'no difference'}.`
  if (found === '') return since ? 'The volume is the same in both snapshots.' : 'The volume is all zeros in this snapshot.'
  return since ? `${found}.` : `${found}; the rest of ${size(whole)} is zeros.`
}

/** The commands that export a volume as in a snapshot, or its changes since an earlier one, and import it. */
export function exportCommands(volume: string, snapshot: string, since: string | undefined): string {
  const file = (of: string) => `${volume}-${of}`
  const at = (of: string) => `${volume}@${of}`
  if (since === undefined) return [ursa('snapshot', 'export', at(snapshot), file(snapshot)), ursa('snapshot', 'import', file(snapshot), '--to', `${volume}.img`)].join('\n')
  return [
    ursa('snapshot', 'export', at(snapshot), file(snapshot), '--since', at(since)),
    `# into the image that has ${at(since)}:\n${ursa('snapshot', 'import', file(snapshot), '--to', `${volume}.img`)}`,
  ].join('\n')
}
