//! iSCSI (RFC 7143), error recovery level 0. [`wire`] is the format, [`target`] and [`initiator`] are the two
//! roles.

pub mod chap;
pub mod initiator;
pub mod keys;
pub mod name;
mod negotiated;
pub mod target;
#[cfg(test)]
mod tests;
pub mod wire;

pub use negotiated::Negotiated;

/// Portal groups from here on are those of our floating addresses: a portal keeps its group when it moves to
/// another node, since initiators refuse to log in where they find another one than they know. So a login
/// there may have been answered by another node than the one before, and has ended nothing on that.
pub const FLOATING_GROUP_MIN: u16 = 0xff00;
