import { describe, expect, it } from 'vitest'
import type { FloatingAddress } from '../api/types'
import { type AddressDraft, addAddress, addressOf, addressProblem, bare, holderOf, isUnreadable, mayHave } from './addresses'

const ADDRESS: FloatingAddress = { address: '192.0.2.10/24', nodes: [], portal_group: 65280, waits: false, state: 'nobody' }

describe('a floating IP', () => {
  it('shows its holder, and for how long', () => {
    expect(holderOf(ADDRESS, 0)).toBe('no node')
    const held: FloatingAddress = { ...ADDRESS, holder: 1, holder_name: 'san1', since: 100, state: 'held' }
    expect(holderOf(held, 145_000)).toBe('san1, for 45 s')
    expect(holderOf({ ...held, waits: true, state: 'taking' }, 145_000)).toBe('san1 is taking over: waiting for the unreachable previous holder to release it')
    expect(holderOf({ ...held, state: 'taking' }, 145_000)).toBe('san1 is taking over: address not configured yet')
    expect(holderOf({ ...held, state: 'unknown' }, 145_000)).toBe('san1, not confirmed by that node')
    expect(holderOf({ ...ADDRESS, holder: 7, state: 'held' }, 0)).toBe('node 7')
  })

  it('shows which nodes may hold it', () => {
    const named = (node: number) => `san${node}`
    expect(mayHave(ADDRESS, named)).toBe('all but witnesses')
    expect(mayHave({ ...ADDRESS, nodes: [1, 2], prefer: 2 }, named)).toBe('san1, san2; preferred: san2')
  })

  it('says that a later version wrote it', () => {
    const holderOnly: FloatingAddress = { ...ADDRESS, state: 'unreadable' }
    const all = { ...holderOnly, portal_group: undefined }
    for (const one of [holderOnly, all]) expect(holderOf(one, 0)).toMatch(/^not readable by this node/)
    expect([holderOnly, all].map(isUnreadable)).toEqual([false, true])
    expect(mayHave(all, String)).toBe('–')
    expect(mayHave(holderOnly, String)).toBe('all but witnesses')
  })

  it('is named without its prefix length', () => {
    expect(bare(ADDRESS)).toBe('192.0.2.10')
    expect(bare({ ...ADDRESS, address: 'fd00::10/64' })).toBe('fd00::10')
  })
})

describe('a new one', () => {
  const draft: AddressDraft = { address: ' 192.0.2.10/24', device: '', nodes: [], prefer: undefined }

  it('is requested as typed', () => {
    expect(addressOf(draft)).toEqual({ address: '192.0.2.10/24', nodes: [] })
    const all = { address: 'fd00::10/64', device: 'eth1', nodes: [1, 2], prefer: 2 }
    expect(addressOf(all)).toEqual(all)
    expect(addressOf({ ...all, nodes: [1] }).prefer, 'a node that may not have it').toBe(undefined)
    expect(addressOf({ ...all, nodes: [] }).prefer).toBe(2)
  })

  it('shows what is wrong at once', () => {
    for (const address of ['', 'san1', '192.0.2.10/', '192.0.2.10:3260/24x']) expect(addressProblem({ ...draft, address }), address).toMatch(/^Enter an address/)
    expect(addressProblem({ ...draft, address: '192.0.2.10' })).toMatch(/^Add the prefix length/)
    for (const right of [draft, { ...draft, address: '192.0.2.10', device: 'eth0' }, { ...draft, address: 'FD00::10/64' }]) expect(addressProblem(right)).toBe(undefined)
  })

  it('has a command line without defaults', () => {
    expect(addAddress({ address: '192.0.2.10/24', nodes: [] })).toBe('ursa floating-ip add 192.0.2.10/24')
    expect(addAddress({ address: 'fd00::10/64', device: 'eth1', nodes: [1, 2], prefer: 2 })).toBe('ursa floating-ip add fd00::10/64 --device eth1 --nodes 1,2 --prefer 2')
    expect(addAddress({ address: '' })).toBe('ursa floating-ip add ADDRESS/LENGTH')
  })
})
