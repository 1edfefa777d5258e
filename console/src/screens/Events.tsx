import { Button, Group, SegmentedControl, Stack, Table, Text, TextInput, Title } from '@mantine/core'
import { useState } from 'react'
import { useMe } from '../api/access'
import { useAudit, useEvents } from '../api/queries'
import { Age } from '../parts/Age'
import { EventLine, newestFirst, toneOf } from '../parts/events'
import { Panel } from '../parts/Panel'
import { Empty, ProblemAlert } from '../parts/Problem'
import { Rows } from '../parts/Rows'
import { State } from '../parts/State'

export function Events() {
  const me = useMe()
  return (
    <Stack gap="md">
      <Title order={1} size="h3">
        Events and audit
      </Title>
      <EventsPanel />
      {me?.role === 'admin' && <AuditPanel />}
      {me && me.role !== 'admin' && (
        <Panel title="Audit">
          <Empty>Who did what is for admins to read; you are {me.role === 'operator' ? 'an operator' : 'a viewer'}.</Empty>
        </Panel>
      )}
    </Stack>
  )
}

/** So many events are shown at once; the audit log is below them. */
const EVENTS_PAGE = 30

function EventsPanel() {
  const events = useEvents()
  const [severity, setSeverity] = useState('all')
  const [text, setText] = useState('')
  const [many, setMany] = useState(EVENTS_PAGE)
  const wanted = text.trim().toLowerCase()
  const shown = newestFirst(events.data ?? []).filter(
    (event) => (severity === 'all' || toneOf(event) !== 'ok') && (wanted === '' || [event.text, event.code, event.subject, event.cause].some((part) => part?.toLowerCase().includes(wanted))),
  )
  return (
    <Panel title="Events" at={events.dataUpdatedAt} note="What the node that this page asks has seen: of the cluster what all nodes see; of sessions, pools and disks its own. The newest first.">
      {events.error && <ProblemAlert error={events.error} what="The events cannot be read" />}
      <Stack gap="sm">
        <Group gap="sm">
          <SegmentedControl value={severity} onChange={setSeverity} data={[{ value: 'all', label: 'All' }, { value: 'bad', label: 'Warnings and worse' }]} />
          <TextInput aria-label="Filter" placeholder="Volume, node or code" value={text} onChange={(event) => setText(event.currentTarget.value)} />
        </Group>
        {events.data && shown.length === 0 && <Empty>{events.data.length === 0 ? 'Nothing has happened yet that is worth a line.' : 'No event is like that. Change the filter.'}</Empty>}
        {shown.slice(0, many).map((event) => (
          <EventLine key={event.id} event={event} full />
        ))}
        {shown.length > many && (
          <Button variant="default" size="compact-sm" style={{ alignSelf: 'flex-start' }} onClick={() => setMany(many + EVENTS_PAGE)}>
            Show more of {shown.length}
          </Button>
        )}
      </Stack>
    </Panel>
  )
}

/** So many entries more at a press. */
const PAGE = 100
/** As the API has it. */
const AUDIT_MAX = 1000

function AuditPanel() {
  const [limit, setLimit] = useState(PAGE)
  const audit = useAudit(limit)
  return (
    <Panel title="Audit" at={audit.dataUpdatedAt} note="What was asked of the node that this page asks, by whom, and what became of it; the newest first.">
      {audit.error && <ProblemAlert error={audit.error} what="The audit log cannot be read" />}
      {audit.data?.length === 0 ? (
        <Empty>Nothing has been changed yet.</Empty>
      ) : (
        <Rows width={700} head={['When', 'Who', 'From', 'What', 'Answer']}>
          {(audit.data ?? []).map((entry) => (
            <Table.Tr key={entry.id}>
              <Table.Td>
                <Age at={entry.at * 1000} />
              </Table.Td>
              <Table.Td>
                {entry.who} <Text span size="xs" c="dimmed">{!entry.by ? 'not proved' : entry.by === 'local' ? 'on the node itself' : `by ${entry.by}`}</Text>
              </Table.Td>
              <Table.Td>{entry.address}</Table.Td>
              <Table.Td style={{ overflowWrap: 'anywhere' }}>{entry.action}</Table.Td>
              <Table.Td>
                {entry.status < 400 ? <State tone="ok">done</State> : <State tone="warning">{entry.code ?? String(entry.status)}</State>}
              </Table.Td>
            </Table.Tr>
          ))}
        </Rows>
      )}
      {audit.data && audit.data.length >= limit && limit < AUDIT_MAX && (
        <Button variant="default" size="compact-sm" onClick={() => setLimit(Math.min(AUDIT_MAX, limit + PAGE * 3))}>
          Show more
        </Button>
      )}
    </Panel>
  )
}
