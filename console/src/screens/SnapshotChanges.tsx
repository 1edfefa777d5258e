import { Button, Group, Select, Stack, Text } from '@mantine/core'
import { useEffect, useRef, useState } from 'react'
import { compareSnapshots } from '../api/compare'
import { useSnapshots } from '../api/queries'
import type { Snapshot } from '../api/types'
import { useDoing } from '../parts/deed'
import { Panel } from '../parts/Panel'
import { Paste } from '../parts/Paste'
import { ProblemAlert } from '../parts/Problem'
import { ursa } from '../words/command'
import { type Differences, differencesWord, exportCommands } from '../words/differences'
import { moment } from '../words/size'
import { numberOf } from '../words/snapshot'

/** Maximum number of snapshots to choose from at once; typing finds the others. */
const CHOICES_MAX = 100
/** The choice of no earlier snapshot. */
const NONE = ''

/** What has changed since an earlier snapshot, and the commands that export it. */
export function ChangesPanel({ snapshot }: { snapshot: Snapshot }) {
  const [id, setId] = useState(snapshot.volumes[0]!.volume_id)
  const of = snapshot.volumes.find((one) => one.volume_id === id) ?? snapshot.volumes[0]!
  const snapshots = useSnapshots(of.volume_id)
  const earlier = (snapshots.data ?? []).filter((one) => one.number < snapshot.number && one.state === 'complete').reverse()
  const [chosen, setChosen] = useState<string>()
  // At first the one before it.
  const number = chosen ?? (earlier[0] ? numberOf(earlier[0]) : NONE)
  const since = earlier.find((one) => numberOf(one) === number)
  return (
    <Panel title="Changes and export" note="How much an incremental backup has to copy, and the commands for it. What the volume holds now is not compared: take a snapshot.">
      <Stack gap="sm">
        <Group gap="sm" align="flex-end">
          {snapshot.volumes.length > 1 && (
            <Select
              label="Volume"
              data={snapshot.volumes.map((one) => ({ value: one.volume_id, label: one.volume }))}
              value={of.volume_id}
              onChange={(value) => {
                if (value === null) return
                setId(value)
                setChosen(undefined)
              }}
              allowDeselect={false}
              searchable
              openOnFocus={false}
            />
          )}
          <Select
            label="Since"
            data={[...earlier.map((one) => ({ value: numberOf(one), label: `${one.name} (${moment(one.created)})` })), { value: NONE, label: 'the beginning: all that it has' }]}
            value={since ? numberOf(since) : NONE}
            onChange={(value) => setChosen(value ?? NONE)}
            limit={CHOICES_MAX}
            allowDeselect={false}
            searchable
            openOnFocus={false}
            style={{ flex: '1 1 260px', maxWidth: 520 }}
          />
        </Group>
        {snapshots.error && <ProblemAlert error={snapshots.error} what="Earlier snapshots cannot be listed" />}
        <Comparison key={`${of.volume_id} ${since ? numberOf(since) : NONE}`} volume={of.volume_id} snapshot={numberOf(snapshot)} since={since && numberOf(since)} />
        {since && <Paste label="List of what differs" text={ursa('snapshot', 'diff', `${of.volume}@${since.name}`, `${of.volume}@${snapshot.name}`)} />}
        <Paste label={since ? 'Export what has changed, for a backup' : 'Export all of it, for a backup'} text={exportCommands(of.volume, snapshot.name, since?.name)} />
      </Stack>
    </Panel>
  )
}

/** Compares when it is asked to, until it has been stopped or the page shows something else. */
function Comparison(of: { volume: string; snapshot: string; since?: string }) {
  const [found, setFound] = useState<Differences>()
  const { busy, error, run } = useDoing()
  const wanted = useRef(false)
  useEffect(() => () => { wanted.current = false }, [])
  const compare = () => {
    wanted.current = true
    setFound(undefined)
    return run(() =>
      compareSnapshots(of, (so_far) => {
        if (wanted.current) setFound(so_far)
        return wanted.current
      }),
    )
  }
  return (
    <>
      <Group gap="sm">
        <Button variant="default" loading={busy} onClick={() => void compare()}>
          Compare
        </Button>
        {busy && (
          <Button variant="subtle" onClick={() => { wanted.current = false }}>
            Stop
          </Button>
        )}
        <Text size="sm" role="status">
          {found ? differencesWord(found, of.since !== undefined) : !busy && 'Takes time in proportion to what differs; hosts continue meanwhile.'}
        </Text>
      </Group>
      {error !== undefined && <ProblemAlert error={error} what="The snapshots cannot be compared" />}
    </>
  )
}
