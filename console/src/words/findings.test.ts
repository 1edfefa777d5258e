import { describe, expect, it } from 'vitest'
import type { Finding, Pool } from '../api/types'
import { finding, node, volume } from './fixtures'
import { allWell, findingsOf, keyOf, linkOf, problemsIn, toneOf, worstTone } from './findings'

const pool: Pool = { name: 'default', state: 'online', disks: [], extent: 1, free: 50, used: 50, total: 100, volumes: 1, node: 1, node_name: 'n1' }

describe('findings', () => {
  const down = finding('node-down', { kind: 'node', name: 'n3', node: 3 })
  const resync = finding('resync-running', { kind: 'copy', name: 'db', id: '7', node: 2 }, { action: undefined })
  const advice = finding('no-witness', { kind: 'cluster' }, { severity: 'info' })
  const split = finding('split-brain', { kind: 'volume', name: 'db', id: '7' }, { severity: 'critical' })

  it('are coloured by severity, and those that clear automatically as work in progress', () => {
    expect([down, resync, advice, split].map(toneOf)).toEqual(['warning', 'working', 'info', 'critical'])
  })
  it('are as severe as the worst one, and advice does not count', () => {
    expect([[split, down], [down, resync], [resync, advice], [advice], []].map(worstTone)).toEqual(['critical', 'warning', 'working', 'ok', 'ok'])
    expect(problemsIn([split, down, resync, advice])).toBe(2)
  })
  it('are recognized by code and subject, whatever their text', () => {
    expect(keyOf({ ...down, cause: 'in other words' })).toBe(keyOf(down))
    const others: Finding[] = [{ ...down, code: 'node-silent' }, { ...down, subject: { ...down.subject, node: 2 } }, { ...down, seen_by: [2] }]
    expect(new Set([down, ...others].map(keyOf)).size).toBe(4)
    expect(keyOf({ ...split, subject: { ...split.subject, name: 'renamed' } })).toBe(keyOf(split))
  })
  it('lead to the screen of their subject', () => {
    expect([down, resync, advice, split].map(linkOf)).toEqual(['#/nodes', '#/volumes/db', '#/nodes', '#/volumes/db'])
    expect(linkOf({ ...resync, subject: { kind: 'copy' } })).toBe('#/jobs')
    expect(linkOf({ ...resync, code: 'resync-paused' })).toBe('#/jobs')
    expect(linkOf(finding('read-failed', { kind: 'disk', name: '/dev/sdb' }))).toBe('#/pools')
    expect(linkOf(finding('change-stuck', { kind: 'change', name: 'deleting volume' }))).toBe('#/jobs')
    expect(linkOf(finding('snapshot-schedule-missed', { kind: 'schedule', name: 'hourly' }))).toBe('#/schedules')
    expect(linkOf(finding('snapshots-old', { kind: 'cluster' }))).toBe('#/snapshots?show=old')
    expect(linkOf(finding('snapshot-space', { kind: 'pool', name: 'default', node: 1 }))).toBe('#/snapshots?sort=frees')
  })
})

it('claims only what is known if there are no findings', () => {
  const three = [node(1), node(2), node(3)]
  expect(allWell(three, [volume('db', [[1, 'in_sync'], [2, 'in_sync']])], [pool])).toBe('All 3 nodes are up and report no problems, all volumes are served, all copies are in sync, all pools are online. No action needed.')
  expect(allWell([node(1)], [], [{ ...pool, state: 'exported' }])).toBe('This node is up and reports no problems. No action needed.')
})

it('knows which findings concern a pool', () => {
  const one: Pool = { ...pool, name: 'fast', node: 2, disks: [{ path: '/dev/sdb', total: 0, free: 0 }, { path: '/dev/sdc', total: 0, free: 0 }] }
  const setBack = (name: string, node: number) => finding('pool-set-back', { kind: 'pool', name, node })
  const readFailed = (name: string, node: number) => finding('read-failed', { kind: 'disk', name, node })
  const found = [setBack('fast', 1), setBack('slow', 2), setBack('fast', 2), readFailed('/dev/sdb', 1), readFailed('/dev/sdc', 2), finding('disk-failed', { kind: 'disk', name: '/dev/sdb', node: 2 })]
  expect(findingsOf(one, found)).toEqual({ setBack: found[2], readErrors: [found[4]], known: true })
  const snapshots = finding('snapshot-space', { kind: 'pool', name: 'fast', node: 2 })
  expect(findingsOf(one, [finding('snapshot-space', { kind: 'pool', name: 'fast', node: 1 }), snapshots]).snapshotSpace).toBe(snapshots)
  expect(findingsOf(one, undefined)).toEqual({ setBack: undefined, readErrors: [], known: false })
  expect(findingsOf(one, [finding('node-silent', { kind: 'node', name: 'n2', node: 2 })]).known).toBe(false)
})
