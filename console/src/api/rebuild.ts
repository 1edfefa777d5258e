// Rebuilds a copy in a pool of its node, as `ursa volume copy rebuild` does.

import { api, data } from './client'

/** How long to wait until the old copy is gone. */
const GONE_DEADLINE_MS = 30_000
const LOOK_EVERY_MS = 500

/** Removes the copy, unless an earlier attempt did, and creates it again. `gone` is called in between. */
export async function rebuildCopy({ volume, node, pool, gone }: { volume: string; node: number; pool: string | null; gone: () => void }) {
  const path = { name: volume }
  const isThere = async () => (await data(api.GET('/v1/volumes/{name}', { params: { path } }))).copies?.some((copy) => copy.node === node) ?? false
  if (await isThere()) await data(api.DELETE('/v1/volumes/{name}/copies/{node}', { params: { path: { ...path, node } } }))
  const end = Date.now() + GONE_DEADLINE_MS
  while ((await isThere()) && Date.now() < end) await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS))
  // After the deadline, too: the node says why it adds no copy.
  gone()
  return data(api.POST('/v1/volumes/{name}/copies', { params: { path }, body: { node, ...(pool === null ? {} : { pool }) } }))
}
