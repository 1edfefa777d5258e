//! The invariants of a log, checked from outside: for tests and simulations, in debug builds.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use super::leaf::{Era, Leaf};
use super::place::Place;
use super::segment::Kind;
use super::{Held, Inner, Log, Phase, Sweeping};
use crate::slice::{Layout, Slice};

/// Longest time until a log that nobody uses is at rest.
const RESTS_WITHIN: Duration = Duration::from_secs(30);
/// How often to check.
const LOOK_EVERY: Duration = Duration::from_millis(1);

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
        log.rest().await;
        log.check().await;
    }
}

impl Log {
    /// Waits until the log is idle.
    pub(crate) async fn rest(&self) {
        let until = rt::now() + RESTS_WITHIN;
        while !self.is_idle() {
            assert!(rt::now() < until, "the log never comes to rest: {}", self.at_what());
            rt::sleep(LOOK_EVERY).await;
        }
    }

    /// Checks I2 to I4, I6, I8 and I9 of the design while the log is idle. Reads leaves that are not in
    /// memory.
    pub(crate) async fn check(&self) {
        self.inner.check().await;
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
    async fn check(&self) {
        self.take_origins();
        let keys: Vec<_> = self.state.borrow().leaves.keys().copied().collect();
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
        for key in keys {
            let leaf: Leaf = self.leaf(key).await.expect("no fault").expect("it is in the directory");
            let spots = leaf.spots();
            let stored: Vec<Place> =
                spots.iter().filter_map(|spot| spot.stored()).map(|stored| stored.place).collect();
            let known = self.state.borrow().leaves[&key];
            assert_eq!(stored.len(), usize::from(known.blocks));
            let quarters: u32 = stored.iter().map(|place| place.size().quarters()).sum();
            assert_eq!(quarters, u32::from(known.quarters));
            if key.0.number > 0 {
                assert!(self.state.borrow().marks.has(key.0), "{key:?} is of no snapshot, nor a line");
            }
            let held = held.entry(key.0).or_default();
            (held.leaves, held.quarters) = (held.leaves + 1, held.quarters + u64::from(quarters));
            stored.into_iter().for_each(|place| own(place, "a leaf"));
        }
        let state = self.state.borrow();
        // I9: what a clone is read through is there, and nobody takes anything of it.
        assert!(state.marks.knows_clones(&self.handle.origins()), "the log and the catalog differ in clones");
        for (clone, origin) in state.marks.origins() {
            assert!(origin.branch < clone && state.marks.has(origin), "{clone} is a clone of {origin:?}");
            assert!(self.handle.has_branch(origin.branch), "the volume of {origin:?} is gone");
            assert!(state.marks.deleted().all(|era| era != origin), "{origin:?} is being freed");
            assert!(state.marks.hidden(origin.branch).all(|era| era != origin.number), "{origin:?} hands on");
        }
        for table in std::iter::once(&state.active).chain(&state.frozen) {
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
                Kind::Map => live_map += u64::from(used.live),
            }
        }
        assert_eq!((live, live_map), (state.segments.live, state.segments.live_map), "I3");
        assert_eq!(packed, state.segments.packed);
        let grains: u64 = state.leaves.values().map(|place| u64::from(place.len)).sum();
        assert_eq!(grains, live_map);
        assert_eq!(state.held, held, "what eras hold");
        // I3: what branches take.
        let used: u64 = state.used.values().map(|used| used.quarters).sum();
        assert_eq!(used, state.live_quarters());
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
        // I8: memory stays within its bounds.
        let tuning = self.handle.tuning;
        assert!(state.cache.held() as u64 <= self.handle.memory.limit().0);
        self.handle.memory.check();
        let entries = state.active.len() + state.frozen.as_ref().map_or(0, |frozen| frozen.len());
        assert!(entries <= tuning.changes_max + 2000, "{entries} entries");
    }
}
