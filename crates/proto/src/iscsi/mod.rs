//! iSCSI (RFC 7143), error recovery level 0. [`wire`] is the format, [`target`] and the initiator's role use it.

pub mod chap;
pub mod keys;
pub mod name;
pub mod target;
pub mod wire;
