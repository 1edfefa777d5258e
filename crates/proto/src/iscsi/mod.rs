//! iSCSI (RFC 7143), error recovery level 0: [`wire`] is the format, [`target_role`] and [`initiator`] are
//! the two roles.

pub mod chap;
pub mod initiator;
pub mod keys;
pub mod name;
mod negotiated;
pub mod target_role;
#[cfg(test)]
mod tests;
pub mod wire;

pub use negotiated::Negotiated;

/// The first portal group tag of our floating addresses.
///
/// A portal keeps its group when it moves to another node, because initiators refuse to log in to a portal
/// whose group has changed. So consecutive logins to such a portal may be answered by different nodes, and
/// the later login ends no session on the earlier node.
pub const FLOATING_GROUP_MIN: u16 = 0xff00;
