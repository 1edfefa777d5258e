// One clock for all ages on the page.

import { useSyncExternalStore } from 'react'

let now = Date.now()
const listeners = new Set<() => void>()

setInterval(() => {
  now = Date.now()
  for (const listener of listeners) listener()
}, 1000)

function subscribe(listener: () => void) {
  listeners.add(listener)
  return () => {
    listeners.delete(listener)
  }
}

/** Milliseconds since 1970, updated every second. */
export const useNow = () => useSyncExternalStore(subscribe, () => now)
