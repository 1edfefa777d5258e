import { Box, Text, useComputedColorScheme } from '@mantine/core'
import { useEffect, useMemo, useRef, useState } from 'react'
import uPlot from 'uplot'
import { moment } from '../words/size'
import { useWidth } from './width'

export interface Line {
  name: string
  /** One for each color scheme. */
  color: [light: string, dark: string]
  /** Whether the line is dashed. */
  dashed?: boolean
  values: (number | undefined)[]
}

export const READ: [string, string] = ['#1971c2', '#4dabf7']
export const WRITE: [string, string] = ['#c2255c', '#f783ac']

/** Room above the highest value. */
const HEADROOM = 1.08
/** For ranges from this length on, the axis shows clock times instead of minutes ago. */
const CLOCK_FROM = 3600

/** A line chart over time. Undefined values are gaps. The pointer shows the values at one time. */
export function Chart({
  times,
  lines,
  format,
  height = 130,
  label,
  seconds,
}: {
  /** Seconds since 1970. */
  times: number[]
  lines: Line[]
  format: (value: number) => string
  height?: number
  label: string
  /** The time shown, up to the last value. */
  seconds: number
}) {
  const [box, width] = useWidth()
  const dark = useComputedColorScheme('light') === 'dark'
  const [pointed, setPointed] = useState<number>()
  const plot = useRef<uPlot>(undefined)
  const formatRef = useRef(format)
  formatRef.current = format
  const names = lines.map((line) => line.name).join()

  const data = useMemo<uPlot.AlignedData>(
    () => [times, ...lines.map((line) => line.values.map((value) => value ?? null))],
    [times, lines],
  )
  const dataRef = useRef(data)
  dataRef.current = data

  useEffect(() => {
    const element = box.current
    if (!element || width < 50) return
    const ink = dark ? '#909296' : '#6c757d'
    const grid = { stroke: dark ? '#2f3237' : '#e9ecef', width: 1 }
    const made = new uPlot(
      {
        width,
        height,
        legend: { show: false },
        cursor: { y: false },
        hooks: { setCursor: [(of) => setPointed(of.cursor.idx ?? undefined)] },
        scales: {
          x: { time: true, range: (_, __, max) => [max - seconds, max] },
          y: { range: (_, __, max) => [0, (max > 0 ? max : 1) * HEADROOM] },
        },
        padding: [8, 24, 0, 0],
        axes: [
          {
            stroke: ink,
            grid,
            ticks: { show: false },
            size: 30,
            gap: 9,
            splits: (_, __, ___, max) => [3, 2, 1, 0].map((part) => max - (part * seconds) / 3),
            values: (_, ticks) => ticks.map((tick, at) => (at === ticks.length - 1 ? 'now' : tickWord(tick, at, seconds))),
          },
          {
            stroke: ink,
            grid,
            ticks: { show: false },
            size: 66,
            splits: (of, __, ___, max) => (isFlat(of) ? [0] : [0, 0.5, 1].map((part) => (part * max) / HEADROOM)),
            values: (_, ticks) => ticks.map((tick) => formatRef.current(tick)),
          },
        ],
        series: [
          {},
          ...lines.map((line) => ({
            label: line.name,
            stroke: line.color[dark ? 1 : 0],
            width: line.dashed ? 1.2 : 1.6,
            points: { show: false },
            ...(line.dashed ? { dash: [4, 4] } : {}),
          })),
        ],
      },
      dataRef.current,
      element,
    )
    plot.current = made
    return () => {
      made.destroy()
      plot.current = undefined
    }
    // The lines' values are set below; only a different appearance needs a new chart.
  }, [box, width, height, dark, names, seconds])

  useEffect(() => {
    plot.current?.setData(data)
  }, [data])

  const value = (line: Line) => {
    const one = pointed === undefined ? line.values.at(-1) : line.values[pointed]
    return one === undefined ? '–' : format(one)
  }
  const said = lines.map((line) => `${line.name} ${line.values.at(-1) === undefined ? 'none' : format(line.values.at(-1)!)}`).join(', ')
  const at = pointed === undefined ? undefined : times[pointed]
  return (
    <Box style={{ display: 'flex', flexDirection: 'column' }}>
      <Text size="sm" fw={600}>
        {label}
        {at !== undefined && (
          <Text span size="xs" c="dimmed" ml={6}>
            {moment(at)}
          </Text>
        )}
      </Text>
      <Text size="sm" mb={4}>
        {lines.map((line) => (
          <Text span key={line.name} size="sm" mr="md" style={{ whiteSpace: 'nowrap' }}>
            <span className={line.dashed ? 'swatch dashed' : 'swatch'} style={{ color: line.color[dark ? 1 : 0] }} />
            {line.name} <span className="figure">{value(line)}</span>
          </Text>
        ))}
      </Text>
      <div ref={box} role="img" aria-label={`${label}: ${said}`} style={{ height, overflow: 'hidden', marginTop: 'auto' }} />
    </Box>
  )
}

/** Whether all values are zero or missing. */
const isFlat = (of: uPlot) => of.data.slice(1).every((values) => (values as (number | null | undefined)[]).every((value) => !value))

/** A label of the time axis: `2 min`, `14:05`, `20 Nov`. */
function tickWord(tick: number, at: number, seconds: number): string {
  if (seconds < CLOCK_FROM) return `${Math.round(((3 - at) * seconds) / 180)} min`
  const date = new Date(tick * 1000)
  return seconds > 2 * 86_400 ? date.toLocaleDateString(undefined, { day: 'numeric', month: 'short' }) : date.toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit' })
}
