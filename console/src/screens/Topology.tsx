import { Group, Stack, Text, Title, useComputedColorScheme } from '@mantine/core'
import { useMemo } from 'react'
import { useLinks, useMissingLinks, useMissingSessions, useNodes, useSessions, useVolumes } from '../api/queries'
import type { ClusterNode, Volume } from '../api/types'
import { MissingNote } from '../parts/MissingNote'
import { Panel } from '../parts/Panel'
import { Empty, ProblemAlert } from '../parts/Problem'
import { State } from '../parts/State'
import { useWidth } from '../parts/width'
import { link } from '../route'
import { type Between, SEEN, between, betweenWords } from '../words/between'
import { downWord } from '../words/nodes'
import { type HostPaths, hostPaths } from '../words/hostpaths'
import { plural } from '../words/size'
import { copyState } from '../words/sync'
import { NodeLinks } from './NodeLinks'

/** Maximum number of volumes drawn; those with the most copies out of sync come first. */
const VOLUMES_MAX = 24
/** Maximum number of hosts drawn; those that lack a path come first. */
const HOSTS_MAX = 16

type Tone = 'ok' | 'working' | 'warning' | 'critical' | 'off'

const INK: Record<Tone, [light: string, dark: string]> = {
  ok: ['#2b8a3e', '#69db7c'],
  working: ['#1971c2', '#74c0fc'],
  warning: ['#e67700', '#ffd43b'],
  critical: ['#c92a2a', '#ff8787'],
  off: ['#868e96', '#868e96'],
}

export function Topology() {
  const nodes = useNodes()
  const volumes = useVolumes()
  const sessions = useSessions()
  const missing = useMissingSessions()
  const hosts = useMemo(() => hostPaths(sessions.data ?? [], volumes.data ?? []), [sessions.data, volumes.data])
  const links = useLinks()
  const unsaid = useMissingLinks()
  const pairs = useMemo(() => (links.data ? between(nodes.data ?? [], links.data) : []), [nodes.data, links.data])
  return (
    <Stack gap="md">
      <Title order={1} size="h3">
        Topology
      </Title>
      {nodes.error && <ProblemAlert error={nodes.error} what="The nodes cannot be listed" />}
      {links.error && <ProblemAlert error={links.error} what="The links between nodes cannot be listed" />}
      <Panel title="Nodes and copies" at={Math.min(nodes.dataUpdatedAt, volumes.dataUpdatedAt)} note="Each column is a node. Lines between nodes are their links, as both nodes see them. Each row below is a volume with a dot for each copy, or a host with a square for each node that it uses.">
        <MissingNote what="Sessions of hosts" missing={missing} />
        {nodes.data && volumes.data && (nodes.data.length > 0 ? <Picture nodes={nodes.data} pairs={pairs} volumes={volumes.data} hosts={hosts} /> : <Empty>No nodes.</Empty>)}
        <Group gap="xs" mt="md">
          <State tone="ok">in sync, up</State>
          <State tone="working">resyncing</State>
          <State tone="warning">out of sync</State>
          <State tone="critical">down</State>
          <State tone="warning">links partial or one-sided</State>
          <State tone="warning">host path missing</State>
          <State tone="off">links unknown</State>
        </Group>
      </Panel>
      <NodeLinks pairs={pairs} missing={unsaid} at={links.dataUpdatedAt} />
    </Stack>
  )
}

/** The lower edge of the nodes, where links begin. */
const FOOT = 84
const ROW = 34
const CAPTION = 26
/** How far links hang down: between neighbors, and the addition for each node in between. */
const HANG = 16
const HANG_MORE = 18
const HANG_MAX = 88

const hang = (distance: number) => Math.min(HANG_MAX, HANG + HANG_MORE * (distance - 1))

/** The dashes of a link that is not up, so that its state is visible without colors. */
const DASHES: Record<Between['seen'], string | undefined> = { up: undefined, partly: '9 4', one_sided: '9 4', down: '4 4', unknown: '1 5' }

function Picture({ nodes, pairs, volumes, hosts }: { nodes: ClusterNode[]; pairs: Between[]; volumes: Volume[]; hosts: HostPaths[] }) {
  const [ref, width] = useWidth()
  const dark = useComputedColorScheme('light') === 'dark' ? 1 : 0
  const rank = (volume: Volume) => (volume.copies ?? []).filter((copy) => copy.state !== 'in_sync').length
  const drawn = [...volumes].sort((a, b) => rank(b) - rank(a)).slice(0, VOLUMES_MAX)
  const labels = width < 500 ? 84 : width < 900 ? 150 : 240
  const column = Math.max(70, (width - labels) / nodes.length)
  const whole = labels + column * nodes.length
  const x = (id: number) => labels + column * (nodes.findIndex((node) => node.id === id) + 0.5)
  const shown = hosts.slice(0, HOSTS_MAX)
  const head = FOOT + (nodes.length > 1 ? hang(nodes.length - 1) : 0) + 14
  const below = head + Math.max(1, drawn.length) * ROW + 10
  const height = below + CAPTION + Math.max(1, shown.length) * ROW
  const ink = (tone: Tone) => INK[tone][dark]
  const text = dark ? '#e9ecef' : '#212529'
  const dim = dark ? '#909296' : '#6c757d'
  const line = dark ? '#373a40' : '#dee2e6'
  const paper = dark ? '#25262b' : '#ffffff'
  const shorten = (name: string, most: number) => (name.length > most ? `${name.slice(0, most - 1)}…` : name)
  const said = nodes.map((node) => `${node.name} is ${node.up ? 'up' : downWord(node)} with ${plural(node.in_sync, 'copy', 'copies')} in sync of ${node.copies}`).join('; ')
  return (
    <div ref={ref} style={{ overflowX: 'auto' }}>
      {width > 0 && (
        <svg width={whole} height={height} role="group" aria-label={`Topology: ${said}`} fontFamily="inherit">
          {nodes.map((node) => {
            const tone: Tone = !node.up ? 'critical' : node.maintenance ? 'warning' : 'ok'
            const at = x(node.id)
            const w = Math.min(column - 12, 170)
            return (
              <a key={node.id} href={link('nodes')} aria-label={`${node.name}: ${node.up ? 'up' : downWord(node)}`}>
                <line x1={at} y1={FOOT} x2={at} y2={height - 6} stroke={line} strokeWidth={1.5} />
                <rect x={at - w / 2} y={28} width={w} height={56} rx={8} fill={dark ? '#25262b' : '#ffffff'} stroke={ink(tone)} strokeWidth={2} />
                <text x={at} y={50} textAnchor="middle" fill={text} fontSize={14} fontWeight={650}>
                  {shorten(node.name, Math.floor(w / 9))}
                </text>
                <text x={at} y={70} textAnchor="middle" fill={ink(tone)} fontSize={12}>
                  {!node.up ? downWord(node) : node.maintenance ? 'maintenance' : node.witness ? 'witness' : w < 110 ? 'up' : `up, ${node.in_sync}/${node.copies} in sync`}
                </text>
                {node.leads && (
                  <text x={at} y={20} textAnchor="middle" fill={dim} fontSize={11}>
                    {column < 110 ? 'leader' : 'leader of the record'}
                  </text>
                )}
              </a>
            )
          })}
          {pairs.map((pair) => {
            const [one, other] = pair.nodes
            const distance = nodes.indexOf(other) - nodes.indexOf(one)
            // Longer links leave a node closer to its middle, so that links do not cross.
            const aside = Math.min(column / 2 - 8, 6 + 8 * (nodes.length - 1 - distance))
            const [from, to] = [x(one.id) + aside, x(other.id) - aside]
            const mid = (from + to) / 2
            const deep = hang(distance)
            const { tone, word } = SEEN[pair.seen]
            const words = betweenWords(pair)
            const way = `M${from} ${FOOT} Q${mid} ${FOOT + 2 * deep} ${to} ${FOOT}`
            return (
              <a key={`${one.id} ${other.id}`} href={link('nodes')} aria-label={words}>
                <title>{words}</title>
                <path d={way} fill="none" stroke="transparent" strokeWidth={12} pointerEvents="stroke" />
                <path d={way} fill="none" stroke={ink(tone)} strokeWidth={2} strokeDasharray={DASHES[pair.seen]} />
                {pair.seen !== 'up' && (
                  <text x={mid} y={FOOT + deep + 4} textAnchor="middle" fill={ink(tone)} stroke={paper} strokeWidth={4} paintOrder="stroke" fontSize={11} fontWeight={650}>
                    {word}
                  </text>
                )}
              </a>
            )
          })}
          {drawn.length === 0 && (
            <text x={labels} y={head + 22} fill={dim} fontSize={13}>
              No volumes yet.
            </text>
          )}
          {drawn.map((volume, row) => {
            const y = head + row * ROW + ROW / 2 + 4
            const copies = volume.copies ?? []
            const xs = copies.map((copy) => x(copy.node)).sort((a, b) => a - b)
            return (
              <a key={volume.id} href={link('volumes', volume.name)} aria-label={`${volume.name}: ${copies.map((copy) => `${copy.node_name} ${copyState(copy.state)}`).join(', ')}`}>
                <rect x={0} y={y - ROW / 2} width={whole} height={ROW} fill="transparent" />
                <text x={4} y={y + 4} fill={text} fontSize={13}>
                  {shorten(volume.name, Math.floor(labels / 8.5))}
                </text>
                <line x1={xs[0]} x2={xs.at(-1)} y1={y} y2={y} stroke={dim} strokeWidth={2} />
                {copies.map((copy) => {
                  const node = nodes.find((one) => one.id === copy.node)
                  const tone: Tone = !node?.up ? 'critical' : copy.state === 'in_sync' ? 'ok' : copy.state === 'catching_up' || (copy.sync && !copy.sync.waits_for) ? 'working' : 'warning'
                  const done = copy.state === 'in_sync'
                  return (
                    <circle key={copy.slot} cx={x(copy.node)} cy={y} r={8} fill={done && node?.up ? ink(tone) : dark ? '#25262b' : '#ffffff'} stroke={ink(tone)} strokeWidth={3}>
                      <title>{`${volume.name} on ${copy.node_name}: ${node?.up ? copyState(copy.state) : 'node down'}`}</title>
                    </circle>
                  )
                })}
              </a>
            )
          })}
          <text x={4} y={below + 14} fill={dim} fontSize={12} fontWeight={650}>
            Hosts
          </text>
          <line x1={52} x2={whole} y1={below + 10} y2={below + 10} stroke={line} strokeWidth={1} />
          {shown.length === 0 && (
            <text x={labels} y={below + CAPTION + ROW / 2 + 4} fill={dim} fontSize={13}>
              No host is logged in.
            </text>
          )}
          {shown.map((host, row) => {
            const y = below + CAPTION + row * ROW + ROW / 2
            const ways = [...host.sessions.keys()].map((id) => x(id))
            const words = nodes.filter((node) => host.sessions.has(node.id)).map((node) => node.name).join(', ')
            const lacking = host.lacks.map((id) => nodes.find((node) => node.id === id)?.name ?? `node ${id}`).join(', ')
            return (
              <a key={host.initiator} href={link('hosts')} aria-label={`Host ${host.name}: uses ${words}${lacking ? `; no path through ${lacking}` : ''}`}>
                <title>{`${host.initiator}: uses ${words}${lacking ? `; no path through ${lacking}` : ''}`}</title>
                <rect x={0} y={y - ROW / 2} width={whole} height={ROW} fill="transparent" />
                <text x={4} y={y + 4} fill={text} fontSize={13}>
                  {shorten(host.name.replace(/^.*:/, ''), Math.floor(labels / 8.5))}
                </text>
                <line x1={Math.min(...ways)} x2={Math.max(...ways)} y1={y} y2={y} stroke={dim} strokeWidth={2} />
                {nodes.map((node) => {
                  const sessions = host.sessions.get(node.id)
                  if (sessions === undefined && !host.lacks.includes(node.id)) return null
                  const tone: Tone = sessions !== undefined ? 'ok' : node.up ? 'warning' : 'critical'
                  return (
                    <rect key={node.id} x={x(node.id) - 8} y={y - 8} width={16} height={16} rx={3} fill={sessions !== undefined ? ink(tone) : dark ? '#25262b' : '#ffffff'} stroke={ink(tone)} strokeWidth={2.5} strokeDasharray={sessions === undefined ? '4 3' : undefined}>
                      <title>{sessions !== undefined ? `${host.name} has ${plural(sessions, 'session')} with ${node.name}` : `${host.name} has no session with ${node.name}, which has a copy of a volume that the host uses`}</title>
                    </rect>
                  )
                })}
              </a>
            )
          })}
        </svg>
      )}
      {hosts.length > shown.length && <Text size="sm" c="dimmed" mt="xs">{plural(hosts.length - shown.length, 'more host')} not shown.</Text>}
      {volumes.length > drawn.length && <Text size="sm" c="dimmed" mt="xs">{plural(volumes.length - drawn.length, 'more volume')} not shown; those with problems come first.</Text>}
    </div>
  )
}
