//! `ursa host-setup` and `GET /v1/host-setup`: settings for hosts, with the same text in both.

mod esxi;
mod linux;
mod portals;
mod proxmox;
mod windows;
mod words;

use std::net::SocketAddr;

use api::{Client, ClientError, HostSystem, Volume};
use clap::{Args, Subcommand};

pub use self::portals::{Nodes, portals};
pub use self::words::{UnfitWord, plain, user};

/// For which system.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print the settings of a Linux host: open-iscsi, dm-multipath and udev
    Linux(Setup),
    /// Print the settings of a VMware ESXi host: software initiator, multipath, timeouts
    Esxi(Setup),
    /// Print the settings of a Windows host: initiator and MPIO, in PowerShell
    Windows(Setup),
    /// Print the settings of a Proxmox VE cluster: its nodes as Linux hosts, and shared LVM
    Proxmox(Setup),
}

/// For which target, and by which ways.
#[derive(Args, Debug)]
pub struct Setup {
    /// IQN of the target
    #[arg(long, value_name = "IQN", default_value = "iqn.2026-11.io.ursa:NAME", value_parser = plain)]
    pub target: String,
    /// Portal to use; repeat for each node and network
    #[arg(long = "portal", value_name = "ADDRESS[:PORT]", default_value = "SERVER", value_parser = plain)]
    pub portals: Vec<String>,
    /// CHAP user name of the host, if its host group has a CHAP secret; the script asks for the secret
    #[arg(long, value_name = "NAME", value_parser = user)]
    pub chap_user: Option<String>,
    /// NAA name of the volume, as shown by `ursa volume show`; used only for Proxmox VE
    #[arg(long, value_name = "HEX", value_parser = plain)]
    pub naa: Option<String>,
    /// Volume to set the host up for; its target, NAA name and portals are looked up
    #[arg(long, value_name = "NAME", conflicts_with_all = ["target", "portals", "naa"])]
    pub volume: Option<String>,
}

impl Setup {
    fn has_several_ways(&self) -> bool {
        self.portals.len() > 1
    }
}

impl Command {
    /// The settings, with explanations. Calls `client` only if a volume is named.
    pub fn text(self, client: &Client) -> Result<String, ClientError> {
        let (system, setup) = match self {
            Command::Linux(setup) => (HostSystem::Linux, setup),
            Command::Esxi(setup) => (HostSystem::Esxi, setup),
            Command::Windows(setup) => (HostSystem::Windows, setup),
            Command::Proxmox(setup) => (HostSystem::Proxmox, setup),
        };
        Ok(text(system, &setup.looked_up(client)?))
    }
}

impl Setup {
    /// Completes the setup with what the node knows of the volume, if one is named.
    fn looked_up(self, client: &Client) -> Result<Setup, ClientError> {
        let Some(name) = &self.volume else { return Ok(self) };
        let volume = client.volume(name)?;
        let target =
            volume.maps.first().map_or_else(|| api::default_target(&volume.name), |map| map.target.clone());
        let portals = portals_of(client, &volume);
        let portals = if portals.is_empty() { self.portals } else { portals };
        Ok(Setup { target, portals, naa: Some(volume.naa), ..self })
    }
}

/// The portals at which hosts log in to use a volume.
///
/// Empty if a node listens on all of its addresses and the cluster's record does not say which these are.
pub fn portals_of(client: &Client, volume: &Volume) -> Vec<String> {
    let cluster = client.cluster_nodes().unwrap_or_default();
    let floating = if cluster.is_empty() { Vec::new() } else { client.addresses().unwrap_or_default() };
    let here = client.node().map(|node| node.portals).unwrap_or_default();
    let mut found = portals([volume], Nodes { cluster: &cluster, floating: &floating, here: &here });
    let is_wildcard =
        |portal: &String| portal.parse().is_ok_and(|portal: SocketAddr| portal.ip().is_unspecified());
    found.retain(|portal| !is_wildcard(portal));
    found
}

/// The settings, with explanations, ready to paste.
pub fn text(system: HostSystem, setup: &Setup) -> String {
    match system {
        HostSystem::Linux => linux::text(setup, linux::As::Sudoer),
        HostSystem::Esxi => esxi::text(setup),
        HostSystem::Windows => windows::text(setup),
        HostSystem::Proxmox => proxmox::text(setup),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &[&str] = &["10.1.1.5"];
    const TWO: &[&str] = &["10.1.1.5", "10.1.2.5:3261"];

    fn setup(portals: &[&str], chap_user: Option<&str>) -> Setup {
        Setup {
            target: "iqn.2026-11.io.ursa:db".into(),
            portals: portals.iter().map(|&portal| portal.to_owned()).collect(),
            chap_user: chap_user.map(str::to_owned),
            naa: Some("6abc".into()),
            volume: None,
        }
    }

    #[test]
    fn the_texts_are_what_they_were() {
        let text = |system, portals, user| super::text(system, &setup(portals, user));
        assert_eq!(text(HostSystem::Linux, ONE, None), include_str!("one-way.golden.sh"));
        assert_eq!(text(HostSystem::Linux, TWO, None), include_str!("two-ways.golden.sh"));
        assert_eq!(text(HostSystem::Esxi, TWO, Some("web")), include_str!("esxi.golden.sh"));
        assert_eq!(text(HostSystem::Windows, ONE, None), include_str!("windows-one-way.golden.ps1"));
        assert_eq!(text(HostSystem::Windows, TWO, Some("web")), include_str!("windows-two-ways.golden.ps1"));
        assert_eq!(text(HostSystem::Proxmox, TWO, Some("web")), include_str!("proxmox.golden.sh"));
    }

    #[test]
    fn each_names_the_target_and_every_portal_and_asks_for_the_secret() {
        for system in [HostSystem::Linux, HostSystem::Esxi, HostSystem::Windows, HostSystem::Proxmox] {
            let text = text(system, &setup(&["10.1.1.5", "[fd00::5]:3261"], Some("web")));
            for part in ["iqn.2026-11.io.ursa:db", "10.1.1.5", "fd00::5", "3261", "web", "CHAP secret"] {
                assert!(text.contains(part), "{system:?}: {part}");
            }
            let without = super::text(system, &setup(ONE, None));
            assert!(!without.contains("SECRET") && !without.contains("$Secret"), "{system:?}");
        }
    }

    #[test]
    fn the_secret_is_not_an_argument_of_sudo_and_its_prompt_reads_no_pasted_lines() {
        for system in [HostSystem::Linux, HostSystem::Esxi, HostSystem::Windows, HostSystem::Proxmox] {
            let text = text(system, &setup(TWO, Some("web")));
            for line in text.lines().filter(|line| line.contains("$SECRET")) {
                assert!(!line.starts_with("sudo "), "{system:?}: {line}");
            }
            let lines: Vec<&str> = text.lines().collect();
            let at = |what: &str| lines.iter().position(|line| line.starts_with(what)).unwrap();
            let begin = at(if system == HostSystem::Windows { "& {" } else { "{" });
            let asks = |line: &&str| line.contains("CHAP secret: ") || line.contains("Read-Host");
            let question = lines.iter().position(asks).unwrap();
            let end = lines.iter().rposition(|line| *line == "}").unwrap();
            assert!(begin < question && question < end, "{system:?}");
            // Part B of Proxmox VE is pasted separately.
            assert!(end + 1 == lines.len() || lines[end + 2].starts_with("# B. Once"), "{system:?}");
        }
    }

    #[test]
    fn linux_hands_the_secret_over_by_standard_input() {
        let set = "iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n node.session.auth.password -v";
        let text = text(HostSystem::Linux, &setup(ONE, Some("web")));
        let line = format!("printf '%s\\n' \"$SECRET\" | sudo sh -c 'read -r S; exec {set} \"$S\"'\n");
        assert!(text.contains(&line), "{text}");
        assert!(text.ends_with("wwn-*\n}\n"), "{text}");
    }

    #[test]
    fn a_name_with_sudo_in_it_stays_for_root() {
        let text = text(HostSystem::Proxmox, &setup(ONE, Some("sudo web")));
        assert!(text.contains("-v 'sudo web'\n"), "{text}");
        assert_eq!(text.matches("sudo ").count(), 1, "{text}");
    }

    #[test]
    fn proxmox_uses_the_existing_device() {
        let text = |portals, naa: Option<&str>| {
            let naa = naa.map(str::to_owned);
            super::text(HostSystem::Proxmox, &Setup { naa, ..setup(portals, None) })
        };
        assert!(text(TWO, Some("6abc")).contains("pvcreate /dev/disk/by-id/dm-uuid-mpath-36abc\n"));
        assert!(text(ONE, Some("6abc")).contains("pvcreate /dev/disk/by-id/wwn-0x6abc\n"));
        assert!(text(ONE, None).contains("pvcreate /dev/disk/by-id/wwn-0xNAA\n"));
    }
}
