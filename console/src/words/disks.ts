// Disks of a node's machine, as choices where a pool is created, grown or imported.

import type { BlockDevice } from '../api/types'
import { size } from './size'

/** Which disks to list: unused ones, or those that hold a pool to import. */
export type Wanted = 'unused' | 'pool'

export function diskChoices(disks: BlockDevice[], wanted: Wanted): BlockDevice[] {
  return disks.filter((disk) => (wanted === 'unused' ? disk.unused : disk.importable))
}

/** `sdb, 4TiB, ST4000, empty`. */
export function diskLine(disk: BlockDevice): string {
  const holds = disk.unused ? 'empty' : disk.holds
  return [disk.name, size(disk.size), disk.model, disk.part_of ? `partition of ${disk.part_of}` : undefined, holds].filter(Boolean).join(', ')
}
