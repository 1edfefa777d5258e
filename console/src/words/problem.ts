// The headline above a node's error response, or above the message that it has not responded.

import type { Problem } from '../api/types'
import type { Tone } from './tone'

/** The request that failed: one of the two. */
export interface Wanted {
  /** What cannot be shown, as a clause. */
  what?: string
  /** The change, as a participle: `created`. */
  change?: string
}

export interface Headline {
  title: string
  severity: Tone
  /** Where the console shows the progress. */
  link?: string
  /** What to do before trying again. */
  first?: string
}

/**
 * Codes after which a change may have been made: the node, another node, a core or a gateway did not answer
 * in time, or the response was cut short.
 */
const NOT_KNOWN = new Set(['node_unanswered', 'member_unanswered', 'record_unanswered', 'core_silent', 'timeout', 'no_answer', 'cut_off', 'gateway'])

/** A change that timed out was not refused: it continues as a job, or its result is unknown. */
export function headline({ code, title }: Pick<Problem, 'code' | 'title'>, { what, change }: Wanted = {}): Headline {
  if (code === 'unfinished') return { title: 'Still in progress', severity: 'working', link: '#/jobs' }
  // Nodes complete it, without a job.
  if (code === 'restore_unfinished') return { title: 'Still in progress', severity: 'working' }
  if (change !== undefined && NOT_KNOWN.has(code)) {
    return {
      title: `Result unknown: may have been ${change}`,
      severity: 'warning',
      first: 'check the result: the lists in this console refresh as soon as the node responds, and “Events and audit” shows what was done',
    }
  }
  const not = change === undefined ? what : `Not ${change}`
  return { title: not ? `${not}: ${title.toLowerCase()}` : title, severity: 'critical' }
}
