//! The commands of the medium (SBC-3) and third-party copy (SPC-4), which become operations on blocks.
//!
//! [`OPERATIONS`] maps each command to the function that decodes it. The function checks the CDB and the data
//! against the volume and the [`limits`](super::limits). It returns either the response, or an operation with
//! the [`Pending`] that turns the operation's result into the response. The order of the checks: unsupported
//! bits, write protection, the blocks' address, their number, the data's length. All ranges that are returned
//! lie inside the volume.

mod capacity;
mod compare_and_write;
mod copy;
mod extent;
mod gates;
mod lba_status;
mod pending;
mod prefetch;
mod read;
mod synchronize_cache;
#[cfg(test)]
mod tests;
mod unmap;
mod verify;
mod write;
mod write_same;

use super::operations::{Access, Operation, Reach, Run, row};
use super::{LuConfig, NexusId};

pub use copy::{CopyError, CopyFailure, CopyFault, CopySegment, PendingCopy};
pub(super) use copy::{finish as finish_copy, third_party_copy};
pub(super) use gates::writable;
pub use pending::Pending;
pub(super) use pending::{finish, tell_readiness, tell_space, test_ready};

/// State of these commands in a unit on one core.
#[derive(Debug, Default)]
pub(super) struct BlockState {
    copies: copy::Copies,
}

impl BlockState {
    /// Drops the state of a nexus that is gone.
    pub(super) fn forget(&mut self, nexus: NexusId) {
        self.copies.forget(nexus);
    }
}

use Access::{Exclusive, Read, Status};

/// The rows of the operation table for these commands, by operation code.
#[rustfmt::skip]
pub(super) const OPERATIONS: &[Operation] = &[
    row("READ(6)", Read, read::read_6, &[0x08, 0x1f, 0xff, 0xff, 0xff, 0x04]),
    row("WRITE(6)", Exclusive, write::write_6, &[0x0a, 0x1f, 0xff, 0xff, 0xff, 0x04]),
    in_standby(row("READ CAPACITY(10)", Status, capacity::read_capacity_10,
        &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0x04])),
    row("READ(10)", Read, read::read,
        &[0x28, 0x18, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0x04]),
    row("WRITE(10)", Exclusive, write::write,
        &[0x2a, 0x18, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0x04]),
    row("WRITE AND VERIFY(10)", Exclusive, write::write_and_verify,
        &[0x2e, 0x16, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0x04]),
    row("VERIFY(10)", Read, verify::verify,
        &[0x2f, 0x16, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0x04]),
    row("PRE-FETCH(10)", Read, prefetch::prefetch,
        &[0x34, 0x00, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0x04]),
    row("SYNCHRONIZE CACHE(10)", Exclusive, synchronize_cache::synchronize_cache,
        &[0x35, 0x00, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0x04]),
    row("WRITE SAME(10)", Exclusive, write_same::write_same_10,
        &[0x41, 0x08, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0x04]),
    row("UNMAP", Exclusive, unmap::unmap,
        &[unmap::OPCODE, 0x00, 0, 0, 0, 0, 0, 0xff, 0xff, 0x04]),
    action("EXTENDED COPY(LID1)", Exclusive, copy::extended_copy, 0x00,
        &[0x83, 0x00, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    action("RECEIVE COPY STATUS(LID1)", Exclusive, copy::copy_status, 0x00,
        &[0x84, 0x00, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    action("RECEIVE COPY DATA(LID1)", Exclusive, copy::receive_data, 0x01,
        &[0x84, 0x01, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    action("RECEIVE COPY OPERATING PARAMETERS", Exclusive, copy::operating_parameters, 0x03,
        &[0x84, 0x03, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    action("RECEIVE COPY FAILURE DETAILS(LID1)", Exclusive, copy::failed_segment_details, 0x04,
        &[0x84, 0x04, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row("READ(16)", Read, read::read,
        &[0x88, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row("COMPARE AND WRITE", Exclusive, compare_and_write::compare_and_write,
        &[0x89, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0xff, 0, 0x04]),
    row("WRITE(16)", Exclusive, write::write,
        &[0x8a, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row("ORWRITE(16)", Exclusive, write::orwrite,
        &[0x8b, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row("WRITE AND VERIFY(16)", Exclusive, write::write_and_verify,
        &[0x8e, 0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row("VERIFY(16)", Read, verify::verify,
        &[0x8f, 0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row("PRE-FETCH(16)", Read, prefetch::prefetch,
        &[0x90, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row("SYNCHRONIZE CACHE(16)", Exclusive, synchronize_cache::synchronize_cache,
        &[0x91, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row("WRITE SAME(16)", Exclusive, write_same::write_same_16,
        &[0x93, 0x09, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row("WRITE ATOMIC(16)", Exclusive, write::write_atomic,
        &[write::ATOMIC_OPCODE, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0xff, 0xff, 0, 0x04]),
    in_standby(action("READ CAPACITY(16)", Status, capacity::read_capacity_16, 0x10,
        &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0x04])),
    action("GET LBA STATUS", Read, lba_status::get_lba_status, 0x12,
        &[0x9e, 0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row("READ(12)", Read, read::read,
        &[0xa8, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row("WRITE(12)", Exclusive, write::write,
        &[0xaa, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row("WRITE AND VERIFY(12)", Exclusive, write::write_and_verify,
        &[0xae, 0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
    row("VERIFY(12)", Read, verify::verify,
        &[0xaf, 0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]),
];

/// Whether a unit supports a command of the table: UNMAP and WRITE ATOMIC depend on its volume.
pub(super) fn offered(operation: &Operation, config: &LuConfig) -> bool {
    match operation.opcode {
        unmap::OPCODE => config.unmap,
        write::ATOMIC_OPCODE => config.atomic.blocks_max > 0,
        _ => true,
    }
}

/// A command that shares its operation code.
const fn action(
    name: &'static str,
    access: Access,
    run: Run,
    service_action: u8,
    usage: &'static [u8],
) -> Operation {
    Operation { service_action: Some(service_action), ..row(name, access, run, usage) }
}

/// A command that does not need the medium.
const fn in_standby(operation: Operation) -> Operation {
    Operation { reach: Reach::Standby, ..operation }
}
