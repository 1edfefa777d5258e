import { expect, it } from 'vitest'
import { snapshot } from './fixtures'
import { hasLabels, labelChange, labelChoices, labelTexts, labelWords, labelsProblem, parseLabels } from './labels'

it('takes labels of few, short and plain characters, as the API does', () => {
  expect(labelsProblem([])).toBeUndefined()
  expect(labelsProblem(['app=shop', 'a-b_c./:@+1=x'])).toBeUndefined()
  for (const text of ['app', '=shop', 'app=', 'a=b=c', 'app=a b', 'app=ä', `app=${'x'.repeat(64)}`]) expect(labelsProblem([text]), text).toMatch(/is not a label/)
  expect(labelsProblem([`app=${'x'.repeat(63)}`])).toBeUndefined()
  expect(labelsProblem(['app=a', 'app=b'])).toBe('Label app has two values: remove one')
  const many = Array.from({ length: 9 }, (_, at) => `k${at}=v`)
  expect([labelsProblem(many.slice(1)), labelsProblem(many)]).toEqual([undefined, 'A snapshot has at most 8 labels'])
})

it('sends only what differs', () => {
  const before = { app: 'shop', ticket: '4711' }
  expect(labelChange(before, before)).toEqual({ labels: {}, remove_labels: [] })
  const { labels, remove_labels } = labelChange(before, parseLabels(['app=mail', 'by=cron']))
  expect([labels, remove_labels]).toEqual([{ app: 'mail', by: 'cron' }, ['ticket']])
  expect(labelWords(labels!, remove_labels)).toEqual(['--label', 'app=mail', '--label', 'by=cron', '--remove-label', 'ticket'])
  expect(labelTexts(before)).toEqual(['app=shop', 'ticket=4711'])
})

it('finds snapshots that have all of some labels, with any value or one', () => {
  const of = (labels: Record<string, string>) => snapshot('s', {}, { labels })
  const both = of({ app: 'shop', by: 'cron' })
  expect([[], ['app'], ['app=shop'], ['app', 'by=cron']].every((wanted) => hasLabels(both, wanted))).toBe(true)
  expect([['app=sho'], ['ap'], ['app', 'by=me'], ['shop'], ['toString']].some((wanted) => hasLabels(both, wanted))).toBe(false)
  expect(hasLabels(snapshot('s', {}), ['app'])).toBe(false)
  expect(labelChoices([both, of({ app: 'mail' }), of({})])).toEqual(['app', 'app=mail', 'app=shop', 'by=cron'])
})
