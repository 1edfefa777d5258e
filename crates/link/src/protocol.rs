//! The protocol that a node speaks, and what two nodes agree on.
//!
//! Each side names the lowest and the highest version that it speaks, and its capabilities. The two use the
//! highest version that both speak, and the capabilities that both have; without a common version there is no
//! link. So nodes of neighboring releases work together while a cluster is updated node by node.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Versions of the protocol between nodes: all from [`min`](Versions::min) to [`max`](Versions::max).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "(u8, u8)", into = "(u8, u8)")]
pub struct Versions {
    min: u8,
    max: u8,
}

impl Versions {
    /// The versions that this program speaks.
    pub const CURRENT: Versions = Versions { min: 1, max: 1 };

    /// `None` if `min` is 0 or above `max`.
    pub const fn new(min: u8, max: u8) -> Option<Versions> {
        if min == 0 || min > max { None } else { Some(Versions { min, max }) }
    }

    /// The lowest version.
    pub fn min(self) -> u8 {
        self.min
    }

    /// The highest version.
    pub fn max(self) -> u8 {
        self.max
    }

    /// The highest version that both sides speak.
    pub fn common(self, other: Versions) -> Option<u8> {
        let highest = self.max.min(other.max);
        (highest >= self.min.max(other.min)).then_some(highest)
    }
}

impl TryFrom<(u8, u8)> for Versions {
    type Error = &'static str;

    fn try_from((min, max): (u8, u8)) -> Result<Versions, &'static str> {
        Versions::new(min, max).ok_or("not a lowest and a highest version")
    }
}

impl From<Versions> for (u8, u8) {
    fn from(versions: Versions) -> (u8, u8) {
        (versions.min, versions.max)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            write!(f, "version {}", self.max)
        } else {
            write!(f, "versions {} to {}", self.min, self.max)
        }
    }
}

/// What a node can do beyond its version: a set of bits.
///
/// The link's user defines the meaning of each bit, which never changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// Whether these include all of `others`.
    pub fn contain(self, others: Capabilities) -> bool {
        self.0 & others.0 == others.0
    }

    /// The capabilities that both sides have.
    pub fn common(self, other: Capabilities) -> Capabilities {
        Capabilities(self.0 & other.0)
    }
}

/// The protocol that one side speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// The versions it speaks.
    pub versions: Versions,
    /// Its capabilities beyond these.
    pub capabilities: Capabilities,
}

impl Default for Protocol {
    fn default() -> Protocol {
        Protocol { versions: Versions::CURRENT, capabilities: Capabilities::default() }
    }
}

/// The protocol that the two sides of a link use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The highest version that both speak.
    pub version: u8,
    /// The capabilities that both have.
    pub capabilities: Capabilities,
}

impl Protocol {
    /// What the two sides use; `None` if they have no version in common.
    pub(crate) fn negotiate(self, other: Protocol) -> Option<Negotiated> {
        let version = self.versions.common(other.versions)?;
        Some(Negotiated { version, capabilities: self.capabilities.common(other.capabilities) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_common_version_is_used() {
        let versions = |min, max| Versions::new(min, max).unwrap();
        assert_eq!(versions(1, 1).common(versions(1, 1)), Some(1));
        assert_eq!(versions(1, 3).common(versions(2, 5)), Some(3));
        assert_eq!(versions(2, 5).common(versions(1, 3)), Some(3));
        assert_eq!(versions(1, 5).common(versions(2, 3)), Some(3));
        assert_eq!(versions(1, 2).common(versions(2, 3)), Some(2));
        assert_eq!(versions(1, 2).common(versions(3, 4)), None);
        assert_eq!(versions(3, 4).common(versions(1, 2)), None);
        assert_eq!((Versions::new(0, 1), Versions::new(2, 1)), (None, None));
    }

    #[test]
    fn capabilities_count_where_both_sides_have_them() {
        let both = Capabilities(0b0110).common(Capabilities(0b1100));
        assert_eq!(both, Capabilities(0b0100));
        assert!(both.contain(Capabilities(0b0100)) && !both.contain(Capabilities(0b0110)));
    }
}
