import { expect, it } from 'vitest'
import { isIscsiName, isTooShort } from './iscsi'

it('counts the bytes of secrets', () => {
  expect(['', 'elevenbytes', 'twelve bytes', 'äöüäöü'].map(isTooShort)).toEqual([false, true, false, false])
})

it('knows names of targets and initiators', () => {
  expect(['iqn.2026-11.io.ursa:db', 'naa.52004567ba64678d', 'db', 'iqn.', 'my iqn.2026-11.io.ursa:db'].map(isIscsiName)).toEqual([true, true, false, false, false])
})
