// The headline above a node's error response, or above the message that it has not responded.

import type { Problem } from '../api/types'
import type { Tone } from './tone'

/** What was asked for and is not there. */
export interface Wanted {
  /** What cannot be shown, as a sentence. */
  what?: string
  /** What a change would have done, as a participle: `created`. */
  change?: string
}

export interface Headline {
  title: string
  severity: Tone
  /** Where in the console it is seen what becomes of it. */
  link?: string
  /** What to do before it is tried again. */
  first?: string
}

/**
 * Those after which a change may have been made all the same: the node, another one that it asked, one of its cores, or what lies between did not answer
 * in time, or not to the end.
 */
const NOT_KNOWN = new Set(['node_unanswered', 'member_unanswered', 'record_unanswered', 'core_silent', 'timeout', 'no_answer', 'cut_off', 'gateway'])

/** A change that could not be answered for in time is not refused: it goes on as a job, and may not be begun again, or nobody knows. */
export function headline({ code, title }: Pick<Problem, 'code' | 'title'>, { what, change }: Wanted = {}): Headline {
  if (code === 'unfinished') return { title: 'Still in progress', severity: 'working', link: '#/jobs' }
  if (change !== undefined && NOT_KNOWN.has(code)) {
    return {
      title: `Unknown whether it was ${change}`,
      severity: 'warning',
      first: 'check whether it was: the lists in this console refresh as soon as the node answers, and “Events and audit” shows who did what',
    }
  }
  const not = change === undefined ? what : `Not ${change}`
  return { title: not ? `${not}: ${title.toLowerCase()}` : title, severity: 'critical' }
}
