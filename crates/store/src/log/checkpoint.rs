//! The checkpoint: merges the table of changes into the map, and writes a root.
//!
//! The table is frozen, and another one takes new changes. The frozen one is merged leaf by leaf, some leaves
//! at a time; then everything is flushed, and a root is written. Only then may segments that are no longer
//! needed be reused. A move by the cleaner counts only if the leaf still points at the old place: otherwise,
//! the block was written meanwhile, and its new place is dead, too.
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

use base::Buf;
use rt::{DiskError, Durability, join_all};

use super::announce::NewRoot;
use super::changes::{Changes, Move};
use super::emptying::EVACUATED_MAX;
use super::handle::Returned;
use super::leaf::{self, Era, GroupKey, LEAF_BLOCKS, LEAF_BYTES_MAX, LEAF_GRAIN, Leaf, LeafKey, Spots};
use super::place::{Place, SLOT_BYTES, SLOT_QUARTERS, Slots, Spot, Stored};
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

/// How long a checkpoint sweeps though something waits for it.
///
/// If it did not sweep at all then, a log that is always busy would never get rid of deleted volumes.
const SWEEP_AT_LEAST: Duration = Duration::from_secs(1);

/// After the pool has not taken a zone back, the log keeps the others for this long: each attempt whose
/// commit fails costs a zone, until the pool is reopened.
const RETURN_AGAIN: Duration = Duration::from_secs(600);

/// How many leaves of the directory are looked at in one step: *est.* 0.3 ms. Hosts wait meanwhile.
const LOOK_LEAVES: usize = if cfg!(test) { 16 } else { 16 << 10 };

/// The merge is this part of a checkpoint, in thousandths; then the state is encoded, and the rest is writing
/// it. Only hosts that write more than the checkpoint lets them depend on it.
const MERGE_PERMILLE: u64 = 750;
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

/// Leaves of a branch that map the same blocks. They change together: a block that is overwritten goes from
/// one to another.
#[derive(Default)]
struct Group {
    key: GroupKey,
    /// The frozen table has changes or moves of blocks of the branch.
    is_changed: bool,
    /// It has changes.
    is_written: bool,
    /// The eras of leaves that are written somewhere else in any case.
    forced: Vec<u32>,
    /// These are of deleted snapshots, and are folded.
    folds: bool,
    /// What the blocks of the leaves read as that have been read, by era.
    leaves: BTreeMap<u32, Box<Spots>>,
    /// The eras of leaves that were read in search of moved blocks, and name none. They are not kept: there
    /// may be a thousand, of 8 KiB each.
    searched: BTreeSet<u32>,
    /// Why leaves cannot be read, by era.
    unreadable: BTreeMap<u32, DiskError>,
    /// Leaves that cannot be read stay where they are.
    has_left: bool,
}

impl Group {
    fn leaf(&self, era: u32) -> LeafKey {
        (Era::new(self.key.0, era), self.key.1)
    }
}

const NOTHING: Spots = [Spot::Nothing; LEAF_BLOCKS as usize];

/// What the merge of a group changes.
#[derive(Default)]
struct Merged {
    branch: u32,
    /// The leaves that change. They have 8 KiB each, which would be copied with each move otherwise.
    leaves: Vec<(LeafKey, Box<Spots>)>,
    /// Slots that no leaf of the group points at any more, and what those of them take that were blocks which
    /// the branch no longer has.
    dead: Vec<Slots>,
    forgotten: Usage,
}

/// Leaves that have been written, or are not needed any more.
type Written = Vec<(LeafKey, Option<(LeafPlace, Leaf)>)>;

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
        self.sweep_leaves().await?;
        self.fold_snapshots().await?;
        let below = {
            let mut state = self.state.borrow_mut();
            let below = state.freeze();
            state.bound_meanwhile(&self.handle.tuning);
            below
        };
        let oldest = || self.state.borrow().append.in_flight.first().copied();
        self.changed.until(|| oldest().is_none_or(|oldest| oldest >= below) || self.ends()).await;
        self.merge().await?;
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
        if self.state.borrow().sweeping != Sweeping::Leaves {
            return Vec::new();
        }
        let gone = self.gone();
        let state = self.state.borrow();
        let all = |branch| (Era::first(branch), 0)..=(Era::new(branch, u32::MAX), u64::MAX);
        let leaves = gone.into_iter().flat_map(|branch| state.leaves.range(all(branch)));
        leaves.map(|(key, _)| *key).take(state.changes_max(&self.handle.tuning) / 2).collect()
    }

    /// Removes leaves of deleted volumes from the map. Nothing is frozen yet, so hosts write meanwhile.
    async fn sweep_leaves(self: &Rc<Inner>) -> Result<(), CheckpointError> {
        let began = rt::now();
        for keys in self.to_sweep().chunks(STEP_LEAVES) {
            if self.ends() {
                return Err(CheckpointError::Closed);
            }
            let is_waited_for = || self.state.borrow().is_checkpoint_due(&self.handle.tuning);
            if rt::now() - began >= SWEEP_AT_LEAST && is_waited_for() {
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
                let mut state = self.state.borrow_mut();
                let swept = state.swept(*key, leaf.as_ref());
                state.take_in(*key, None);
                state.exhausted &= swept.dead.is_empty();
                state.let_die(&swept);
            }
            // In a log without a free segment, hosts' writes wait for what the cleaner gains from these, and
            // nothing else would end the sweep for them.
            self.tend();
            // Leaves that are in memory have not waited for anything.
            rt::next_turn().await;
        }
        Ok(())
    }

    /// Lets hosts and the cleaner write what they may write now that the checkpoint has got this far.
    fn advance(self: &Rc<Inner>, permille: u64) {
        if self.state.borrow_mut().advance(permille) && self.goes_on() {
            self.changed.notify();
            self.pump();
        }
    }

    /// Merges the frozen table.
    async fn merge(self: &Rc<Inner>) -> Result<(), CheckpointError> {
        // Which zone was being emptied before a crash is not known.
        let recovers = self.phase.get() == Phase::Opening;
        let left = self.handle.leaving().filter(|_| recovers);
        let mut others = self.to_evacuate().await;
        others.extend(self.state.borrow().mending.keys());
        others.sort_unstable_by_key(|(era, number)| Reverse((era.branch, *number, era.number)));
        let entries = |of: &dyn Fn(&Changes) -> usize| self.state.borrow().frozen.as_ref().map_or(0, of);
        let (all, mut done) = ((entries(&Changes::entries) + others.len()).max(1), 0);
        let (mut from, mut again) = ((0, 0), READS_MAX - 1);
        loop {
            if self.ends() {
                return Err(CheckpointError::Closed);
            }
            let groups = self.state.borrow().next_groups(from, &mut others);
            let Some(last) = groups.last() else { return Ok(()) };
            from = (last.key.0, last.key.1 + 1);
            // A leaf that a range of zeros changes, or that is only written elsewhere, has no entry.
            let weight = |group: &Group| entries(&|frozen: &Changes| frozen.entries_of(group.key)).max(1);
            done += groups.iter().map(weight).sum::<usize>();
            self.merge_groups(groups, left, &mut again).await?;
            self.advance(done.min(all) as u64 * MERGE_PERMILLE / all as u64);
            // Leaves that are in memory and are only removed have not waited for anything.
            rt::next_turn().await;
        }
    }

    /// Merges groups, and writes the leaves that have changed.
    async fn merge_groups(
        &self,
        mut groups: Vec<Group>,
        left: Option<u16>,
        again: &mut u32,
    ) -> Result<(), CheckpointError> {
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
            let merge = |mut group: Group| {
                let is_gone = !self.handle.has_branch(group.key.0);
                for (era, error) in state.leave_unread(&mut group, left, is_gone) {
                    // Nobody misses what a deleted volume had there, or a snapshot that nobody needs.
                    let (branch, leaf) = group.key;
                    if !is_gone && (era == 0 || state.marks.keeper(branch, era).is_some()) {
                        let log = self.handle.number;
                        tracing::error!(log, branch, era, leaf, %error, "a part of the map is lost: its blocks cannot be read until they are written again");
                    }
                    state.lose(&mut group, era);
                }
                state.merged(group, is_gone)
            };
            groups.into_iter().map(merge).collect()
        };
        self.write_leaves(merged).await
    }

    /// Frees what deleted snapshots held. Nothing is frozen yet, so hosts write meanwhile.
    async fn fold_snapshots(self: &Rc<Inner>) -> Result<(), CheckpointError> {
        if self.state.borrow().sweeping != Sweeping::Leaves {
            return Ok(());
        }
        let began = rt::now();
        let mut again = READS_MAX - 1;
        let mut left = self.state.borrow().changes_max(&self.handle.tuning) / 2;
        while left > 0 {
            if self.ends() {
                return Err(CheckpointError::Closed);
            }
            let is_waited_for = || self.state.borrow().is_checkpoint_due(&self.handle.tuning);
            if rt::now() - began >= SWEEP_AT_LEAST && is_waited_for() {
                return Ok(());
            }
            let groups = self.state.borrow_mut().next_to_fold();
            if groups.is_empty() {
                return Ok(());
            }
            left = left.saturating_sub(groups.len());
            self.merge_groups(groups, None, &mut again).await?;
            self.state.borrow_mut().exhausted = false;
            // As for what deleted volumes have left.
            self.tend();
            rt::next_turn().await;
        }
        Ok(())
    }

    /// The leaves of map segments that are mostly empty, or in a zone that is being emptied. They are written
    /// elsewhere.
    async fn to_evacuate(&self) -> Vec<LeafKey> {
        let segments = self.state.borrow().segments_to_evacuate();
        let (mut keys, mut from) = (Vec::new(), Bound::Unbounded);
        while !segments.is_empty() && !self.ends() {
            // Only a checkpoint changes the directory.
            let last = {
                let state = self.state.borrow();
                let mut last = None;
                for (key, place) in state.leaves.range((from, Bound::Unbounded)).take(LOOK_LEAVES) {
                    if segments.contains(&place.segment) {
                        keys.push(*key);
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
    /// the other.
    async fn write_leaves(&self, merged: Vec<Merged>) -> Result<(), CheckpointError> {
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
        let mut state = self.state.borrow_mut();
        written.into_iter().for_each(|(key, place)| state.take_in(key, place));
        merged.iter().for_each(|group| state.let_die(group));
        Ok(())
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
            self.advance(MERGE_PERMILLE + ENCODE_PERMILLE * encoded / expected as u64);
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
            let before = MERGE_PERMILLE + ENCODE_PERMILLE;
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

/// Whether a block lies in this place.
fn is_at(spot: Spot, place: Place) -> bool {
    spot.stored().is_some_and(|stored| stored.place == place)
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
        self.deleted_at_freeze = self.marks.deleted().collect();
        for open in [self.segments.hosts, self.segments.survivors].into_iter().flatten() {
            if let Some(used) = self.segments.used.get_mut(&open.segment) {
                used.replay_from = open.next;
            }
        }
        self.frozen_below
    }

    /// Map segments whose leaves are written elsewhere: those in a zone that is being emptied, and the
    /// emptiest ones of those that are mostly empty.
    fn segments_to_evacuate(&self) -> BTreeSet<u32> {
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
        emptied.map(|(segment, _)| *segment).chain(sparse).take(EVACUATED_MAX).collect()
    }

    /// The next groups to be merged: those of which the frozen table changes a leaf, and those of `others`,
    /// the last one first.
    fn next_groups(&self, mut from: GroupKey, others: &mut Vec<LeafKey>) -> Vec<Group> {
        let of = |(era, number): LeafKey| (era.branch, number);
        let (mut groups, mut leaves) = (Vec::new(), 0);
        while leaves < STEP_LEAVES {
            let changed = self.frozen.as_ref().and_then(|frozen| frozen.next_group(from, &self.leaves));
            let other = others.last().map(|key| of(*key));
            let Some(key) = changed.into_iter().chain(other).min() else { break };
            let mut forced = Vec::new();
            while let Some((era, _)) = others.pop_if(|other| of(*other) == key) {
                forced.push(era.number);
            }
            let written = || self.frozen.as_ref()?.next_changed_group(key, &self.leaves);
            let is_changed = changed == Some(key);
            let is_written = is_changed && written() == Some(key);
            let group = Group { key, is_changed, is_written, forced, ..Group::default() };
            leaves += self.unread(&group).len();
            groups.push(group);
            from = (key.0, key.1 + 1);
        }
        groups
    }

    /// The eras of the leaves of a group that must be read next. None: it can be merged.
    fn unread(&self, group: &Group) -> Vec<u32> {
        if group.forced.is_empty() && self.marks.of(group.key.0).is_empty() {
            let is_done = !group.leaves.is_empty() || !group.unreadable.is_empty();
            return if is_done { Vec::new() } else { vec![0] };
        }
        let mut eras: BTreeSet<u32> = group.forced.iter().copied().collect();
        eras.extend(group.is_changed.then_some(0));
        eras.extend(self.eras_of_snapshots(group));
        eras.retain(|era| !group.leaves.contains_key(era) && !group.unreadable.contains_key(era));
        if eras.is_empty() {
            eras.extend(self.next_to_search(group));
        }
        eras.into_iter().collect()
    }

    /// The eras of the leaves of snapshots that may change with a group.
    ///
    /// What is overwritten goes to a snapshot, but only if neither it, nor a deleted one that is folded into
    /// it, has the block already. And deleted ones are folded together, because the oldest of them that has a
    /// block counts.
    fn eras_of_snapshots(&self, group: &Group) -> BTreeSet<u32> {
        let (branch, number) = group.key;
        let mut eras = BTreeSet::new();
        for keeper in self.keepers(group) {
            let deleted = self.marks.folded_into(branch, keeper);
            eras.extend(deleted.filter(|era| self.leaves.contains_key(&(Era::new(branch, *era), number))));
            eras.extend(keeper);
        }
        eras
    }

    /// The snapshots that get something of a group: what is overwritten, and what deleted ones had. `None`
    /// stands for nobody.
    ///
    /// A leaf of a deleted one that is only written somewhere else is not folded for that: the other one would
    /// have to be read and written, too.
    fn keepers(&self, group: &Group) -> BTreeSet<Option<u32>> {
        let (branch, number) = group.key;
        let frozen = self.frozen.as_ref().filter(|_| group.is_written);
        let written = frozen.into_iter().flat_map(|frozen| {
            frozen.eras(branch).filter(move |era| frozen.touches(*era, number)).map(|era| era.number)
        });
        let folded = group.forced.iter().copied().filter(|_| group.folds);
        written.chain(folded).map(|era| self.marks.keeper(branch, era)).collect()
    }

    /// The moves of a group of which no leaf that was read names the old place, though that is live: the era in
    /// which the block was written, and the move.
    ///
    /// Of a block that has died, the new place dies, too, whichever leaf named it.
    fn unowned(&self, group: &Group) -> impl Iterator<Item = (u32, Move)> {
        let moves =
            self.frozen.iter().filter(|_| group.is_changed).flat_map(|frozen| frozen.moves_of(group.key));
        let is_unowned = |(_, block, moved): &(u32, u64, Move)| {
            let index = (*block % LEAF_BLOCKS) as usize;
            self.segments.is_set(moved.from)
                && !group.leaves.values().any(|spots| is_at(spots[index], moved.from))
        };
        moves.filter(is_unowned).map(|(written, _, moved)| (written, moved))
    }

    /// The era of the next leaf of a group to be read because it may name a block that the cleaner has moved.
    fn next_to_search(&self, group: &Group) -> Option<u32> {
        let marks = self.marks.of(group.key.0);
        let is_unread = |era: &u32| {
            let is_known = group.leaves.contains_key(era) || group.searched.contains(era);
            !is_known && !group.unreadable.contains_key(era) && self.leaves.contains_key(&group.leaf(*era))
        };
        let mut unowned = self.unowned(group).filter(|_| !marks.is_empty());
        unowned.find_map(|(written, _)| {
            // It was overwritten in a later era than that in which it was written. If no leaf of these names
            // it, and none of the others does either, nothing does.
            let later = marks.partition_point(|mark| mark.era <= written);
            let mut eras = marks[later..].iter().chain(&marks[..later]).map(|mark| mark.era);
            eras.find(is_unread)
        })
    }

    /// Keeps what the blocks of a leaf of a group read as, unless it was only searched for moved blocks, and
    /// names none.
    fn keep(&self, group: &mut Group, era: u32, spots: Spots) {
        let key = group.key;
        let names = |block: u64, moved: Move| is_at(spots[(block % LEAF_BLOCKS) as usize], moved.from);
        let moves = |frozen: &Changes| frozen.moves_of(key).any(|(_, block, moved)| names(block, moved));
        let is_needed = era == 0 && group.is_changed
            || group.forced.contains(&era)
            || self.marks.of(key.0).is_empty()
            || self.eras_of_snapshots(group).contains(&era)
            || self.frozen.as_ref().is_some_and(moves);
        if is_needed {
            group.leaves.insert(era, Box::new(spots));
        } else {
            group.searched.insert(era);
        }
    }

    /// Whether deleted snapshots still have leaves, and may be folded.
    pub(super) fn has_to_fold(&self) -> bool {
        self.to_fold() > 0
    }

    /// The same, and there is room for leaves that get something.
    pub(super) fn may_fold(&self) -> bool {
        self.has_to_fold() && self.room_to_fold() > 0
    }

    /// How many leaves they have, or at least as many as a step folds.
    ///
    /// Asked for each record, so it does not count those of a thousand snapshots.
    pub(super) fn to_fold(&self) -> u64 {
        let (mut leaves, unfolded) = (0, self.unfolded.len() as u64);
        if !self.folding_paused {
            let mut held = self.marks.deleted().filter_map(|era| self.held.get(&era));
            while leaves < STEP_LEAVES as u64 + unfolded
                && let Some(held) = held.next()
            {
                leaves += held.leaves;
            }
        }
        leaves.saturating_sub(unfolded)
    }

    /// The next groups with leaves of deleted snapshots. None if there are too few segments for the leaves
    /// that would be written: those that the next root frees are needed first.
    fn next_to_fold(&mut self) -> Vec<Group> {
        let (mut groups, mut leaves) = (Vec::new(), 0);
        if !self.may_fold() {
            return groups;
        }
        // Of each group, one leaf is written at most.
        let most = self.room_to_fold();
        self.make_room_to_fold();
        for era in self.marks.deleted().filter(|era| self.held.contains_key(era)) {
            let keys = self.leaves.range((era, 0)..=(era, u64::MAX)).map(|(key, _)| *key);
            for (_, number) in keys.filter(|key| !self.unfolded.contains(key)) {
                if leaves >= STEP_LEAVES || groups.len() >= most {
                    break;
                }
                let (key, forced) = ((era.branch, number), vec![era.number]);
                let group = Group { key, forced, folds: true, ..Group::default() };
                leaves += self.unread(&group).len();
                groups.push(group);
            }
            if !groups.is_empty() {
                break;
            }
        }
        groups
    }

    /// The leaves of a group that change, after the changes of the frozen table. Of a volume that is gone,
    /// nothing is left.
    fn merged(&self, group: Group, is_gone: bool) -> Merged {
        let keepers = self.keepers(&group);
        let Group { key, forced, mut leaves, is_written, has_left, .. } = group;
        let (branch, number) = key;
        let first = number * LEAF_BLOCKS;
        let mut dead = Vec::new();
        let mut forgotten = Usage::default();
        let mut die = |stored: Stored| {
            Slots::add(&mut dead, stored.place);
            forgotten.add(Usage::of(stored.place.run(1)));
        };
        let mut changed: BTreeSet<u32> = forced.into_iter().collect();
        let mut moved_away = Vec::new();
        for (_, block, moved) in self.frozen.iter().flat_map(|frozen| frozen.moves_of(key)) {
            let index = (block - first) as usize;
            let owner = leaves.iter().find(|(_, spots)| is_at(spots[index], moved.from)).map(|(era, _)| *era);
            let owner = owner.filter(|_| self.segments.is_set(moved.from));
            let owner = owner.or(makes(Canary::MoveWithoutLooking).then_some(0));
            let owner = owner.and_then(|era| Some((era, leaves.get_mut(&era)?)));
            if let Some((era, spots)) = owner {
                spots[index] = Spot::At(moved.to);
                changed.insert(era);
                Slots::add(&mut moved_away, moved.from);
            } else if has_left && self.segments.is_set(moved.from) {
                // A leaf that stays may name the old place, and the new one has died already.
            } else {
                Slots::add(&mut moved_away, moved.to.place);
                if self.is_orphan(moved) {
                    Slots::add(&mut moved_away, moved.from);
                }
            }
        }
        // Of deleted snapshots, the one before gets what it does not have.
        for Era { number: deleted, .. } in self.marks.deleted_of(branch) {
            let keeper = self.marks.keeper(branch, deleted);
            if !keepers.contains(&keeper) {
                continue;
            }
            let Some(spots) = leaves.get_mut(&deleted) else { continue };
            let folded = std::mem::replace(&mut **spots, NOTHING);
            changed.insert(deleted);
            let kept = keeper.and_then(|era| Some((era, leaves.get_mut(&era)?)));
            let Some((era, kept)) = kept else {
                folded.iter().filter_map(|spot| spot.stored()).for_each(&mut die);
                continue;
            };
            for (spot, kept) in folded.iter().zip(kept.iter_mut()) {
                let is_first = *kept == Spot::Nothing || makes(Canary::FoldOver);
                if is_first && *spot != Spot::Nothing {
                    *kept = *spot;
                    changed.insert(era);
                } else if let Some(stored) = spot.stored() {
                    die(stored);
                }
            }
        }
        if let Some(frozen) = self.frozen.as_ref().filter(|_| is_written)
            && let Some(mut now) = leaves.remove(&0)
        {
            changed.insert(0);
            for era in frozen.eras(branch) {
                let before = *now;
                frozen.overlay(era, first, &mut now[..]);
                let keeper = if is_gone { None } else { self.marks.keeper(branch, era.number) };
                let mut kept = keeper.and_then(|era| Some((era, leaves.get_mut(&era)?)));
                for (index, (old, new)) in before.iter().zip(now.iter()).enumerate() {
                    if old == new {
                        continue;
                    }
                    match &mut kept {
                        // The first time that it is overwritten since the snapshot.
                        Some((era, kept)) if kept[index] == Spot::Nothing => {
                            kept[index] = if *old == Spot::Nothing { Spot::Zeros } else { *old };
                            changed.insert(*era);
                            if !makes(Canary::FreeKept) {
                                continue;
                            }
                        }
                        _ => {}
                    }
                    old.stored().into_iter().for_each(&mut die);
                }
            }
            leaves.insert(0, now);
        }
        if is_gone {
            // The last records of the volume may have completed after it was deleted.
            for (era, spots) in &mut leaves {
                let merged = std::mem::replace(&mut **spots, NOTHING);
                merged.iter().filter_map(|spot| spot.stored()).for_each(&mut die);
                changed.insert(*era);
            }
        }
        dead.append(&mut moved_away);
        let leaves = leaves.into_iter().filter(|(era, _)| changed.contains(era));
        let leaves = leaves.map(|(era, spots)| ((Era::new(branch, era), number), spots)).collect();
        Merged { branch, leaves, dead, forgotten }
    }

    /// What is left of a leaf whose volume was deleted: nothing. `leaf` is `None` if it cannot be read.
    fn swept(&self, key: LeafKey, leaf: Option<&Leaf>) -> Merged {
        let mut dead = Vec::new();
        let stored = leaf.into_iter().flat_map(Leaf::spots).filter_map(Spot::stored);
        stored.for_each(|stored| Slots::add(&mut dead, stored.place));
        let known = self.leaves.get(&key);
        let forgotten = known.map_or_else(Usage::default, |place| Usage {
            blocks: u64::from(place.blocks),
            quarters: u64::from(place.quarters),
        });
        Merged { branch: key.0.branch, leaves: Vec::new(), dead, forgotten }
    }

    /// The index of the disk on which a leaf lies.
    fn disk_of_leaf(&self, key: LeafKey) -> u16 {
        let segment = self.leaves.get(&key).and_then(|place| self.segments.locate(place.segment));
        segment.map_or(0, |(disk, _)| disk)
    }

    /// Whether the slot that a block was moved from is live although nothing points there, given that the
    /// leaf does not: a leaf that did was lost.
    ///
    /// Otherwise the block was overwritten, and merged, since the cleaner gathered it. Then the slot is dead;
    /// or its segment was freed, and holds what newer records than the move have written.
    fn is_orphan(&self, moved: Move) -> bool {
        let used = self.segments.used.get(&moved.from.segment);
        self.segments.is_set(moved.from) && used.is_some_and(|used| used.newest < moved.sequence)
    }

    /// Decides about the leaves of a group that cannot be read. Returns those that are lost.
    ///
    /// One that nothing changes but moves from a disk that is leaving stays where it is: it may be readable
    /// again some day. Its segment is not emptied until then, nor are those from which blocks were moved that
    /// it may name; these moves do not count. And what a deleted snapshot held can be freed later, unless
    /// nobody needs any of it.
    ///
    /// The moves are those from the zone that is being emptied; or, while the log recovers, those from this
    /// disk, which is leaving.
    fn leave_unread(
        &mut self,
        group: &mut Group,
        left: Option<u16>,
        is_gone: bool,
    ) -> BTreeMap<u32, DiskError> {
        let mut lost = std::mem::take(&mut group.unreadable);
        if lost.is_empty() || is_gone {
            return lost;
        }
        if group.folds {
            if self.keepers(group).contains(&None) {
                return lost;
            }
            let leaves: Vec<LeafKey> = group.forced.iter().map(|era| group.leaf(*era)).collect();
            self.unfolded.extend(leaves);
            *group = Group { key: group.key, ..Group::default() };
            return BTreeMap::new();
        }
        let moves: Vec<Move> = self.unowned(group).map(|(_, moved)| moved).collect();
        let is_left = |moved: &Move| {
            let disk = self.segments.locate(moved.from.segment).map(|(disk, _)| disk);
            left.is_some() && disk == left || self.is_emptied(moved.from.segment)
        };
        if !moves.iter().all(is_left) {
            return lost;
        }
        let mut changed = self.eras_of_snapshots(group);
        changed.extend(group.is_written.then_some(0));
        let staying = lost.extract_if(.., |era, _| !changed.contains(era));
        for era in staying.map(|(era, _)| era).collect::<Vec<u32>>() {
            group.has_left = true;
            let place = self
                .leaves
                .get(&group.leaf(era))
                .filter(|_| !moves.is_empty() || group.forced.contains(&era));
            if let Some(segment) = place.map(|place| place.segment) {
                self.segments.set_stuck(segment);
            }
            group.forced.retain(|forced| *forced != era);
        }
        for moved in moves.iter().filter(|_| group.has_left) {
            self.segments.clear(moved.to.place.run(1));
            // It has not been overwritten, and its segment is the same.
            if self.is_orphan(*moved) {
                self.segments.set_stuck(moved.from.segment);
            }
        }
        lost
    }

    /// Takes a leaf of a group for lost: it names no block any more. All of them count as its branch's,
    /// because none reads as zeros.
    fn lose(&mut self, group: &mut Group, era: u32) {
        let key = group.leaf(era);
        let (blocks, quarters) = self.leaves.get(&key).map_or((0, 0), |place| (place.blocks, place.quarters));
        self.used.entry(key.0.branch).or_default().add(Usage {
            blocks: LEAF_BLOCKS - u64::from(blocks),
            quarters: LEAF_BLOCKS * u64::from(SLOT_QUARTERS) - u64::from(quarters),
        });
        let lost = Spot::At(Stored::lost(self.disk_of_leaf(key)));
        group.leaves.insert(era, Box::new([lost; LEAF_BLOCKS as usize]));
        // Also if it was only searched: a moved block that it named dies in both places.
        group.forced.push(era);
    }

    /// Applies a leaf that was written somewhere else, or is not needed any more.
    fn take_in(&mut self, key: LeafKey, written: Option<(LeafPlace, Leaf)>) {
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

    /// Applies what has died with a merge.
    fn let_die(&mut self, merged: &Merged) {
        merged.dead.iter().for_each(|slots| self.segments.clear(*slots));
        self.forget(merged.branch, merged.forgotten);
    }

    /// Counts a leaf among those of its snapshot.
    pub(super) fn hold(&mut self, era: Era, leaf: &LeafPlace) {
        if era.number > 0 {
            let held = self.held.entry(era).or_default();
            held.leaves += 1;
            held.quarters += u64::from(leaf.quarters);
        }
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
    /// and those of deleted volumes. `is_there` says whether the volume of a branch exists.
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

    /// A log with a hundred snapshots of branch 1, each of which has a leaf, and a move of block 9 in the frozen
    /// table. All blocks lie in zone 0, leaves in zone 1.
    fn with_a_moved_block() -> (Running, Group) {
        let mut state = without_pool(20, LogMemory::new(ByteLen(1 << 30)));
        for (number, kind) in [(0, Kind::Data), (1, Kind::Map)] {
            state.segments.add_zone(number, Zone { disk: number as u16, offset: 0, leaving: false });
            state.segments.begin(number * state.segments.zone_segments, 7, kind);
        }
        let segment = state.segments.zone_segments;
        for slot in [5, 6] {
            state.segments.set(stored(slot).place.run(1));
        }
        for id in 1..=100 {
            let era = Era::new(1, state.marks.begin(1, id, 0));
            let place = LeafPlace { segment, at: 0, len: 2, blocks: 1, quarters: 4 };
            state.segments.add_leaf(segment, place.len);
            state.hold(era, &place);
            state.leaves.insert((era, 0), place);
        }
        let mut frozen = Changes::default();
        let moved = Move { from: stored(5).place, to: stored(6), sequence: 1 };
        frozen.moved(Era::new(1, 3), 9, moved);
        state.frozen = Some(frozen);
        let groups = state.next_groups((0, 0), &mut Vec::new());
        assert_eq!(groups.len(), 1);
        (state, groups.into_iter().next().unwrap())
    }

    fn stored(slot: u16) -> Stored {
        Stored { place: Place::new(0, slot), crc: 0 }
    }

    /// Reads what must be read of a group before it is merged: the block is in the leaf of era `found`, and
    /// that of era 50 cannot be read. Returns the eras that were read.
    fn read_all(state: &Running, group: &mut Group, found: u32) -> Vec<u32> {
        let mut read = Vec::new();
        loop {
            let unread = state.unread(group);
            if unread.is_empty() {
                return read;
            }
            read.extend(&unread);
            for era in unread {
                let mut spots = NOTHING;
                if era == found {
                    spots[9] = Spot::At(stored(5));
                }
                if era == 50 {
                    group.unreadable.insert(era, DiskError::Media(std::io::ErrorKind::InvalidData.into()));
                } else {
                    state.keep(group, era, spots);
                }
            }
        }
    }

    fn eras(merged: &Merged) -> Vec<u32> {
        merged.leaves.iter().map(|((era, _), _)| era.number).collect()
    }

    /// Before, all leaves were kept that a search had come across, up to a thousand of 8 KiB for each group.
    /// And one that could not be read was lost, although another one had the block.
    #[test]
    fn a_search_for_moved_blocks_keeps_only_leaves_that_name_them() {
        let (mut state, mut group) = with_a_moved_block();
        let read = read_all(&state, &mut group, 80);
        assert_eq!(read, std::iter::once(0).chain(4..=80).collect::<Vec<u32>>());
        assert_eq!(group.leaves.keys().copied().collect::<Vec<u32>>(), [0, 80]);
        assert!(state.leave_unread(&mut group, None, false).is_empty());
        assert_eq!(eras(&state.merged(group, false)), [80]);
        assert_eq!(state.segments.stuck, 0);
    }

    /// No other leaf has the block: it dies in both places, so the leaf must not be read any more. But if it
    /// was moved because its disk is leaving, everything stays as it is.
    #[test]
    fn a_leaf_that_may_name_a_moved_block_is_lost_or_left() {
        for leaves in [false, true] {
            let (mut state, mut group) = with_a_moved_block();
            if leaves {
                assert!(state.segments.set_leaving_disk(Some(0)));
                state.segments.retire_zone(0);
            }
            let read = read_all(&state, &mut group, u32::MAX);
            assert_eq!(read.len(), 101, "it may be anywhere");
            let lost = state.leave_unread(&mut group, None, false);
            assert_eq!(lost.is_empty(), leaves);
            lost.into_keys().for_each(|era| state.lose(&mut group, era));
            let merged = state.merged(group, false);
            assert_eq!(eras(&merged), if leaves { vec![] } else { vec![50] });
            state.let_die(&merged);
            assert_eq!(state.segments.is_set(stored(5).place), leaves);
            assert!(!state.segments.is_set(stored(6).place));
            assert_eq!(state.segments.stuck, if leaves { 2 } else { 0 });
        }
    }

    /// What a deleted snapshot had goes to another one, which would be lost for that.
    #[test]
    fn a_leaf_that_cannot_be_read_is_not_lost_for_a_deleted_snapshot() {
        let (mut state, _) = with_a_moved_block();
        state.frozen = None;
        state.segments.free = (100..200).collect();
        for deleted in [51, 61] {
            state.marks.delete(Era::new(1, deleted));
        }
        let mut folded = Vec::new();
        while let Some(mut group) = state.next_to_fold().pop() {
            read_all(&state, &mut group, u32::MAX);
            assert!(state.leave_unread(&mut group, None, false).is_empty());
            for (key, _) in state.merged(group, false).leaves {
                folded.push(key.0.number);
                state.take_in(key, None);
            }
        }
        assert_eq!(folded, [61], "that of era 60 gets its blocks");
        assert!(!state.has_to_fold(), "the other one is not tried again and again");
        assert!(state.held.contains_key(&Era::new(1, 51)));
    }

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
