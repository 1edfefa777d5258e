// The state of a snapshot in words: which copies have it, and what its deletion frees.

import type { Snapshot, SnapshotCopy, SnapshotVolume, Volume } from '../api/types'
import { link } from '../route'
import { listed } from './missing'
import { isName, nameProblem } from './names'
import { latency, size } from './size'
import type { Tone } from './tone'

/** Maximum number of volumes of one snapshot: as in docs/openapi.json. */
export const VOLUMES_MAX = 128

/** Whether it exists; `missing` if a copy that should have it, as the only one, does not. */
export function snapshotState(snapshot: Snapshot): { tone: Tone; word: string; why: string } {
  switch (snapshot.state) {
    case 'preparing':
      return { tone: 'working', word: 'preparing', why: 'It is being taken.' }
    case 'restoring':
      return { tone: 'working', word: 'restoring', why: 'Its volumes are being restored to another snapshot: it has what they held before, unless that is discarded.' }
    case 'deleting':
      return { tone: 'working', word: 'deleting', why: 'It is deleted; its space is being freed, or will be when a node that is down returns.' }
    case 'complete': {
      const lost = snapshot.volumes.filter((of) => of.copies.some((copy) => copy.state === 'missing')).map((of) => of.volume)
      if (lost.length > 0) return { tone: 'critical', word: 'missing', why: `What it held of ${listed(lost)} is missing: a pool was set back to an earlier state.` }
      return { tone: 'ok', word: 'complete', why: 'It exists.' }
    }
  }
}

const COPIES: Record<SnapshotCopy['state'], { tone: Tone; word: string; why: string }> = {
  present: { tone: 'ok', word: 'has it', why: 'The snapshot is in the pool of this node.' },
  unknown: { tone: 'off', word: 'has it (node not reached)', why: 'It has the snapshot according to the cluster’s record.' },
  absent: { tone: 'off', word: 'does not have it', why: 'The copy was out of sync when the snapshot was taken, was added later, or its pool was set back. A resync does not bring older snapshots.' },
  missing: { tone: 'critical', word: 'missing', why: 'It should have the snapshot, and no other copy has it, but its pool does not: the pool was set back to an earlier state.' },
}

/** Whether a copy has the snapshot. */
export const copyOf = ({ state }: SnapshotCopy) => COPIES[state]

/** How many copies of each volume have it: `2 of 2`, or `2 of 2, 1 of 2` if volumes differ. */
export function copiesWord(volumes: SnapshotVolume[]): string {
  const has = (of: SnapshotVolume) => of.copies.filter((copy) => copy.state === 'present' || copy.state === 'unknown').length
  return [...new Set(volumes.map((of) => `${has(of)} of ${of.copies.length}`))].join(', ')
}

/** What deleting it frees: for each volume in the pool in which it frees most; undefined if unknown. */
export function freesWord(volumes: SnapshotVolume[]): string | undefined {
  const known = knownFrees(volumes)
  if (known.length === 0) return undefined
  const bytes = size(freesBytes(volumes))
  return known.every((copy) => copy.frees_is_exact) ? bytes : `up to ${bytes}`
}

/** The same in bytes; 0 if unknown. */
export const freesBytes = (volumes: SnapshotVolume[]) => knownFrees(volumes).reduce((sum, copy) => sum + (copy.frees ?? 0), 0)

const knownFrees = (volumes: SnapshotVolume[]) => volumes.map((of) => most(of.copies)).filter((copy) => copy !== undefined)

/** What deleting it frees in the pool of a copy. */
export const freesOfCopy = (copy: SnapshotCopy) => (isKnown(copy) ? `${copy.frees_is_exact ? '' : 'up to '}${size(copy.frees ?? 0)}` : '–')

const isKnown = ({ frees }: SnapshotCopy) => frees !== undefined && frees !== null

/** The copy in whose pool the deletion frees most. */
function most(copies: SnapshotCopy[]): SnapshotCopy | undefined {
  return copies.filter(isKnown).reduce<SnapshotCopy | undefined>((best, copy) => (best && (best.frees ?? 0) >= (copy.frees ?? 0) ? best : copy), undefined)
}

/** For how long hosts had to wait. */
export const pauseWord = ({ pause_us }: Snapshot) => (pause_us ? latency(pause_us / 1e6) : '–')

export const volumesWord = ({ volumes }: Snapshot) => volumes.map((of) => of.volume).join(', ')

/** Why it cannot be put on hold, released or deleted now; undefined if it can. */
export function busyBecause({ state }: Snapshot): string | undefined {
  if (state === 'preparing') return 'It is being taken: try again in a moment.'
  if (state === 'restoring') return 'Its volumes are being restored: try again in a moment.'
  return state === 'deleting' ? 'It is being deleted.' : undefined
}

/** Why it cannot be deleted now; undefined if it can. */
export const keptBecause = (snapshot: Snapshot) => busyBecause(snapshot) ?? (snapshot.held ? 'It is on hold: release it first.' : undefined)

/** Its name for requests: names of snapshots that are being deleted can be used again, numbers cannot. */
export const numberOf = ({ number }: Snapshot) => String(number)

/** The address of its screen. A snapshot that is being deleted may share its name with another one. */
export const snapshotLink = (snapshot: Snapshot) => link('snapshots', snapshot.state === 'deleting' ? snapshot.number : snapshot.name)

/** What the user types to confirm the deletion: the name, or how many. */
export const confirmation = (snapshots: Snapshot[]) => (snapshots.length === 1 ? snapshots[0]!.name : `${snapshots.length} snapshots`)

/** `2026-11-29T21.50.45Z`: the name of a snapshot that gets none. `at`: in milliseconds since 1970. */
export const nameAt = (at: number) => `${new Date(at).toISOString().slice(0, 19).replaceAll(':', '.')}Z`

/** What is wrong with the name of a new snapshot; undefined if it is empty, which stands for the time. */
export function newNameProblem(name: string, known: Snapshot[]): string | undefined {
  if (isName(name) && /^\d+$/.test(name)) return 'A name cannot consist of digits only: snapshots have numbers, too'
  if (known.some((one) => one.name === name && one.state !== 'deleting')) return `Snapshot ${name} exists already`
  return nameProblem(name)
}

/** Which of these volumes cannot have snapshots: those to be converted first, and those that cannot be. */
export function withoutSnapshots(volumes: Volume[]): { thick: string[]; ram: string[] } {
  const of = (kind: Volume['kind']) => volumes.filter((volume) => volume.kind === kind).map((volume) => volume.name)
  return { thick: of('thick'), ram: of('ram') }
}
