// Which nodes each host uses its volumes through, which others it could use, and the I/O of each path.

import type { Session, Volume } from '../api/types'

export interface HostPaths {
  /** The initiator's name. */
  initiator: string
  /** Its alias, or its name. */
  name: string
  /** The number of its sessions with each node, by node number. */
  sessions: Map<number, number>
  /** Nodes that have a copy of a volume that it uses, but no session with it. */
  lacks: number[]
}

/** Hosts that are logged in to targets; first those that lack paths. */
export function hostPaths(sessions: Session[], volumes: Volume[]): HostPaths[] {
  const hosts = new Map<string, HostPaths & { targets: Set<string> }>()
  for (const session of sessions) {
    if (!session.target) continue
    let host = hosts.get(session.initiator)
    if (!host) hosts.set(session.initiator, (host = { initiator: session.initiator, name: session.alias || session.initiator, sessions: new Map(), lacks: [], targets: new Set() }))
    host.sessions.set(session.node, (host.sessions.get(session.node) ?? 0) + 1)
    host.targets.add(session.target)
  }
  const found = [...hosts.values()].map(({ targets, ...host }) => {
    const used = volumes.filter((volume) => volume.maps.some((map) => targets.has(map.target)))
    const nodes = new Set(used.flatMap((volume) => (volume.copies ?? []).map((copy) => copy.node)))
    return { ...host, lacks: [...nodes].filter((node) => !host.sessions.has(node)).sort((a, b) => a - b) }
  })
  return found.sort((a, b) => b.lacks.length - a.lacks.length || a.name.localeCompare(b.name))
}

/** Rates per second. */
export interface PathRate {
  commands: number
  received: number
  sent: number
}

export const sessionKey = (session: Session) => `${session.node} ${session.tsih} ${session.isid}`

/** The rates of sessions in both lists; counters that decreased belong to a new session. */
export function ratesBetween(before: Session[], after: Session[], seconds: number): Map<string, PathRate> {
  const earlier = new Map(before.map((session) => [sessionKey(session), session]))
  const rates = new Map<string, PathRate>()
  for (const session of after) {
    const known = earlier.get(sessionKey(session))
    if (!known || session.commands < known.commands || seconds <= 0) continue
    rates.set(sessionKey(session), {
      commands: (session.commands - known.commands) / seconds,
      received: Math.max(0, session.bytes_received - known.bytes_received) / seconds,
      sent: Math.max(0, session.bytes_sent - known.bytes_sent) / seconds,
    })
  }
  return rates
}
