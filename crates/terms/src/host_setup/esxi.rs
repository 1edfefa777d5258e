//! VMware ESXi: its software initiator, and round robin over all paths.

use super::Setup;
use super::words::{SHELL_BEGIN, SHELL_END, shell_word, with_port};

/// The script.
pub(super) fn text(setup: &Setup) -> String {
    let Setup { target, portals, chap_user, .. } = setup;
    let chap = chap_user.as_deref().map(chap).unwrap_or_default();
    let end = if chap_user.is_some() { SHELL_END } else { "" };
    let add: String = portals
        .iter()
        .map(|portal| {
            format!(
                "esxcli iscsi adapter discovery sendtarget add --adapter=\"$HBA\" --address={}\n",
                with_port(portal)
            )
        })
        .collect();
    format!(
        r#"# ESXi host for Ursa volumes: run in the ESXi shell, or over SSH. Target {target}.

{BEFORE}{chap}
# 3. Discovery. With two networks, each needs its own VMkernel port; bind the ports if both are in one subnet:
#    esxcli iscsi networkportal add --adapter="$HBA" --nic=vmk1
{add}
{AFTER}{end}"#
    )
}

fn chap(user: &str) -> String {
    let user = shell_word(user);
    format!(
        r#"
{SHELL_BEGIN}# The CHAP secret of the host group, for all targets of this adapter:
read -rsp 'CHAP secret: ' SECRET; echo
esxcli iscsi adapter auth chap set --adapter="$HBA" --direction=uni --level=required --authname={user} --secret="$SECRET"
unset SECRET
"#
    )
}

const BEFORE: &str = r#"# 1. The software initiator. The last line prints its name (IQN), for the host group.
esxcli iscsi software set --enabled=true
HBA=$(esxcli iscsi adapter list | awk '/iscsi_vmk/ { print $1; exit }')
esxcli iscsi adapter get --adapter="$HBA" | grep 'Name: iqn'

# 2. Round robin over all paths, a new path for each request (ALUA). Do this before the first volume appears: devices
#    already claimed keep their rule until the host is rebooted.
esxcli storage nmp satp rule add --satp=VMW_SATP_ALUA --vendor=URSA --model=VOLUME --claim-option=tpgs_on \
  --psp=VMW_PSP_RR --psp-option=iops=1 --description="Ursa"
"#;

const AFTER: &str = r#"# 4. A server that does not respond is detected after 5 + 5 seconds; after 10 more its paths are dead, and others are used.
esxcli iscsi adapter param set --adapter="$HBA" --key=NoopOutInterval --value=5 || true
esxcli iscsi adapter param set --adapter="$HBA" --key=NoopOutTimeout --value=10 || true
esxcli iscsi adapter param set --adapter="$HBA" --key=RecoveryTimeout --value=10 || true

# 5. Check: each volume is one device (naa.6...) with one path per portal.
esxcli storage core adapter rescan --adapter="$HBA"
esxcli storage nmp device list | grep -A 8 URSA
"#;
