//! Emptying a disk that is leaving the pool: what lies on it moves to the other disks, part by part.
//!
//! While a part moves, the cores hold back the operations on it
//! ([`Slice::hold_part`](crate::Slice::hold_part)). It is copied and flushed, and the catalog with its new
//! place is committed. So at any time the catalog names a place that has everything. Logs empty their zones
//! by themselves, and return them; their roots move like parts. See `docs/why/pool.md`.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::{Buf, ByteLen, Instant};
use rt::{DiskError, Durability};

use super::commit::{self, Step, Superblocks};
use super::{Inner, Pool, RemovableDisk, ZeroingWatch, to_the_end};
use crate::canary::{Canary, makes};
use crate::catalog::{Catalog, LogEntry, VolumeEntry};
use crate::disks::PoolDisk;
use crate::error::StoreError;
use crate::extent::{ExtentRun, append};
use crate::id::VolumeId;
use crate::log::root::ROOTS_BYTES;
use crate::log::{LogHandle, Stays};
use crate::slice::{MovedPart, PartKind};

/// How much moves at a time, if extents are not larger: hosts wait meanwhile.
const PART_BYTES: u64 = 4 << 20;

/// How much is read and written at a time.
const COPY_BYTES: u64 = 1 << 20;

/// How long the leaving disk may take to hand out a part: hosts wait meanwhile.
const READ_MAX: Duration = Duration::from_secs(3);

/// How long reads and writes of logs' roots that are under way may take to end: the pool's changes wait.
const HELD_WITHIN: Duration = Duration::from_secs(1);

/// With larger extents, hosts would have to wait too long while one is copied.
const EXTENT_BYTES_MAX: u64 = 64 << 20;

/// A disk that is leaving its pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeavingDisk {
    /// The path on this node.
    pub path: PathBuf,
    /// How much lies on it.
    pub left: ByteLen,
}

/// A part of a volume that is to be moved, with its new place.
#[derive(Debug)]
pub struct Moving {
    /// The volume.
    pub volume: VolumeId,
    /// The part, for [`Slice::hold_part`](crate::Slice::hold_part).
    pub part: MovedPart,
    from: ExtentRun,
    to: ExtentRun,
}

/// How [`Pool::move_part`] has ended.
#[derive(Debug)]
pub enum Moved {
    /// The part has its new place: the slices get their new specifications ([`Slice::grow`]), and then go on.
    ///
    /// [`Slice::grow`]: crate::Slice::grow
    Done,
    /// Nothing has changed.
    Not(StoreError),
    /// It is unknown which place counts: operations on the part must fail until the pool has been reopened.
    Unknown(StoreError),
}

impl Pool {
    /// The disk that is leaving the pool.
    pub fn leaving(&self) -> Option<LeavingDisk> {
        let layout = self.0.layout();
        let place = layout.leaving?;
        let path = layout.disks.disk(place as u16).path().to_owned();
        Some(LeavingDisk { path, left: self.0.used_on(&layout, place) })
    }

    /// Lets a disk leave the pool: from now on nothing new gets space on it, also after the pool was
    /// reopened. Durable when it returns.
    ///
    /// The caller then moves what lies on it ([`Pool::next_move`], [`Pool::empty_logs`]), and removes it.
    ///
    /// # Errors
    /// As for [`Pool::check_leave`], or any failure to write the metadata.
    pub async fn leave(&self, path: &Path) -> Result<(), StoreError> {
        to_the_end(Rc::clone(&self.0).leave(path.to_owned())).await
    }

    /// Checks whether a disk could leave the pool, and how much must move.
    ///
    /// # Errors
    /// [`StoreError::NoSuchDisk`], [`StoreError::OnlyDisk`], [`StoreError::OtherDiskLeaving`],
    /// [`StoreError::BeingConverted`] if a volume of the pool is being converted, [`StoreError::DiskInUse`]
    /// if something lies on it that cannot be moved; [`StoreError::NoSpace`] if the other disks have too
    /// little: as much as there is on the disk, and a run of extents for each zone of a log.
    pub fn check_leave(&self, path: &Path) -> Result<RemovableDisk, StoreError> {
        let place = self.0.can_leave(path)?;
        Ok(self.0.removable_disk(&self.0.layout(), place))
    }

    /// Keeps the disk that is leaving: new volumes may use it again. Data that was moved stays where it is.
    ///
    /// # Errors
    /// Any failure to write the metadata.
    pub async fn stay(&self) -> Result<(), StoreError> {
        to_the_end(Rc::clone(&self.0).set_leaving(None)).await
    }

    /// The next part that must move from the leaving disk. Its new place is taken and zeroed.
    ///
    /// `None` if no volume has anything on the disk. There is one part at a time: it ends with
    /// [`Pool::end_move`].
    ///
    /// # Errors
    /// [`StoreError::NoSpace`], or a disk failed.
    pub async fn next_move(&self) -> Result<Option<Moving>, StoreError> {
        to_the_end(Rc::clone(&self.0).next_move()).await
    }

    /// Copies the part to its new place, and commits that. All `slices` of the volume are open and hold the
    /// part: otherwise nothing changes ([`StoreError::VolumeNotHeld`]).
    pub async fn move_part(&self, moving: Moving, slices: usize) -> (Moving, Moved) {
        let inner = Rc::clone(&self.0);
        to_the_end(async move {
            let moved = inner.move_part(&moving, slices).await;
            (moving, moved)
        })
        .await
    }

    /// Moves the roots of logs from the leaving disk, and looks how far the logs are that have zones there:
    /// they empty these by themselves while they are open. Returns whether anything of logs is still there.
    ///
    /// To be called again and again until then. After an error, logs try again what has failed.
    ///
    /// # Errors
    /// A log makes no progress: [`StoreError::VolumeNotHeld`] if it is not open or out of service,
    /// [`StoreError::NoSpace`] if it needs a zone on another disk, [`StoreError::LogUnreadable`]. Or a mirror
    /// of the roots could not be moved.
    pub async fn empty_logs(&self) -> Result<bool, StoreError> {
        to_the_end(Rc::clone(&self.0).empty_logs()).await
    }

    /// Frees the old place of a part that was moved, or the new one of a part that was not. No slice has any
    /// operation under way there.
    pub async fn end_move(&self, moving: Moving, moved: &Moved) {
        let run = match moved {
            Moved::Done => moving.from,
            Moved::Not(_) => moving.to,
            // The pool takes no change any more.
            Moved::Unknown(_) => return,
        };
        to_the_end(Rc::clone(&self.0).free(run)).await;
    }
}

impl Inner {
    pub(super) fn used_on(&self, layout: &super::layout::Layout, place: usize) -> ByteLen {
        let free = self.state.borrow().allocator.free_on(place);
        ByteLen((u64::from(layout.geometry[place].extents) - free) * self.extent_bytes)
    }

    /// The place of a disk that can leave the pool.
    fn can_leave(&self, path: &Path) -> Result<usize, StoreError> {
        self.changeable()?;
        let layout = self.layout();
        let place = layout.place_of(path).ok_or_else(|| StoreError::NoSuchDisk { path: path.to_owned() })?;
        if let Some(other) = layout.leaving.filter(|other| *other != place) {
            let other = layout.disks.disk(other as u16).path().to_owned();
            return Err(StoreError::OtherDiskLeaving { path: path.to_owned(), other });
        }
        if layout.places().count() == 1 {
            return Err(StoreError::OnlyDisk { path: path.to_owned() });
        }
        let used = self.used_on(&layout, place);
        let state = self.state.borrow();
        // Only the present layout of a slice could be held, and the other one is written as well.
        let mut volumes = state.catalog.volumes.iter();
        if let Some((id, _)) = volumes.find(|(_, volume)| volume.next.is_some()) {
            return Err(StoreError::BeingConverted(*id));
        }
        let is_there = |run: &ExtentRun| usize::from(run.disk) == place;
        let has_parts = state.catalog.volumes.values().any(|volume| volume.runs().any(|run| is_there(&run)));
        if has_parts && self.extent_bytes > EXTENT_BYTES_MAX {
            let by = vec![format!("volumes, and extents of {} cannot be moved", ByteLen(self.extent_bytes))];
            return Err(StoreError::DiskInUse { path: path.to_owned(), used, by });
        }
        let mut others = state.allocator.clone();
        others.set_open(place, false);
        let free = ByteLen(others.free() * self.extent_bytes);
        // Each zone is one run. With as many zones elsewhere as it has here, a log has room for what is here.
        let mut zones = state.catalog.logs.logs.values().flat_map(|log| log.zones.values());
        let fit = zones.all(|zone| !is_there(zone) || others.allocate_run(zone.count.into()).is_some());
        if used > free || !fit { Err(StoreError::NoSpace { wanted: used, free }) } else { Ok(place) }
    }

    async fn leave(self: Rc<Inner>, path: PathBuf) -> Result<(), StoreError> {
        let place = self.can_leave(&path)?;
        self.set_leaving(Some(place)).await
    }

    async fn set_leaving(self: Rc<Inner>, leaving: Option<usize>) -> Result<(), StoreError> {
        let _change = self.begin_change()?;
        // The disk may be growing, or being removed.
        self.growing.acquire(1).await;
        let set = self.set_leaving_alone(leaving).await;
        self.growing.release(1);
        set
    }

    async fn set_leaving_alone(&self, leaving: Option<usize>) -> Result<(), StoreError> {
        let _turn = self.turn().await;
        self.writable()?;
        let before = self.layout();
        if leaving.is_some_and(|place| before.disks.get(place).is_none()) || before.leaving == leaving {
            return Ok(());
        }
        // A volume or a log may have got space there, or elsewhere, meanwhile.
        if let Some(place) = leaving {
            self.can_leave(before.disks.disk(place as u16).path())?;
        }
        let after = before.with_leaving(leaving);
        let catalog = Catalog { disks: after.entries(), ..self.state.borrow().catalog.clone() };
        self.commit_on(Rc::new(after), catalog, Superblocks::OfMetadataDisks, 0).await?;
        let mut state = self.state.borrow_mut();
        before.leaving.into_iter().for_each(|place| state.allocator.set_open(place, true));
        leaving.into_iter().for_each(|place| state.allocator.set_open(place, false));
        state.logs.values().for_each(|log| log.set_leaving(leaving.map(|place| place as u16)));
        if before.leaving.is_some() {
            // What is free on the disk that stays.
            self.lender.note_freed();
        }
        Ok(())
    }

    async fn next_move(self: Rc<Inner>) -> Result<Option<Moving>, StoreError> {
        let _change = self.begin_change()?;
        let Some(place) = self.layout().leaving else { return Ok(None) };
        let part_extents = (PART_BYTES / self.extent_bytes).max(1);
        let Some((volume, part, from)) = self.part_on(place, part_extents as u32) else { return Ok(None) };
        let Some((part, from, to)) = self.take_new_place(part, from) else {
            let free = ByteLen(self.state.borrow().allocator.free() * self.extent_bytes);
            return Err(StoreError::NoSpace { wanted: ByteLen(self.extent_bytes), free });
        };
        let prepared = async {
            // A disk needs long to find out that it cannot read a block. No host waits for that here.
            self.check_readable(from).await?;
            self.zero(&[to], &ZeroingWatch::default()).await?;
            match part {
                PartKind::Map | PartKind::Checksums => self.allocate(&[to]).await,
                PartKind::Slice { .. } => Ok(()),
            }
        };
        prepared.await.inspect_err(|_| self.put_back(&[to]))?;
        Ok(Some(Moving { volume, part: MovedPart(part), from, to }))
    }

    /// Takes as many extents for `from` as there are in one run, and cuts the part down to them.
    fn take_new_place(&self, part: PartKind, from: ExtentRun) -> Option<(PartKind, ExtentRun, ExtentRun)> {
        let mut count = from.count;
        while count > 0 {
            let to = self.state.borrow_mut().allocator.allocate_run(count.into());
            if let Some(to) = to {
                let from = ExtentRun { count, ..from };
                let part = match part {
                    PartKind::Slice { index, bytes } => {
                        let end = bytes.start + u64::from(count) * self.extent_bytes;
                        PartKind::Slice { index, bytes: bytes.start..end }
                    }
                    PartKind::Map | PartKind::Checksums => part,
                };
                return Some((part, from, to));
            }
            count /= 2;
        }
        None
    }

    /// The first part of a volume that lies on a disk, of at most `max` extents.
    fn part_on(&self, place: usize, max: u32) -> Option<(VolumeId, PartKind, ExtentRun)> {
        let state = self.state.borrow();
        let is_there = |run: &ExtentRun| usize::from(run.disk) == place;
        let cut = |run: ExtentRun| ExtentRun { count: run.count.min(max), ..run };
        for (id, volume) in &state.catalog.volumes {
            for (index, runs) in (0u16..).zip(&volume.slices) {
                let mut at = 0;
                for run in runs {
                    if is_there(run) {
                        let from = cut(*run);
                        let bytes = at..at + u64::from(from.count) * self.extent_bytes;
                        return Some((*id, PartKind::Slice { index, bytes }, from));
                    }
                    at += u64::from(run.count) * self.extent_bytes;
                }
            }
            if let Some(run) = volume.map.iter().find(|run| is_there(run)) {
                return Some((*id, PartKind::Map, cut(*run)));
            }
            if let Some(run) = volume.checksums.iter().flatten().find(|run| is_there(run)) {
                return Some((*id, PartKind::Checksums, cut(*run)));
            }
        }
        None
    }

    async fn move_part(self: Rc<Inner>, moving: &Moving, slices: usize) -> Moved {
        let change = match self.begin_change() {
            Ok(change) => change,
            Err(error) => return Moved::Not(error),
        };
        let moved = self.move_held(moving, slices).await;
        drop(change);
        moved.unwrap_or_else(Moved::Not)
    }

    /// If this fails, nothing has changed.
    async fn move_held(&self, moving: &Moving, slices: usize) -> Result<Moved, StoreError> {
        // A slice that does not hold the part would go on writing to the old place.
        self.check_held(moving.volume, slices)?;
        self.count_moves(moving.volume);
        let moved = self.move_counted(moving, slices).await;
        // If it is unknown which place counts, no slice is opened before the pool has been reopened.
        if !matches!(moved, Ok(Moved::Unknown(_))) {
            // No other task has run since the catalog was replaced, so no specification has the new place and
            // the old number.
            self.count_moves(moving.volume);
        }
        moved
    }

    /// The slices of the volume notice that a move has begun, or has ended.
    fn count_moves(&self, volume: VolumeId) {
        if let Some(live) = self.state.borrow().volumes.get(&volume) {
            live.in_use.fetch_add(1, Ordering::Release);
        }
    }

    /// If this fails, nothing has changed.
    async fn move_counted(&self, moving: &Moving, slices: usize) -> Result<Moved, StoreError> {
        self.copy(moving.from, moving.to).await?;
        let _turn = self.turn().await;
        self.writable()?;
        self.check_held(moving.volume, slices)?;
        let mut catalog = self.state.borrow().catalog.clone();
        let volume = catalog.volumes.get(&moving.volume).cloned();
        let mut volume = volume.ok_or(StoreError::NoSuchVolume(moving.volume))?;
        move_in(Rc::make_mut(&mut volume), moving).ok_or(StoreError::VolumeNotHeld(moving.volume))?;
        catalog.volumes.insert(moving.volume, volume);
        let room = super::volumes::room_for_lu_states(&catalog);
        let committed = self.commit_on(self.layout(), catalog, Superblocks::OfMetadataDisks, room).await;
        match committed {
            Ok(()) => Ok(Moved::Done),
            // Nothing was written, or it was withdrawn.
            Err(error) if self.writable().is_ok() => Err(error),
            Err(error) => Ok(Moved::Unknown(error)),
        }
    }

    /// Checks that these are all slices of a volume, and that nobody else uses it.
    ///
    /// A volume that is not open could be opened at any moment, with the former place. One that is being
    /// converted, since the disk may stay after all, writes to two places.
    fn check_held(&self, volume: VolumeId, slices: usize) -> Result<(), StoreError> {
        let state = self.state.borrow();
        let entry = state.catalog.volumes.get(&volume).ok_or(StoreError::NoSuchVolume(volume))?;
        let live = state.volumes.get(&volume).ok_or(StoreError::NoSuchVolume(volume))?;
        let are_all = slices == usize::from(entry.stripe.slices()) && entry.next.is_none();
        match are_all && Arc::strong_count(&live.in_use) == 1 + slices {
            true => Ok(()),
            false => Err(StoreError::VolumeNotHeld(volume)),
        }
    }

    /// Copies extents, durably. The new ones are zeros.
    async fn copy(&self, from: ExtentRun, to: ExtentRun) -> Result<(), StoreError> {
        if makes(Canary::MoveUncopied) {
            return Ok(());
        }
        let layout = self.layout();
        let (target, target_at) = self.place_of(to);
        let target = layout.disks.disk(target);
        let len = u64::from(from.count) * self.extent_bytes;
        let until = rt::now() + READ_MAX;
        let mut at = 0;
        while at < len {
            let piece = COPY_BYTES.min(len - at);
            let data = self.read_piece(from, at, piece, until).await?;
            if data.iter().any(|byte| *byte != 0) {
                let written = target.write(target_at + at, data.share(), Durability::Cached).await;
                written.map_err(|source| StoreError::Disk { path: target.path().to_owned(), source })?;
            }
            at += piece;
        }
        commit::flush(target, Step::Moved).await
    }

    /// Checks that the disk can read extents, fast enough for those who wait while they are copied.
    async fn check_readable(&self, from: ExtentRun) -> Result<(), StoreError> {
        let len = u64::from(from.count) * self.extent_bytes;
        let until = rt::now() + READ_MAX;
        let mut at = 0;
        while at < len {
            let piece = COPY_BYTES.min(len - at);
            self.read_piece(from, at, piece, until).await?;
            at += piece;
        }
        Ok(())
    }

    /// Reads `len` bytes at `at` of extents. Gives up at `until`.
    async fn read_piece(
        &self,
        from: ExtentRun,
        at: u64,
        len: u64,
        until: Instant,
    ) -> Result<Buf, StoreError> {
        let layout = self.layout();
        let (place, start) = self.place_of(from);
        read_until(layout.disks.disk(place), start + at, len, until).await
    }

    async fn empty_logs(self: Rc<Inner>) -> Result<bool, StoreError> {
        let _change = self.begin_change()?;
        let Some(place) = self.layout().leaving else { return Ok(false) };
        while self.move_roots(place).await? {}
        let has_zone = |log: &LogEntry| log.zones.values().any(|zone| usize::from(zone.disk) == place);
        let numbers: Vec<u16> = {
            let state = self.state.borrow();
            let logs = state.catalog.logs.logs.iter().filter(|(_, log)| has_zone(log));
            logs.map(|(number, _)| *number).collect()
        };
        let mut stays = Ok(());
        for number in &numbers {
            let Some(log) = self.log(*number) else { continue };
            if stays.is_ok() {
                stays = self.check_leaving(&log, place);
            }
            log.try_again();
        }
        stays?;
        // The space of a zone that is being returned is still zeroed.
        let is_returning = self.used_on(&self.layout(), place).0 > 0 && !self.lender.is_idle();
        Ok(!numbers.is_empty() || is_returning)
    }

    /// Checks whether a log that has zones on the leaving disk makes progress.
    fn check_leaving(&self, log: &LogHandle, place: usize) -> Result<(), StoreError> {
        let stays = if log.is_open() { log.stays() } else { Some(Stays::Offline) };
        let Some(stays) = stays else { return Ok(()) };
        let state = self.state.borrow();
        Err(match stays {
            Stays::NoSpace => {
                let extents =
                    state.catalog.logs.logs.get(&log.number).map(|log| log.zone_extents(self.extent_bytes));
                let bytes = |extents: u64| ByteLen(extents * self.extent_bytes);
                StoreError::NoSpace {
                    wanted: bytes(extents.unwrap_or(1)),
                    free: bytes(state.allocator.free()),
                }
            }
            Stays::Unreadable => {
                let path = self.layout().disks.disk(place as u16).path().to_owned();
                StoreError::LogUnreadable { path }
            }
            Stays::Offline => {
                let uses = |volume: &VolumeEntry| volume.needs_logs() && volume.stripe.slices() > log.number;
                let mut volumes = state.catalog.volumes.iter();
                let volume = volumes.find(|(_, volume)| uses(volume)).map(|(id, _)| *id);
                // Without such a volume the log is being dropped.
                let Some(volume) = volume else { return Ok(()) };
                StoreError::VolumeNotHeld(volume)
            }
        })
    }

    /// Moves one run of the logs' roots from a disk. Returns whether there was one.
    async fn move_roots(self: &Rc<Inner>, place: usize) -> Result<bool, StoreError> {
        let Some((mirror, from)) = self.roots_on(place) else { return Ok(false) };
        let Some(to) = self.take_for_roots(mirror, from) else {
            let free = ByteLen(self.state.borrow().allocator.free() * self.extent_bytes);
            return Err(StoreError::NoSpace { wanted: ByteLen(self.extent_bytes), free });
        };
        let from = ExtentRun { count: to.count, ..from };
        let moved = self.move_mirror(mirror, from, to).await;
        match &moved {
            Ok(true) => Rc::clone(self).free(from).await,
            // Nothing was written, or it was withdrawn.
            Ok(false) => self.put_back(&[to]),
            Err(_) if self.writable().is_ok() => self.put_back(&[to]),
            // It is unknown which place counts.
            Err(_) => {}
        }
        moved.map(|_| true)
    }

    /// The mirror of the logs' roots that lies on a disk, and a run of it there.
    fn roots_on(&self, place: usize) -> Option<(usize, ExtentRun)> {
        let state = self.state.borrow();
        let roots = (0..).zip(&state.catalog.logs.roots);
        let mut runs = roots.flat_map(|(mirror, runs)| runs.iter().map(move |run| (mirror, *run)));
        runs.find(|(_, run)| usize::from(run.disk) == place)
    }

    /// Takes as many extents for a run of a mirror as there are in one run: not on the disks on which the
    /// other mirror has the same roots, if that is possible.
    fn take_for_roots(&self, mirror: usize, from: ExtentRun) -> Option<ExtentRun> {
        let mut state = self.state.borrow_mut();
        let roots = &state.catalog.logs.roots;
        let before = roots[mirror].iter().take_while(|run| **run != from);
        let at: u32 = before.map(|run| run.count).sum();
        let other = disks_of(&roots[1 - mirror], at..at + from.count);
        let mut count = from.count;
        while count > 0 {
            if let Some(to) = state.allocator.allocate_run_apart(count.into(), &other) {
                return Some(to);
            }
            count /= 2;
        }
        None
    }

    /// Moves a run of a mirror; returns whether it was still there. If this fails and changes are still
    /// possible, nothing has changed.
    async fn move_mirror(
        self: &Rc<Inner>,
        mirror: usize,
        from: ExtentRun,
        to: ExtentRun,
    ) -> Result<bool, StoreError> {
        self.zero(&[to], &ZeroingWatch::default()).await?;
        self.allocate(&[to]).await?;
        // From here on, no log is added or dropped.
        let _turn = self.turn().await;
        self.writable()?;
        let before = self.state.borrow().catalog.logs.clone();
        let mut catalog = self.state.borrow().catalog.clone();
        let Some(moved) = replaced(&before.roots[mirror], from, to) else { return Ok(false) };
        catalog.logs.roots[mirror] = moved;
        let after = catalog.logs.clone();
        // Those that have not been opened yet could be opened now.
        let logs: Vec<Arc<LogHandle>> = before.logs.keys().filter_map(|number| self.log(*number)).collect();
        let until = rt::now() + HELD_WITHIN;
        let mut held = Vec::new();
        for log in &logs {
            match rt::timeout_at(until, log.hold_roots()).await {
                Ok(log) => held.push(log),
                Err(rt::Elapsed) => return Err(self.timed_out(from)),
            }
        }
        self.copy_roots(mirror, from, to).await?;
        let room = super::volumes::room_for_lu_states(&catalog);
        let committed = self.commit_on(self.layout(), catalog, Superblocks::OfMetadataDisks, room).await;
        if committed.is_err() && self.writable().is_ok() {
            return committed.map(|()| false);
        }
        let places = |logs: &crate::catalog::Logs, log: u16| {
            let at = u64::from(log) * ROOTS_BYTES;
            [self.place_in(&logs.roots[0], at), self.place_in(&logs.roots[1], at)]
        };
        for log in &held {
            let mut places_now = places(&after, log.log()).to_vec();
            if committed.is_err() {
                // The next opening finds the roots at either place, so they are written to both from now on.
                places_now.push(places(&before, log.log())[mirror]);
            }
            log.set(places_now, self.layout().disks.share());
        }
        committed.map(|()| true)
    }

    /// Copies a run of a mirror of the logs' roots, durably. What its disk cannot read, the other mirror has.
    async fn copy_roots(&self, mirror: usize, from: ExtentRun, to: ExtentRun) -> Result<(), StoreError> {
        if makes(Canary::MoveUncopied) {
            return Ok(());
        }
        let layout = self.layout();
        let (target, target_at) = self.place_of(to);
        let target = layout.disks.disk(target);
        let (_, from_at) = self.place_of(from);
        let len = u64::from(from.count) * self.extent_bytes;
        let logs = self.state.borrow().catalog.logs.clone();
        let until = rt::now() + READ_MAX;
        for number in logs.logs.keys() {
            let at = u64::from(*number) * ROOTS_BYTES;
            let (disk, start) = self.place_in(&logs.roots[mirror], at);
            if disk != from.disk || !(from_at..from_at + len).contains(&start) {
                continue;
            }
            let read = read_until(layout.disks.disk(disk), start, ROOTS_BYTES, until).await;
            let data = match read {
                Ok(data) => data,
                Err(_) => {
                    let (disk, start) = self.place_in(&logs.roots[1 - mirror], at);
                    read_until(layout.disks.disk(disk), start, ROOTS_BYTES, until).await?
                }
            };
            let written = target.write(target_at + start - from_at, data.share(), Durability::Cached).await;
            written.map_err(|source| StoreError::Disk { path: target.path().to_owned(), source })?;
        }
        commit::flush(target, Step::Moved).await
    }

    fn timed_out(&self, run: ExtentRun) -> StoreError {
        timed_out(self.layout().disks.disk(run.disk))
    }

    /// Frees extents that nothing uses any more.
    async fn free(self: Rc<Inner>, run: ExtentRun) {
        let Ok(_change) = self.begin_change() else { return };
        if let Err(error) = self.zero(&[run], &ZeroingWatch::default()).await {
            tracing::warn!(%error, "the former space of a volume could not be released on the disk");
        }
        self.put_back(&[run]);
    }
}

/// Reads from a disk. Gives up at `until`.
async fn read_until(disk: &PoolDisk, at: u64, len: u64, until: Instant) -> Result<Buf, StoreError> {
    let read = disk.read(at, Buf::uncleared(len as usize));
    match rt::timeout(until.since(rt::now()), read).await {
        Ok(read) => read.map_err(|source| StoreError::Disk { path: disk.path().to_owned(), source }),
        Err(rt::Elapsed) => Err(timed_out(disk)),
    }
}

fn timed_out(disk: &PoolDisk) -> StoreError {
    let source = DiskError::Media(std::io::ErrorKind::TimedOut.into());
    StoreError::Disk { path: disk.path().to_owned(), source }
}

/// The disks of the extents with these numbers, of several runs.
fn disks_of(runs: &[ExtentRun], wanted: Range<u32>) -> Vec<u16> {
    let mut at = 0;
    let mut disks = Vec::new();
    for run in runs {
        if at < wanted.end && wanted.start < at + run.count {
            disks.push(run.disk);
        }
        at += run.count;
    }
    disks
}

/// Gives a part of a volume its new place. `None` if it does not lie where it did.
fn move_in(volume: &mut VolumeEntry, moving: &Moving) -> Option<()> {
    let runs = match &moving.part.0 {
        PartKind::Slice { index, .. } => volume.slices.get_mut(usize::from(*index))?,
        PartKind::Map => &mut volume.map,
        PartKind::Checksums => volume.checksums.as_mut()?,
    };
    *runs = replaced(runs, moving.from, moving.to)?;
    Some(())
}

/// `runs` with `to` in place of `from`, which is a part of one of them.
fn replaced(runs: &[ExtentRun], from: ExtentRun, to: ExtentRun) -> Option<Vec<ExtentRun>> {
    let has = |run: &ExtentRun| run.disk == from.disk && run.start <= from.start && from.end() <= run.end();
    let at = runs.iter().position(has)?;
    let run = runs[at];
    let before = ExtentRun { count: from.start - run.start, ..run };
    let after = ExtentRun { start: from.end(), count: run.end() - from.end(), ..run };
    let mut all = Vec::new();
    let moved = [before, to, after];
    for run in runs[..at].iter().chain(&moved).chain(&runs[at + 1..]).filter(|run| run.count > 0) {
        append(&mut all, *run);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disks_of_a_part_of_a_mirror() {
        let run = |disk, count| ExtentRun { disk, start: 9, count };
        let runs = [run(3, 4), run(1, 2), run(2, 2)];
        let of = |wanted| disks_of(&runs, wanted);
        assert_eq!((of(0..4), of(3..6), of(6..8)), (vec![3], vec![3, 1], vec![2]));
    }

    #[test]
    fn a_part_of_a_run_is_replaced() {
        let run = |disk, start, count| ExtentRun { disk, start, count };
        let runs = [run(0, 0, 4), run(1, 4, 6), run(0, 4, 2)];
        let to = |from, to| replaced(&runs, from, to);
        let middle = to(run(1, 6, 2), run(2, 0, 2)).unwrap();
        assert_eq!(middle, [run(0, 0, 4), run(1, 4, 2), run(2, 0, 2), run(1, 8, 2), run(0, 4, 2)]);
        let all = to(run(1, 4, 6), run(2, 0, 6)).unwrap();
        assert_eq!(all, [run(0, 0, 4), run(2, 0, 6), run(0, 4, 2)]);
        // What becomes adjacent is one run.
        let next = replaced(&[run(0, 0, 4), run(1, 4, 6)], run(1, 4, 2), run(0, 4, 2)).unwrap();
        assert_eq!(next, [run(0, 0, 6), run(1, 6, 4)]);
        assert_eq!(to(run(1, 9, 2), run(2, 0, 2)), None);
        assert_eq!(to(run(2, 4, 1), run(2, 0, 1)), None);
    }
}
