//! Fixtures for tests with real processes and with clients that we did not write.
//!
//! Clients connect to a [`Server`]: a [`Node`] (the built `ursa` binary on free ports with its own data
//! directory), or tgt when `URSA_E2E_SERVER=tgt` is set, which validates the tests themselves. Tests run
//! external programs only through [`program`], so that each has a time limit, and the message about a missing
//! one names its package. [`raw`] speaks iSCSI byte by byte, for what no well-behaved initiator does.

pub mod attached;
pub mod gate;
pub mod guest;
pub mod http;
pub mod libiscsi;
pub mod node;
pub mod pattern;
pub mod ports;
pub mod program;
pub mod raw;
pub mod server;
pub mod tgt;

pub use attached::Attached;
pub use gate::Gate;
pub use guest::Guest;
pub use node::Node;
pub use server::{Chap, Export, Kind, Server, VolumeSpec};
