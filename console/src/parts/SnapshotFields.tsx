// Fields that dialogs of snapshots share.

import { TagsInput, TextInput } from '@mantine/core'
import { expiresAt, expiryProblem } from '../words/expiry'
import { labelsProblem } from '../words/labels'
import { useNow } from './clock'

export function ExpiryInput({ text, set, empty, disabled }: {
  text: string
  set: (text: string) => void
  /** What an empty field means. */
  empty: string
  disabled?: boolean
}) {
  const now = useNow()
  return <TextInput label="Expires after" description={expiresAt(text, now / 1000) ?? `For example 12h or 7d; the snapshot is deleted then, unless it is on hold. Empty: ${empty}`} value={text} onChange={(event) => set(event.currentTarget.value)} error={!disabled && expiryProblem(text)} disabled={disabled} />
}

export function LabelsInput({ labels, set }: { labels: string[]; set: (labels: string[]) => void }) {
  return <TagsInput label="Labels" description="KEY=VALUE, for example app=shop; at most 8. Press Enter after each" value={labels} onChange={set} error={labelsProblem(labels)} acceptValueOnBlur />
}
