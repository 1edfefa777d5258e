import { expect, it } from 'vitest'
import { poolScrubWord, scrubVerdict, scrubWord } from './scrub'
import { moment } from './size'

it('shows the result of the last scrub, and when the next one is due', () => {
  const [last, next] = [1_700_000_000, 1_702_592_000]
  expect(scrubWord(undefined)).toBeUndefined()
  expect(scrubWord({ next })).toBe(`never; next after ${moment(next)}`)
  expect(scrubWord({ last, next })).toBe(`${moment(last)}: no bad blocks; next after ${moment(next)}`)
  expect(scrubWord({ last, next, bad_blocks: 2, overdue: true })).toBe(`${moment(last)}: 2 bad blocks, all repaired; overdue`)
  expect(scrubWord({ last, next, bad_blocks: 2, unrepaired_blocks: 1, done_bytes: 2_097_152 })).toBe(`${moment(last)}: 2 bad blocks, 1 of them cannot be read; next scrub in progress, 2MiB done`)
  expect(poolScrubWord({ oldest: last, unrepaired_blocks: 1, unfinished: 2 })).toBe(`Oldest scrub: ${moment(last)}; 1 bad block cannot be read; 2 scrubs in progress`)
})

it('shows the progress of a scrub', () => {
  const scrub = { state: 'done' as const, total_bytes: 4_194_304, done_bytes: 4_194_304, bad_blocks: 2, repaired_blocks: 1, unrepaired_blocks: 1, first_unrepaired: 40, age_s: 1, took_s: 1 }
  expect(scrubVerdict(scrub)).toEqual({ text: 'Everything in use was read: 2 bad blocks, 1 of them cannot be read. First LBA: 40.', colour: 'red' })
  expect(scrubVerdict({ ...scrub, state: 'running', done_bytes: 2_097_152, bad_blocks: 0, repaired_blocks: 0, unrepaired_blocks: 0, first_unrepaired: null }).text).toBe('2MiB of 4MiB done, no bad blocks.')
})
