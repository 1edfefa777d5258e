//! SCSI as a direct-access block device (SPC-4, SBC-3, SAM-5).
//!
//! A [`LogicalUnit`] is what one core knows of one logical unit. [`LogicalUnit::start`] takes a command and gives a
//! [`Step`]: the answer itself, an operation on blocks, a change of the unit's replicated state (mode pages,
//! reservations) or a copy. Whoever drives it carries the step out and calls [`LogicalUnit::finish`] for the answer.
//!
//! A unit is known on every core of the node. What all cores must agree on is its [`LuState`]: a change is decided
//! on the unit's home core by [`LogicalUnit::decide`], made durable if it must be, and installed on every core with
//! [`LogicalUnit::install`] before the command that asked for it is answered.

mod block;
pub mod limits;
mod lu;
mod outcome;
mod sense;

pub use block::{BlockDone, BlockError, BlockOp, CopyFault, Provisioning};
pub use lu::{
    ChangeRequest, CopySegment, Decision, Identity, LogicalUnit, LuConfig, LuState, NexusId, Pending,
    Request, Step,
};
pub use outcome::{Outcome, Status};
pub use sense::{Sense, SenseKey};

/// A command descriptor block, padded with zeros to the 16 bytes that an iSCSI header holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cdb(pub [u8; 16]);
