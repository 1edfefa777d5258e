//! iSCSI (RFC 7143), error recovery level 0. [`wire`] is the format, [`target`] and [`initiator`] are the two roles.

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
