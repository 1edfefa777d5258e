//! What a link is called.

use std::fmt;

use replica::NodeId;

/// The identity of a cluster: random, made when the cluster is.
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

/// Which link of a node: the name that both ends' users know it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkName {
    /// The node at the other end.
    pub peer: NodeId,
    /// What it is for.
    pub role: Role,
    /// From 0. A control link is number 0.
    pub number: u16,
}

impl LinkName {
    /// The core that the link lives on, of a node with so many.
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
