import { expect, it } from 'vitest'
import type { Job } from '../api/types'
import { node } from './fixtures'
import { cancelMeaning, endLine, endState, endWhy, endWord, jobLine, jobLink, jobWhy, jobWord, pauseMeaning } from './job'
import { elsewhere, missingLine } from './missing'

const job = (more: Partial<Job> = {}): Job => ({ id: 'copy.1', kind: 'sync', subject: 'db', state: 'running', node: 2, can_be_cancelled: false, ...more })
const nodes = [node(1), node(2)]

it('describes the work and its nodes', () => {
  expect(jobWord(job(), nodes)).toBe('on n2: resyncing')
  expect(jobWord(job({ state: 'waiting', node: 7 }), nodes)).toBe('on node 7: waiting to resync')
  expect(jobWord(job({ state: 'paused', paused: { by: 'eva', since: 9 } }), nodes)).toBe('on n2: paused by eva')
  expect(jobWord(job({ kind: 'move_copy', from_node: 1 }), nodes)).toBe('from n1 to n2: moving a copy')
  expect(jobWord(job({ kind: 'remove_copy' }), nodes)).toBe('on n2: removing a copy')
  expect(jobWord(job({ kind: 'verify' }), nodes)).toBe('verifying its copies, by n2')
  expect(jobWord(job({ kind: 'scrub' }), nodes)).toBe('on n2: scrubbing')
  expect(jobWord(job({ kind: 'convert' }), nodes)).toBe('on n2: converting')
  expect(jobWord(job({ kind: 'change', state: 'waiting' }), nodes)).toBe('on n2: waiting')
})

it('describes the freeing of deleted snapshots, and its pause', () => {
  const freeing = job({ kind: 'free_snapshots', subject: 'default' })
  expect(jobWord(freeing, nodes)).toBe('on n2: freeing deleted snapshots')
  expect(jobWhy({ ...freeing, paused: { by: 'eva', since: 40 } }, 100)).toBe('paused by eva 1 min ago: deleted snapshots keep their space.')
  expect(pauseMeaning(freeing)).toContain('until you resume the job, or the pool is opened again')
  expect(pauseMeaning(job())).toContain('even if nodes restart')
})

it('describes what ended, and how', () => {
  const cause = 'its node restarted'
  const moved = job({ kind: 'move_copy', from_node: 1, state: 'ended', cause, ended: { at: 40 } })
  expect(endWord(moved, nodes)).toBe('from n1 to n2: move of a copy')
  expect(endState(moved)).toEqual({ word: 'done', tone: 'ok' })
  expect(endLine(moved, 100)).toBe('1 min ago')
  expect(endWhy(moved)).toBe('Cause: its node restarted.')
  const added = job({ kind: 'add_copy', state: 'cancelled', ended: { at: 40, reason: 'the volume was deleted' } })
  expect(endState(added)).toEqual({ word: 'cancelled', tone: 'off' })
  expect(endWhy(added)).toBe('the volume was deleted.')
  expect(endWord(job({ kind: 'change' }), [])).toBe('on node 2')
})

it('shows the result of a verify', () => {
  const compared = (different_bytes: number, unchecked_bytes = 0) => job({ kind: 'verify', state: 'ended', ended: { at: 40, took_s: 48, found: { equal: different_bytes + unchecked_bytes === 0, different_bytes, unchecked_bytes } } })
  expect(endWord(compared(0), nodes)).toBe('verify of its copies, by n2')
  expect(endLine(compared(0), 45)).toBe('5 s ago, took 48 s')
  expect(endState(compared(0))).toEqual({ word: 'identical', tone: 'ok' })
  expect(endState(compared(512))).toEqual({ word: 'copies differ', tone: 'critical' })
  expect(endState(compared(0, 512))).toEqual({ word: 'not fully compared', tone: 'warning' })
  expect(endState({ ...compared(0, 512), state: 'failed' })).toEqual({ word: 'failed', tone: 'warning' })
})

it('shows the progress, and omits what is unknown', () => {
  expect(jobLine(job({ bytes_done: 2 ** 30, bytes_total: 4 * 2 ** 30, rate: 2 ** 26, eta_s: 48 }))).toBe('1GiB of 4GiB done, 64MiB/s, 48 s to go')
  expect(jobLine(job({ state: 'paused', bytes_done: 1, bytes_total: 2, rate: 9, eta_s: 48 }))).toBe('1B of 2B done')
  expect(jobLine(job({ age_s: 5 }))).toBe('for 5 s')
  expect(jobLine(job({ bytes_done: 0, bytes_total: 0, rate: 0, eta_s: null }))).toBe('')
})

it('says what it waits for', () => {
  const cause = 'its node restarted'
  expect(jobWhy(job(), 100)).toBe('')
  expect(jobWhy(job({ cause }), 100)).toBe('Cause: its node restarted.')
  expect(jobWhy(job({ cause, limited_by: 'cluster_limit' }), 100)).toBe('Cause: its node restarted; limited by the cluster’s resync limit.')
  expect(jobWhy(job({ cause, limited_by: 'hosts', waits_for: 'a link' }), 100)).toBe('Cause: its node restarted; waits for a link.')
  expect(jobWhy(job({ limited_by: 'paused', paused: { by: 'eva', since: 40 } }), 100)).toBe('paused by eva 1 min ago: this copy adds no redundancy until it is in sync.')
})

it('leads to what it is about', () => {
  const of = (kind: Job['kind'], subject: string) => jobLink(job({ kind, subject }))
  expect([of('sync', 'db'), of('free_snapshots', 'default'), of('change', 'deleting volume')]).toEqual(['#/volumes/db', '#/pools', undefined])
})

it('says what stays when it is cancelled', () => {
  expect(cancelMeaning(job({ kind: 'move_copy' }))).toContain('the old one stays')
  expect(cancelMeaning(job({ kind: 'remove_copy' }))).toBe('The copy stays where it is.')
  expect(cancelMeaning(job({ kind: 'verify' }))).toContain('changes no data')
})

it('names nodes whose jobs are missing', () => {
  expect(missingLine('Pools', [{ node: 3, node_name: 'n3', reason: 'it did not answer' }, { node: 4, node_name: '', reason: 'it is down' }])).toBe(
    'Pools of n3 (node 3) are missing: it did not answer. Pools of node 4 are missing: it is down.',
  )
})

it('sends changes to the node of the job', () => {
  expect(elsewhere({ node: 1 }, nodes)).toBeUndefined()
  expect(elsewhere({ node: 2 }, nodes)).toBe(2)
  // It is not known yet which node receives the request: to name the node is always right.
  expect(elsewhere({ node: 1 }, undefined)).toBe(1)
})
