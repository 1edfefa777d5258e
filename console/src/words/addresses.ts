// Which node has a floating address.

import type { FloatingAddress } from '../api/types'
import { duration } from './size'

/** `san1, for 3 min`; `now` in milliseconds since 1970. */
export function holderOf(address: FloatingAddress, now: number): string {
  if (!address.holder) return 'no node'
  const name = address.holder_name ?? `node ${address.holder}`
  if (address.waits) return `${name}, in a moment: the node before is silent`
  return address.since ? `${name}, for ${duration(now / 1000 - address.since)}` : name
}

/** Which nodes may have it, by the names that `named` gives their numbers. */
export function mayHave(address: FloatingAddress, named: (node: number) => string): string {
  const all = address.nodes.length > 0 ? address.nodes.map(named).join(', ') : 'all but witnesses'
  return address.prefer ? `${all}; ${named(address.prefer)} when it can` : all
}
