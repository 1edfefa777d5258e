//! Blocks that no copy in sync can read (R27 in `docs/why/replication.md`): a copy that is brought up to date
//! gets all else, and notes these as lost.

use std::rc::Rc;
use std::time::Duration;

use base::{Buf, ByteLen, ByteOffset, Chain};
use replica::{Apply, Blocks, DiskFailed, Payload, RegionRead};
use store::{BadBlock, ReadFailure, SliceError};

use super::super::fetch::NotFetched;
use super::SliceCopy;
use crate::control::{note_lost_of_copy, set_lost_of_copy};

/// How often other copies are asked for what is lost here: their disks may read it by now.
const ASK_AGAIN: Duration = Duration::from_secs(5);

impl SliceCopy {
    /// Notes on the disk that blocks are lost.
    pub(super) fn lose(self: &Rc<Self>, Apply { id, blocks, .. }: Apply) {
        let (offset, len) = self.bytes(blocks);
        let turn = self.applies.queue(offset.0..offset.0 + len.0);
        let copy = Rc::clone(self);
        let work = async move {
            turn.come().await;
            let is_known = copy.is_lost(offset, len);
            if !copy.with_room(|| copy.layout.lose(offset, len)).await? {
                tracing::error!(copy = %copy.address, "more blocks are lost than a copy can note: it does not come in sync");
                return Err(SliceError::Unwritable);
            }
            if !is_known {
                note_lost_of_copy(copy.address.volume, copy.place_in_volume(offset), len);
            }
            Ok(())
        };
        self.work(work, move |replica, result| replica.handle_applied(id, result));
    }

    /// Whether all of these bytes are lost.
    fn is_lost(&self, offset: ByteOffset, len: ByteLen) -> bool {
        let covers = |(start, lost): &(ByteOffset, ByteLen)| {
            start.0 <= offset.0 && offset.0 + len.0 <= start.0 + lost.0
        };
        self.layout.lost().iter().any(covers)
    }

    /// Whether some blocks are lost.
    pub fn has_lost(&self) -> bool {
        self.layout.has_lost()
    }

    /// Whether some of these bytes are lost: the disk holds something else there.
    pub fn has_lost_in(&self, offset: ByteOffset, len: ByteLen) -> bool {
        self.layout.has_lost_in(offset, len)
    }

    /// Reads a region for a sync, each of the disk's blocks by itself.
    pub(super) fn read_region_by_block(self: &Rc<Self>, read: RegionRead) {
        let (copy, blocks) = (Rc::clone(self), read.blocks);
        let work = async move { Ok(copy.without_lost(blocks).await) };
        self.work(work, move |replica, result| {
            replica.handle_region_read_by_block(read, result.and_then(std::convert::identity));
        });
    }

    /// What the region holds, and which of its blocks no copy in sync reads.
    ///
    /// # Errors
    /// Another copy in sync cannot be asked now; or the disk reads nothing at all: it has failed, and not
    /// some of its blocks.
    async fn without_lost(self: &Rc<Self>, region: Blocks) -> Result<(Payload, Vec<Blocks>), DiskFailed> {
        let (offset, len) = self.bytes(region);
        let end = offset.0 + len.0;
        let (mut data, mut lost) = (Chain::new(), Vec::<Blocks>::new());
        let (mut at, mut parts) = (offset.0, 0);
        while at < end {
            let unit = self.unit_at(at);
            let mut part = at..unit.end.min(end);
            let mut read = self.layout.read(ByteOffset(part.start), ByteLen(part.end - part.start)).await;
            let block = u64::from(self.block_bytes());
            if matches!(&read, Err(SliceError::Unreadable(bad)) if bad.cause == ReadFailure::Lost) {
                // Here or there a block in the unit: no disk is in the way of the others.
                part = at..at + block;
                read = self.layout.read(ByteOffset(at), ByteLen(block)).await;
            }
            let len = part.end - part.start;
            at = part.end;
            parts += 1;
            match read {
                Ok(read) => data.append(read),
                Err(SliceError::Unreadable(bad)) if bad.cause != ReadFailure::Device => {
                    match self.fetch(part.clone()).await {
                        Ok(fetched) => data.append(fetched),
                        Err(NotFetched::Later) => return Err(DiskFailed),
                        Err(NotFetched::Nowhere) => {
                            data.append(Buf::zeroed(len as usize).into());
                            let blocks = self.blocks(ByteOffset(part.start), ByteLen(len));
                            match lost.last_mut() {
                                Some(last) if last.end == blocks.start => last.end = blocks.end,
                                _ => lost.push(blocks),
                            }
                        }
                    }
                }
                Err(_) => return Err(DiskFailed),
            }
        }
        let reads_nothing = parts > 1 && lost == [region];
        // Of a region of a log-structured volume most may be zeros, for which no disk is asked.
        if reads_nothing || !lost.is_empty() && self.layout.read_map_page(0).await.is_err() {
            return Err(DiskFailed);
        }
        Ok((Payload::Data(data), lost))
    }

    /// Reports how much is lost here, if that has changed.
    pub(super) fn report_lost(&self) {
        let lost = self.layout.lost();
        if self.reported_lost.borrow().as_ref() == Some(&lost) {
            return;
        }
        let bytes = ByteLen(lost.iter().map(|(_, len)| len.0).sum());
        let first = lost.iter().map(|(offset, _)| self.place_in_volume(*offset)).min();
        set_lost_of_copy(self.address, first.map(|first| (first, bytes)));
        self.reported_lost.replace(Some(lost));
    }

    /// Asks other copies in sync now and then for what is lost here, and writes what they can read.
    pub(super) fn look_for_lost(self: &Rc<Self>) {
        let is_due = self.ask_for_lost_at.get().is_some_and(|at| rt::now() >= at);
        if !is_due || !self.layout.has_lost() || !self.replica.borrow().has_others_in_sync() {
            return;
        }
        self.ask_for_lost_at.set(None);
        let copy = Rc::clone(self);
        rt::spawn(async move {
            for (offset, len) in copy.layout.lost() {
                let (mut at, end) = (offset.0, offset.0 + len.0);
                // A pool that is closed waits for what is under way.
                while at < end && copy.is_open() && copy.replica.borrow().has_others_in_sync() {
                    let offset = ByteOffset(at);
                    let lost = BadBlock { offset, disk: 0, disk_offset: 0, cause: ReadFailure::Lost };
                    let written = copy.repair_one(lost).await;
                    at = written.unwrap_or_else(|| copy.unit_at(at).end);
                }
            }
            copy.ask_for_lost_at.set(Some(rt::now() + ASK_AGAIN));
        })
        .detach();
    }
}
