import { Box, Text, useComputedColorScheme } from '@mantine/core'
import { useEffect, useMemo, useRef } from 'react'
import uPlot from 'uplot'
import { useWidth } from './width'

export interface Line {
  name: string
  /** By colour scheme. */
  color: [light: string, dark: string]
  values: (number | undefined)[]
}

export const READ: [string, string] = ['#1971c2', '#4dabf7']
export const WRITE: [string, string] = ['#c2255c', '#f783ac']

/** The highest value is a little below the upper edge. */
const HEADROOM = 1.08

/** A picture of lines over the last minutes. Values that are undefined are gaps. */
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
  /** The time that is shown, up to the last value. */
  seconds: number
}) {
  const [box, width] = useWidth()
  const dark = useComputedColorScheme('light') === 'dark'
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
            size: 24,
            splits: (_, __, ___, max) => [3, 2, 1, 0].map((part) => max - (part * seconds) / 3),
            values: (_, ticks) => ticks.map((_, at) => (at === ticks.length - 1 ? 'now' : `${Math.round(((3 - at) * seconds) / 180)} min`)),
          },
          {
            stroke: ink,
            grid,
            ticks: { show: false },
            size: 66,
            splits: (_, __, ___, max) => [0, 0.5, 1].map((part) => (part * max) / HEADROOM),
            values: (_, ticks) => ticks.map((tick) => formatRef.current(tick)),
          },
        ],
        series: [{}, ...lines.map((line) => ({ label: line.name, stroke: line.color[dark ? 1 : 0], width: 1.6, points: { show: false } }))],
      },
      dataRef.current,
      element,
    )
    plot.current = made
    return () => {
      made.destroy()
      plot.current = undefined
    }
    // The lines' values are set below; a new picture is needed only for another look.
  }, [box, width, height, dark, names, seconds])

  useEffect(() => {
    plot.current?.setData(data)
  }, [data])

  const last = (line: Line) => line.values.at(-1)
  const said = lines.map((line) => `${line.name} ${last(line) === undefined ? 'none' : format(last(line)!)}`).join(', ')
  return (
    <Box>
      <Text size="sm" fw={600}>
        {label}
      </Text>
      <Text size="sm" mb={4}>
        {lines.map((line) => (
          <Text span key={line.name} size="sm" mr="md" style={{ whiteSpace: 'nowrap' }}>
            <span className="swatch" style={{ background: line.color[dark ? 1 : 0] }} />
            {line.name} <span className="figure">{last(line) === undefined ? '–' : format(last(line)!)}</span>
          </Text>
        ))}
      </Text>
      <div ref={box} role="img" aria-label={`${label}: ${said}`} style={{ height, overflow: 'hidden' }} />
    </Box>
  )
}
