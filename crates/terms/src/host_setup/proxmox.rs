//! Proxmox VE: each of its nodes is a Linux host, and all share LVM on the volume.

use super::{Setup, linux};

/// The script.
pub(super) fn text(setup: &Setup) -> String {
    let name = storage_name(&setup.target);
    let naa = setup.naa.as_deref().unwrap_or("NAA");
    let device = match setup.has_several_ways() {
        true => format!("/dev/disk/by-id/dm-uuid-mpath-3{naa}"),
        false => format!("/dev/disk/by-id/wwn-0x{naa}"),
    };
    let host = linux::text(setup, linux::As::Root).replacen(LINUX_TITLE, TITLE, 1);
    format!(
        "\
# Proxmox VE for Ursa volumes, as root: run A on every node of its cluster, then B once, on any node.
# Put the initiators of all nodes into one host group. Paste A and B one after the other.

{host}
# B. Once: LVM on the volume, shared by all nodes. Proxmox VE itself keeps two nodes from using one disk image.
#    The volume must be new: pvcreate destroys its data.
pvcreate {device}
vgcreate ursa-{name} {device}
pvesm add lvm ursa-{name} --vgname ursa-{name} --shared 1 --content images,rootdir
pvesm status
"
    )
}

const LINUX_TITLE: &str = "# Linux host for Ursa volumes.";
const TITLE: &str = "# A. On every node of the Proxmox cluster: a Linux host for Ursa volumes.";

/// The last part of the target's name, restricted to characters that LVM and Proxmox VE accept.
fn storage_name(target: &str) -> String {
    let last = target.rsplit(':').next().unwrap_or_default();
    let letter = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '-' };
    match last {
        "" => "volume".to_owned(),
        last => last.chars().map(letter).collect(),
    }
}
