// Labels of snapshots: `KEY=VALUE`, as on the command line.

import type { Snapshot, SnapshotChange } from '../api/types'

/** As in the API. */
const LABELS_MAX = 8
const PART = /^[\w\-./:@+]{1,63}$/

type Labels = Record<string, string>

export const labelsOf = ({ labels }: Pick<Snapshot, 'labels'>): Labels => labels ?? {}

/** `['app=shop', 'ticket=4711']`. */
export const labelTexts = (labels: Labels): string[] => Object.entries(labels).map(([key, value]) => `${key}=${value}`)

function parse(text: string): [string, string] | undefined {
  const [key = '', value = '', ...more] = text.split('=')
  return more.length === 0 && PART.test(key) && PART.test(value) ? [key, value] : undefined
}

/** The labels of these texts, without those that are not labels. */
export const parseLabels = (texts: string[]): Labels => Object.fromEntries(texts.map(parse).filter((label) => label !== undefined))

/** What is wrong with the labels that a snapshot is to have. */
export function labelsProblem(texts: string[]): string | undefined {
  const wrong = texts.find((text) => !parse(text))
  if (wrong !== undefined) return `${wrong} is not a label. Enter KEY=VALUE, for example app=shop: both 1 to 63 letters, digits and characters of -_./:@+`
  const keys = texts.map((text) => parse(text)?.[0])
  const twice = keys.find((key, at) => keys.indexOf(key) !== at)
  if (twice !== undefined) return `Label ${twice} has two values: remove one`
  return texts.length > LABELS_MAX ? `A snapshot has at most ${LABELS_MAX} labels` : undefined
}

/** What has to be set and removed to get from some labels to others. */
export function labelChange(before: Labels, after: Labels): Required<Pick<SnapshotChange, 'labels' | 'remove_labels'>> {
  return {
    labels: Object.fromEntries(Object.entries(after).filter(([key, value]) => before[key] !== value)),
    remove_labels: Object.keys(before).filter((key) => !Object.hasOwn(after, key)),
  }
}

/** `--label app=shop --remove-label ticket`, in words. */
export const labelWords = (labels: Labels, removed: string[] = []): string[] => [
  ...labelTexts(labels).flatMap((label) => ['--label', label]),
  ...removed.flatMap((key) => ['--remove-label', key]),
]

/** Whether a snapshot has all of these labels: `app=shop`, or `app` for any value. */
export function hasLabels(snapshot: Snapshot, wanted: string[]): boolean {
  const labels = labelsOf(snapshot)
  return wanted.every((text) => (text.includes('=') ? labelTexts(labels).includes(text) : Object.hasOwn(labels, text)))
}

/** The labels to filter these snapshots by: each key, and each of its values if there are several. */
export function labelChoices(snapshots: Snapshot[]): string[] {
  const values = new Map<string, Set<string>>()
  for (const [key, value] of snapshots.flatMap((one) => Object.entries(labelsOf(one)))) values.set(key, (values.get(key) ?? new Set()).add(value))
  const keys = [...values].sort(([a], [b]) => (a < b ? -1 : 1))
  return keys.flatMap(([key, of]) => (of.size === 1 ? [`${key}=${[...of][0]}`] : [key, ...[...of].sort().map((value) => `${key}=${value}`)]))
}
