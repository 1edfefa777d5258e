import { TextInput } from '@mantine/core'
import { useState } from 'react'
import { api, data } from '../api/client'
import { useSnapshots, useVolumes } from '../api/queries'
import type { SnapshotCreate } from '../api/types'
import { Ask, Said } from '../parts/deed'
import { LogVolumes, haveSnapshots } from '../parts/LogVolumes'
import { ExpiryInput, LabelsInput } from '../parts/SnapshotFields'
import { go } from '../route'
import { ursa } from '../words/command'
import { expiryProblem } from '../words/expiry'
import { interval, parseInterval } from '../words/interval'
import { labelWords, labelsProblem, parseLabels } from '../words/labels'
import { NAME_HINT } from '../words/names'
import { nameAt, newNameProblem, snapshotLink } from '../words/snapshot'

/** Takes a snapshot, and then shows it. `volume`: the ID of the volume that is chosen first. */
export function TakeSnapshot({ volume, close }: { volume?: string; close: () => void }) {
  const volumes = useVolumes().data ?? []
  const known = useSnapshots().data ?? []
  const [name, setName] = useState('')
  const [ids, setIds] = useState(volume === undefined ? [] : [volume])
  const [expires, setExpires] = useState('')
  const [texts, setTexts] = useState<string[]>([])
  const names = volumes.filter(({ id }) => ids.includes(id)).sort((a, b) => ids.indexOf(a.id) - ids.indexOf(b.id)).map((one) => one.name)
  const wrong = newNameProblem(name, known)
  const labels = parseLabels(texts)
  const after = parseInterval(expires)
  return (
    <Ask
      opened
      close={close}
      title="Take snapshot"
      label="Take"
      ready={haveSnapshots(ids, volumes) && wrong === undefined && expiryProblem(expires) === undefined && labelsProblem(texts) === undefined}
      command={ursa('snapshot', 'create', names.join() || 'VOLUME', ...(name ? ['--name', name] : []), ...(after ? ['--expires', interval(after)] : []), ...labelWords(labels))}
      act={async () => {
        const wanted: SnapshotCreate = { volumes: ids, name: name || nameAt(Date.now()), labels, ...(after === undefined ? {} : { expires_after: after }) }
        go(snapshotLink(await data(api.POST('/v1/snapshots', { body: wanted }))))
      }}
      done="Snapshot taken."
    >
      <Said>Keeps what the volumes hold at one point in time, on all copies in sync. Hosts wait meanwhile: for 500 ms at most, or the snapshot is not taken. What it holds is as after a power cut of the hosts; for a clean file system, freeze it first.</Said>
      <TextInput label="Name" description={`Empty: the time. ${NAME_HINT}`} placeholder={nameAt(Date.now())} value={name} onChange={(event) => setName(event.currentTarget.value)} error={wrong} data-autofocus />
      <LogVolumes volumes={volumes} ids={ids} choose={setIds} description="All at the same instant, for example a database and its log" />
      <ExpiryInput text={expires} set={setExpires} empty="never" />
      <LabelsInput labels={texts} set={setTexts} />
    </Ask>
  )
}
