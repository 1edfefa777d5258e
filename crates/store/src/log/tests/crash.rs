//! Power cuts at every point of a log's life, with subsets of what was not flushed.
//!
//! They happen while records are written, tables merged, roots written, segments cleaned and zones lent.
//! After each cut the log opens; everything that was acknowledged as durable is there, and otherwise only
//! what was written later; and the invariants hold. Canaries show that the checks notice mistakes.

use std::cell::RefCell;
use std::collections::BTreeMap;

use base::Rng;
use rt::sim::{Recording, Subsets, for_each_cut};

use super::*;
use crate::canary::{Canary, make};

const BLOCKS: u64 = 120;

/// One write to a block: the number written, and since when it is durable.
#[derive(Clone, Copy, Debug)]
struct Write {
    number: u64,
    /// The act that wrote it.
    act: u64,
    /// The act since which it is durable; `u64::MAX`: never without a flush.
    durable: u64,
}

#[derive(Default)]
struct History {
    writes: BTreeMap<u64, Vec<Write>>,
}

impl History {
    fn may_be(&self, block: u64, acked: u64, found: u64) -> bool {
        let Some(writes) = self.writes.get(&block) else { return found == 0 };
        // The last write that was durable by then, and all later ones.
        let from = writes.iter().rposition(|write| write.durable <= acked);
        let later = &writes[from.unwrap_or(0)..];
        from.is_none() && found == 0 || later.iter().any(|write| write.number == found)
    }
}

fn small() -> LogTuning {
    LogTuning { changes_min: 64, changes_max: 96, replay_bytes: 256 << 10, ..tuning() }
}

/// Records a life of two slices, with acts on blocks of both.
fn record(
    seed: u64,
    acts: u64,
    compression: Compression,
) -> (Recording, Rc<RefCell<History>>, [VolumeId; 1]) {
    let world = World::new(seed);
    let node = machine(&world, 1, 6 << 20, 1);
    let history = Rc::new(RefCell::new(History::default()));
    let (pool, id) = world.block_on(node, CORE, move || async move {
        let pool = create(1).await;
        pool.set_log_tuning(small());
        let spec = VolumeSpec { compression, ..spec("v", BLOCKS * BLOCK, 1) };
        let id = pool.create_volume(spec).await.unwrap().id;
        (pool, id)
    });
    let recording = world.record_disk(node, path(0));
    let (acks, shared) = (recording.clone(), Rc::clone(&history));
    world.block_on(node, CORE, move || async move {
        let mut rng = Rng::new(seed);
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        for act in 1..=acts {
            let first = rng.below(BLOCKS);
            let count = (1 + rng.below(6)).min(BLOCKS - first);
            let kind = rng.below(10);
            if kind == 9 {
                slice.flush().await.unwrap();
                for writes in shared.borrow_mut().writes.values_mut() {
                    writes.iter_mut().for_each(|write| write.durable = write.durable.min(act));
                }
                acks.ack(act);
                continue;
            }
            let zero = kind == 8;
            let mut bytes = Vec::new();
            for at in first..first + count {
                let number = if zero { 0 } else { act * 100 + at - first + 1 };
                let write = Write { number, act, durable: u64::MAX };
                shared.borrow_mut().writes.entry(at).or_default().push(write);
                bytes.extend(block(number));
            }
            let durable = !zero && kind < 4;
            if zero {
                slice.zero(ByteOffset(first * BLOCK), ByteLen(count * BLOCK)).await.unwrap();
            } else {
                let durability = if durable { Durability::Durable } else { Durability::Cached };
                slice.write(ByteOffset(first * BLOCK), Chain::copy_of(&bytes), durability).await.unwrap();
            }
            if durable {
                for at in first..first + count {
                    let mut history = shared.borrow_mut();
                    let last = history.writes.get_mut(&at).unwrap().last_mut().unwrap();
                    last.durable = last.act;
                }
            }
            acks.ack(act);
        }
        idle(&slice).await;
        let figures = pool.log_figures()[0].1;
        assert!(figures.written > 1 << 20, "segments were used again: {figures:?}");
    });
    (recording, history, [id])
}

/// What is wrong after a cut, if anything.
fn judge(image: DiskImage, history: &Rc<RefCell<History>>, id: VolumeId, acked: u64) -> Option<String> {
    let world = World::new(acked);
    let node = world.add_node("node", 1, |_| std::future::pending());
    world.put_disk(node, path(0), image);
    let history = Rc::clone(history);
    world.block_on(node, CORE, move || async move {
        let pool = open(1).await;
        pool.set_log_tuning(small());
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        if slice.ready().await.is_err() {
            return Some("the log does not open".to_owned());
        }
        for at in 0..BLOCKS {
            match read(&slice, at).await {
                Ok(found) if history.borrow().may_be(at, acked, found) => {}
                found => return Some(format!("block {at} reads as {found:?}")),
            }
        }
        check(&slice).await;
        // The log continues.
        write(&slice, 3, 77, Durability::Durable).await.unwrap();
        assert_eq!(read(&slice, 3).await, Ok(77));
        None
    })
}

#[test]
fn every_cut_is_survived() {
    cut(Compression::Off);
}

/// Blocks of all sizes share slots, and the slots of heads.
#[test]
fn every_cut_is_survived_with_compression() {
    cut(Compression::Lz4);
}

fn cut(compression: Compression) {
    for seed in 0..3 {
        let (recording, history, [id]) = record(seed, 260, compression);
        let subsets = Subsets { bits: 1, seed };
        // Each cut is tried with one of the seeds, with two subsets of what was not flushed.
        let cuts = for_each_cut(&recording, subsets, |cut| {
            if cut.at as u64 % 3 == seed {
                let wrong = judge(cut.images[0].clone(), &history, id, cut.acked);
                assert_eq!(wrong, None, "seed {seed}, {cut}");
            }
        });
        assert!(cuts > 500, "{cuts}");
    }
}

/// Each mistake is noticed.
#[test]
fn canaries_are_found() {
    for canary in [
        Canary::RootWithoutFlush,
        Canary::FreeBeforeRoot,
        Canary::TakeWithoutChecksum,
        Canary::MoveWithoutLooking,
        Canary::RecordCached,
    ] {
        make(Some(canary));
        let found = (0..40).any(|seed| {
            // A log with such a mistake may also fail one of its own assertions.
            let Ok((recording, history, [id])) =
                std::panic::catch_unwind(|| record(seed, 200, Compression::Off))
            else {
                return true;
            };
            let mut wrong = None;
            for_each_cut(&recording, Subsets { bits: 2, seed }, |cut| {
                if wrong.is_none() && (cut.at as u64 + seed).is_multiple_of(5) {
                    let image = cut.images[0].clone();
                    let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        judge(image, &history, id, cut.acked)
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
