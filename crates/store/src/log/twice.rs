//! Scrubs of what a log has twice: its root, and the state that the root names.
//!
//! Nothing reads the second copy as long as the first one is intact, and a log that is not written to makes
//! no new ones. So the two could rot one after the other, and all volumes of the log would be lost. The same
//! is true of heads of records that a recovery would need: a log that is idle keeps them for as long as it
//! is.

use std::rc::Rc;

use base::Buf;
use rt::DiskError;

use super::Inner;
use super::announce::in_pieces;
use super::place::SLOT_BYTES;
use super::read::Unread;
use super::root::Root;
use super::state::{STATE_BYTES, from_slot};
use crate::error::{ReadFailure, SliceError};

impl Inner {
    /// Reads both copies of the root and of the state from the disks. Then it has a checkpoint write all of
    /// them again, after which no recovery needs a record that was written before.
    ///
    /// Returns what is bad, and whether that has been written again. The scrub of one volume does this for
    /// all volumes of the log: the one with the first branch.
    ///
    /// # Errors
    /// [`SliceError::Offline`].
    pub(super) async fn check_root(self: &Rc<Inner>, branch: u32) -> Result<Vec<(Unread, bool)>, SliceError> {
        if self.first_branch() != Some(branch) {
            return Ok(Vec::new());
        }
        let bad = self.bad_copies().await?;
        let is_mended = self.merge_all().await.is_ok();
        let log = self.handle.number;
        let unread = |(disk, disk_offset)| {
            tracing::error!(
                log,
                disk,
                disk_offset,
                is_mended,
                "one copy of a log's root or state is damaged"
            );
            (Unread::Block { block: 0, disk, disk_offset, cause: ReadFailure::Map }, is_mended)
        };
        Ok(bad.into_iter().map(unread).collect())
    }

    /// The first branch of a volume that has blocks in the log.
    fn first_branch(&self) -> Option<u32> {
        let state = self.state.borrow();
        let behind = |branch: &u32| state.next_branch(branch.checked_add(1)?);
        let mut named = std::iter::successors(state.next_branch(0), behind);
        named.find(|branch| self.handle.has_branch(*branch))
    }

    /// Where copies of the newest root, and slots of the copies of its state, are not what they should be:
    /// disk, and offset there. Nothing, if there is a newer root by now.
    async fn bad_copies(&self) -> Result<Vec<(u16, u64)>, SliceError> {
        let (root, copies, slots) = {
            let state = self.state.borrow();
            (state.root, state.runs.clone(), state.state_len.div_ceil(STATE_BYTES))
        };
        let is_newest = || self.state.borrow().root == root;
        let mut bad = Vec::new();
        {
            let roots = self.handle.use_roots().await;
            self.take_disks();
            for (number, offset) in roots.places.iter().copied() {
                let disk = Rc::clone(self.disks.borrow().disk(number));
                let at = offset + Root::offset(root);
                match disk.read(at, Buf::uncleared(SLOT_BYTES)).await {
                    Err(DiskError::Latched) => return Err(SliceError::Offline),
                    Ok(bytes) if Root::decode(&bytes).is_some_and(|found| found.number == root) => {}
                    Ok(_) | Err(_) => bad.push((number, at)),
                }
            }
        }
        for (place, numbers) in copies.iter().flat_map(|runs| in_pieces(runs)) {
            let count = numbers.end.min(slots).saturating_sub(numbers.start);
            if count == 0 {
                continue;
            }
            let read = match self.read_slots(place, count).await {
                Ok(read) => read,
                Err(_) if !is_newest() => return Ok(Vec::new()),
                Err(_) => return Err(SliceError::Offline),
            };
            let found = (numbers.start as u32..).zip(read.chunks(SLOT_BYTES)).zip(0..);
            let damaged = found.filter(|((number, slot), _)| from_slot(slot, root, *number).is_none());
            let located = damaged.filter_map(|(_, index)| self.locate(place.plus(index)));
            bad.extend(located.map(|(_, disk, at)| (disk, at)));
        }
        Ok(if is_newest() { bad } else { Vec::new() })
    }
}
