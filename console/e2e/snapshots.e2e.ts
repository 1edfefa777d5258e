// The past of volumes in the console: expiry and labels, restore while a host uses a volume, what differs
// between snapshots, schedules, and the findings that lead there.

import { type ChildProcess, spawn } from 'node:child_process'
import type { Browser, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest'
import { WIDTHS, logIn, lookAtAll, lookAtDialogues, openPage, shoot, startBrowser, tellOf } from './browser'
import { BINARY, Cluster, expectStatus, until } from './cluster'

const MIB = 2 ** 20
/** Timeout for screens in four looks. */
const LOOK_DEADLINE_MS = 600_000
let cluster: Cluster
let browser: Browser
let page: Page
const hosts: ChildProcess[] = []
const wrong: string[] = []

const ask = async (method: string, path: string, body?: unknown) => expectStatus(await cluster.node(1).ask(method, path, body)).body
const go = (hash: string) => page.goto(`${cluster.node(1).url}/${hash}`)
const button = (name: string) => page.getByRole('button', { name, exact: true })
const field = (name: string | RegExp) => page.locator('input').and(page.getByLabel(name))
const said = (text: string | RegExp) => page.getByText(text).first().waitFor()
const snapshot = (name: string) => ask('GET', `/v1/snapshots/${name}`)

/** An initiator that writes to the volume. */
const host = (options: string[]) => spawn(BINARY, ['bench', 'run', `iscsi://${cluster.node(1).address}/iqn.2026-11.io.ursa:ledger/0`, '-b', '64K', '-w', '100', '--overwrite', ...options], { stdio: 'ignore' })

beforeAll(async () => {
  ;[cluster, browser] = await Promise.all([Cluster.start(1), startBrowser()])
  for (const name of ['ledger', 'journal']) await ask('POST', '/v1/volumes', { name, size: 64 * MIB, kind: 'log' })
  page = await openPage(browser, WIDTHS[0], wrong, await logIn(browser, cluster.node(1), 'eva', wrong))
})

afterEach(async ({ task }) => {
  if (task.result?.state === 'fail') await tellOf(page, task.name)
})

afterAll(async () => {
  hosts.forEach((host) => host.kill('SIGKILL'))
  await browser?.close()
  await cluster?.stop()
})

it('takes a snapshot that expires and has labels, and changes both', async () => {
  await go('#/snapshots')
  await button('Take snapshot').click()
  await field(/^Name/).fill('monday')
  await field('Volumes').click()
  for (const name of ['ledger', 'journal']) await page.getByRole('option', { name, exact: true }).click()
  await page.keyboard.press('Escape')
  await field('Expires after').fill('7 days')
  await said('Enter a number with m, h or d')
  expect(await button('Take').isDisabled()).toBe(true)
  await field('Expires after').fill('7d')
  await said(/^Deleted on .*, unless it is on hold then$/)
  await field('Labels').fill('app')
  await page.keyboard.press('Enter')
  await said('app is not a label')
  await page.keyboard.press('Backspace')
  await field('Labels').fill('app=shop')
  await page.keyboard.press('Enter')
  await said('ursa snapshot create ledger,journal --name monday --expires 7d --label app=shop')
  await shoot(page, 'take-snapshot')
  await button('Take').click()
  await page.getByRole('heading', { name: 'monday', exact: true }).waitFor()
  const taken = await snapshot('monday')
  expect([taken.labels, Math.round((taken.expires - taken.created) / 86_400)]).toEqual([{ app: 'shop' }, 7])

  await button('Change').click()
  expect(await button('Change snapshot').isDisabled()).toBe(true)
  await field('Labels').press('Backspace')
  await field('Labels').fill('ticket=4711')
  await page.keyboard.press('Enter')
  await page.getByRole('checkbox', { name: 'Never expires' }).check()
  await said('ursa snapshot change monday --no-expiry --label ticket=4711 --remove-label app')
  await button('Change snapshot').click()
  await until('it is changed', async () => (await snapshot('monday')).expires == null)
  expect((await snapshot('monday')).labels).toEqual({ ticket: '4711' })
  await said('ticket=4711')
})

it('filters snapshots by label, and lets several expire', async () => {
  for (const name of ['one', 'two']) await ask('POST', '/v1/snapshots', { name, volumes: ['journal'], labels: { app: 'mail' } })
  await go('#/snapshots')
  const row = (name: string) => page.getByRole('row').filter({ has: page.getByRole('link', { name, exact: true }) })
  await row('monday').waitFor()
  await field('With labels').click()
  await page.getByRole('option', { name: 'app=mail' }).click()
  await row('monday').waitFor({ state: 'detached' })
  await page.keyboard.press('Escape')
  await page.getByRole('checkbox', { name: 'Select all' }).check()
  await button('Set expiry of selected (2)').click()
  await field('Expires after').fill('12h')
  await said('ursa snapshot change two --expires 12h')
  await button('Set expiry').click()
  await row('one').getByText(/expires in 1[12] h/).waitFor()
  await until('both expire', async () => (await Promise.all(['one', 'two'].map(snapshot))).every((one) => one.expires != null))
  expect((await snapshot('monday')).expires).toBeUndefined()

  // A finding leads to those that it is about.
  const old = { code: 'snapshots-old', severity: 'info', subject: { kind: 'cluster' }, cause: 'Snapshot monday was taken long ago and never expires: it may have been forgotten.', action: 'Delete what is no longer needed', command: 'ursa snapshot list' }
  await page.route(/\/v1\/findings\b/, (route) => route.fulfill({ json: { items: [old] } }))
  await go('#/')
  await page.getByRole('link', { name: /Snapshot monday was taken long ago/ }).click()
  await page.getByRole('heading', { name: 'Snapshots', exact: true }).waitFor()
  await said('None of 3 snapshots matches.')
  expect(await page.getByRole('radio', { name: 'Old, never expire' }).isChecked()).toBe(true)
  await page.unroute(/\/v1\/findings\b/)
})

it('shows what has changed since a snapshot, and how to export it', async () => {
  const code = await new Promise((resolve) => host(['-d', '1']).once('exit', resolve))
  expect(code).toBe(0)
  await ask('POST', '/v1/snapshots', { name: 'tuesday', volumes: ['ledger'] })
  await go('#/snapshots/tuesday')
  const panel = page.getByRole('region', { name: 'Changes and export' })
  await panel.getByText('ursa snapshot export ledger@tuesday ledger-tuesday --since ledger@monday').waitFor()
  await panel.getByText('ursa snapshot diff ledger@monday ledger@tuesday').waitFor()
  await panel.getByRole('button', { name: 'Compare' }).click()
  await panel.getByText(/^[\d.]+MiB of data has changed\.$/).waitFor()
  await shoot(page, 'changes')
  await panel.locator('input').and(page.getByLabel('Since')).click()
  await page.getByRole('option', { name: /^the beginning/ }).click()
  await panel.getByText('Export all of it, for a backup').waitFor()
  await panel.getByRole('button', { name: 'Compare' }).click()
  await panel.getByText(/^[\d.]+MiB of data; the rest of 64MiB is zeros\.$/).waitFor()
})

it('names the hosts that use a volume before it is restored', async () => {
  const busy = host(['-d', '3600', '--rate', '10'])
  hosts.push(busy)
  await until('the host is logged in', async () => (await ask('GET', '/v1/sessions?node=all')).items.length > 0)
  await go('#/volumes/ledger')
  const panel = page.getByRole('region', { name: 'Snapshots', exact: true })
  await panel.getByText('monday', { exact: true }).waitFor()
  await panel.getByRole('button', { name: 'Restore' }).last().click()
  const dialogue = page.getByRole('dialog')
  await dialogue.getByText('Hosts may be using these volumes').waitFor()
  await dialogue.getByText(/^volume ledger is in use by iqn\./).waitFor()
  await dialogue.getByText('what the volumes are now is kept as a snapshot').waitFor()
  expect(await button('Restore').last().isDisabled()).toBe(true)
  // Of another volume, no host is disturbed.
  await dialogue.getByRole('combobox', { name: 'Volumes' }).click()
  await page.getByRole('option', { name: 'journal', exact: true }).click()
  await dialogue.getByText('Hosts may be using these volumes').waitFor({ state: 'detached' })
  await dialogue.getByText('ursa snapshot restore monday --volumes journal').waitFor()
  await dialogue.getByRole('combobox', { name: 'Volumes' }).press('Backspace')
  await dialogue.getByText('Hosts may be using these volumes').waitFor()
  await shoot(page, 'restore-in-use')
  await page.getByRole('checkbox', { name: 'The volumes are unmounted there: restore anyway' }).check()
  await dialogue.getByText('ursa snapshot restore monday --force').waitFor()
  busy.kill('SIGKILL')
  await until('the host is logged out', async () => (await ask('GET', '/v1/sessions?node=all')).items.length === 0)
  await dialogue.getByText('Hosts may be using these volumes').waitFor({ state: 'detached' })
  await dialogue.getByRole('button', { name: 'Restore', exact: true }).click()
  await dialogue.getByText(/restored to snapshot monday\./).waitFor()
  await shoot(page, 'restored')
  const kept = await dialogue.getByRole('link', { name: /^before-restore-of-monday/ }).innerText()
  expect((await snapshot(kept)).volumes.length).toBe(2)
  expect(await button('Restore').last().isDisabled()).toBe(true)
  await dialogue.getByRole('button', { name: 'Close' }).last().click()

  // What is discarded cannot be restored: the name has to be typed.
  await go('#/snapshots/monday')
  await button('Restore').click()
  await page.getByRole('checkbox', { name: 'Discard what the volumes hold now' }).check()
  await dialogue.getByText('what the volumes are now is lost').waitFor()
  expect(await dialogue.getByRole('button', { name: 'Restore', exact: true }).isDisabled()).toBe(true)
  await page.getByRole('textbox').last().fill('monday')
  await dialogue.getByRole('button', { name: 'Restore', exact: true }).click()
  await dialogue.getByText('What was there before was discarded.').waitFor()
})

it('creates, changes, pauses and deletes a schedule', async () => {
  const schedule = () => ask('GET', '/v1/snapshot-schedules/nightly')
  await go('#/volumes/journal')
  await button('Create schedule').click()
  await field(/^Name/).fill('nightly')
  await field('Interval').fill('90s')
  await said('In whole minutes')
  await field('Interval').fill('1d')
  for (const rule of ['Keep latest', 'Days', 'Weeks']) await field(rule).fill('')
  await said('Enter at least one of these: nothing would be kept')
  await field('Keep latest').fill('14')
  await field('Months').fill('12')
  await said('the latest 14 snapshots: they reach back 14 d')
  await said('the last snapshot of each month, for the latest 12 months with one')
  await said('ursa snapshot schedule create nightly --volumes journal --every 1d --keep 14 --monthly 12')
  await shoot(page, 'create-schedule')
  await button('Create').click()
  await said('Next by schedule nightly')
  const { volumes, every, keep, daily, monthly } = await schedule()
  expect([volumes, every, keep, daily, monthly]).toEqual([['journal'], 86_400, 14, 0, 12])

  await page.getByRole('region', { name: 'Snapshots', exact: true }).getByRole('link', { name: 'nightly' }).click()
  const row = page.getByRole('row').filter({ hasText: 'nightly' })
  for (const text of ['active', '14 latest, 12 monthly', /^in /]) await row.getByText(text).first().waitFor()
  await row.getByRole('button', { name: 'Change' }).click()
  await said('It has no snapshots yet that it could delete.')
  expect(await button('Change schedule').isDisabled()).toBe(true)
  await field('Keep latest').fill('7')
  await said('ursa snapshot schedule change nightly --keep 7')
  await button('Change schedule').click()
  await row.getByText('7 latest, 12 monthly').waitFor()

  await row.getByRole('button', { name: 'Pause' }).click()
  await said('ursa snapshot schedule pause nightly')
  await button('Pause schedule').click()
  await row.getByText('paused').waitFor()
  await row.getByRole('button', { name: 'Resume' }).click()
  await button('Resume schedule').click()
  await row.getByText('active').waitFor()
  expect((await schedule()).paused).toBe(false)

  const look = { url: cluster.node(1).url, volume: 'journal', login: await page.context().storageState(), prefix: 'past', screens: ['snapshots', 'snapshots/monday', 'schedules', 'volumes/VOLUME'] }
  expect(await lookAtAll(browser, look, wrong)).toEqual([])
  const press = (name: string) => async (on: Page) => on.getByRole('button', { name, exact: true }).first().click()
  const dialogues = [
    { name: 'restore', screen: 'snapshots/monday', open: press('Restore') },
    { name: 'change', screen: 'snapshots/monday', open: press('Change') },
    { name: 'create-schedule', screen: 'schedules', open: press('Create schedule') },
    { name: 'change-schedule', screen: 'schedules', open: press('Change') },
  ]
  expect(await lookAtDialogues(browser, look, dialogues, wrong)).toEqual([])

  await row.getByRole('button', { name: 'Delete' }).click()
  await said('no more snapshots of journal are taken by schedule nightly')
  await button('Delete schedule').click()
  await said('No schedules yet.')
  expect((await cluster.node(1).ask('GET', '/v1/snapshot-schedules/nightly')).status).toBe(404)
  expect(wrong).toEqual([])
}, LOOK_DEADLINE_MS)

it('shows the space of deleted snapshots that is being freed, and pauses it', async () => {
  // Too little is freed here to take time: the page gets a job that lasts.
  const job = { id: 'free.1.1', kind: 'free_snapshots', subject: 'default', node: 1, state: 'running', can_be_paused: true, can_be_cancelled: false, progress: 0.25, bytes_done: 12 * MIB, bytes_total: 48 * MIB, rate: MIB, eta_s: 36 }
  const asked: string[] = []
  await page.route(/\/v1\/jobs\b/, (route) => {
    const { pathname } = new URL(route.request().url())
    asked.push(`${route.request().method()} ${pathname}`)
    const paused = asked.includes('POST /v1/jobs/free.1.1/pause')
    return route.fulfill({ json: { items: [paused ? { ...job, state: 'paused', can_be_paused: false, paused: { by: 'eva', since: Math.floor(Date.now() / 1000) } } : job] } })
  })
  await go('#/snapshots')
  const panel = page.getByRole('region', { name: 'Space of deleted snapshots' })
  for (const text of [/12MiB of 48MiB done, 1MiB\/s, 3\d s to go/, '25 % done.']) await panel.getByText(text).first().waitFor()
  await panel.getByRole('button', { name: 'Pause' }).click()
  await said('ursa job pause free.1.1')
  await button('Pause job').click()
  await panel.getByText(/paused by eva/).first().waitFor()
  await panel.getByRole('button', { name: 'Resume' }).click()
  await until('it is resumed', async () => asked.includes('POST /v1/jobs/free.1.1/resume'))
  expect(wrong).toEqual([])
})
