//! The cluster's record: a small key/value store that changes by compare-and-swap, linearizable, and followed
//! by every node. It holds nodes, volumes' configurations, targets, maps and host groups. I/O never waits for
//! it.
//!
//! A [`Store`] has the calls. Behind it is one of three engines: [`embedded`] (raft-rs in our own nodes),
//! [`etcd`] (where a site has one), [`memory`] (the simulator's). `docs/why/record.md` says why it is as it
//! is.

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
