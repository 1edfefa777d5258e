//! The results of copies, kept while initiators may ask for them.

use std::collections::VecDeque;

use super::CopyError;
use super::list::ListId;
use crate::scsi::limits::COPY_RESULTS_HELD_MAX;
use crate::scsi::sense::code;
use crate::scsi::{NexusId, Outcome, Sense, Status};

/// The copies of a unit on one core that are running or whose results are held.
///
/// At most [`COPY_RESULTS_HELD_MAX`]; the oldest that has ended is dropped first.
#[derive(Debug, Default)]
pub(in crate::scsi::commands) struct Copies {
    known: VecDeque<CopyResult>,
    /// The serial number of the latest copy.
    serial: u64,
}

/// A copy that was handed out for execution.
#[derive(Debug)]
pub(super) struct Started {
    serial: u64,
    /// The length of each segment in bytes.
    lengths: Vec<u64>,
    /// Whether the result is held after the copy has ended.
    held: bool,
}

/// A copy that has a list identifier.
#[derive(Debug)]
pub(super) struct CopyResult {
    nexus: NexusId,
    id: u8,
    serial: u64,
    state: State,
    /// The number of completed segments; unknown while the copy is running.
    segments: u16,
    /// The number of bytes written; unknown while the copy is running.
    bytes: u64,
}

/// COPY COMMAND STATUS.
#[derive(Clone, Copy, Debug)]
enum State {
    /// 00h: running.
    Running,
    /// 01h: all segments were copied.
    Done,
    /// 02h: failed.
    Failed(Sense),
}

impl Copies {
    /// Starts a copy, and drops the results of an earlier one with its identifier.
    ///
    /// # Errors
    /// The response. If the earlier copy is still running, an error (SPC-4, LIST IDENTIFIER): its nexus could
    /// not tell the results of the two apart. If as many copies are running as results can be held, BUSY
    /// (SAM-5 5.3.1), so that the initiator tries again; an error would make it believe that the unit does
    /// not support copies.
    pub(super) fn start(
        &mut self,
        nexus: NexusId,
        id: ListId,
        lengths: Vec<u64>,
    ) -> Result<Started, Outcome> {
        self.serial += 1;
        let started = Started { serial: self.serial, lengths, held: matches!(id, ListId::Held(_)) };
        let (ListId::Held(id) | ListId::WhileRunning(id)) = id else { return Ok(started) };
        if self.find(nexus, id).is_some_and(CopyResult::runs) {
            return Err(Sense::illegal(code::OPERATION_IN_PROGRESS).into());
        }
        self.known.retain(|copy| (copy.nexus, copy.id) != (nexus, id));
        if self.known.len() >= COPY_RESULTS_HELD_MAX {
            let ended = self.known.iter().position(|copy| !copy.runs());
            self.known.remove(ended.ok_or(Outcome::status(Status::Busy))?);
        }
        self.known.push_back(CopyResult {
            nexus,
            id,
            serial: self.serial,
            state: State::Running,
            segments: 0,
            bytes: 0,
        });
        Ok(started)
    }

    /// Records the end of a copy.
    pub(super) fn finish(&mut self, started: Started, result: Result<(), CopyError>) {
        let Some(at) = self.known.iter().position(|copy| copy.serial == started.serial) else { return };
        if !started.held {
            self.known.remove(at);
            return;
        }
        let (done, state) = match result {
            Ok(()) => (started.lengths.len(), State::Done),
            Err(error) => (error.segments_done(), State::Failed(error.sense())),
        };
        let copy = &mut self.known[at];
        copy.state = state;
        copy.segments = done.min(started.lengths.len()) as u16;
        copy.bytes = started.lengths.iter().take(done).sum();
    }

    /// The copy of a nexus with this identifier.
    pub(super) fn find(&self, nexus: NexusId, id: u8) -> Option<&CopyResult> {
        self.known.iter().find(|copy| (copy.nexus, copy.id) == (nexus, id))
    }

    /// Drops the results for a nexus that is gone.
    pub(in crate::scsi::commands) fn forget(&mut self, nexus: NexusId) {
        self.known.retain(|copy| copy.nexus != nexus);
    }
}

impl CopyResult {
    fn runs(&self) -> bool {
        matches!(self.state, State::Running)
    }

    /// The parameter data of COPY STATUS.
    pub(super) fn status(&self) -> [u8; 12] {
        let (units, count) = transfer_count(self.bytes);
        let mut data = [0, 0, 0, 8, self.status_code(), 0, 0, units, 0, 0, 0, 0];
        data[5..7].copy_from_slice(&self.segments.to_be_bytes());
        data[8..12].copy_from_slice(&count.to_be_bytes());
        data
    }

    /// The parameter data of FAILED SEGMENT DETAILS; empty if no segment failed.
    pub(super) fn failed_segment(&self) -> Vec<u8> {
        let State::Failed(sense) = self.state else { return vec![0; 4] };
        let sense = sense.encode();
        let mut data = vec![0; 60];
        data[0..4].copy_from_slice(&(56 + sense.len() as u32).to_be_bytes());
        data[56] = self.status_code();
        data[58..60].copy_from_slice(&(sense.len() as u16).to_be_bytes());
        data.extend_from_slice(&sense);
        data
    }

    fn status_code(&self) -> u8 {
        match self.state {
            State::Running => 0x00,
            State::Done => 0x01,
            State::Failed(_) => 0x02,
        }
    }
}

/// TRANSFER COUNT UNITS and TRANSFER COUNT: bytes, or KiB if the bytes exceed 32 bits. 32 segments of less
/// than 256 MiB fit in KiB.
fn transfer_count(bytes: u64) -> (u8, u32) {
    match u32::try_from(bytes) {
        Ok(bytes) => (0x00, bytes),
        Err(_) => (0x01, u32::try_from(bytes >> 10).unwrap_or(u32::MAX)),
    }
}
