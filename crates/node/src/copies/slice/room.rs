//! Room for writes, where the file system under a pool, or the log that a copy lies in, may be full (R20b).
//!
//! A full file system or log is not a broken disk: the data on it is intact, and the condition passes. So if
//! this copy finds no room for a host's write, it refuses the write before any copy takes it
//! ([`store::Slice::reserve`]). A write that other copies have taken already waits here for room,
//! unacknowledged. If another copy is in sync, this one leaves, as if its disk had failed
//! (`replica::Reason::NoSpace`), but comes back automatically. The last copy in sync stays: it serves reads,
//! and writes that need no new space.
//!
//! A copy outside does not wait for room with what a resync brings, but puts it off: regions that make room
//! may come behind it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use base::{ByteLen, ByteOffset, Instant};
use replica::{ApplyId, Payload, Replica};
use rt::Room;
use store::SliceError;

use super::super::HOLD_MAX;
use super::super::core::Copies;
use super::SliceCopy;
use crate::canary::{Canary, makes};

/// How often a write that found no room is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// How long a copy counts as full after it last found no room.
///
/// Otherwise it would be let in and removed with each gap that opens.
const QUIET_MIN: Duration = Duration::from_secs(5);
/// How many bytes must be free after that time; in a file system smaller than 16 times as much, a sixteenth
/// of it.
const FREE_MIN: u64 = 64 << 20;

/// What a copy knows about its room.
#[derive(Debug, Default)]
pub(super) struct Shortage {
    /// When it first and last found no room; `None`: it finds room.
    met: Cell<Option<(Instant, Instant)>>,
    /// Writes to the disk that wait for room.
    waiting: Cell<usize>,
}

impl Shortage {
    fn meet(&self, now: Instant) {
        let since = self.met.get().map_or(now, |(since, _)| since);
        self.met.set(Some((since, now)));
    }

    fn last(&self) -> Option<Instant> {
        self.met.get().map(|(_, last)| last)
    }
}

/// Whether a copy that found no room may expect to find some again.
fn suffices(room: Option<Room>) -> bool {
    room.is_none_or(|room| room.free >= FREE_MIN.min(room.total / 16))
}

impl SliceCopy {
    /// Whether the file system under the pool has no room for writes, as far as this copy knows.
    pub fn has_no_room(&self) -> bool {
        self.shortage.met.get().is_some()
    }

    /// Whether a write waits for room, perhaps for long: until it ends, its blocks cannot be read.
    pub(super) fn waits_for_room(&self) -> bool {
        self.shortage.waiting.get() > 0
    }

    /// Reserves room for a host's write before any copy takes it.
    ///
    /// # Errors
    /// [`SliceError::Full`]: there is none, and no other copy in sync that may have some.
    /// [`SliceError::Unavailable`]: there is none here; this copy is about to leave.
    pub(super) async fn find_room(
        &self,
        offset: ByteOffset,
        len: ByteLen,
        payload: &Payload,
    ) -> Result<(), SliceError> {
        let needs_some = matches!(payload, Payload::Data(_)) && !makes(Canary::RoomUnasked);
        // The write itself reports all other errors.
        if !needs_some || self.layout.reserve(offset, len).await != Err(SliceError::Full) {
            return Ok(());
        }
        self.note_shortage();
        let replica = self.replica.borrow();
        let others =
            replica.config().is_some_and(|config| !config.in_sync().without(replica.me()).is_empty());
        Err(if others { SliceError::Unavailable } else { SliceError::Full })
    }

    /// Does `work`, and repeats it until it finds room or the copy is closed.
    pub(super) async fn with_room<T, F: Future<Output = Result<T, SliceError>>>(
        self: &Rc<Self>,
        work: impl FnMut() -> F,
    ) -> Result<T, SliceError> {
        self.with_room_unless(|| false, work).await
    }

    /// The same for a write that the protocol handed out. Returns `None` if it finds no room and nothing
    /// waits for it any more.
    ///
    /// Either a resync brings its data again, or nobody wants it any more. Such a write must not wait for
    /// room: the resync waits for its end, and may bring zeros that make room.
    ///
    /// For the same reason, what a resync brings to a copy outside is put off ([`Replica::put_off`]).
    pub(super) async fn with_room_for<T, F: Future<Output = Result<T, SliceError>>>(
        self: &Rc<Self>,
        id: ApplyId,
        work: impl FnMut() -> F,
    ) -> Result<Option<T>, SliceError> {
        let is_over = || !self.replica.borrow().is_under_way(id);
        let gives_up = || {
            let mut ends = is_over();
            if !ends {
                self.tell(|replica| ends = replica.put_off(id));
            }
            ends
        };
        match self.with_room_unless(gives_up, work).await {
            Err(SliceError::Full) if is_over() => Ok(None),
            done => done.map(Some),
        }
    }

    async fn with_room_unless<T, F: Future<Output = Result<T, SliceError>>>(
        self: &Rc<Self>,
        gives_up: impl Fn() -> bool,
        mut work: impl FnMut() -> F,
    ) -> Result<T, SliceError> {
        let first = work().await;
        if !matches!(first, Err(SliceError::Full)) || makes(Canary::FullIsBroken) {
            return first;
        }
        let _waiting = Waiting::begin(&self.shortage);
        // Reads that wait for these writes wait no longer than they may for a copy that serves.
        self.happened.notify();
        loop {
            self.note_shortage();
            if gives_up() {
                return Err(SliceError::Full);
            }
            rt::sleep(TRY_AGAIN).await;
            if !self.is_open() || gives_up() {
                return Err(SliceError::Full);
            }
            let result = work().await;
            if !matches!(result, Err(SliceError::Full)) {
                return result;
            }
        }
    }

    /// Periodic work: checks whether there is room again, and answers hosts whose writes have waited too long
    /// for it.
    pub(super) fn look_for_room(self: &Rc<Self>) {
        let Some((since, last)) = self.shortage.met.get() else { return };
        let now = rt::now();
        if self.waits_for_room() {
            if now.since(since) >= HOLD_MAX {
                self.tell(Replica::answer_unknown);
            }
        } else if now.since(last) >= QUIET_MIN {
            self.shortage.meet(now);
            let copy = Rc::clone(self);
            rt::spawn(async move {
                // Unless another write has found no room meanwhile.
                if suffices(copy.layout.room().await) && copy.shortage.last() == Some(now) {
                    copy.shortage.met.set(None);
                    tracing::info!(copy = %copy.address(), "there is free space under a copy again");
                }
            })
            .detach();
        }
    }

    fn note_shortage(&self) {
        if !self.has_no_room() {
            tracing::warn!(copy = %self.address(), "no space is left under a copy: free space in its pool or file system; the copy then resumes automatically");
        }
        self.shortage.meet(rt::now());
        self.wake();
    }

    /// Whether this is still the open copy of the slice on this core.
    pub(super) fn is_open(self: &Rc<Self>) -> bool {
        Copies::current().slice(self.address()).is_some_and(|copy| Rc::ptr_eq(&copy, self))
    }
}

/// A write that waits for room, while this exists.
struct Waiting<'a>(&'a Shortage);

impl Waiting<'_> {
    fn begin(shortage: &Shortage) -> Waiting<'_> {
        shortage.waiting.set(shortage.waiting.get() + 1);
        Waiting(shortage)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_in_a_full_file_system_does_not_count_as_space() {
        let of = |free: u64, total: u64| suffices(Some(Room { file_system: 1, free, total, promised: 0 }));
        assert!(!of(63 << 20, 1 << 40));
        assert!(of(64 << 20, 1 << 40));
        assert!(!of(1 << 20, 64 << 20));
        assert!(of(4 << 20, 64 << 20), "a sixteenth of a small one");
        assert!(suffices(None), "a block device");
    }
}
