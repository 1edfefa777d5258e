import { Button, Group, SegmentedControl, Select, Stack, Table, Text, TextInput, Title } from '@mantine/core'
import { useState } from 'react'
import { useMe } from '../api/access'
import { type OfNode, useAudit, useEvents, useMissingEvents, useNodes } from '../api/queries'
import { Age } from '../parts/Age'
import { EventLine, newestFirst } from '../parts/events'
import { MissingNote } from '../parts/MissingNote'
import { Panel } from '../parts/Panel'
import { Empty, ProblemAlert } from '../parts/Problem'
import { Rows } from '../parts/Rows'
import { State } from '../parts/State'
import { keyOf, secondsOf } from '../words/events'

export function Events() {
  const me = useMe()
  const nodes = useNodes().data ?? []
  const [chosen, setChosen] = useState('all')
  // The chosen node may have been removed from the cluster.
  const node = nodes.find((one) => String(one.id) === chosen)?.id ?? 'all'
  const [moment, setMoment] = useState('')
  const until = secondsOf(moment)
  return (
    <Stack gap="md">
      <Group justify="space-between" align="flex-end">
        <Title order={1} size="h3">
          Events and audit
        </Title>
        <Group gap="sm" align="flex-end">
          <TextInput type="datetime-local" label="Until" value={moment} onChange={(event) => setMoment(event.currentTarget.value)} />
          {nodes.length > 1 && (
            <Select
              label="Node"
              data={[{ value: 'all', label: 'All nodes' }, ...nodes.map((one) => ({ value: String(one.id), label: `${one.name} (node ${one.id})` }))]}
              value={String(node)}
              onChange={(value) => setChosen(value ?? 'all')}
              allowDeselect={false}
            />
          )}
        </Group>
      </Group>
      <EventsPanel node={node} until={until} />
      {me?.role === 'admin' && <AuditPanel node={node} until={until} several={nodes.length > 1} />}
      {me && me.role !== 'admin' && (
        <Panel title="Audit log">
          <Empty>Only admins can read the audit log; you are {me.role === 'operator' ? 'an operator' : 'a viewer'}.</Empty>
        </Panel>
      )}
    </Stack>
  )
}

/** Number of events per page; the audit log is below them. */
const EVENTS_PAGE = 30

/** The node, and the end of the period in seconds since 1970; without it, the newest events. */
interface Wanted {
  node: OfNode
  until: number | undefined
}

function EventsPanel({ node, until }: Wanted) {
  const [severity, setSeverity] = useState('all')
  const asked = { node, until, severity: severity === 'all' ? undefined : ('warning' as const) }
  const events = useEvents(asked)
  const missing = useMissingEvents(asked)
  const [text, setText] = useState('')
  const [many, setMany] = useState(EVENTS_PAGE)
  const wanted = text.trim().toLowerCase()
  const shown = newestFirst(events.data ?? []).filter(
    (event) => wanted === '' || [event.text, event.code, event.subject, event.cause].some((part) => part?.toLowerCase().includes(wanted)),
  )
  return (
    <Panel title="Events" at={events.dataUpdatedAt} note="Newest first; times are from the clock of each node. A cluster event that several nodes saw is listed once; events of sessions, pools and disks belong to one node each.">
      <MissingNote what="Events" missing={missing} />
      {events.error && <ProblemAlert error={events.error} what="The events cannot be read" />}
      <Stack gap="sm">
        <Group gap="sm">
          <SegmentedControl value={severity} onChange={setSeverity} data={[{ value: 'all', label: 'All' }, { value: 'bad', label: 'Warning and critical' }]} />
          <TextInput aria-label="Filter" placeholder="Volume, node or code" value={text} onChange={(event) => setText(event.currentTarget.value)} />
        </Group>
        {events.data && shown.length === 0 && <Empty>{events.data.length === 0 && severity === 'all' ? (until === undefined ? 'No events yet.' : 'No events are kept from before that time. Choose a later one.') : 'No event matches. Change the filter.'}</Empty>}
        {shown.slice(0, many).map((event) => (
          <EventLine key={keyOf(event)} event={event} full />
        ))}
        {shown.length > many && (
          <Button variant="default" size="compact-sm" style={{ alignSelf: 'flex-start' }} onClick={() => setMany(many + EVENTS_PAGE)}>
            Show more ({shown.length} in total)
          </Button>
        )}
      </Stack>
    </Panel>
  )
}

/** Number of entries per page. */
const PAGE = 100
/** As in the API. */
const AUDIT_MAX = 1000

function AuditPanel({ node, until, several }: Wanted & { several: boolean }) {
  const [limit, setLimit] = useState(PAGE)
  const audit = useAudit(limit, node, until)
  const entries = audit.data?.items
  return (
    <Panel title="Audit log" at={audit.dataUpdatedAt} note="Who requested what at which node, and the result; newest first.">
      <MissingNote what="Entries" missing={audit.data?.missing ?? []} />
      {audit.error && <ProblemAlert error={audit.error} what="The audit log cannot be read" />}
      {entries?.length === 0 ? (
        <Empty>{until === undefined ? 'No changes yet.' : 'No entries from before that time. Choose a later one.'}</Empty>
      ) : (
        <Rows width={700} head={['When', several && 'Node', 'User', 'From', 'Action', 'Result']}>
          {(entries ?? []).map((entry) => (
            <Table.Tr key={`${entry.node ?? ''}/${entry.id}`}>
              <Table.Td>
                <Age at={entry.at * 1000} />
              </Table.Td>
              {several && <Table.Td>{entry.node_name || (entry.node ? `node ${entry.node}` : '')}</Table.Td>}
              <Table.Td>
                {entry.who} <Text span size="xs" c="dimmed">{!entry.by ? 'not authenticated' : entry.by === 'local' ? 'on the node itself' : `by ${entry.by}`}</Text>
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
      {entries && entries.length >= limit && limit < AUDIT_MAX && (
        <Button variant="default" size="compact-sm" onClick={() => setLimit(Math.min(AUDIT_MAX, limit + PAGE * 3))}>
          Show more
        </Button>
      )}
    </Panel>
  )
}
