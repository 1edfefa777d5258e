// What stands above what a node has answered in place of what was asked for.

import type { Problem } from '../api/types'
import type { Severity } from './health'

export interface Headline {
  title: string
  severity: Severity
  /** Where in the console it is seen what becomes of it. */
  link?: string
}

/** `what`: what has not been done, or cannot be shown. A change that could not be answered for in time is none of that: it goes on as a job, and may not be begun again. */
export function headline({ code, title }: Pick<Problem, 'code' | 'title'>, what?: string): Headline {
  if (code === 'unfinished') return { title: 'It goes on', severity: 'working', link: '#/jobs' }
  return { title: what ? `${what}: ${title.toLowerCase()}` : title, severity: 'critical' }
}
