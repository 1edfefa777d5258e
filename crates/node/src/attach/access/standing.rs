//! Whether a login may act for an existing session: join it, or replace it.
//!
//! Names prove nothing: anyone can send an initiator's name, its ISID and a guessed TSIH. So a login acts for
//! a session only if, on its own, it enters every host group that the session has entered. It may enter more
//! groups; that gives it nothing in the session.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{Access, ChapSecret, HostGroup, HostName};

/// What one login has shown: its address, and which secret it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The address of the initiator.
    pub address: IpAddr,
    /// The secret that the initiator has proved to know, if it had to.
    pub proven: Option<ChapSecret>,
}

/// Why a login may not act for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barred {
    /// The login has not proved the secret of a host group that the session has entered.
    Secret,
    /// A host group that the session has entered does not contain the login's address.
    Address,
}

impl HostGroup {
    /// Whether a login of `initiator` with this claim sees what is mapped for the group.
    ///
    /// It does if it belongs to the group, and has proved the group's secret if there is one.
    pub(super) fn is_entered(&self, initiator: &str, claim: &Claim) -> bool {
        self.contains(initiator, claim.address) && (self.chap.is_none() || self.chap == claim.proven)
    }
}

impl Access {
    /// All host groups, mapped or not, that a login of `initiator` with this claim enters.
    pub fn groups_of(&self, initiator: &str, claim: &Claim) -> BTreeSet<HostName> {
        self.hosts().filter(|host| host.is_entered(initiator, claim)).map(|host| host.name.clone()).collect()
    }

    /// Whether a login of `initiator` with this claim may act for a session of the same initiator that has
    /// `entered` these groups.
    pub fn acts_for(
        &self,
        initiator: &str,
        entered: &BTreeSet<HostName>,
        claim: &Claim,
    ) -> Result<(), Barred> {
        let own = self.groups_of(initiator, claim);
        let missing: Vec<&HostGroup> =
            entered.difference(&own).filter_map(|name| self.host(name.as_str())).collect();
        if missing.is_empty() {
            Ok(())
        } else if missing.iter().all(|host| host.contains(initiator, claim.address)) {
            Err(Barred::Secret)
        } else {
            Err(Barred::Address)
        }
    }
}
