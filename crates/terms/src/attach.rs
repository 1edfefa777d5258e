//! The commands that use a volume on a host.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// The commands for a Linux host with open-iscsi: one login per portal, so that a node may be lost.
pub fn attach_lines(portals: &[String], target: &str, local: bool) -> String {
    if let [_, _, ..] = portals
        && !local
    {
        let discover = portals
            .iter()
            .map(|portal| format!("  sudo iscsiadm -m discovery -t sendtargets -p {portal}\n"))
            .collect::<String>();
        return format!("{discover}  sudo iscsiadm -m node -T {target} --login\n  sudo multipath -ll\n");
    }
    let portal = portal(portals, local);
    format!(
        "  sudo iscsiadm -m discovery -t sendtargets -p {portal}\n  \
           sudo iscsiadm -m node -T {target} -p {portal} --login\n  \
           lsblk -o NAME,SIZE,VENDOR,MODEL,SERIAL\n"
    )
}

/// An address that the host can use: no wildcard.
fn portal(portals: &[String], local: bool) -> String {
    let Some(address) = portals.first().and_then(|portal| portal.parse::<SocketAddr>().ok()) else {
        return "SERVER".into();
    };
    match (address.ip().is_unspecified(), local) {
        (false, _) => address.to_string(),
        (true, true) if address.is_ipv4() => {
            SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())).to_string()
        }
        (true, true) => SocketAddr::from((Ipv6Addr::LOCALHOST, address.port())).to_string(),
        (true, false) => format!("SERVER:{}", address.port()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_logs_in_to_every_portal() {
        let portals = ["10.0.0.1:3260".to_owned(), "10.0.0.2:3260".to_owned()];
        let lines = attach_lines(&portals, "iqn.x:db", false);
        for line in
            ["sendtargets -p 10.0.0.1:3260\n", "sendtargets -p 10.0.0.2:3260\n", "-T iqn.x:db --login\n"]
        {
            assert!(lines.contains(line), "{lines}");
        }
        assert!(
            attach_lines(&portals, "iqn.x:db", true).contains("-p 10.0.0.1:3260 --login"),
            "this machine"
        );
    }

    #[test]
    fn a_wildcard_is_not_offered_as_a_login_address() {
        let portal = |address: &str, local| portal(&[address.to_owned()], local);
        assert_eq!(portal("0.0.0.0:3260", true), "127.0.0.1:3260");
        assert_eq!(portal("[::]:3261", true), "[::1]:3261");
        assert_eq!(portal("0.0.0.0:3260", false), "SERVER:3260");
        assert_eq!(portal("10.1.1.5:3260", true), "10.1.1.5:3260");
    }
}
