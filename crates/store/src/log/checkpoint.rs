//! The checkpoint: merges the table of changes into the map, and writes a root.
//!
//! The table is frozen, and another one takes new changes. The frozen one is merged leaf by leaf, some leaves
//! at a time. Then leaves of sparse map segments are *evacuated*, as many as there is time for: they are
//! written somewhere else. Then everything is flushed, and a root is written. Only then may segments that are
//! no longer needed be reused. A move by the cleaner counts only if the leaf still points at the old place:
//! otherwise, the block was written meanwhile, and its new place is dead, too.
//!
//! What a merge finds overwritten is dead, unless a snapshot needs it: then it goes into a leaf of that
//! snapshot.
//!
//! Checkpoints also *sweep*: they remove what deleted volumes and snapshots have left. That comes before the
//! freeze, so hosts can write meanwhile, and ends soon when something needs the checkpoint. Each removes a
//! bounded number of leaves, and the next one begins at once, until nothing is left.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::{Buf, Instant};
use rt::{DiskError, Durability, join_all};

use super::announce::NewRoot;
use super::changes::Changes;
use super::emptying::EVACUATED_MAX;
use super::handle::Returned;
use super::leaf::{self, Era, LEAF_BYTES_MAX, LEAF_GRAIN, Leaf, LeafKey};
use super::marks::Restore;
use super::merge::{Group, Merged, NOTHING};
use super::pace::Steps;
use super::place::{Place, SLOT_BYTES};
use super::replay::{READ_AGAIN, READS_MAX};
use super::root::Root;
use super::segment::{Kind, Open, SLOT_GRAINS, Used, Zone};
use super::state::{LeafPlace, into_slots};
use super::{Inner, Phase, Request, Running, Sweeping, Usage};
use crate::canary::{Canary, makes};

/// How many leaves are merged, and read, at a time: 150 KiB.
pub(super) const STEP_LEAVES: usize = 32;

/// How many bytes of leaves are written at a time.
const BATCH_BYTES: usize = 256 << 10;

/// How long a checkpoint sweeps though something waits for it, unless a write of hosts waits.
///
/// Each checkpoint writes the state, which may take longer than many steps of a sweep.
const SWEEP_AT_LEAST: Duration = Duration::from_secs(1);

/// After the pool has not taken a zone back, the log keeps the others for this long: each attempt whose
/// commit fails costs a zone, until the pool is reopened.
const RETURN_AGAIN: Duration = Duration::from_secs(600);

/// How many leaves of the directory are looked at in one step: *est.* 0.3 ms. Hosts wait meanwhile.
const LOOK_LEAVES: usize = if cfg!(test) { 16 } else { 16 << 10 };

/// The merge is this part of a checkpoint, in thousandths; then leaves are evacuated, the state is encoded,
/// and the rest is writing it. Only hosts that write more than the checkpoint lets them depend on it.
const MERGE_PERMILLE: u64 = 500;
const EVACUATE_PERMILLE: u64 = 250;
const EVACUATED_PERMILLE: u64 = MERGE_PERMILLE + EVACUATE_PERMILLE;
const ENCODE_PERMILLE: u64 = 100;

/// Why a checkpoint did not complete.
#[derive(Debug, thiserror::Error)]
pub(super) enum CheckpointError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("no segment is left for the map")]
    NoSegment,
    #[error("the state is in too many pieces")]
    Scattered,
    #[error("the log was closed")]
    Closed,
}

/// Leaves that have been written, or are not needed any more.
type Written = Vec<(LeafKey, Option<(LeafPlace, Leaf)>)>;

/// The part of a checkpoint that frees what deleted volumes and snapshots have left.
struct Sweep {
    began: Instant,
    steps: Steps,
}

/// Leaves that are written together.
struct Batch {
    open: Open,
    bytes: Vec<u8>,
    leaves: Vec<(LeafKey, Usage, u32, Leaf)>,
}

impl Inner {
    /// Runs a checkpoint as a task. The caller has set the flag for it.
    pub(super) async fn run_checkpoint(self: Rc<Inner>) {
        let before = self.state.borrow().left_on_disk();
        let result = self.checkpoint().await;
        {
            let mut state = self.state.borrow_mut();
            state.checkpointing = false;
            state.checkpoints += 1;
        }
        match result {
            Ok(()) => {
                let returned = self.return_zones();
                self.sweep_on(returned);
                self.leave_on(before);
            }
            Err(CheckpointError::Closed) => return,
            Err(error) => self.fail("a checkpoint", &error),
        }
        self.settle();
    }

    pub(super) async fn checkpoint(self: &Rc<Inner>) -> Result<(), CheckpointError> {
        if self.state.borrow().sweeping == Sweeping::Leaves {
            let steps = self.state.borrow_mut().bound_sweep(&self.handle.tuning);
            let mut sweep = Sweep { began: rt::now(), steps };
            self.sweep_leaves(&mut sweep).await?;
            self.fold_snapshots(&mut sweep).await?;
        }
        let (below, sparse, is_awaited) = {
            let mut state = self.state.borrow_mut();
            let is_awaited = state.checkpoint_wanted;
            let below = state.freeze();
            state.bound_meanwhile(&self.handle.tuning);
            (below, state.segments_to_evacuate(), is_awaited)
        };
        // A full table may have kept hosts waiting, or the bounds of the sweep.
        self.advance(0);
        let oldest = || self.state.borrow().append.in_flight.first().copied();
        self.changed.until(|| oldest().is_none_or(|oldest| oldest >= below) || self.ends()).await;
        let mut again = READS_MAX - 1;
        let merged = self.merge(&mut again).await?;
        let evacuation = Steps::of_evacuation(merged, is_awaited);
        self.evacuate(&sparse, evacuation, &mut again).await?;
        let state_written = self.write_state().await?;
        if !makes(Canary::RootWithoutFlush) {
            self.flush_all().await?;
        }
        let root = state_written.root.clone();
        if makes(Canary::FreeBeforeRoot) {
            self.state.borrow_mut().rooted(state_written);
            return self.write_root(&root).await;
        }
        self.write_root(&root).await?;
        self.state.borrow_mut().rooted(state_written);
        Ok(())
    }

    fn ends(&self) -> bool {
        self.closing.get() || matches!(self.phase.get(), Phase::Failed | Phase::Refused)
    }

    /// Decides what the next checkpoint does about deleted volumes and snapshots. `returned`: this one has
    /// returned a zone.
    fn sweep_on(&self, returned: bool) {
        let (now, folds) = {
            let state = self.state.borrow();
            (state.sweeping, state.may_fold())
        };
        if now == Sweeping::Nothing && !folds {
            return;
        }
        let found = folds || !self.gone().is_empty();
        let mut state = self.state.borrow_mut();
        let spares = state.zone_to_return().is_some();
        state.sweeping = match now {
            _ if found => Sweeping::Leaves,
            // A checkpoint that returned none would be followed by another one forever.
            Sweeping::Leaves if spares => Sweeping::Zones,
            Sweeping::Zones if spares && returned => Sweeping::Zones,
            _ => Sweeping::Nothing,
        };
    }

    /// The leaves of deleted volumes that this checkpoint removes at most: as many as a full table may
    /// change.
    fn to_sweep(&self) -> Vec<LeafKey> {
        let gone = self.gone();
        let state = self.state.borrow();
        let all = |branch| (Era::first(branch), 0)..=(Era::new(branch, u32::MAX), u64::MAX);
        let leaves = gone.into_iter().flat_map(|branch| state.leaves.range(all(branch)));
        leaves.map(|(key, _)| *key).take(state.changes_max(&self.handle.tuning) / 2).collect()
    }

    /// Removes leaves of deleted volumes from the map. Nothing is frozen yet, so hosts write meanwhile.
    async fn sweep_leaves(self: &Rc<Inner>, sweep: &mut Sweep) -> Result<(), CheckpointError> {
        for keys in self.to_sweep().chunks(STEP_LEAVES) {
            if !self.sweeps_on(sweep)? {
                return Ok(());
            }
            let leaves = join_all(keys.iter().map(|key| self.leaf(*key))).await;
            for (key, leaf) in keys.iter().zip(leaves) {
                // Nobody misses the blocks of a leaf that cannot be read. The cleaner comes across their
                // slots.
                let leaf = match leaf {
                    Err(error @ DiskError::Latched) => return Err(error.into()),
                    Err(_) => None,
                    Ok(leaf) => leaf,
                };
                self.state.borrow_mut().sweep_away(*key, leaf.as_ref());
            }
            self.end_step(sweep).await;
        }
        Ok(())
    }

    /// Whether a sweep makes another step.
    fn sweeps_on(&self, sweep: &Sweep) -> Result<bool, CheckpointError> {
        if self.ends() {
            return Err(CheckpointError::Closed);
        }
        let has_time = rt::now() - sweep.began < SWEEP_AT_LEAST;
        Ok(self.state.borrow().sweeps_on(&sweep.steps, has_time, &self.handle.tuning))
    }

    /// Called after each step of a sweep.
    async fn end_step(self: &Rc<Inner>, sweep: &mut Sweep) {
        sweep.steps.done += 1;
        self.advance(sweep.steps.permille());
        // In a log without a free segment, hosts' writes wait for what the cleaner gains from this step, and
        // nothing else would end the sweep for them.
        self.tend();
        // Leaves that are in memory have not waited for anything.
        rt::next_turn().await;
    }

    /// Lets hosts and the cleaner write what they may write now that the checkpoint has got this far.
    fn advance(self: &Rc<Inner>, permille: u64) {
        if self.state.borrow_mut().advance(permille) && self.goes_on() {
            self.changed.notify();
            self.pump();
        }
    }

    /// Merges the frozen table. Returns how many leaves it has written.
    async fn merge(self: &Rc<Inner>, again: &mut u32) -> Result<usize, CheckpointError> {
        // Which zone was being emptied before a crash is not known.
        let recovers = self.phase.get() == Phase::Opening;
        let left = self.handle.leaving().filter(|_| recovers);
        let mut others: Vec<LeafKey> = self.state.borrow().mending.keys().copied().collect();
        others.sort_unstable_by_key(|(era, number)| Reverse((era.branch, *number, era.number)));
        let entries = |of: &dyn Fn(&Changes) -> usize| self.state.borrow().frozen.as_ref().map_or(0, of);
        let (all, mut done) = ((entries(&Changes::entries) + others.len()).max(1), 0);
        let (mut from, mut written) = ((0, 0), 0);
        loop {
            if self.ends() {
                return Err(CheckpointError::Closed);
            }
            let groups = self.state.borrow().next_groups(from, &mut others);
            let Some(last) = groups.last() else { return Ok(written) };
            from = (last.key.0, last.key.1 + 1);
            // A leaf that a range of zeros changes, or that is only written again, has no entry.
            let weight = |group: &Group| entries(&|frozen: &Changes| frozen.entries_of(group.key)).max(1);
            done += groups.iter().map(weight).sum::<usize>();
            written += self.merge_groups(groups, left, again).await?;
            self.advance(done.min(all) as u64 * MERGE_PERMILLE / all as u64);
            // Leaves that are in memory and are only removed have not waited for anything.
            rt::next_turn().await;
        }
    }

    /// Writes leaves of map segments that are mostly empty, or in a zone that is being emptied, somewhere
    /// else.
    ///
    /// All of them may be hundreds of steps of the disk, for which hosts would wait. So if they do, it writes
    /// no more of them than keep the map from growing.
    async fn evacuate(
        self: &Rc<Inner>,
        segments: &[u32],
        mut steps: Steps,
        again: &mut u32,
    ) -> Result<(), CheckpointError> {
        // A recovery takes no longer than it must.
        if self.phase.get() == Phase::Opening {
            return Ok(());
        }
        for keys in self.to_evacuate(segments).await {
            for keys in keys.chunks(STEP_LEAVES) {
                if self.ends() {
                    return Err(CheckpointError::Closed);
                }
                if !self.state.borrow().evacuates_on(&steps, keys) {
                    return Ok(());
                }
                let groups = keys.iter().map(|key| Group::evacuated(*key)).collect();
                self.merge_groups(groups, None, again).await?;
                steps.done += keys.len();
                self.advance(MERGE_PERMILLE + EVACUATE_PERMILLE * steps.permille() / 1000);
                // Leaves that are in memory and are only removed have not waited for anything.
                rt::next_turn().await;
            }
        }
        Ok(())
    }

    /// Merges groups, and writes the leaves that have changed. Returns how many it has written.
    async fn merge_groups(
        &self,
        mut groups: Vec<Group>,
        left: Option<u16>,
        again: &mut u32,
    ) -> Result<usize, CheckpointError> {
        self.look_beneath(&mut groups, again).await?;
        for round in 0.. {
            let unread: Vec<(usize, u32)> = {
                let state = self.state.borrow();
                let of = |(index, group): (usize, &Group)| {
                    state.unread(group).into_iter().map(move |era| (index, era))
                };
                groups.iter().enumerate().flat_map(of).collect()
            };
            if unread.is_empty() {
                break;
            }
            // A search takes a round for each leaf, and those in memory do not wait for anything.
            if round > 0 {
                rt::next_turn().await;
            }
            let keys: Vec<LeafKey> = unread.iter().map(|(index, era)| groups[*index].leaf(*era)).collect();
            let leaves = self.read_leaves(&keys, again).await;
            for ((index, era), leaf) in unread.into_iter().zip(leaves) {
                let group = &mut groups[index];
                match leaf {
                    Ok(leaf) => {
                        let spots = leaf.map_or(NOTHING, |leaf| leaf.spots());
                        self.state.borrow().keep(group, era, spots);
                    }
                    Err(error @ DiskError::Latched) => return Err(error.into()),
                    Err(error) => drop(group.unreadable.insert(era, error)),
                }
            }
        }
        // Snapshots may be deleted while leaves are read, so nothing must come in between.
        let merged: Vec<Merged> = {
            let mut state = self.state.borrow_mut();
            state.leave_outdated(&mut groups);
            let merge = |mut group: Group| {
                let is_gone = !self.handle.has_branch(group.key.0);
                for (era, error) in state.leave_unread(&mut group, left, is_gone) {
                    // Nobody misses what a deleted volume had there, or a snapshot that nobody needs.
                    let (branch, leaf) = group.key;
                    let is_line = state.marks.is_line(branch, era);
                    if !is_gone && (is_line || state.marks.heir(branch, era).snapshot.is_some()) {
                        let log = self.handle.number;
                        tracing::error!(log, branch, era, leaf, %error, "a part of the map is lost: its blocks cannot be read until they are written again");
                    }
                    state.lose(&mut group, era, self.handle.blocks_of(branch));
                }
                state.merged(group, is_gone)
            };
            groups.into_iter().map(merge).collect()
        };
        self.write_leaves(merged).await
    }

    /// Looks which blocks the snapshots have that clones are read through, where clones are unmapped.
    async fn look_beneath(&self, groups: &mut [Group], again: &mut u32) -> Result<(), CheckpointError> {
        let beneath: Vec<(usize, LeafKey)> = {
            let state = self.state.borrow();
            let of = |(index, group): (usize, &Group)| {
                state.leaves_beneath(group).into_iter().map(move |key| (index, key))
            };
            groups.iter().enumerate().flat_map(of).collect()
        };
        if beneath.is_empty() {
            return Ok(());
        }
        let keys: Vec<LeafKey> = beneath.iter().map(|(_, key)| *key).collect();
        let leaves = self.read_leaves(&keys, again).await;
        for ((index, _), leaf) in beneath.into_iter().zip(leaves) {
            match leaf {
                Ok(leaf) => groups[index].lies_over(&leaf.map_or(NOTHING, |leaf| leaf.spots())),
                Err(error @ DiskError::Latched) => return Err(error.into()),
                Err(_) => groups[index].hides_all = true,
            }
        }
        Ok(())
    }

    /// Frees what deleted snapshots held. Nothing is frozen yet, so hosts write meanwhile.
    async fn fold_snapshots(self: &Rc<Inner>, sweep: &mut Sweep) -> Result<(), CheckpointError> {
        let mut again = READS_MAX - 1;
        let mut left = self.state.borrow().changes_max(&self.handle.tuning) / 2;
        while left > 0 {
            if !self.sweeps_on(sweep)? {
                return Ok(());
            }
            let groups = {
                let mut state = self.state.borrow_mut();
                let groups = state.next_to_fold();
                if groups.is_empty() { state.next_to_settle() } else { Some(groups) }
            };
            let Some(groups) = groups else { return Ok(()) };
            if groups.is_empty() {
                // It has looked at some leaves, of which nothing is to be freed.
                self.end_step(sweep).await;
                continue;
            }
            left = left.saturating_sub(groups.len());
            self.merge_groups(groups, None, &mut again).await?;
            self.state.borrow_mut().exhausted = false;
            self.end_step(sweep).await;
        }
        Ok(())
    }

    /// The leaves in each of these segments that can be evacuated: not if one there could not be read.
    async fn to_evacuate(&self, segments: &[u32]) -> Vec<Vec<LeafKey>> {
        let segments: Vec<u32> = {
            let state = self.state.borrow();
            let can_be = |segment: &&u32| {
                state.segments.used.get(*segment).is_some_and(|used| used.live > 0 && !used.stuck)
            };
            segments.iter().filter(can_be).copied().collect()
        };
        let (mut keys, mut from) = (vec![Vec::new(); segments.len()], Bound::Unbounded);
        while !segments.is_empty() && !self.ends() {
            // Only a checkpoint changes the directory.
            let last = {
                let state = self.state.borrow();
                let mut last = None;
                for (key, place) in state.leaves.range((from, Bound::Unbounded)).take(LOOK_LEAVES) {
                    if let Some(index) = segments.iter().position(|segment| *segment == place.segment) {
                        keys[index].push(*key);
                    }
                    last = Some(*key);
                }
                last
            };
            let Some(last) = last else { break };
            from = Bound::Excluded(last);
            rt::next_turn().await;
        }
        keys
    }

    /// Reads leaves.
    ///
    /// What is lost with a leaf is lost for good, and a read failure may be temporary: these are read again,
    /// `again` times at most.
    async fn read_leaves(&self, keys: &[LeafKey], again: &mut u32) -> Vec<Result<Option<Leaf>, DiskError>> {
        let mut leaves = join_all(keys.iter().map(|key| self.leaf(*key))).await;
        while *again > 0 && leaves.iter().any(is_unread) && !self.ends() {
            *again -= 1;
            rt::sleep(READ_AGAIN).await;
            for (key, leaf) in keys.iter().zip(&mut leaves) {
                if is_unread(leaf) {
                    *leaf = self.leaf(*key).await;
                }
            }
        }
        leaves
    }

    /// Writes leaves. Then all of them take effect at once: reads of a snapshot find a block in the one or
    /// the other. Returns how many there are, without those that are not needed any more.
    async fn write_leaves(&self, merged: Vec<Merged>) -> Result<usize, CheckpointError> {
        let mut batch: Option<Batch> = None;
        let mut written = Written::new();
        for (key, spots) in merged.iter().flat_map(|group| &group.leaves) {
            if batch.as_ref().is_some_and(|batch| !batch.has_room(self.handle.slots())) {
                self.write_batch(batch.take(), &mut written).await?;
            }
            let open = match &batch {
                Some(batch) => batch.open,
                None => self.state.borrow_mut().open_map(LEAF_BYTES_MAX)?,
            };
            let Some(bytes) = leaf::encode(*key, open.generation, spots) else {
                written.push((*key, None));
                continue;
            };
            let whole = Leaf::check(&bytes, *key, open.generation).expect("it was just encoded");
            let mut used = Usage::default();
            let places = spots.iter().filter_map(|spot| spot.stored());
            places.for_each(|stored| used.add(Usage::of(stored.place.run(1))));
            let batch = batch.get_or_insert_with(|| Batch { open, bytes: Vec::new(), leaves: Vec::new() });
            batch.leaves.push((*key, used, batch.bytes.len() as u32, whole));
            batch.bytes.extend_from_slice(&bytes);
        }
        self.write_batch(batch, &mut written).await?;
        let count = written.iter().filter(|(_, place)| place.is_some()).count();
        let mut state = self.state.borrow_mut();
        written.into_iter().for_each(|(key, place)| state.take_in(key, place));
        merged.iter().for_each(|group| state.let_die(group));
        Ok(count)
    }

    async fn write_batch(&self, batch: Option<Batch>, written: &mut Written) -> Result<(), CheckpointError> {
        let Some(Batch { open, mut bytes, leaves }) = batch else { return Ok(()) };
        let len = bytes.len().next_multiple_of(SLOT_BYTES);
        bytes.resize(len, 0);
        let place = Place::new(open.segment, open.next);
        self.write_at(place, Buf::copy_of(&bytes).share(), Durability::Cached).await?;
        let mut state = self.state.borrow_mut();
        state.count_map(len as u64);
        if let Some(map) = &mut state.segments.map {
            map.next += (len / SLOT_BYTES) as u16;
        }
        for (key, used, at, leaf) in leaves {
            let at = u32::from(open.next) * SLOT_GRAINS + at / LEAF_GRAIN as u32;
            let (blocks, quarters) = (used.blocks as u16, used.quarters as u16);
            let len = (leaf.len() / LEAF_GRAIN) as u8;
            written.push((key, Some((LeafPlace { segment: open.segment, at, len, blocks, quarters }, leaf))));
        }
        Ok(())
    }

    /// Writes the state, and returns the root that names it.
    async fn write_state(self: &Rc<Inner>) -> Result<NewRoot, CheckpointError> {
        let (mut new, mut state) = self.state.borrow_mut().new_root(&self.handle)?;
        let expected = state.bytes.capacity().max(1);
        while !self.state.borrow().encode_more(&mut state) {
            let encoded = state.bytes.len().min(expected) as u64;
            self.advance(EVACUATED_PERMILLE + ENCODE_PERMILLE * encoded / expected as u64);
            rt::next_turn().await;
            if self.ends() {
                return Err(CheckpointError::Closed);
            }
        }
        new.name(&state);
        let pieces = new.pieces();
        let all = pieces.len() as u64;
        for ((place, slots), done) in pieces.into_iter().zip(1..) {
            if self.ends() {
                return Err(CheckpointError::Closed);
            }
            let bytes = into_slots(&state.bytes, new.root.number, slots).share();
            self.state.borrow_mut().count_map(bytes.len() as u64);
            self.write_at(place, bytes, Durability::Cached).await?;
            let before = EVACUATED_PERMILLE + ENCODE_PERMILLE;
            self.advance(before + (1000 - before) * done / all);
        }
        Ok(new)
    }

    async fn flush_all(self: &Rc<Inner>) -> Result<(), CheckpointError> {
        // Later records say what this flush has made durable.
        self.flush().await.map_err(|_| DiskError::Latched.into())
    }

    async fn write_root(&self, root: &Root) -> Result<(), CheckpointError> {
        let bytes = Buf::copy_of(&root.encode()).share();
        // Write both at once: if a power cut leaves neither intact, the previous root is still in the other
        // slots.
        let roots = self.handle.use_roots().await;
        // A mirror may have moved to a disk that was added since the log was opened.
        self.take_disks();
        let write = async |(disk, offset): (u16, u64)| {
            let disk = Rc::clone(self.disks.borrow().disk(disk));
            disk.write(offset + Root::offset(root.number), bytes.clone(), Durability::Durable).await
        };
        let written = join_all(roots.places.iter().copied().map(write)).await;
        written.into_iter().collect::<Result<(), DiskError>>()?;
        Ok(())
    }

    /// Returns the zones that no root names any more, and whether there were any.
    fn return_zones(self: &Rc<Inner>) -> bool {
        let leaving: BTreeMap<u32, Zone> = {
            let mut state = self.state.borrow_mut();
            let zones = state.segments.zones.iter().filter(|(_, zone)| zone.leaving);
            // A zone that is still being read has segments in use: it is returned after a later root.
            let unread = zones.filter(|(number, _)| state.segments.is_unused(**number));
            let unread: BTreeMap<u32, Zone> = unread.map(|(number, zone)| (*number, *zone)).collect();
            state.segments.zones.retain(|zone, _| !unread.contains_key(zone));
            unread
        };
        let found = !leaving.is_empty();
        for (zone, Zone { disk, offset, .. }) in leaving {
            // Remove it from the shared list at once, so that the log does not take the zone over again.
            self.handle.remove_zone(zone);
            let (reply, taken_back) = rt::sync::oneshot();
            self.state.borrow_mut().returning += 1;
            let (log, identity) = (self.handle.number, self.handle.identity);
            self.handle.lender.ask(Request::Return { log, identity, zone, reply });
            // The pool may be waiting for the log to end before it answers, so this must not keep it open.
            let (inner, handle) = (Rc::downgrade(self), Arc::clone(&self.handle));
            rt::spawn(async move {
                // Without an answer the pool is gone.
                let answer = taken_back.await.unwrap_or(Returned::Unknown);
                if answer == Returned::Kept {
                    // The log takes it over like one that was lent, when the bell is rung for it.
                    handle.keep_zone(zone, (disk, offset));
                }
                if let Some(inner) = inner.upgrade() {
                    {
                        let mut state = inner.state.borrow_mut();
                        state.returning -= 1;
                        if state.segments.on_leaving_disk() > 0 {
                            state.stock_changed = true;
                        }
                        if answer != Returned::Taken {
                            state.return_again_at = Some(rt::now() + RETURN_AGAIN);
                        }
                    }
                    inner.tend();
                }
            })
            .detach();
        }
        found
    }
}

/// Whether the disk did not read a leaf, and is not out of service.
fn is_unread(leaf: &Result<Option<Leaf>, DiskError>) -> bool {
    matches!(leaf, Err(error) if !matches!(error, DiskError::Latched))
}

impl Batch {
    /// Whether there is room for one more leaf of the largest size.
    fn has_room(&self, slots: u32) -> bool {
        let rest = (slots as usize - usize::from(self.open.next)) * SLOT_BYTES;
        self.bytes.len() + LEAF_BYTES_MAX <= rest.min(BATCH_BYTES)
    }
}

impl Running {
    /// Counts bytes of the map that are written.
    fn count_map(&mut self, bytes: u64) {
        self.written += bytes;
        self.written_map += bytes;
    }

    /// Directs changes to a new table from here on. Returns the first record that belongs to it.
    fn freeze(&mut self) -> u64 {
        self.checkpoint_wanted = false;
        self.since_freeze = 0;
        self.zeroed = 0;
        self.frozen_below = self.append.next;
        self.frozen = Some(std::mem::take(&mut self.active));
        self.frozen_replaced = std::mem::take(&mut self.replaced);
        self.deleted_at_freeze = self.marks.deleted().chain(self.marks.needless_lines()).collect();
        for open in [self.segments.hosts, self.segments.survivors].into_iter().flatten() {
            if let Some(used) = self.segments.used.get_mut(&open.segment) {
                used.replay_from = open.next;
            }
        }
        self.frozen_below
    }

    /// Map segments whose leaves are written elsewhere: those in a zone that is being emptied, and the
    /// emptiest ones of those that are mostly empty.
    fn segments_to_evacuate(&self) -> Vec<u32> {
        let grains = self.segments.slots * SLOT_GRAINS;
        let fits = |used: &Used| used.kind == Kind::Map && !used.open && !used.stuck && used.live > 0;
        let emptied = self.segments.emptied_zone().into_iter();
        let emptied = emptied.flat_map(|zone| self.segments.used_in(zone)).filter(|(_, used)| fits(used));
        let emptied = emptied.take(self.evacuated_max());
        let sealed = self.segments.used.iter().filter(|(_, used)| fits(used));
        let mut sparse: Vec<(u32, u32)> = sealed
            .filter(|(_, used)| used.live < grains / 2)
            .map(|(segment, used)| (used.live, *segment))
            .collect();
        sparse.sort_unstable();
        let sparse = sparse.into_iter().map(|(_, segment)| segment);
        let emptied: Vec<u32> = emptied.map(|(segment, _)| *segment).collect();
        let elsewhere = sparse.filter(|segment| !emptied.contains(segment));
        emptied.iter().copied().chain(elsewhere).take(EVACUATED_MAX).collect()
    }

    /// Applies a leaf that was written somewhere else, or is not needed any more.
    pub(super) fn take_in(&mut self, key: LeafKey, written: Option<(LeafPlace, Leaf)>) {
        if let Some(old) = self.leaves.remove(&key) {
            self.segments.remove_leaf(old.segment, old.len);
            self.let_go(key.0, &old);
        }
        self.cache.remove(key);
        self.mending.remove(&key);
        self.unfolded.remove(&key);
        if let Some((place, leaf)) = written {
            self.segments.add_leaf(place.segment, place.len);
            self.hold(key.0, &place);
            self.leaves.insert(key, place);
            self.cache.insert(key, leaf);
        }
    }

    /// Counts a leaf among those of its era.
    pub(super) fn hold(&mut self, era: Era, leaf: &LeafPlace) {
        let held = self.held.entry(era).or_default();
        held.leaves += 1;
        held.quarters += u64::from(leaf.quarters);
    }

    /// Counts it no more.
    fn let_go(&mut self, era: Era, leaf: &LeafPlace) {
        if let Some(held) = self.held.get_mut(&era) {
            held.leaves -= 1;
            held.quarters -= u64::from(leaf.quarters);
            if held.leaves == 0 {
                self.held.remove(&era);
            }
        }
    }

    /// Removes snapshots of which the log has nothing any more: those that had been deleted at the freeze,
    /// and those of deleted volumes. The same for restores. `is_there` says whether the volume of a branch
    /// exists.
    pub(super) fn remove_marks(&mut self, is_there: impl Fn(u32) -> bool) {
        if self.marks.is_empty() {
            return;
        }
        let (held, active, deleted) = (&self.held, &self.active, &self.deleted_at_freeze);
        self.marks.remove(|branch, mark| {
            let era = Era::new(branch, mark.era);
            // The record that says that it was taken is not replayed then, and does not bring it back.
            let is_deleted = deleted.contains(&era) || !is_there(branch);
            // Entries of the era would come to stand among those of the one before.
            is_deleted && !held.contains_key(&era) && !active.has_era(era)
        });
        let is_over = |(branch, restore): &(u32, &Restore)| {
            let era = Era::new(*branch, restore.era);
            let is_needless = deleted.contains(&era) || !is_there(*branch);
            let is_unused = !held.contains_key(&era) && !active.has_era(era);
            is_needless && is_unused && self.marks.of_line(*branch, restore.era).is_empty()
        };
        let over = self.marks.restores().filter(is_over);
        let over: BTreeSet<Era> = over.map(|(branch, restore)| Era::new(branch, restore.era)).collect();
        self.marks.remove_restores(|branch, restore| over.contains(&Era::new(branch, restore.era)));
        self.unsettled.extend(over.into_iter().map(|era| (era.branch, 0)));
        self.shorten_lines();
    }

    /// The open map segment if it has room for `bytes`, otherwise a new one.
    pub(super) fn open_map(&mut self, bytes: usize) -> Result<Open, CheckpointError> {
        if let Some(open) = self.segments.map
            && self.segments.rest(self.segments.map) as usize * SLOT_BYTES >= bytes
        {
            return Ok(open);
        }
        // If necessary, take an announced one: recovery finds no records in it.
        let announced = |state: &mut Running| state.segments.ready.pop_back().map(|(segment, _)| segment);
        let segment =
            self.segments.free.pop().or_else(|| announced(self)).ok_or(CheckpointError::NoSegment)?;
        let open = self.segments.begin(segment, rt::random(), Kind::Map);
        if let Some(full) = self.segments.map.replace(open) {
            self.segments.seal(full.segment);
        }
        Ok(open)
    }
}

#[cfg(test)]
mod tests {
    use base::ByteLen;

    use super::super::LogMemory;
    use super::super::tests::without_pool;
    use super::*;

    /// Before, it left the list at once. If the record of its deletion was not durable yet when the power
    /// failed, that of its taking brought it back, without what it had needed.
    #[test]
    fn a_snapshot_that_is_deleted_after_a_freeze_stays_in_the_list_until_the_next_one() {
        let mut state = without_pool(20, LogMemory::new(ByteLen(1 << 30)));
        state.freeze();
        let era = Era::new(1, state.marks.begin(1, 9, 0));
        state.marks.delete(era);
        state.remove_marks(|_| true);
        assert!(state.marks.has(era));
        state.freeze();
        state.remove_marks(|_| true);
        assert!(state.marks.is_empty());
    }
}
