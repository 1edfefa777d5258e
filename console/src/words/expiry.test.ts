import { expect, it } from 'vitest'
import { expiresAt, expiresIn, expiryProblem, expiryWord, isForgotten, releaseMeaning, scheduleOf } from './expiry'
import { schedule, snapshot } from './fixtures'

const of = (more: Parameters<typeof snapshot>[2]) => snapshot('s', {}, more)

it('says when a snapshot expires', () => {
  const expires = 1_795_348_984
  const at = new Date(expires * 1000).toLocaleString()
  expect(expiryWord(of({}))).toBe('never')
  expect(expiryWord(of({ expires }))).toBe(at)
  expect(expiryWord(of({ expires, held: true }))).toBe(`${at}, not while it is on hold`)
  const now = expires - 7200
  expect([expiresIn(of({}), now), expiresIn(of({ expires }), now)]).toEqual([undefined, 'expires in 2 h'])
  expect([expiresIn(of({ expires }), expires), expiresIn(of({ expires, held: true }), expires)]).toEqual(['expired', 'expired, but on hold'])
  expect(expiresAt('2h', now)).toBe(`Deleted on ${at}, unless it is on hold then`)
  expect([expiresAt('', now), expiresAt('2x', now), expiresAt('1s', now)]).toEqual([undefined, undefined, undefined])
})

it('takes one minute to ten years', () => {
  expect(['', '1m', '60s', '3653d'].map(expiryProblem)).toEqual([undefined, undefined, undefined, undefined])
  expect(['59s', '0s', '3654d'].map(expiryProblem)).toEqual(Array(3).fill('From one minute to ten years (3653d)'))
  expect(expiryProblem('7 days')).toMatch(/^Enter a number/)
})

it('warns of a release that deletes the snapshot', () => {
  expect(releaseMeaning(of({ held: true, expires: 500 }), 499)).toBe('It can be deleted again.')
  expect(releaseMeaning(of({ held: true, expires: 500 }), 500)).toMatch(/^It has expired: it is deleted/)
  expect(releaseMeaning(of({ held: true }), 500)).toBe('It can be deleted again.')
})

it('finds old snapshots that nothing deletes, as the nodes do', () => {
  const created = 1_795_348_984
  const now = created + 30 * 86_400
  const hourly = schedule('hourly', { created: created - 10 })
  const forgotten = (more: Parameters<typeof snapshot>[2], at = now) => isForgotten(of({ created, ...more }), [hourly], at)
  expect([forgotten({}), forgotten({}, now - 1)]).toEqual([true, false])
  expect([{ held: true }, { expires: now + 1 }, { schedule: 'hourly' }, { state: 'deleting' as const }].map((more) => forgotten(more))).toEqual([false, false, false, false])
  // Of a schedule that was deleted; another one has its name now.
  expect(forgotten({ schedule: 'daily' })).toBe(true)
  expect(scheduleOf(of({ created, schedule: 'hourly' }), [{ ...hourly, created: created + 10 }])).toBeUndefined()
})
