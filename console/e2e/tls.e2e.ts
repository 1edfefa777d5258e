// The console by TLS, as from another machine: the browser trusts the certificate from the node's first start
// only because of its key.

import { X509Certificate, createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { get } from 'node:https'
import { createServer } from 'node:net'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest'
import { WIDTHS, openPage, startBrowser, tellOf } from './browser'
import { Cluster, PATIENCE_MS, type TestNode, expectStatus } from './cluster'

const [LIGHT] = WIDTHS
const PASSWORD = 'a few plain words'
/**
 * The name of the session cookie over TLS. Browsers accept this prefix only for a cookie that is Secure, of
 * this host only, and for all paths.
 */
const COOKIE = '__Host-ursa_session'

let cluster: Cluster
let node: TestNode
let certificate: X509Certificate
let browser: Browser
let page: Page
const wrong: string[] = []

/** A free port on all addresses, below Linux's range for outgoing connections, which might take it first. */
async function freePort(): Promise<number> {
  for (let attempt = 0; attempt < 100; attempt++) {
    const port = 20_000 + Math.floor(Math.random() * 12_000)
    const server = createServer()
    const free = await new Promise((resolve) => server.once('error', () => resolve(false)).listen(port, '0.0.0.0', () => resolve(true)))
    if (!free) continue
    await new Promise((resolve) => server.close(resolve))
    return port
  }
  throw new Error('no port from 20000 to 32000 is free')
}

beforeAll(async () => {
  // A node that listens for other machines speaks TLS, at each of its addresses.
  cluster = await Cluster.start(1, { also: `0.0.0.0:${await freePort()}` })
  node = cluster.node(1)
  certificate = new X509Certificate(readFileSync(join(node.dir, 'api', 'certificate.pem')))
  const key = createHash('sha256').update(certificate.publicKey.export({ type: 'spki', format: 'der' })).digest('base64')
  browser = await startBrowser([`--ignore-certificate-errors-spki-list=${key}`])
  page = await openPage(browser, LIGHT, wrong)
})

afterEach(async ({ task }) => {
  if (task.result?.state === 'fail' && page) await tellOf(page, task.name)
})

afterAll(async () => {
  await browser?.close()
  await cluster?.stop()
})

const cookies = async () => (await page.context().cookies(node.secureUrl)).map(({ name, domain, path, secure, httpOnly, sameSite }) => ({ name, domain, path, secure, httpOnly, sameSite }))

it('is refused by a browser that does not trust its certificate', async () => {
  const stranger = await startBrowser()
  try {
    const theirs = await openPage(stranger, LIGHT, wrong)
    await expect(theirs.goto(node.secureUrl)).rejects.toThrow(/ERR_CERT_/)
  } finally {
    await stranger.close()
  }
})

it('has a certificate for its address, with the fingerprint that the node prints', () => {
  expect(certificate.checkIP(node.address)).toBe(node.address)
  expect(readFileSync(node.log, 'utf8')).toContain(`certificate SHA-256 ${certificate.fingerprint256}`)
})

it('creates the first user with the link, in a session that never leaves TLS', async () => {
  const token = node.setUpLinks.find((link) => link.startsWith('https:'))?.split('token=')[1]
  expect(token, 'the address for other machines has a link of its own').toBeTruthy()
  expect(await cookies()).toEqual([])
  await page.goto(`${node.secureUrl}/#/setup?token=${token}`)
  await page.getByRole('heading', { name: 'Set up Ursa' }).waitFor()
  const field = (name: RegExp) => page.locator('input').and(page.getByLabel(name))
  await field(/^Password(?! again)/).fill(PASSWORD)
  await field(/^Password again/).fill(PASSWORD)
  await page.getByRole('button', { name: 'Create admin and log in' }).click()
  await page.getByRole('heading', { name: 'Overview' }).waitFor()
  expect(await cookies()).toEqual([{ name: COOKIE, domain: node.address, path: '/', secure: true, httpOnly: true, sameSite: 'Strict' }])
  // The same port without TLS: the node answers a browser of this machine there, but the session does not
  // apply.
  const plain = await page.context().newPage()
  await plain.goto(node.url)
  await plain.getByRole('heading', { name: 'Log in' }).waitFor()
  await plain.close()
})

it('logs out and in again', async () => {
  await logOut()
  await logIn()
  expect((await cookies()).map((cookie) => cookie.name)).toEqual([COOKIE])
})

it('shows live figures', async () => {
  const streamed = page.waitForResponse((response) => new URL(response.url()).pathname === '/v1/live')
  await page.goto('about:blank')
  await page.goto(`${node.secureUrl}/#/`)
  const stream = await streamed
  expect([stream.status(), stream.headers()['content-type'], new URL(stream.url()).protocol]).toEqual([200, 'text/event-stream', 'https:'])
  expect((await stream.securityDetails())?.protocol).toBe('TLS 1.3')
  await page.getByText('This node is up and reports no problem').first().waitFor()
  // Figures from the stream, and a change from the page.
  await page.goto(`${node.secureUrl}/#/nodes`)
  await page.getByRole('region', { name: 'Load per core' }).getByText(/\d %/).first().waitFor()
  expectStatus(await node.ask('POST', '/v1/volumes', { name: 'mail', size: 32 * 2 ** 20 }))
  await page.goto(`${node.secureUrl}/#/volumes/mail`)
  await page.getByRole('button', { name: 'Grow' }).click()
  await page.locator('input').and(page.getByLabel('New size')).fill('64M')
  await page.getByRole('button', { name: 'Grow volume' }).click()
  await page.getByText('Volume mail resized to 64M. Hosts see the new size after a rescan.').first().waitFor()
})

it('ends the session at logout', async () => {
  const secret = (await page.context().cookies(node.secureUrl)).find((cookie) => cookie.name === COOKIE)?.value ?? ''
  expect(await statusWith(secret)).toBe(200)
  await logOut()
  expect(await cookies()).toEqual([])
  expect(await statusWith(secret), 'for who has kept the cookie, too').toBe(401)
  expect(wrong).toEqual([])
})

/** The response to a program that trusts the node's certificate and has the secret of this session. */
function statusWith(secret: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const options = { ca: certificate.toString(), headers: { cookie: `${COOKIE}=${secret}` }, timeout: PATIENCE_MS }
    const request = get(`${node.secureUrl}/v1/node`, options, (response) => {
      response.resume()
      resolve(response.statusCode)
    })
    request.on('timeout', () => request.destroy(new Error('no answer')))
    request.on('error', reject)
  })
}

async function logIn() {
  await page.getByLabel('Name').fill('admin')
  await page.locator('input[type=password]').fill(PASSWORD)
  await page.getByRole('button', { name: 'Log in' }).click()
  await page.getByRole('heading', { name: 'Overview' }).waitFor()
}

async function logOut() {
  await page.getByRole('button', { name: 'Account: admin' }).click()
  await page.getByRole('menuitem', { name: 'Log out' }).click()
  await page.getByRole('heading', { name: 'Log in' }).waitFor()
}
