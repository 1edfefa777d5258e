// The place in the console: `#/volumes/db?tab=paths`. It is in the fragment, so that the node serves one page
// for all places.

import { useMemo, useSyncExternalStore } from 'react'

export interface Route {
  /** `['volumes', 'db']`. */
  path: string[]
  query: URLSearchParams
}

export function parseRoute(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#/, '').split('?', 2)
  const parts = path.split('/').filter((part) => part !== '')
  return { path: parts.map(decoded), query: new URLSearchParams(query) }
}

/** Decodes a part of a path; returns it unchanged if its encoding is invalid. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

/** `#/volumes/my%20db`. */
export function link(...path: (string | number)[]): string {
  return `#/${path.map((part) => encodeURIComponent(String(part))).join('/')}`
}

export function go(hash: string) {
  location.hash = hash
}

function subscribe(changed: () => void) {
  window.addEventListener('hashchange', changed)
  return () => window.removeEventListener('hashchange', changed)
}

export function useRoute(): Route {
  const hash = useSyncExternalStore(subscribe, () => location.hash)
  return useMemo(() => parseRoute(hash), [hash])
}
