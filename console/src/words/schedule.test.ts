import { describe, expect, it } from 'vitest'
import { schedule, snapshot, volume } from './fixtures'
import { afterChangeWord, changeRequest, createRequest, draftOf, emptySchedule, keepsLines, keepsWord, nextWord, scheduleCommand, scheduleProblems, scheduleState } from './schedule'

const VOLUMES = ['db', 'logs', 'mail'].map((name) => volume(name, [], { kind: 'log' }))

describe('a schedule', () => {
  it('is active, retries, has missed a snapshot, or is paused', () => {
    const problem = 'node 2 does not respond'
    const missed = scheduleState(schedule('s', { missed_since: 1_795_348_800, problem }))
    const all = [scheduleState(schedule('s')), scheduleState(schedule('s', { problem })), missed, scheduleState(schedule('s', { paused: true, problem }))]
    expect(all.map(({ word, tone }) => [word, tone])).toEqual([['active', 'ok'], ['retrying', 'working'], ['missed', 'warning'], ['paused', 'off']])
    expect(missed.why).toMatch(/node 2 does not respond/)
    expect(scheduleState(schedule('s', { missed_since: 1 })).why).toMatch(/No node has tried/)
  })

  it('says what it keeps, and when the next one is due', () => {
    expect(keepsWord(schedule('s', { weekly: 4, monthly: 12 }))).toBe('24 latest, 7 daily, 4 weekly, 12 monthly')
    expect([nextWord(schedule('s', { next: 1000 }), 400), nextWord(schedule('s', { next: 1000 }), 1060), nextWord(schedule('s', { next: null }), 0)]).toEqual(['in 10 min', 'due for 1 min', '–'])
    expect(keepsLines(3600, { keep: 24, daily: 7, weekly: 1, monthly: 0 })).toEqual([
      'the latest 24 snapshots: they reach back 1 d',
      'the last snapshot of each day, for the latest 7 days with one',
      'the last snapshot of each week, for the latest 1 week with one',
      'at most 32 in all; one that several rules keep counts once',
    ])
    expect(keepsLines(60, { keep: 1, daily: 0, weekly: 0, monthly: 0 })).toEqual(['the latest snapshot'])
  })

  it('is created with a valid name, interval and rules', () => {
    const problems = (more: Partial<typeof emptySchedule>) => scheduleProblems({ ...emptySchedule, name: 'nightly', ...more }, [schedule('hourly')])
    expect([problems({}), problems({ name: '' })]).toEqual([{}, {}])
    expect(problems({ name: 'hourly' }).name).toBe('Schedule hourly exists already')
    expect(problems({ name: '17' }).name).toMatch(/digits only/)
    expect(problems({ name: 'a b' }).name).toMatch(/^Only letters/)
    expect([problems({ name: 'x'.repeat(42) }).name, problems({ name: 'x'.repeat(43) }).name]).toEqual([undefined, expect.stringMatching(/^At most 42/)])
    expect(['', '1', '90s', '0m', '367d'].map((every) => problems({ every }).every !== undefined)).toEqual(Array(5).fill(true))
    expect(['1m', '120s', '366d'].map((every) => problems({ every }).every)).toEqual([undefined, undefined, undefined])
    expect(problems({ keep: '', daily: 0, weekly: '', monthly: '' }).keep).toMatch(/nothing would be kept/)
    expect([problems({ keep: 889 }).keep, problems({ keep: 890 }).keep]).toEqual([undefined, '901 snapshots: a schedule keeps at most 900'])
  })

  it('is created as on the command line', () => {
    const request = createRequest({ ...emptySchedule, name: 'hourly', volumes: ['id-db', 'id-logs'] })
    expect(request).toEqual({ name: 'hourly', volumes: ['id-db', 'id-logs'], every: 3600, keep: 24, daily: 7, weekly: 4, monthly: 0 })
    expect(scheduleCommand('create', 'hourly', request, VOLUMES)).toBe('ursa snapshot schedule create hourly --volumes db,logs --every 1h --keep 24 --daily 7 --weekly 4')
    expect(scheduleCommand('create', '', createRequest({ ...emptySchedule, every: 'x' }), VOLUMES)).toBe('ursa snapshot schedule create NAME --volumes VOLUME --every TIME --keep 24 --daily 7 --weekly 4')
  })

  it('is changed by what differs', () => {
    const hourly = schedule('hourly')
    const draft = draftOf(hourly, VOLUMES)
    expect(changeRequest(hourly, draft, VOLUMES)).toEqual({})
    expect(changeRequest(hourly, { ...draft, volumes: [...draft.volumes].reverse() }, VOLUMES)).toEqual({})
    const request = changeRequest(hourly, { ...draft, volumes: ['id-mail'], every: '15m', keep: 96, daily: '' }, VOLUMES)
    expect(request).toEqual({ volumes: ['id-mail'], every: 900, keep: 96, daily: 0 })
    expect(scheduleCommand('change', 'hourly', request, VOLUMES)).toBe('ursa snapshot schedule change hourly --volumes mail --every 15m --keep 96 --daily 0')
    // A volume that was deleted keeps its name, and does not count as a change.
    expect(changeRequest(hourly, draftOf(hourly, VOLUMES.slice(1)), VOLUMES.slice(1))).toEqual({})
  })

  it('says what a change deletes', () => {
    const now = 1_795_400_000
    const taken = [1, 2, 3].map((number) => snapshot(`h-${number}`, {}, { number, schedule: 'hourly', created: now - 3600 * (4 - number) }))
    const word = (keep: number, of = taken) => afterChangeWord(schedule('hourly'), { every: 3600, keep, daily: 0, weekly: 0, monthly: 0 }, of, now)
    expect(word(2)).toBe('After its next snapshot, it deletes 2 of the 3 that it has: h-1 and h-2. To keep one of them, put it on hold first.')
    expect([word(4), word(2, [])]).toEqual(['After its next snapshot, it still keeps all 3 that it has.', 'It has no snapshots yet that it could delete.'])
  })
})
