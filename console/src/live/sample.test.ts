import { expect, it } from 'vitest'
import { sampleOf } from './sample'

const idle = { operations: 0, bytes: 0 }

it('adds up nodes, and weights their latencies by operations', () => {
  const first = { read: { operations: 300, bytes: 3000, mean_us: 100, p99_us: 256 }, write: idle }
  const second = { read: { operations: 100, bytes: 1000, mean_us: 500, p99_us: 1024 }, write: { operations: 2, bytes: 8192, mean_us: 2000 } }
  expect(sampleOf(7, [first, second])).toEqual({
    at: 7,
    reads: 400,
    writes: 2,
    readBytes: 4000,
    writeBytes: 8192,
    readLatency: 0.0002,
    writeLatency: 0.002,
    readP99: 0.001024,
    writeP99: undefined,
  })
})

it('has no latency without operations', () => {
  expect(sampleOf(7, [])).toMatchObject({ reads: 0, writeBytes: 0, readLatency: undefined, writeP99: undefined })
})
