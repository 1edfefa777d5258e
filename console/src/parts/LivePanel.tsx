import { SimpleGrid } from '@mantine/core'
import { useMemo } from 'react'
import type { Sample } from '../live/live'
import { count, latency, rate } from '../words/size'
import { Chart, type Line, READ, WRITE } from './Chart'
import { Empty, ProblemAlert } from './Problem'
import { Panel } from './Panel'

/** What the pictures show at once. */
const SECONDS = 180

/** Requests, bytes and latency of each second, as lines. */
export function LivePanel({ title, note, samples, at, problem }: {
  title: string
  note: string
  samples: Sample[]
  at: number
  problem?: unknown
}) {
  const { times, iops, bytes, latencies } = useMemo(() => {
    const line = (name: string, color: [string, string], value: (sample: Sample) => number | undefined): Line => ({
      name,
      color,
      values: samples.map(value),
    })
    return {
      times: samples.map((sample) => sample.at),
      iops: [line('read', READ, (s) => s.reads), line('write', WRITE, (s) => s.writes)],
      bytes: [line('read', READ, (s) => s.readBytes), line('write', WRITE, (s) => s.writeBytes)],
      latencies: [line('read', READ, (s) => s.readLatency), line('write', WRITE, (s) => s.writeLatency)],
    }
  }, [samples])
  return (
    <Panel title={title} at={at} note={note}>
      {problem && samples.length === 0 ? (
        <ProblemAlert error={problem} what="No figures" />
      ) : samples.length === 0 ? (
        <Empty>The first second is being counted.</Empty>
      ) : (
        <SimpleGrid cols={{ base: 1, md: 3 }} spacing="md">
          <Chart label="Requests a second" times={times} lines={iops} format={count} seconds={SECONDS} />
          <Chart label="Bandwidth" times={times} lines={bytes} format={rate} seconds={SECONDS} />
          <Chart label="Mean latency" times={times} lines={latencies} format={latency} seconds={SECONDS} />
        </SimpleGrid>
      )}
    </Panel>
  )
}
