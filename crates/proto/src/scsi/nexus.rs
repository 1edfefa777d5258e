//! Who talks to a unit: an initiator port through a target port (SAM-5 4.6.4).

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// An initiator port's login to a target port: what unit attentions belong to. Given by the node, never
/// reused while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NexusId(pub u64);

/// The name of an initiator port (RFC 7143 4.4.2): the same after every login and restart of the initiator,
/// if it keeps its ISID as it should.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InitiatorPort {
    /// The iSCSI name.
    pub name: Arc<str>,
    /// The session's identifier at the initiator.
    pub isid: [u8; 6],
}

impl fmt::Display for InitiatorPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},i,0x", self.name)?;
        self.isid.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The number of a target port (SPC-4 7.8.6.8), never zero. It is unique among all ports through which a unit
/// can be reached, and stays the same over restarts, because registrations of reservations are kept by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RelativePort(pub u16);

/// An I_T nexus by its names, which outlive the login: what reservations belong to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ItNexus {
    /// Who.
    pub initiator: InitiatorPort,
    /// Through which port.
    pub port: RelativePort,
}
