import { SimpleGrid } from '@mantine/core'
import { useMemo } from 'react'
import type { Step } from '../live/sample'
import { count, latency, rate } from '../words/size'
import { Chart, type Line, READ, WRITE } from './Chart'

/** Charts of requests, bytes and latency. */
export function LoadCharts({ steps, seconds }: {
  steps: Step[]
  /** The time shown, up to the last step. */
  seconds: number
}) {
  const { times, iops, bytes, latencies } = useMemo(() => {
    const line = (name: string, color: [string, string], value: (step: Step) => number | undefined, dashed = false): Line => ({ name, color, dashed, values: steps.map(value) })
    return {
      times: steps.map((step) => step.at),
      iops: [line('read', READ, (s) => s.reads), line('write', WRITE, (s) => s.writes)],
      bytes: [line('read', READ, (s) => s.readBytes), line('write', WRITE, (s) => s.writeBytes)],
      latencies: [
        line('read', READ, (s) => s.readLatency),
        line('write', WRITE, (s) => s.writeLatency),
        line('read p99', READ, (s) => s.readP99, true),
        line('write p99', WRITE, (s) => s.writeP99, true),
      ],
    }
  }, [steps])
  return (
    <SimpleGrid cols={{ base: 1, md: 3 }} spacing="md">
      <Chart label="IOPS" times={times} lines={iops} format={count} seconds={seconds} />
      <Chart label="Bandwidth" times={times} lines={bytes} format={rate} seconds={seconds} />
      <Chart label="Latency, mean and p99" times={times} lines={latencies} format={latency} seconds={seconds} />
    </SimpleGrid>
  )
}
