// Photographs of every screen, in both themes, at 1280 and on a phone: of a fresh node, of a cluster at work, with a node down, and while it comes
// back. To be looked at by people: `npm --prefix console run photographs` puts them into console/photographs (or where URSA_SHOTS says).

import { type ChildProcess, spawn } from 'node:child_process'
import type { Browser, BrowserContextOptions } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SHOTS, logIn, lookAtAll, startBrowser } from './browser'
import { BINARY, Cluster, expectStatus, until } from './cluster'

const PASSWORD = 'a few plain words'
const MIB = 2 ** 20
/** The pictures of one state of the cluster. */
const DEADLINE_MS = 900_000

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

  /** A host that uses a volume by several nodes, for as long as it takes. */
  function use(volume: string, nodes: number[], options: string[]) {
    const portals = nodes.map((number) => cluster.node(number).address).join()
    hosts.push(spawn(BINARY, ['bench', 'run', `iscsi://${portals}/iqn.2026-11.io.ursa:${volume}/0`, '-d', '3600', ...options], { stdio: 'ignore' }))
  }

  it('of a fresh node', async () => {
    login = await logIn(browser, cluster.node(1), 'admin', wrong)
    await photograph('empty')
  }, DEADLINE_MS)

  it('of a cluster at work', async () => {
    await cluster.join()
    await ask('POST', '/v1/hosts', { name: 'web', initiators: ['iqn.1993-08.org.debian:01:5ad4e2f0c1'], addresses: ['10.1.0.0/16'], chap: { user: 'web', secret: 'twelve bytes or so' } })
    await ask('POST', '/v1/hosts', { name: 'hypervisors', initiators: ['iqn.1998-01.com.vmware:esx1-4a5b', 'iqn.1998-01.com.vmware:esx2-9c1d'] })
    await ask('POST', '/v1/volumes', { name: 'mail', size: 192 * MIB, nodes: [1, 3] })
    await ask('POST', '/v1/volumes', { name: 'orders-database', size: 256 * MIB, nodes: [1, 2, 3] })
    await ask('POST', '/v1/volumes', { name: 'virtual-machines-of-the-second-floor', size: 320 * MIB, nodes: [2, 3], host: 'hypervisors' })
    await ask('POST', '/v1/volumes', { name: 'scratch', size: 64 * MIB, kind: 'ram' })
    await ask('POST', '/v1/volumes', { name: 'archive', size: 128 * MIB, nodes: [2], map: false })
    await ask('POST', '/v1/users', { name: 'olga', role: 'operator', password: PASSWORD })
    await ask('POST', '/v1/users', { name: 'vera', role: 'viewer', password: PASSWORD })
    await ask('POST', '/v1/tokens', { name: 'backup', role: 'operator', valid_seconds: 30 * 86_400 })
    use('mail', [1, 3], ['-b', '8K', '-o', '4', '-w', '30', '-r', '--rate', '600'])
    use('orders-database', [2], ['-b', '64K', '-o', '2', '-w', '10', '--rate', '150'])
    await photograph('work', 'mail')
  }, DEADLINE_MS)

  it('of a node that is down', async () => {
    await cluster.node(3).kill()
    const outside = async () => (await cluster.node(1).ask('GET', '/v1/volumes/mail')).body?.copies?.[1]?.state !== 'in_sync'
    await until('its copy is out of sync', outside)
    await photograph('down', 'mail')
  }, DEADLINE_MS)

  it('of its return', async () => {
    await ask('PUT', '/v1/cluster/sync-limit', { bytes_per_second: MIB })
    await cluster.node(3).start()
    const syncs = async () => (await cluster.node(1).ask('GET', '/v1/jobs')).body?.items?.length > 0
    await until('it is brought in sync', syncs)
    await photograph('return', 'mail')
    expect(wrong).toEqual([])
  }, DEADLINE_MS)
})
