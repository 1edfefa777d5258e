//! Random lives of a volume with snapshots, compared with a copy of the volume for each snapshot.
//!
//! They take and delete snapshots, and go back to them, between writes, UNMAP and flushes, pause the freeing,
//! fill the pool, empty disks that leave it, and lose power at any moment. What a snapshot reads as never
//! changes, and in the end nothing is left of deleted ones.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::Rng;
use rt::sim::DiskLatency;

use super::model::leave_or_stay;
use super::*;
use crate::canary::{Canary, make};
use crate::log::{DiffLimits, SnapshotError};

/// Blocks of the volume, in three leaves.
pub(super) const BLOCKS: u64 = 1200;

/// Blocks that are written more often.
const HOT_BLOCKS: u64 = 40;

/// How many snapshots there are at most.
const SNAPSHOTS: usize = 12;

/// What is known about a block: one of these numbers, and until a power cut the last one.
#[derive(Clone, Debug)]
pub(super) struct Known {
    may_be: Vec<u64>,
    /// A write failed: it may be any of them in any case.
    unsure: bool,
}

impl Known {
    fn certainly(number: u64) -> Known {
        Known { may_be: vec![number], unsure: false }
    }

    fn fits(&self, found: u64, after_cut: bool) -> bool {
        let is_last = self.may_be.last() == Some(&found);
        is_last || (after_cut || self.unsure) && self.may_be.contains(&found)
    }
}

pub(super) type Content = Vec<Known>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It was begun, and whoever takes it does not know that it exists.
    Begun,
    Taken,
    /// Its deletion has begun.
    Deleting,
}

pub(super) struct Model {
    pub(super) now: Content,
    pub(super) snapshots: BTreeMap<u64, (Standing, Content)>,
    /// Those that clones were made of. They cannot be deleted.
    pub(super) cloned: BTreeSet<u64>,
    /// The last number that was written.
    pub(super) number: u64,
    taken: u64,
    pub(super) full: u64,
    /// How many restores have begun; the last one that is known to have taken effect; and one of which that
    /// is not known, with what the volume is then.
    restores: u64,
    restored: Option<u64>,
    restoring: Option<(u64, Content)>,
}

pub(super) type Shared = Rc<RefCell<Model>>;

impl Model {
    pub(super) fn new() -> Model {
        let now = vec![Known::certainly(0); BLOCKS as usize];
        let (snapshots, cloned, number, taken, full) = Default::default();
        let (restores, restored, restoring) = Default::default();
        Model { now, snapshots, cloned, number, taken, full, restores, restored, restoring }
    }

    /// The snapshots that can be read.
    pub(super) fn readable(&self) -> Vec<u64> {
        let taken = self.snapshots.iter().filter(|(_, of)| of.0 == Standing::Taken);
        taken.map(|(id, _)| *id).collect()
    }

    /// What a volume becomes with a snapshot. All that a snapshot has is durable.
    pub(super) fn content_of(&self, id: u64) -> Content {
        let mut content = self.snapshots[&id].1.clone();
        for known in content.iter_mut().filter(|known| !known.unsure) {
            *known = Known::certainly(*known.may_be.last().unwrap());
        }
        content
    }

    /// The restore with this number has taken effect.
    fn is_restored(&mut self, number: u64) {
        if let Some((_, content)) = self.restoring.take_if(|(restoring, _)| *restoring == number) {
            (self.now, self.restored) = (content, Some(number));
        }
    }

    /// All that was written is durable.
    fn flushed(&mut self) {
        for known in self.now.iter_mut().filter(|known| !known.unsure) {
            *known = Known::certainly(*known.may_be.last().unwrap());
        }
    }
}

/// What blocks read as.
pub(super) async fn numbers(slice: &Slice, id: Option<u64>) -> Vec<u64> {
    let (start, len) = (ByteOffset(0), ByteLen(BLOCKS * BLOCK));
    let bytes = match id {
        None => slice.read(start, len).await.unwrap(),
        Some(id) => slice.read_snapshot(id, start, len).await.unwrap(),
    };
    let number = |bytes: &[u8]| {
        let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert_eq!(bytes, block(number), "a block of one piece");
        number
    };
    bytes.to_vec().chunks(BLOCK as usize).map(number).collect()
}

/// Compares what was found with what is known; from then on that is what it is.
pub(super) fn compare(content: &mut Content, found: &[u64], after_cut: bool, what: &str) {
    for ((at, known), found) in content.iter_mut().enumerate().zip(found) {
        assert!(known.fits(*found, after_cut), "{what}: block {at} is {found} and not {known:?}");
        if after_cut {
            *known = Known::certainly(*found);
        } else if known.unsure {
            // It stays so until the next cut.
            known.may_be.push(*found);
            known.unsure = false;
        }
    }
}

/// Compares the volume and all snapshots, and finds out which snapshots there are.
pub(super) async fn look(slice: &Slice, model: &Shared, after_cut: bool) {
    let restored = slice.last_restore().await.unwrap();
    restored.into_iter().for_each(|number| model.borrow_mut().is_restored(number));
    model.borrow_mut().restoring = None;
    assert_eq!(restored, model.borrow().restored, "all of a restore, or nothing");
    let now = numbers(slice, None).await;
    compare(&mut model.borrow_mut().now, &now, after_cut, "the volume");
    let mut earlier: Option<(u64, Vec<u64>)> = None;
    let mut first: Option<(u64, Vec<u64>)> = None;
    let listed = slice.snapshots().await.unwrap();
    let ids: Vec<u64> = listed.iter().map(|info| info.id).collect();
    assert!(ids.is_sorted());
    let expected: Vec<(u64, Standing)> =
        model.borrow().snapshots.iter().map(|(id, (standing, _))| (*id, *standing)).collect();
    for id in &ids {
        assert!(expected.iter().any(|(expected, _)| expected == id), "snapshot {id} has come back");
    }
    for (id, standing) in expected {
        if !ids.contains(&id) {
            assert_ne!(standing, Standing::Taken, "snapshot {id} is gone");
            model.borrow_mut().snapshots.remove(&id);
            continue;
        }
        let found = numbers(slice, Some(id)).await;
        if let Some((earlier, was)) = &earlier {
            assert_changes(slice, *earlier, Some(id), was, &found).await;
            assert_differences(slice, (Some(*earlier), id), [was, &found]).await;
            assert_differences(slice, (Some(id), *earlier), [&found, was]).await;
        }
        if let Some((first, was)) = &first {
            assert_differences(slice, (Some(*first), id), [was, &found]).await;
        }
        assert_differences(slice, (None, id), [&vec![0; BLOCKS as usize], &found]).await;
        assert_changes(slice, id, None, &found, &now).await;
        earlier = Some((id, found.clone()));
        first.get_or_insert_with(|| (id, found.clone()));
        let mut model = model.borrow_mut();
        let (standing, content) = model.snapshots.get_mut(&id).unwrap();
        // A snapshot is durable, so a cut is no excuse.
        compare(content, &found, false, &format!("snapshot {id}"));
        *content = found.into_iter().map(Known::certainly).collect();
        *standing = Standing::Taken;
    }
}

/// Checks that all blocks that differ between a snapshot and a later one, or the volume, are found.
async fn assert_changes(slice: &Slice, id: u64, until: Option<u64>, was: &[u64], is: &[u64]) {
    let (start, len, max) = (ByteOffset(0), ByteLen(BLOCKS * BLOCK), BLOCKS as usize);
    let parts = slice.changed_since_snapshot(id, until, start, len, max).await.unwrap();
    for (at, _) in (0..).zip(was.iter().zip(is)).filter(|(_, (was, is))| was != is) {
        let is_in = |(from, len): &(ByteOffset, ByteLen)| (from.0..from.0 + len.0).contains(&(at * BLOCK));
        assert!(parts.iter().any(is_in), "block {at} has changed since snapshot {id}");
    }
}

/// Checks that exactly the blocks that differ between two snapshots, or from zeros, are found, page by page.
async fn assert_differences(slice: &Slice, ids: (Option<u64>, u64), [was, is]: [&Vec<u64>; 2]) {
    let (mut from, end) = (0, BLOCKS * BLOCK);
    let mut found = vec![None; BLOCKS as usize];
    while from < end {
        let limits = DiffLimits { ranges: 20, time: rt::now() + Duration::from_secs(1) };
        let page = slice.differences(ids, ByteOffset(from), ByteLen(end - from), limits).await.unwrap();
        assert!(page.until.0 > from, "it makes progress");
        for range in page.ranges {
            let (start, behind) = (range.offset.0, range.offset.0 + range.len.0);
            assert!(from <= start && behind <= page.until.0);
            found[(start / BLOCK) as usize..(behind / BLOCK) as usize].fill(Some(range.is_zeroed));
        }
        from = page.until.0;
    }
    for (at, (was, is)) in was.iter().zip(is).enumerate() {
        let expected = (was != is).then_some(*is == 0);
        assert_eq!(
            found[at], expected,
            "block {at} was {was} in snapshot {:?} and is {is} in {}",
            ids.0, ids.1
        );
    }
}

/// Returns whether it can go on: if not, snapshots may come back when the pool is reopened.
pub(super) async fn live(slice: Rc<Slice>, model: Shared, mut rng: Rng, ops: u64) -> bool {
    for _ in 0..ops {
        let among = if rng.one_in(2) { HOT_BLOCKS } else { BLOCKS };
        let first = rng.below(among);
        let most = if rng.one_in(4) { 150 } else { 6 };
        let count = (1 + rng.below(most)).min(BLOCKS - first);
        let range = first as usize..(first + count) as usize;
        match rng.below(25) {
            what @ 0..13 => {
                let is_zero = what >= 10;
                let mut bytes = Vec::new();
                for known in &mut model.borrow_mut().now[range.clone()] {
                    known.may_be.push(0);
                }
                for at in range.clone() {
                    let mut model = model.borrow_mut();
                    model.number += 1;
                    let number = if is_zero { 0 } else { model.number };
                    *model.now[at].may_be.last_mut().unwrap() = number;
                    bytes.extend(block(number));
                }
                let durability = if rng.one_in(2) { Durability::Durable } else { Durability::Cached };
                let (offset, len) = (ByteOffset(first * BLOCK), ByteLen(count * BLOCK));
                let changed = async {
                    if is_zero {
                        slice.zero(offset, len).await
                    } else {
                        slice.write(offset, Chain::copy_of(&bytes), durability).await
                    }
                };
                let changed = rt::timeout(Duration::from_secs(60), changed).await;
                let changed = changed.unwrap_or_else(|_| panic!("it hangs: {}", log_of(&slice).at_what()));
                let mut model = model.borrow_mut();
                if let Err(error) = changed {
                    assert_eq!(error, SliceError::Full);
                    model.full += 1;
                }
                for known in &mut model.now[range] {
                    match changed {
                        Ok(()) if !is_zero && durability == Durability::Durable => {
                            *known = Known::certainly(*known.may_be.last().unwrap());
                        }
                        Ok(()) => known.unsure = false,
                        Err(_) => known.unsure = true,
                    }
                }
            }
            13 => {
                slice.flush().await.unwrap();
                model.borrow_mut().flushed();
            }
            14..18 => {
                let id = {
                    let mut model = model.borrow_mut();
                    if model.snapshots.len() >= SNAPSHOTS {
                        continue;
                    }
                    model.taken += 1;
                    // What failed to be written reads as before, or not, from now on.
                    let content = model.now.clone();
                    let id = model.taken;
                    model.snapshots.insert(id, (Standing::Begun, content));
                    id
                };
                let new = slice.begin_snapshot(id, id).await.unwrap();
                // It is of the moment at which it began.
                let at = rng.below(BLOCKS);
                let number = {
                    let mut model = model.borrow_mut();
                    model.number += 1;
                    let number = model.number;
                    model.now[at as usize].may_be.push(number);
                    number
                };
                let written = write(&slice, at, number, Durability::Cached).await;
                model.borrow_mut().now[at as usize].unsure = written.is_err();
                match rt::timeout(Duration::from_secs(60), new.settle()).await {
                    Ok(Ok(())) => {
                        let mut model = model.borrow_mut();
                        model.snapshots.get_mut(&id).unwrap().0 = Standing::Taken;
                    }
                    Ok(Err(error)) => {
                        assert_eq!(error, SnapshotError::Slice(SliceError::Full));
                        model.borrow_mut().snapshots.remove(&id);
                    }
                    Err(_) => panic!("a snapshot hangs: {}", log_of(&slice).at_what()),
                }
            }
            18..21 => {
                let all: Vec<u64> = model.borrow().snapshots.keys().copied().collect();
                let ids: Vec<u64> = all.into_iter().filter(|_| rng.one_in(4)).collect();
                let is_cloned = ids.iter().any(|id| model.borrow().cloned.contains(id));
                if !is_cloned {
                    let mut model = model.borrow_mut();
                    let gone = model.snapshots.iter_mut().filter(|(id, _)| ids.contains(id));
                    gone.for_each(|(_, (standing, _))| *standing = Standing::Deleting);
                }
                let deleted = rt::timeout(Duration::from_secs(60), slice.delete_snapshots(&ids)).await;
                let deleted = deleted.unwrap_or_else(|_| panic!("it hangs: {}", log_of(&slice).at_what()));
                match deleted {
                    Err(SnapshotError::Cloned) => assert!(is_cloned),
                    Ok(()) => {
                        assert!(!is_cloned, "{ids:?} were deleted, and clones need them");
                        model.borrow_mut().snapshots.retain(|id, _| !ids.contains(id));
                    }
                    // They cannot be read until the pool is reopened.
                    Err(error) => {
                        assert_eq!(error, SnapshotError::Slice(SliceError::Full));
                        return false;
                    }
                }
            }
            21 => slice.pause_freeing(rng.one_in(2)),
            22 => rt::sleep(Duration::from_millis(rng.below(20))).await,
            23 => {
                let (id, number) = {
                    let mut model = model.borrow_mut();
                    let taken = model.readable();
                    if taken.is_empty() {
                        continue;
                    }
                    let id = taken[rng.below(taken.len() as u64) as usize];
                    let content = model.content_of(id);
                    model.restores += 1;
                    model.restoring = Some((model.restores, content));
                    (id, model.restores)
                };
                let restored = rt::timeout(Duration::from_secs(60), slice.restore_snapshot(id, number)).await;
                match restored.unwrap_or_else(|_| panic!("it hangs: {}", log_of(&slice).at_what())) {
                    Ok(()) => model.borrow_mut().is_restored(number),
                    Err(error) => assert_eq!(error, SnapshotError::Slice(SliceError::Full)),
                }
                model.borrow_mut().restoring = None;
            }
            // It compares everything, which takes long.
            _ if rng.one_in(4) => look(&slice, &model, false).await,
            _ => {}
        }
    }
    true
}

/// A pool with one volume.
async fn create_volume(disks: usize, compression: Compression) -> VolumeId {
    let pool = create(disks).await;
    // The end is in the middle of a block of another leaf.
    let spec = VolumeSpec { compression, ..spec("v", (BLOCKS + 600) * BLOCK + 512, 1) };
    pool.create_volume(spec).await.unwrap().id
}

async fn open_volume(disks: usize, id: VolumeId) -> (Pool, CoreDisks, Rc<Slice>) {
    let pool = open(disks).await;
    let disks = pool.share_disks().attach();
    let slice = slices(&pool, &disks, id).remove(0);
    slice.ready().await.unwrap();
    (pool, disks, slice)
}

fn run(seed: u64, compression: Compression) -> u64 {
    let world = World::new(seed);
    let mut rng = Rng::new(seed);
    let bytes = [10 << 20, 14 << 20, 24 << 20][rng.below(3) as usize];
    let disks = 1 + rng.below(2) as usize;
    let node = machine(&world, disks, bytes / disks as u64, 1);
    if rng.one_in(4) {
        let read = Duration::from_micros(60)..Duration::from_millis(30);
        world.set_disk_latency(node, path(0), DiskLatency { read, ..DiskLatency::default() });
    }
    let id = world.block_on(node, CORE, move || create_volume(disks, compression));
    let model = Rc::new(RefCell::new(Model::new()));
    let mut after_cut = false;
    for _ in 0..6 {
        let (shared, mut forked) = (Rc::clone(&model), rng.fork());
        let (pool, core_disks, slice) = world.block_on(node, CORE, move || async move {
            let (pool, core_disks, slice) = open_volume(disks, id).await;
            look(&slice, &shared, after_cut).await;
            check(&slice).await;
            if disks > 1 && forked.one_in(2) {
                leave_or_stay(&pool, &mut forked).await;
            }
            (pool, core_disks, slice)
        });
        let (shared, forked, ops) = (Rc::clone(&model), rng.fork(), 1 + rng.below(250));
        let one = Rc::clone(&slice);
        let ended = world.spawn_on(node, CORE, move || live(one, shared, forked, ops));
        if rng.one_in(3) {
            world.wait_for(ended).unwrap();
            world.block_on(node, CORE, move || async move {
                check(&slice).await;
                drop((slice, core_disks));
                pool.logs_ended().await;
            });
            after_cut = false;
            // Those whose deletion failed exist, or not.
            continue;
        }
        world.run_for(Duration::from_micros(rng.below(600_000)));
        drop(ended);
        if rng.one_in(3) {
            world.kill(node)
        } else {
            world.crash(node)
        }
        drop((pool, core_disks, slice));
        world.run_for(Duration::from_millis(200));
        world.restart(node, |_| std::future::pending());
        after_cut = true;
    }
    let shared = Rc::clone(&model);
    world.block_on(node, CORE, move || async move {
        let (pool, core_disks, slice) = open_volume(disks, id).await;
        look(&slice, &shared, after_cut).await;
        let ids: Vec<u64> = shared.borrow().snapshots.keys().copied().collect();
        slice.delete_snapshots(&ids).await.unwrap();
        // All that is left is the volume, and later merges remove the last of the marks.
        for _ in 0..1000 {
            if slice.held_by_deleted_snapshots() == ByteLen(0) {
                break;
            }
            rt::sleep(Duration::from_millis(10)).await;
        }
        for _ in 0..20 {
            // A full log may have left something out.
            slice.pause_freeing(false);
            log_of(&slice).inner.merge_all().await.unwrap();
            idle(&slice).await;
        }
        check(&slice).await;
        let found = numbers(&slice, None).await;
        compare(&mut shared.borrow_mut().now, &found, false, "in the end");
        let inner = Rc::clone(&log_of(&slice).inner);
        let state = inner.state.borrow();
        // Only the last restore is left: its leaves are those of the volume.
        let branch = state.marks.restored_branches().next();
        let now = branch.map_or(0, |branch| state.marks.now(branch));
        assert!(state.marks.iter().next().is_none(), "{:?}", state.marks);
        assert!(state.marks.restores().all(|(_, restore)| (restore.era, restore.to) == (now, 0)));
        assert!(state.held.keys().all(|era| era.number == now), "{:?}", state.held);
        let blocks = found.iter().filter(|number| **number > 0).count() as u64;
        assert_eq!(state.used.values().map(|used| used.blocks).sum::<u64>(), blocks);
        drop(state);
        drop((pool, core_disks));
    });
    model.borrow().full
}

/// Use `LOG_SEEDS=from..to` to run more seeds.
fn seeds() -> std::ops::Range<u64> {
    let Ok(range) = std::env::var("LOG_SEEDS") else { return 0..40 };
    let (from, to) = range.split_once("..").expect("from..to");
    from.parse().expect("a number")..to.parse().expect("a number")
}

/// Runs a life. If it fails, its seed is printed.
fn run_or_name(seed: u64, compression: Compression) -> u64 {
    std::panic::catch_unwind(|| run(seed, compression)).unwrap_or_else(|panic| {
        eprintln!("seed {seed}");
        std::panic::resume_unwind(panic)
    })
}

#[test]
fn equal_to_a_copy_for_each_snapshot() {
    let full: u64 = seeds().map(|seed| run_or_name(seed, Compression::Off)).sum();
    assert!(full > 0, "some pools were full");
}

#[test]
fn equal_to_a_copy_for_each_snapshot_with_compression() {
    for seed in seeds() {
        run_or_name(seed, Compression::Lz4);
    }
}

/// What a snapshot needs is overwritten by something else.
#[test]
fn places_that_are_freed_too_early_are_noticed() {
    assert_noticed(Canary::FreeKept);
}

/// A snapshot reads as the one after it did.
#[test]
fn snapshots_that_are_folded_over_others_are_noticed() {
    assert_noticed(Canary::FoldOver);
}

/// What was written to a former line comes too late for its last snapshot.
#[test]
fn lines_that_are_folded_before_they_are_merged_are_noticed() {
    assert_noticed(Canary::SettleUnmerged);
}

/// A block that the cleaner moved comes back.
#[test]
fn moves_without_looking_are_noticed_with_snapshots() {
    assert_noticed(Canary::MoveWithoutLooking);
}

fn assert_noticed(canary: Canary) {
    make(Some(canary));
    let found = (0..100).find(|seed| std::panic::catch_unwind(|| run(*seed, Compression::Off)).is_err());
    make(None);
    println!("seed {found:?}");
    assert!(found.is_some(), "{canary:?} is not noticed");
}
