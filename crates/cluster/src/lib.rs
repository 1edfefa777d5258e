//! The cluster's record: a small, linearizable key/value store with compare-and-swap that every node follows.
//! It holds nodes, volumes' configurations, targets, maps and host groups. I/O never waits for it.
//!
//! [`Store`] has the calls. One of three engines implements them: [`embedded`] (raft-rs in our own nodes),
//! [`etcd`] (if a site has one), or [`memory`] (for the simulator). `docs/why/record.md` explains the design.

mod call;
mod codec;
pub mod embedded;
mod error;
pub mod etcd;

pub mod limits;
mod members;
pub mod memory;
mod node_id;
pub mod record;
mod stall;
mod store;
mod transaction;
mod watch;

pub use call::Call;
pub use error::{Error, Invalid};
pub use members::{Candidate, MemberChange, Members, Refusal, voters_for};
pub use node_id::NodeId;
pub use stall::Stall;
pub use store::{Status, Store};
pub use transaction::{Outcome, Revision, Transaction, Versioned};
pub use watch::{Change, Event, Everything, Watch};
