# Windows host for Ursa volumes: in PowerShell, as administrator.

# 1. The initiator. Its name, which the host group wants, is in the last line.
Set-Service -Name MSiSCSI -StartupType Automatic
Start-Service -Name MSiSCSI
(Get-InitiatorPort | Where-Object ConnectionType -eq 'iSCSI').NodeAddress

# 2. With one way only: the disk waits 60 seconds for the server to come back.
Set-ItemProperty -Path 'HKLM:\SYSTEM\CurrentControlSet\Services\Disk' -Name TimeOutValue -Value 60

# 3. Log in, now and at each start.
New-IscsiTargetPortal -TargetPortalAddress 10.1.1.5 -TargetPortalPortNumber 3260
Connect-IscsiTarget -NodeAddress 'iqn.2026-11.io.ursa:db' -TargetPortalAddress 10.1.1.5 -TargetPortalPortNumber 3260 -IsPersistent $true -IsMultipathEnabled $false

# 4. Look. A new disk is made ready under "Disk Management", or with Initialize-Disk.
Get-Disk | Where-Object FriendlyName -like 'URSA*'
