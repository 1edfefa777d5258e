// A site's etcd for a test: Debian's, with one member, on its own address of the loopback network.

import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { loopbackNet, until } from './cluster'

/** From Debian's package etcd-server. */
export const ETCD = '/usr/bin/etcd'

export class Etcd {
  private readonly dir = mkdtempSync(join(tmpdir(), 'ursa-console-etcd-'))
  private readonly address = `${loopbackNet()}.1`
  private process: ChildProcess | undefined

  static async start(): Promise<Etcd> {
    const etcd = new Etcd()
    const peer = `http://${etcd.address}:2380`
    etcd.process = spawn(
      ETCD,
      ['--data-dir', join(etcd.dir, 'data'), '--listen-client-urls', etcd.url, '--advertise-client-urls', etcd.url, '--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer, '--initial-cluster', `default=${peer}`],
      { stdio: 'ignore' },
    )
    await until('etcd answers', async () => {
      try {
        return (await fetch(`${etcd.url}/health`)).ok
      } catch {
        return false
      }
    })
    return etcd
  }

  get url(): string {
    return `http://${this.address}:2379`
  }

  /** Kills it, as the loss of its machine would. */
  async kill() {
    const process = this.process
    if (!process || process.exitCode !== null || process.signalCode !== null) return
    const gone = new Promise((resolve) => process.once('exit', resolve))
    process.kill('SIGKILL')
    await gone
  }

  async stop() {
    await this.kill()
    rmSync(this.dir, { recursive: true, force: true })
  }
}
