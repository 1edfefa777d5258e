// Commands that do the same as the console.

import type { VolumeCreate } from '../api/types'
import { exactSize } from './size'

/** A word quoted for a shell. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`
}

export function ursa(...words: (string | number | undefined)[]): string {
  return ['ursa', ...words.filter((word) => word !== undefined && word !== '').map((word) => quoted(String(word)))].join(' ')
}

/** `--node 2`: for an object of another node. */
export function onNode(node: number | undefined): (string | number)[] {
  return node === undefined ? [] : ['--node', node]
}

/** `ursa volume create ...`, without options that have their defaults. */
export function createVolume(volume: VolumeCreate): string {
  const words: (string | number)[] = ['volume', 'create', volume.name || 'NAME', '--size', volume.size > 0 ? exactSize(volume.size) : 'SIZE']
  const option = (name: string, value: string | number | null | undefined) => {
    if (value !== undefined && value !== null && value !== '') words.push(name, value)
  }
  option('--pool', volume.pool)
  if (volume.kind !== undefined && volume.kind !== 'thick') words.push('--kind', volume.kind)
  if (volume.block_size === 4096) words.push('--block-size', 4096)
  if (volume.native_512) words.push('--native-512')
  option('--slices', volume.slices)
  option('--copies', volume.copies)
  if (volume.nodes?.length) words.push('--on', volume.nodes.join(','))
  if (volume.map === false) words.push('--no-map')
  else {
    option('--target', volume.target)
    option('--host', volume.host)
    option('--lun', volume.lun)
  }
  return ursa(...words)
}

export type CopyDeed = 'add' | 'move' | 'rebuild' | 'remove'

/** `ursa volume copy ...`, with nodes by number; null: not chosen yet. */
export function changeCopy(deed: CopyDeed, volume: string, { from, to, pool }: { from: string | null; to: string | null; pool: string | null }): string {
  const [left, gets] = [from ?? 'NODE', to ?? 'NODE']
  const nodes = deed === 'add' ? ['--on', gets] : deed === 'move' ? ['--from', left, '--to', gets] : ['--on', left]
  return ursa('volume', 'copy', deed, volume, ...nodes, ...(pool === null || deed === 'remove' ? [] : ['--pool', pool]))
}
