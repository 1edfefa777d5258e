import { Box, Text, useComputedColorScheme } from '@mantine/core'
import type { VolumeCounters } from '../live/metrics'
import { distribution, quantile } from '../live/metrics'
import { count, latency } from '../words/size'
import { READ, WRITE } from './Chart'
import { Empty } from './Problem'
import { useWidth } from './width'

const HEIGHT = 130
const FOOT = 22

/** The latency of requests: a histogram and percentiles. */
export function Histogram({ of }: { of: VolumeCounters | undefined }) {
  const [box, width] = useWidth()
  const dark = useComputedColorScheme('light') === 'dark' ? 1 : 0
  const ink = dark ? '#909296' : '#6c757d'
  const bars = of ? distribution(of) : []
  const most = Math.max(1, ...bars.map((bar) => Math.max(bar.read, bar.write)))
  const step = bars.length > 0 ? width / bars.length : 0
  const every = Math.max(1, Math.ceil(62 / Math.max(1, step)))
  const parts: [name: string, part: number][] = [['50 %', 0.5], ['99 %', 0.99], ['99.9 %', 0.999]]
  const line = (kind: 'read' | 'write') =>
    of && of[kind].operations > 0 ? parts.map(([name, part]) => `${name} within ${latency(quantile(of[kind], part) ?? 0)}`).join(', ') : 'none yet'
  return (
    <div ref={box}>
      {bars.length === 0 ? (
        <Empty>No requests since this page was opened.</Empty>
      ) : (
        <Box>
          {(['read', 'write'] as const).map((kind) => (
            <Text key={kind} size="sm">
              <span className="swatch" style={{ color: (kind === 'read' ? READ : WRITE)[dark] }} />
              {kind}: {line(kind)}
            </Text>
          ))}
          <svg width={width} height={HEIGHT + FOOT} role="img" aria-label={`Latency: read ${line('read')}; write ${line('write')}`} fontFamily="inherit">
            {bars.map((bar, at) => (
              <g key={bar.bound} transform={`translate(${at * step}, 0)`}>
                <title>{`up to ${latency(bar.bound)}: ${count(bar.read)} reads, ${count(bar.write)} writes`}</title>
                <rect width={step} height={HEIGHT} fill="transparent" />
                <rect x={step * 0.1} width={step * 0.38} y={HEIGHT - (HEIGHT - 8) * (bar.read / most)} height={(HEIGHT - 8) * (bar.read / most)} fill={READ[dark]} />
                <rect x={step * 0.52} width={step * 0.38} y={HEIGHT - (HEIGHT - 8) * (bar.write / most)} height={(HEIGHT - 8) * (bar.write / most)} fill={WRITE[dark]} />
                {at % every === 0 && (
                  <text x={step / 2} y={HEIGHT + 15} fontSize={11} textAnchor={at === 0 ? 'start' : 'middle'} fill={ink}>
                    {Number.isFinite(bar.bound) ? latency(bar.bound) : 'more'}
                  </text>
                )}
              </g>
            ))}
            <line x1={0} x2={width} y1={HEIGHT} y2={HEIGHT} stroke={ink} strokeWidth={0.6} />
          </svg>
        </Box>
      )}
    </div>
  )
}
