import { describe, expect, it } from 'vitest'
import type { Node, NodeProblem, Pool } from '../api/types'
import { node, volume } from './fixtures'
import { type Observed, allWell, findings, lasting, problemsIn, worst } from './health'

const pool: Pool = { name: 'default', state: 'online', disks: [], extent: 1, free: 50, total: 100, volumes: 1 }
const state: Node = { name: 'n1', version: '0', cores: 1, uptime: 1, portals: [], changes: [], problems: [] }
const well = { nodes: [node(1), node(2), node(3)], volumes: [volume('db', [[1, 'in_sync'], [2, 'in_sync']])], pools: [pool], problems: [], silent: [], missing: [], asked_at: 1000 }
const said = (text: string, node?: number): NodeProblem => (node === undefined ? { text } : { text, node, node_name: `n${node}` })
/** The same, of a kind, and about something. */
const of = (code: string, subject: string, problem: NodeProblem): NodeProblem => ({ ...problem, code, subject })
const readOnly = (node?: number) => of('pool_read_only', 'default', said('pool default is read-only', node))

describe('health', () => {
  it('has nothing to say when all is well', () => {
    expect(findings(well)).toEqual([])
    expect(worst([])).toBe('ok')
  })
  it('names the node that is down, and says what to do', () => {
    const found = findings({ ...well, nodes: [node(1), node(2), node(3, { up: false })] })
    expect(found).toHaveLength(1)
    expect(found[0]?.severity, 'all is served').toBe('warning')
    expect(found[0]?.cause).toContain('n3 (node 3) is down')
    expect(found[0]?.action).toContain('systemctl start ursa')
  })
  it('has one cause for a node that is cut off from the asked one, which says what is known', () => {
    const nodes = [node(1), node(2), node(3, { up: false, reached_by: [2] })]
    const own = of('node_cut_off', '3', said('node 3 (n3) has not responded to this node on any link for 12 seconds, and node 2 (n2) reaches it: check the network', 1))
    const silent = [{ node: 3, node_name: 'n3', reason: 'heartbeat timeout' }]
    const found = findings({ ...well, nodes, problems: [own], silent })
    expect(found.map((f) => f.cause)).toEqual(['n3 (node 3) is cut off from n1 (node 1) on every link; n2 (node 2) reaches it.'])
    expect(found[0]).toMatchObject({ key: 'cut off 3', severity: 'warning' })
    const ofAnother = of('node_cut_off', '3', said('node 3 (n3) is up, but this node has not reached it', 2))
    expect(findings({ ...well, nodes, problems: [own, ofAnother] })).toHaveLength(2)
  })
  it('says since when it is so, as nodes know it', () => {
    const down = (id: number, at: number) => node(id, { up: false, down_since: { at } })
    const since = (observed: Partial<Observed>) => Object.fromEntries(findings({ ...well, ...observed }).map((finding) => [finding.key, finding.since]))
    expect(since({ nodes: [node(1), node(2, { maintenance: true, maintenance_since: 70 }), down(3, 50)] })).toEqual({ 'maintenance 2': { at: 70 }, 'down 3': { at: 50 } })
    // A majority was there until the second was lost.
    expect(since({ nodes: [node(1), down(2, 60), down(3, 50)] })['no majority']).toEqual({ at: 60 })
    const behind = (name: string, at: number) => {
      const one = volume(name, [[1, 'in_sync'], [2, 'out_of_sync']])
      one.copies![1]!.sync = { bytes_per_second: 1, cause: 'its node restarted', copied_bytes: 0, left_bytes: 5, total_bytes: 9, since: { at, or_earlier: true } }
      return one
    }
    expect(since({ volumes: [behind('db', 40), behind('mail', 30)] })).toEqual({ 'running syncs': { at: 30, or_earlier: true } })
    const problem = (text: string, id: number, at: number) => ({ ...said(text, id), since: { at } })
    const problems = [problem('etcd cannot be used', 1, 20), problem('etcd cannot be used', 2, 10), { ...readOnly(1), since: { at: 15 } }]
    const broken: Pool = { ...pool, state: 'read_only', node: 1, node_name: 'n1' }
    expect(Object.values(since({ pools: [broken], problems }))).toEqual([{ at: 15 }, { at: 10 }])
    // Not known to the node: the page says since when it has seen it.
    expect(since({ volumes: [volume('db', [], { problem: 'its pool is not open' })] })).toEqual({ 'problem id-db': undefined })
  })
  it('takes advice for no trouble', () => {
    const found = findings({ ...well, nodes: [node(1), node(2, { votes: false })], pools: [{ ...pool, free: 1 }] })
    expect(found.map((f) => [f.key, f.severity])).toEqual([['full default', 'advice'], ['two nodes', 'advice']])
    expect([worst(found), problemsIn(found)]).toEqual(['ok', 0])
    const [short] = findings({ ...well, nodes: [node(1)], pools: [{ ...pool, overcommit: { promised: 3 * 2 ** 30, free: 2 ** 30 } }] })
    expect([short?.key, short?.severity]).toEqual(['overcommit default', 'advice'])
    expect(short?.cause).toMatch(/1.?GiB free, and pools on it may still need 3.?GiB/)
    const down = findings({ ...well, nodes: [node(1), node(2, { votes: false, up: false })] })
    expect(down.map((f) => f.key), 'advice comes last').toEqual(['down 2', 'two nodes'])
    expect([worst(down), problemsIn(down)]).toEqual(['warning', 1])
  })
  it('names a change that does not end, since it began', () => {
    const change = (age: number) => ({ what: 'deleting volume "x"', age, waits_for: 'a response from /dev/sdb' })
    const found = findings({ ...well, node: { ...state, changes: [change(300), change(400)] } })
    expect(found).toHaveLength(1)
    expect(found[0]).toMatchObject({ severity: 'warning', since: { at: 600 }, cause: 'Deleting volume "x" has not finished: it waits for a response from /dev/sdb.' })
  })
  it('says how sure an age is', () => {
    expect([lasting('3 min', { at: 5 }), lasting('3 min', { at: 5, or_earlier: true }), lasting('3 min', undefined)]).toEqual(['for 3 min', 'for at least 3 min', 'seen here for 3 min'])
  })
  it('says that a sync mends itself, and puts what is worse first', () => {
    const db = volume('db', [[1, 'in_sync'], [2, 'catching_up']])
    db.copies![1]!.sync = { cause: 'its node restarted', copied_bytes: 3, left_bytes: 1, total_bytes: 4, bytes_per_second: 1 }
    const found = findings({ ...well, volumes: [db], pools: [{ ...pool, state: 'unavailable', reason: 'no such file' }] })
    expect(found.map((finding) => finding.severity)).toEqual(['warning', 'working'])
    expect(found[0]?.cause).toBe('Pool default is unavailable: no such file.')
    expect(found[1]?.cause).toContain('75 %')
  })
  it('tells a split volume apart from one that goes on alone', () => {
    const alone = volume('db', [[1, 'in_sync']], { fork: { node: 2, since: 5, split: false } })
    const split = volume('db', [[1, 'in_sync']], { fork: { node: 2, since: 5, split: true } })
    expect(findings({ ...well, volumes: [alone] })[0]?.severity).toBe('warning')
    expect(findings({ ...well, volumes: [split] })[0]?.severity).toBe('critical')
  })
  it('says that a volume is not served when no copy but the failed one is in sync', () => {
    const causes = (there: 'in_sync' | 'out_of_sync') => findings({ ...well, volumes: [volume('db', [[1, 'in_sync'], [2, there]], { problem: 'a write to this copy failed' })] }).map((f) => f.cause)
    expect(causes('in_sync')).toEqual([])
    expect(causes('out_of_sync')[0]).toBe('Volume db is unavailable: a write to this copy failed')
  })
  it('says what is missing without a majority, and with two nodes', () => {
    const one = findings({ ...well, nodes: [node(1), node(2, { up: false }), node(3, { up: false })] })
    expect(one.map((finding) => finding.key)).toContain('no majority')
    expect(findings({ ...well, nodes: [node(1), node(2, { votes: false })] }).map((f) => f.key)).toEqual(['two nodes'])
  })
  it('knows that with etcd no node votes, and that two are enough', () => {
    const record = { place: 'etcd' as const, answers: true, endpoints: ['http://10.0.0.9:2379'] }
    expect(findings({ ...well, node: { ...state, record }, nodes: [node(1, { votes: false }), node(2, { votes: false })] })).toEqual([])
  })
  it('names the node of a pool, and takes what a node says for its own pools', () => {
    const other: Pool = { ...pool, state: 'read_only', node: 2, node_name: 'n2' }
    const found = findings({ ...well, pools: [other], problems: [readOnly(1), readOnly(2)] })
    expect(found.map((f) => f.cause)).toEqual(['Pool default on n2 is read-only: a metadata write failed. Volume I/O continues.', 'n1 (node 1): pool default is read-only'])
  })
  it('takes in what any node says, with its name, and what several say once', () => {
    const problems = [said('etcd cannot be used', 1), said('the audit log cannot be written: its disk has not answered for 5 seconds', 3), said('etcd cannot be used', 2)]
    const found = findings({ ...well, problems })
    expect(found.map((f) => f.cause)).toEqual(['n1 (node 1) and n2 (node 2): etcd cannot be used', 'n3 (node 3): the audit log cannot be written: its disk has not answered for 5 seconds'])
    expect(found[1]).toMatchObject({ severity: 'warning', action: 'Do what the message says; the log of n3 (node 3) has details (journalctl -u ursa).' })
    const later = findings({ ...well, problems: [said('the audit log cannot be written: its disk has not answered for 7 seconds', 3)] })
    expect(later[0]?.key, 'the same, for longer').toBe(found[1]?.key)
  })
  it('leads from read errors, and from a pool that was set back, to what can be done about them', () => {
    const readErrors = (count: number) => of('read_failed', '/dev/sdb', { ...said(`disk /dev/sdb of pool default failed to read ${count} blocks`, 1), since: { at: 9 } })
    const setBack = (copies: number) => of('pool_set_back', 'default', said(`pool default (/dev/sdb) was set back: it holds an older state than when it was last used; ${copies} of its copies are resynced in full`, 2))
    const found = findings({ ...well, problems: [readErrors(2), setBack(3)] })
    expect(found.map((f) => [f.severity, f.link, f.since])).toEqual([['warning', '#/pools', { at: 9 }], ['warning', '#/pools', undefined]])
    expect(found[0]?.action).toMatch(/acknowledge the read errors/)
    expect(found[1]?.action).toMatch(/accept the older data/)
    const later = findings({ ...well, problems: [readErrors(4), setBack(1)] })
    expect(later.map((f) => f.key), 'the same, though figures have changed').toEqual(found.map((f) => f.key))
  })
  it('says once that a node does not say how it is, and not of one that is down', () => {
    const missing = [2, 2, 3].map((id) => ({ node: id, node_name: `n${id}`, reason: 'it did not answer within 2 s' }))
    const nodes = [node(1), node(2), node(3, { up: false })]
    const found = findings({ ...well, nodes, silent: missing, missing })
    expect(found.map((f) => f.key)).toEqual(['down 3', 'silent 2'])
    expect(found[1]?.cause).toBe('n2 (node 2) does not report its health: it did not answer within 2 s.')
    // Its pools, say, while it does say that it has no problem.
    expect(findings({ ...well, nodes, missing })[1]?.cause).toBe('n2 (node 2) does not report all of its pools, volumes and sessions: it did not answer within 2 s.')
  })
  it('claims no more than what is known', () => {
    expect(allWell(well)).toBe('All 3 nodes are up and report no problems, all volumes are served, all copies are in sync, all pools are online. No action needed.')
    expect(allWell({ volumes: [], pools: [{ ...pool, state: 'exported' }], problems: [], silent: [], missing: [], asked_at: 1000 })).toBe('This node is up and reports no problems. No action needed.')
    const unsaid = findings({ ...well, volumes: [volume('db', [[1, 'in_sync'], [2, 'out_of_sync']])] })
    expect(unsaid.map((f) => f.cause)).toEqual(['1 copy is out of sync, progress not known yet.'])
  })
  it('reminds of a sync that somebody has paused', () => {
    const behind = volume('db', [[1, 'in_sync'], [2, 'out_of_sync']])
    const sync = { bytes_per_second: 0, cause: 'its node restarted', copied_bytes: 0, left_bytes: 5, total_bytes: 9, waits_for: 'an administrator to resume it', paused: { by: 'eva', since: 9 } }
    behind.copies![1]!.sync = sync
    const found = findings({ ...well, volumes: [behind] })
    expect(found).toHaveLength(1)
    expect(found[0]).toMatchObject({ severity: 'warning', since: { at: 9 }, cause: 'The resync of db on node 2 was paused by eva: the volume has reduced redundancy.' })
  })
  it('does not say the same twice', () => {
    const broken: Pool = { ...pool, state: 'read_only' }
    const problems = [readOnly(), said('something else')]
    expect(findings({ ...well, pools: [broken], problems }).map((f) => f.key)).toEqual(['pool default', 'problem something else'])
    const failed: Pool = { ...pool, state: 'disk_failed', disks: [{ path: '/dev/sdb', total: 0, free: 0 }] }
    const ofDisk = (path: string) => of('disk_failed', path, said(`disk ${path} is out of service`))
    expect(findings({ ...well, pools: [failed], problems: [ofDisk('/dev/sdb'), ofDisk('/dev/sdc')] }).map((f) => f.key)).toEqual(['pool default', 'problem disk /dev/sdc is out of service'])
  })
})
