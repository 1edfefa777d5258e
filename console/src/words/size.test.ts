import { describe, expect, it } from 'vitest'
import { count, duration, exactSize, latency, parseSize, plural, size } from './size'

describe('sizes', () => {
  it('are shown with three digits at most', () => {
    expect(size(0)).toBe('0B')
    expect(size(512)).toBe('512B')
    expect(size(1536)).toBe('1.5KiB')
    expect(size(10 * 2 ** 30)).toBe('10GiB')
    expect(size(2 ** 40 - 1)).toBe('1TiB')
    expect(size(1023 * 2 ** 20)).toBe('1023MiB')
  })
  it('are read as people type them', () => {
    expect(parseSize('10G')).toBe(10 * 2 ** 30)
    expect(parseSize(' 1.5 t ')).toBe(1.5 * 2 ** 40)
    expect(parseSize('512MiB')).toBe(512 * 2 ** 20)
    expect(parseSize('4096')).toBe(4096)
    for (const bad of ['', 'G', '-1G', '0', '10X', '1e3', '9999999999P']) expect(parseSize(bad), bad).toBeUndefined()
  })
  it('go to the command line exactly', () => {
    expect(exactSize(10 * 2 ** 30)).toBe('10G')
    expect(exactSize(1.5 * 2 ** 40)).toBe('1536G')
    expect(exactSize(1000)).toBe('1000')
    expect(parseSize(exactSize(1234567))).toBe(1234567)
  })
})

describe('times and counts', () => {
  it('are short', () => {
    expect(duration(0)).toBe('0 s')
    expect(duration(75)).toBe('1 min 15 s')
    expect(duration(3600)).toBe('1 h')
    expect(duration(90_000)).toBe('1 d 1 h')
    expect(latency(0.000035)).toBe('35 µs')
    expect(latency(0.0012)).toBe('1.2 ms')
    expect(latency(2.5)).toBe('2.5 s')
    expect(count(9_994)).toBe('9994')
    expect(count(12_345)).toBe('12.3k')
    expect(count(1_700_000)).toBe('1.7M')
    expect(count(0)).toBe('0')
    expect(plural(1, 'copy', 'copies')).toBe('1 copy')
    expect(plural(2, 'copy', 'copies')).toBe('2 copies')
  })
})
