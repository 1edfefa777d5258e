// What a host needs to use volumes, ready to paste. The Linux text is that of `ursa host-setup linux` (a test compares them).

import {
  CHECK_ONE,
  CHECK_SEVERAL,
  INSTALL,
  MULTIPATH,
  ONE_WAY,
  SEVERAL_WAYS,
  UDEV,
} from './linux'

export type System = 'linux' | 'esxi' | 'windows' | 'proxmox'

export interface Setup {
  /** The target's iSCSI name. */
  target: string
  /** Addresses of nodes, each with or without a port. */
  portals: string[]
  /** The volume's NAA name in hexadecimal, if it is known. */
  naa?: string
  /** The name that the host proves itself with, if a secret is asked for. */
  chapUser?: string
}

export function hostSetup(system: System, setup: Setup): string {
  switch (system) {
    case 'linux':
      return linux(setup)
    case 'esxi':
      return esxi(setup)
    case 'windows':
      return windows(setup)
    case 'proxmox':
      return proxmox(setup)
  }
}

/** With the port that iSCSI has if none is named. */
export function withPort(portal: string): string {
  const bare = portal.startsWith('[') ? portal.slice(portal.lastIndexOf(']') + 1) : portal
  if (!portal.startsWith('[') && portal.split(':').length > 2) return `[${portal}]:3260`
  return bare.includes(':') ? portal : `${portal}:3260`
}

function split(portal: string): { address: string; port: string } {
  const whole = withPort(portal)
  const at = whole.lastIndexOf(':')
  return { address: whole.slice(0, at).replace(/^\[|\]$/g, ''), port: whole.slice(at + 1) }
}

function linux({ target, portals, chapUser }: Setup): string {
  const several = portals.length > 1
  const discover = portals.map((portal) => `sudo iscsiadm -m discovery -t sendtargets -p ${withPort(portal)}\n`).join('')
  const settings: [string, string][] = [
    ['node.startup', 'automatic'],
    ['node.session.timeo.replacement_timeout', several ? '5' : '120'],
    ['node.conn[0].timeo.noop_out_interval', '5'],
    ['node.conn[0].timeo.noop_out_timeout', '5'],
    ['node.session.cmds_max', '128'],
    ['node.session.queue_depth', '128'],
  ]
  const set = settings.map(([name, value]) => `sudo iscsiadm -m node -T ${target} -o update -n '${name}' -v ${value}\n`).join('')
  const chap = chapUser === undefined ? '' : linuxChap(target, chapUser)
  const log = `${discover}${set}${chap}sudo iscsiadm -m node -T ${target} --login\n\n`
  return INSTALL + (several ? SEVERAL_WAYS : ONE_WAY) + log + (several ? MULTIPATH : '') + UDEV + (several ? CHECK_SEVERAL : CHECK_ONE)
}

function linuxChap(target: string, user: string): string {
  const set = (name: string, value: string) => `sudo iscsiadm -m node -T ${target} -o update -n node.session.auth.${name} -v ${value}\n`
  return `read -rsp 'CHAP secret: ' SECRET; echo\n${set('authmethod', 'CHAP')}${set('username', user)}${set('password', '"$SECRET"')}`
}

function esxi({ target, portals, chapUser }: Setup): string {
  const add = portals.map((portal) => `esxcli iscsi adapter discovery sendtarget add --adapter="$HBA" --address=${withPort(portal)}`).join('\n')
  const chap =
    chapUser === undefined
      ? ''
      : `
# The secret of the host group, for every target of this adapter:
read -rsp 'CHAP secret: ' SECRET; echo
esxcli iscsi adapter auth chap set --adapter="$HBA" --direction=uni --level=required --authname=${chapUser} --secret="$SECRET"
`
  return `\
# ESXi host for Ursa volumes: in the ESXi shell, or over SSH. Target ${target}.

# 1. The software initiator. Its name (in the last line) is what the host group wants.
esxcli iscsi software set --enabled=true
HBA=$(esxcli iscsi adapter list | awk '/iscsi_vmk/ { print $1; exit }')
esxcli iscsi adapter get --adapter="$HBA" | grep 'Name: iqn'

# 2. All ways carry I/O together, and each request may take another one (ALUA, round robin). Before the first volume is
#    seen: what is claimed already keeps its rule until the host is restarted.
esxcli storage nmp satp rule add --satp=VMW_SATP_ALUA --vendor=URSA --model=VOLUME --claim-option=tpgs_on \\
  --psp=VMW_PSP_RR --psp-option=iops=1 --description="Ursa"
${chap}
# 3. Where the nodes are. With two networks, each needs a VMkernel port of its own; bind them if both are in one subnet:
#    esxcli iscsi networkportal add --adapter="$HBA" --nic=vmk1
${add}

# 4. A silent server is noticed after 5 + 5 seconds; after 10 more its ways are dead, and others are used.
esxcli iscsi adapter param set --adapter="$HBA" --key=NoopOutInterval --value=5 || true
esxcli iscsi adapter param set --adapter="$HBA" --key=NoopOutTimeout --value=10 || true
esxcli iscsi adapter param set --adapter="$HBA" --key=RecoveryTimeout --value=10 || true

# 5. Look: each volume is one device (naa.6...), with one way a portal.
esxcli storage core adapter rescan --adapter="$HBA"
esxcli storage nmp device list | grep -A 8 URSA
`
}

function windows({ target, portals, chapUser }: Setup): string {
  const parts = portals.map(split)
  const chap = chapUser === undefined ? '' : ` -AuthenticationType ONEWAYCHAP -ChapUsername '${chapUser}' -ChapSecret $Secret`
  const asked = chapUser === undefined ? '' : "$Secret = Read-Host 'CHAP secret (12 to 16 characters)'\n"
  const portal = parts.map(({ address, port }) => `New-IscsiTargetPortal -TargetPortalAddress ${address} -TargetPortalPortNumber ${port}`).join('\n')
  const several = parts.length > 1
  const connect = parts
    .map(({ address, port }) => `Connect-IscsiTarget -NodeAddress '${target}' -TargetPortalAddress ${address} -TargetPortalPortNumber ${port} -IsPersistent $true -IsMultipathEnabled $${several}${chap}`)
    .join('\n')
  return `\
# Windows host for Ursa volumes: in PowerShell, as administrator.

# 1. The initiator. Its name, which the host group wants, is in the last line.
Set-Service -Name MSiSCSI -StartupType Automatic
Start-Service -Name MSiSCSI
(Get-InitiatorPort | Where-Object ConnectionType -eq 'iSCSI').NodeAddress
${
  several
    ? `
# 2. One disk of all ways to a volume (MPIO). The first time Windows has to be restarted after these lines; go on then.
Install-WindowsFeature -Name Multipath-IO -IncludeManagementTools
Enable-MSDSMAutomaticClaim -BusType iSCSI
# A way that is dead is found within 10 seconds and forgotten after 60; a disk waits 60 seconds for its last way.
Set-MPIOSetting -NewPathVerificationState Enabled -NewPathVerificationPeriod 10 -NewPDORemovePeriod 60 -NewDiskTimeout 60
`
    : `
# 2. With one way only: the disk waits 60 seconds for the server to come back.
Set-ItemProperty -Path 'HKLM:\\SYSTEM\\CurrentControlSet\\Services\\Disk' -Name TimeOutValue -Value 60
`
}
# 3. Log in, now and at each start.
${asked}${portal}
${connect}

# 4. Look${several ? ': each volume is one disk; mpclaim lists its ways' : ''}. A new disk is made ready under "Disk Management", or with Initialize-Disk.
Get-Disk | Where-Object FriendlyName -like 'URSA*'
${several ? 'mpclaim -s -d\n' : ''}`
}

function proxmox(setup: Setup): string {
  const several = setup.portals.length > 1
  const name = setup.target.replace(/^.*:/, '').replace(/[^A-Za-z0-9_-]/g, '-') || 'volume'
  const naa = setup.naa ?? 'NAA'
  const device = several ? `/dev/disk/by-id/dm-uuid-mpath-3${naa}` : `/dev/disk/by-id/wwn-0x${naa}`
  const script = linux(setup).replace('# Linux host for Ursa volumes.', '# A. On every node of the Proxmox cluster: a Linux host for Ursa volumes.').replaceAll('sudo ', '')
  return `\
# Proxmox VE for Ursa volumes, as root: A on every node of its cluster, then B once, on any one of them.
# Give all nodes one host group, with the initiator names of all of them.

${script}
# B. Once: LVM on the volume, shared by all nodes. Proxmox itself keeps two nodes from using one disk image.
#    The volume must be new: pvcreate ends what is on it.
pvcreate ${device}
vgcreate ursa-${name} ${device}
pvesm add lvm ursa-${name} --vgname ursa-${name} --shared 1 --content images,rootdir
pvesm status
`
}
