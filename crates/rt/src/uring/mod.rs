//! The world of production: a thread and an io_uring a core.
//!
//! Guarantees: an operation owns the memory that the kernel may touch until its completion has come, whatever
//! happens to the future that waits for it; when the node stops, every operation is cancelled and waited for
//! before its ring goes away; an idle core uses no CPU; a message to a core that sleeps, or is about to,
//! wakes it.
//!
//! One turn of a core's loop ([`cycle`]): take the messages of other cores, run the tasks that are ready,
//! fire the timers that are due, then one `io_uring_enter` that submits everything the tasks have asked for
//! and brings back everything that has completed. Completions make tasks ready, and the next turn begins. So
//! under load one system call carries the requests of many connections, and nothing is sent before everything
//! that arrived was looked at.
//!
//! With nothing ready the core looks for work without a system call for a short while ([`idle`]), if work has
//! lately come quickly enough for that to pay, and then sleeps in the ring until a completion, a doorbell or
//! the next timer. A ring is created with `SINGLE_ISSUER` and `DEFER_TASKRUN`: the kernel does its share of
//! the work inside our `io_uring_enter` and interrupts nothing; `TASKRUN_FLAG` shows in shared memory that
//! there is such work.
//!
//! [`driver`] has the ring and the operations in flight; [`receive_buffers`] the memory that connections
//! receive into; [`doorbell`] the way one core wakes another; [`turns`] counts how long turns take;
//! [`ublk`] has the kernel's block devices that are served here.

mod address;
mod counters;
mod cycle;
mod disk;
mod doorbell;
mod driver;
mod idle;
mod listener;
mod open;
mod receive_buffers;
mod receiver;
mod running;
mod sender;
mod slice;
mod stream;
mod turns;
pub mod ublk;

pub use counters::CoreStats;
pub use disk::{Disk, SharedDisk};
pub use listener::Listener;
pub use receive_buffers::Received;
pub(crate) use running::secret_bytes;
pub use running::{Config, Running, StartError};
pub use stream::{DetachedStream, Stream};
pub use turns::{TURN_BUCKETS, Turns, turn_bound};
