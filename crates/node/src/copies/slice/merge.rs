//! Writes of parts of the disk's blocks, where the disk cannot read the rest (R26 in
//! `docs/why/replication.md`).
//!
//! The disk writes whole blocks, so the layout reads the rest of a block first. Before any copy takes a
//! host's write, its coordinator checks that the rest can be read, here or from another copy in sync; if not,
//! the write ends there. Each copy then carries out what was taken: if its disk cannot read the rest, the
//! copy fetches that from another copy and writes the whole block.

use std::iter;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use base::{Buf, ByteLen, ByteOffset, Chain};
use replica::{ApplyId, Around, Blocks, NotAround, Payload, Standing};
use store::{BadBlock, ReadFailure, SliceError};

use super::super::fetch::{HOST_WAITS, NotFetched};
use super::{LOOK_AGAIN, SliceCopy};
use crate::canary::{Canary, makes};

/// How many blocks one write may have written as a whole: those at its two ends, each once more if it goes
/// bad again.
const MERGED_MAX: u32 = 4;

/// How long a write waits before it tries again to rewrite a block for which there was no room.
const ROOM_LOOK: Duration = Duration::from_millis(500);

/// How long a write waits while another one rewrites the block, before it tries again: a repair may have made
/// the block readable before that.
const OTHER_LOOK: Duration = Duration::from_secs(1);

/// How a write continues after its rest could not be read.
enum Merged {
    /// The write is tried again: the block can be read now, or another write sees to it.
    Again {
        /// Whether this write has written the block.
        written: bool,
    },
    /// The write has ended, and the protocol knows.
    Ended,
    /// The copy has failed the write.
    Failed,
}

impl SliceCopy {
    /// Checks, before any copy takes a host's write, that the rest of the disk's blocks that it changes in
    /// part can be read.
    ///
    /// The only member does not check: it takes the write and gives it up if it must, and so need not read
    /// twice.
    ///
    /// # Errors
    /// [`SliceError::Unreadable`]: no copy can read it. [`SliceError::Unavailable`]: another copy in sync
    /// may, but did not now.
    pub(super) async fn find_rest(
        self: &Rc<Self>,
        offset: ByteOffset,
        len: ByteLen,
    ) -> Result<(), SliceError> {
        let is_whole = self.layout.write_unit() <= u64::from(self.block_bytes());
        // A part of a lost block must not be written alone, whether or not there are other members: the copy
        // whose disk cannot read the block could not be resynced with that part (R27).
        let need_not = (is_whole || !self.has_other_members()) && !self.layout.has_lost();
        if need_not || makes(Canary::RestUnasked) {
            return Ok(());
        }
        let written = offset.0..offset.0 + len.0;
        let mut start = written.start;
        while start < written.end {
            let edges = self.layout.read_edges(ByteOffset(start), ByteLen(written.end - start));
            // The read ends here: writes would wait for one that nobody continues.
            let read = self.unless_late(start..written.end, pin!(edges)).await;
            let bad = match read {
                Some(Err(SliceError::Unreadable(bad))) if bad.cause != ReadFailure::Device => bad,
                // The write itself reports all other errors.
                Some(_) => return Ok(()),
                None => {
                    let (first, last) = (self.unit_at(start), self.unit_at(written.end - 1));
                    for unit in iter::once(first.clone()).chain((first != last).then_some(last)) {
                        // This disk is only late, and may still read it.
                        self.fetch_rest(unit, &written).await.map_err(|_| SliceError::Unavailable)?;
                    }
                    return Ok(());
                }
            };
            self.note_bad(bad);
            let unit = self.unit_of(bad);
            start = unit.end;
            self.fetch_rest(unit, &written).await.map_err(|error| match error {
                NotFetched::Later => SliceError::Unavailable,
                NotFetched::Nowhere => SliceError::Unreadable(bad),
            })?;
        }
        Ok(())
    }

    /// Checks that another copy in sync can read what a write leaves of a block of the disk.
    async fn fetch_rest(self: &Rc<Self>, unit: Range<u64>, written: &Range<u64>) -> Result<(), NotFetched> {
        let before = unit.start..written.start.clamp(unit.start, unit.end);
        let behind = written.end.clamp(unit.start, unit.end)..unit.end;
        for rest in [before, behind].into_iter().filter(|rest| !rest.is_empty()) {
            self.fetch(rest, HOST_WAITS).await?;
        }
        Ok(())
    }

    fn has_other_members(&self) -> bool {
        let replica = self.replica.borrow();
        replica.config().is_some_and(|config| !config.members().without(replica.me()).is_empty())
    }

    /// Executes, durably, a write that the protocol handed out.
    ///
    /// If the disk cannot read the rest of blocks that the write changes in part, the rest comes from other
    /// copies.
    ///
    /// # Errors
    /// Errors of the layout. [`SliceError::Unreadable`]: no copy has the rest.
    pub(super) async fn write_merged(
        self: &Rc<Self>,
        id: ApplyId,
        offset: ByteOffset,
        len: ByteLen,
        payload: Payload,
    ) -> Result<(), SliceError> {
        let mut merged = 0;
        loop {
            let write = || async {
                match (self.write_durably(offset, len, payload.clone()).await, &payload) {
                    (Err(SliceError::Full), Payload::Data(data)) if self.replica.borrow().may_put_off(id) => {
                        self.write_what_fits(offset, data).await
                    }
                    (written, _) => written,
                }
            };
            let written = self.with_room_for(id, write).await;
            let bad = match written {
                // What comes before it, and makes these blocks readable, has found no room. The region is
                // given again.
                Err(SliceError::Unreadable(_)) if self.replica.borrow().is_put_off(id) => return Ok(()),
                Err(SliceError::Unreadable(bad))
                    if matches!(bad.cause, ReadFailure::Medium | ReadFailure::Map)
                        && merged < MERGED_MAX
                        && !makes(Canary::MergeFails) =>
                {
                    bad
                }
                written => return written.map(|_| ()),
            };
            match self.merge(id, bad, self.blocks(offset, len)).await {
                Merged::Again { written } => merged += u32::from(written),
                Merged::Ended => return Ok(()),
                Merged::Failed => return Err(SliceError::Unreadable(bad)),
            }
        }
    }

    /// Writes the whole block: the newest writes that this copy has taken there, and elsewhere what other
    /// copies in sync hold.
    async fn merge(self: &Rc<Self>, id: ApplyId, bad: BadBlock, written: Blocks) -> Merged {
        let unit = self.unit_of(bad);
        let Some(_rewriting) = self.merging.begin(unit.start) else {
            let _ = rt::timeout(OTHER_LOOK, self.merging.until_ended(unit.start)).await;
            return Merged::Again { written: false };
        };
        self.note_bad(bad);
        let (offset, len) = (ByteOffset(unit.start), ByteLen(unit.end - unit.start));
        let blocks = self.blocks(offset, len);
        let mut is_counted = false;
        loop {
            // A pool that is being closed waits for what is under way.
            if !self.is_open() {
                return Merged::Failed;
            }
            let mut around = Err(NotAround::Over);
            self.tell(|replica| around = replica.block_around(id, blocks));
            let around = match around {
                Ok(around) => around,
                Err(NotAround::Over) => return Merged::Ended,
                Err(NotAround::NoMember) => return Merged::Failed,
            };
            let data = match self.fill(&around).await {
                Ok(data) => data,
                Err(NotFetched::Later) => {
                    rt::sleep(LOOK_AGAIN).await;
                    // A host's write there has repaired it.
                    if self.layout.read(offset, len).await.is_ok() {
                        return Merged::Again { written: false };
                    }
                    continue;
                }
                Err(NotFetched::Nowhere) => {
                    // Writes taken meanwhile may leave less of the block to ask for.
                    let has_moved = self.replica.borrow().has_moved(&around);
                    if !has_moved && let Some(end) = self.give_up(id, bad, written) {
                        return end;
                    }
                    rt::sleep(LOOK_AGAIN).await;
                    continue;
                }
            };
            let others = self.replica.borrow().has_others_in_sync();
            if others && !std::mem::replace(&mut is_counted, true) && self.leaves_for_bad(bad) {
                return Merged::Failed;
            }
            // The rewrite would do this first, and a write that is taken meanwhile would come before it.
            let hold_ended = self.layout.end_hold(offset, len).await;
            // From here until the layout has given this write its place in the order of the block, nothing
            // else runs on this core.
            let still = self.replica.borrow().still_around(id, &around);
            match still {
                Ok(true) => {}
                Ok(false) => {
                    // Most often, the bits of the block are on their way to the disk. If hosts write there,
                    // this is a pause.
                    let may_write = || !matches!(self.replica.borrow().still_around(id, &around), Ok(false));
                    let _ = rt::timeout(LOOK_AGAIN, self.happened.until(may_write)).await;
                    continue;
                }
                Err(NotAround::Over) => return Merged::Ended,
                Err(NotAround::NoMember) => return Merged::Failed,
            }
            let rewritten = match hold_ended {
                Ok(()) => self.layout.rewrite(offset, data).await,
                error => error,
            };
            match rewritten {
                Ok(()) => {
                    self.note_repaired(bad);
                    return Merged::Again { written: true };
                }
                // The slice is growing, and its last block is not whole.
                Err(SliceError::Full | SliceError::Unreadable(_)) => {
                    rt::sleep(ROOM_LOOK).await;
                    return Merged::Again { written: false };
                }
                Err(error) => {
                    tracing::error!(copy = %self.address(), offset = offset.0, %error, "a bad block cannot be written as a whole");
                    if self.replica.borrow().has_others_in_sync() {
                        self.note_unrepaired(bad);
                        self.tell(|replica| replica.handle_unrepaired(id));
                        return Merged::Ended;
                    }
                    return Merged::Failed;
                }
            }
        }
    }

    /// Collects the content of the whole block.
    ///
    /// While it waits, it keeps checking whether something was taken there: another copy may wait for this
    /// one to answer.
    async fn fill(self: &Rc<Self>, around: &Around) -> Result<Chain, NotFetched> {
        let mut filled = Chain::new();
        for (part, payload) in &around.parts {
            let (offset, len) = self.bytes(*part);
            match payload {
                Some(Payload::Data(data)) => filled.append(data.clone()),
                Some(Payload::Zeros) => filled.append(Buf::zeroed(len.0 as usize).into()),
                None => {
                    let mut fetched = pin!(self.fetch(offset.0..offset.0 + len.0, HOST_WAITS));
                    let data = loop {
                        // Not at once: after that, this disk has to try the bad block again.
                        match rt::timeout(LOOK_AGAIN, fetched.as_mut()).await {
                            Ok(fetched) => break fetched?,
                            Err(rt::Elapsed) if self.replica.borrow().has_moved(around) => {
                                return Err(NotFetched::Later);
                            }
                            Err(rt::Elapsed) => {}
                        }
                    };
                    filled.append(data);
                }
            }
        }
        Ok(filled)
    }

    /// Gives up writes to a block of which no copy has the rest.
    ///
    /// `None`: that may still change.
    fn give_up(self: &Rc<Self>, id: ApplyId, bad: BadBlock, written: Blocks) -> Option<Merged> {
        let is_last = {
            let replica = self.replica.borrow();
            matches!(replica.standing(), Standing::InSync(_)) && !replica.has_others_in_sync()
        };
        if !is_last {
            return Some(Merged::Failed);
        }
        self.set_given_up_writes(written, Some(bad));
        let mut has_ended = false;
        self.tell(|replica| has_ended = replica.give_up_write(id));
        if !has_ended {
            self.set_given_up_writes(written, None);
        }
        has_ended.then_some(Merged::Ended)
    }

    /// Sets the error with which the host writes that touch these blocks end.
    fn set_given_up_writes(&self, written: Blocks, bad: Option<BadBlock>) {
        let mut commands = self.commands.borrow_mut();
        for write in commands.values_mut().filter(|write| write.blocks.overlaps(written)) {
            write.given_up = bad;
        }
    }
}
