//! Tools that use any iSCSI target, or a cluster of their own: `ursa attach`, `ursa bench`, `ursa drill` and
//! `ursa demo`.

pub mod attach;
pub mod bench;
mod drill;
mod error;
mod login;

pub use self::drill::{Demo, Drill, DrillError};
pub use self::error::ToolError;
