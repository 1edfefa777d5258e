//! The target of a measurement: a file, a block device, or a unit of an iSCSI target.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The target of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// A file or a block device of this machine.
    Disk(PathBuf),
    /// A logical unit.
    Unit(UnitUrl),
}

/// `iscsi://portal[:port][,portal...]/iqn/lun`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitUrl {
    /// The portals, at least one; all of them are used.
    pub portals: Vec<PortalName>,
    /// TargetName.
    pub name: String,
    /// The LUN.
    pub lun: u16,
}

/// A portal, as users write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortalName {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// The port of iSCSI portals (RFC 7143 13.1).
pub const PORT: u16 = 3260;
/// LUNs are below this number (SAM-5 4.7: flat space addressing).
const LUN_END: u16 = 1 << 14;

/// Why a text is not a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum InvalidTarget {
    #[error("{0:?} is not a LUN; use iscsi://PORTAL[:PORT][,PORTAL...]/IQN/LUN")]
    Url(String),
    #[error(
        "a name or a secret in the URL is visible to every user of this machine; use --chap-user and --chap-secret-file"
    )]
    Secret,
    #[error("protocol {0}:// is not supported; use iscsi:// or a path")]
    Scheme(String),
    #[error("no target given")]
    Empty,
}

impl FromStr for Target {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Target, InvalidTarget> {
        match text.split_once("://") {
            _ if text.is_empty() => Err(InvalidTarget::Empty),
            None => Ok(Target::Disk(text.into())),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("iscsi") => {
                unit(text, rest).map(Target::Unit)
            }
            Some((scheme, _)) => Err(InvalidTarget::Scheme(scheme.to_owned())),
        }
    }
}

impl FromStr for UnitUrl {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<UnitUrl, InvalidTarget> {
        match text.parse()? {
            Target::Unit(unit) => Ok(unit),
            Target::Disk(_) => Err(InvalidTarget::Url(text.to_owned())),
        }
    }
}

fn unit(text: &str, rest: &str) -> Result<UnitUrl, InvalidTarget> {
    let invalid = || InvalidTarget::Url(text.to_owned());
    let mut parts = rest.splitn(3, '/');
    let (Some(portals), Some(name), Some(lun)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(invalid());
    };
    if portals.contains('@') {
        return Err(InvalidTarget::Secret);
    }
    let portals = portals.split(',').map(portal).collect::<Option<Vec<_>>>().ok_or_else(invalid)?;
    let lun = lun.parse().ok().filter(|lun| *lun < LUN_END).ok_or_else(invalid)?;
    if name.is_empty() {
        return Err(invalid());
    }
    Ok(UnitUrl { portals, name: name.to_owned(), lun })
}

fn portal(text: &str) -> Option<PortalName> {
    let (host, port) = split_portal(text)?;
    (!host.is_empty()).then(|| PortalName { host: host.to_owned(), port })
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`.
fn split_portal(portal: &str) -> Option<(&str, u16)> {
    let (host, port) = match portal.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
        }
        None => match portal.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (portal, None),
        },
    };
    match port {
        None => Some((host, PORT)),
        Some(port) => port.parse().ok().filter(|port| *port > 0).map(|port| (host, port)),
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Disk(path) => write!(f, "{}", path.display()),
            Target::Unit(unit) => unit.fmt(f),
        }
    }
}

impl fmt::Display for UnitUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnitUrl { portals, name, lun } = self;
        f.write_str("iscsi://")?;
        for (number, portal) in portals.iter().enumerate() {
            write!(f, "{}{portal}", if number == 0 { "" } else { "," })?;
        }
        write!(f, "/{name}/{lun}")
    }
}

impl fmt::Display for PortalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PortalName { host, port } = self;
        match host.contains(':') {
            true => write!(f, "[{host}]:{port}"),
            false => write!(f, "{host}:{port}"),
        }
    }
}

impl TryFrom<String> for Target {
    type Error = InvalidTarget;

    fn try_from(text: String) -> Result<Target, InvalidTarget> {
        text.parse()
    }
}

impl From<Target> for String {
    fn from(target: Target) -> String {
        target.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_named_by_urls() {
        for (text, shown) in [
            ("iscsi://10.0.0.7/iqn.2026-11.io.ursa:db/0", "iscsi://10.0.0.7:3260/iqn.2026-11.io.ursa:db/0"),
            ("iscsi://san1:860/iqn.2026-11.io.ursa:db/12", "iscsi://san1:860/iqn.2026-11.io.ursa:db/12"),
            ("iscsi://a,[fe80::1]:860,b:1/iqn.b:c/0", "iscsi://a:3260,[fe80::1]:860,b:1/iqn.b:c/0"),
            ("ISCSI://[fe80::1]/eui.02004567A425678D/1", "iscsi://[fe80::1]:3260/eui.02004567A425678D/1"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.to_string(), shown);
            assert_eq!(shown.parse(), Ok(target));
        }
        assert!(matches!("/dev/sdb".parse::<UnitUrl>(), Err(InvalidTarget::Url(_))));
        assert_eq!("/dev/sdb".parse(), Ok(Target::Disk("/dev/sdb".into())));
    }

    #[test]
    fn an_invalid_unit_is_refused() {
        for text in [
            "iscsi://",
            "iscsi://host/iqn",
            "iscsi://host/iqn/x",
            "iscsi://host/iqn/16384",
            "iscsi://host:0/iqn/0",
            "iscsi:///iqn/0",
            "iscsi://[::1/iqn/0",
            "iscsi://host//0",
            "iscsi://host,/iqn/0",
        ] {
            assert!(matches!(text.parse::<Target>(), Err(InvalidTarget::Url(_))), "{text}");
        }
        assert_eq!("iscsi://me%secret@host/iqn/0".parse::<Target>(), Err(InvalidTarget::Secret));
        assert_eq!("nvme://host/nqn/1".parse::<Target>(), Err(InvalidTarget::Scheme("nvme".into())));
        assert_eq!("".parse::<Target>(), Err(InvalidTarget::Empty));
    }
}
