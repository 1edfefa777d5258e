// Compares two snapshots of a volume page by page, as `ursa snapshot diff` does, and adds up what differs.

import { type Differences, withPage } from '../words/differences'
import { api, data } from './client'

/** How many ranges are requested at a time: the most that a node returns. */
const PAGE = 4096

/**
 * `since`: undefined for a volume of zeros. `found` is called after each page, and says whether to
 * continue.
 */
export async function compareSnapshots({ volume, snapshot, since }: { volume: string; snapshot: string; since?: string }, found: (so_far: Differences) => boolean) {
  let sum: Differences | undefined
  let offset: number | undefined
  do {
    sum = withPage(sum, await data(api.GET('/v1/snapshots/{snapshot}/diff', { params: { path: { snapshot }, query: { volume, since, offset, limit: PAGE } } })))
    offset = sum.next
  } while (found(sum) && offset !== undefined)
}
