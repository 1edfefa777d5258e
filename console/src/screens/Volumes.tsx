import { Button, Group, SegmentedControl, Select, Stack, Table, Text, TextInput, Title } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { useMemo, useState } from 'react'
import { useMissingVolumes, useNodes, useVolumes } from '../api/queries'
import type { Volume } from '../api/types'
import { useLive } from '../live/live'
import type { Sample } from '../live/sample'
import { Age } from '../parts/Age'
import { MissingNote } from '../parts/MissingNote'
import { Empty, ProblemAlert, To } from '../parts/Problem'
import { Rows } from '../parts/Rows'
import { State } from '../parts/State'
import { go } from '../route'
import { count, rate, size } from '../words/size'
import { copiesWord, kindWord, nodesWord, volumeLink, volumeState } from '../words/volume'

type Filter = 'all' | 'attention' | 'busy'
type Order = 'name' | 'size' | 'load'

/** Maximum number of rows; the filter finds the others. */
const ROWS_MAX = 200

export function Volumes() {
  const volumes = useVolumes()
  const missing = useMissingVolumes()
  const live = useLive()
  const nodes = useNodes()
  const [typed, setTyped] = useState('')
  const [text] = useDebouncedValue(typed, 120)
  const [filter, setFilter] = useState<Filter>('all')
  const [on, setOn] = useState<string | null>(null)
  const [order, setOrder] = useState<Order>('name')
  const known = nodes.data ?? undefined
  const several = (known?.length ?? 0) > 1
  const all = volumes.data
  const attention = all?.filter((volume) => volumeState(volume).tone !== 'ok').length ?? 0
  const shown = useMemo(() => {
    const wanted = text.trim().toLowerCase()
    const load = (volume: Volume) => {
      const now = live.volumes.get(volume.id)
      return now ? now.reads + now.writes : 0
    }
    const found = (all ?? []).filter(
      (volume) =>
        (filter !== 'attention' || volumeState(volume).tone !== 'ok') &&
        (on === null || (volume.copies ?? []).some((copy) => String(copy.node) === on)) &&
        (filter !== 'busy' || load(volume) > 0) &&
        (wanted === '' || [volume.name, volume.pool, volume.kind, ...volume.maps.flatMap((map) => [map.target, map.host]), nodesWord(volume)].some((field) => field.toLowerCase().includes(wanted))),
    )
    if (order === 'size') found.sort((a, b) => b.size - a.size)
    if (order === 'load') found.sort((a, b) => load(b) - load(a))
    return found
  }, [all, text, filter, on, order, live.volumes])
  return (
    <Stack gap="md">
      <Group justify="space-between">
        <Title order={1} size="h3">
          Volumes
        </Title>
        <Button component="a" href="#/create">
          Create volume
        </Button>
      </Group>
      {volumes.error && <ProblemAlert error={volumes.error} what="The volumes cannot be listed" />}
      <MissingNote what="Volumes" missing={missing} />
      {all && all.length === 0 ? (
        <Empty>No volumes yet. A volume is a disk for hosts. Create one, then set up a host to use it.</Empty>
      ) : (
        <>
          <Group gap="sm">
            <TextInput
              placeholder="Name, target, host, pool"
              aria-label="Filter"
              value={typed}
              onChange={(event) => setTyped(event.currentTarget.value)}
              style={{ flex: '1 1 240px', maxWidth: 420 }}
            />
            <SegmentedControl
              value={filter}
              onChange={(value) => setFilter(value as Filter)}
              data={[
                { value: 'all', label: `All ${all?.length ?? ''}` },
                { value: 'attention', label: `Not healthy ${attention}` },
                { value: 'busy', label: 'In use now' },
              ]}
            />
            {several && (
              <Select
                aria-label="On which node"
                placeholder="On any node"
                data={(nodes.data ?? []).filter((node) => !node.witness).map((node) => ({ value: String(node.id), label: `On ${node.name}` }))}
                value={on}
                onChange={setOn}
                clearable
                w={150}
              />
            )}
            <SegmentedControl
              value={order}
              onChange={(value) => setOrder(value as Order)}
              aria-label="Sort order"
              data={[
                { value: 'name', label: 'By name' },
                { value: 'size', label: 'By size' },
                { value: 'load', label: 'By load' },
              ]}
            />
            <Age at={volumes.dataUpdatedAt} live />
          </Group>
          <Rows width={several ? 860 : 760} head={['Name', 'State', 'Size', 'Kind', 'Copies', several && 'Nodes', 'Mapped to', { right: 'IOPS' }, { right: 'Bandwidth' }]} hover>
            {shown.slice(0, ROWS_MAX).map((volume) => (
              <Row key={volume.id} volume={volume} now={live.volumes.get(volume.id)} several={several} />
            ))}
          </Rows>
          {all && shown.length === 0 && <Empty>None of {all.length} volumes matches. Change the filter.</Empty>}
          {shown.length > ROWS_MAX && <Text size="sm" c="dimmed">{shown.length - ROWS_MAX} more not shown. Use the filter to find them.</Text>}
        </>
      )}
    </Stack>
  )
}

function Row({ volume, now, several }: { volume: Volume; now?: Sample; several: boolean }) {
  const { tone, word, why } = volumeState(volume)
  const to = volumeLink(volume)
  const hosts = [...new Set(volume.maps.map((map) => map.host))]
  return (
    <Table.Tr data-link onClick={() => go(to)}>
      <Table.Td fw={600}>
        <To href={to}>{volume.name}</To>
      </Table.Td>
      <Table.Td>
        <State tone={tone} title={why}>
          {word}
        </State>
      </Table.Td>
      <Table.Td style={{ whiteSpace: 'nowrap' }}>{size(volume.size)}</Table.Td>
      <Table.Td style={{ whiteSpace: 'nowrap' }}>{kindWord(volume.kind)}</Table.Td>
      <Table.Td style={{ whiteSpace: 'nowrap' }}>{copiesWord(volume)}</Table.Td>
      {several && <Table.Td>{nodesWord(volume)}</Table.Td>}
      <Table.Td>{hosts.length > 0 ? hosts.join(', ') : <Text span size="sm" c="dimmed">none</Text>}</Table.Td>
      <Table.Td ta="right">{count(now ? now.reads + now.writes : 0)}</Table.Td>
      <Table.Td ta="right" style={{ whiteSpace: 'nowrap' }}>{rate(now ? now.readBytes + now.writeBytes : 0)}</Table.Td>
    </Table.Tr>
  )
}
