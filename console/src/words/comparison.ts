// The result of the latest comparison of a volume's copies, and the time of the next.

import type { Volume } from '../api/types'
import { moment, size } from './size'

/** `…: copies identical; next after …`; undefined without copies. */
export function comparisonWord(found: Volume['comparison']): string | undefined {
  if (!found) return undefined
  const by = found.node ? ` by node ${found.node}` : ''
  const unchecked = found.unchecked_bytes ?? 0
  const different = found.different_bytes ?? 0
  const outcome = found.stopped ? 'stopped early' : different > 0 ? `mismatch in ${size(different)}` : unchecked > 0 ? `${size(unchecked)} could not be compared` : 'copies identical'
  const last = found.last ? `${moment(found.last)}${by}: ${outcome}` : 'never'
  const next = found.done_bytes != null ? `next verify in progress, ${size(found.done_bytes)} done` : found.next ? `next after ${moment(found.next)}` : 'not scheduled'
  return `${last}; ${next}`
}
