# Windows host for Ursa volumes: run in PowerShell, as administrator.

# 1. The initiator. The last line prints its name (IQN), for the host group.
Set-Service -Name MSiSCSI -StartupType Automatic
Start-Service -Name MSiSCSI
(Get-InitiatorPort | Where-Object ConnectionType -eq 'iSCSI').NodeAddress

# 2. MPIO: one disk for all paths to a volume. The first time, restart Windows after these lines, then continue.
Install-WindowsFeature -Name Multipath-IO -IncludeManagementTools
Enable-MSDSMAutomaticClaim -BusType iSCSI
# A dead path is detected within 10 seconds and removed after 60; with no path left, a disk waits 60 seconds.
Set-MPIOSetting -NewPathVerificationState Enabled -NewPathVerificationPeriod 10 -NewPDORemovePeriod 60 -NewDiskTimeout 60

# 3. Log in, now and at each boot.
& { # The shell reads up to the closing brace before it runs anything, so the prompt does not swallow pasted lines.
$Secret = Read-Host 'CHAP secret (12 to 16 characters)'
New-IscsiTargetPortal -TargetPortalAddress 10.1.1.5 -TargetPortalPortNumber 3260
New-IscsiTargetPortal -TargetPortalAddress 10.1.2.5 -TargetPortalPortNumber 3261
Connect-IscsiTarget -NodeAddress 'iqn.2026-11.io.ursa:db' -TargetPortalAddress 10.1.1.5 -TargetPortalPortNumber 3260 -IsPersistent $true -IsMultipathEnabled $true -AuthenticationType ONEWAYCHAP -ChapUsername 'web' -ChapSecret $Secret
Connect-IscsiTarget -NodeAddress 'iqn.2026-11.io.ursa:db' -TargetPortalAddress 10.1.2.5 -TargetPortalPortNumber 3261 -IsPersistent $true -IsMultipathEnabled $true -AuthenticationType ONEWAYCHAP -ChapUsername 'web' -ChapSecret $Secret

# 4. Check: each volume is one disk; mpclaim lists its paths. Initialize a new disk in "Disk Management", or with Initialize-Disk.
Get-Disk | Where-Object FriendlyName -like 'URSA*'
mpclaim -s -d
}
