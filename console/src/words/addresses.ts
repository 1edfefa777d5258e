// Floating IPs: which node has one, and how to create one.

import type { FloatingAddress, FloatingAddressAdd } from '../api/types'
import { ursa } from './command'
import { duration } from './size'

/** `san1, for 3 min`; `now` in milliseconds since 1970. */
export function holderOf(address: FloatingAddress, now: number): string {
  const name = address.holder_name ?? `node ${address.holder}`
  switch (address.state) {
    case 'held':
      return address.since ? `${name}, for ${duration(now / 1000 - address.since)}` : name
    case 'taking':
      return address.waits ? `${name} is taking over: waiting for the unreachable previous holder to release it` : `${name} is taking over: address not configured yet`
    case 'nobody':
      return 'no node'
    case 'unknown':
      return `${name}, not confirmed by that node`
    case 'unreadable':
      return 'not readable by this node, because a newer version of Ursa wrote it: open the console of a node that runs that version'
  }
}

/** Whether the queried node can read only the address itself, because a newer version wrote the entry. */
export const isUnreadable = (address: FloatingAddress): boolean => address.state === 'unreadable' && !address.portal_group

/** Which nodes may hold it. `named` returns the name of a node. */
export function mayHave(address: FloatingAddress, named: (node: number) => string): string {
  if (isUnreadable(address)) return '–'
  const all = address.nodes.length > 0 ? address.nodes.map(named).join(', ') : 'all but witnesses'
  return address.prefer ? `${all}; preferred: ${named(address.prefer)}` : all
}

/** `192.0.2.10`: without the prefix length, as the API names it. */
export const bare = (address: FloatingAddress): string => address.address.replace(/\/.*/, '')

/** The input for a new one. */
export interface AddressDraft {
  address: string
  /** Empty: the device in the address's network. */
  device: string
  /** None: all but witnesses. */
  nodes: number[]
  prefer: number | undefined
}

/** The request to the API. Only a node that may hold the address can be preferred. */
export function addressOf({ address, device, nodes, prefer }: AddressDraft): FloatingAddressAdd {
  const preferred = prefer !== undefined && (nodes.length === 0 || nodes.includes(prefer))
  return { address: address.trim(), nodes, ...(device.trim() ? { device: device.trim() } : {}), ...(preferred ? { prefer } : {}) }
}

/** What is obviously wrong with the input; undefined if nothing is. The node checks the rest. */
export function addressProblem({ address, device }: AddressDraft): string | undefined {
  if (!/^[\da-f.:]+(\/\d{1,3})?$/i.test(address.trim())) return 'Enter an address with its prefix length, for example 192.0.2.10/24 or fd00::10/64'
  if (!address.includes('/') && !device.trim()) return 'Add the prefix length, for example 192.0.2.10/24, or a network device'
  return undefined
}

/** `ursa floating-ip add ...`, without options that have their defaults. */
export function addAddress({ address, device, nodes, prefer }: FloatingAddressAdd): string {
  const option = (name: string, value: string | number | null | undefined) => (value ? [name, value] : [])
  return ursa('floating-ip', 'add', address || 'ADDRESS/LENGTH', ...option('--device', device), ...option('--nodes', nodes?.join(',')), ...option('--prefer', prefer))
}
