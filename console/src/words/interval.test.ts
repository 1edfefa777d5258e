import { expect, it } from 'vitest'
import { interval, parseInterval } from './interval'

it('parses intervals as the command line does', () => {
  expect(['0s', '90s', '30m', ' 1h ', '2 d'].map(parseInterval)).toEqual([0, 90, 1800, 3600, 172_800])
  for (const text of ['', '1', 'h', '-1h', '+1h', '1.5h', '1h30m', '1w', '9999999999d']) expect(parseInterval(text), text).toBeUndefined()
})

it('writes them in the largest unit that fits', () => {
  expect([90, 900, 3600, 5400, 86_400, 604_800, 61, 0].map(interval)).toEqual(['90s', '15m', '1h', '90m', '1d', '7d', '61s', '0s'])
})
