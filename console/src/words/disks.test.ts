import { describe, expect, it } from 'vitest'
import type { BlockDevice } from '../api/types'
import { diskChoices, diskLine } from './disks'

const disk = (name: string, more: Partial<BlockDevice>): BlockDevice => ({ path: `/dev/${name}`, name, size: 2 ** 30, unused: false, ...more })

describe('disks to choose from', () => {
  const disks = [
    disk('sda', { partitions: ['sda1'] }),
    disk('sdb', { unused: true, holds: 'nothing', model: 'DISK 9' }),
    disk('sdc', { holds: 'a disk of a pool', importable: true }),
    disk('sdd', { pool: 'main' }),
    disk('sde', { holds: 'an ext file system' }),
    disk('sdf1', { part_of: 'sdf', unused: true, holds: 'nothing' }),
  ]
  const names = (wanted: 'unused' | 'pool') => diskChoices(disks, wanted).map((one) => one.name)

  it('are empty and unused', () => {
    expect(names('unused')).toEqual(['sdb', 'sdf1'])
  })

  it('hold a pool when one is imported', () => {
    expect(names('pool')).toEqual(['sdc'])
  })

  it('have a description', () => {
    expect(diskLine(disks[1]!)).toBe('sdb, 1GiB, DISK 9, empty')
    expect(diskLine(disks[5]!)).toBe('sdf1, 1GiB, partition of sdf, empty')
    expect(diskLine(disks[2]!)).toBe('sdc, 1GiB, a disk of a pool')
  })
})
