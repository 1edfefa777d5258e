import { SegmentedControl, SimpleGrid, Stack } from '@mantine/core'
import { type ReactNode, useMemo, useState } from 'react'
import { useHistory } from '../api/queries'
import { useLive } from '../live/live'
import { Chart } from '../parts/Chart'
import { LivePanel } from '../parts/LivePanel'
import { LoadCharts } from '../parts/LoadCharts'
import { MissingNote } from '../parts/MissingNote'
import { Panel } from '../parts/Panel'
import { Empty, ProblemAlert } from '../parts/Problem'
import { LOAD_SERIES, addUp } from '../words/history'
import { duration, size } from '../words/size'

const HOUR = 3600
const DAY = 24 * HOUR
const RANGES = [
  { value: '0', label: 'Now' },
  { value: String(HOUR), label: '1 h' },
  { value: String(6 * HOUR), label: '6 h' },
  { value: String(DAY), label: '1 d' },
  { value: String(7 * DAY), label: '7 d' },
]

/** Points per line. */
const POINTS = 240
/** One per node, repeated if there are more nodes. */
const COLORS: [string, string][] = [['#1971c2', '#4dabf7'], ['#2b8a3e', '#69db7c'], ['#e67700', '#ffd43b'], ['#862e9c', '#da77f2'], ['#c2255c', '#f783ac'], ['#0b7285', '#3bc9db']]
const MISSED: [string, string] = ['#e67700', '#ffd43b']

/** The load of all nodes: now, or in the last hours and days. */
export function LoadPanel() {
  const live = useLive()
  const [range, setRange] = useState('0')
  const choice = <SegmentedControl size="xs" aria-label="Time" value={range} onChange={setRange} data={RANGES} />
  return range === '0' ? <LivePanel title="Load" what="to all volumes" samples={live.total} right={choice} /> : <HistoryPanel seconds={Number(range)} choice={choice} />
}

function HistoryPanel({ seconds, choice }: { seconds: number; choice: ReactNode }) {
  const kept = useHistory(LOAD_SERIES, seconds, POINTS)
  const { load, cores, outOfSync } = useMemo(() => addUp(kept.data ?? { from: 0, step_s: 1, series: [] }), [kept.data])
  const times = useMemo(() => load.map((step) => step.at), [load])
  const busy = useMemo(() => cores.map(({ name, values }, at) => ({ name, values, color: COLORS[at % COLORS.length]! })), [cores])
  const missed = useMemo(() => [{ name: 'missed by copies', values: outOfSync, color: MISSED }], [outOfSync])
  const shown = load.some((step) => step.reads !== undefined)
  return (
    <Panel title="Load" at={kept.dataUpdatedAt} right={choice} note={`Load of all nodes in the last ${duration(seconds)}${kept.data ? `, one point per ${duration(kept.data.step_s)}` : ''}: means, and the highest p99 latency. Nodes keep seven days.`}>
      {kept.error && <ProblemAlert error={kept.error} what="The history cannot be read" />}
      <MissingNote what="Values" missing={kept.data?.missing ?? []} />
      {!kept.data ? (
        !kept.error && <Empty>Loading…</Empty>
      ) : !shown ? (
        <Empty>No data for this period yet. A node records its load every ten seconds while it runs.</Empty>
      ) : (
        <Stack gap="md">
          <LoadCharts steps={load} seconds={seconds} />
          <SimpleGrid cols={{ base: 1, md: 3 }} spacing="md">
            <Chart label="Cores busy" times={times} lines={busy} format={(part) => `${Math.round(100 * part)} %`} seconds={seconds} />
            <Chart label="Out of sync" times={times} lines={missed} format={size} seconds={seconds} />
          </SimpleGrid>
        </Stack>
      )}
    </Panel>
  )
}
