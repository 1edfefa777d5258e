//! A process beside the node's that tells the other nodes when that one is dead.
//!
//! Nodes do without a lost one when the leases that they gave it have run out, after a second: it might live,
//! and answer reads. Of a process that was killed it is certain that it does not, and the kernel of its
//! machine knows it at once. So a node of a cluster has a watcher: this program again, a few megabytes that
//! sleep. It holds a pidfd of the node's process and is handed, by a pipe, what to say to whom
//! ([`node::control::LastWill`]). When the process is dead, with all of its threads, the watcher says so in
//! the node's name, and ends. Why that is safe: `docs/why/watcher.md`.
//!
//! [`guarded`] is the node's side, [`watch`] the watcher's.

mod guarded;
mod watch;

pub use self::guarded::Guarded;
pub use self::watch::main_if_asked;

/// The first argument of a watcher; the second is the process to watch.
const COMMAND: &str = "watch-process";

/// The line by which the node says that it stops in order, and has told the others itself.
const FAREWELL: &str = "farewell";
