//! Power cuts at every point of a life in which clones are created, used and deleted, with subsets of what
//! was not flushed.
//!
//! After each cut, every volume and every snapshot reads as after the last act that had ended, or as after
//! the one that was under way, block by block; a volume that was being created or deleted exists, or does
//! not; and the invariants hold.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use base::Rng;
use rt::sim::{Recording, Subsets, for_each_cut};

use super::clones::clone_spec;
use super::*;
use crate::pool::CloneSpec;

const BLOCKS: u64 = 60;

/// How many volumes there are at most.
const VOLUMES: usize = 4;

/// What a volume and its snapshots read as, and what it is a clone of.
#[derive(Clone, Debug, Default)]
struct Known {
    now: Vec<u64>,
    snapshots: BTreeMap<u64, Vec<u64>>,
    of: Option<(u64, u64)>,
}

/// All volumes, by number.
type Volumes = BTreeMap<u64, Known>;

/// All volumes after each act; the first entry is before the first one.
type History = Rc<RefCell<Vec<Volumes>>>;

const ROOT: u64 = 1;

fn id_of(number: u64) -> VolumeId {
    VolumeId([number as u8; 16])
}

fn small() -> LogTuning {
    LogTuning { changes_min: 64, changes_max: 96, replay_bytes: 256 << 10, ..tuning() }
}

fn pick<T: Clone>(rng: &mut Rng, of: &[T]) -> Option<T> {
    of.get(rng.below(of.len().max(1) as u64) as usize).cloned()
}

/// Carries out the act with this number, and changes `volumes` accordingly.
async fn act(
    (pool, disks): (&Pool, &CoreDisks),
    open: &mut BTreeMap<u64, Rc<Slice>>,
    volumes: &mut Volumes,
    rng: &mut Rng,
    act: u64,
) {
    let numbers: Vec<u64> = volumes.keys().copied().collect();
    let Some(number) = pick(rng, &numbers) else { return };
    let slice = Rc::clone(&open[&number]);
    let ids: Vec<u64> = volumes[&number].snapshots.keys().copied().collect();
    let origins = volumes.values().filter_map(|volume| volume.of);
    let cloned: Vec<u64> = origins.filter(|(of, _)| *of == number).map(|(_, id)| id).collect();
    let Some(known) = volumes.get_mut(&number) else { return };
    let first = rng.below(BLOCKS);
    let count = (1 + rng.below(6)).min(BLOCKS - first);
    match rng.below(14) {
        0..5 => {
            let mut bytes = Vec::new();
            for at in first..first + count {
                known.now[at as usize] = act * 100 + at - first + 1;
                bytes.extend(block(known.now[at as usize]));
            }
            slice
                .write(ByteOffset(first * BLOCK), Chain::copy_of(&bytes), Durability::Durable)
                .await
                .unwrap();
        }
        5 | 6 => {
            known.now[first as usize..(first + count) as usize].fill(0);
            slice.zero(ByteOffset(first * BLOCK), ByteLen(count * BLOCK)).await.unwrap();
            slice.flush().await.unwrap();
        }
        7 | 8 => {
            known.snapshots.insert(act, known.now.clone());
            slice.take_snapshot(act, act).await.unwrap();
        }
        9 => {
            let some: Vec<u64> = ids.into_iter().filter(|id| !cloned.contains(id) && rng.one_in(2)).collect();
            known.snapshots.retain(|id, _| !some.contains(id));
            slice.delete_snapshots(&some).await.unwrap();
        }
        10 => {
            let Some(id) = pick(rng, &ids) else { return };
            known.now = known.snapshots[&id].clone();
            slice.restore_snapshot(id, act).await.unwrap();
        }
        11 | 12 => {
            let Some(id) = pick(rng, &ids).filter(|_| numbers.len() < VOLUMES) else { return };
            let (now, of) = (known.snapshots[&id].clone(), Some((number, id)));
            let held = slice.hold_snapshot(id).await.unwrap();
            let spec =
                CloneSpec { id: Some(id_of(act)), ..clone_spec(&format!("c{act}"), id_of(number), id) };
            pool.create_clone(spec).await.unwrap();
            drop(held);
            volumes.insert(act, Known { now, of, ..Known::default() });
            open.insert(act, slices(pool, disks, id_of(act)).remove(0));
        }
        _ => {
            if number == ROOT || !cloned.is_empty() {
                return;
            }
            volumes.remove(&number);
            open.remove(&number);
            drop(slice);
            pool.delete_volume(id_of(number)).await.unwrap();
        }
    }
}

/// Records a life. Numbers of clones are those of the acts that created them, from 2 on.
fn record(seed: u64, acts: u64) -> (Recording, History) {
    let world = World::new(seed);
    let node = machine(&world, 1, 8 << 20, 1);
    let pool = world.block_on(node, CORE, || async {
        let pool = create(1).await;
        pool.set_log_tuning(small());
        let spec = VolumeSpec { id: Some(id_of(ROOT)), ..spec("v", BLOCKS * BLOCK, 1) };
        pool.create_volume(spec).await.unwrap();
        pool
    });
    let recording = world.record_disks(&[(node, path(0).as_path())]);
    let root = Known { now: vec![0; BLOCKS as usize], ..Known::default() };
    let history: History = Rc::new(RefCell::new(vec![Volumes::from([(ROOT, root)])]));
    let (acks, shared) = (recording.clone(), Rc::clone(&history));
    world.block_on(node, CORE, move || async move {
        let mut rng = Rng::new(seed);
        let disks = pool.share_disks().attach();
        let mut open = BTreeMap::from([(ROOT, slices(&pool, &disks, id_of(ROOT)).remove(0))]);
        open[&ROOT].ready().await.unwrap();
        let mut volumes = shared.borrow()[0].clone();
        for number in 1..=acts {
            act((&pool, &disks), &mut open, &mut volumes, &mut rng, number + 1).await;
            shared.borrow_mut().push(volumes.clone());
            acks.ack(number);
        }
        idle(&open[&ROOT]).await;
        check(&open[&ROOT]).await;
    });
    (recording, history)
}

/// What is wrong after a cut, if anything, when the acts up to `acked` had ended.
fn judge(images: Vec<DiskImage>, history: &History, acked: u64) -> Option<String> {
    let world = World::new(acked);
    let node = world.add_node("node", 1, |_| std::future::pending());
    for (number, image) in images.into_iter().enumerate() {
        world.put_disk(node, path(number), image);
    }
    let history = Rc::clone(history);
    world.block_on(node, CORE, move || async move {
        let pool = open(1).await;
        pool.set_log_tuning(small());
        let disks = pool.share_disks().attach();
        let before = history.borrow()[acked as usize].clone();
        let after = history.borrow().get(acked as usize + 1).unwrap_or(&before).clone();
        let numbers: BTreeSet<u64> = before.keys().chain(after.keys()).copied().collect();
        let mut opened = BTreeMap::new();
        // Clones first.
        for number in numbers.into_iter().rev() {
            let must = before.contains_key(&number) && after.contains_key(&number);
            match pool.volume(id_of(number)) {
                Some(_) => drop(opened.insert(number, slices(&pool, &disks, id_of(number)).remove(0))),
                None if must => return Some(format!("volume {number} is gone")),
                None => {}
            }
        }
        if pool.volume_ids().len() != opened.len() {
            return Some("there is a volume that was never created".to_owned());
        }
        for _ in 0..2 {
            for (number, slice) in &opened {
                let wrong = judge_volume(slice, before.get(number), after.get(number)).await;
                if let Some(wrong) = wrong {
                    return Some(format!("volume {number}: {wrong}"));
                }
            }
            check(&opened[&ROOT]).await;
            // The log continues, also with what deleted volumes and snapshots have left.
            log_of(&opened[&ROOT]).inner.merge_all().await.unwrap();
            idle(&opened[&ROOT]).await;
        }
        None
    })
}

async fn judge_volume(slice: &Slice, before: Option<&Known>, after: Option<&Known>) -> Option<String> {
    let known: Vec<&Known> = before.into_iter().chain(after).collect();
    for at in 0..BLOCKS {
        match read(slice, at).await {
            Ok(found) if known.iter().any(|known| known.now[at as usize] == found) => {}
            found => return Some(format!("block {at} reads as {found:?}")),
        }
    }
    let listed = slice.snapshots().await.unwrap();
    let ids: Vec<u64> = listed.iter().map(|info| info.id).collect();
    if let Some(id) = ids.iter().find(|id| !known.iter().any(|known| known.snapshots.contains_key(id))) {
        return Some(format!("snapshot {id} exists"));
    }
    for (id, content) in known.iter().flat_map(|known| &known.snapshots) {
        if !ids.contains(id) {
            if known.iter().all(|known| known.snapshots.contains_key(id)) {
                return Some(format!("snapshot {id} is gone"));
            }
            continue;
        }
        let bytes = slice.read_snapshot(*id, ByteOffset(0), ByteLen(BLOCKS * BLOCK)).await.unwrap();
        for ((at, found), number) in bytes.to_vec().chunks(BLOCK as usize).enumerate().zip(content) {
            if found != block(*number) {
                return Some(format!("block {at} of snapshot {id} is not {number}"));
            }
        }
    }
    None
}

#[test]
fn every_cut_is_survived_with_clones() {
    let mut created = 0;
    for seed in 0..4 {
        let (recording, history) = record(seed, 220);
        let numbers = history.borrow().iter().flat_map(|all| all.keys().copied()).max();
        created += numbers.unwrap_or(ROOT) - ROOT;
        let cuts = for_each_cut(&recording, Subsets { bits: 1, seed }, |cut| {
            if cut.at as u64 % 3 == seed % 3 {
                let wrong = judge(cut.images.clone(), &history, cut.acked);
                assert_eq!(wrong, None, "seed {seed}, {cut}");
            }
        });
        assert!(cuts > 500, "{cuts}");
    }
    assert!(created > 0, "some volumes were cloned");
}
