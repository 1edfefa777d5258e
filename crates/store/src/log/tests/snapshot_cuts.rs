//! Power cuts at every point of a life with snapshots, with subsets of what was not flushed.
//!
//! They happen while snapshots are taken, the volume goes back to one, what is overwritten goes into their
//! leaves, blocks of theirs are moved or repaired, and deleted ones are folded. After each cut, a snapshot
//! that was taken reads as the volume did when it began; one whose taking or deletion had not ended does so,
//! or does not exist; a restore has taken effect as a whole, or not at all; and the invariants hold.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use base::Rng;
use rt::sim::{Recording, Subsets, for_each_cut};

use super::*;
use crate::canary::{Canary, make};

const BLOCKS: u64 = 90;

/// A write to a block: its act, the number, and the act since which it is durable.
#[derive(Clone, Copy, Debug)]
struct Write {
    act: u64,
    number: u64,
    durable: u64,
}

/// A snapshot: what it reads as, and the acts with which it began, was taken, and was deleted.
#[derive(Clone, Debug)]
struct Past {
    content: Vec<u64>,
    begun: u64,
    taken: u64,
    deleting: u64,
    deleted: u64,
}

const NEVER: u64 = u64::MAX;

#[derive(Default)]
struct History {
    writes: BTreeMap<u64, Vec<Write>>,
    snapshots: BTreeMap<u64, Past>,
    /// By the act, what the volume became then.
    restores: BTreeMap<u64, Vec<u64>>,
}

impl History {
    /// What a block became with a restore, and the writes since.
    fn since(&self, restored: Option<u64>, block: u64) -> (u64, &[Write]) {
        let before = restored.map_or(0, |act| self.restores[&act][block as usize]);
        let writes = self.writes.get(&block).map_or(&[][..], Vec::as_slice);
        (before, &writes[writes.partition_point(|write| Some(write.act) <= restored)..])
    }

    fn may_be(&self, restored: Option<u64>, block: u64, acked: u64, found: u64) -> bool {
        let (before, writes) = self.since(restored, block);
        // The last write that was durable by then, and all later ones.
        let from = writes.iter().rposition(|write| write.durable <= acked);
        let later = &writes[from.unwrap_or(0)..];
        from.is_none() && found == before || later.iter().any(|write| write.number == found)
    }

    fn content(&self) -> Vec<u64> {
        let restored = self.restores.last_key_value().map(|(act, _)| *act);
        let last = |block| {
            let (before, writes) = self.since(restored, block);
            writes.last().map_or(before, |write| write.number)
        };
        (0..BLOCKS).map(last).collect()
    }

    fn flushed(&mut self, act: u64) {
        self.writes.values_mut().flatten().for_each(|write| write.durable = write.durable.min(act));
    }
}

fn small() -> LogTuning {
    LogTuning { changes_min: 64, changes_max: 96, replay_bytes: 256 << 10, ..tuning() }
}

/// What happens in a life of a slice.
#[derive(Clone, Copy)]
struct Life {
    acts: u64,
    /// Halfway, a disk begins to leave; at the end it has left.
    leaves: bool,
    /// Now and then, blocks are repaired that only snapshots have.
    repairs: bool,
}

/// Repairs some of the blocks that only snapshots have. Returns how many.
async fn repair_some(slice: &Slice, history: &Rc<RefCell<History>>, rng: &mut Rng) -> usize {
    let inner = Rc::clone(&log_of(slice).inner);
    let mut some = Vec::new();
    for version in inner.all_past(super::past::branch_of(slice)).await {
        if rng.one_in(3) && some.len() < 5 {
            let at = version.block.offset.0 / BLOCK;
            let number = history.borrow().snapshots[&version.snapshot].content[at as usize];
            some.push((version, Chain::copy_of(&block(number))));
        }
    }
    slice.put_back(some).await.unwrap().into_iter().filter(|is_repaired| *is_repaired).count()
}

/// Records a life of a slice.
fn record(seed: u64, life: Life) -> (Recording, Rc<RefCell<History>>, VolumeId) {
    let Life { acts, leaves, repairs } = life;
    let world = World::new(seed);
    let node = machine(&world, 1 + usize::from(leaves), 8 << 20, 1);
    let history = Rc::new(RefCell::new(History::default()));
    let (pool, id) = world.block_on(node, CORE, move || async move {
        let pool = create(1).await;
        pool.set_log_tuning(small());
        let id = pool.create_volume(spec("v", BLOCKS * BLOCK, 1)).await.unwrap().id;
        (pool, id)
    });
    let paths = [path(0), path(1)];
    let disks: Vec<_> =
        paths.iter().take(1 + usize::from(leaves)).map(|path| (node, path.as_path())).collect();
    let recording = world.record_disks(&disks);
    let (acks, shared) = (recording.clone(), Rc::clone(&history));
    world.block_on(node, CORE, move || async move {
        let (mut rng, mut chance, mut repaired) = (Rng::new(seed), Rng::new(!seed), 0);
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        slice.ready().await.unwrap();
        for act in 1.. {
            if leaves && act == acts / 2 {
                pool.add_disk(NewDisk { path: path(1), create: None, reserve: false }, true).await.unwrap();
                pool.leave(&path(0)).await.unwrap();
            }
            let is_left = pool.leaving().is_some() && !pool.empty_logs().await.unwrap();
            if is_left {
                pool.remove_disk(&path(0)).await.unwrap();
            }
            if act > acts && pool.leaving().is_none() {
                break;
            }
            assert!(act < 20 * acts, "the disk never leaves: {:?}", pool.leaving());
            let first = rng.below(BLOCKS);
            let count = (1 + rng.below(6)).min(BLOCKS - first);
            match rng.below(13) {
                kind @ 0..7 => {
                    let (is_zero, is_durable) = (kind == 6, kind < 3);
                    let mut bytes = Vec::new();
                    for at in first..first + count {
                        let number = if is_zero { 0 } else { act * 100 + at - first + 1 };
                        let write = Write { act, number, durable: NEVER };
                        shared.borrow_mut().writes.entry(at).or_default().push(write);
                        bytes.extend(block(number));
                    }
                    let (offset, len) = (ByteOffset(first * BLOCK), ByteLen(count * BLOCK));
                    if is_zero {
                        slice.zero(offset, len).await.unwrap();
                    } else {
                        let durability = if is_durable { Durability::Durable } else { Durability::Cached };
                        slice.write(offset, Chain::copy_of(&bytes), durability).await.unwrap();
                    }
                    for at in (first..first + count).filter(|_| is_durable) {
                        let mut history = shared.borrow_mut();
                        history.writes.get_mut(&at).unwrap().last_mut().unwrap().durable = act;
                    }
                }
                7 => {
                    slice.flush().await.unwrap();
                    shared.borrow_mut().flushed(act);
                }
                8 | 9 => {
                    {
                        let mut history = shared.borrow_mut();
                        let content = history.content();
                        let (taken, deleting, deleted) = (NEVER, NEVER, NEVER);
                        history.snapshots.insert(act, Past { content, begun: act, taken, deleting, deleted });
                    }
                    slice.take_snapshot(act, act).await.unwrap();
                    let mut history = shared.borrow_mut();
                    history.flushed(act);
                    history.snapshots.get_mut(&act).unwrap().taken = act;
                }
                10 => {
                    let there: Vec<u64> = {
                        let history = shared.borrow();
                        let there = history.snapshots.iter().filter(|(_, past)| past.deleting == NEVER);
                        there.map(|(id, _)| *id).collect()
                    };
                    let id = there.get(rng.below(there.len().max(1) as u64) as usize);
                    // Open: a log as small as this one keeps so much room for its lines that it may not be
                    // able to leave a disk once it has been restored.
                    if let Some(id) = id.filter(|_| !leaves) {
                        {
                            let mut history = shared.borrow_mut();
                            let content = history.snapshots[id].content.clone();
                            history.restores.insert(act, content);
                        }
                        slice.restore_snapshot(*id, act).await.unwrap();
                    }
                }
                _ => {
                    let ids: Vec<u64> = {
                        let mut history = shared.borrow_mut();
                        let there = history.snapshots.iter_mut().filter(|(_, past)| past.deleting == NEVER);
                        let some = there.filter(|_| rng.one_in(3));
                        some.map(|(id, past)| {
                            past.deleting = act;
                            *id
                        })
                        .collect()
                    };
                    slice.delete_snapshots(&ids).await.unwrap();
                    for id in ids {
                        shared.borrow_mut().snapshots.get_mut(&id).unwrap().deleted = act;
                    }
                }
            }
            acks.ack(act);
            if repairs && chance.one_in(4) {
                repaired += repair_some(&slice, &shared, &mut chance).await;
            }
        }
        assert!(repaired > 0 || !repairs, "nothing was repaired");
        idle(&slice).await;
        let figures = pool.log_figures()[0].1;
        assert!(figures.written > 1 << 20, "segments were used again: {figures:?}");
    });
    (recording, history, id)
}

/// What is wrong after a cut, if anything. A disk that was leaving has left in the end.
fn judge(images: Vec<DiskImage>, history: &Rc<RefCell<History>>, id: VolumeId, acked: u64) -> Option<String> {
    let world = World::new(acked);
    let node = world.add_node("node", 1, |_| std::future::pending());
    let disks = images.len();
    for (number, image) in images.into_iter().enumerate() {
        world.put_disk(node, path(number), image);
    }
    let history = Rc::clone(history);
    world.block_on(node, CORE, move || async move {
        // The last disk may not be in the pool yet, and the first one no longer.
        let options = |path: usize| OpenPool {
            host: host(),
            force: false,
            ram: ram(),
            uncertain: Some(self::path(path)),
        };
        let pool = match Pool::open(&[path(disks - 1)], options(0)).await {
            Ok(pool) => pool,
            Err(_) if disks > 1 => Pool::open(&[path(0)], options(1)).await.unwrap(),
            Err(error) => return Some(format!("the pool does not open: {error}")),
        };
        pool.set_log_memory(LogMemory::new(MEMORY));
        pool.set_log_tuning(small());
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        if slice.ready().await.is_err() {
            return Some("the log does not open".to_owned());
        }
        let restored = slice.last_restore().await.unwrap();
        let ended = history.borrow().restores.range(..=acked).next_back().map(|(act, _)| *act);
        if restored < ended || restored > Some(acked + 1) {
            return Some(format!("the last restore is {restored:?}"));
        }
        for at in 0..BLOCKS {
            match read(&slice, at).await {
                Ok(found) if history.borrow().may_be(restored, at, acked, found) => {}
                found => return Some(format!("block {at} reads as {found:?}")),
            }
        }
        let wrong = judge_snapshots(&slice, &history, acked).await;
        if wrong.is_some() {
            return wrong;
        }
        check(&slice).await;
        // The log continues, also with what deleted snapshots have left. Then all is as before.
        for at in [3, 50] {
            write(&slice, at, 77, Durability::Durable).await.unwrap();
        }
        log_of(&slice).inner.merge_all().await.unwrap();
        check(&slice).await;
        if pool.leaving().is_some() {
            super::leaving::empty(&pool).await.unwrap();
            check(&slice).await;
        }
        judge_snapshots(&slice, &history, acked).await
    })
}

async fn judge_snapshots(slice: &Slice, history: &Rc<RefCell<History>>, acked: u64) -> Option<String> {
    let ids: Vec<u64> = slice.snapshots().await.unwrap().iter().map(|info| info.id).collect();
    let all = history.borrow().snapshots.clone();
    if let Some(unknown) = ids.iter().find(|id| !all.contains_key(id)) {
        return Some(format!("snapshot {unknown} was never taken"));
    }
    for (id, past) in all {
        if !ids.contains(&id) {
            if past.taken <= acked && past.deleting > acked + 1 {
                return Some(format!("snapshot {id} is gone"));
            }
            continue;
        }
        if past.deleted <= acked || past.begun > acked + 1 {
            return Some(format!("snapshot {id} exists"));
        }
        let bytes = slice.read_snapshot(id, ByteOffset(0), ByteLen(BLOCKS * BLOCK)).await;
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(error) => return Some(format!("snapshot {id} cannot be read: {error}")),
        };
        for ((at, found), number) in bytes.to_vec().chunks(BLOCK as usize).enumerate().zip(past.content) {
            if found != block(number) {
                let found = u64::from_le_bytes(found[..8].try_into().unwrap());
                return Some(format!("block {at} of snapshot {id} is {found} and not {number}"));
            }
        }
    }
    None
}

#[test]
fn every_cut_is_survived_with_snapshots() {
    survives_cuts(Life { acts: 260, leaves: false, repairs: false }, 3);
}

#[test]
fn every_cut_is_survived_while_blocks_of_snapshots_are_repaired() {
    survives_cuts(Life { acts: 120, leaves: false, repairs: true }, 9);
}

#[test]
fn every_cut_is_survived_while_a_disk_leaves_that_snapshots_need() {
    survives_cuts(Life { acts: 150, leaves: true, repairs: false }, 9);
}

/// Each cut is tried with one of several seeds, and with two subsets of what was not flushed.
fn survives_cuts(life: Life, seeds: u64) {
    for seed in 0..3 {
        let (recording, history, id) = record(seed, life);
        let cuts = for_each_cut(&recording, Subsets { bits: 1, seed }, |cut| {
            if cut.at as u64 % seeds == seed {
                let wrong = judge(cut.images.clone(), &history, id, cut.acked);
                assert_eq!(wrong, None, "seed {seed}, {cut}");
            }
        });
        assert!(cuts > 500, "{cuts}");
    }
}

/// Each mistake is noticed.
#[test]
fn canaries_of_snapshots_are_found() {
    for canary in [Canary::SnapshotUnflushed, Canary::FreeKept] {
        make(Some(canary));
        let found = (0..40).any(|seed| {
            // A log with such a mistake may also fail one of its own assertions.
            let life = Life { acts: 200, leaves: false, repairs: false };
            let Ok((recording, history, id)) = std::panic::catch_unwind(|| record(seed, life)) else {
                return true;
            };
            let mut wrong = None;
            for_each_cut(&recording, Subsets { bits: 2, seed }, |cut| {
                if wrong.is_none() && (cut.at as u64 + seed).is_multiple_of(5) {
                    let images = cut.images.clone();
                    let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        judge(images, &history, id, cut.acked)
                    }));
                    wrong = judged.unwrap_or_else(|_| Some("a panic".to_owned()));
                }
            });
            wrong.is_some()
        });
        make(None);
        assert!(found, "{canary:?} is not noticed");
    }
}
