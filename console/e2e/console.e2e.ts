// The console with real nodes: from the first start of three nodes to a mirrored volume, the loss of a node
// and its return.

import { spawn } from 'node:child_process'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest'
import { SCREENS, WIDTHS, lookAtAll, looksWrong, openPage, shoot, startBrowser, tellOf } from './browser'
import { BINARY, Cluster, expectStatus, until } from './cluster'

const [LIGHT] = WIDTHS
const PASSWORD = 'a few plain words'
let cluster: Cluster
let browser: Browser
let page: Page
const wrong: string[] = []

beforeAll(async () => {
  ;[cluster, browser] = await Promise.all([Cluster.start(3), startBrowser()])
  page = await openPage(browser, LIGHT, wrong)
})

afterEach(async ({ task }) => {
  if (task.result?.state === 'fail') await tellOf(page, task.name)
})

afterAll(async () => {
  await browser?.close()
  await cluster?.stop()
})

const go = (hash: string, number = 1) => page.goto(`${cluster.node(number).url}/${hash}`)
const button = (name: string) => page.getByRole('button', { name, exact: true })
const field = (name: string | RegExp) => page.locator('input').and(page.getByLabel(name))
const said = (text: string | RegExp) => page.getByText(text).first().waitFor()

/** An item of the “More” menu of a volume. Its snapshots, further down, have menus of their own. */
async function item(name: string) {
  await button('More').first().click()
  await page.getByRole('menuitem', { name }).click()
}

it('creates the first user with the link that the node printed', async () => {
  const link = cluster.node(1).setUpLink
  for (const look of WIDTHS) {
    const stranger = await openPage(browser, look, wrong)
    await stranger.goto(link)
    await stranger.getByRole('heading', { name: 'Set up Ursa' }).waitFor()
    await shoot(stranger, `screen-setup-${look.name}`)
    expect(await looksWrong(stranger)).toEqual([])
    await stranger.context().close()
  }
  await page.goto(link)
  await field(/^Password(?! again)/).fill('short')
  await said('5 more')
  await field(/^Password(?! again)/).fill(PASSWORD)
  await field(/^Password again/).fill(PASSWORD)
  await button('Create admin and log in').click()
  await page.getByRole('heading', { name: 'Overview' }).waitFor()

  // The link works once, and later visitors must log in.
  const stranger = await openPage(browser, LIGHT, wrong)
  await stranger.goto(link)
  await stranger.getByRole('heading', { name: 'Log in' }).waitFor()
  await stranger.getByLabel('Name').fill('admin')
  await stranger.locator('input[type=password]').fill('not this one')
  await stranger.getByRole('button', { name: 'Log in' }).click()
  await stranger.getByRole('alert').getByText('Not logged in').waitFor()
  await shoot(stranger, 'login-refused')
  await stranger.context().close()
})

it('describes a single node, and lets two others join it', async () => {
  await go('#/')
  await said('This node is up and reports no problem')
  await said('no volume affected')
  await go('#/volumes')
  await said('No volumes yet')
  await shoot(page, 'first-volumes')

  await go('#/nodes')
  await button('Join another cluster').click()
  await said('This node’s users and tokens become valid in the whole cluster')
  await button('Cancel').click()
  await button('Let others join').click()
  await field('Listen address').fill(cluster.node(1).address)
  await said(`ursa node init --listen ${cluster.node(1).address}`)
  await button('Listen').click()
  await until('others can join', async () => (await cluster.node(1).ask('GET', '/v1/nodes')).body?.items?.[0]?.addresses?.length === 1)
  for (const number of [2, 3]) {
    await button('Add node').click()
    await button('Create token').click()
    const line = await page.locator('pre', { hasText: 'ursa node join ursa1-' }).textContent()
    const token = /ursa1-\S+/.exec(line ?? '')?.[0] ?? ''
    await button('Cancel').click()
    const node = cluster.node(number)
    expectStatus(await node.ask('POST', '/v1/cluster/join', { token, listen: [node.address] }))
    await said(`${number} nodes`)
  }
  await cluster.allVote()
})

it('creates a mirrored volume that the API lists', async () => {
  await go('#/create')
  await field(/^Name/).fill('no good')
  await said('Only letters, digits')
  await field(/^Name/).fill('mail')
  await field(/^Size/).fill('5T')
  await button('Next').click()
  await page.getByLabel('On nodes that I choose').check()
  await page.getByLabel(/^n1 \(node 1\)/).check()
  await said(/Not enough space: .* default has/)
  expect(await button('Next').isDisabled()).toBe(true)
  await button('Back').click()
  await field(/^Size/).fill('192M')
  await page.getByText('Advanced', { exact: true }).click()
  await page.getByRole('switch', { name: 'Native 512-byte blocks' }).check()
  await said('ursa volume create mail --size 192M --native-512 --on 1')
  await page.getByRole('switch', { name: 'Native 512-byte blocks' }).uncheck()
  await shoot(page, 'create-advanced')
  await button('Next').click()
  await page.getByLabel(/^n3 \(node 3\)/).check()
  await button('Next').click()
  await button('Next').click()
  await said('ursa volume create mail --size 192M --on 1,3')
  await shoot(page, 'create-review')
  await button('Create').click()
  await page.getByRole('heading', { name: 'mail', exact: true }).waitFor()
  await said('still available, after a pause of about a second')

  const volume = expectStatus(await cluster.node(1).ask('GET', '/v1/volumes/mail')).body
  expect(volume.size).toBe(192 * 2 ** 20)
  expect(volume.copies.map((copy: { node: number; state: string }) => [copy.node, copy.state])).toEqual([[1, 'in_sync'], [3, 'in_sync']])
  expect(volume.maps).toEqual([{ target: 'iqn.2026-11.io.ursa:mail', lun: 0, host: 'local' }])
})

it('shows volumes and pools of all nodes, and changes them', async () => {
  const volume = expectStatus(await cluster.node(2).ask('GET', '/v1/volumes/mail')).body
  expect(volume.copies.some((copy: { here: boolean }) => copy.here)).toBe(false)
  // A volume whose copies are all on other nodes is included: a node with a copy executes all actions on it.
  const far = { name: 'far', size: 32 * 2 ** 20, nodes: [2, 3] }
  const made = expectStatus(await cluster.node(1).ask('POST', '/v1/volumes', far)).body
  expect(made.copies.map((copy: { node: number }) => copy.node)).toEqual([2, 3])
  await go('#/volumes/far')
  await said('still available, after a pause of about a second')
  await button('Grow').click()
  await field('New size').fill('48M')
  await button('Grow volume').click()
  await said('Volume far resized to 48M. Hosts see the new size after a rescan.')
  expect(expectStatus(await cluster.node(2).ask('GET', '/v1/volumes/far')).body.size).toBe(48 * 2 ** 20)
  await item('Rename')
  await field('New name').fill('distant')
  await button('Rename').click()
  await page.getByRole('heading', { name: 'distant', exact: true }).waitFor()
  await item('Verify copies')
  // The comparison continues, but its progress cannot be read.
  await page.route('**/verify', async (route) => {
    if (route.request().method() === 'GET') return route.abort()
    const response = await route.fetch()
    return route.fulfill({ response, json: { ...(await response.json()), state: 'running' } })
  })
  await button('Verify').click()
  await said(/^Progress cannot be read/)
  await page.unroute('**/verify')
  await said('No mismatch: all copies in sync are identical.')
  await page.keyboard.press('Escape')
  await go('#/volumes/distant/copies')
  await field(/^On node$/).click()
  await page.getByRole('option', { name: /^n1/ }).click()
  await button('Add copy').click()
  const copies = async () => (await cluster.node(1).ask('GET', '/v1/volumes/distant')).body?.copies ?? []
  await until('it has a copy on node 1', async () => (await copies()).length === 3 && (await copies()).every((copy: { state: string }) => copy.state === 'in_sync'))
  await page.getByLabel('Remove copy').check()
  await field(/^Node$/).click()
  await page.getByRole('option', { name: /^n1/ }).click()
  await button('Remove copy').click()
  await until('it has none there', async () => (await copies()).length === 2)
  await go('#/volumes/distant')
  await item('Delete')
  await page.getByRole('textbox').last().fill('distant')
  await button('Delete volume and data').click()
  await said('Volume distant deleted.')
  for (const number of [1, 2, 3]) await until(`node ${number} has heard of it`, async () => (await cluster.node(number).ask('GET', '/v1/volumes/distant')).status === 404)
  // The target that was created with the volume is deleted with it.
  expect((await cluster.node(1).ask('GET', '/v1/targets/iqn.2026-11.io.ursa:far')).status).toBe(404)
  await go('#/pools')
  for (const number of [1, 2, 3]) await said(`default on n${number}`)
  const change = (number: number) => page.getByRole('region', { name: `default on n${number}` }).getByRole('button', { name: 'Change' })
  for (const number of [1, 3]) expect(await change(number).getAttribute('aria-disabled')).toBe(null)
  // Another node's pool is exported through this one.
  expectStatus(await cluster.node(3).ask('POST', '/v1/pools', { name: 'spare', disks: [{ path: `${cluster.node(3).dir}/spare.pool`, size: 32 << 20 }] }))
  await page.getByRole('region', { name: 'spare on n3' }).getByRole('button', { name: 'Change' }).click()
  await page.getByRole('menuitem', { name: 'Export' }).click()
  await said('pool spare is closed; another server can then import it')
  await said('ursa pool export spare --node 3')
  await page.getByRole('textbox').last().fill('spare')
  await button('Export').click()
  await said('Pool spare exported. Another server can import it now.')
  expect((await cluster.node(3).ask('GET', '/v1/pools/spare')).status).toBe(404)
})

it('shows the role of an address, and reserves one for data', async () => {
  const address = `${cluster.node(1).address}:3270`
  const roles = async () => (await cluster.node(2).ask('GET', '/v1/nodes')).body?.items?.find((node: { id: number }) => node.id === 1)?.link_roles ?? {}
  const networks = page.getByRole('region', { name: 'Networks by role' })
  const keep = async (label: string | RegExp) => {
    await networks.getByRole('row', { name: /^n1/ }).getByRole('button', { name: 'Reserve' }).click()
    await page.getByRole('radio', { name: label }).check()
  }
  await go('#/nodes')
  await keep(/^Heartbeats/)
  await said('The node needs at least one address for volume data')
  expect(await button('Save').isDisabled()).toBe(true)
  await page.getByRole('radio', { name: /^Volume data/ }).check()
  await said(`ursa node link 1 ${address} --for replication`)
  await shoot(page, 'link-role')
  await button('Save').click()
  await networks.getByText(`${address} (replication)`).waitFor()
  await until('other nodes know of it', async () => (await roles())[address] === 'replication')
  await go('#/volumes/mail/copies')
  await page.getByRole('region', { name: 'Nodes and links' }).getByText(`${address} (replication)`).waitFor()
  await go('#/nodes')
  await keep(/^All links/)
  await said(`ursa node link 1 ${address} --for all`)
  await button('Save').click()
  await networks.getByText(address, { exact: true }).waitFor()
  await until('it is for all links again', async () => Object.keys(await roles()).length === 0)
})

it('adds and removes a floating IP', async () => {
  // A loopback address that no node has: whether this machine lets nodes add it does not matter here.
  const address = '127.78.0.9'
  const listed = async () => expectStatus(await cluster.node(2).ask('GET', '/v1/floating-ips')).body.items
  const floating = page.getByRole('region', { name: 'Floating IPs' })
  await go('#/nodes')
  await floating.getByText('No floating IPs').waitFor()
  await floating.getByRole('button', { name: 'Add floating IP' }).click()
  await field(/^Address/).fill(address)
  await said('Add the prefix length')
  expect(await button('Add').isDisabled()).toBe(true)
  await field(/^Address/).fill(`${address}/8`)
  await page.getByRole('checkbox', { name: 'n1 (node 1)' }).check()
  await said(`ursa floating-ip add ${address}/8 --nodes 1`)
  await shoot(page, 'address-add')
  await button('Add').click()
  await floating.getByText(`${address}/8`, { exact: true }).waitFor()
  await until('other nodes know of it', async () => (await listed()).length === 1)
  expect((await listed())[0]).toMatchObject({ address: `${address}/8`, nodes: [1] })

  await floating.getByRole('row', { name: new RegExp(`^${address}`) }).getByRole('button', { name: 'Remove' }).click()
  await said('What would happen')
  await said(`ursa floating-ip remove ${address}`)
  expect(await button('Remove floating IP').isDisabled()).toBe(true)
  await page.getByRole('textbox').last().fill(address)
  await button('Remove floating IP').click()
  await floating.getByText('No floating IPs').waitFor()
  await until('it is gone', async () => (await listed()).length === 0)
})

it('draws the links between all nodes as both ends see them', async () => {
  await go('#/topology')
  const links = page.getByRole('region', { name: 'Links between nodes' })
  for (const [one, other] of [[1, 2], [1, 3], [2, 3]] as const) {
    const pair = links.getByRole('row', { name: new RegExp(`^n${one} .*and n${other} `) })
    await pair.getByText('up', { exact: true }).waitFor()
    expect(await pair.getByText(/^Data: 1 of 1 up for .* via 127\./).count()).toBe(2)
  }
  // Also between two nodes that this page does not talk to, and for users who cannot see the picture.
  await page.locator('svg a[aria-label^="Links between n2 (node 2) and n3 (node 3): up."]').waitFor({ state: 'attached' })
})

it('shows why a node refuses a change, and what to do', async () => {
  await go('#/nodes')
  await page.getByRole('row', { name: /^n3/ }).getByRole('button', { name: 'Start maintenance' }).click()
  await button('Start').click()
  await said('The node can be stopped now.')
  // With node 3 in maintenance, node 1 has the only copy in sync.
  await page.getByRole('row', { name: /^n1/ }).getByRole('button', { name: 'Start maintenance' }).click()
  await button('Start').click()
  await page.getByRole('alert').getByText('Not done').waitFor()
  await shoot(page, 'refused')
  await button('Cancel').click()
  await page.getByRole('row', { name: /^n3/ }).getByRole('button', { name: 'End maintenance' }).click()
  await button('End').click()
  await until('the copy is in sync again', inSync)
})

/** Approximate duration of the resync whose estimates are checked, and the interval of the readings. */
const SYNC_SECONDS = 30
const READINGS = 5
/**
 * Minimum number of readings far enough from the end: near the end, the time that a loaded machine takes to
 * finish a resync counts as much as the resync.
 */
const JUDGED_MIN = 3
const JUDGED_SECONDS_MIN = 5
/**
 * Minimum amount that the copy must miss, so that the resync takes that long at the lowest possible limit.
 */
const MISSED_MIN = SYNC_SECONDS * 1.5 * 2 ** 20

const copy3 = async () => (await cluster.node(1).ask('GET', '/v1/volumes/mail')).body?.copies?.[1]
const inSync = async () => (await copy3())?.state === 'in_sync'

it('shows a killed node, its effects, and its return until the resync is complete', async () => {
  // The resyncs are limited to 16 MiB a second, so that they are visible.
  await go('#/jobs')
  await field('Limit per second').fill('16M')
  await button('Set limit').click()
  await said('At most 16MiB/s.')

  await go('#/')
  await said('Healthy')
  await cluster.node(3).kill()
  await said('Node 3 (n3) is down: heartbeat timeout.')
  await said(/^for (\d+ min )?\d+ s$/)
  await said(/systemctl start ursa/)
  await page.getByLabel('Health: 1 problem').waitFor()
  await shoot(page, 'down-overview')
  await until('its copy is out of sync', async () => !(await inSync()))
  // It misses much data: these writes, however fast this machine is.
  await until('it misses a good deal', async () => {
    await load(['-b', '1M', '-o', '4', '-w', '100', '-d', '3'])
    return (await copy3()).sync.left_bytes >= MISSED_MIN
  })
  await go('#/volumes/mail')
  await said('degraded')
  await said('unavailable until the node returns (only copy in sync)')
  await said('no: the node is down')
  await shoot(page, 'down-volume')
  await go('#/topology')
  await said('Links of n3 (node 3) are missing: heartbeat timeout.')
  await page.getByRole('row', { name: /^n1 .*and n3 / }).getByText('down', { exact: true }).waitFor()
  await shoot(page, 'down-topology')
  await go('#/pools')
  await said('default on n1')
  await said(/^Pools of n3 \(node 3\) are missing: /)
  await shoot(page, 'down-pools')
  await go('#/events')
  await said(/^Events of n3 \(node 3\) are missing: /)
  await said(/^Entries of n3 \(node 3\) are missing: /)
  await page.getByRole('columnheader', { name: 'Node' }).waitFor()
  await go('#/volumes/mail')

  // So slow that it takes about this time.
  const missing = (await copy3()).sync.left_bytes
  expectStatus(await cluster.node(1).ask('PUT', '/v1/cluster/resync-limit', { bytes_per_second: Math.max(2 ** 20, Math.round(missing / SYNC_SECONDS)) }))
  await cluster.node(3).start()
  const shown = page.getByText(/ left, .* to go/).first()
  await shown.waitFor()
  await go('#/jobs')
  await said(/on n3: resyncing/)
  await go('#/volumes/mail')
  await shown.waitFor()
  // Estimates must be right once the rate is known, which takes some seconds.
  const promises: { line: string; at: number; seconds: number }[] = []
  const ended = inSync().then(async function look(is): Promise<number> {
    if (is) return Date.now()
    await new Promise((resolve) => setTimeout(resolve, 100))
    return look(await inSync())
  })
  for (let reading = 0; reading < READINGS; reading += 1) {
    await new Promise((resolve) => setTimeout(resolve, (1000 * SYNC_SECONDS) / (READINGS + 2)))
    // The row disappears at the end: on a slow machine, some of that time had passed.
    const line = await shown.textContent({ timeout: 3000 }).catch(() => null)
    if (line === null) break
    promises.push({ line, at: Date.now(), seconds: seconds(/, ([^,]+) to go/.exec(line)?.[1] ?? '') })
    if (reading === 1) await shoot(page, 'syncing-volume')
  }
  const end = await ended
  const judged = promises.filter((promise) => end - promise.at >= 1000 * JUDGED_SECONDS_MIN)
  expect(judged.length).toBeGreaterThanOrEqual(JUDGED_MIN)
  // A machine that is busy for a moment slows the resync down: one estimate may be wrong.
  const isWrong = (promise: { at: number; seconds: number }) => {
    const took = (end - promise.at) / 1000
    return Math.abs(took - promise.seconds) >= Math.max(1.5, 0.3 * took)
  }
  const promised = promises.map((one) => `${one.line}: ${one.seconds} of ${(end - one.at) / 1000} s`).join('; ')
  expect(judged.filter(isWrong).length, promised).toBeLessThanOrEqual(1)
  console.log(`time to go as shown, and as it was: ${promises.map((one) => `${one.seconds} s of ${((end - one.at) / 1000).toFixed(1)} s`).join(', ')}`)

  await go('#/events')
  for (const code of [/^node_lost \(\w+\), .*node 3/, /^copy_out_of_sync \(\w+\), /, /^node_returned/, /^resync_completed \(\w+\), /]) await said(code)
  await shoot(page, 'events-after-loss')
  // Of one node alone.
  await field(/^Node$/).click()
  await page.getByRole('option', { name: /^n3/ }).click()
  await page.getByLabel('Filter').fill('node_started')
  await said(/^node_started, n3, .*seen by node 3$/)
  await go('#/')
  await said('Healthy')
})

/** `1 min 5 s` in seconds. */
function seconds(text: string): number {
  const [, minutes, rest] = /^(?:(\d+) min ?)?(?:(\d+) s)?$/.exec(text) ?? []
  return 60 * Number(minutes ?? 0) + Number(rest ?? 0)
}

/** Runs host I/O. */
async function load(options: string[]) {
  const child = spawn(BINARY, ['bench', 'run', `iscsi://${cluster.node(1).address}/iqn.2026-11.io.ursa:mail/0`, ...options], { stdio: 'ignore' })
  const code = await new Promise((resolve) => child.once('exit', resolve))
  expect(code).toBe(0)
}

it('changes volumes and hosts like the command line', async () => {
  await go('#/hosts')
  await button('Create host group').click()
  await field(/^Name/).fill('web')
  await field('Initiators').fill('nonsense')
  await page.keyboard.press('Enter')
  await said('nonsense is not a valid iSCSI name')
  await page.keyboard.press('Backspace')
  await field('Initiators').fill('iqn.1993-08.org.debian:01:abc')
  await page.keyboard.press('Enter')
  await button('Create').click()
  await until('the group is there', async () => (await cluster.node(1).ask('GET', '/v1/hosts/web')).body?.initiators?.[0] === 'iqn.1993-08.org.debian:01:abc')
  await said(`sudo iscsiadm -m discovery -t sendtargets -p ${cluster.node(3).address}:3260`)
  await page.getByRole('tab', { name: 'Proxmox VE' }).click()
  await said(/pvesm add lvm ursa-mail/)

  await button('Create target').click()
  await field(/^Name/).fill('shared')
  await said('Not a valid iSCSI name. Use iqn.YYYY-MM.reversed.domain:name')
  await field(/^Name/).fill('iqn.2026-11.example:shared')
  await field('Alias').fill('for all')
  await page.getByRole('switch', { name: 'Mutual CHAP' }).check()
  await field('CHAP user').fill('ursa')
  await field(/^Secret/).fill('short')
  await said('7 more')
  await field(/^Secret/).fill('long enough for all')
  await said("ursa target create iqn.2026-11.example:shared --alias 'for all' --chap-user ursa")
  await button('Create').click()
  await until('the target is there', async () => (await cluster.node(1).ask('GET', '/v1/targets/iqn.2026-11.example:shared')).body?.chap_user === 'ursa')
  await said('mutual CHAP, user ursa')
  const shared = page.getByRole('row').filter({ hasText: 'iqn.2026-11.example:shared' })
  await shared.getByRole('button', { name: 'Change', exact: true }).click()
  await field('Alias').fill('')
  await page.getByRole('radio', { name: 'Set a new one' }).check()
  await field('CHAP user').fill('bear')
  await field(/^Secret/).fill('another one for all')
  await said('ursa target set iqn.2026-11.example:shared --no-alias --chap-user bear')
  await button('Save changes').click()
  await until('it is changed', async () => {
    const target = (await cluster.node(1).ask('GET', '/v1/targets/iqn.2026-11.example:shared')).body
    return target?.chap_user === 'bear' && target.alias === null
  })

  await go('#/volumes/mail')
  await button('Grow').click()
  await field('New size').fill('64M')
  await said('Must be larger than now: 192MiB')
  await field('New size').fill('256M')
  await button('Grow volume').click()
  await until('it has grown', async () => (await cluster.node(1).ask('GET', '/v1/volumes/mail')).body?.size === 256 * 2 ** 20)
})

it('cancels a copy that is being added, after confirmation', async () => {
  // At 1 MiB a second it takes long.
  expectStatus(await cluster.node(1).ask('PUT', '/v1/cluster/resync-limit', { bytes_per_second: 2 ** 20 }))
  expectStatus(await cluster.node(1).ask('POST', '/v1/volumes/mail/copies', { node: 2 }))
  await go('#/jobs')
  await said(/on n2: adding a copy/)
  await said(/% done/)
  await shoot(page, 'job')
  await button('Pause').click()
  await said(/^ursa job pause copy\./)
  await said('the copy adds no redundancy until it is in sync')
  await button('Pause job').click()
  await said(/on n2: paused by admin/)
  await shoot(page, 'job-paused')
  await go('#/')
  await said('The resync of mail on node 2 was paused by admin: the volume has reduced redundancy until it completes.')
  await go('#/jobs')
  await button('Resume').click()
  await said(/on n2: adding a copy/)
  await button('Cancel').click()
  await said(/^ursa job cancel copy\./)
  await said('The copy that is being added is removed')
  const copies = async () => (await cluster.node(1).ask('GET', '/v1/volumes/mail')).body?.copies?.length
  expect(await copies()).toBe(3)
  await button('Cancel job').click()
  await until('the copy is taken back', async () => (await copies()) === 2)
  await said('No resync in progress.')
  await page.getByLabel('Recently ended').getByText(/on n2: addition of a copy/).first().waitFor()
  await page.getByLabel('Recently ended').getByText('cancelled').first().waitFor()
})

it('moves a copy with the wizard', async () => {
  await go('#/volumes/mail/copies')
  await page.getByLabel('Move copy to another node').check()
  await field(/^From$/).click()
  await page.getByRole('option', { name: /^n3/ }).click()
  await field(/^To$/).click()
  await page.getByRole('option', { name: /^n2/ }).click()
  await said('ursa volume copy move mail --from 3 --to 2')
  await expectStatus(await cluster.node(1).ask('PUT', '/v1/cluster/resync-limit', { bytes_per_second: null }))
  await button('Move copy').click()
  await until('the copy has moved', async () => {
    const refused = await page.getByRole('alert').filter({ hasText: 'Not done' }).allTextContents()
    expect(refused).toEqual([])
    const copies: { node: number; state: string }[] = (await cluster.node(1).ask('GET', '/v1/volumes/mail')).body?.copies ?? []
    return copies.length === 2 && copies.every((copy) => copy.node !== 3 && copy.state === 'in_sync')
  })
})

it('rebuilds a copy in another pool of its node', async () => {
  const file = join(cluster.node(2).dir, 'second.pool')
  expectStatus(await cluster.node(2).ask('POST', '/v1/pools', { name: 'second', disks: [{ path: file, size: 2 ** 30 }] }))
  await go('#/volumes/mail/copies')
  await page.getByLabel('Rebuild copy on its node').check()
  await field(/^Node$/).click()
  await page.getByRole('option', { name: /^n2/ }).click()
  await field(/^Pool on that node$/).click()
  await page.getByRole('option', { name: /^second: / }).click()
  await said('ursa volume copy rebuild mail --on 2 --pool second')
  await shoot(page, 'replace-copy')
  const made = page.waitForResponse((response) => response.request().method() === 'POST' && response.url().endsWith('/copies'))
  await button('Rebuild copy').click()
  expect((await made).status()).toBeLessThan(300)
  await until('both copies are in sync', async () => {
    const copies: { node: number; state: string }[] = (await cluster.node(1).ask('GET', '/v1/volumes/mail')).body?.copies ?? []
    return copies.length === 2 && copies.every((copy) => copy.state === 'in_sync')
  })
  const pools: { name: string; volumes: number }[] = (await cluster.node(2).ask('GET', '/v1/pools')).body.items
  expect(pools.find((pool) => pool.name === 'second')?.volumes).toBe(1)
})

it('takes snapshots of several volumes, keeps one and deletes others', async () => {
  const ask = async (method: string, path: string, body?: unknown) => expectStatus(await cluster.node(1).ask(method, path, body)).body
  for (const name of ['ledger', 'journal']) {
    await ask('POST', '/v1/volumes', { name, size: 64 * 2 ** 20, kind: 'log', nodes: [1, 2], map: false })
    await until('its copies are in sync', async () => (await ask('GET', `/v1/volumes/${name}`)).copies.every((copy: { state: string }) => copy.state === 'in_sync'))
  }
  await go('#/volumes/mail')
  await said('ursa volume convert mail --kind log')
  await go('#/volumes/ledger')
  await said('No snapshots of this volume.')
  await button('Take snapshot').click()
  await field(/^Name/).fill('7')
  await said(/^A name cannot consist of digits only/)
  await field(/^Name/).fill('before-upgrade')
  await field('Volumes').click()
  await page.getByRole('option', { name: 'mail (thick)' }).click()
  await said('mail: only log volumes have snapshots')
  expect(await button('Take').isDisabled()).toBe(true)
  await shoot(page, 'take-snapshot-of-thick')
  await field('Volumes').press('Backspace')
  await page.getByRole('option', { name: 'journal' }).click()
  await said('ursa snapshot create ledger,journal --name before-upgrade')
  await button('Take').click()
  await page.getByRole('heading', { name: 'before-upgrade', exact: true }).waitFor()
  for (const name of ['ledger', 'journal']) {
    for (const number of [1, 2]) await page.getByRole('row', { name: new RegExp(`^${name} .*n${number} \\(node ${number}\\) has it`) }).waitFor()
  }
  const taken = await ask('GET', '/v1/snapshots/before-upgrade')
  expect([taken.state, taken.held, taken.volumes.map((of: { volume: string }) => of.volume).sort()]).toEqual(['complete', false, ['journal', 'ledger']])

  await button('Hold').click()
  await said('ursa snapshot hold before-upgrade')
  await button('Put on hold').click()
  await said('yes, it cannot be deleted')
  expect(await button('Delete').getAttribute('title')).toBe('It is on hold: release it first.')
  expect((await cluster.node(1).ask('DELETE', '/v1/snapshots/before-upgrade')).body.code).toBe('snapshot_held')

  for (const name of ['daily-1', 'daily-2']) await ask('POST', '/v1/snapshots', { name, volumes: ['ledger'] })
  await go('#/snapshots')
  const select = (name: string) => page.getByRole('checkbox', { name: `Select ${name}`, exact: true })
  for (const name of ['daily-1', 'daily-2']) await select(name).check()
  expect(await select('before-upgrade').isDisabled()).toBe(true)
  await button('Delete selected (2)').click()
  for (const name of ['daily-1', 'daily-2']) await said(new RegExp(`^snapshot ${name} of volume ledger is deleted`))
  await said('ursa snapshot delete daily-2 daily-1')
  expect(await button('Delete snapshots').isDisabled()).toBe(true)
  await shoot(page, 'delete-snapshots')
  await page.getByRole('textbox').last().fill('2 snapshots')
  await button('Delete snapshots').click()
  await said('2 snapshots deleted.')
  await until('they are gone', async () => (await ask('GET', '/v1/snapshots')).items.map((one: { name: string }) => one.name).join() === 'before-upgrade')

  await go('#/volumes/ledger')
  const panel = page.getByRole('region', { name: 'Snapshots', exact: true })
  for (const text of ['before-upgrade', 'on hold', /^2 of 2 copies have it\..* With 1 other volume\.$/]) await panel.getByText(text).first().waitFor()
  await item('Delete')
  await said(/has snapshots \(1\)/)
  await button('Cancel').click()
  await panel.getByRole('link', { name: 'before-upgrade' }).click()
  await button('Release').click()
  await said('ursa snapshot release before-upgrade')
  await button('Release snapshot').click()
  await until('it is released', async () => (await ask('GET', '/v1/snapshots/before-upgrade')).held === false)
})

it('allows each role its actions, and explains why others are disabled', async () => {
  await go('#/users')
  for (const [name, role] of [['olga', 'operator'], ['vera', 'viewer']] as const) {
    await button('Create user').click()
    await field(/^Name/).fill(name)
    await field(/^Role/).click()
    await page.getByRole('option', { name: new RegExp(`^${role}`) }).click()
    await field(/^Password/).fill(PASSWORD)
    await button('Create').click()
    await page.getByRole('cell', { name, exact: true }).waitFor()
  }
  const logIn = async (name: string) => {
    const theirs = await openPage(browser, LIGHT, wrong)
    await theirs.goto(cluster.node(1).url)
    await theirs.getByLabel('Name').fill(name)
    await theirs.locator('input[type=password]').fill(PASSWORD)
    await theirs.getByRole('button', { name: 'Log in' }).click()
    await theirs.getByRole('heading', { name: 'Overview' }).waitFor()
    return theirs
  }
  const status = (theirs: Page, method: string, path: string, body: unknown) =>
    theirs.evaluate(
      async ([method, path, body]) =>
        (await fetch(path as string, { method: method as string, body: JSON.stringify(body), headers: { 'content-type': 'application/json', 'x-ursa-request': '1' } })).status,
      [method, path, body] as const,
    )

  const vera = await logIn('vera')
  await vera.goto(`${cluster.node(1).url}/#/volumes/mail`)
  const grow = vera.getByRole('button', { name: 'Grow' })
  expect(await grow.getAttribute('aria-disabled')).toBe('true')
  expect(await grow.getAttribute('title')).toBe('Not allowed: you are a viewer, and this needs an operator or an admin.')
  expect(await status(vera, 'PATCH', '/v1/volumes/mail', { name: 'other' })).toBe(403)
  expect(await status(vera, 'PUT', '/v1/nodes/1/links', { address: cluster.node(1).address, role: 'replication' })).toBe(403)
  await vera.goto(`${cluster.node(1).url}/#/snapshots`)
  expect(await vera.getByRole('checkbox', { name: 'Select before-upgrade' }).isDisabled()).toBe(true)
  for (const name of ['Take snapshot', 'Restore', 'More']) expect(await vera.getByRole('button', { name, exact: true }).getAttribute('title')).toMatch(/^Not allowed: you are a viewer/)
  expect(await status(vera, 'POST', '/v1/snapshots', { name: 's', volumes: ['ledger'] })).toBe(403)
  expect(await status(vera, 'PATCH', '/v1/snapshots/before-upgrade', { held: true })).toBe(403)
  expect(await status(vera, 'POST', '/v1/snapshots/before-upgrade/restore', { force: true })).toBe(403)
  await vera.goto(`${cluster.node(1).url}/#/users`)
  await vera.getByText('Only admins can see and change users and tokens.').waitFor()
  await shoot(vera, 'viewer-users')

  const olga = await logIn('olga')
  await olga.goto(`${cluster.node(1).url}/#/volumes/mail`)
  expect(await olga.getByRole('button', { name: 'Grow' }).getAttribute('aria-disabled')).toBe(null)
  await olga.goto(`${cluster.node(1).url}/#/pools`)
  const make = olga.getByRole('button', { name: 'Create pool' })
  expect(await make.getAttribute('title')).toBe('Not allowed: you are an operator, and this needs an admin.')
  expect(await status(olga, 'POST', '/v1/pools', { name: 'p', disks: [{ path: '/tmp/p', size: 2 ** 30 }] })).toBe(403)
  expect(await status(olga, 'POST', '/v1/users', { name: 'eve', role: 'admin', password: PASSWORD })).toBe(403)

  // All users may log out, and refused attempts are in the audit log.
  await olga.getByRole('button', { name: 'Account: olga' }).click()
  await olga.getByRole('menuitem', { name: 'Log out' }).click()
  await olga.getByRole('heading', { name: 'Log in' }).waitFor()
  await go('#/events')
  await page.getByRole('row', { name: /vera.*PATCH.*role_too_low/ }).first().waitFor()
  await vera.context().close()
  await olga.context().close()
})

/** Timeout for every screen in four looks. */
const LOOK_DEADLINE_MS = 600_000

it('renders every screen, in both themes and on a phone', async () => {
  const login = await page.context().storageState()
  expect(await lookAtAll(browser, { url: cluster.node(1).url, volume: 'mail', login, prefix: 'screen', screens: [...SCREENS, 'snapshots/before-upgrade', 'volumes/ledger'] }, wrong)).toEqual([])
  expect(wrong).toEqual([])
}, LOOK_DEADLINE_MS)

it('deletes a volume only when its name is typed', async () => {
  await go('#/volumes/mail')
  await button('More').click()
  await page.getByRole('menuitem', { name: 'Delete' }).click()
  expect(await button('Delete volume and data').isDisabled()).toBe(true)
  await page.getByRole('textbox').last().fill('mail')
  await button('Delete volume and data').click()
  await page.getByRole('heading', { name: 'Volumes', exact: true }).waitFor()
  await until('it is gone', async () => (await cluster.node(1).ask('GET', '/v1/volumes/mail')).status === 404)
  expect(wrong).toEqual([])
})
