import { describe, expect, it } from 'vitest'
import type { FloatingAddress } from '../api/types'
import { holderOf, mayHave } from './addresses'

const ADDRESS: FloatingAddress = { address: '192.0.2.10/24', nodes: [], portal_group: 65280, waits: false }

describe('a floating address', () => {
  it('says who has it, and for how long', () => {
    expect(holderOf(ADDRESS, 0)).toBe('no node')
    const held = { ...ADDRESS, holder: 1, holder_name: 'san1', since: 100 }
    expect(holderOf(held, 145_000)).toBe('san1, for 45 s')
    expect(holderOf({ ...held, waits: true }, 145_000)).toBe('san1, in a moment: the node before is silent')
    expect(holderOf({ ...ADDRESS, holder: 7 }, 0)).toBe('node 7')
  })

  it('says who may have it', () => {
    const named = (node: number) => `san${node}`
    expect(mayHave(ADDRESS, named)).toBe('all but witnesses')
    expect(mayHave({ ...ADDRESS, nodes: [1, 2], prefer: 2 }, named)).toBe('san1, san2; san2 when it can')
  })
})
