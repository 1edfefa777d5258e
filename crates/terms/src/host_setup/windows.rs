//! Windows: its initiator, and MPIO if there are several paths.

use super::Setup;
use super::words::{address_and_port, powershell_word};

/// The script.
pub(super) fn text(setup: &Setup) -> String {
    let several = setup.has_several_ways();
    let target = powershell_word(&setup.target);
    let (ask, chap, end) = match &setup.chap_user {
        None => ("", String::new(), ""),
        Some(user) => (
            ASK,
            format!(
                " -AuthenticationType ONEWAYCHAP -ChapUsername {} -ChapSecret $Secret",
                powershell_word(user)
            ),
            "}\n",
        ),
    };
    let (mut portals, mut connect) = (String::new(), String::new());
    for (address, port) in setup.portals.iter().map(|portal| address_and_port(portal)) {
        portals +=
            &format!("New-IscsiTargetPortal -TargetPortalAddress {address} -TargetPortalPortNumber {port}\n");
        connect += &format!(
            "Connect-IscsiTarget -NodeAddress {target} -TargetPortalAddress {address} -TargetPortalPortNumber {port} -IsPersistent $true -IsMultipathEnabled ${several}{chap}\n"
        );
    }
    let (disks, look) = if several { (SEVERAL_WAYS, LOOK_SEVERAL) } else { (ONE_WAY, LOOK_ONE) };
    format!("{INITIATOR}\n{disks}\n# 3. Log in, now and at each boot.\n{ask}{portals}{connect}\n{look}{end}")
}

/// Begins a block, all of which PowerShell reads before it runs any of it.
const ASK: &str = "\
& { # The shell reads up to the closing brace before it runs anything, so the prompt does not swallow pasted lines.
$Secret = Read-Host 'CHAP secret (12 to 16 characters)'
";

const INITIATOR: &str = "\
# Windows host for Ursa volumes: run in PowerShell, as administrator.

# 1. The initiator. The last line prints its name (IQN), for the host group.
Set-Service -Name MSiSCSI -StartupType Automatic
Start-Service -Name MSiSCSI
(Get-InitiatorPort | Where-Object ConnectionType -eq 'iSCSI').NodeAddress
";

const SEVERAL_WAYS: &str = "\
# 2. MPIO: one disk for all paths to a volume. The first time, restart Windows after these lines, then continue.
Install-WindowsFeature -Name Multipath-IO -IncludeManagementTools
Enable-MSDSMAutomaticClaim -BusType iSCSI
# A dead path is detected within 10 seconds and removed after 60; with no path left, a disk waits 60 seconds.
Set-MPIOSetting -NewPathVerificationState Enabled -NewPathVerificationPeriod 10 -NewPDORemovePeriod 60 -NewDiskTimeout 60
";

const ONE_WAY: &str = r"# 2. Single path: the disk waits 60 seconds for the server to return.
Set-ItemProperty -Path 'HKLM:\SYSTEM\CurrentControlSet\Services\Disk' -Name TimeOutValue -Value 60
";

const LOOK_ONE: &str = r#"# 4. Check. Initialize a new disk in "Disk Management", or with Initialize-Disk.
Get-Disk | Where-Object FriendlyName -like 'URSA*'
"#;

const LOOK_SEVERAL: &str = r#"# 4. Check: each volume is one disk; mpclaim lists its paths. Initialize a new disk in "Disk Management", or with Initialize-Disk.
Get-Disk | Where-Object FriendlyName -like 'URSA*'
mpclaim -s -d
"#;
