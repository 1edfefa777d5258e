//! Block devices of this host that are served here: Linux's ublk, of 6.5 and later
//! (`Documentation/block/ublk.rst` of the kernel).
//!
//! Guarantees: no memory of ours is known to the kernel while it has a request (data is copied by read and
//! write, `UBLK_F_USER_COPY`); what waits for a request belongs to the core's ring like every other
//! operation, so that a request wakes the core as a packet does.
//!
//! A device is two files. `/dev/ublkbN` is the disk. `/dev/ublkcN` is our side of it, a [`Queue`]: each of
//! its slots waits for a request by a command on the ring, and the answer to that one is at the same time the
//! wait for the next. The [`Control`] makes, starts, stops and deletes devices. Its commands block, some of
//! them until requests have been served: they are for threads that are no core.
//!
//! What has to be in order: all slots of a queue wait before [`Control::start`] returns, from one and the
//! same thread; a core does not end before all of its slots have heard that the device is gone, because such
//! a wait cannot be cancelled.
//!
//! Not through the crate `libublk`: its queue wants an executor and a ring of its own thread, so that each
//! request would cross threads twice; it brings smol, keeps a file in /run for each device, and its build
//! needs libclang. What is here is what it would be used for.

mod abi;
mod control;
mod queue;

pub use abi::{DeviceInfo, DeviceState, Parameters};
pub use control::{Control, ControlError, NewDevice};
pub use queue::{Operation, Queue, Request};
