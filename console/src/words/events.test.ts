import { describe, expect, it } from 'vitest'
import { keyOf, place, secondsOf, seenBy } from './events'

describe('events of all nodes', () => {
  it('are distinguished by the node that numbers them', () => {
    expect(keyOf({ id: 7, seen_by: [2, 1] })).toBe('2/7')
    expect(keyOf({ id: 7, seen_by: [1] })).not.toBe(keyOf({ id: 7, seen_by: [2] }))
  })
  it('name the nodes that report them', () => {
    expect(seenBy({ seen_by: [3] })).toBe('seen by node 3')
    expect(seenBy({ seen_by: [3, 1, 2] })).toBe('seen by nodes 1, 2 and 3')
    expect(seenBy({ seen_by: [5, 4, 3, 2, 1] })).toBe('seen by nodes 1, 2, 3 and 2 more')
  })
  it('name the range that a disk cannot read', () => {
    const range = { node: 3, pool: 'main', disk: '/dev/sdb', offset: 4096, len: 512, lba: 8, blocks: 1 }
    expect(place(range)).toBe('disk /dev/sdb of pool main on node 3, bytes 4096 to 4607, LBA 8')
    expect(place({ ...range, len: 1024, blocks: 2 })).toBe('disk /dev/sdb of pool main on node 3, bytes 4096 to 5119, LBA 8 to 9')
  })
  it('are requested up to a time', () => {
    expect(secondsOf('1970-01-02T00:00Z')).toBe(86_459)
    expect(secondsOf('2026-11-23T08:05')).toBe(new Date(2026, 10, 23, 8, 5).getTime() / 1000 + 59)
    expect(secondsOf('')).toBeUndefined()
    expect(secondsOf('1900-01-01T00:00Z')).toBeUndefined()
  })
})
