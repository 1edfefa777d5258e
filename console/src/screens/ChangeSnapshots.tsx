import { Checkbox } from '@mantine/core'
import { useState } from 'react'
import { api, data } from '../api/client'
import type { Snapshot, SnapshotChange } from '../api/types'
import { Ask, Said } from '../parts/deed'
import { ExpiryInput, LabelsInput } from '../parts/SnapshotFields'
import { ursa } from '../words/command'
import { expiryProblem, expiryWord } from '../words/expiry'
import { interval, parseInterval } from '../words/interval'
import { labelChange, labelTexts, labelWords, labelsOf, labelsProblem, parseLabels } from '../words/labels'
import { listed } from '../words/missing'
import { plural } from '../words/size'
import { numberOf } from '../words/snapshot'

/** Changes the expiry and labels of a snapshot, or the expiry of several, one after the other. */
export function ChangeSnapshots({ snapshots, close }: { snapshots: Snapshot[]; close: () => void }) {
  // As they were when the dialog opened, and those of them that it has not changed yet.
  const [first] = useState(snapshots)
  const [left, setLeft] = useState(first)
  const only = first.length === 1 ? first[0] : undefined
  const before = only ? labelsOf(only) : {}
  const [expires, setExpires] = useState('')
  const [never, setNever] = useState(false)
  const [texts, setTexts] = useState(labelTexts(before))
  const change: SnapshotChange = only ? labelChange(before, parseLabels(texts)) : {}
  const after = parseInterval(expires)
  if (never) change.expires_after = 0
  else if (after !== undefined) change.expires_after = after
  const changes = change.expires_after !== undefined || Object.keys(change.labels ?? {}).length > 0 || (change.remove_labels ?? []).length > 0
  const words = [...(never ? ['--no-expiry'] : after ? ['--expires', interval(after)] : []), ...labelWords(change.labels ?? {}, change.remove_labels)]
  return (
    <Ask
      opened
      close={close}
      title={only ? `Change ${only.name}` : `Set expiry of ${plural(first.length, 'snapshot')}`}
      label={only ? 'Change snapshot' : 'Set expiry'}
      ready={changes && (never || expiryProblem(expires) === undefined) && labelsProblem(texts) === undefined}
      command={left.map(({ name }) => ursa('snapshot', 'change', name, ...words)).join('\n')}
      act={async () => {
        for (const one of left) {
          await data(api.PATCH('/v1/snapshots/{snapshot}', { params: { path: { snapshot: numberOf(one) } }, body: change }))
          setLeft((before) => before.filter((other) => other !== one))
        }
      }}
      done={only ? `Snapshot ${only.name} changed.` : `Expiry of ${plural(first.length, 'snapshot')} changed.`}
    >
      <Said>{only ? `Expires now: ${expiryWord(only)}. A new time counts from now on.` : `${listed(first.map(({ name }) => name))}: the time counts from now on.`} A schedule that has taken a snapshot may delete it earlier.</Said>
      {left.length < first.length && <Said>Changed so far: {first.filter((one) => !left.includes(one)).map(({ name }) => name).join(', ')}.</Said>}
      <ExpiryInput text={expires} set={setExpires} empty="as it is" disabled={never} />
      <Checkbox label="Never expires" checked={never} onChange={(event) => setNever(event.currentTarget.checked)} />
      {only && <LabelsInput labels={texts} set={setTexts} />}
    </Ask>
  )
}
