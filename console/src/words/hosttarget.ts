// The target that a host is set up for.

import type { Target, Volume } from '../api/types'

/**
 * The chosen target; else, for a requested volume, one that it is mapped under, if any; else preferably one
 * with LUNs.
 */
export function targetFor(targets: Target[], asked: { target?: string; volume?: Volume }): Target | undefined {
  const chosen = targets.find((one) => one.name === asked.target)
  if (chosen) return chosen
  const wanted = asked.volume
  if (wanted) return targets.find((one) => one.maps.some((map) => map.volume_id === wanted.id))
  return targets.find((one) => one.maps.length > 0) ?? targets[0]
}
