//! Host groups: initiators by name, address and secret.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::names::HostName;

/// A CHAP name and secret. `Debug` does not show the secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChapSecret {
    /// The CHAP name (CHAP_N).
    pub user: String,
    /// The secret, as text.
    pub secret: String,
}

base::shows!(Debug for ChapSecret, |it| "ChapSecret({}, secret not shown)", it.user);

/// Addresses with a common prefix, as in `10.1.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AddressRange {
    network: IpAddr,
    /// Bits that must be equal.
    prefix: u8,
}

/// Not an address range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an address or a range: write 10.1.2.3 or 10.1.0.0/16, fd00::1 or fd00::/8")]
pub struct InvalidRange(String);

fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        // Shifted to the top, so that a prefix counts from the same end in both families.
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

impl AddressRange {
    /// The addresses that have these bits in common with `address`.
    pub fn new(address: IpAddr, prefix: u8) -> Result<AddressRange, InvalidRange> {
        match prefix <= bits(address).1 {
            true => Ok(AddressRange { network: address, prefix }),
            false => Err(InvalidRange(format!("{address}/{prefix}"))),
        }
    }

    /// The address that the range was created from.
    pub fn address(self) -> IpAddr {
        self.network
    }

    /// How many of its bits must be equal.
    pub fn prefix(self) -> u8 {
        self.prefix
    }

    /// Whether `address` is in the range. An IPv4 address mapped into IPv6 counts as IPv4.
    pub fn contains(self, address: IpAddr) -> bool {
        let ((network, width), (address, other)) = (bits(self.network), bits(address.to_canonical()));
        width == other && (self.prefix == 0 || (network ^ address) >> (128 - u32::from(self.prefix)) == 0)
    }

    /// Whether an address is in both ranges. Then one of them contains the other.
    fn meets(self, other: AddressRange) -> bool {
        self.contains(other.network) || other.contains(self.network)
    }
}

impl FromStr for AddressRange {
    type Err = InvalidRange;
    fn from_str(text: &str) -> Result<AddressRange, InvalidRange> {
        let invalid = || InvalidRange(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse::<u8>().map_err(|_| invalid())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        AddressRange::new(address, prefix.unwrap_or(bits(address).1)).map_err(|_| invalid())
    }
}

impl TryFrom<String> for AddressRange {
    type Error = InvalidRange;
    fn try_from(text: String) -> Result<AddressRange, InvalidRange> {
        text.parse()
    }
}

impl From<AddressRange> for String {
    fn from(range: AddressRange) -> String {
        range.to_string()
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix == bits(self.network).1 {
            write!(f, "{}", self.network)
        } else {
            write!(f, "{}/{}", self.network, self.prefix)
        }
    }
}

/// Initiators with the same access rights.
///
/// An initiator belongs to the group if its name is listed (or no name is) and its address is listed (or no
/// address is).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostGroup {
    /// The name of the group.
    pub name: HostName,
    /// The iSCSI names of its initiators.
    pub initiators: Vec<String>,
    /// The addresses of its initiators.
    pub addresses: Vec<AddressRange>,
    /// The secret with which its initiators authenticate.
    pub chap: Option<ChapSecret>,
}

impl HostGroup {
    /// The built-in groups: `any` contains all initiators, `local` those of this machine, by its loopback
    /// addresses.
    pub fn built_in() -> [HostGroup; 2] {
        let group = |name: &str, addresses| HostGroup {
            name: name.parse().expect("a valid name"),
            initiators: Vec::new(),
            addresses,
            chap: None,
        };
        let loopback = vec![
            AddressRange { network: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), prefix: 8 },
            AddressRange { network: IpAddr::V6(Ipv6Addr::LOCALHOST), prefix: 128 },
        ];
        [group("any", Vec::new()), group("local", loopback)]
    }

    /// Whether the group is built in.
    pub fn is_built_in(&self) -> bool {
        matches!(self.name.as_str(), "any" | "local")
    }

    /// Whether the initiator belongs to the group.
    pub fn contains(&self, initiator: &str, address: IpAddr) -> bool {
        (self.initiators.is_empty() || self.initiators.iter().any(|name| name == initiator))
            && (self.addresses.is_empty() || self.addresses.iter().any(|range| range.contains(address)))
    }

    /// Whether an initiator may belong to both groups.
    pub fn may_share_members(&self, other: &HostGroup) -> bool {
        let names = || self.initiators.iter().any(|name| other.initiators.contains(name));
        let ranges = || {
            let meets = |range: &AddressRange| other.addresses.iter().any(|other| range.meets(*other));
            self.addresses.iter().any(meets)
        };
        (self.initiators.is_empty() || other.initiators.is_empty() || names())
            && (self.addresses.is_empty() || other.addresses.is_empty() || ranges())
    }
}
