// When pools will be full: what the node reports in its first seconds, and what it would report after a week.

import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { WIDTHS, logIn, looksWrong, openPage, settled, shoot, startBrowser } from './browser'
import { Cluster } from './cluster'

const [LIGHT] = WIDTHS
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

/** Answers the page's request with this forecast of the default pool. */
async function tell(page: Page, told: { text: string; soon: boolean }) {
  await page.route(/\/v1\/forecasts\b/, async (route) => {
    const answer = await route.fetch()
    const body = await answer.json()
    const { name, node, node_name } = (await cluster.node(1).ask('GET', '/v1/pools')).body.items[0]
    body.items = [{ pool: name, node, node_name, known_s: 7 * 86_400, ...told }]
    await route.fulfill({ response: answer, json: body })
  })
}

it('is shown next to each pool', async () => {
  const login = await logIn(browser, cluster.node(1), 'admin', wrong)
  for (const look of WIDTHS) {
    const page = await openPage(browser, look, wrong, login)
    const capacity = page.getByRole('region', { name: 'Capacity' })
    const says = async (text: RegExp) => {
      await page.goto('about:blank')
      await page.goto(`${cluster.node(1).url}/#/`)
      await capacity.getByText(text).waitFor()
    }
    // The node's real response: it stores minutes, and has none or hardly any yet.
    await says(/No forecast yet/)
    await shoot(page, `forecast-none-${look.name}`)

    await tell(page, { text: 'Over the last 7 d, it grew by 10GiB per day. At this rate it will be full in about 3 weeks (growth was steady).', soon: true })
    await says(/it grew by 10GiB per day\. At this rate it will be full in about 3 weeks \(growth was steady\)\./)
    await capacity.getByText('full within a month at this rate').waitFor()
    await settled(page)
    await shoot(page, `forecast-soon-${look.name}`)
    expect(await looksWrong(page)).toEqual([])
    if (look !== LIGHT) {
      await page.context().close()
      continue
    }

    await page.unrouteAll({ behavior: 'wait' })
    await tell(page, { text: 'Over the last 7 d, nothing was added: it is not filling up.', soon: false })
    await says(/nothing was added: it is not filling up/)
    expect(await capacity.getByText('full within a month').count()).toBe(0)
    await page.context().close()
  }
  expect(wrong).toEqual([])
})
