// How findings are shown. Their texts, and the recommended actions, come from the node.

import type { ClusterNode, Finding, Pool, Volume } from '../api/types'
import { link } from '../route'
import type { Tone } from './tone'

/** A key that stays the same for as long as the finding lasts. */
export function keyOf({ code, subject, seen_by }: Finding): string {
  const { kind, id, name, node } = subject
  return [code, kind, id ?? name, node, seen_by?.join()].join(' ')
}

export const isAdvice = (finding: Finding) => finding.severity === 'info'

/** A finding without an action ends automatically. */
const needsAction = (finding: Finding) => typeof finding.action === 'string'

/** The tone of a finding; one that ends automatically is `working`. */
export function toneOf(finding: Finding): Tone {
  return needsAction(finding) ? finding.severity : 'working'
}

/** The overall tone. Findings are sorted worst first, and advice does not count. */
export function worstTone(found: Finding[]): 'ok' | 'working' | 'warning' | 'critical' {
  const tone = found[0] ? toneOf(found[0]) : 'ok'
  return tone === 'working' || tone === 'warning' || tone === 'critical' ? tone : 'ok'
}

/** The number of findings that need attention. */
export const problemsIn = (found: Finding[]): number => found.filter((finding) => !isAdvice(finding) && needsAction(finding)).length

/** Where the console shows details. */
export function linkOf({ code, subject: { kind, name } }: Finding): string {
  // To where one acts, with those in front that matter.
  if (code === 'snapshots-old') return '#/snapshots?show=old'
  if (code === 'snapshot-space') return '#/snapshots?sort=frees'
  switch (kind) {
    case 'volume':
    case 'copy':
      if (!name || code === 'resync-paused') return '#/jobs'
      return link('volumes', name)
    case 'pool':
    case 'disk':
      return '#/pools'
    case 'change':
      return '#/jobs'
    case 'schedule':
      return '#/schedules'
    case 'node':
    case 'address':
    case 'cluster':
      return '#/nodes'
  }
}

const isOpen = (pool: Pool) => pool.state === 'online'

/** The text without findings: only what the node has checked. */
export function allWell(nodes: ClusterNode[] | undefined, volumes: Volume[], pools: Pool[]): string {
  const parts = [nodes && nodes.length > 1 ? `All ${nodes.length} nodes are up and report no problems` : 'This node is up and reports no problems']
  if (volumes.length > 0) parts.push('all volumes are served')
  if (volumes.some((volume) => (volume.copies?.length ?? 0) > 1)) parts.push('all copies are in sync')
  if (pools.some(isOpen)) parts.push(pools.every(isOpen) ? 'all pools are online' : 'all open pools are online')
  return `${parts.join(', ')}. No action needed.`
}

/** The findings about an open pool. */
export interface PoolFindings {
  /** It was set back: it holds an older state than when it was last used. */
  setBack?: Finding
  /** Read errors that are not acknowledged, one finding per disk. */
  readErrors: Finding[]
  /** Snapshots hold more than half of it. */
  snapshotSpace?: Finding
  /** Whether its node reports; if not, there may be more findings. */
  known: boolean
}

/** `found`: undefined until the findings are known. */
export function findingsOf(pool: Pool, found: Finding[] | undefined): PoolFindings {
  const own = (found ?? []).filter(({ subject }) => subject.node === pool.node)
  return {
    setBack: own.find(({ code, subject }) => code === 'pool-set-back' && subject.name === pool.name),
    snapshotSpace: own.find(({ code, subject }) => code === 'snapshot-space' && subject.name === pool.name),
    readErrors: own.filter(({ code, subject }) => code === 'read-failed' && pool.disks.some((disk) => disk.path === subject.name)),
    known: found !== undefined && !own.some(({ code }) => code === 'node-silent' || code === 'node-down' || code === 'node-cut-off'),
  }
}
