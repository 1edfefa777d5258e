import { expect, it } from 'vitest'
import { comparisonWord } from './comparison'
import { moment } from './size'

it('says how copies were compared last, and when they are next', () => {
  const [last, next] = [1_700_000_000, 1_702_592_000]
  expect(comparisonWord(undefined)).toBeUndefined()
  expect(comparisonWord({ next })).toBe(`never; next after ${moment(next)}`)
  expect(comparisonWord({ last, node: 2, next })).toBe(`${moment(last)} by node 2: equal; next after ${moment(next)}`)
  expect(comparisonWord({ last, node: 2, different_bytes: 65_536 })).toBe(`${moment(last)} by node 2: different in 64KiB; not by schedule`)
  expect(comparisonWord({ last, node: 2, unchecked_bytes: 1_048_576, done_bytes: 2_097_152 })).toBe(`${moment(last)} by node 2: 1MiB could not be compared; 2MiB of the next comparison are done`)
  expect(comparisonWord({ last, node: 2, stopped: true, next })).toContain('stopped before its end')
})
