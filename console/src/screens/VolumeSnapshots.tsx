import { Button, Group, Text, Timeline } from '@mantine/core'
import { useState } from 'react'
import { useMissingSnapshots, useSchedules, useSnapshots } from '../api/queries'
import type { Volume } from '../api/types'
import { Age } from '../parts/Age'
import { useNow } from '../parts/clock'
import { DeedButton } from '../parts/deed'
import { MissingNote } from '../parts/MissingNote'
import { Panel } from '../parts/Panel'
import { Paste } from '../parts/Paste'
import { Empty, ProblemAlert, To } from '../parts/Problem'
import { State } from '../parts/State'
import { ursa } from '../words/command'
import { nextWord, scheduleState } from '../words/schedule'
import { moment, plural } from '../words/size'
import { copiesWord, freesWord, snapshotLink } from '../words/snapshot'
import { CreateSchedule } from './ScheduleForm'
import { SnapshotMenu } from './SnapshotActions'
import { SnapshotBadges, SnapshotNote } from './Snapshots'
import { TakeSnapshot } from './TakeSnapshot'

/** Number of snapshots shown here at first, and how many more each time. */
const SNAPSHOTS_SHOWN = 8
const MORE = 50

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
  const schedules = (useSchedules().data ?? []).filter((one) => one.volumes.includes(volume.name))
  const missing = useMissingSnapshots(volume.id)
  const now = useNow() / 1000
  const [open, setOpen] = useState<'take' | 'schedule'>()
  const [count, setCount] = useState(SNAPSHOTS_SHOWN)
  const all = [...(snapshots.data ?? [])].reverse()
  return (
    <Panel
      title="Snapshots"
      at={snapshots.dataUpdatedAt}
      note="Newest first. “Deletion frees” counts this volume only."
      right={
        <>
          <To href={`#/snapshots?find=${encodeURIComponent(volume.name)}`} small>All</To>
          <DeedButton size="compact-sm" variant="default" onClick={() => setOpen('schedule')}>
            Create schedule
          </DeedButton>
          <DeedButton size="compact-sm" variant="default" onClick={() => setOpen('take')}>
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
      ) : all.length === 0 && schedules.length === 0 ? (
        <Empty>No snapshots of this volume.</Empty>
      ) : (
        <Timeline bulletSize={14} lineWidth={2}>
          {schedules.map((one) => {
            const { tone, word, why } = scheduleState(one)
            return (
              <Timeline.Item
                key={one.name}
                lineVariant="dashed"
                title={
                  <Group gap="xs">
                    <Text span inherit>
                      Next by schedule <To href="#/schedules">{one.name}</To>
                    </Text>
                    <State tone={tone} title={why}>
                      {word}
                    </State>
                  </Group>
                }
              >
                <Text size="sm">
                  {one.next != null && moment(one.next)} <Text span size="xs" c="dimmed">{nextWord(one, now)}</Text>
                </Text>
              </Timeline.Item>
            )
          })}
          {all.slice(0, count).map((one) => {
            const own = one.volumes.filter((of) => of.volume_id === volume.id)
            const frees = freesWord(own)
            const others = one.volumes.length - own.length
            return (
              <Timeline.Item
                key={one.number}
                title={
                  <Group gap="xs" justify="space-between">
                    <Group gap="xs">
                      <To href={snapshotLink(one)}>{one.name}</To>
                      <SnapshotBadges snapshot={one} />
                    </Group>
                    <SnapshotMenu snapshot={one} />
                  </Group>
                }
              >
                <Text size="sm">
                  {moment(one.created)} <Age at={one.created * 1000} />
                </Text>
                <SnapshotNote snapshot={one} />
                <Text size="sm" c="dimmed">
                  {copiesWord(own)} copies have it.{frees && ` Deletion frees ${frees}.`}{others > 0 && ` With ${plural(others, 'other volume')}.`}
                </Text>
              </Timeline.Item>
            )
          })}
        </Timeline>
      )}
      {all.length > count && (
        <Button variant="subtle" size="compact-sm" mt="xs" onClick={() => setCount(count + MORE)}>
          {`Show ${Math.min(MORE, all.length - count)} of ${all.length - count} earlier ones`}
        </Button>
      )}
      {open === 'take' && <TakeSnapshot volume={volume.id} close={() => setOpen(undefined)} />}
      {open === 'schedule' && <CreateSchedule volume={volume.id} close={() => setOpen(undefined)} />}
    </Panel>
  )
}
