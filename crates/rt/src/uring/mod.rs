//! The world of production: one thread and one io_uring per core.
//!
//! Guarantees: an operation owns the memory that the kernel may use until its completion has come, whatever
//! happens to the future that waits for it. When the node stops, all operations are canceled and complete
//! before their ring is closed. An idle core uses no CPU. A message to a core that sleeps, or is about to,
//! wakes it.
//!
//! One turn of a core's loop ([`cycle`]): handle the messages of other cores, run the ready tasks, fire the
//! timers that are due, then call `io_uring_enter` once, which submits all requests of the tasks and returns
//! all completions. Completions make tasks ready, and the next turn begins. So under load one system call
//! carries the requests of many connections, and nothing is sent before everything that arrived was
//! processed.
//!
//! If nothing is ready, the core first looks for work without a system call for a short time ([`idle`]),
//! provided that work has lately come quickly enough for that to pay. Then it sleeps in the ring until a
//! completion, a doorbell or the next timer. A ring is created with `SINGLE_ISSUER` and `DEFER_TASKRUN`: the
//! kernel does its share of the work inside our `io_uring_enter` and interrupts nothing. `TASKRUN_FLAG` shows
//! in shared memory that there is such work.
//!
//! [`driver`] has the ring and the operations in flight; [`receive_buffers`] the memory that connections
//! receive into; [`doorbell`] how one core wakes another; [`turns`] measures how long turns take; [`ublk`]
//! has the kernel's block devices that are served here.

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
