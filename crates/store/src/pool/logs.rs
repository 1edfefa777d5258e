//! The logs of a pool: creating them, lending them zones, and taking zones back.
//!
//! A log may live on another core than the pool. It asks for zones ahead of need, so that no write waits for
//! a commit. Before the catalog gives a zone to the log, the zone's space is allocated in the file system.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use base::{Buf, ByteLen};
use rt::Durability;

use super::{InLogs, Inner, Pool, to_the_end};
use crate::allocator::Allocator;
use crate::catalog::{Catalog, Compression, LogEntry, SpacePolicy, VolumeEntry, VolumeKind, roots_bytes};
use crate::error::StoreError;
use crate::extent::ExtentRun;
use crate::id::VolumeId;
use crate::log::bounds::ReplayBounds;
use crate::log::place::{QUARTER_BYTES, SEGMENT_SLOTS_MAX, SEGMENT_SLOTS_MIN, SEGMENTS_MAX, SLOT_BYTES};
use crate::log::root::{ROOTS_BYTES, Root};
use crate::log::{
    Lender, Lending, LogFigures, LogHandle, LogMemory, LogTuning, NewHandle, Request, Returned, held_for,
};

/// A segment is this part of a pool, unless the tuning says otherwise.
const SEGMENT_PART: u64 = 1024;

/// The smallest segment in that case, in bytes: a zone of sixteen is 4 MiB, an extent of an ordinary pool.
const SEGMENT_BYTES_MIN: u64 = 256 << 10;

/// Percentage of a zone that hosts' data can take; the rest is what cleaning gains from.
const LENT_PERCENT: u64 = 90;

/// Percentage of a zone that counts for a reserve. The rest is for cleaning, heads of records and the map.
const RESERVE_PERCENT: u64 = 80;

/// A zone that was lent in a catalog which is not committed yet.
pub(super) struct Lent {
    log: u16,
    zone: u32,
    pub run: ExtentRun,
}

/// The space of a pool's log volumes, in bytes.
///
/// Of logs that have not been opened yet only the lent space is known, and all of it counts as live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSpace {
    /// The space that the pool has lent to its logs.
    pub lent: u64,
    /// The blocks of it that volumes need. Those that were overwritten count only as long as the log does not
    /// know that: until the map has been merged at the latest.
    pub live: u64,
    /// The unused part of volumes' reserves, as far as is known.
    pub reserved: u64,
    /// The part of `live` that only snapshots need. What was overwritten in the last seconds is not counted
    /// yet, nor is anything that a restored volume may still read of its snapshots.
    pub snapshots: u64,
    /// The part of `live` that deleted snapshots still hold, at most. It is freed in the background.
    pub freeing: u64,
    /// The space that all volumes can still take: in what is lent, and in what the pool can still lend.
    pub room: u64,
    /// Bytes that hosts have written since the logs were opened.
    pub written_by_hosts: u64,
    /// Bytes of blocks that cleaners have moved since then.
    pub written_moved: u64,
    /// Bytes of maps that have been written since then.
    pub written_map: u64,
    /// All bytes that were written to the disks for that, with the heads of records.
    pub written: u64,
    /// Blocks of the state of logs' maps of which one copy was lost when the logs were opened.
    pub state_repaired: u64,
    /// The memory that the logs take.
    pub memory: u64,
}

/// Below this share of live blocks, in thousandths of what it can use, a log cleans rather than borrows.
const LIVE_WORTH_LENDING: u64 = 500;

/// The same in a pool with less than half of its space free.
const LIVE_WORTH_LENDING_WHEN_TIGHT: u64 = 800;

/// A log that borrows gets this part of what it has, so that a growing log asks less often the larger it is.
const LENT_PART: usize = 16;

impl Pool {
    /// Sets the bounds of logs that are created, or opened for the first time since the pool was opened, from
    /// now on.
    pub fn set_log_tuning(&self, tuning: LogTuning) {
        self.0.log_tuning.set(tuning);
    }

    /// Sets the memory that this pool's logs share with those of other pools.
    ///
    /// It applies to logs that are opened for the first time since the pool was opened, from now on.
    pub fn set_log_memory(&self, memory: LogMemory) {
        self.0.log_memory.replace(memory);
    }

    /// The figures of the logs, by number; only of those that have been opened since the pool was opened.
    pub fn log_figures(&self) -> Vec<(u16, LogFigures)> {
        let state = self.0.state.borrow();
        state.logs.iter().map(|(number, log)| (*number, log.figures())).collect()
    }

    /// The space of the pool's log volumes; `None` if it has no logs.
    pub fn log_space(&self) -> Option<LogSpace> {
        let state = self.0.state.borrow();
        let (mut space, mut rooms) = (LogSpace::default(), Vec::new());
        let extent = self.0.extent_bytes;
        // A zone is lent as a whole, and a part of it is never used for data.
        let zone = state.catalog.logs.logs.values().map(|log| log.zone_extents(extent)).max().unwrap_or(1);
        space.room = state.allocator.free() / zone * zone * extent / 100 * LENT_PERCENT;
        for (number, entry) in &state.catalog.logs.logs {
            let extents: u64 = entry.zones.values().map(|zone| u64::from(zone.count)).sum();
            let lent = extents * extent;
            let log = state.logs.get(number).map(|log| log.figures()).filter(|log| log.usable > 0);
            let log = log.unwrap_or(LogFigures { needed: lent, ..LogFigures::default() });
            space.lent += lent;
            space.live += log.needed;
            space.reserved += log.reserved;
            space.snapshots += log.snapshots;
            space.freeing += log.freeing;
            rooms.push(log.usable.saturating_sub(log.needed + log.reserved));
            space.written_by_hosts += log.written_by_hosts;
            space.written_moved += log.written_moved;
            space.written_map += log.written_map;
            space.written += log.written;
            space.state_repaired += log.state_repaired;
            space.memory += log.memory;
        }
        // Volumes are striped over the logs, so writes fail as soon as one of the logs is full.
        space.room += rooms.iter().min().copied().unwrap_or(0) * rooms.len() as u64;
        (space.lent > 0).then_some(space)
    }

    /// The volumes with blocks in a log that was refused only because it lacks records that were acknowledged
    /// as durable. One list for each such log.
    ///
    /// If all of them are copies that are blank or set back ([`CopyState`](crate::CopyState)), the log does
    /// without these records the next time it is opened.
    pub fn volumes_lacking_records(&self) -> Vec<Vec<VolumeId>> {
        let state = self.0.state.borrow();
        let lacking = state.logs.iter().filter(|(_, log)| log.lacks_records());
        let of_log = |number: u16| {
            let volumes = state.catalog.volumes.iter().filter(move |(_, volume)| volume.logs_used() > number);
            volumes.map(|(id, _)| *id).collect()
        };
        lacking.map(|(number, _)| of_log(*number)).collect()
    }

    /// The volumes of which logs have noted bad blocks while nobody read them: see
    /// [`Slice::take_noted`](crate::Slice::take_noted).
    pub fn volumes_with_bad_blocks(&self) -> Vec<VolumeId> {
        let mut branches = BTreeSet::new();
        self.0.state.borrow().logs.values().for_each(|log| log.add_branches_with_bad(&mut branches));
        if branches.is_empty() {
            return Vec::new();
        }
        self.0.ids_of(|volume| volume.branches().any(|(branch, _)| branches.contains(&branch)))
    }

    /// Waits until logs whose slices are all closed have no I/O under way.
    ///
    /// To be called before the pool is dropped, so that its disks can be opened again.
    pub async fn logs_ended(&self) {
        self.0.logs_ended().await;
    }
}

impl Inner {
    pub(super) async fn logs_ended(&self) {
        let logs: Vec<Arc<LogHandle>> = self.state.borrow().logs.values().cloned().collect();
        for log in logs.iter().filter(|log| !log.is_open()) {
            log.ended().await;
        }
        // Their last requests are still carried out after they have ended.
        self.change_ended.until(|| self.lender.is_idle()).await;
    }

    pub(super) fn log(self: &Rc<Inner>, number: u16) -> Option<Arc<LogHandle>> {
        if let Some(log) = self.state.borrow().logs.get(&number) {
            return Some(Arc::clone(log));
        }
        self.lend_from_now_on();
        let mut state = self.state.borrow_mut();
        let entry = state.catalog.logs.logs.get(&number)?;
        let zones = entry.zones.iter().map(|(zone, run)| (*zone, self.place_of(*run))).collect();
        let tuning = self.log_tuning.get();
        let roots = [0, 1]
            .map(|mirror| self.place_in(&state.catalog.logs.roots[mirror], u64::from(number) * ROOTS_BYTES));
        let log = Arc::new(LogHandle::new(NewHandle {
            number,
            identity: entry.identity,
            segment_shift: entry.segment_shift,
            zone_segments: entry.zone_segments,
            roots,
            tuning,
            replay: ReplayBounds::new(&tuning, state.catalog.logs.logs.len(), 1 << entry.segment_shift),
            memory: self.log_memory.borrow().clone(),
            lender: Arc::clone(&self.lender),
            zones,
            next_branch: state.catalog.logs.next_branch,
        }));
        log.set_leaving(self.layout().leaving.map(|place| place as u16));
        let has_slice = |volume: &&Rc<VolumeEntry>| volume.stripe.slices() > number;
        for volume in state.catalog.volumes.values().filter(has_slice) {
            introduce(&log, volume);
            if volume.kind == VolumeKind::Log {
                log.set_reserve(volume.branch, volume.space.reserved_quarters(volume.stripe.slices()));
            }
        }
        state.logs.insert(number, Arc::clone(&log));
        Some(log)
    }

    /// The disk of an extent run, and the run's offset there.
    pub(super) fn place_of(&self, run: ExtentRun) -> (u16, u64) {
        let geometry = self.layout().geometry[usize::from(run.disk)];
        (run.disk, geometry.extents_offset() + u64::from(run.start) * geometry.extent_bytes)
    }

    /// The disk and offset of byte `at` of several runs.
    pub(super) fn place_in(&self, runs: &[ExtentRun], mut at: u64) -> (u16, u64) {
        for run in runs {
            let len = u64::from(run.count) * self.extent_bytes;
            if at < len {
                let (disk, start) = self.place_of(*run);
                return (disk, start + at);
            }
            at -= len;
        }
        panic!("the catalogue was checked: roots have their extents")
    }

    /// Adds logs to `catalog` until there are `count`, with space that is ready for use. Returns the extents
    /// taken.
    ///
    /// The caller has its turn to commit.
    pub(super) async fn add_logs(
        &self,
        catalog: &mut Catalog,
        count: u16,
    ) -> Result<Vec<ExtentRun>, StoreError> {
        let before = catalog.logs.clone();
        let taken = self.take_for_logs(catalog, count)?;
        self.make_logs(catalog, &before, &taken).await.inspect_err(|_| self.put_back(&taken))?;
        Ok(taken)
    }

    fn take_for_logs(&self, catalog: &mut Catalog, count: u16) -> Result<Vec<ExtentRun>, StoreError> {
        let mut taken = Vec::new();
        self.take_each(catalog, count, &mut taken).inspect_err(|_| self.put_back(&taken))?;
        Ok(taken)
    }

    fn take_each(
        &self,
        catalog: &mut Catalog,
        count: u16,
        taken: &mut Vec<ExtentRun>,
    ) -> Result<(), StoreError> {
        let extent = self.extent_bytes;
        let mut state = self.state.borrow_mut();
        if catalog.logs.logs.is_empty() && count > 0 {
            let wanted = roots_bytes().div_ceil(extent);
            let roots = take_mirrors(&mut state.allocator, wanted);
            let roots =
                roots.ok_or_else(|| no_space(2 * wanted * extent, state.allocator.free() * extent))?;
            taken.extend(roots.iter().flatten());
            catalog.logs.roots = roots;
        }
        let total = self.layout().geometry.iter().map(|geometry| u64::from(geometry.extents) * extent).sum();
        let (segment, zone_segments) = sizes(&self.log_tuning.get(), total, extent);
        for number in catalog.logs.logs.len() as u16..count {
            let mut log = LogEntry {
                identity: rt::secret_bytes(),
                segment_shift: segment.trailing_zeros() as u8,
                zone_segments,
                zones: BTreeMap::new(),
            };
            let wanted = log.zone_extents(extent);
            let run = state.allocator.allocate_run(wanted);
            let run = run.ok_or_else(|| no_space(wanted * extent, state.allocator.free() * extent))?;
            taken.push(run);
            log.zones.insert(0, run);
            catalog.logs.logs.insert(number, log);
        }
        Ok(())
    }

    /// Writes the first roots of the logs that are new in `catalog`.
    async fn make_logs(
        &self,
        catalog: &Catalog,
        before: &crate::catalog::Logs,
        taken: &[ExtentRun],
    ) -> Result<(), StoreError> {
        if before.logs.is_empty() && !taken.is_empty() {
            let roots: Vec<ExtentRun> = catalog.logs.roots.iter().flatten().copied().collect();
            self.zero(&roots, &super::ZeroingWatch::default()).await?;
        }
        self.allocate(taken).await?;
        let layout = self.layout();
        for (number, log) in catalog.logs.logs.iter().filter(|(number, _)| !before.logs.contains_key(number))
        {
            let root = Root::first(log.identity, log.segment_shift);
            let bytes = Buf::copy_of(&root.encode()).share();
            for mirror in &catalog.logs.roots {
                let (disk, start) = self.place_in(mirror, u64::from(*number) * ROOTS_BYTES);
                let disk = layout.disks.disk(disk);
                // Whatever a former log of this number has left here is ignored, because its identity
                // differs.
                let written =
                    disk.write(start + Root::offset(root.number), bytes.clone(), Durability::Durable).await;
                written.map_err(|source| StoreError::Disk { path: disk.path().to_owned(), source })?;
            }
        }
        Ok(())
    }

    /// Removes the logs that no volume needs any more from `catalog`. Returns their extents.
    pub(super) async fn drop_logs(&self, catalog: &mut Catalog) -> Vec<ExtentRun> {
        let needed = {
            let state = self.state.borrow();
            // Slices may still use a layout that the volume has left.
            let has_left = |id: &VolumeId| {
                let live = state.volumes.get(id);
                live.is_some_and(|live| live.former().any(|layout| layout.kind == VolumeKind::Log))
            };
            let needs = |&(id, volume): &(&VolumeId, &Rc<VolumeEntry>)| volume.needs_logs() || has_left(id);
            let volumes = catalog.volumes.iter().filter(needs);
            volumes.map(|(_, volume)| volume.stripe.slices()).max().unwrap_or(0)
        };
        let mut given_up = Vec::new();
        let unneeded: Vec<u16> = catalog.logs.logs.range(needed..).map(|(number, _)| *number).collect();
        for number in unneeded {
            let log = self.state.borrow().logs.get(&number).cloned();
            if let Some(log) = log {
                log.ended().await;
            }
            let entry = catalog.logs.logs.remove(&number);
            given_up.extend(entry.into_iter().flat_map(|log| log.zones.into_values()));
        }
        if catalog.logs.logs.is_empty() {
            given_up.extend(catalog.logs.roots.iter_mut().flat_map(std::mem::take));
        }
        given_up
    }

    /// Starts the task that answers the logs' requests, if it does not run yet.
    fn lend_from_now_on(self: &Rc<Inner>) {
        if self.lending.replace(true) {
            return;
        }
        let (inner, lender) = (Rc::downgrade(self), Arc::clone(&self.lender));
        rt::spawn(async move { answer(&inner, &lender).await }).detach();
    }

    /// Lends the logs of a volume the zones that its reserve lacks, in `catalog`. The reserve was `before`.
    ///
    /// The caller has its turn to commit. If it cannot commit, it puts the extents back.
    pub(super) async fn lend_for_reserve(
        &self,
        catalog: &mut Catalog,
        volume: &VolumeEntry,
        before: SpacePolicy,
    ) -> Result<Vec<Lent>, StoreError> {
        let lacks: Vec<(u16, u64)> = self.zones_for_reserve(catalog, volume, before);
        // What has been prepared stays allocated in the file system, and a pool that follows the cluster's
        // record asks again each second.
        let zone_extents = |(number, zones): &(u16, u64)| {
            catalog.logs.logs.get(number).map_or(0, |log| zones * log.zone_extents(self.extent_bytes))
        };
        let wanted: u64 = lacks.iter().map(zone_extents).sum();
        let free = self.state.borrow().allocator.free();
        if wanted > free {
            return Err(no_space(volume.space.reserve.0, free * self.extent_bytes));
        }
        let mut lent = Vec::new();
        for (number, zones) in lacks {
            let Some(log) = catalog.logs.logs.get_mut(&number) else { break };
            for _ in 0..zones {
                let added = match self.zone_for(number, log).await {
                    Ok(added) => added,
                    Err(error) => {
                        let runs: Vec<ExtentRun> = lent.iter().map(|zone: &Lent| zone.run).collect();
                        self.put_back(&runs);
                        return Err(match error {
                            StoreError::NoSpace { free, .. } => no_space(volume.space.reserve.0, free.0),
                            error => error,
                        });
                    }
                };
                log.zones.insert(added.zone, added.run);
                lent.push(added);
            }
        }
        Ok(lent)
    }

    /// How many zones each log of a volume lacks for its reserve, which was `before`.
    fn zones_for_reserve(
        &self,
        catalog: &Catalog,
        volume: &VolumeEntry,
        before: SpacePolicy,
    ) -> Vec<(u16, u64)> {
        let zones = |(number, log): (&u16, &LogEntry)| {
            let counted = log.zone_extents(self.extent_bytes) * self.extent_bytes / 100 * RESERVE_PERCENT;
            (*number, self.lacks_for_reserve(*number, volume, before).div_ceil(counted))
        };
        catalog.logs.logs.range(..volume.stripe.slices()).map(zones).collect()
    }

    /// How many bytes a log lacks if the reserve of a volume was `before` and becomes what its entry says.
    fn lacks_for_reserve(&self, number: u16, volume: &VolumeEntry, before: SpacePolicy) -> u64 {
        let slices = volume.stripe.slices();
        let state = self.state.borrow();
        let log = state.logs.get(&number);
        // What is not known yet counts as nothing: then more is lent than needed, and comes back.
        let (stored, _) = log.map_or((0, 0), |log| log.used(volume.branch));
        let quarter = QUARTER_BYTES as u64;
        let held = |space: SpacePolicy| held_for(space.reserved_quarters(slices), stored / quarter) * quarter;
        let figures = log.map(|log| log.figures()).unwrap_or_default();
        let spare = figures.usable.saturating_sub(figures.needed + figures.reserved);
        held(volume.space).saturating_sub(held(before)).saturating_sub(spare)
    }

    /// Takes a zone for a log, with space that is ready for use.
    async fn zone_for(&self, number: u16, log: &LogEntry) -> Result<Lent, StoreError> {
        let wanted = log.zone_extents(self.extent_bytes);
        let zone = (0..).find(|zone| !log.zones.contains_key(zone)).unwrap_or(0);
        let fits = (u64::from(zone) + 1) * u64::from(log.zone_segments) <= u64::from(SEGMENTS_MAX);
        let run = {
            let mut state = self.state.borrow_mut();
            let run = if fits { state.allocator.allocate_run(wanted) } else { None };
            let free = state.allocator.free() * self.extent_bytes;
            run.ok_or_else(|| no_space(wanted * self.extent_bytes, free))?
        };
        self.allocate(&[run]).await.inspect_err(|_| self.put_back(&[run]))?;
        Ok(Lent { log: number, zone, run })
    }

    /// Gives logs zones that the committed catalog lends them.
    pub(super) fn tell_lent(&self, lent: Vec<Lent>) {
        for Lent { log, zone, run } in lent {
            let log = self.state.borrow().logs.get(&log).cloned();
            if let Some(log) = log {
                log.add_zone(zone, self.place_of(run), self.layout().disks.share());
            }
        }
    }

    /// Decides whether a log gets zones, and lends them.
    async fn lend(self: Rc<Inner>, number: u16, live_permille: u64, urgent: bool) -> Lending {
        let Ok(_change) = self.begin_change() else { return Lending::Refused };
        let _turn = self.turn().await;
        let mut catalog = self.state.borrow().catalog.clone();
        let Some(log) = catalog.logs.logs.get_mut(&number) else { return Lending::Refused };
        let wanted = {
            let state = self.state.borrow();
            let total: u64 = self.layout().geometry.iter().map(|geometry| u64::from(geometry.extents)).sum();
            let tight = state.allocator.free() * 2 < total;
            let worth = if tight { LIVE_WORTH_LENDING_WHEN_TIGHT } else { LIVE_WORTH_LENDING };
            if !urgent && live_permille < worth {
                return Lending::Refused;
            }
            if tight { 1 } else { (log.zones.len() / LENT_PART).max(1) }
        };
        let (mut lent, mut ended) = (Vec::new(), Lending::Lent);
        while lent.len() < wanted {
            let added = match self.zone_for(number, log).await {
                Ok(added) => added,
                Err(StoreError::NoSpace { .. }) => {
                    ended = Lending::NoSpace;
                    break;
                }
                Err(error) => {
                    ended = Lending::Refused;
                    tracing::warn!(log = number, %error, "a log gets no zone: no space can be reserved for it");
                    break;
                }
            };
            log.zones.insert(added.zone, added.run);
            lent.push(added);
        }
        let runs: Vec<ExtentRun> = lent.iter().map(|zone| zone.run).collect();
        if runs.is_empty() {
            return ended;
        }
        if self.commit_or_put_back(catalog, &runs).await.is_err() {
            return Lending::Refused;
        }
        self.tell_lent(lent);
        Lending::Lent
    }

    /// Takes a zone back, and frees its extents.
    async fn take_back(self: Rc<Inner>, number: u16, identity: [u8; 16], zone: u32) -> Returned {
        let Ok(_change) = self.begin_change() else { return Returned::Kept };
        let turn = self.turn().await;
        let mut catalog = self.state.borrow().catalog.clone();
        let log = catalog.logs.logs.get_mut(&number).filter(|log| log.identity == identity);
        let Some(run) = log.and_then(|log| log.zones.remove(&zone)) else { return Returned::Taken };
        if self.commit(catalog, super::Superblocks::OfMetadataDisks).await.is_err() {
            // If changes are still possible, no opening finds this one: what was written of it is invalid.
            return if self.writable().is_ok() { Returned::Kept } else { Returned::Unknown };
        }
        drop(turn);
        if let Err(error) = self.zero(&[run], &super::ZeroingWatch::default()).await {
            tracing::warn!(log = number, %error, "the space of a log could not be released on the disk");
        }
        self.put_back(&[run]);
        Returned::Taken
    }

    /// What a volume takes in the logs, as far as is known.
    pub(super) fn in_logs(&self, id: VolumeId) -> InLogs {
        let mut sum = InLogs::default();
        let state = self.state.borrow();
        let Some(volume) = state.catalog.volumes.get(&id) else { return sum };
        for (branch, _) in volume.branches() {
            for log in (0..volume.stripe.slices()).filter_map(|slice| state.logs.get(&slice)) {
                let (stored, mapped) = log.used(branch);
                sum.stored.0 += stored;
                sum.mapped.0 += mapped;
            }
        }
        sum
    }

    /// Tells the logs what they have to know of a volume that is new, or has changed.
    pub(super) fn tell_logs(&self, volume: &VolumeEntry) {
        let state = self.state.borrow();
        state.logs.range(..volume.stripe.slices()).for_each(|(_, log)| introduce(log, volume));
    }
}

/// Tells a log what it has to know of a volume.
fn introduce(log: &LogHandle, volume: &VolumeEntry) {
    let len = volume.stripe.slice_len(log.number, volume.capacity);
    for (branch, compression) in volume.branches() {
        log.set_branch(branch, len, compression != Compression::Off);
    }
    if let Some(origin) = volume.origin {
        log.set_origin(volume.branch, origin);
    }
}

/// Answers the logs' requests until the pool is gone. It keeps nothing alive while it waits.
async fn answer(pool: &Weak<Inner>, lender: &Lender) {
    loop {
        lender.bell.wait().await;
        while let Some(request) = lender.next() {
            let Some(inner) = pool.upgrade() else { return };
            match request {
                Request::Borrow { log, live_permille, urgent, reply } => {
                    let lent = to_the_end(Rc::clone(&inner).lend(log, live_permille, urgent)).await;
                    reply.send(lent);
                }
                Request::Return { log, identity, zone, reply } => {
                    let returned = to_the_end(Rc::clone(&inner).take_back(log, identity, zone)).await;
                    reply.send(returned);
                }
            }
            lender.answered();
            inner.change_ended.notify();
        }
        if pool.upgrade().is_none() {
            return;
        }
    }
}

/// Takes `wanted` extents for each mirror of the logs' roots: on two disks if there are two, however large
/// they are.
fn take_mirrors(allocator: &mut Allocator, wanted: u64) -> Option<[Vec<ExtentRun>; 2]> {
    if let Some(first) = allocator.allocate_run(wanted) {
        if let Some(second) = allocator.allocate_run_apart(wanted, &[first.disk]) {
            return Some([vec![first], vec![second]]);
        }
        allocator.put(first);
    }
    let mut mirrors = allocator.allocate(&[wanted, wanted])?.into_iter();
    Some([mirrors.next()?, mirrors.next()?])
}

fn no_space(wanted: u64, free: u64) -> StoreError {
    StoreError::NoSpace { wanted: ByteLen(wanted), free: ByteLen(free) }
}

/// The bytes of a segment and the segments of a zone, for a pool of `total` bytes.
fn sizes(tuning: &LogTuning, total: u64, extent: u64) -> (u64, u32) {
    let slot = SLOT_BYTES as u64;
    let (min, max) = (u64::from(SEGMENT_SLOTS_MIN) * slot, u64::from(SEGMENT_SLOTS_MAX) * slot);
    let usual = || (total / SEGMENT_PART).clamp(SEGMENT_BYTES_MIN, max);
    let wanted = tuning.segment.map_or_else(usual, |segment| segment.0.clamp(min, max));
    let segment = 1 << wanted.ilog2();
    // A zone is whole extents.
    let least = u64::from(tuning.zone_segments.max(1)).next_multiple_of((extent / segment).max(1));
    (segment, u32::try_from(least).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirrors_of_the_roots_are_on_two_disks() {
        let disks = |extents: &[u32]| {
            let mut allocator = Allocator::new(extents.iter().copied());
            let mirrors = take_mirrors(&mut allocator, 8)?;
            Some(mirrors.map(|runs| runs.iter().map(|run| (run.disk, run.count)).collect::<Vec<_>>()))
        };
        assert_eq!(disks(&[20, 90]), Some([vec![(1, 8)], vec![(0, 8)]]));
        assert_eq!(disks(&[90, 7]), Some([vec![(0, 8)], vec![(0, 8)]]), "the other one has no run of them");
        assert_eq!(disks(&[9, 7]), Some([vec![(0, 8)], vec![(1, 7), (0, 1)]]));
        assert_eq!(disks(&[9, 6]), None);
    }

    #[test]
    fn a_zone_is_whole_extents() {
        let tuning = LogTuning::default();
        assert_eq!(sizes(&tuning, 16 << 20, 64 << 10), (256 << 10, 16));
        assert_eq!(sizes(&tuning, 32 << 30, 4 << 20), (32 << 20, 16));
        assert_eq!(sizes(&tuning, 100 << 40, 512 << 20), (64 << 20, 16));
        assert_eq!(sizes(&tuning, 100 << 40, 2 << 30), (64 << 20, 32));
        let small = LogTuning { segment: Some(ByteLen(64 << 10)), zone_segments: 3, ..tuning };
        assert_eq!(sizes(&small, 16 << 20, 256 << 10), (64 << 10, 4));
    }
}
