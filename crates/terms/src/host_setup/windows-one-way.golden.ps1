# Windows host for Ursa volumes: run in PowerShell, as administrator.

# 1. The initiator. The last line prints its name (IQN), for the host group.
Set-Service -Name MSiSCSI -StartupType Automatic
Start-Service -Name MSiSCSI
(Get-InitiatorPort | Where-Object ConnectionType -eq 'iSCSI').NodeAddress

# 2. Single path: the disk waits 60 seconds for the server to return.
Set-ItemProperty -Path 'HKLM:\SYSTEM\CurrentControlSet\Services\Disk' -Name TimeOutValue -Value 60

# 3. Log in, now and at each boot.
New-IscsiTargetPortal -TargetPortalAddress 10.1.1.5 -TargetPortalPortNumber 3260
Connect-IscsiTarget -NodeAddress 'iqn.2026-11.io.ursa:db' -TargetPortalAddress 10.1.1.5 -TargetPortalPortNumber 3260 -IsPersistent $true -IsMultipathEnabled $false

# 4. Check. Initialize a new disk in "Disk Management", or with Initialize-Disk.
Get-Disk | Where-Object FriendlyName -like 'URSA*'
