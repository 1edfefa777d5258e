import { expect, it } from 'vitest'
import { finding, schedule, snapshot } from './fixtures'
import { aboutSnapshots, filterOf, filtered } from './snapshotlist'

const now = 1_800_000_000
const of = (number: number, more: Parameters<typeof snapshot>[2] = {}, frees = 0) => snapshot(`s${number}`, { db: [{ frees }] }, { number, created: now - 1000, ...more })
const OLD = { created: now - 31 * 86_400 }
const all = [of(1, OLD, 5), of(2, { ...OLD, schedule: 'hourly' }, 9), of(3, { held: true, labels: { app: 'shop' } }), of(4, {}, 7)]
const found = (query: string, more: Partial<ReturnType<typeof filterOf>> = {}) => filtered(all, { ...filterOf(new URLSearchParams(query)), ...more }, [schedule('hourly')], now).map(({ number }) => number)

it('lists the newest first, or those that free most', () => {
  expect([found(''), found('sort=frees'), found('sort=x&show=x')]).toEqual([[4, 3, 2, 1], [2, 4, 1, 3], [4, 3, 2, 1]])
  expect(all.map(({ number }) => number)).toEqual([1, 2, 3, 4])
})

it('finds old ones, those on hold, and by name, volume, label or schedule', () => {
  expect([found('show=old'), found('show=held'), found('', { labels: ['app'] }), found('', { labels: ['app=x'] })]).toEqual([[1], [3], [3], []])
  expect([found('find=S2'), found('find=DB').length, found('find=shop'), found('find=hourly'), found('find=nothing')]).toEqual([[2], 4, [3], [2], []])
})

it('shows the findings that are acted on here', () => {
  const codes = ['snapshots-old', 'snapshot-space', 'pool-nearly-full'] as const
  expect(aboutSnapshots(codes.map((code) => finding(code, { kind: 'pool' }))).map(({ code }) => code)).toEqual(['snapshots-old', 'snapshot-space'])
})
