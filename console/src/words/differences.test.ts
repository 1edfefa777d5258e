import { expect, it } from 'vitest'
import { differencesWord, exportCommands, withPage } from './differences'

const MIB = 2 ** 20
const page = (ranges: [number, boolean][], next?: number) => ({ volume: 'db', snapshot: 'b', size: 100 * MIB, next, ranges: ranges.map(([len, zeroed], at) => ({ offset: at, len, zeroed })) })

it('adds up the pages of a comparison', () => {
  const first = withPage(undefined, page([[2 * MIB, false], [MIB, true]], 40 * MIB))
  expect(first).toEqual({ data: 2 * MIB, zeroed: MIB, size: 100 * MIB, next: 40 * MIB })
  expect(differencesWord(first, true)).toBe('40 % compared. So far: 2MiB of data has changed, 1MiB has become zeros.')
  expect(differencesWord(withPage(first, page([[MIB, false]])), true)).toBe('3MiB of data has changed, 1MiB has become zeros.')
  expect(differencesWord(withPage(undefined, page([], MIB)), true)).toBe('1 % compared. So far: no difference.')
  const none = withPage(undefined, page([]))
  expect([differencesWord(none, true), differencesWord(none, false)]).toEqual(['The volume is the same in both snapshots.', 'The volume is all zeros in this snapshot.'])
  expect(differencesWord(withPage(undefined, page([[MIB, false]])), false)).toBe('1MiB of data; the rest of 100MiB is zeros.')
})

it('exports all, or what has changed', () => {
  expect(exportCommands('db', 'monday', undefined)).toBe('ursa snapshot export db@monday db-monday\nursa snapshot import db-monday --to db.img')
  expect(exportCommands('db', 'tuesday', 'monday')).toBe('ursa snapshot export db@tuesday db-tuesday --since db@monday\n# into the image that has db@monday:\nursa snapshot import db-tuesday --to db.img')
})
