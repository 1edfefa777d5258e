//! An iSCSI initiator in user space, in both worlds of the runtime: for the load generator, drills, tests and
//! the simulator's clients.
//!
//! A [`Session`] is one connection to one target. Its methods are commands (see [`command`]); any number of
//! them may be under way, and what the target's window does not take waits. A [`Multipath`] is a logical unit
//! by all paths to it: it finds them, chooses between them, and survives their loss. [`discover`] asks a
//! portal for its targets. [`load`] makes work and measures.

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
pub use multipath::{Multipath, MultipathOptions, Policy, Search, Wanted};
pub use options::{Chap, Options, Timeouts};
pub use pattern::{Pattern, WrongSector};
pub use proto::iscsi::initiator::{CommandResult, LoginError, Transfer, Wish};
pub use proto::iscsi::target::{Credentials, TargetRecord, TaskFunction};
pub use session::{Pending, Session};
