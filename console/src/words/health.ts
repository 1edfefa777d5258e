// What is wrong now: causes, the worst first, each with one thing to do about it. `ursa status` judges alike: both go through the cases of `crates/ursa/src/cli/status/cases.json`.

import type { ClusterNode, Missing, Node, NodeProblem, Pool, Since, Volume } from '../api/types'
import { listed } from './missing'
import { lacking } from './pools'
import { plural } from './size'
import { progress, syncsOf } from './sync'
import { canServe, unserved, volumeLink } from './volume'

/**
 * From well to the worst. `advice`: it is as it was set up, and could be better. `working` mends itself: nothing is to be done but wait. `warning`: all is served, and less can be lost than
 * was set up for, or somebody should look after something. `critical`: data or service is lost.
 */
export type Severity = 'ok' | 'advice' | 'working' | 'warning' | 'critical'
/** How it is altogether: advice is no trouble. */
export type Overall = Exclude<Severity, 'advice'>

export interface Finding {
  /** The same as long as it is the same thing. */
  key: string
  severity: Severity
  cause: string
  /** What to do about it, as one sentence. */
  action: string
  /** Where in the console. */
  link?: string
  /** Since when, where the node says so. */
  since?: Since
}

export interface Observed {
  node?: Node
  /** Undefined without a cluster. */
  nodes?: ClusterNode[]
  volumes: Volume[]
  pools: Pool[]
  /** What nodes say themselves. */
  problems: NodeProblem[]
  /** Nodes that do not say how they are. */
  silent: Missing[]
  /** Nodes whose volumes, pools or sessions are missing. */
  missing: Missing[]
  /** When the node was asked, in seconds since 1970. */
  asked_at: number
}

const RANK: Record<Severity, number> = { critical: 0, warning: 1, working: 2, advice: 3, ok: 4 }
/** A change that takes longer, in seconds, does not get what it needs: most take less than a second, none is waited for longer than 45. */
const CHANGE_SECONDS_MAX = 300
/** Of a pool, below which it is nearly full. */
const FREE_PERCENT_MIN = 5

export const nameOf = (node: Pick<ClusterNode, 'id' | 'name'>): string => (node.name ? `${node.name} (node ${node.id})` : `node ${node.id}`)

/** All findings, the worst first. */
export function findings(observed: Observed): Finding[] {
  const all = observed.nodes ?? []
  // The others are not down for a node that they refuse: it says itself what to do.
  const isExpelled = observed.problems.some(({ code, node }) => code === 'removed_from_cluster' && all.some((one) => one.here && one.id === node))
  const nodes = isExpelled ? [] : all
  // Of etcd the node says itself what is the matter, and there no node votes.
  const inEtcd = observed.node?.record?.place === 'etcd'
  const found = [
    ...observed.volumes.flatMap((volume) => ofVolume(volume, nodes)),
    ...observed.pools.flatMap((pool) => ofPool(pool, observed)),
    ...(inEtcd ? [] : ofVotes(nodes)),
    ...nodes.flatMap((node) => ofNode(node, nodes)),
    ...ofCopies(observed),
    ...ofChanges(observed),
    ...ofProblems(observed),
    ...(isExpelled ? [] : ofMissing(observed)),
    ...(inEtcd ? [] : ofTwo(nodes)),
  ]
  return found.sort((a, b) => RANK[a.severity] - RANK[b.severity])
}

export function worst(found: Finding[]): Overall {
  const severity = found[0]?.severity ?? 'ok'
  return severity === 'advice' ? 'ok' : severity
}

export const isAdvice = (finding: Finding) => finding.severity === 'advice'

/** How many things somebody should look after: not what mends itself, and no advice. */
export const problemsIn = (found: Finding[]): number => found.filter(({ severity }) => severity === 'warning' || severity === 'critical').length

const isOpen = (pool: Pool) => pool.state === 'online'

/** Whether that is what a node says of the pool. */
function isAbout({ code, subject, node }: NodeProblem, pool: Pool): boolean {
  if (pool.node !== node) return false
  if (code === 'disk_failed') return pool.disks.some((disk) => disk.path === subject)
  return (code === 'pool_closed' || code === 'pool_read_only') && pool.name === subject
}

const exactly = (at: number | null | undefined): Since | undefined => (at === undefined || at === null ? undefined : { at })

/** Those that are known, the earliest first. */
const known = (all: (Since | null | undefined)[]): Since[] => all.flatMap((since) => since ?? []).sort((a, b) => a.at - b.at)
const first = (all: (Since | null | undefined)[]): Since | undefined => known(all)[0]
const last = (all: (Since | null | undefined)[]): Since | undefined => known(all).at(-1)

/** Since when a node is down, or in maintenance. */
export const nodeSince = (node: ClusterNode): Since | undefined => (node.up ? exactly(node.maintenance_since) : (node.down_since ?? undefined))

/** How long it is so, or since when the page has first seen it; `age` in seconds as words. */
export function lasting(age: string, since: Since | undefined): string {
  if (!since) return `seen here for ${age}`
  return since.or_earlier ? `for at least ${age}` : `for ${age}`
}

/** What there is to say when nothing is found: no more than was asked. */
export function allWell({ nodes, volumes, pools }: Observed): string {
  const parts = [nodes && nodes.length > 1 ? `All ${nodes.length} nodes are up and report no problems` : 'This node is up and reports no problems']
  if (volumes.length > 0) parts.push('all volumes are served')
  if (volumes.some((volume) => volume.copies?.length)) parts.push('all copies are in sync')
  if (pools.some(isOpen)) parts.push(pools.every(isOpen) ? 'all pools are online' : 'all open pools are online')
  return `${parts.join(', ')}. No action needed.`
}

/** Others reach it, and the node that was asked does not. */
const isCutOff = (node: ClusterNode) => !node.up && (node.reached_by ?? []).length > 0

/** What a node is that is not up. */
export const downWord = (node: ClusterNode) => (isCutOff(node) ? 'cut off' : 'down')

/** What to do about a pool that is open, by the code of what its node says: what is done is on the screen of pools. */
const OF_OPEN_POOL: Record<string, string> = {
  read_failed: 'Check the disk (smartctl, dmesg), and replace it if errors continue. Then acknowledge the read errors.',
  pool_set_back: 'Find out who restored or reverted its disks. Its copies are resynced from copies that are in sync. If there are none and you cannot bring one back, accept the older data.',
}

/** What nodes say themselves, unless it is about a pool, or a node that is cut off from the asked one, of which it is said already; what several say alike (of etcd, say) once. */
function ofProblems({ nodes = [], pools, problems }: Observed): Finding[] {
  const bad = pools.filter((pool) => !isOpen(pool) && pool.state !== 'exported')
  const here = nodes.find((node) => node.here)?.id
  const isOfCutOff = ({ node: by, code, subject }: NodeProblem) => by === here && code === 'node_cut_off' && nodes.some((node) => isCutOff(node) && subject === String(node.id))
  const isSaid = (problem: NodeProblem) => isOfCutOff(problem) || bad.some((pool) => isAbout(problem, pool))
  const whoSays = new Map<string, { who: string[]; since: NodeProblem['since'][]; code: string; subject: string }>()
  for (const problem of problems.filter((one) => !isSaid(one))) {
    const { text, node, node_name, code, subject } = problem
    const who = node === undefined || node === null ? [] : [nameOf({ id: node, name: node_name ?? '' })]
    const { who: others, since } = whoSays.get(text) ?? { who: [], since: [] }
    whoSays.set(text, { who: [...others, ...who], since: [...since, problem.since], code: code ?? '', subject: subject ?? '' })
  }
  return [...whoSays].map(([text, { who, since, code, subject }]) => {
    const action = OF_OPEN_POOL[code]
    return {
      // It is the same though it has gone on for longer, or more blocks are bad, or fewer copies are behind.
      key: `problem ${[...who, action ? `${code} ${subject}` : text].join(' ').replace(/\d+ seconds/g, 'seconds')}`,
      severity: 'warning',
      since: first(since),
      cause: who.length > 0 ? `${listed(who)}: ${text}` : text,
      action: action ?? `Do what the message says; the log of ${who.length > 0 ? listed(who) : 'the node'} has details (journalctl -u ursa).`,
      ...(action && { link: '#/pools' }),
    }
  })
}

/** Nodes of which not all is known, though they are heard of. Of one that is down it is said already. */
function ofMissing({ nodes = [], silent, missing }: Observed): Finding[] {
  const said = (what: string) => (one: Missing) => [one.node, { ...one, what }] as const
  const asked = new Map([...missing.map(said('all of its pools, volumes and sessions')), ...silent.map(said('its health'))])
  for (const node of nodes) if (!node.up) asked.delete(node.id)
  return [...asked.values()].map(({ node, node_name, reason, what }) => ({
    key: `silent ${node}`, severity: 'warning', link: '#/nodes',
    cause: `${nameOf({ id: node, name: node_name })} does not report ${what}: ${reason}.`,
    action: 'Its state is unknown. Open that node’s own console, or run ursa status on it.',
  }))
}

function ofVolume(volume: Volume, nodes: ClusterNode[]): Finding[] {
  const link = volumeLink(volume)
  if (volume.fork?.split) {
    return [{
      key: `split ${volume.id}`, severity: 'critical', since: exactly(volume.fork.since), link,
      cause: `Split brain on volume ${volume.name}: two nodes each have writes that the other lacks.`,
      action: 'Inspect both sides and back up what you need, then choose which side to keep.',
    }]
  }
  const problem = unserved(volume, nodes)
  if (problem) {
    return [{
      key: `problem ${volume.id}`, severity: 'critical', link,
      cause: `Volume ${volume.name} is unavailable: ${problem}`,
      action: 'Open the volume to see what it waits for.',
    }]
  }
  const copies = volume.copies ?? []
  if (copies.length > 0 && !copies.some((copy) => canServe(copy, nodes))) {
    const inSync = copies.filter((copy) => copy.state === 'in_sync')
    if (inSync.length > 0) {
      const down = nodes.filter((node) => inSync.some((copy) => copy.node === node.id))
      return [{
        // Since the last of them is not there.
        key: `none ${volume.id}`, severity: 'critical', link, since: last(down.map((node) => node.down_since)),
        cause: `Volume ${volume.name} is unavailable, as seen from this node: no node with a copy in sync responds.`,
        action: 'Bring back a node that has a copy in sync, or restore the network to it.',
      }]
    }
    return [{
      // Since the last of them is not.
      key: `none ${volume.id}`, severity: 'critical', link, since: last(copies.map((copy) => copy.sync?.since)),
      cause: `Volume ${volume.name} is unavailable: none of its copies is in sync.`,
      action: 'Bring back the node that had the last copy in sync.',
    }]
  }
  if (volume.fork) {
    return [{
      key: `fork ${volume.id}`, severity: 'warning', since: exactly(volume.fork.since), link,
      cause: `Node ${volume.fork.node} continues alone with volume ${volume.name}.`,
      action: 'Bring back the other node, or restore the link to it.',
    }]
  }
  return []
}

function ofCutOff(node: ClusterNode, nodes: ClusterNode[]): Finding {
  const named = (id: number) => nameOf(nodes.find((one) => one.id === id) ?? { id, name: '' })
  const here = nodes.find((one) => one.here)
  const by = (node.reached_by ?? []).map(named)
  return {
    key: `cut off ${node.id}`, severity: 'warning', link: '#/nodes', since: node.down_since ?? undefined,
    cause: `${nameOf(node)} is cut off from ${here ? nameOf(here) : 'this node'} on every link; ${listed(by)} ${by.length === 1 ? 'reaches' : 'reach'} it.`,
    action: 'Check the network between the two nodes: cables, switches, firewalls, port 3270.',
  }
}

function ofNode(node: ClusterNode, nodes: ClusterNode[]): Finding[] {
  if (isCutOff(node)) return [ofCutOff(node, nodes)]
  if (node.up) {
    if (!node.maintenance) return []
    return [{
      key: `maintenance ${node.id}`, severity: 'warning', link: '#/nodes', since: nodeSince(node),
      cause: `${nameOf(node)} is in maintenance: its copies are out of sync.`,
      action: 'End maintenance when the work is done.',
    }]
  }
  return [{
    key: `down ${node.id}`, severity: 'warning', link: '#/nodes', since: nodeSince(node),
    cause: `${nameOf(node)} is down: heartbeat timeout.`,
    action: node.maintenance
      ? 'It is in maintenance. Start it when the work is done, then end maintenance.'
      : 'Check that the server runs, and start Ursa there (systemctl start ursa). Its copies then resync automatically.',
  }]
}

function ofVotes(nodes: ClusterNode[]): Finding[] {
  const voters = nodes.filter((node) => node.votes)
  const up = voters.filter((node) => node.up && !node.record_stalled).length
  if (nodes.length === 0 || 2 * up > voters.length) return []
  const down = known(voters.map((node) => node.down_since))
  return [{
    // Since so many are down that the others are no majority.
    key: 'no majority', severity: 'warning', link: '#/nodes', since: down[Math.ceil(voters.length / 2) - 1],
    cause: voters.length === 0
      ? 'The cluster’s record does not answer: nothing can be changed, and no node can be declared lost.'
      : `No quorum (${up} of ${plural(voters.length, 'voter')} up): nothing can be changed, and no further node can be declared lost.`,
    action: 'Bring back the nodes that are down.',
  }]
}

/** Advice: it is what they were set up for. */
function ofTwo(nodes: ClusterNode[]): Finding[] {
  if (nodes.length !== 2) return []
  return [{
    key: 'two nodes', severity: 'advice', link: '#/nodes',
    cause: 'Two nodes without a witness have no majority: if the preferred node is lost, the other one waits for it.',
    action: 'Add a third node; a small machine as a witness is enough.',
  }]
}

function ofPool(pool: Pool, { nodes, problems }: Observed): Finding[] {
  // In a cluster other nodes may have copies of what is on it: what is not served is said of the volume.
  const severity = nodes ? 'warning' : 'critical'
  const failed = pool.disks.find((disk) => disk.failure)
  const since = first(problems.filter((problem) => isAbout(problem, pool)).map((problem) => problem.since))
  const link = '#/pools'
  const name = pool.node_name ? `${pool.name} on ${pool.node_name}` : pool.name
  switch (pool.state) {
    case 'online':
      break
    case 'exported':
      return []
    case 'disk_failed':
      return [{
        key: `pool ${name}`, severity, link, since: exactly(failed?.failure?.since) ?? since,
        cause: `A disk of pool ${name} has failed${failed?.failure ? `: ${failed.path}: ${failed.failure.error}` : ''}.`,
        action: 'Check the disk (dmesg). When it works again or is replaced, reopen the pool.',
      }]
    case 'read_only':
      return [{
        key: `pool ${name}`, severity: 'warning', link, since,
        cause: `Pool ${name} is read-only: a metadata write failed. Volume I/O continues.`,
        action: 'Check its disks (dmesg), then reopen the pool.',
      }]
    case 'unavailable':
      return [{
        key: `pool ${name}`, severity, link, since,
        cause: `Pool ${name} is unavailable${pool.reason ? `: ${pool.reason}` : ''}.`,
        action: 'Bring its disks back, then reopen the pool.',
      }]
  }
  // Advice: nothing is wrong before the file system is full.
  if (pool.overcommit) {
    return [{
      key: `overcommit ${name}`, severity: 'advice', link,
      cause: `Pool ${name} is overcommitted: ${lacking(pool.overcommit)}`,
      action: 'Free space on that file system, or enlarge it.',
    }]
  }
  // Advice: volumes that are there have all their space.
  if (pool.total > 0 && pool.free * 100 < pool.total * FREE_PERCENT_MIN) {
    return [{
      key: `full ${name}`, severity: 'advice', link,
      cause: `Pool ${name} is nearly full: new volumes may not fit.`,
      action: 'Add a disk to it. Volumes stay where they are.',
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
  const unsaid = volumes.flatMap((volume) => (volume.copies ?? []).filter((copy) => copy.state !== 'in_sync' && !copy.sync && up(copy.node)))
  const found: Finding[] = []
  const stopped = paused[0]
  if (stopped) {
    found.push({
      key: 'paused syncs', severity: 'warning', link: '#/jobs', since: first(paused.map(({ sync }) => exactly(sync.paused?.since))),
      cause: paused.length === 1
        ? `The resync of ${stopped.volume.name} on node ${stopped.copy.node} was paused by ${stopped.sync.paused?.by}: the volume has reduced redundancy.`
        : `${paused.length} resyncs are paused: these volumes have reduced redundancy.`,
      action: 'Resume it under “Jobs” as soon as the load allows.',
    })
  }
  const held = waiting[0]
  if (held) {
    found.push({
      key: 'waiting syncs', severity: 'warning', since: first(waiting.map(({ sync }) => sync.since)), link: waiting.length === 1 ? volumeLink(held.volume) : '#/jobs',
      cause: waiting.length === 1
        ? `The copy of ${held.volume.name} on node ${held.copy.node} is out of sync and waits for ${held.sync.waits_for}.`
        : `${plural(waiting.length, 'copy', 'copies')} are out of sync and waiting; the first, of ${held.volume.name}, for ${held.sync.waits_for}.`,
      action: 'If this lasts for minutes, check what it waits for.',
    })
  }
  if (running.length > 0) {
    const done = running.reduce((sum, { sync }) => sum + progress(sync), 0) / running.length
    found.push({
      key: 'running syncs', severity: 'working', link: '#/jobs', since: first(running.map(({ sync }) => sync.since)),
      cause: `${plural(running.length, 'copy is', 'copies are')} out of sync and resyncing (${Math.round(100 * done)} %).`,
      action: 'No action needed; resync in progress. Until it completes, these volumes have reduced redundancy.',
    })
  }
  if (unsaid.length > 0) {
    found.push({
      key: 'unsaid syncs', severity: 'working', link: '#/jobs',
      cause: `${plural(unsaid.length, 'copy is', 'copies are')} out of sync, progress not known yet.`,
      action: 'No action needed yet. If this lasts for minutes, check the node that has the copy.',
    })
  }
  return found
}

/** The first change that does not end. */
function ofChanges({ node, asked_at }: Observed): Finding[] {
  const change = node?.changes.find((one) => one.age > CHANGE_SECONDS_MAX)
  if (!change) return []
  const { what, age, waits_for } = change
  return [{
    key: `change ${what}`, severity: 'warning', link: '#/jobs', since: { at: asked_at - age },
    cause: `${what.charAt(0).toUpperCase()}${what.slice(1)} has not finished: it waits for ${waits_for}.`,
    action: 'Fix what it waits for; it then continues automatically. The log has details (journalctl -u ursa).',
  }]
}
