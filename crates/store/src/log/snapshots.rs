//! Snapshots of a slice: taking, reading, listing and deleting them, and what was changed since one. (Going
//! back to one: see [`super::restore`]; what differs between two: [`super::diff`].)
//!
//! What a snapshot guarantees: it has every write that had ended when it was begun, and none that began
//! later; once it was taken, no power cut changes it; and what is read of it never changes. Taking one costs
//! a flush and a record, whatever the size of the volume. How they are stored: see [`super::marks`].

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use base::{ByteLen, ByteOffset, Chain};
use rt::sync::oneshot;

use super::leaf::{Era, LEAF_BLOCKS};
use super::marks::{Mark, SNAPSHOTS_MAX, Standing};
use super::place::{QUARTER_BYTES, SLOT_BYTES};
use super::queue::Item;
use super::record::What;
use super::{Inner, LogSlice, Running};
use crate::canary::{Canary, makes};
use crate::error::SliceError;
use crate::slice::{Layout, Slice, join};

/// A snapshot of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// The number that whoever took it has chosen.
    pub id: u64,
    /// When it was taken, in seconds since 1970.
    pub time: u64,
    /// How much space in the log its deletion frees, at most: it is what was overwritten between this
    /// snapshot and the next one. What was overwritten in the last seconds is not counted yet. If it is the
    /// last one before a restore, what the slice was then counts, too.
    pub frees: ByteLen,
    /// The deletion frees exactly that: the slice has no older snapshot since the restore before it, which
    /// may need some of it, and was not restored to this one; and no clone was made of it.
    pub is_exact: bool,
}

/// A snapshot could not be taken, read or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The volume is not log-structured.
    #[error("only log-structured volumes have snapshots: convert the volume first")]
    NotLog,
    /// The volume is being converted.
    #[error("the volume is being converted: try again when that has ended")]
    Converting,
    /// The slice is being restored.
    #[error("the volume is being restored: try again when that has ended")]
    Restoring,
    /// Some blocks of the slice are lost, and the snapshot could not say which.
    #[error("blocks of the volume are lost: write them, then take the snapshot")]
    Lost,
    /// The volume has as many snapshots as it can have.
    #[error("a volume has at most {SNAPSHOTS_MAX} snapshots: delete some first")]
    TooMany,
    /// The volume has a snapshot with this number.
    #[error("the volume has a snapshot with this number")]
    Exists,
    /// The volume has no such snapshot.
    #[error("the volume has no such snapshot")]
    Unknown,
    /// A clone was made of the snapshot, or is being made.
    #[error("clones of the snapshot exist: delete them first")]
    Cloned,
    /// The slice failed.
    #[error(transparent)]
    Slice(#[from] SliceError),
}

/// A snapshot that has begun: what is written from now on is not in it. It counts when
/// [`NewSnapshot::settle`] has returned. If this is dropped before, there is none.
#[must_use = "it counts when it has been settled"]
pub struct NewSnapshot {
    inner: Rc<Inner>,
    era: Era,
    id: u64,
    time: u64,
    /// The records of what is in it have smaller numbers.
    below: u64,
    is_settled: Cell<bool>,
}

impl NewSnapshot {
    /// Makes the snapshot durable.
    ///
    /// If the future is dropped, the snapshot may be taken all the same.
    ///
    /// # Errors
    /// [`SnapshotError::Slice`]: the snapshot does not exist. (If the slice is offline, it may exist when the
    /// pool has been reopened.)
    pub async fn settle(self) -> Result<(), SnapshotError> {
        let (reply, result) = oneshot();
        rt::spawn(async move {
            let settled = self.write().await;
            self.is_settled.set(settled.is_ok());
            drop(self);
            reply.send(settled);
        })
        .detach();
        result.await.unwrap_or(Err(SliceError::Offline))?;
        Ok(())
    }

    async fn write(&self) -> Result<(), SliceError> {
        let inner = &self.inner;
        let oldest = || inner.state.borrow().append.in_flight.first().copied();
        let are_written = || oldest().is_none_or(|oldest| oldest >= self.below);
        inner.changed.until(|| are_written() || !inner.goes_on()).await;
        if !inner.goes_on() {
            return Err(SliceError::Offline);
        }
        let is_durable = inner.state.borrow().append.durable_below() >= self.below;
        if !is_durable && !makes(Canary::SnapshotUnflushed) {
            inner.flush().await?;
        }
        let what = What::Taken { snapshot: self.id };
        let item = Item::Snapshot { era: self.era.number, time: self.time, what };
        inner.append(self.era.branch, vec![item], true).await
    }
}

impl Drop for NewSnapshot {
    fn drop(&mut self) {
        if !self.is_settled.get() {
            self.inner.state.borrow_mut().marks.delete(self.era);
            // The next one who looks after the log begins with it.
            self.inner.sweep();
        }
    }
}

impl Running {
    /// Begins a snapshot of a branch.
    fn begin_snapshot(&mut self, branch: u32, id: u64, time: u64) -> Result<(Era, u64), SnapshotError> {
        if self.marks.is_restoring(branch) {
            return Err(SnapshotError::Restoring);
        }
        // Clones know their snapshot by its identity.
        let is_used = |mark: &&Mark| {
            mark.standing != Standing::Deleted || self.marks.is_cloned(Era::new(branch, mark.era))
        };
        let exist = self.marks.of(branch).iter().filter(is_used);
        if exist.clone().any(|mark| mark.id == id) {
            return Err(SnapshotError::Exists);
        }
        if exist.count() >= SNAPSHOTS_MAX {
            return Err(SnapshotError::TooMany);
        }
        Ok((Era::new(branch, self.marks.begin(branch, id, time)), self.append.next))
    }

    /// The snapshots of a branch that can be read, the oldest one first.
    fn snapshots(&self, branch: u32) -> Vec<SnapshotInfo> {
        let kept = self.marks.of(branch).iter().filter(|mark| mark.standing == Standing::Kept);
        let info = |mark: &Mark| {
            let era = Era::new(branch, mark.era);
            let line = self.marks.line(branch, mark.era);
            let is_last = self.marks.heir_of_line(branch, line).snapshot == Some(mark.era);
            let is_oldest = self.marks.heir(branch, mark.era - 1).snapshot.is_none();
            let former = (is_last && line != self.marks.now(branch)).then(|| Era::new(branch, line));
            SnapshotInfo {
                id: mark.id,
                time: mark.time,
                frees: ByteLen(former.into_iter().chain([era]).map(|era| self.held_by(era).0).sum()),
                is_exact: is_oldest && !self.marks.is_pinned(era),
            }
        };
        kept.map(info).collect()
    }

    /// How much space the leaves of an era hold.
    fn held_by(&self, era: Era) -> ByteLen {
        ByteLen(self.held.get(&era).map_or(0, |held| held.quarters * QUARTER_BYTES as u64))
    }

    /// The eras of a branch that nobody reads any more: of deleted snapshots, and of lines.
    fn needless_eras(&self, branch: u32) -> impl Iterator<Item = Era> {
        let is_needless = move |line: &u32| !self.marks.is_line_needed(branch, *line);
        let lines = self.marks.lines(branch).filter(is_needless).map(move |line| Era::new(branch, line));
        self.marks.deleted_of(branch).chain(lines)
    }

    /// How much space deleted snapshots of a branch still hold, at most.
    fn held_by_deleted(&self, branch: u32) -> ByteLen {
        ByteLen(self.needless_eras(branch).map(|era| self.held_by(era).0).sum())
    }

    /// How much space only snapshots that exist need, at least, and how much deleted ones still hold, at
    /// most.
    pub(super) fn held_by_snapshots(&self) -> (ByteLen, ByteLen) {
        if self.marks.is_empty() {
            return (ByteLen(0), ByteLen(0));
        }
        let (mut needed, mut needless) = (0, 0);
        let branches: BTreeSet<u32> = self.held.keys().map(|era| era.branch).collect();
        for branch in branches {
            let gone: BTreeSet<Era> = self.needless_eras(branch).collect();
            // A volume that was restored may need anything that its present line is read through.
            let present = self.marks.eras_under(branch, self.marks.now(branch));
            let present: BTreeSet<Era> = present.into_iter().collect();
            for (era, held) in self.held.range(Era::first(branch)..=Era::new(branch, u32::MAX)) {
                if gone.contains(era) {
                    needless += held.quarters;
                } else if !present.contains(era) {
                    needed += held.quarters;
                }
            }
        }
        let bytes = |quarters: u64| ByteLen(quarters * QUARTER_BYTES as u64);
        (bytes(needed), bytes(needless))
    }
}

impl LogSlice {
    fn begin_snapshot(&self, id: u64, time: u64) -> Result<NewSnapshot, SnapshotError> {
        let inner = Rc::clone(&self.log().inner);
        if !inner.goes_on() {
            return Err(SliceError::Offline.into());
        }
        let (era, below) = inner.state.borrow_mut().begin_snapshot(self.branch(), id, time)?;
        Ok(NewSnapshot { inner, era, id, time, below, is_settled: Cell::new(false) })
    }

    /// The era that begins with a snapshot.
    pub(super) fn era_of(&self, id: u64) -> Result<u32, SnapshotError> {
        let state = self.log().inner.state.borrow();
        state.marks.kept(self.branch(), id).map(|mark| mark.era).ok_or(SnapshotError::Unknown)
    }

    /// The parts of a range that were changed in these eras, at most `max`.
    async fn changed(
        &self,
        eras: &[Range<u32>],
        range: Range<u64>,
        max: usize,
    ) -> Result<Vec<(ByteOffset, ByteLen)>, SliceError> {
        const BLOCK: u64 = SLOT_BYTES as u64;
        let inner = &self.log().inner;
        let mut found = Vec::new();
        let mut at = range.start / BLOCK;
        // One more than requested, because the last one may still grow.
        while at * BLOCK < range.end && found.len() <= max {
            let next = inner.next_changed_leaf(self.branch(), eras, at / LEAF_BLOCKS);
            let Some(next) = next else { break };
            at = at.max(next * LEAF_BLOCKS);
            let behind = ((next + 1) * LEAF_BLOCKS).min(range.end.div_ceil(BLOCK));
            if at >= behind {
                break;
            }
            let changed = inner.changed(self.branch(), eras, at..behind).await;
            let changed = changed.map_err(|unread| unread.error(range.start))?;
            for (block, _) in (at..).zip(changed).filter(|(_, is_changed)| *is_changed) {
                let (from, to) = ((block * BLOCK).max(range.start), ((block + 1) * BLOCK).min(range.end));
                join(&mut found, from, to - from);
            }
            at = behind;
            rt::yield_now().await;
        }
        found.truncate(max);
        Ok(found)
    }

    async fn delete_snapshots(&self, ids: &[u64]) -> Result<(), SnapshotError> {
        let inner = &self.log().inner;
        // A clone may have been deleted just now.
        inner.take_origins();
        let items = {
            let mut state = inner.state.borrow_mut();
            // Also those of which an earlier call could not make that durable.
            let taken = state.marks.of(self.branch()).iter().filter(|mark| mark.standing != Standing::Taking);
            let gone: Vec<Mark> = taken.filter(|mark| ids.contains(&mark.id)).copied().collect();
            if gone.iter().any(|mark| state.marks.is_held(Era::new(self.branch(), mark.era))) {
                return Err(SnapshotError::Cloned);
            }
            for mark in &gone {
                state.marks.delete(Era::new(self.branch(), mark.era));
            }
            let item = |mark: &Mark| {
                let what = What::Deleted { snapshot: mark.id };
                Item::Snapshot { era: mark.era, time: 0, what }
            };
            gone.iter().map(item).collect()
        };
        inner.append(self.branch(), items, true).await?;
        inner.sweep();
        inner.tell();
        inner.tend();
        Ok(())
    }
}

impl Slice {
    /// Begins a snapshot: it has every write to the slice that has ended, and none that begins from now on.
    /// Of a write that is under way, it may have some blocks.
    ///
    /// So the snapshots of several slices are of one instant if no write to any of them is under way from
    /// before the first one begins until after the last one has begun. They need not be settled before writes
    /// continue. A snapshot of several slices counts if all of them have it: after a crash, whoever has begun
    /// it deletes it where it was settled if it was not settled everywhere.
    ///
    /// `id` is any number that no snapshot of the volume has, and `time` the time in seconds since 1970.
    ///
    /// # Errors
    /// All of [`SnapshotError`] but [`SnapshotError::Unknown`].
    pub async fn begin_snapshot(&self, id: u64, time: u64) -> Result<NewSnapshot, SnapshotError> {
        self.ready().await?;
        self.know_lost().await?;
        if self.has_lost() {
            return Err(SnapshotError::Lost);
        }
        if self.is_converting() {
            return Err(SnapshotError::Converting);
        }
        match &*self.layout() {
            Layout::Log(slice) => slice.begin_snapshot(id, time),
            Layout::Thick(_) | Layout::Ram(_) => Err(SnapshotError::NotLog),
        }
    }

    /// Takes a snapshot of the slice: [`Slice::begin_snapshot`], and [`NewSnapshot::settle`].
    ///
    /// # Errors
    /// As for these.
    pub async fn take_snapshot(&self, id: u64, time: u64) -> Result<(), SnapshotError> {
        self.begin_snapshot(id, time).await?.settle().await
    }

    /// The snapshots of the slice, the oldest one first.
    ///
    /// # Errors
    /// [`SnapshotError::Slice`]; [`SliceError::Offline`] only.
    pub async fn snapshots(&self) -> Result<Vec<SnapshotInfo>, SnapshotError> {
        self.ready().await?;
        match &*self.layout() {
            Layout::Log(slice) => Ok(slice.log().inner.state.borrow().snapshots(slice.branch())),
            Layout::Thick(_) | Layout::Ram(_) => Ok(Vec::new()),
        }
    }

    /// Reads `len` bytes at `offset` as they were when a snapshot was taken.
    ///
    /// # Errors
    /// [`SnapshotError::Unknown`], [`SnapshotError::Slice`] as for [`Slice::read`].
    ///
    /// # Panics
    /// If the range is not inside the slice.
    pub async fn read_snapshot(
        &self,
        id: u64,
        offset: ByteOffset,
        len: ByteLen,
    ) -> Result<Chain, SnapshotError> {
        self.check(offset, len);
        self.ready().await?;
        let layout = self.layout();
        let Layout::Log(slice) = &*layout else { return Err(SnapshotError::Unknown) };
        let era = slice.era_of(id)?;
        match slice.read_at(Some(era), offset, len).await {
            Ok(data) => Ok(data),
            // If it was deleted meanwhile, that is why.
            Err(error) => Err(slice.era_of(id).err().unwrap_or(error.into())),
        }
    }

    /// The parts of the range that were written or unmapped after one snapshot and before another one, or
    /// until now, in order and at most `max`; adjacent parts are merged. Everything else up to the end of the
    /// last part is the same in both. If there are fewer than `max` parts, so is everything after it.
    ///
    /// It takes time in proportion to what has changed. If the slice was restored in between, more may be
    /// named: all that has been written since.
    ///
    /// # Errors
    /// [`SnapshotError::Unknown`], also if the second snapshot is not younger than the first one;
    /// [`SnapshotError::Slice`].
    ///
    /// # Panics
    /// If the range is not inside the slice.
    pub async fn changed_since_snapshot(
        &self,
        id: u64,
        until: Option<u64>,
        offset: ByteOffset,
        len: ByteLen,
        max: usize,
    ) -> Result<Vec<(ByteOffset, ByteLen)>, SnapshotError> {
        self.check(offset, len);
        self.ready().await?;
        let layout = self.layout();
        let Layout::Log(slice) = &*layout else { return Err(SnapshotError::Unknown) };
        let era = slice.era_of(id)?;
        let until = until.map(|until| slice.era_of(until)).transpose()?;
        if until.is_some_and(|until| until <= era) {
            return Err(SnapshotError::Unknown);
        }
        let eras = slice.log().inner.state.borrow().marks.between(slice.branch(), era, until);
        let found = slice.changed(&eras, offset.0..offset.0 + len.0, max).await;
        // What a deleted one had may be with others.
        slice.era_of(id)?;
        Ok(found?)
    }

    /// Deletes snapshots; those that do not exist are ignored. Afterwards they cannot be read, and do not
    /// come back after a crash. Their space is freed in the background, in steps.
    ///
    /// # Errors
    /// [`SnapshotError::Cloned`]: clones of one of them exist, or are being made
    /// ([`Slice::hold_snapshot`]); none is deleted. [`SnapshotError::Slice`]: they cannot be read, but may
    /// come back when the pool is reopened, unless this is repeated.
    pub async fn delete_snapshots(&self, ids: &[u64]) -> Result<(), SnapshotError> {
        self.ready().await?;
        match &*self.layout() {
            Layout::Log(slice) => slice.delete_snapshots(ids).await,
            Layout::Thick(_) | Layout::Ram(_) => Ok(()),
        }
    }

    /// How much space of the log snapshots of the slice still hold that were deleted, at most.
    pub fn held_by_deleted_snapshots(&self) -> ByteLen {
        match &*self.layout() {
            Layout::Log(slice) => slice.log().inner.state.borrow().held_by_deleted(slice.branch()),
            Layout::Thick(_) | Layout::Ram(_) => ByteLen(0),
        }
    }

    /// Whether the slice has snapshots.
    pub(crate) fn has_snapshots(&self) -> bool {
        match &*self.layout() {
            Layout::Log(slice) => {
                let state = slice.log().inner.state.borrow();
                state.marks.of(slice.branch()).iter().any(|mark| mark.standing != Standing::Deleted)
            }
            Layout::Thick(_) | Layout::Ram(_) => false,
        }
    }

    /// Stops freeing the space of deleted snapshots in the log that the slice lies in, or continues with it.
    /// A log that is opened frees it.
    pub fn pause_freeing(&self, is_paused: bool) {
        if let Layout::Log(slice) = &*self.layout() {
            let inner = &slice.log().inner;
            inner.state.borrow_mut().folding_paused = is_paused;
            // A pause is repeated again and again: nothing is searched for then.
            if !is_paused && inner.goes_on() {
                inner.sweep();
                inner.tend();
            }
        }
    }
}
