import { expect, it } from 'vitest'
import { comparisonWord } from './comparison'
import { moment } from './size'

it('shows the last verify and the next one', () => {
  const [last, next] = [1_700_000_000, 1_702_592_000]
  expect(comparisonWord(undefined)).toBeUndefined()
  expect(comparisonWord({ next })).toBe(`never; next after ${moment(next)}`)
  expect(comparisonWord({ last, node: 2, next })).toBe(`${moment(last)} by node 2: copies identical; next after ${moment(next)}`)
  expect(comparisonWord({ last, node: 2, different_bytes: 65_536 })).toBe(`${moment(last)} by node 2: mismatch in 64KiB; not scheduled`)
  expect(comparisonWord({ last, node: 2, unchecked_bytes: 1_048_576, done_bytes: 2_097_152 })).toBe(`${moment(last)} by node 2: 1MiB could not be compared; next verify in progress, 2MiB done`)
  expect(comparisonWord({ last, node: 2, stopped: true, next })).toContain('stopped early')
})
