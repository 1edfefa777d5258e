//! Block devices of this host that are served here: Linux's ublk, 6.5 and later
//! (`Documentation/block/ublk.rst` of the kernel).
//!
//! Guarantees: the kernel knows no memory of ours while it has a request (data is copied by read and write,
//! `UBLK_F_USER_COPY`). Waiting for a request is an operation on the core's ring like every other one, so
//! that a request wakes the core just as a packet does.
//!
//! A device is two files. `/dev/ublkbN` is the disk. `/dev/ublkcN` is our side of it, a [`Queue`]: each of
//! its slots waits for a request with a command on the ring, and the answer to that request also waits for
//! the next one. The [`Control`] creates, starts, stops and deletes devices. Its commands block, some of them
//! until requests have been served, so they are for threads that are not cores.
//!
//! Required order: all slots of a queue must wait before [`Control::start`] returns, and all from the same
//! thread. A core must not end before all of its slots have been informed that the device is gone, because
//! such a wait cannot be canceled.
//!
//! The crate `libublk` is not used: its queue needs an executor and a ring of its own thread, so each request
//! would cross threads twice; it brings in smol, keeps a file in /run for each device, and needs libclang to
//! build. This module has everything that it would be used for.

mod abi;
mod control;
mod queue;

pub use abi::{DeviceInfo, DeviceState, Parameters};
pub use control::{Control, ControlError, NewDevice};
pub use queue::{Operation, Queue, Request};
