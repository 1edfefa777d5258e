import { expect, it } from 'vitest'
import { changeCopy, createVolume, onNode, quoted, ursa } from './command'

it('omits defaults', () => {
  expect(createVolume({ name: 'db', size: 10 * 2 ** 30 })).toBe('ursa volume create db --size 10G')
  expect(
    createVolume({ name: 'db', size: 2 ** 30, kind: 'ram', block_size: 4096, nodes: [1, 3], host: 'web', target: 'iqn.2026-11.io.ursa:x', lun: 0, pool: 'fast' }),
  ).toBe('ursa volume create db --size 1G --pool fast --kind ram --block-size 4096 --on 1,3 --target iqn.2026-11.io.ursa:x --host web --lun 0')
  expect(createVolume({ name: 'db', size: 2 ** 30, native_512: true, slices: 8 })).toBe('ursa volume create db --size 1G --native-512 --slices 8')
  expect(createVolume({ name: 'db', size: 2 ** 30, copies: 1 })).toBe('ursa volume create db --size 1G --copies 1')
  expect(createVolume({ name: 'db', size: 2 ** 30, nodes: [2] })).toBe('ursa volume create db --size 1G --on 2')
  expect(createVolume({ name: '', size: 1000, copies: 2, map: false, host: 'web' })).toBe('ursa volume create NAME --size 1000 --copies 2 --no-map')
})

it('quotes what a shell would split', () => {
  expect(quoted('a b')).toBe("'a b'")
  expect(quoted("it's")).toBe("'it'\\''s'")
  expect(ursa('host', 'create', '$(reboot)')).toBe("ursa host create '$(reboot)'")
})

it('names the node of an object', () => {
  expect(ursa('pool', 'reopen', 'fast', ...onNode(2))).toBe('ursa pool reopen fast --node 2')
  expect(ursa('pool', 'reopen', 'fast', ...onNode(undefined))).toBe('ursa pool reopen fast')
})

it('has a command line for each change of copies', () => {
  const chosen = { from: '3', to: '2', pool: 'fast' }
  expect(changeCopy('add', 'db', chosen)).toBe('ursa volume copy add db --on 2 --pool fast')
  expect(changeCopy('move', 'db', chosen)).toBe('ursa volume copy move db --from 3 --to 2 --pool fast')
  expect(changeCopy('rebuild', 'db', chosen)).toBe('ursa volume copy rebuild db --on 3 --pool fast')
  expect(changeCopy('remove', 'db', chosen)).toBe('ursa volume copy remove db --on 3')
  expect(changeCopy('add', 'db', { from: null, to: null, pool: null })).toBe('ursa volume copy add db --on NODE')
})
