import { expect, it } from 'vitest'
import { defaultTarget, isIscsiName, isTooShort } from './iscsi'

it('counts the bytes of secrets', () => {
  expect(['', 'elevenbytes', 'twelve bytes', 'äöüäöü'].map(isTooShort)).toEqual([false, true, false, false])
})

it('knows names of targets and initiators', () => {
  expect(['iqn.2026-11.io.ursa:db', 'naa.52004567ba64678d', 'db', 'iqn.', 'my iqn.2026-11.io.ursa:db'].map(isIscsiName)).toEqual([true, true, false, false, false])
})

it('names the target of a volume as the API does', () => {
  expect(defaultTarget('db')).toBe('iqn.2026-11.io.ursa:db')
  expect(defaultTarget('Mail_2.a')).toBe('iqn.2026-11.io.ursa:mail-2.a')
})
