import { expect, it } from 'vitest'
import { readConfirmWord } from './readconfirm'

it('says whether reads are confirmed, and why', () => {
  expect(readConfirmWord(undefined)).toBeUndefined()
  expect(readConfirmWord({ setting: 'auto', on: true, hypervisor: 'cpu', machine: 'QEMU Standard PC' })).toBe(
    'on (auto): reads of volumes with two or more copies wait for confirmation by the other nodes, so a pause of the machine cannot cause stale reads; this machine is virtual (QEMU Standard PC): the processor reports a hypervisor',
  )
  expect(readConfirmWord({ setting: 'auto', on: false })).toBe('off (auto): reads rely on leases between nodes; no hypervisor detected')
})

it('names the risk on a virtual machine whose reads are not confirmed', () => {
  expect(readConfirmWord({ setting: 'never', on: false, hypervisor: 'device' })).toMatch(/^off \(never\): risk of stale reads .* a hypervisor device is present$/)
  expect(readConfirmWord({ setting: 'never', on: false })).not.toContain('risk')
})
