import { expect, it } from 'vitest'
import type { NodeLink, RoleLinks } from '../api/types'
import { between, betweenWords, controlWords, dataWords, linkLines } from './between'
import { node } from './fixtures'

const up = (count: number, address: string): RoleLinks => ({ up: count, of: count, addresses: [address], age: 11_040, silence: 0 })
const down = (of: number, silence?: number): RoleLinks => ({ up: 0, of, addresses: [], silence })

function link(from: number, to: number, state: NodeLink['state'], more: Partial<NodeLink> = {}): NodeLink {
  const address = `10.0.0.${to}`
  const control = state === 'down' ? down(1, 41) : up(1, address)
  const replication = state === 'up' ? up(4, address) : down(4, 41)
  return { node: from, node_name: `n${from}`, peer: to, peer_name: `n${to}`, state, control, replication, encrypted: true, ...more }
}

const THREE = [node(1), node(2), node(3)]
const seen = (links: NodeLink[]) => between(THREE, links).map((pair) => `${pair.nodes[0].id}-${pair.nodes[1].id} ${pair.seen}`)

it('shows a cut between two other nodes', () => {
  const links = [link(1, 2, 'up'), link(1, 3, 'up'), link(2, 1, 'up'), link(2, 3, 'down'), link(3, 1, 'up'), link(3, 2, 'down')]
  expect(seen(links)).toEqual(['1-2 up', '1-3 up', '2-3 down'])
})

it('uses the report of one node if the other is unreachable, and says if both are', () => {
  expect(seen([link(1, 2, 'up'), link(1, 3, 'down')])).toEqual(['1-2 up', '1-3 down', '2-3 unknown'])
  expect(seen([link(3, 2, 'partly')])).toEqual(['1-2 unknown', '1-3 unknown', '2-3 partly'])
  const [pair] = between([node(1), node(2)], [link(2, 1, 'up')])
  expect(pair && betweenWords(pair)).toBe('Links between n1 (node 1) and n2 (node 2): up. n1 (node 1) did not report. n2 (node 2) reports: Heartbeats: up for 3 h 4 min via 10.0.0.1; Data: 4 of 4 up for 3 h 4 min via 10.0.0.1.')
})

it('shows where the two reports differ', () => {
  expect(seen([link(1, 2, 'up'), link(2, 1, 'down')])[0]).toBe('1-2 one_sided')
  expect(seen([link(1, 2, 'partly'), link(2, 1, 'up')])[0]).toBe('1-2 one_sided')
  expect(seen([link(1, 2, 'partly'), link(2, 1, 'partly')])[0]).toBe('1-2 partly')
})

it('describes links of a role', () => {
  expect(controlWords(up(1, '10.0.0.2'))).toBe('up for 3 h 4 min via 10.0.0.2')
  expect(controlWords(down(1, 41))).toBe('no link, last contact 41 s ago')
  expect(dataWords({ ...up(4, '10.0.0.2'), up: 3, addresses: ['10.0.0.2', '10.1.0.2'] })).toBe('3 of 4 up for 3 h 4 min via 10.0.0.2 and 10.1.0.2')
  expect(dataWords(down(0))).toBe('0 up, no contact since this node started')
})

it('says why links cannot be established, and which are not encrypted', () => {
  const trouble = 'no route to host'
  expect(linkLines(link(1, 2, 'down', { trouble }))).toEqual(['Heartbeats: no link, last contact 41 s ago', 'Data: 0 of 4 up, last contact 41 s ago', 'The last attempt failed: no route to host'])
  expect(linkLines(link(1, 2, 'up', { trouble, encrypted: false }))[2]).toBe('NOT ENCRYPTED')
  expect(linkLines(link(1, 2, 'up', { trouble }))).toHaveLength(2)
})

it('says that not all cores have reported their links', () => {
  expect(linkLines(link(1, 2, 'partly', { silent_cores: [2] }))[2]).toBe('A core has not reported (2): more links may be up than counted')
  expect(linkLines(link(1, 2, 'partly', { silent_cores: [1, 2] }))[2]).toBe('2 cores have not reported (1, 2): more links may be up than counted')
})
