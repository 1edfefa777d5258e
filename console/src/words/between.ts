// The links between each pair of nodes, from the reports of both.

import type { ClusterNode, NodeLink, RoleLinks } from '../api/types'
import { nameOf } from './nodes'
import { duration } from './size'

/** `one_sided`: the two reports differ. `unknown`: neither node reported. */
export type LinkSeen = 'up' | 'partly' | 'one_sided' | 'down' | 'unknown'

/** Two nodes and their links. */
export interface Between {
  nodes: [ClusterNode, ClusterNode]
  /** The report of each node; undefined if it did not report. */
  words: [NodeLink | undefined, NodeLink | undefined]
  seen: LinkSeen
}

/** Each pair of nodes once, in the order of the nodes. */
export function between(nodes: ClusterNode[], links: NodeLink[]): Between[] {
  const said = new Map(links.map((link) => [`${link.node} ${link.peer}`, link]))
  return nodes.flatMap((one, at) =>
    nodes.slice(at + 1).map((other): Between => {
      const words: Between['words'] = [said.get(`${one.id} ${other.id}`), said.get(`${other.id} ${one.id}`)]
      return { nodes: [one, other], words, seen: seenBy(words) }
    }),
  )
}

function seenBy([one, other]: Between['words']): LinkSeen {
  if (one && other && one.state !== other.state) return 'one_sided'
  return one?.state ?? other?.state ?? 'unknown'
}

export const SEEN: Record<LinkSeen, { tone: 'ok' | 'warning' | 'critical' | 'off'; word: string }> = {
  up: { tone: 'ok', word: 'up' },
  partly: { tone: 'warning', word: 'partial' },
  one_sided: { tone: 'warning', word: 'one-sided' },
  down: { tone: 'critical', word: 'down' },
  unknown: { tone: 'off', word: 'unknown' },
}

/** `up for 3 h via 10.0.0.2`, `no link, last contact 41 s ago`. */
export function controlWords(links: RoleLinks): string {
  return links.up > 0 ? `up${since(links)}` : `no link${since(links)}`
}

/** `4 of 4 up for 3 h via 10.0.0.2`, `0 of 4 up, last contact 41 s ago`. */
export function dataWords(links: RoleLinks): string {
  return `${links.of > 0 ? `${links.up} of ${links.of}` : links.up} up${since(links)}`
}

function since({ up, age, silence, addresses }: RoleLinks): string {
  if (up > 0) return `${age === undefined || age === null ? '' : ` for ${duration(age)}`} via ${addresses.join(' and ')}`
  if (silence === undefined || silence === null) return ', no contact since this node started'
  return `, last contact ${duration(silence)} ago`
}

/** A node's report of its links to another one, in lines. */
export function linkLines(link: NodeLink): string[] {
  const lines = [`Heartbeats: ${controlWords(link.control)}`, `Data: ${dataWords(link.replication)}`]
  if (!link.encrypted) lines.push('NOT ENCRYPTED')
  if (link.state !== 'up' && link.trouble) lines.push(`The last attempt failed: ${link.trouble}`)
  const silent = link.silent_cores ?? []
  if (silent.length > 0) lines.push(`${silent.length === 1 ? 'A core has' : `${silent.length} cores have`} not reported (${silent.join(', ')}): more links may be up than counted`)
  return lines
}

/** The whole report in one text, for tooltips and screen readers. */
export function betweenWords({ nodes, words, seen }: Between): string {
  const [one, other] = nodes
  const said = words.map((link, at) => {
    const name = nameOf(nodes[at] ?? one)
    return link ? `${name} reports: ${linkLines(link).join('; ')}` : `${name} did not report`
  })
  return `Links between ${nameOf(one)} and ${nameOf(other)}: ${SEEN[seen].word}. ${said.join('. ')}.`
}
