// Debian's Chromium, and what holds for every page of the console.

import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { type Browser, type BrowserContextOptions, type Page, chromium } from 'playwright-core'
import { LOGS, PATIENCE_MS, type TestNode, expectStatus } from './cluster'

const CHROMIUM = process.env['CHROMIUM'] ?? '/usr/bin/chromium'
/** Directory for screenshots of all screens; unset: none are taken. */
export const SHOTS = process.env['URSA_SHOTS']
/**
 * A directory with a build of the console that pages load instead of the one in the program, for development.
 */
const FILES = process.env['URSA_CONSOLE']
/** Delay before screenshots, so that charts show more than one second. */
const FIRST_SECONDS_MS = 2500
/** Delay after the content has loaded, because a menu or chart may still move. */
const SETTLE_MS = 300
const PASSWORD = 'a few plain words'

/** Every screen, by path; `VOLUME` stands for a volume's name. */
export const SCREENS = ['', 'volumes', 'volumes/VOLUME', 'volumes/VOLUME/copies', 'create', 'snapshots', 'schedules', 'topology', 'pools', 'hosts', 'nodes', 'jobs', 'events', 'users']

export const WIDTHS = [
  { name: 'light', scheme: 'light', width: 1280, height: 800 },
  { name: 'dark', scheme: 'dark', width: 1280, height: 800 },
  { name: 'phone', scheme: 'light', width: 390, height: 844 },
  { name: 'phone-dark', scheme: 'dark', width: 390, height: 844 },
] as const

export type Look = (typeof WIDTHS)[number]

export async function startBrowser(options: string[] = []): Promise<Browser> {
  return chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox', ...options] })
}

/** A page that fails the test on script errors and on requests to other sites. */
export async function openPage(browser: Browser, look: Look, wrong: string[], login?: BrowserContextOptions['storageState']): Promise<Page> {
  const context = await browser.newContext({ viewport: { width: look.width, height: look.height }, colorScheme: look.scheme, ...(login ? { storageState: login } : {}) })
  const page = await context.newPage()
  const files = FILES
  if (files !== undefined) {
    await page.route(({ pathname }) => pathname === '/' || pathname.startsWith('/assets/'), (route) => {
      const { pathname } = new URL(route.request().url())
      return route.fulfill({ path: join(files, pathname === '/' ? 'index.html' : pathname) })
    })
  }
  page.setDefaultTimeout(PATIENCE_MS)
  page.on('pageerror', (error) => wrong.push(`script: ${error.message}`))
  page.on('console', (message) => {
    if (message.text().includes('Content Security Policy')) wrong.push(message.text())
  })
  page.on('request', (request) => {
    const { hostname } = new URL(request.url())
    if (!hostname.startsWith('127.')) wrong.push(`asks ${request.url()}`)
  })
  return page
}

/** Creates a user of a node and logs in; returns the cookies of the browser. */
export async function logIn(browser: Browser, node: TestNode, name: string, wrong: string[]): Promise<BrowserContextOptions['storageState']> {
  expectStatus(await node.ask('POST', '/v1/users', { name, role: 'admin', password: PASSWORD }))
  const page = await openPage(browser, WIDTHS[0], wrong)
  await page.goto(node.url)
  await page.getByLabel('Name').fill(name)
  await page.locator('input[type=password]').fill(PASSWORD)
  await page.getByRole('button', { name: 'Log in' }).click()
  await page.getByRole('heading', { name: 'Overview' }).waitFor()
  const state = await page.context().storageState()
  await page.context().close()
  return state
}

/** Waits until a screen shows its data. */
export async function settled(page: Page) {
  await page.locator('main h1, main section, main p').first().waitFor()
  await page.waitForFunction(() => !/Loading|Waiting for the first sample|Checking what would happen/.test(document.querySelector('main')?.textContent ?? ''))
  await page.waitForTimeout(SETTLE_MS)
}

/** Reports what a page showed when a test failed. */
export async function tellOf(page: Page, test: string) {
  console.log(`${test}: failed at ${page.url()}, which showed:\n${await page.locator('body').innerText().catch(String)}`)
  if (LOGS === undefined) return
  mkdirSync(LOGS, { recursive: true })
  await page.screenshot({ path: join(LOGS, `${test.replaceAll(/\W+/g, '-')}.png`), fullPage: true }).catch(() => undefined)
}

/** Layout errors of a page: elements that stick out, and text that is cut off without an ellipsis. */
export async function looksWrong(page: Page): Promise<string[]> {
  await page.waitForFunction(() => [...document.images].every(image => image.complete))
  return page.evaluate(() => {
    const found: string[] = []
    const root = document.documentElement
    if (root.scrollWidth > root.clientWidth) found.push(`the page is ${root.scrollWidth - root.clientWidth} pixels too wide`)
    for (const element of document.querySelectorAll<HTMLElement>('button, .mantine-Badge-label, h1, h2')) {
      if (element.offsetParent !== null && element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).overflow !== 'visible') {
        found.push(`cut off: ${element.textContent}`)
      }
    }
    for (const image of document.images) if (!image.complete || image.naturalWidth === 0) found.push(`no picture: ${image.src}`)
    if ((document.querySelector('main')?.textContent ?? '').trim().length < 20) found.push('there is hardly anything on it')
    return found
  })
}

export async function shoot(page: Page, name: string) {
  if (SHOTS === undefined) return
  mkdirSync(SHOTS, { recursive: true })
  await page.screenshot({ path: join(SHOTS, `${name}.png`), fullPage: true })
}

/** The screens to check, and the prefix of the screenshots' names. */
export interface Place {
  url: string
  /** An existing volume, if there is one. */
  volume?: string
  login?: BrowserContextOptions['storageState']
  prefix: string
  /** Which screens; default: all. */
  screens?: string[]
}

/**
 * Checks every screen in every look, and takes a screenshot `PREFIX-SCREEN-LOOK.png`. Returns layout errors.
 */
export async function lookAtAll(browser: Browser, at: Place, wrong: string[]): Promise<string[]> {
  const found: string[] = []
  for (const look of WIDTHS) {
    const page = await openPage(browser, look, wrong, at.login)
    for (const screen of at.screens ?? SCREENS) {
      if (screen.includes('VOLUME') && at.volume === undefined) continue
      await page.goto(`${at.url}/#/${screen.replace('VOLUME', at.volume ?? '')}`)
      await settled(page)
      if (SHOTS !== undefined && ['', 'nodes', 'volumes/VOLUME'].includes(screen)) await page.waitForTimeout(FIRST_SECONDS_MS)
      await shoot(page, `${at.prefix}-${screen.replace('VOLUME', 'one').replaceAll('/', '-') || 'overview'}-${look.name}`)
      found.push(...(await looksWrong(page)).map((what) => `${at.prefix} ${screen} ${look.name}: ${what}`))
    }
    await page.context().close()
  }
  return found
}

/** A dialog: the name of its screenshot, its screen, and how to open it. */
export interface Dialogue {
  name: string
  screen: string
  open: (page: Page) => Promise<void>
}

/**
 * Opens each of these dialogs in every look, and takes a screenshot `PREFIX-NAME-LOOK.png`. Submits none of
 * them. Returns layout errors.
 */
export async function lookAtDialogues(browser: Browser, at: Place, dialogues: Dialogue[], wrong: string[]): Promise<string[]> {
  const found: string[] = []
  for (const look of WIDTHS) {
    const page = await openPage(browser, look, wrong, at.login)
    for (const { name, screen, open } of dialogues) {
      await page.goto('about:blank')
      await page.goto(`${at.url}/#/${screen}`)
      await settled(page)
      await open(page)
      await page.getByRole('dialog').first().waitFor()
      await page.waitForTimeout(SETTLE_MS)
      await shoot(page, `${at.prefix}-${name}-${look.name}`)
      found.push(...(await looksWrong(page)).map((what) => `${at.prefix} ${name} ${look.name}: ${what}`))
    }
    await page.context().close()
  }
  return found
}
