import { Group, Stack, Table, Text, Title } from '@mantine/core'
import { useState } from 'react'
import { api, data } from '../api/client'
import { useSchedules } from '../api/queries'
import type { SnapshotSchedule } from '../api/types'
import { Age } from '../parts/Age'
import { useNow } from '../parts/clock'
import { Ask, DeedButton, Said } from '../parts/deed'
import { Empty, ProblemAlert, To } from '../parts/Problem'
import { Rows } from '../parts/Rows'
import { State } from '../parts/State'
import { Tried } from '../parts/Tried'
import { link } from '../route'
import { ursa } from '../words/command'
import { duration, moment } from '../words/size'
import { keepsWord, nextWord, scheduleState } from '../words/schedule'
import { ChangeSchedule, CreateSchedule } from './ScheduleForm'

type Deed = 'change' | 'pause' | 'delete'

/** By which schedules snapshots are taken, and how they do. */
export function Schedules() {
  const schedules = useSchedules()
  const [creating, setCreating] = useState(false)
  const [chosen, setChosen] = useState<{ schedule: SnapshotSchedule; deed: Deed }>()
  const close = () => setChosen(undefined)
  const all = schedules.data
  return (
    <Stack gap="md">
      <Group justify="space-between">
        <Title order={1} size="h3">
          Schedules
        </Title>
        <Group gap="sm">
          {all && <Age at={schedules.dataUpdatedAt} live />}
          <DeedButton onClick={() => setCreating(true)}>Create schedule</DeedButton>
        </Group>
      </Group>
      {schedules.error && <ProblemAlert error={schedules.error} what="The schedules cannot be listed" />}
      {!all ? (
        !schedules.error && <Empty>Loading…</Empty>
      ) : all.length === 0 ? (
        <Empty>No schedules yet. A schedule takes snapshots of one or several log volumes at an interval, and deletes those that it does not keep.</Empty>
      ) : (
        <>
          <Rows width={1020} head={['Name', 'State', 'Volumes', 'Interval', 'Keeps', { right: 'Snapshots' }, 'Last taken', 'Next', '']}>
            {all.map((one) => (
              <Row key={one.name} schedule={one} choose={(deed) => setChosen({ schedule: one, deed })} />
            ))}
          </Rows>
          <Text size="sm" c="dimmed">
            Intervals, days, weeks and months are counted in UTC. One node of the cluster takes each snapshot, whichever are up. Snapshots in the same pools as the volumes help against mistakes; they are not a backup against the loss of the disks.
          </Text>
        </>
      )}
      {creating && <CreateSchedule close={() => setCreating(false)} />}
      {chosen?.deed === 'change' && <ChangeSchedule schedule={chosen.schedule} close={close} />}
      {chosen?.deed === 'pause' && <PauseSchedule schedule={chosen.schedule} close={close} />}
      {chosen?.deed === 'delete' && <DeleteSchedule schedule={chosen.schedule} close={close} />}
    </Stack>
  )
}

function Row({ schedule, choose }: { schedule: SnapshotSchedule; choose: (deed: Deed) => void }) {
  const now = useNow() / 1000
  const { name, volumes, every, snapshots, last_snapshot, last_success, next, paused } = schedule
  const { tone, word, why } = scheduleState(schedule)
  return (
    <Table.Tr>
      <Table.Td fw={600} miw={120} style={{ overflowWrap: 'anywhere' }}>{name}</Table.Td>
      <Table.Td>
        <State tone={tone} title={why}>
          {word}
        </State>
        {(tone === 'warning' || tone === 'working') && <Text size="xs" style={{ overflowWrap: 'anywhere' }}>{why}</Text>}
      </Table.Td>
      <Table.Td style={{ overflowWrap: 'anywhere' }}>
        {volumes.map((volume, at) => (
          <span key={volume}>
            {at > 0 && ', '}
            <To href={link('volumes', volume)}>{volume}</To>
          </span>
        ))}
      </Table.Td>
      <Table.Td style={{ whiteSpace: 'nowrap' }}>{duration(every)}</Table.Td>
      <Table.Td>{keepsWord(schedule)}</Table.Td>
      <Table.Td ta="right">{snapshots > 0 ? <To href={`#/snapshots?find=${encodeURIComponent(name)}`}>{snapshots}</To> : 0}</Table.Td>
      <Table.Td>{last_success == null ? '–' : <span title={last_snapshot ?? undefined}>{moment(last_success)} <Age at={last_success * 1000} /></span>}</Table.Td>
      <Table.Td>
        {next != null && <>{moment(next)} </>}
        <Text span size="xs" c="dimmed" style={{ whiteSpace: 'nowrap' }}>{nextWord(schedule, now)}</Text>
      </Table.Td>
      <Table.Td>
        <Group gap={6} justify="flex-end" wrap="nowrap">
          <DeedButton size="compact-sm" variant="default" onClick={() => choose('change')}>
            Change
          </DeedButton>
          <DeedButton size="compact-sm" variant="default" onClick={() => choose('pause')}>
            {paused ? 'Resume' : 'Pause'}
          </DeedButton>
          <DeedButton size="compact-sm" variant="default" onClick={() => choose('delete')}>
            Delete
          </DeedButton>
        </Group>
      </Table.Td>
    </Table.Tr>
  )
}

function PauseSchedule({ schedule, close }: { schedule: SnapshotSchedule; close: () => void }) {
  // As it was when the dialog opened: the list follows the change before the dialog is closed.
  const [{ name, paused }] = useState(schedule)
  return (
    <Ask
      opened
      close={close}
      title={`${paused ? 'Resume' : 'Pause'} schedule ${name}`}
      label={paused ? 'Resume schedule' : 'Pause schedule'}
      command={ursa('snapshot', 'schedule', paused ? 'resume' : 'pause', name)}
      act={() => data(api.PATCH('/v1/snapshot-schedules/{schedule}', { params: { path: { schedule: name } }, body: { paused: !paused } }))}
      done={paused ? `Schedule ${name} is active.` : `Schedule ${name} is paused.`}
    >
      <Said>{paused ? 'It takes its next snapshot at the next multiple of its interval. Those that were due while it was paused are not taken. After that snapshot it deletes what it does not keep.' : 'It takes and deletes no snapshots until it is resumed. Those that are due meanwhile are not taken later.'}</Said>
    </Ask>
  )
}

function DeleteSchedule({ schedule: { name }, close }: { schedule: SnapshotSchedule; close: () => void }) {
  return (
    <Ask
      opened
      close={close}
      title={`Delete schedule ${name}`}
      label="Delete schedule"
      danger
      command={ursa('snapshot', 'schedule', 'delete', name)}
      act={() => data(api.DELETE('/v1/snapshot-schedules/{schedule}', { params: { path: { schedule: name } } }))}
      done={`Schedule ${name} deleted. Its snapshots stay.`}
    >
      <Said>Its snapshots are not deleted automatically any more, not even by a new schedule of this name. To free their space later, delete them or set when they expire, on the “Snapshots” screen.</Said>
      <Tried method="DELETE" path={`/v1/snapshot-schedules/${encodeURIComponent(name)}`} failure="The schedule cannot be deleted" />
    </Ask>
  )
}
