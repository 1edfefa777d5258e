//! A process beside the node's process that reports its death to the other nodes.
//!
//! The other nodes continue without a lost node when the leases that they gave it have expired, after a
//! second: it might be alive and answer reads. A process that was killed does neither, and the kernel of its
//! machine knows that at once. So a node of a cluster has a watcher: this program again, which sleeps and
//! takes a few megabytes. It holds a pidfd of the node's process and receives through a pipe what to report
//! to which nodes ([`node::control::Handoff`]). When the process is dead with all of its threads, the
//! watcher reports that in the node's name, and exits. Why this is safe: `docs/why/watcher.md`.
//!
//! [`guarded`] is the node's side, [`watch`] the watcher's.

mod guarded;
mod watch;

pub use self::guarded::Guarded;
pub use self::watch::main_if_asked;

/// The first argument of a watcher; the second is the id of the process to watch.
const COMMAND: &str = "watch-process";

/// The line that the node sends when it stops in order and has notified the other nodes itself.
const FAREWELL: &str = "farewell";
