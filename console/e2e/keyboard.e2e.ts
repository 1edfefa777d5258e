// The console without a pointer: everything is reachable by Tab and similar keys, the focus is visible, and
// dialogs keep it and return it.

import type { Browser, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest'
import { SCREENS, WIDTHS, logIn, openPage, settled, startBrowser, tellOf } from './browser'
import { Cluster, expectStatus, until } from './cluster'

const [LIGHT, DARK] = WIDTHS
/** More than the number of focus stops on any screen. */
const TABS_MAX = 150
/** Timeout for all screens, twice. */
const LONG_MS = 600_000
let cluster: Cluster
let browser: Browser
let page: Page
let dark: Page
const wrong: string[] = []

beforeAll(async () => {
  ;[cluster, browser] = await Promise.all([Cluster.start(3), startBrowser()])
  await cluster.join()
  expectStatus(await cluster.node(1).ask('POST', '/v1/volumes', { name: 'mail', size: 32 * 2 ** 20, nodes: [1, 2] }))
  const login = await logIn(browser, cluster.node(1), 'eva', wrong)
  ;[page, dark] = await Promise.all([openPage(browser, LIGHT, wrong, login), openPage(browser, DARK, wrong, login)])
})

afterEach(async ({ task }) => {
  if (task.result?.state === 'fail') await tellOf(page, task.name)
})

afterAll(async () => {
  await browser?.close()
  await cluster?.stop()
})

/** Reopens the page: nothing has the focus. */
async function go(hash: string, on = page) {
  await on.goto('about:blank')
  await on.goto(`${cluster.node(1).url}/${hash}`)
  await settled(on)
}

/** The accessible name of the focused element. */
const focused = (on = page) =>
  on.evaluate(() => {
    const element = document.activeElement
    if (element === document.body) return ''
    const labels = element instanceof HTMLInputElement ? [...(element.labels ?? [])].map((label) => label.textContent).join('') : ''
    return ((element?.getAttribute('aria-label') ?? labels) || (element?.textContent ?? '')).trim()
  })

/** Presses Tab until the element with this name has the focus. */
async function tabTo(name: string | RegExp) {
  const passed: string[] = []
  for (let presses = 0; presses < TABS_MAX; presses += 1) {
    await page.keyboard.press('Tab')
    const now = await focused()
    if (typeof name === 'string' ? now === name : name.test(now)) return
    passed.push(now)
  }
  throw new Error(`Tab does not lead to ${name}, but to ${passed.join(' | ')}`)
}

it('skips the menu, and reaches every screen', async () => {
  await go('#/')
  await page.keyboard.press('Tab')
  expect(await focused()).toBe('Skip to content')
  await page.keyboard.press('Enter')
  expect(await page.evaluate(() => document.activeElement?.tagName)).toBe('MAIN')
  await go('#/')
  await tabTo('Volumes')
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'Volumes', exact: true }).waitFor()
  // Past the rest of the menu, and from a row to its volume: the link is gone, so the focus is on the
  // content.
  await tabTo('mail')
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'mail', exact: true }).waitFor()
  await until('the content has the focus', async () => (await page.evaluate(() => document.activeElement?.tagName)) === 'MAIN')
  await tabTo('Grow')
})

it('creates a volume with the wizard', async () => {
  await go('#/volumes')
  await tabTo('Create volume')
  await page.keyboard.press('Enter')
  await until('the name has the focus', async () => /^Name/.test(await focused()))
  await page.keyboard.type('typed')
  await page.keyboard.press('Tab')
  expect(await focused()).toMatch(/^Size/)
  await page.keyboard.type('nonsense')
  await page.keyboard.press('Enter')
  await page.getByText('Enter a number with K, M, G or T, for example 10G').waitFor()
  await page.getByText('Step 1 of 4').waitFor()
  await page.keyboard.press('ControlOrMeta+A')
  await page.keyboard.type('48M')
  await page.keyboard.press('Enter')

  await page.getByText('Step 2 of 4').waitFor()
  await until('the step has the focus', async () => (await focused()) === 'On nodes chosen by Ursa')
  await page.keyboard.press('ArrowDown')
  expect(await focused()).toBe('On nodes that I choose')
  for (const number of [1, 2]) {
    await tabTo(new RegExp(`^n${number} \\(node ${number}\\)`))
    await page.keyboard.press('Space')
  }
  await tabTo('Next')
  await page.keyboard.press('Enter')

  await page.getByText('Step 3 of 4').waitFor()
  await until('the step has the focus', async () => /^Map to a host group now/.test(await focused()))
  await tabTo(/^Host group/)
  await page.keyboard.press('ArrowDown')
  await page.getByRole('option', { name: 'any' }).waitFor()
  await page.keyboard.press('Escape')
  await tabTo('Next')
  await page.keyboard.press('Enter')

  await page.getByText('Step 4 of 4').waitFor()
  await page.getByText('ursa volume create typed --size 48M --on 1,2').waitFor()
  await tabTo('Create')
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'typed', exact: true }).waitFor()
  const { size, copies } = expectStatus(await cluster.node(1).ask('GET', '/v1/volumes/typed')).body
  expect([size, copies.length]).toEqual([48 * 2 ** 20, 2])
})

const inDialogue = () => page.evaluate(() => document.activeElement?.closest('[role=dialog]') !== null)

/**
 * Opens a dialog with Enter on the focused element, tabs through it, and closes it: the focus returns to
 * `back`.
 */
async function goesRound(back: string | RegExp) {
  await page.keyboard.press('Enter')
  await page.getByRole('dialog').waitFor()
  await until('the dialogue has the focus', inDialogue)
  const places = new Set<string>()
  for (let presses = 0; presses < 25; presses += 1) {
    await page.keyboard.press(presses % 5 === 4 ? 'Shift+Tab' : 'Tab')
    expect(await inDialogue(), `Tab leads out of the dialogue, to ${await focused()}`).toBe(true)
    places.add(await focused())
  }
  expect([...places]).toContain('Cancel')
  await page.keyboard.press('Escape')
  await page.getByRole('dialog').waitFor({ state: 'detached' })
  await until(`${back} has the focus again`, async () => {
    const now = await focused()
    return typeof back === 'string' ? now === back : back.test(now)
  })
}

it('stays in dialogs, and returns when they close', async () => {
  for (const [screen, name] of [['users', 'Create user'], ['users', 'Change your password'], ['users', 'Create token'], ['hosts', 'Create host group'], ['nodes', 'Add node'], ['nodes', 'Start maintenance'], ['pools', 'Create pool'], ['snapshots', 'Take snapshot'], ['schedules', 'Create schedule'], ['volumes/mail', 'Grow']] as const) {
    await go(`#/${screen}`)
    await tabTo(name)
    await goesRound(name)
  }
  // From an entry of a menu: back to the menu's button.
  await go('#/volumes/mail')
  await tabTo('More')
  await page.keyboard.press('Enter')
  await page.getByRole('menuitem', { name: 'Rename' }).waitFor()
  for (let presses = 0; presses < 10 && (await focused()) !== 'Rename'; presses += 1) await page.keyboard.press('ArrowDown')
  await goesRound('More')
})

it('deletes the volume, and continues from the content', async () => {
  await go('#/volumes/typed')
  await tabTo('More')
  await page.keyboard.press('Enter')
  await page.getByRole('menuitem', { name: 'Delete' }).waitFor()
  await page.keyboard.press('ArrowUp')
  for (let presses = 0; presses < 10 && (await focused()) !== 'Delete'; presses += 1) await page.keyboard.press('ArrowDown')
  await page.keyboard.press('Enter')
  await until('the dialogue has the focus', inDialogue)
  await tabTo(/^To confirm, type/)
  await page.keyboard.type('typed')
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'Volumes', exact: true }).waitFor()
  await until('it is gone', async () => (await cluster.node(1).ask('GET', '/v1/volumes/typed')).status === 404)
  await until('the content has the focus', async () => (await page.evaluate(() => document.activeElement?.tagName)) === 'MAIN')
})

/**
 * The controls and links of a screen that Tab reaches: not disabled ones, and only one of a group of radio
 * buttons (arrow keys reach the others).
 */
const USABLE = (on: Page) =>
  on.evaluate(() => {
    const groups = new Set<string>()
    const all = [...document.querySelectorAll<HTMLElement>('main a[href], main button, main input, main select, main textarea, main [role=tab]')]
    const usable = all.filter((element) => {
      if (element.matches(':disabled, [type=hidden], [tabindex="-1"]') || element.closest('[aria-hidden=true]')) return false
      if (element.getClientRects().length === 0) return false
      if (element instanceof HTMLInputElement && element.type === 'radio') {
        if (groups.has(element.name)) return false
        groups.add(element.name)
      }
      return true
    })
    usable.forEach((element, at) => { element.dataset['place'] = String(at) })
    return usable.map((element) => (element.getAttribute('aria-label') ?? element.textContent ?? '').trim() || element.outerHTML.slice(0, 120))
  })

it('reaches every control on every screen, with a visible focus', async () => {
  for (const on of [page, dark]) {
    /** Kinds of elements already checked: the look of a focused element does not depend on its position. */
    const seen = new Set<string>()
    for (const screen of [...SCREENS.map((place) => place.replace('VOLUME', 'mail')), 'volumes/nothing', 'nowhere']) {
      await go(`#/${screen}`, on)
      const usable = await USABLE(on)
      const reached = new Set<string>()
      for (let presses = 0; presses < TABS_MAX; presses += 1) {
        await on.keyboard.press('Tab')
        const now = await on.evaluate(() => {
          const element = document.activeElement as HTMLElement
          // Tab reaches only the selected one of radio buttons: it represents its group.
          const place = element.dataset['place'] ?? (element instanceof HTMLInputElement && element.type === 'radio' ? document.querySelector<HTMLElement>(`input[name="${element.name}"][data-place]`)?.dataset['place'] : undefined)
          return { place, kind: `${element.tagName} ${element.getAttribute('type') ?? ''} ${element.getAttribute('class') ?? ''}`, ended: element !== document.body && reachedAgain(element) }
          function reachedAgain(of: HTMLElement) {
            // A field for a time has a stop for its day, its month, its year …
            const isNext = of.dataset['last'] === undefined
            document.querySelectorAll<HTMLElement>('[data-last]').forEach((one) => delete one.dataset['last'])
            const again = isNext && of.dataset['reached'] !== undefined
            of.dataset['reached'] = of.dataset['last'] = ''
            return again
          }
        })
        if (now.ended) break
        if (now.place !== undefined) reached.add(now.place)
        if (!now.kind.startsWith('BODY') && !seen.has(now.kind)) {
          seen.add(now.kind)
          expect(await looksFocused(on), `${screen}: nobody sees that ${await focused(on)} has the focus`).toBe(true)
        }
      }
      expect(usable.filter((_, at) => !reached.has(String(at))), `${screen}: Tab does not lead there`).toEqual([])
    }
  }
  expect(wrong).toEqual([])
}, LONG_MS)

/** Whether the focused element looks different from when it is not focused. */
async function looksFocused(on: Page): Promise<boolean> {
  const focusedThing = await on.evaluateHandle(() => document.activeElement as HTMLElement)
  const box = await on.evaluate((element) => {
    element.scrollIntoView({ block: 'center' })
    // A UI kit's radio button or switch is drawn beside its input.
    const around = (element.matches('input[type=radio], input[type=checkbox]') ? element.parentElement : element) ?? element
    const { x, y, width, height } = around.getBoundingClientRect()
    return { x, y, width, height }
  }, focusedThing)
  const { width, height } = on.viewportSize() ?? { width: 0, height: 0 }
  const [left, top] = [Math.max(0, box.x - 6), Math.max(0, box.y - 6)]
  const clip = { x: left, y: top, width: Math.max(1, Math.min(width - left, box.width + 12)), height: Math.max(1, Math.min(height - top, box.height + 12)) }
  const shot = () => on.screenshot({ clip, animations: 'disabled' })
  const withIt = await shot()
  await on.evaluate((element) => element.blur(), focusedThing)
  const without = await shot()
  await on.evaluate((element) => element.focus({ focusVisible: true } as FocusOptions), focusedThing)
  return !withIt.equals(without)
}
