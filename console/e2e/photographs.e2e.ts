// Screenshots of every screen, in both themes, at 1280 pixels and on a phone, and of dialogs. The states: a
// fresh node, a cluster with I/O, a node that is down, its return, two hundred volumes, two nodes, a split
// brain, a record in etcd, and failed pools. They are for people to look at: `npm --prefix console run
// photographs` puts them into console/photographs (or the directory in URSA_SHOTS).

import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { Browser, BrowserContextOptions, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Dialogue, SHOTS, logIn, lookAtAll, lookAtDialogues, startBrowser } from './browser'
import { BINARY, Cluster, expectStatus, until } from './cluster'
import { ETCD, Etcd } from './etcd'

const PASSWORD = 'a few plain words'
const MIB = 2 ** 20
/** Timeout for the screenshots of one state of the cluster. */
const DEADLINE_MS = 900_000
/** Number of volumes for a list that exceeds the screen, each of the minimum size. */
const MANY = 200
/** A loopback address that no node has. Whether this machine lets nodes configure it does not matter here. */
const FLOATING = '127.78.0.9'
/** The offset from which a disk fails: below it is the pool's metadata. */
const FAILS_FROM = 256 * MIB

const press = (name: string) => async (page: Page) => page.getByRole('button', { name, exact: true }).first().click()
const choose = (menu: string, item: string, of?: string) => async (page: Page) => {
  const within = of === undefined ? page : page.getByRole('region', { name: of })
  await within.getByRole('button', { name: menu, exact: true }).first().click()
  await page.getByRole('menuitem', { name: item }).click()
}

const pressIn = (region: string, name: string) => async (page: Page) => page.getByRole('region', { name: region, exact: true }).getByRole('button', { name, exact: true }).first().click()
const pressBeside = (text: string, name: string) => async (page: Page) => page.getByRole('row').filter({ hasText: text }).getByRole('button', { name, exact: true }).first().click()

/** Answers the page's requests as if the default pool of node 1 had been set back, including the dry run. */
const setBack = (open: (page: Page) => Promise<void>) => async (page: Page) => {
  const text = 'pool default (/var/lib/ursa/default.pool) was set back: it holds an older state than when it was last used; volume mail has no other copy in sync that is up, so it is unavailable: bring back the node with the other copy, or put the newer disks back and restart this node, or accept the older data with `ursa pool accept-older default`'
  const would = ['volumes mail are served with the older data in pool default: writes made since are lost', 'all other copies of them are fully resynced from it, even one that is down and has newer data']
  await page.route(/\/v1\/findings\b/, (route) => route.fulfill({ json: { items: [{ code: 'pool-set-back', severity: 'critical', subject: { kind: 'pool', name: 'default', node: 1 }, cause: text, action: 'Find out who restored or reverted its disks', command: 'ursa pool show default --node 1' }] } }))
  await page.route(/\/accept-older\?.*dry_run/, (route) => route.fulfill({ json: { would } }))
  await page.getByText(/was set back: it holds an older state/).waitFor()
  await open(page)
  await page.getByText('What would happen').waitFor()
}
/** Answers the page's request as if a disk of that pool had read errors. */
const readErrors = (open: (page: Page) => Promise<void>) => async (page: Page) => {
  const path = await page.getByRole('region', { name: 'default on n1' }).getByRole('row').nth(1).locator('td').first().innerText()
  const text = `disk ${path} of pool default failed to read 2 blocks: 1 still cannot be read, first LBA 8192 of volume mail; check the disk (SMART, kernel log) and replace it if errors continue, or run \`ursa pool acknowledge default\``
  await page.route(/\/v1\/findings\b/, (route) => route.fulfill({ json: { items: [{ code: 'read-failed', severity: 'warning', subject: { kind: 'disk', name: path, node: 1 }, cause: text, action: 'Check the disk (smartctl, dmesg)', command: 'ursa pool acknowledge default --node 1', since: { at: Math.floor(Date.now() / 1000) - 200 } }] } }))
  await page.getByText(/failed to read 2 blocks/).waitFor()
  await open(page)
}

/** The dialogs of a single node. */
const FRESH: Dialogue[] = [
  { name: 'init', screen: 'nodes', open: press('Let others join') },
  { name: 'join', screen: 'nodes', open: press('Join another cluster') },
  { name: 'import-pool', screen: 'pools', open: press('Import pool') },
]

/** The dialogs of a failed pool. */
const failed = (pool: string): Dialogue[] => [
  { name: `reopen-${pool.replaceAll(' ', '-')}`, screen: 'pools', open: choose('Change', 'Reopen', pool) },
  { name: `forget-${pool.replaceAll(' ', '-')}`, screen: 'pools', open: choose('Change', 'Forget', pool) },
]

/** The dialogs of a volume in use, and of the cluster. */
const dialogues = (volume: string): Dialogue[] => [
  { name: 'grow', screen: `volumes/${volume}`, open: press('Grow') },
  { name: 'map', screen: `volumes/${volume}`, open: choose('More', 'Map to host group') },
  { name: 'unmap', screen: `volumes/${volume}`, open: choose('More', 'Unmap from host group') },
  { name: 'rename', screen: `volumes/${volume}`, open: choose('More', 'Rename') },
  { name: 'compare', screen: `volumes/${volume}`, open: choose('More', 'Verify copies') },
  { name: 'delete', screen: `volumes/${volume}`, open: choose('More', 'Delete') },
  { name: 'take-snapshot', screen: 'snapshots', open: press('Take snapshot') },
  { name: 'restore-snapshot', screen: 'snapshots', open: pressBeside('before-upgrade', 'Restore') },
  { name: 'change-snapshot', screen: 'snapshots/before-upgrade', open: press('Change') },
  { name: 'hold-snapshot', screen: 'snapshots/before-upgrade', open: press('Hold') },
  { name: 'delete-snapshot', screen: 'snapshots/before-upgrade', open: press('Delete') },
  { name: 'create-schedule', screen: 'schedules', open: press('Create schedule') },
  { name: 'change-schedule', screen: 'schedules', open: pressBeside('hourly', 'Change') },
  { name: 'delete-schedule', screen: 'schedules', open: pressBeside('hourly', 'Delete') },
  { name: 'invite', screen: 'nodes', open: press('Add node') },
  { name: 'maintain', screen: 'nodes', open: press('Start maintenance') },
  { name: 'add-address', screen: 'nodes', open: press('Add floating IP') },
  { name: 'remove-address', screen: 'nodes', open: pressBeside(FLOATING, 'Remove') },
  { name: 'make-pool', screen: 'pools', open: press('Create pool') },
  { name: 'add-disk', screen: 'pools', open: choose('Change', 'Add disk', 'default on n1') },
  { name: 'export-pool', screen: 'pools', open: choose('Change', 'Export', 'default on n1') },
  { name: 'acknowledge-pool', screen: 'pools', open: readErrors(choose('Change', 'Acknowledge read errors', 'default on n1')) },
  { name: 'accept-older-pool', screen: 'pools', open: setBack(choose('Change', 'Accept older data', 'default on n1')) },
  { name: 'make-host', screen: 'hosts', open: press('Create host group') },
  { name: 'change-host', screen: 'hosts', open: pressBeside('10.1.0.0/16', 'Change') },
  { name: 'delete-host', screen: 'hosts', open: pressBeside('10.1.0.0/16', 'Delete') },
  { name: 'make-target', screen: 'hosts', open: press('Create target') },
  { name: 'change-target', screen: 'hosts', open: pressIn('Targets', 'Change') },
  { name: 'delete-target', screen: 'hosts', open: pressIn('Targets', 'Delete') },
  { name: 'end-session', screen: 'hosts', open: pressIn('Sessions', 'End') },
  { name: 'make-user', screen: 'users', open: press('Create user') },
  { name: 'make-token', screen: 'users', open: press('Create token') },
]

describe.skipIf(SHOTS === undefined)('photographs', () => {
  let cluster: Cluster
  let browser: Browser
  const wrong: string[] = []
  const hosts: ChildProcess[] = []

  beforeAll(async () => {
    ;[cluster, browser] = await Promise.all([Cluster.start(3), startBrowser()])
  })
  afterAll(async () => {
    hosts.forEach((host) => host.kill('SIGKILL'))
    await browser?.close()
    await cluster?.stop()
  })

  let login: BrowserContextOptions['storageState']
  const photograph = async (prefix: string, volume?: string) =>
    expect(await lookAtAll(browser, { url: cluster.node(1).url, login, prefix, volume }, wrong)).toEqual([])

  const ask = async (method: string, path: string, body?: unknown) => expectStatus(await cluster.node(1).ask(method, path, body))

  /** A host that uses a volume through several nodes until the test ends. */
  function use(volume: string, nodes: number[], options: string[]) {
    const portals = nodes.map((number) => cluster.node(number).address).join()
    hosts.push(spawn(BINARY, ['bench', 'run', `iscsi://${portals}/iqn.2026-11.io.ursa:${volume}/0`, '-d', '3600', ...options], { stdio: 'ignore' }))
  }

  it('of a fresh node', async () => {
    login = await logIn(browser, cluster.node(1), 'admin', wrong)
    await photograph('empty')
    expect(await lookAtDialogues(browser, { url: cluster.node(1).url, login, prefix: 'fresh' }, FRESH, wrong)).toEqual([])
  }, DEADLINE_MS)

  it('of removing a node that has no copies', async () => {
    await cluster.join()
    const remove: Dialogue = { name: 'take-out', screen: 'nodes', open: pressBeside('node 3', 'Remove') }
    expect(await lookAtDialogues(browser, { url: cluster.node(1).url, login, prefix: 'ask' }, [remove], wrong)).toEqual([])
  }, DEADLINE_MS)

  it('of a busy cluster', async () => {
    await ask('POST', '/v1/hosts', { name: 'web', initiators: ['iqn.1993-08.org.debian:01:5ad4e2f0c1'], addresses: ['10.1.0.0/16'], chap: { user: 'web', secret: 'twelve bytes or so' } })
    await ask('POST', '/v1/hosts', { name: 'hypervisors', initiators: ['iqn.1998-01.com.vmware:esx1-4a5b', 'iqn.1998-01.com.vmware:esx2-9c1d'] })
    await ask('POST', '/v1/volumes', { name: 'mail', size: 192 * MIB, nodes: [1, 3] })
    await ask('POST', '/v1/volumes', { name: 'orders-database', size: 256 * MIB, nodes: [1, 2, 3] })
    await ask('POST', '/v1/volumes', { name: 'virtual-machines-of-the-second-floor', size: 320 * MIB, nodes: [2, 3], host: 'hypervisors' })
    await ask('POST', '/v1/volumes', { name: 'scratch', size: 64 * MIB, kind: 'ram' })
    await ask('POST', '/v1/volumes', { name: 'archive', size: 128 * MIB, nodes: [2], map: false })
    await ask('POST', '/v1/volumes', { name: 'ledger', size: 64 * MIB, kind: 'log', nodes: [1, 2], map: false })
    await ask('POST', '/v1/snapshots', { name: 'before-upgrade', volumes: ['ledger'], expires_after: 7 * 86_400, labels: { app: 'shop', ticket: '4711' } })
    await ask('POST', '/v1/snapshots', { name: 'nightly-copy-of-the-ledger-before-the-backup', volumes: ['ledger'] })
    await ask('POST', '/v1/snapshot-schedules', { name: 'hourly', volumes: ['ledger'], every: 3600, keep: 24, daily: 7, weekly: 4 })
    await ask('POST', '/v1/floating-ips', { address: `${FLOATING}/8`, nodes: [1, 3] })
    await ask('POST', '/v1/users', { name: 'olga', role: 'operator', password: PASSWORD })
    await ask('POST', '/v1/users', { name: 'vera', role: 'viewer', password: PASSWORD })
    await ask('POST', '/v1/tokens', { name: 'backup', role: 'operator', valid_seconds: 30 * 86_400 })
    use('mail', [1, 3], ['-b', '8K', '-o', '4', '-w', '30', '-r', '--rate', '600'])
    use('orders-database', [2], ['-b', '64K', '-o', '2', '-w', '10', '--rate', '150'])
    await photograph('work', 'mail')
  }, DEADLINE_MS)

  it('of confirmations', async () => {
    const place = { url: cluster.node(1).url, login, prefix: 'ask' }
    try {
      expect(await lookAtDialogues(browser, place, dialogues('mail'), wrong)).toEqual([])
    } finally {
      // A machine on which nodes can set it keeps it when they are killed.
      await ask('DELETE', `/v1/floating-ips/${FLOATING}`)
    }
  }, DEADLINE_MS)

  it('of a node that is down', async () => {
    await cluster.node(3).kill()
    const outside = async () => (await cluster.node(1).ask('GET', '/v1/volumes/mail')).body?.copies?.[1]?.state !== 'in_sync'
    await until('its copy is out of sync', outside)
    await photograph('down', 'mail')
  }, DEADLINE_MS)

  it('of its return', async () => {
    await ask('PUT', '/v1/cluster/resync-limit', { bytes_per_second: MIB })
    await cluster.node(3).start()
    const syncs = async () => (await cluster.node(1).ask('GET', '/v1/jobs')).body?.items?.length > 0
    await until('it is brought in sync', syncs)
    await photograph('return', 'mail')
  }, DEADLINE_MS)

  it('of many volumes', async () => {
    await ask('PUT', '/v1/cluster/resync-limit', { bytes_per_second: null })
    const places = [[1, 2], [2, 3], [1, 3], [1, 2, 3], [2]]
    for (let number = 1; number <= MANY; number += 1) {
      const name = `guest-${String(number).padStart(3, '0')}`
      const kind = number % 25 === 0 ? 'ram' : 'thick'
      const how = number % 10 === 0 ? { map: false } : { host: 'hypervisors' }
      await ask('POST', '/v1/volumes', { name, size: MIB, kind, nodes: places[number % places.length], ...how })
    }
    const many = { url: cluster.node(1).url, login, prefix: 'many', screens: ['', 'volumes', 'topology', 'hosts', 'nodes'] }
    expect(await lookAtAll(browser, many, wrong)).toEqual([])
    expect(wrong).toEqual([])
  }, DEADLINE_MS)
})

describe.skipIf(SHOTS === undefined)('photographs of two nodes', () => {
  let cluster: Cluster
  let browser: Browser
  const wrong: string[] = []

  beforeAll(async () => {
    ;[cluster, browser] = await Promise.all([Cluster.start(2), startBrowser()])
    await cluster.join()
  })
  afterAll(async () => {
    await browser?.close()
    await cluster?.stop()
  })

  const ask = async (method: string, path: string, body?: unknown) => expectStatus(await cluster.node(1).ask(method, path, body))
  const shown = async (number: number) => (await cluster.node(number).ask('GET', '/v1/volumes/mail')).body

  /** A host writes to the volume through one node as soon as that node serves it. */
  const write = (number: number) =>
    until(`node ${number} takes writes`, async () => {
      const host = spawn(BINARY, ['bench', 'run', `iscsi://${cluster.node(number).address}/iqn.2026-11.io.ursa:mail/0`, '-b', '64K', '-o', '2', '-w', '100', '-d', '1', '--overwrite'], { stdio: 'ignore' })
      return (await new Promise((resolve) => host.once('exit', resolve))) === 0
    })

  it('of a busy cluster', async () => {
    await ask('POST', '/v1/volumes', { name: 'mail', size: 64 * MIB, copies: 2 })
    await ask('POST', '/v1/volumes', { name: 'orders-database', size: 128 * MIB, copies: 2 })
    await until('both copies are in sync', async () => (await shown(2))?.copies?.every((copy: { state: string }) => copy.state === 'in_sync'))
    await ask('PUT', '/v1/volumes/mail/split-brain-policy', { policy: 'heartbeat', accept_split_brain: true, by: 'admin' })
    await write(1)
    const login = await logIn(browser, cluster.node(1), 'admin', wrong)
    expect(await lookAtAll(browser, { url: cluster.node(1).url, login, prefix: 'two', volume: 'mail' }, wrong)).toEqual([])
  }, DEADLINE_MS)

  it('of a volume in split brain', async () => {
    // The second continues alone and is lost; the first one returns and continues, too: each has data that
    // the other lacks.
    await until('the second node knows what was chosen', async () => (await shown(2))?.split_brain_policy?.policy === 'heartbeat')
    await cluster.node(1).kill()
    await until('the second node goes on alone', async () => {
      const volume = await shown(2)
      return volume?.serving === true && volume.fork?.node === 2
    })
    await write(2)
    await cluster.node(2).kill()
    await cluster.node(1).start()
    await until('the first node serves', async () => (await shown(1))?.serving === true)
    await write(1)
    await cluster.node(2).start()
    await until('it is said to be split', async () => (await shown(1))?.fork?.split === true)
    // Sessions end with their node.
    const login = await logIn(browser, cluster.node(1), 'eva', wrong)
    const place = { url: cluster.node(1).url, login, prefix: 'split', volume: 'mail' }
    expect(await lookAtAll(browser, { ...place, screens: ['', 'volumes', 'volumes/VOLUME', 'topology', 'nodes', 'events'] }, wrong)).toEqual([])
    const decide: Dialogue = {
      name: 'decide',
      screen: 'volumes/mail',
      open: async (page) => {
        await choose('More', 'Choose side to keep')(page)
        await page.locator('input').and(page.getByLabel('Keep the data of node')).click()
        await page.getByRole('option', { name: 'n2' }).click()
        await page.getByText('Discard writes made only on the other node').first().waitFor()
      },
    }
    expect(await lookAtDialogues(browser, place, [decide], wrong)).toEqual([])
    expect(wrong).toEqual([])
  }, DEADLINE_MS)
})

describe.skipIf(SHOTS === undefined || !existsSync(ETCD))('photographs of a record in etcd', () => {
  let etcd: Etcd
  let cluster: Cluster
  let browser: Browser
  let login: BrowserContextOptions['storageState']
  const wrong: string[] = []
  const hosts: ChildProcess[] = []

  beforeAll(async () => {
    ;[etcd, browser] = await Promise.all([Etcd.start(), startBrowser()])
    cluster = await Cluster.start(2, { etcd: etcd.url })
    await cluster.join()
    login = await logIn(browser, cluster.node(1), 'admin', wrong)
  })
  afterAll(async () => {
    hosts.forEach((host) => host.kill('SIGKILL'))
    await browser?.close()
    await cluster?.stop()
    await etcd?.stop()
  })

  const asked = async (path: string, number = 1) => (await cluster.node(number).ask('GET', path)).body
  const inSync = async () => (await asked('/v1/volumes/orders'))?.copies?.every((copy: { state: string }) => copy.state === 'in_sync')
  const place = (prefix: string) => ({ url: cluster.node(1).url, login, prefix, volume: 'orders' })

  it('of a busy cluster', async () => {
    expectStatus(await cluster.node(1).ask('POST', '/v1/volumes', { name: 'orders', size: 1024 * MIB, nodes: [1, 2] }))
    await until('both copies are in sync', inSync)
    expect(await lookAtAll(browser, { ...place('etcd'), screens: ['', 'volumes/VOLUME', 'volumes/VOLUME/copies', 'create', 'topology', 'nodes'] }, wrong)).toEqual([])
  }, DEADLINE_MS)

  it('of pools that failed', async () => {
    // A pool whose disk is missing when its node starts, and one whose disk fails under I/O.
    const file = join(cluster.node(2).dir, 'spare.pool')
    expectStatus(await cluster.node(2).ask('POST', '/v1/pools', { name: 'spare', disks: [{ path: file, size: 64 * MIB }] }))
    await cluster.node(2).kill()
    rmSync(file)
    await cluster.node(2).start()
    await until('the pool without its disk is unavailable', async () => (await asked('/v1/pools/spare', 2))?.state === 'unavailable')
    await until('both copies are in sync again', inSync)

    cluster.node(1).refuseWritesBeyond(FAILS_FROM)
    hosts.push(spawn(BINARY, ['bench', 'run', `iscsi://${cluster.node(1).address}/iqn.2026-11.io.ursa:orders/0`, '-b', '64K', '-o', '4', '-w', '100', '-r', '-d', '60', '--overwrite'], { stdio: 'ignore' }))
    await until('the disk has failed', async () => (await asked('/v1/pools/default'))?.state === 'disk_failed')
    await until('its copy is out', async () => !(await inSync()))
    expect(await lookAtAll(browser, { ...place('failed'), screens: ['', 'volumes', 'volumes/VOLUME', 'pools', 'create', 'nodes', 'events'] }, wrong)).toEqual([])
    expect(await lookAtDialogues(browser, place('failed'), [...failed('default on n1'), ...failed('spare on n2')], wrong)).toEqual([])
  }, DEADLINE_MS)

  it('of an unreachable etcd', async () => {
    await etcd.kill()
    await until('the node says so', async () => (await asked('/v1/node'))?.record?.answers === false)
    expect(await lookAtAll(browser, { ...place('etcd-away'), screens: ['', 'nodes', 'volumes/VOLUME'] }, wrong)).toEqual([])
    expect(wrong).toEqual([])
  }, DEADLINE_MS)
})
