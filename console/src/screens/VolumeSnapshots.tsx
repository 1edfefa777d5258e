import { Group, Text, Timeline } from '@mantine/core'
import { useState } from 'react'
import { useMissingSnapshots, useSnapshots } from '../api/queries'
import type { Volume } from '../api/types'
import { Age } from '../parts/Age'
import { DeedButton } from '../parts/deed'
import { MissingNote } from '../parts/MissingNote'
import { Panel } from '../parts/Panel'
import { Paste } from '../parts/Paste'
import { Empty, ProblemAlert, To } from '../parts/Problem'
import { ursa } from '../words/command'
import { moment, plural } from '../words/size'
import { copiesWord, freesWord, snapshotLink } from '../words/snapshot'
import { TakeSnapshot } from './SnapshotActions'
import { SnapshotBadges } from './Snapshots'

/** Maximum number of snapshots shown here; the Snapshots screen has more. */
const SNAPSHOTS_MAX = 8

/** The snapshots of a volume as a time line, or why it has none. */
export function SnapshotsPanel({ volume }: { volume: Volume }) {
  switch (volume.kind) {
    case 'log':
      return <TimelinePanel volume={volume} />
    case 'thick':
      return (
        <Panel title="Snapshots" note="Only log volumes have snapshots. Hosts can use this thick volume while it is converted.">
          <Paste text={ursa('volume', 'convert', volume.name, '--kind', 'log')} label="To convert it" />
        </Panel>
      )
    case 'ram':
      return (
        <Panel title="Snapshots">
          <Text size="sm" c="dimmed">Only log volumes have snapshots, and a RAM volume cannot be converted.</Text>
        </Panel>
      )
  }
}

function TimelinePanel({ volume }: { volume: Volume }) {
  const snapshots = useSnapshots(volume.id)
  const missing = useMissingSnapshots(volume.id)
  const [taking, setTaking] = useState(false)
  const all = [...(snapshots.data ?? [])].reverse()
  return (
    <Panel
      title="Snapshots"
      at={snapshots.dataUpdatedAt}
      note="Newest first. “Deletion frees” counts this volume only."
      right={
        <>
          <To href="#/snapshots" small>All</To>
          <DeedButton size="compact-sm" variant="default" onClick={() => setTaking(true)}>
            Take snapshot
          </DeedButton>
        </>
      }
    >
      <MissingNote what="Snapshot details" missing={missing} />
      {snapshots.error ? (
        <ProblemAlert error={snapshots.error} what="The snapshots cannot be listed" />
      ) : !snapshots.data ? (
        <Empty>Loading…</Empty>
      ) : all.length === 0 ? (
        <Empty>No snapshots of this volume.</Empty>
      ) : (
        <Timeline bulletSize={14} lineWidth={2}>
          {all.slice(0, SNAPSHOTS_MAX).map((one) => {
            const own = one.volumes.filter((of) => of.volume_id === volume.id)
            const frees = freesWord(own)
            const others = one.volumes.length - own.length
            return (
              <Timeline.Item
                key={one.number}
                title={
                  <Group gap="xs">
                    <To href={snapshotLink(one)}>{one.name}</To>
                    <SnapshotBadges snapshot={one} />
                  </Group>
                }
              >
                <Text size="sm">
                  {moment(one.created)} <Age at={one.created * 1000} />
                </Text>
                <Text size="sm" c="dimmed">
                  {copiesWord(own)} copies have it.{frees && ` Deletion frees ${frees}.`}{others > 0 && ` With ${plural(others, 'other volume')}.`}
                </Text>
              </Timeline.Item>
            )
          })}
        </Timeline>
      )}
      {all.length > SNAPSHOTS_MAX && <Text size="sm" c="dimmed">and {all.length - SNAPSHOTS_MAX} earlier ones.</Text>}
      {taking && <TakeSnapshot volume={volume.id} close={() => setTaking(false)} />}
    </Panel>
  )
}
