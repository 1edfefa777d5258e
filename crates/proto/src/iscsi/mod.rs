//! iSCSI (RFC 7143), error recovery level 0. [`wire`] is the format, [`target`] and the initiator's role use it.

pub mod target;
pub mod wire;
