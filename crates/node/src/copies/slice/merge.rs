//! Writes of parts of the disk's blocks: the disk writes whole ones, so the layout reads the rest first. What
//! becomes of a write if the disk does not read it (R26 in `docs/why/replication.md`).
//!
//! Before anything takes a host's write its coordinator looks whether the rest can be read, here or at
//! another copy in sync: else the write ends there, and nobody has taken it. What was taken is carried out on
//! each copy: if its disk does not read the rest, the copy has that from another one and writes the whole
//! block.

use std::iter;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use base::{Buf, ByteLen, ByteOffset, Chain};
use replica::{ApplyId, Around, Blocks, NotAround, Payload, Standing};
use store::{BadBlock, ReadFailure, SliceError};

use super::super::fetch::{HOST_WAITS, NotFetched};
use super::repair::Rewriting;
use super::{LOOK_AGAIN, SliceCopy};
use crate::canary::{Canary, makes};

/// Blocks that one write has written as a whole at most: those at its two ends, each once more if it goes bad
/// again.
const MERGED_MAX: u32 = 4;

/// How often it is looked whether there is room for a block that could be read before.
const ROOM_LOOK: Duration = Duration::from_millis(500);

/// How a write goes on whose rest the disk does not read.
enum Merged {
    /// The block can be read now, or another write sees to it: it is tried again.
    Again {
        /// By this write.
        written: bool,
    },
    /// It has ended, and the protocol knows.
    Ended,
    /// The copy has failed it.
    Failed,
}

impl SliceCopy {
    /// Looks, before anything takes a host's write, whether the rest of the disk's blocks that it changes in
    /// part can be read. The only member takes the write and gives it up: it need not read twice.
    ///
    /// # Errors
    /// [`SliceError::Unreadable`]: nobody can. [`SliceError::Unavailable`]: another copy in sync may, and did
    /// not now.
    pub(super) async fn find_rest(
        self: &Rc<Self>,
        offset: ByteOffset,
        len: ByteLen,
    ) -> Result<(), SliceError> {
        let is_whole = self.layout.write_unit() <= u64::from(self.block_bytes());
        // A part of a block that is lost must not be written alone, whoever else is there: the copy whose
        // disk does not read it could not be brought up to date with that part (R27).
        let need_not = (is_whole || !self.has_other_members()) && !self.layout.has_lost();
        if need_not || makes(Canary::RestUnasked) {
            return Ok(());
        }
        let written = offset.0..offset.0 + len.0;
        let mut start = written.start;
        while start < written.end {
            let edges = self.layout.read_edges(ByteOffset(start), ByteLen(written.end - start));
            let bad = match self.unless_late(start..written.end, pin!(edges)).await {
                Some(Err(SliceError::Unreadable(bad))) if bad.cause != ReadFailure::Device => bad,
                // Of all other errors the write itself is told.
                Some(_) => return Ok(()),
                None => {
                    let (first, last) = (self.unit_at(start), self.unit_at(written.end - 1));
                    for unit in iter::once(first.clone()).chain((first != last).then_some(last)) {
                        // This disk may read it yet.
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

    /// Whether another copy in sync reads what a write leaves of a block of the disk.
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

    /// Carries out a write that was handed out, durably. What its disk does not read of blocks that it
    /// changes in part comes from other copies.
    ///
    /// # Errors
    /// What the layout says. [`SliceError::Unreadable`]: nobody has the rest.
    pub(super) async fn write_merged(
        self: &Rc<Self>,
        id: ApplyId,
        offset: ByteOffset,
        len: ByteLen,
        payload: Payload,
    ) -> Result<(), SliceError> {
        let mut merged = 0;
        loop {
            let written = self.with_room(|| self.write_durably(offset, len, payload.clone())).await;
            let bad = match written {
                Err(SliceError::Unreadable(bad))
                    if bad.cause == ReadFailure::Medium
                        && merged < MERGED_MAX
                        && !makes(Canary::MergeFails) =>
                {
                    bad
                }
                written => return written,
            };
            match self.merge(id, bad, self.blocks(offset, len)).await {
                Merged::Again { written } => merged += u32::from(written),
                Merged::Ended => return Ok(()),
                Merged::Failed => return Err(SliceError::Unreadable(bad)),
            }
        }
    }

    /// Writes the whole block, with what this copy has taken there and else with what other copies in sync
    /// hold.
    async fn merge(self: &Rc<Self>, id: ApplyId, bad: BadBlock, written: Blocks) -> Merged {
        let unit = self.unit_of(bad);
        let Some(_rewriting) = Rewriting::begin(&self.merging, unit.start) else {
            rt::sleep(LOOK_AGAIN).await;
            return Merged::Again { written: false };
        };
        self.note_bad(bad);
        let (offset, len) = (ByteOffset(unit.start), ByteLen(unit.end - unit.start));
        let blocks = self.blocks(offset, len);
        let mut is_counted = false;
        loop {
            // A pool that is closed waits for what is under way.
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
                    // What a host has written there has done it.
                    if self.layout.read(offset, len).await.is_ok() {
                        return Merged::Again { written: false };
                    }
                    continue;
                }
                Err(NotFetched::Nowhere) => {
                    // With what was taken meanwhile less of it may be wanted.
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
            // From here until the layout has the write's place in the order of this block's nothing else
            // happens on this core.
            let still = self.replica.borrow().still_around(id, &around);
            match still {
                Ok(true) => {}
                Ok(false) => {
                    rt::sleep(LOOK_AGAIN).await;
                    continue;
                }
                Err(NotAround::Over) => return Merged::Ended,
                Err(NotAround::NoMember) => return Merged::Failed,
            }
            match self.layout.rewrite(offset, data).await {
                Ok(()) => {
                    self.note_repaired(bad);
                    return Merged::Again { written: true };
                }
                // The slice grows, and its last block is not whole.
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

    /// All of the block. Looks again and again whether something was taken there meanwhile: another copy may
    /// wait for this one to answer.
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

    /// Nobody has the rest of a block of which these blocks are written. `None`: something may change that
    /// yet.
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

    /// What the hosts are told whose writes these blocks are of, when they end.
    fn set_given_up_writes(&self, written: Blocks, bad: Option<BadBlock>) {
        let mut commands = self.commands.borrow_mut();
        for write in commands.values_mut().filter(|write| write.blocks.overlaps(written)) {
            write.given_up = bad;
        }
    }
}
