// How long something has been in its state.

import type { Since } from '../api/types'

/** `age` in words. Without `since`: how long this page has seen it. */
export function lasting(age: string, since: Since | null | undefined): string {
  if (!since) return `seen here for ${age}`
  return since.or_earlier ? `for at least ${age}` : `for ${age}`
}
