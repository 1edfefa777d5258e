// What is wrong now: causes, the worst first, each with one thing to do about it.

import type { ClusterNode, Node, Pool, Volume } from '../api/types'
import { plural } from './size'
import { progress, syncsOf } from './sync'

/** From well to the worst. `working` mends itself: nothing is to be done but wait. */
export type Severity = 'ok' | 'working' | 'warning' | 'critical'

export interface Finding {
  /** The same as long as it is the same thing. */
  key: string
  severity: Severity
  cause: string
  /** What to do about it, as one sentence. */
  action: string
  /** Where in the console. */
  link?: string
  /** Since when, in seconds since 1970, where the node says so. */
  since?: number
}

export interface Observed {
  node?: Node
  /** Undefined without a cluster. */
  nodes?: ClusterNode[]
  volumes: Volume[]
  pools: Pool[]
}

const RANK: Record<Severity, number> = { critical: 0, warning: 1, working: 2, ok: 3 }

export const nameOf = (node: ClusterNode): string => (node.name ? `${node.name} (node ${node.id})` : `node ${node.id}`)

export function volumeLink(volume: Volume): string {
  return `#/volumes/${encodeURIComponent(volume.name)}`
}

/** All findings, the worst first. */
export function findings(observed: Observed): Finding[] {
  const found = [
    ...observed.volumes.flatMap(ofVolume),
    ...(observed.nodes ?? []).flatMap(ofNode),
    // Where etcd has the record no node votes, and the node says itself what is the matter.
    ...(observed.node?.record?.place === 'etcd' ? [] : ofVotes(observed.nodes ?? [])),
    ...observed.pools.flatMap(ofPool),
    ...ofCopies(observed),
  ]
  // What the node says itself, unless it is about something that is said already.
  const own = observed.pools.filter((pool) => !pool.node_name || pool.node_name === observed.node?.name)
  const named = own.filter((pool) => pool.state !== 'online').map((pool) => pool.name)
  for (const problem of observed.node?.problems ?? []) {
    if (named.some((name) => problem.includes(`pool ${name} `))) continue
    found.push({ key: `problem ${problem}`, severity: 'warning', cause: problem, action: 'Follow what it says; the node’s log has more (journalctl -u ursa).' })
  }
  return found.sort((a, b) => RANK[a.severity] - RANK[b.severity])
}

export function worst(found: Finding[]): Severity {
  return found[0]?.severity ?? 'ok'
}

function ofVolume(volume: Volume): Finding[] {
  const link = volumeLink(volume)
  if (volume.fork?.split) {
    return [{
      key: `split ${volume.id}`, severity: 'critical', since: volume.fork.since, link,
      cause: `Volume ${volume.name} is split: both nodes have data that the other has not.`,
      action: 'Look at both sides, then decide whose data is kept.',
    }]
  }
  if (volume.problem) {
    return [{
      key: `problem ${volume.id}`, severity: 'critical', link,
      cause: `Volume ${volume.name} is not served: ${volume.problem}`,
      action: 'Open the volume: it says what it waits for.',
    }]
  }
  const copies = volume.copies ?? []
  if (copies.length > 0 && !copies.some((copy) => copy.state === 'in_sync')) {
    return [{
      key: `none ${volume.id}`, severity: 'critical', link,
      cause: `No copy of volume ${volume.name} is in sync, and nobody serves it.`,
      action: 'Bring back the node that had the last copy in sync.',
    }]
  }
  if (volume.fork) {
    return [{
      key: `fork ${volume.id}`, severity: 'warning', since: volume.fork.since, link,
      cause: `Node ${volume.fork.node} goes on alone with volume ${volume.name}.`,
      action: 'Bring back the other node, or the link to it.',
    }]
  }
  return []
}

function ofNode(node: ClusterNode): Finding[] {
  if (node.up) {
    if (!node.maintenance) return []
    return [{
      key: `maintenance ${node.id}`, severity: 'warning', link: '#/nodes',
      cause: `${nameOf(node)} is in maintenance: none of its copies is in sync.`,
      action: 'End its maintenance when the work on it is done.',
    }]
  }
  return [{
    key: `down ${node.id}`, severity: node.maintenance ? 'warning' : 'critical', link: '#/nodes',
    cause: `${nameOf(node)} is down: nothing is heard of it.`,
    action: node.maintenance
      ? 'It is in maintenance: start it again when the work on it is done.'
      : 'Look whether its machine runs and start Ursa there (systemctl start ursa); its copies then get what they miss by themselves.',
  }]
}

function ofVotes(nodes: ClusterNode[]): Finding[] {
  const voters = nodes.filter((node) => node.votes)
  const up = voters.filter((node) => node.up).length
  if (voters.length > 0 && 2 * up <= voters.length) {
    return [{
      key: 'no majority', severity: 'critical', link: '#/nodes',
      cause: `Only ${up} of ${plural(voters.length, 'node that votes', 'nodes that vote')} are up: nothing can be changed, and no further node can be given up.`,
      action: 'Bring back the nodes that are down.',
    }]
  }
  if (nodes.length === 2) {
    return [{
      key: 'two nodes', severity: 'warning', link: '#/nodes',
      cause: 'Two nodes alone cannot agree which of them is lost: if the one that decides is lost, the other waits for it.',
      action: 'Let a third node join; a small machine as a witness is enough.',
    }]
  }
  return []
}

function ofPool(pool: Pool): Finding[] {
  const failed = pool.disks.find((disk) => disk.failure)
  const link = '#/pools'
  const name = pool.node_name ? `${pool.name} of ${pool.node_name}` : pool.name
  switch (pool.state) {
    case 'online':
      break
    case 'exported':
      return []
    case 'disk_failed':
      return [{
        key: `pool ${name}`, severity: 'critical', link, since: failed?.failure?.since,
        cause: `A disk of pool ${name} has failed${failed?.failure ? `: ${failed.path}: ${failed.failure.error}` : ''}.`,
        action: 'Look after the disk (dmesg), then reopen the pool.',
      }]
    case 'read_only':
      return [{
        key: `pool ${name}`, severity: 'critical', link,
        cause: `Pool ${name} is read-only: its metadata could not be written.`,
        action: 'Look after its disks, then reopen the pool.',
      }]
    case 'unavailable':
      return [{
        key: `pool ${name}`, severity: 'critical', link,
        cause: `Pool ${name} is unavailable${pool.reason ? `: ${pool.reason}` : ''}.`,
        action: 'Bring its disks back, then reopen the pool.',
      }]
  }
  if (pool.total > 0 && pool.free / pool.total < 0.05) {
    return [{
      key: `full ${name}`, severity: 'warning', link,
      cause: `Pool ${name} is nearly full.`,
      action: 'Add a disk to it: volumes stay where they are.',
    }]
  }
  return []
}

/** Copies that are not in sync while their node is up: mending themselves, or waiting for something. */
function ofCopies({ volumes, nodes }: Observed): Finding[] {
  const up = (id: number) => nodes?.some((node) => node.id === id && node.up && !node.maintenance) ?? false
  const syncs = syncsOf(volumes).filter(({ copy }) => up(copy.node))
  const paused = syncs.filter(({ sync }) => sync.paused)
  const waiting = syncs.filter(({ sync }) => sync.waits_for && !sync.paused)
  const running = syncs.filter(({ sync }) => !sync.waits_for && !sync.paused)
  const found: Finding[] = []
  const stopped = paused[0]
  if (stopped) {
    found.push({
      key: 'paused syncs', severity: 'warning', link: '#/jobs', since: Math.min(...paused.map(({ sync }) => sync.paused?.since ?? Infinity)),
      cause: paused.length === 1
        ? `The sync of ${stopped.volume.name} to node ${stopped.copy.node} is paused, by ${stopped.sync.paused?.by}: the volume outlives fewer losses.`
        : `${paused.length} syncs are paused: these volumes outlive fewer losses.`,
      action: 'Let it go on under “Jobs” as soon as hosts can spare it.',
    })
  }
  const first = waiting[0]
  if (first) {
    found.push({
      key: 'waiting syncs', severity: 'warning', link: waiting.length === 1 ? volumeLink(first.volume) : '#/jobs',
      cause: waiting.length === 1
        ? `The copy of ${first.volume.name} on node ${first.copy.node} is not in sync and waits for ${first.sync.waits_for}.`
        : `${plural(waiting.length, 'copy', 'copies')} are not in sync and wait; the first, of ${first.volume.name}, for ${first.sync.waits_for}.`,
      action: 'If it stays so for minutes, look after what it waits for.',
    })
  }
  if (running.length > 0) {
    const done = running.reduce((sum, { sync }) => sum + progress(sync), 0) / running.length
    found.push({
      key: 'running syncs', severity: 'working', link: '#/jobs',
      cause: `${plural(running.length, 'copy is', 'copies are')} being brought in sync (${Math.round(100 * done)} %).`,
      action: 'Nothing is to be done. Until then these volumes outlive fewer losses.',
    })
  }
  return found
}
