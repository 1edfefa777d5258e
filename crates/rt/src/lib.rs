//! The runtime: one single-threaded executor per core, and two worlds in which it runs.
//!
//! In the [`uring`] world a core is a thread with an io_uring; time, sockets and disks are Linux's. In the
//! [`sim`] world the cores of many nodes share one thread, a virtual clock, a simulated network and simulated
//! disks, and everything that happens follows from a seed. The code above `rt` cannot tell which world it is
//! in: it makes no system call, reads no clock and starts no thread of its own.
//!
//! A task can rely on this: it runs on the core that spawned it and never moves; between two `await`s nothing
//! else runs on that core; an operation whose future is dropped may still happen, and its buffer stays alive
//! until then.

mod disk;
mod errno;
mod executor;
mod join;
mod net;
pub mod sim;
mod stops;
pub mod sync;
mod timer;
pub mod uring;
mod worlds;

pub use disk::{Disk, DiskError, DiskFailure, Durability, OpenError, OpenOptions, Room};
pub use errno::errno;
pub use executor::{
    CoreId, Handle, Task, call, clock_stops, core, cores, leave, local, next_turn, now, random, secret_bytes,
    send, set_local, spawn, time_of_day, to_the_end, turn, yield_now,
};
pub use join::join_all;
pub use net::{DetachedStream, Listener, Received, Stream};
pub use timer::{Elapsed, Sleep, sleep, sleep_until, timeout, timeout_at};
