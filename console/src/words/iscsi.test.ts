import { expect, it } from 'vitest'
import { defaultTarget, isIscsiName } from './iscsi'

it('names the target of a volume as the API does', () => {
  expect(defaultTarget('db')).toBe('iqn.2026-11.io.ursa:db')
  expect(defaultTarget('Mail_2.a')).toBe('iqn.2026-11.io.ursa:mail-2.a')
})

it('accepts the names of targets and initiators that the API accepts', () => {
  for (const name of ['iqn.2026-11.io.ursa:db', 'iqn.2008-11.org.linux-kvm:my_vm', 'iqn.2001-04.com.example', 'eui.02004567a425678d', 'naa.52004567ba64678d', `naa.${'0'.repeat(32)}`]) expect(isIscsiName(name), name).toBe(true)
  for (const name of ['', 'db', 'iqn.', 'my iqn.2026-11.io.ursa:db', '-iqn.2026-11.io.ursa:db', 'iqn.2026-11.io.ursa:DB', 'iqn.2026-13.io.ursa:db', 'iqn.2026-11.', 'iqn.2026-11.:db', 'iqn.2026-11.io.ursa:d b', 'eui.02004567A425678D', `naa.${'0'.repeat(20)}`, `iqn.2026-11.${'a'.repeat(212)}`]) expect(isIscsiName(name), name).toBe(false)
})
