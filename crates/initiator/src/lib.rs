//! An iSCSI initiator in user space, for the load generator, drills, tests and the simulator's clients. It
//! runs in both worlds of the runtime.
//!
//! A [`Session`] is one connection to one target. Its methods are commands (see [`command`]). Any number of
//! them may be under way; those that do not fit into the target's window wait. A [`Multipath`] is a logical
//! unit over all paths to it: it finds the paths, chooses between them, and survives their loss. [`discover`]
//! asks a portal for its targets. [`load`] generates load and measures it.

pub mod command;
mod discover;
mod error;
pub mod load;
mod lun;
pub mod multipath;
mod options;
mod pattern;
mod session;

pub use command::Capacity;
pub use discover::discover;
pub use error::{Ended, Error};
pub use lun::Lun;
pub use multipath::{Multipath, MultipathOptions, Policy, Search, UnitSelector};
pub use options::{Chap, Options, Timeouts};
pub use pattern::{Pattern, WrongSector};
pub use proto::iscsi::initiator::{CommandResult, LoginError, Transfer, Wish};
pub use proto::iscsi::target_role::{Credentials, TargetRecord, TaskFunction};
pub use session::{Pending, Session};
