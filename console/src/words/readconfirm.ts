// Whether a node's reads wait until the other nodes have confirmed them, and the risk if they do not.

import type { Node } from '../api/types'

const BY = {
  cpu: 'the processor reports a hypervisor',
  firmware: 'the firmware names a hypervisor',
  device: 'a hypervisor device is present',
}

/** The setting, its effect on this machine, and why; undefined if the node does not report it. */
export function readConfirmWord(confirm: Node['read_confirm']): string | undefined {
  if (!confirm) return undefined
  const name = confirm.machine ? ` (${confirm.machine})` : ''
  const machine = confirm.hypervisor ? `this machine is virtual${name}: ${BY[confirm.hypervisor]}` : `no hypervisor detected${name}`
  const meaning = confirm.on
    ? 'reads of volumes with two or more copies wait for confirmation by the other nodes, so a pause of the machine cannot cause stale reads'
    : confirm.hypervisor
      ? 'risk of stale reads for up to a second after a pause of the machine; read-confirm = "auto" prevents them'
      : 'reads rely on leases between nodes'
  return `${confirm.on ? 'on' : 'off'} (${confirm.setting}): ${meaning}; ${machine}`
}
