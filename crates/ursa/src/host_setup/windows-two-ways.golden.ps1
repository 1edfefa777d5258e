# Windows host for Ursa volumes: in PowerShell, as administrator.

# 1. The initiator. Its name, which the host group wants, is in the last line.
Set-Service -Name MSiSCSI -StartupType Automatic
Start-Service -Name MSiSCSI
(Get-InitiatorPort | Where-Object ConnectionType -eq 'iSCSI').NodeAddress

# 2. One disk of all ways to a volume (MPIO). The first time Windows has to be restarted after these lines; go on then.
Install-WindowsFeature -Name Multipath-IO -IncludeManagementTools
Enable-MSDSMAutomaticClaim -BusType iSCSI
# A way that is dead is found within 10 seconds and forgotten after 60; a disk waits 60 seconds for its last way.
Set-MPIOSetting -NewPathVerificationState Enabled -NewPathVerificationPeriod 10 -NewPDORemovePeriod 60 -NewDiskTimeout 60

# 3. Log in, now and at each start.
& { # As far as the brace at the end it is read before anything of it is run: the question takes no line that is pasted.
$Secret = Read-Host 'CHAP secret (12 to 16 characters)'
New-IscsiTargetPortal -TargetPortalAddress 10.1.1.5 -TargetPortalPortNumber 3260
New-IscsiTargetPortal -TargetPortalAddress 10.1.2.5 -TargetPortalPortNumber 3261
Connect-IscsiTarget -NodeAddress 'iqn.2026-11.io.ursa:db' -TargetPortalAddress 10.1.1.5 -TargetPortalPortNumber 3260 -IsPersistent $true -IsMultipathEnabled $true -AuthenticationType ONEWAYCHAP -ChapUsername 'web' -ChapSecret $Secret
Connect-IscsiTarget -NodeAddress 'iqn.2026-11.io.ursa:db' -TargetPortalAddress 10.1.2.5 -TargetPortalPortNumber 3261 -IsPersistent $true -IsMultipathEnabled $true -AuthenticationType ONEWAYCHAP -ChapUsername 'web' -ChapSecret $Secret

# 4. Look: each volume is one disk; mpclaim lists its ways. A new disk is made ready under "Disk Management", or with Initialize-Disk.
Get-Disk | Where-Object FriendlyName -like 'URSA*'
mpclaim -s -d
}
