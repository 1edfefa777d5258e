//! SCSI as a direct-access block device (SPC-4, SBC-3, SAM-5).
//!
//! A [`LogicalUnit`] is what one core knows about one logical unit. [`LogicalUnit::start`] takes a command
//! and returns a [`Step`]: the response itself, an [operation on blocks](crate::block), a change of the
//! unit's replicated state (mode pages, reservations) or a copy. The driver executes the step and calls
//! [`LogicalUnit::finish`] for the response, or [`LogicalUnit::finish_copy`] after a copy.
//!
//! Every core of the node has its own instance of a unit. All cores must agree on the [`LuState`]: one core
//! decides a change with [`LogicalUnit::decide`] and makes it durable if it must be; every core installs it
//! with [`LogicalUnit::install`]; only then is the command that requested it answered.

mod attention;
mod cdb;
mod change;
mod commands;
mod config;
mod data_out;
mod inquiry;
pub mod limits;
mod log;
mod lu;
mod lun;
mod mode;
mod nexus;
mod operations;
mod outcome;
mod power;
mod report;
mod reservations;
#[cfg(test)]
mod rig;
pub mod sense;
mod state;
mod vpd;

pub use attention::UnitAttention;
pub use cdb::Cdb;
pub use change::{Abort, Affected, ChangeRequest, Decision, Notice, Reset};
pub use commands::{CopyError, CopyFailure, CopyFault, CopySegment, Pending, PendingCopy};
pub use config::{AccessState, Identity, LuConfig, PortGroup, TargetPort, Thresholds};
pub use lu::{LogicalUnit, Request, Step};
pub use lun::{Lun, ReportLuns, absent};
pub use nexus::{InitiatorPort, ItNexus, NexusId, RelativePort};
pub use outcome::{Outcome, Refusal, Status};
pub use sense::{Sense, SenseKey};
pub use state::LuState;
