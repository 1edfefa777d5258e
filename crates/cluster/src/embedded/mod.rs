//! The engine that needs no other program: raft-rs, in every node. [`engine`](Engine) decides, [`file`](File)
//! stores, and [`driver`](Embedded) runs both on a thread. In a simulated world [`simulated`](Files) runs the
//! engine on a core. See `docs/why/record.md`.

mod callers;
mod driver;
mod engine;
mod entry;
mod file;
mod log;
mod message;
mod pending;
mod promise;
mod reads;
mod saved;
mod simulated;
mod ticks;

pub use driver::{Embedded, StartError};
pub use engine::{Answered, CallId, Engine, Notification, Refused, Reply, Settings};
pub use file::{File, FileError, ForceError};
pub use message::{is_promise_kept, may_wait};
pub use promise::Promise;
pub use saved::{Batch, Identity, Position, Saved, Unforceable, Vote};
pub use simulated::{Files, Simulated};
