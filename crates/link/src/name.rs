//! The names of links.

use std::fmt;

use replica::NodeId;

/// The identity of a cluster: random, created with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub [u8; 16]);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What a link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Heartbeats, consensus, requests: one link between two nodes, on core 0 of both.
    Control,
    /// Messages between copies: as many links as the greater of the two numbers of cores.
    Replication,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Control => "control",
            Role::Replication => "replication",
        })
    }
}

/// The name of a link, by which the users at both ends know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkName {
    /// The node at the other end.
    pub peer: NodeId,
    /// What the link is for.
    pub role: Role,
    /// Counted from 0. A control link has number 0.
    pub number: u16,
}

impl LinkName {
    /// The core that the link runs on, on a node with `cores` cores.
    pub fn core(self, cores: u16) -> rt::CoreId {
        match self.role {
            Role::Control => rt::CoreId(0),
            Role::Replication => rt::CoreId(self.number % cores.max(1)),
        }
    }
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.role {
            Role::Control => write!(f, "the control link with {}", self.peer),
            Role::Replication => write!(f, "replication link {} with {}", self.number, self.peer),
        }
    }
}
