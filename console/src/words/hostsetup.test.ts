// @ts-expect-error: only tests run in Node.js, whose types the page does not have
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { hostSetup, withPort } from './hostsetup'

const golden = (name: string): string => readFileSync(new URL(`../../../crates/ursa/src/host_setup/${name}.golden.sh`, import.meta.url), 'utf8')
const target = 'iqn.2026-11.io.ursa:db'

describe('host set-up', () => {
  it('for Linux is what the command line prints', () => {
    expect(hostSetup('linux', { target, portals: ['10.1.1.5'] })).toBe(golden('one-way'))
    expect(hostSetup('linux', { target, portals: ['10.1.1.5', '10.1.2.5:3261'] })).toBe(golden('two-ways'))
  })
  it('gives a portal its port', () => {
    for (const [given, expected] of [
      ['10.1.1.5', '10.1.1.5:3260'],
      ['10.1.1.5:3261', '10.1.1.5:3261'],
      ['san.example.org', 'san.example.org:3260'],
      ['fd00::5', '[fd00::5]:3260'],
      ['[fd00::5]', '[fd00::5]:3260'],
      ['[fd00::5]:3261', '[fd00::5]:3261'],
    ]) expect(withPort(given!)).toBe(expected)
  })
  it('names the target and every portal, whatever the system', () => {
    for (const system of ['esxi', 'windows', 'proxmox'] as const) {
      const text = hostSetup(system, { target, portals: ['10.1.1.5', '[fd00::5]:3261'], naa: '6abc' })
      expect(text, system).toContain(target)
      expect(text, system).toContain('10.1.1.5')
      expect(text, system).toContain('fd00::5')
      expect(text, system).toContain('3261')
      expect(text, system).not.toContain('undefined')
    }
    expect(hostSetup('proxmox', { target, portals: ['a', 'b'], naa: '6abc' })).toContain('pvcreate /dev/disk/by-id/dm-uuid-mpath-36abc')
    expect(hostSetup('proxmox', { target, portals: ['a'], naa: '6abc' })).toContain('pvcreate /dev/disk/by-id/wwn-0x6abc')
    expect(hostSetup('windows', { target, portals: ['a'] })).not.toContain('MPIO')
  })
  it('asks for a secret where there is one, and never has it in the text', () => {
    for (const system of ['linux', 'esxi', 'windows', 'proxmox'] as const) {
      expect(hostSetup(system, { target, portals: ['a'], chapUser: 'web' }), system).toContain('web')
      expect(hostSetup(system, { target, portals: ['a'], chapUser: 'web' }), system).toContain('CHAP secret')
    }
  })
})
