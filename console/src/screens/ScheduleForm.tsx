import { Group, List, NumberInput, Stack, Text, TextInput } from '@mantine/core'
import { useState } from 'react'
import { api, data } from '../api/client'
import { useSchedules, useSnapshots, useVolumes } from '../api/queries'
import type { SnapshotSchedule, Volume } from '../api/types'
import { Ask, Said } from '../parts/deed'
import { LogVolumes, haveSnapshots } from '../parts/LogVolumes'
import { parseInterval } from '../words/interval'
import { isName } from '../words/names'
import { nextDue } from '../words/retention'
import { type ScheduleDraft, afterChangeWord, changeRequest, createRequest, draftOf, emptySchedule, keepsLines, retentionOf, scheduleCommand, scheduleProblems } from '../words/schedule'
import { moment } from '../words/size'

/** Creates a schedule; `volume`: the ID of the volume that is chosen first. */
export function CreateSchedule({ volume, close }: { volume?: string; close: () => void }) {
  const volumes = useVolumes().data ?? []
  const known = useSchedules().data ?? []
  const [draft, setDraft] = useState<ScheduleDraft>({ ...emptySchedule, volumes: volume === undefined ? [] : [volume] })
  const problems = scheduleProblems(draft, known)
  const request = createRequest(draft)
  return (
    <Ask
      opened
      close={close}
      title="Create schedule"
      label="Create"
      ready={isName(draft.name) && Object.keys(problems).length === 0 && haveSnapshots(draft.volumes, volumes)}
      command={scheduleCommand('create', draft.name, request, volumes)}
      act={() => data(api.POST('/v1/snapshot-schedules', { body: request }))}
      done={`Schedule ${draft.name} created.`}
    >
      <Said>Takes snapshots of the volumes at an interval, each at one point in time for all of them, and deletes those that it does not keep. Snapshots on hold, and those that you take yourself, are never deleted by it.</Said>
      <TextInput label="Name" description="Its snapshots are called after it and the time; at most 42 characters" value={draft.name} onChange={(event) => setDraft({ ...draft, name: event.currentTarget.value })} error={problems.name} data-autofocus />
      <Fields draft={draft} set={setDraft} problems={problems} volumes={volumes} />
    </Ask>
  )
}

/** Changes a schedule, and shows what it would delete. */
export function ChangeSchedule({ schedule, close }: { schedule: SnapshotSchedule; close: () => void }) {
  // As it was when the dialog opened.
  const [first] = useState(schedule)
  const volumes = useVolumes().data
  const snapshots = useSnapshots().data
  const [typed, setDraft] = useState<ScheduleDraft>()
  // Its volumes are known by name only.
  if (!volumes) return null
  const draft = typed ?? draftOf(first, volumes)
  const problems = scheduleProblems(draft, [], first)
  const request = changeRequest(first, draft, volumes)
  const valid = Object.keys(problems).length === 0
  const now = Date.now() / 1000
  return (
    <Ask
      opened
      close={close}
      title={`Change schedule ${first.name}`}
      label="Change schedule"
      ready={valid && Object.keys(request).length > 0 && (request.volumes == null || haveSnapshots(request.volumes, volumes))}
      command={scheduleCommand('change', first.name, request, volumes)}
      act={() => data(api.PATCH('/v1/snapshot-schedules/{schedule}', { params: { path: { schedule: first.name } }, body: request }))}
      done={`Schedule ${first.name} changed.`}
    >
      <Fields draft={draft} set={setDraft} problems={problems} volumes={volumes} />
      {valid && snapshots && (
        <Text size="sm" role="status">
          {afterChangeWord(first, { ...retentionOf(draft), every: parseInterval(draft.every) ?? first.every }, snapshots, now)}
        </Text>
      )}
    </Ask>
  )
}

/** What both have in common, with a preview of what is kept. */
function Fields({ draft, set, problems, volumes }: { draft: ScheduleDraft; set: (draft: ScheduleDraft) => void; problems: ReturnType<typeof scheduleProblems>; volumes: Volume[] }) {
  const every = problems.every === undefined ? parseInterval(draft.every) : undefined
  const kept = (label: string, rule: 'keep' | 'daily' | 'weekly' | 'monthly') => (
    <NumberInput label={label} value={draft[rule]} onChange={(value) => set({ ...draft, [rule]: value })} min={0} allowDecimal={false} allowNegative={false} w={110} error={problems.keep !== undefined} />
  )
  return (
    <>
      <LogVolumes volumes={volumes} ids={draft.volumes} choose={(volumes) => set({ ...draft, volumes })} description="Each snapshot has all of them, for example a database and its log" />
      <TextInput
        label="Interval"
        description={every === undefined ? 'For example 15m, 1h or 1d' : `Due at its multiples in UTC: next at ${moment(nextDue(every, Date.now() / 1000))} (your time zone)`}
        value={draft.every}
        onChange={(event) => set({ ...draft, every: event.currentTarget.value })}
        error={problems.every}
      />
      <Group gap="sm" align="flex-start" role="group" aria-label="Which snapshots are kept">
        {kept('Keep latest', 'keep')}
        {kept('Days', 'daily')}
        {kept('Weeks', 'weekly')}
        {kept('Months', 'monthly')}
      </Group>
      {problems.keep !== undefined && (
        <Text size="sm" c="red" role="alert">
          {problems.keep}
        </Text>
      )}
      {every !== undefined && problems.keep === undefined && (
        <Stack gap={4}>
          <Text size="sm" fw={600}>What is kept</Text>
          <List size="sm">
            {keepsLines(every, retentionOf(draft)).map((line) => <List.Item key={line}>{line}</List.Item>)}
          </List>
        </Stack>
      )}
    </>
  )
}
