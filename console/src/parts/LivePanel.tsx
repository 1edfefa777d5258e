import { Stack } from '@mantine/core'
import type { ReactNode } from 'react'
import { useNode, useNodes } from '../api/queries'
import { useLive } from '../live/live'
import type { Sample } from '../live/sample'
import { listed, unheard } from '../words/missing'
import { LoadCharts } from './LoadCharts'
import { MissingNote } from './MissingNote'
import { Panel } from './Panel'
import { Empty, ProblemAlert } from './Problem'

/** The time that the charts show. */
const SECONDS = 180

/** Requests, bytes and latency per second. `what` names the volumes, as in "Host I/O to this volume". */
export function LivePanel({ title, what, samples, right }: { title: string; what: string; samples: Sample[]; right?: ReactNode }) {
  const live = useLive()
  const node = useNode()
  const nodes = useNodes()
  const name = (id: number) => nodes.data?.find((one) => one.id === id)?.name ?? node.data?.name ?? 'this node'
  const through = live.nodes.length === 0 ? '' : live.nodes.length === nodes.data?.filter((one) => !one.witness).length ? 'all nodes' : listed(live.nodes.map((one) => name(one.node)))
  return (
    <Panel title={title} at={live.at} right={right} note={`Host I/O ${what}${through ? ` through ${through}` : ''}, per second, since this page was opened.`}>
      {live.problem && samples.length === 0 ? (
        <ProblemAlert error={live.problem} what="No live data" />
      ) : samples.length === 0 ? (
        <Empty>Waiting for the first sample…</Empty>
      ) : (
        <Stack gap="xs">
          <MissingNote what="Live data" missing={unheard(live, nodes.data)} />
          <LoadCharts steps={samples} seconds={SECONDS} />
        </Stack>
      )}
    </Panel>
  )
}
