//! I_T nexuses: an initiator port that uses a unit through a target port (SAM-5 4.6.4).

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The login of an initiator port to a target port, to which unit attentions belong.
///
/// The node assigns it and does not reuse it while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NexusId(pub u64);

/// The name of an initiator port, in the form of its protocol.
///
/// It is the same after every login and restart of the initiator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum InitiatorPort {
    /// RFC 7143 4.4.2. It stays the same only if the initiator keeps its ISID, as it should.
    Iscsi {
        /// The iSCSI name.
        name: Arc<str>,
        /// The initiator's identifier of the session.
        isid: [u8; 6],
    },
}

impl InitiatorPort {
    /// The name of the initiator, to which the port belongs. Host groups contain such names.
    pub fn name(&self) -> &Arc<str> {
        let InitiatorPort::Iscsi { name, .. } = self;
        name
    }
}

impl fmt::Display for InitiatorPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InitiatorPort::Iscsi { name, isid } = self;
        write!(f, "{name},i,0x")?;
        isid.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The number of a target port (SPC-4 7.8.6.8), never zero.
///
/// It is unique among all ports through which a unit can be reached, and survives restarts, because
/// registrations of reservations refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RelativePort(pub u16);

/// An I_T nexus by its names, which survive the login. Reservations belong to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ItNexus {
    /// The initiator port.
    pub initiator: InitiatorPort,
    /// The target port.
    pub port: RelativePort,
}

impl ItNexus {
    /// The nexus after its target port has got another number.
    #[must_use]
    pub fn renumbered(self, number: impl Fn(RelativePort) -> RelativePort) -> ItNexus {
        ItNexus { port: number(self.port), ..self }
    }
}
