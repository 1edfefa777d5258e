import { describe, expect, it } from 'vitest'
import { snapshot, volume } from './fixtures'
import { confirmation, copiesWord, copyOf, freesBytes, freesOfCopy, freesWord, keptBecause, nameAt, newNameProblem, pauseWord, snapshotLink, snapshotState, withoutSnapshots } from './snapshot'

const MIB = 2 ** 20

describe('a snapshot', () => {
  const of = (...volumes: Parameters<typeof snapshot>[1][string][]) => snapshot('s', Object.fromEntries(volumes.map((copies, at) => [`v${at}`, copies]))).volumes

  it('is missing only if a copy that should have it does not', () => {
    const found = (state: 'present' | 'unknown' | 'absent' | 'missing') => snapshotState(snapshot('s', { db: [{}], logs: [{ state }] }))
    expect((['present', 'unknown', 'absent', 'missing'] as const).map((state) => found(state).word)).toEqual(['complete', 'complete', 'complete', 'missing'])
    expect([found('missing').tone, found('missing').why]).toEqual(['critical', 'What it held of logs is missing: a pool was set back to an earlier state.'])
    // While it is taken or deleted, copies need not have it.
    const passing = ['preparing', 'restoring', 'deleting'] as const
    expect(passing.map((state) => snapshotState(snapshot('s', { db: [{ state: 'missing' }] }, { state })).word)).toEqual([...passing])
  })

  it('names how many copies have it, as the record says', () => {
    expect(copiesWord(of([{}, { state: 'unknown' }]))).toBe('2 of 2')
    expect(copiesWord(of([{}, {}], [{}, { state: 'absent' }], [{}, {}]))).toBe('2 of 2, 1 of 2')
    expect(copiesWord(of([{ state: 'missing' }]))).toBe('0 of 1')
    expect(copyOf(of([{ state: 'absent' }])[0]!.copies[0]!).word).toBe('does not have it')
  })

  it('frees in each pool what it frees there, and in total the most of each volume', () => {
    expect(freesWord(of([{ frees: MIB }, { frees: 3 * MIB }], [{ frees: MIB }]))).toBe('4MiB')
    expect(freesWord(of([{ frees: 3 * MIB }], [{ frees: MIB, frees_is_exact: false }]))).toBe('up to 4MiB')
    // The copy that frees less does not count, exact or not.
    expect(freesWord(of([{ frees: MIB, frees_is_exact: false }, { frees: 2 * MIB }]))).toBe('2MiB')
    expect(freesWord(of([{ frees: 0 }]))).toBe('0B')
    expect([freesWord(of([{ state: 'unknown' }])), freesWord(of([{ frees: null }])), freesWord([])]).toEqual([undefined, undefined, undefined])
    expect([freesBytes(of([{ frees: MIB }, { frees: 3 * MIB }], [{ frees: MIB }])), freesBytes(of([{ frees: null }]))]).toEqual([4 * MIB, 0])
    const [[exact, part, unknown]] = [of([{ frees: MIB }, { frees: MIB, frees_is_exact: false }, {}])[0]!.copies]
    expect([exact!, part!, unknown!].map(freesOfCopy)).toEqual(['1MiB', 'up to 1MiB', '–'])
  })

  it('says how long hosts had to wait', () => {
    expect([12_340, 400, null, undefined].map((pause_us) => pauseWord(snapshot('s', {}, { pause_us })))).toEqual(['12 ms', '400 µs', '–', '–'])
  })

  it('can be deleted unless it is on hold, or not complete', () => {
    const why = (more: Parameters<typeof snapshot>[2]) => keptBecause(snapshot('s', {}, more))
    expect(why({})).toBeUndefined()
    expect(why({ held: true })).toBe('It is on hold: release it first.')
    expect(why({ state: 'preparing' })).toMatch(/^It is being taken/)
    expect(why({ state: 'restoring' })).toMatch(/^Its volumes are being restored/)
    expect(why({ state: 'deleting' })).toBe('It is being deleted.')
  })

  it('is found by its number while it is deleted: another one may have its name by then', () => {
    expect(snapshotLink(snapshot('daily', {}))).toBe('#/snapshots/daily')
    expect(snapshotLink(snapshot('daily', {}, { state: 'deleting' }))).toBe('#/snapshots/7')
  })

  it('is deleted when its name is typed, and several when it is said how many', () => {
    expect(confirmation([snapshot('daily', {})])).toBe('daily')
    expect(confirmation([snapshot('daily', {}), snapshot('weekly', {})])).toBe('2 snapshots')
  })
})

describe('a new snapshot', () => {
  it('is named after its time, as on the command line', () => {
    expect(nameAt(1_795_348_984_900)).toBe('2026-11-22T12.03.04Z')
    expect(newNameProblem(nameAt(0), [])).toBeUndefined()
  })

  it('gets a name that no other one has, and that is not a number', () => {
    const known = [snapshot('daily', {}), snapshot('old', {}, { state: 'deleting' })]
    expect(['', 'weekly', 'old', '7a'].map((name) => newNameProblem(name, known))).toEqual([undefined, undefined, undefined, undefined])
    expect(newNameProblem('daily', known)).toBe('Snapshot daily exists already')
    expect(newNameProblem('17', known)).toMatch(/digits only/)
    expect(newNameProblem('a b', known)).toMatch(/^Only letters/)
  })

  it('needs log volumes', () => {
    const volumes = [volume('db', [], { kind: 'log' }), volume('mail', []), volume('scratch', [], { kind: 'ram' })]
    expect(withoutSnapshots(volumes)).toEqual({ thick: ['mail'], ram: ['scratch'] })
  })
})
