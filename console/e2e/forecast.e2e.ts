// When pools are full, from a week of history: the node's own answer, with the figures of a week in it.

import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { WIDTHS, logIn, looksWrong, openPage, settled, shoot, startBrowser } from './browser'
import { Cluster } from './cluster'

const [LIGHT] = WIDTHS
const GIB = 2 ** 30
const DAY = 86_400
let cluster: Cluster
let browser: Browser
const wrong: string[] = []

beforeAll(async () => {
  ;[cluster, browser] = await Promise.all([Cluster.start(1), startBrowser()])
})

afterAll(async () => {
  await browser?.close()
  await cluster?.stop()
})

/** What the pool is said to have held, by how many days ago that was (null: nothing was kept), and its size. */
interface Told {
  size: number
  used: (daysAgo: number) => number | null
}

/** Has the page be told what `told` says by then. */
async function tell(page: Page, told: () => Told) {
  await page.route(/\/v1\/pools\b/, async (route) => {
    const { size, used } = told()
    const answer = await route.fetch()
    const pools = await answer.json()
    for (const pool of pools.items) Object.assign(pool, { total: size, free: size - (used(0) ?? 0) })
    await route.fulfill({ response: answer, json: pools })
  })
  await page.route(/\/v1\/history\b/, async (route) => {
    const { used } = told()
    const answer = await route.fetch()
    const kept = await answer.json()
    const end = kept.from + kept.step_s * Math.max(...kept.series.map((one: { points: unknown[] }) => one.points.length))
    for (const one of kept.series) {
      if (one.series === 'pool_used_bytes') one.points = one.points.map((_: unknown, at: number) => used((end - kept.from - at * kept.step_s) / DAY))
    }
    await route.fulfill({ response: answer, json: kept })
  })
}

it('is said beside each pool, with how sure it is', async () => {
  const login = await logIn(browser, cluster.node(1), 'admin', wrong)
  for (const look of WIDTHS) {
    const page = await openPage(browser, look, wrong, login)
    const capacity = page.getByRole('region', { name: 'Capacity' })
    const says = async (text: RegExp) => {
      await page.goto('about:blank')
      await page.goto(`${cluster.node(1).url}/#/`)
      await capacity.getByText(text).waitFor()
    }
    // What the node really has: some seconds.
    await says(/No forecast yet: it needs 4 h of history, and has (none|hardly any)\./)
    await shoot(page, `forecast-none-${look.name}`)

    // 10 GiB a day, 200 GiB left: in three weeks.
    let told: Told = { size: 1000 * GIB, used: (ago) => (800 - 10 * ago) * GIB }
    await tell(page, () => told)
    await says(/Over the last (6 d 2\d h|7 d) 10GiB a day were added\. If it goes on so, it is full in about 3 weeks \(it grew evenly\)\./)
    await capacity.getByText('full within a month, if it goes on so').waitFor()
    await settled(page)
    await shoot(page, `forecast-soon-${look.name}`)
    expect(await looksWrong(page)).toEqual([])
    if (look !== LIGHT) {
      await page.context().close()
      continue
    }

    // Kept for half a day only, and far from full.
    told = { ...told, used: (ago) => (ago > 0.5 ? null : (200 - 8 * ago) * GIB) }
    await says(/Over the last 1\d h( \d+ min)? 8GiB a day were added\. If it goes on so, it is full in about 3 months .*So little history says little about weeks\./)
    expect(await capacity.getByText('full within a month').count()).toBe(0)

    // Nothing is added.
    told = { ...told, used: () => 200 * GIB }
    await says(/nothing was added to it: no end is in sight/)
    await page.context().close()
  }
  expect(wrong).toEqual([])
})
