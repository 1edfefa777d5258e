//! The invariants of a log, checked from outside: for tests and simulations, in debug builds.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use rt::DiskError;

use super::leaf::{Era, LEAF_BLOCKS, Leaf, LeafKey, Spots};
use super::merge::NOTHING;
use super::place::{Place, Spot};
use super::segment::Kind;
use super::space::{ANNOUNCED_EXTRA, CONTROL_SEGMENTS};
use super::{Held, Inner, Log, Phase, Running, Sweeping, Usage};
use crate::slice::{Layout, Slice};

/// Longest time until a log that nobody uses is at rest.
const RESTS_WITHIN: Duration = Duration::from_secs(30);
/// Longest time until it has merged everything.
#[cfg(test)]
const MERGES_WITHIN: Duration = Duration::from_secs(3 * 3600);
/// How often to check.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Segments that a recovery scans at most, besides those that the replay bytes fill: those that are announced
/// in addition, as many for what is written while a checkpoint is made, and one of each stream that was open
/// when it began.
const SCANNED_EXTRA: u64 = 2 * ANNOUNCED_EXTRA + 2;
/// How often leaves are read at most: a merge may begin meanwhile, after which nothing is left to merge.
const READS_MAX: usize = 3;

impl Slice {
    /// Checks the invariants of the log that the slice lies in, if there is one, once it is at rest: nobody
    /// may use it meanwhile, and its disks must have no faults. Exists in debug builds only.
    ///
    /// # Panics
    /// If an invariant does not hold, or the log never comes to rest.
    pub async fn check_log(&self) {
        let log = match &*self.layout() {
            Layout::Log(slice) => Rc::clone(slice.log()),
            Layout::Thick(_) | Layout::Ram(_) => return,
        };
        log.check().await;
    }
}

/// What was read of leaves.
type Leaves = BTreeMap<LeafKey, Result<Option<Leaf>, DiskError>>;

impl Log {
    /// Waits until the log is idle. There may be something that it merges if it stays so: see `merged`.
    pub(crate) async fn rest(&self) {
        let until = rt::now() + RESTS_WITHIN;
        while !self.is_idle() {
            assert!(rt::now() < until, "the log never comes to rest: {}", self.at_what());
            rt::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until the log has merged everything, as it does when hosts leave it alone.
    #[cfg(test)]
    pub(crate) async fn merged(&self) {
        let until = rt::now() + MERGES_WITHIN;
        while !self.is_idle() || self.inner.state.borrow().is_unmerged() {
            assert!(rt::now() < until, "the log never merges: {}", self.at_what());
            rt::sleep(LOOK_EVERY).await;
        }
    }

    /// Checks I2, I3, I9 and I14 of the design once the log is idle, and what can be seen then of I4 (what
    /// the root needs is in use), of I6 (there is a segment for whatever makes room) and of I8 (leaves and
    /// tables). Reads leaves that are not in memory.
    pub(crate) async fn check(&self) {
        for _ in 0..READS_MAX {
            self.rest().await;
            let root = self.inner.state.borrow().root;
            let leaves = self.inner.all_leaves().await;
            if self.is_idle() && self.inner.state.borrow().root == root {
                self.inner.check(leaves);
                return;
            }
        }
        panic!("the log is not at rest: {}", self.at_what());
    }

    #[cfg(test)]
    pub(crate) fn handle(&self) -> std::sync::Arc<super::LogHandle> {
        std::sync::Arc::clone(&self.inner.handle)
    }

    /// Describes what the log is doing: for tests that wait for it to become idle.
    pub(crate) fn at_what(&self) -> String {
        let state = self.inner.state.borrow();
        let segments = &state.segments;
        format!(
            "{:?} data {} control {} in flight {:?} credit {} since {} checkpointing {} cleaning {} asking {} idle {} checkpoints {} total {} free {} ready {} used {} live {} map {} need {} active {} frozen {:?} exhausted {} wanted {} rest {} {} expected {} segments {:?}",
            self.inner.phase.get(),
            state.append.has_data(),
            state.append.has_control(),
            state.append.in_flight,
            state.credit,
            state.since_freeze,
            state.checkpointing,
            state.cleaning,
            state.asking,
            state.append.is_idle(),
            state.checkpoints,
            segments.total(),
            segments.free.len(),
            segments.ready.len(),
            segments.used.len(),
            state.live_quarters(),
            segments.live_map,
            state.map_need(),
            state.active.len(),
            state.frozen.as_ref().map(super::Changes::len),
            state.exhausted,
            state.checkpoint_wanted,
            segments.rest(segments.hosts),
            segments.rest(segments.survivors),
            state.append.expected,
            segments
                .used
                .iter()
                .map(|(segment, used)| (*segment, used.kind, used.live, used.open, used.cleaned, used.newest))
                .collect::<Vec<_>>(),
        )
    }

    pub(crate) fn is_idle(&self) -> bool {
        let state = self.inner.state.borrow();
        // A log that nobody has read yet may still be recovered, which ends with a checkpoint.
        self.inner.phase.get() != Phase::Opening
            && state.append.is_idle()
            && !state.append.pumping
            && !state.checkpointing
            && !state.cleaning
            && !state.asking
            && state.sweeping == Sweeping::Nothing
    }
}

impl Inner {
    async fn all_leaves(&self) -> Leaves {
        self.take_origins();
        let keys: Vec<_> = self.state.borrow().leaves.keys().copied().collect();
        let mut leaves = Leaves::new();
        for key in keys {
            leaves.insert(key, self.leaf(key).await);
        }
        leaves
    }

    fn check(&self, leaves: Leaves) {
        let state = self.state.borrow();
        // By segment and quarter.
        let mut owners: BTreeMap<(u32, u32), &str> = BTreeMap::new();
        let mut places = Vec::new();
        let mut own = |place: Place, owner: &'static str| {
            for quarter in place.quarter()..place.quarter() + place.size().quarters() {
                if let Some(other) = owners.insert((place.segment, quarter), owner) {
                    panic!("{place:?} belongs to {owner} and to {other}");
                }
            }
            places.push(place);
        };
        let mut held: BTreeMap<Era, Held> = BTreeMap::new();
        let mut used: BTreeMap<u32, Usage> = BTreeMap::new();
        let mut spots_of_bare = BTreeMap::new();
        let mut grains: BTreeMap<u32, u32> = BTreeMap::new();
        for (key, leaf) in leaves {
            let leaf: Leaf = leaf.expect("no fault").expect("it is in the directory");
            let spots = leaf.spots();
            let stored: Vec<Place> =
                spots.iter().filter_map(|spot| spot.stored()).map(|stored| stored.place).collect();
            let known = state.leaves[&key];
            assert_eq!(stored.len(), usize::from(known.blocks));
            let quarters: u32 = stored.iter().map(|place| place.size().quarters()).sum();
            assert_eq!(quarters, u32::from(known.quarters));
            if key.0.number > 0 {
                assert!(state.marks.has(key.0), "{key:?} is of no snapshot, nor a line");
            }
            *grains.entry(known.segment).or_default() += u32::from(known.len);
            let taken = Usage { blocks: u64::from(known.blocks), quarters: u64::from(quarters) };
            used.entry(key.0.branch).or_default().add(taken);
            if state.marks.is_bare(key.0.branch) {
                spots_of_bare.insert((key.0.branch, key.1), Box::new(spots));
            }
            let held = held.entry(key.0).or_default();
            (held.leaves, held.quarters) = (held.leaves + 1, held.quarters + u64::from(quarters));
            stored.into_iter().for_each(|place| own(place, "a leaf"));
        }
        // I9: what a clone is read through is there, and nobody takes anything of it.
        assert!(state.marks.knows_clones(&self.handle.origins()), "the log and the catalog differ in clones");
        for (clone, origin) in state.marks.origins() {
            assert!(origin.branch < clone && state.marks.has(origin), "{clone} is a clone of {origin:?}");
            assert!(self.handle.has_branch(origin.branch), "the volume of {origin:?} is gone");
            assert!(state.marks.deleted().all(|era| era != origin), "{origin:?} is being freed");
            assert!(state.marks.hidden(origin.branch).all(|era| era != origin.number), "{origin:?} hands on");
        }
        for table in state.tables() {
            table.places().into_iter().for_each(|place| own(place, "a table"));
        }
        // I2: each version has its bit, and each bit an owner. (No merge is under way.)
        for place in &places {
            assert!(state.segments.is_set(*place), "the bit of {place:?} is clear");
        }
        let mut live = 0;
        let mut packed = 0;
        let mut live_map = 0;
        for (segment, used) in &state.segments.used {
            let set: u32 = used.bits.iter().map(|word| word.count_ones()).sum();
            let set = set * used.quarters_per_bit();
            packed += u64::from(used.packed);
            match used.kind {
                Kind::Data => {
                    assert_eq!(used.live, set, "segment {segment}");
                    live += u64::from(set);
                    let owned = owners.range((*segment, 0)..=(*segment, u32::MAX)).count();
                    assert_eq!(owned, set as usize, "segment {segment} has bits that nobody owns");
                }
                Kind::Map => {
                    // I4: leaves lie in segments that are in use for the map, and in no others.
                    assert_eq!(used.live, grains.remove(segment).unwrap_or_default(), "segment {segment}");
                    live_map += u64::from(used.live);
                }
            }
        }
        assert_eq!((live, live_map), (state.segments.live, state.segments.live_map), "I3");
        assert_eq!(packed, state.segments.packed);
        assert!(grains.is_empty(), "leaves in segments that are not in use: {grains:?}");
        for run in state.runs.iter().flatten() {
            let kind = state.segments.used.get(&run.segment).map(|used| used.kind);
            assert_eq!(kind, Some(Kind::Map), "the state lies in segment {}", run.segment);
        }
        assert_eq!(state.held, held, "what eras hold");
        // I3: what branches take.
        let all: u64 = state.used.values().map(|used| used.quarters).sum();
        assert_eq!((all, state.used_by_all), (state.live_quarters(), all));
        state.check_figures(&used, spots_of_bare);
        // Each segment is in exactly one list.
        let segments = &state.segments;
        let mut seen = BTreeSet::new();
        let ready = segments.ready.iter().map(|(segment, _)| segment);
        for segment in segments.free.iter().chain(ready).chain(segments.used.keys()) {
            assert!(seen.insert(*segment), "segment {segment} is in two lists");
            assert!(segments.locate(*segment).is_some(), "segment {segment} is in no zone");
        }
        let staying = segments.zones.values().filter(|zone| !zone.leaving).count();
        assert_eq!(segments.total(), staying as u64 * u64::from(segments.zone_segments));
        assert!(seen.len() >= staying * segments.zone_segments as usize, "segments are lost");
        // I6: UNMAP, the cleaner or a checkpoint finds a segment.
        let stock = state.stock();
        assert!(segments.total() == 0 || stock >= CONTROL_SEGMENTS as u64, "I6: the reserve is used up");
        // I14: whenever the node is killed, a recovery scans no more than it may.
        let replayed = segments.used.iter().filter(|(_, used)| used.kind == Kind::Data);
        let replayed = replayed.filter(|(segment, _)| state.is_replayed(**segment));
        let replayed: u64 =
            replayed.map(|(_, used)| u64::from(segments.slots - u32::from(used.replay_from))).sum();
        let scanned = replayed + segments.ready.len() as u64 * u64::from(segments.slots);
        let most = state.replay_bytes().div_ceil(state.segment_bytes()) + SCANNED_EXTRA;
        assert!(scanned <= most * u64::from(segments.slots), "I14: {scanned} slots, {most} segments");
        // I8: memory stays within its bounds.
        let tuning = self.handle.tuning;
        assert!(state.cache.held() as u64 <= self.handle.memory.limit().0);
        self.handle.memory.check();
        let entries = state.active.len() + state.frozen.as_ref().map_or(0, |frozen| frozen.len());
        assert!(entries <= tuning.changes_max + 2000, "{entries} entries");
    }
}

impl Running {
    /// Checks what is reported of branches against what their leaves hold, and what they will hold after a
    /// merge; of branches with snapshots that is not known.
    fn check_figures(&self, in_leaves: &BTreeMap<u32, Usage>, mut spots: BTreeMap<(u32, u64), Box<Spots>>) {
        if !self.is_unmerged() && self.frozen.is_none() {
            for (branch, used) in &self.used {
                let expected = in_leaves.get(branch).copied().unwrap_or_default();
                assert_eq!(*used, expected, "branch {branch}, of which all has been merged");
                assert_eq!(self.usage_of(*branch), expected, "branch {branch}");
            }
            return;
        }
        let bare: Vec<u32> = self.used.keys().copied().filter(|branch| self.marks.is_bare(*branch)).collect();
        let mut expected: BTreeMap<u32, Usage> =
            bare.iter().map(|branch| (*branch, Usage::default())).collect();
        for (table, branch) in self.tables().flat_map(|table| bare.iter().map(move |branch| (table, *branch)))
        {
            let first = table.next_block(branch, 0);
            let next = |block: &u64| table.next_block(branch, (block / LEAF_BLOCKS + 1) * LEAF_BLOCKS);
            for block in std::iter::successors(first, next) {
                spots.entry((branch, block / LEAF_BLOCKS)).or_insert_with(|| Box::new(NOTHING));
            }
        }
        for ((branch, number), mut spots) in spots {
            for table in self.frozen.iter().chain([&self.active]) {
                table.overlay(Era::first(branch), number * LEAF_BLOCKS, &mut spots[..], Spot::Nothing);
            }
            let stored = spots.iter().filter_map(|spot| spot.stored());
            let expected = expected.entry(branch).or_default();
            stored.for_each(|stored| expected.add(Usage::of(stored.place.run(1))));
        }
        for (branch, expected) in expected {
            let (told, used) = (self.usage_of(branch), self.used[&branch]);
            assert!(
                expected.blocks <= told.blocks && told.blocks <= used.blocks,
                "{expected:?} {told:?} {used:?}"
            );
            assert!(
                expected.quarters <= told.quarters && told.quarters <= used.quarters,
                "{branch}: {told:?}"
            );
        }
    }
}
