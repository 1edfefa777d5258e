import { expect, it } from 'vitest'
import { forecast } from './forecast'

const GIB = 2 ** 30
const hours = (many: number, used: (hour: number) => number | null) => ({ from: 0, step: 3600, used: [...Array(many).keys()].map(used), size: 1000 * GIB })

it('follows a straight line, and says that it was one', () => {
  const { text, soon } = forecast(hours(169, (hour) => (300 + (hour / 24) * 10) * GIB))
  expect(text).toBe('Over the last 7 d 10GiB a day were added. If it goes on so, it is full in about 9 weeks (it grew evenly).')
  expect(soon).toBe(false)
})

it('says how far it may be wrong', () => {
  const days = [5, 15, 5, 15, 10, 5, 15]
  const steps = forecast(hours(169, (hour) => (300 + days.slice(0, Math.floor(hour / 24)).reduce((sum, one) => sum + one, 0) + ((hour % 24) / 24) * (days[Math.floor(hour / 24)] ?? 0)) * GIB))
  expect(steps.text).toMatch(/^Over the last 7 d 10GiB a day were added. If it goes on so, it is full in about 9 weeks \(likely between \d+ weeks and \d+ (weeks|months), as unevenly as it grew\).$/)
  const once = forecast(hours(169, (hour) => (hour < 100 ? 300 : 370) * GIB))
  expect(once.text).toContain('perhaps never: it grew too unevenly to say')
})

it('warns of what may be full soon', () => {
  expect(forecast(hours(169, (hour) => (700 + hour) * GIB)).soon).toBe(true)
})

it('knows when it knows nothing', () => {
  expect(forecast(hours(3, () => GIB)).text).toBe('No forecast yet: it needs 4 h of history, and has 2 h.')
  expect(forecast(hours(0, () => GIB)).text).toBe('No forecast yet: it needs 4 h of history, and has none.')
  expect(forecast(hours(1, () => GIB)).text).toBe('No forecast yet: it needs 4 h of history, and has hardly any.')
  expect(forecast(hours(48, (hour) => (hour % 2 ? GIB : null))).text).toBe('Over the last 1 d 22 h nothing was added to it: no end is in sight.')
  expect(forecast(hours(48, (hour) => (90 - hour) * GIB)).text).toBe('Over the last 1 d 23 h it did not get fuller: no end is in sight.')
})
