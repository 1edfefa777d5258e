// Real nodes on this machine for a test, each with its own address on the loopback network.

import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir, userInfo } from 'node:os'
import { basename, join } from 'node:path'

/** The program; `URSA_BIN` overrides it. */
export const BINARY = process.env['URSA_BIN'] ?? join(import.meta.dirname, '../../target/debug/ursa')
/** Timeout of waits: ten times the longest wait here, because CI machines are several times slower. */
export const PATIENCE_MS = 60_000
const POOL_SIZE = '2G'
/** Directory for the evidence of a failure: node logs, screenshots. Unset: none is kept. */
export const LOGS = process.env['URSA_LOGS']

export interface Answer {
  status: number
  // Tests examine a node's response field by field.
  body: any
}

/** The addresses of nodes. */
export interface Surroundings {
  /** An additional API address of the first node. */
  also?: string
  /** The site's etcd, which holds the record of the cluster. */
  etcd?: string
}

/** The first three octets of addresses, random in 127.64.0.0/10, so that parallel runs do not collide. */
export const loopbackNet = () => `127.${64 + Math.floor(Math.random() * 64)}.${Math.floor(Math.random() * 256)}`

export class TestNode {
  readonly number: number
  readonly address: string
  readonly dir: string
  private readonly surroundings: Surroundings
  private process: ChildProcess | undefined

  constructor(number: number, address: string, dir: string, surroundings: Surroundings) {
    this.number = number
    this.address = address
    this.dir = dir
    this.surroundings = surroundings
  }

  get url(): string {
    return `http://${this.address}:3280`
  }
  /** Over TLS, which the node uses if it listens for other machines. */
  get secureUrl(): string {
    return `https://${this.address}:3280`
  }
  get log(): string {
    return join(this.dir, '..', `n${this.number}.log`)
  }

  async start() {
    const log = openSync(this.log, 'a')
    const { also, etcd } = this.surroundings
    const options = ['serve', '--data-dir', this.dir, '--name', `n${this.number}`, '--cores', '1', '--pool-size', POOL_SIZE,
      '--iscsi-listen', `${this.address}:3260`, '--api-listen', [`${this.address}:3280`, ...(also ? [also] : [])].join(), ...(etcd ? ['--etcd', etcd] : [])]
    // Ignores the signal of a write beyond the limit of file sizes: the write fails, and the node does not
    // end.
    this.process = spawn('/bin/sh', ['-c', `trap '' XFSZ; exec "$0" "$@"`, BINARY, ...options], { stdio: ['ignore', log, log] })
    await until(`node ${this.number} answers`, async () => (await this.ask('GET', '/v1/health')).status === 200)
  }

  /** Kills the process, as a power loss would. */
  async kill() {
    const process = this.process
    if (!process || process.exitCode !== null || process.signalCode !== null) return
    const gone = new Promise((resolve) => process.once('exit', resolve))
    process.kill('SIGKILL')
    await gone
    this.process = undefined
  }

  /** From now on, writes beyond this offset of a file fail, as on a failed disk. */
  refuseWritesBeyond(bytes: number) {
    execFileSync('prlimit', ['--pid', String(this.process?.pid), `--fsize=${bytes}`])
  }

  /** The set-up links, one per API address. They are in a file because the node has no terminal. */
  get setUpLinks(): string[] {
    return readFileSync(join(this.dir, 'setup-link'), 'utf8').split('\n').filter((link) => link !== '')
  }

  get setUpLink(): string {
    const [link] = this.setUpLinks
    if (!link) throw new Error(`node ${this.number} has no link to set up`)
    return link
  }

  /** The local token that authenticates programs on this machine, such as the command line. */
  private credential(): Record<string, string> {
    const directories = ['/run/ursa', join(process.env['XDG_RUNTIME_DIR'] ?? '/none', 'ursa'), `/tmp/ursa-${userInfo().uid}`]
    const file = directories.map((directory) => join(directory, `${this.address}:3280`)).find((file) => existsSync(file))
    return file ? { authorization: `Bearer ${JSON.parse(readFileSync(file, 'utf8')).token}` } : {}
  }

  async ask(method: string, path: string, body?: unknown): Promise<Answer> {
    try {
      const init: RequestInit = { method, signal: AbortSignal.timeout(PATIENCE_MS), headers: this.credential() }
      if (body !== undefined) Object.assign(init, { body: JSON.stringify(body), headers: { ...init.headers, 'content-type': 'application/json' } })
      const response = await fetch(this.url + path, init)
      const text = await response.text()
      return { status: response.status, body: text === '' ? undefined : JSON.parse(text) }
    } catch {
      return { status: 0, body: undefined }
    }
  }
}

export class Cluster {
  readonly nodes: TestNode[] = []
  private readonly dir = mkdtempSync(join(tmpdir(), 'ursa-console-'))
  /** Whether etcd holds their record. */
  private readonly etcd: boolean

  private constructor(etcd: boolean) {
    this.etcd = etcd
  }

  /** Starts `count` nodes, each in a cluster of its own. */
  static async start(count: number, { also, etcd }: Surroundings = {}): Promise<Cluster> {
    const cluster = new Cluster(etcd !== undefined)
    const net = loopbackNet()
    for (let number = 1; number <= count; number += 1) {
      cluster.nodes.push(new TestNode(number, `${net}.${number}`, join(cluster.dir, `n${number}`), { etcd, ...(number === 1 ? { also } : {}) }))
    }
    await Promise.all(cluster.nodes.map((node) => node.start()))
    return cluster
  }

  node(number: number): TestNode {
    const node = this.nodes[number - 1]
    if (!node) throw new Error(`there is no node ${number}`)
    return node
  }

  /**
   * Joins them into a cluster. All vote, except that of two nodes without a witness only one does, and none
   * with etcd.
   */
  async join() {
    const [first, ...others] = this.nodes
    if (!first) return
    expectStatus(await first.ask('POST', '/v1/cluster', { listen: [first.address] }))
    for (const node of others) {
      const token = expectStatus(await first.ask('POST', '/v1/cluster/tokens', {})).body.token
      expectStatus(await node.ask('POST', '/v1/cluster/join', { token, listen: [node.address] }))
    }
    await this.allVote()
  }

  async allVote() {
    await until('all nodes vote', async () => {
      const { body } = await this.node(1).ask('GET', '/v1/nodes')
      const nodes: { up: boolean; votes: boolean }[] = body?.items ?? []
      const voters = this.etcd ? 0 : this.nodes.length === 2 ? 1 : this.nodes.length
      return nodes.length === this.nodes.length && nodes.every((node) => node.up) && nodes.filter((node) => node.votes).length === voters
    })
  }

  async stop() {
    await Promise.all(this.nodes.map((node) => node.kill()))
    if (LOGS !== undefined) {
      mkdirSync(LOGS, { recursive: true })
      for (const { number, log } of this.nodes) copyFileSync(log, join(LOGS, `${basename(this.dir)}-n${number}.log`))
    }
    rmSync(this.dir, { recursive: true, force: true })
  }
}

export function expectStatus(answer: Answer): Answer {
  if (answer.status < 200 || answer.status > 299) throw new Error(`refused: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer
}

/** Polls until the condition holds. */
export async function until(what: string, look: () => Promise<boolean>, deadlineMs = PATIENCE_MS) {
  const end = Date.now() + deadlineMs
  while (!(await look())) {
    if (Date.now() > end) throw new Error(`not within ${deadlineMs / 1000} s: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 200))
  }
}
