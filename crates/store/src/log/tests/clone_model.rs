//! Random lives of a volume and clones of its snapshots, and of theirs, compared with a copy of each volume
//! and of each snapshot.
//!
//! Between what [`super::snapshot_model`] does with one volume, clones are created and deleted, and power is
//! lost at any moment. Whatever happens to one volume, the others stay as they are; what clones need is not
//! deleted; and when all clones are gone, nothing is left of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use base::Rng;

use super::clones::{branch_of, clone_spec};
use super::snapshot_model::{BLOCKS, Model, Shared, compare, live, look, numbers};
use super::*;
use crate::canary::{Canary, make};
use crate::error::StoreError;
use crate::pool::CloneSpec;

/// How many volumes there are at most.
const VOLUMES: usize = 5;

/// No two volumes write the same number: each has a range of this length for itself.
const NUMBERS: u64 = 1 << 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It is being created: after a power cut it exists, or does not.
    Begun,
    There,
    /// It is being deleted.
    Deleting,
}

/// A volume.
struct Head {
    standing: Standing,
    /// The number of the volume that it is a clone of, and the snapshot.
    of: Option<(u64, u64)>,
    /// `None`: it is closed.
    slice: Option<Rc<Slice>>,
    model: Shared,
}

/// By number; the first one is no clone.
type Heads = Rc<RefCell<BTreeMap<u64, Head>>>;

const ROOT: u64 = 1;

fn id_of(number: u64) -> VolumeId {
    VolumeId([number as u8; 16])
}

fn name_of(number: u64) -> String {
    format!("v{number}")
}

fn new_model(number: u64) -> Shared {
    let mut model = Model::new();
    model.number = number * NUMBERS;
    Rc::new(RefCell::new(model))
}

/// The model of a volume.
fn model_of(heads: &Heads, number: u64) -> Shared {
    Rc::clone(&heads.borrow()[&number].model)
}

fn slice_of(heads: &Heads, number: u64) -> Rc<Slice> {
    let heads = heads.borrow();
    Rc::clone(heads[&number].slice.as_ref().expect("all volumes are open"))
}

/// The numbers of all volumes.
fn all(heads: &Heads) -> Vec<u64> {
    heads.borrow().keys().copied().collect()
}

/// A volume is gone, or was never created. What it was made of can be deleted if no other is.
fn forget(heads: &Heads, number: u64) {
    let gone = heads.borrow_mut().remove(&number).expect("it was there");
    let Some((parent, snapshot)) = gone.of else { panic!("the first one stays") };
    let is_needed = heads.borrow().values().any(|head| head.of == Some((parent, snapshot)));
    if !is_needed {
        model_of(heads, parent).borrow_mut().cloned.remove(&snapshot);
    }
}

async fn open_slice(pool: &Pool, disks: &CoreDisks, number: u64) -> Rc<Slice> {
    let slice = slices(pool, disks, id_of(number)).remove(0);
    slice.ready().await.unwrap();
    slice
}

/// Makes a clone of a snapshot of some volume, with the next number.
async fn create_one(pool: &Pool, disks: &CoreDisks, heads: &Heads, next: &Cell<u64>, rng: &mut Rng) {
    let numbers = all(heads);
    let parent = numbers[rng.below(numbers.len() as u64) as usize];
    let model = model_of(heads, parent);
    let snapshots = model.borrow().readable();
    if numbers.len() >= VOLUMES || snapshots.is_empty() {
        return;
    }
    let snapshot = snapshots[rng.below(snapshots.len() as u64) as usize];
    let number = next.get();
    next.set(number + 1);
    let new = new_model(number);
    new.borrow_mut().now = model.borrow().content_of(snapshot);
    let (standing, of) = (Standing::Begun, Some((parent, snapshot)));
    let held = slice_of(heads, parent).hold_snapshot(snapshot).await.unwrap();
    model.borrow_mut().cloned.insert(snapshot);
    heads.borrow_mut().insert(number, Head { standing, of, slice: None, model: new });
    let spec = clone_spec(&name_of(number), id_of(parent), snapshot);
    match pool.create_clone(CloneSpec { id: Some(id_of(number)), ..spec }).await {
        Ok(_) => {}
        Err(StoreError::CloneTooDeep(_)) => {
            forget(heads, number);
            return;
        }
        Err(error) => panic!("{error}"),
    }
    drop(held);
    let slice = open_slice(pool, disks, number).await;
    let mut heads = heads.borrow_mut();
    let head = heads.get_mut(&number).unwrap();
    (head.standing, head.slice) = (Standing::There, Some(slice));
}

/// Deletes a clone of which no clones were made.
async fn delete_one(pool: &Pool, heads: &Heads, rng: &mut Rng) {
    let numbers = all(heads);
    let number = numbers[rng.below(numbers.len() as u64) as usize];
    let is_cloned = heads.borrow().values().any(|head| head.of.is_some_and(|(of, _)| of == number));
    if is_cloned {
        let refused = pool.delete_volume(id_of(number)).await;
        assert!(matches!(refused, Err(StoreError::HasClones(_))));
    } else if number != ROOT {
        {
            let mut heads = heads.borrow_mut();
            let head = heads.get_mut(&number).unwrap();
            (head.standing, head.slice) = (Standing::Deleting, None);
        }
        pool.delete_volume(id_of(number)).await.unwrap();
        forget(heads, number);
    }
}

/// Lives for some rounds. `next` is the number of the next clone.
async fn live_together(
    (pool, disks): (Pool, CoreDisks),
    heads: Heads,
    next: Rc<Cell<u64>>,
    mut rng: Rng,
    rounds: u64,
) {
    for _ in 0..rounds {
        match rng.below(8) {
            0 | 1 => create_one(&pool, &disks, &heads, &next, &mut rng).await,
            2 => delete_one(&pool, &heads, &mut rng).await,
            _ => {
                let numbers = all(&heads);
                let number = numbers[rng.below(numbers.len() as u64) as usize];
                let (slice, model) = (slice_of(&heads, number), model_of(&heads, number));
                let ops = 1 + rng.below(25);
                if !live(slice, model, rng.fork(), ops).await {
                    return;
                }
            }
        }
    }
}

/// Opens all volumes, finds out which there are, and compares them.
async fn open_all(heads: &Heads, after_cut: bool) -> (Pool, CoreDisks) {
    let pool = open(1).await;
    let disks = pool.share_disks().attach();
    // Clones may be opened first.
    let mut numbers = all(heads);
    if numbers.len().is_multiple_of(2) {
        numbers.reverse();
    }
    for number in numbers {
        let standing = heads.borrow()[&number].standing;
        if pool.volume(id_of(number)).is_none() {
            assert_ne!(standing, Standing::There, "volume {number} is gone");
            forget(heads, number);
            continue;
        }
        let slice = open_slice(&pool, &disks, number).await;
        let mut heads = heads.borrow_mut();
        let head = heads.get_mut(&number).unwrap();
        (head.standing, head.slice) = (Standing::There, Some(slice));
    }
    assert_eq!(pool.volume_ids().len(), heads.borrow().len());
    for number in all(heads) {
        look(&slice_of(heads, number), &model_of(heads, number), after_cut).await;
    }
    check(&slice_of(heads, ROOT)).await;
    (pool, disks)
}

fn close_all(heads: &Heads) {
    heads.borrow_mut().values_mut().for_each(|head| head.slice = None);
}

/// Returns how many clones were created, and how often there was no room.
fn run(seed: u64, compression: Compression) -> (u64, u64) {
    let world = World::new(seed);
    let mut rng = Rng::new(seed);
    let bytes = [14 << 20, 24 << 20, 40 << 20][rng.below(3) as usize];
    let node = machine(&world, 1, bytes, 1);
    world.block_on(node, CORE, move || async move {
        let pool = create(1).await;
        // The end is in the middle of a block of another leaf.
        let spec = spec(&name_of(ROOT), (BLOCKS + 600) * BLOCK + 512, 1);
        pool.create_volume(VolumeSpec { compression, id: Some(id_of(ROOT)), ..spec }).await.unwrap();
    });
    let root = Head { standing: Standing::There, of: None, slice: None, model: new_model(ROOT) };
    let heads: Heads = Rc::new(RefCell::new(BTreeMap::from([(ROOT, root)])));
    let next = Rc::new(Cell::new(ROOT + 1));
    let mut after_cut = false;
    for _ in 0..6 {
        let shared = Rc::clone(&heads);
        let (pool, disks) =
            world.block_on(node, CORE, move || async move { open_all(&shared, after_cut).await });
        let (shared, forked, rounds) = (Rc::clone(&heads), rng.fork(), 1 + rng.below(25));
        let (opened, its_next) = ((pool.clone(), disks.clone()), Rc::clone(&next));
        let ended =
            world.spawn_on(node, CORE, move || live_together(opened, shared, its_next, forked, rounds));
        if rng.one_in(3) {
            world.wait_for(ended).unwrap();
            let shared = Rc::clone(&heads);
            world.block_on(node, CORE, move || async move {
                check(&slice_of(&shared, ROOT)).await;
                close_all(&shared);
                drop(disks);
                pool.logs_ended().await;
            });
            after_cut = false;
            continue;
        }
        world.run_for(Duration::from_micros(rng.below(900_000)));
        drop(ended);
        if rng.one_in(3) {
            world.kill(node)
        } else {
            world.crash(node)
        }
        close_all(&heads);
        drop((pool, disks));
        world.run_for(Duration::from_millis(200));
        world.restart(node, |_| std::future::pending());
        after_cut = true;
    }
    let created = next.get() - ROOT - 1;
    let full = heads.borrow().values().map(|head| head.model.borrow().full).sum();
    world.block_on(node, CORE, move || async move { end(&heads, after_cut).await });
    (created, full)
}

/// Deletes all clones, the last ones first, and all snapshots: nothing but the first volume is left.
async fn end(heads: &Heads, after_cut: bool) {
    let (pool, disks) = open_all(heads, after_cut).await;
    for number in all(heads).into_iter().rev().filter(|number| *number != ROOT) {
        heads.borrow_mut().get_mut(&number).unwrap().slice = None;
        pool.delete_volume(id_of(number)).await.unwrap();
        forget(heads, number);
    }
    let (slice, model) = (slice_of(heads, ROOT), model_of(heads, ROOT));
    look(&slice, &model, false).await;
    assert!(model.borrow().cloned.is_empty());
    let ids: Vec<u64> = model.borrow().snapshots.keys().copied().collect();
    slice.delete_snapshots(&ids).await.unwrap();
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
    compare(&mut model.borrow_mut().now, &found, false, "in the end");
    let log = log_of(&slice);
    let state = log.inner.state.borrow();
    assert!(state.marks.iter().next().is_none(), "{:?}", state.marks);
    let branch = branch_of(&slice);
    assert!(state.held.keys().all(|era| era.branch == branch), "something is left: {:?}", state.held);
    let blocks = found.iter().filter(|number| **number > 0).count() as u64;
    assert_eq!(state.used.values().map(|used| used.blocks).sum::<u64>(), blocks);
    drop((pool, disks));
}

/// Use `LOG_SEEDS=from..to` to run more seeds.
fn seeds() -> std::ops::Range<u64> {
    let Ok(range) = std::env::var("LOG_SEEDS") else { return 0..8 };
    let (from, to) = range.split_once("..").expect("from..to");
    from.parse().expect("a number")..to.parse().expect("a number")
}

/// Runs a life. If it fails, its seed is printed.
fn run_or_name(seed: u64, compression: Compression) -> (u64, u64) {
    std::panic::catch_unwind(|| run(seed, compression)).unwrap_or_else(|panic| {
        eprintln!("seed {seed}");
        std::panic::resume_unwind(panic)
    })
}

#[test]
fn equal_to_a_copy_for_each_clone() {
    let lives: Vec<(u64, u64)> = seeds().map(|seed| run_or_name(seed, Compression::Off)).collect();
    let created: u64 = lives.iter().map(|(created, _)| created).sum();
    let full: u64 = lives.iter().map(|(_, full)| full).sum();
    assert!(created > lives.len() as u64, "{created} clones");
    assert!(full > 0, "some pools were full");
}

#[test]
fn equal_to_a_copy_for_each_clone_with_compression() {
    for seed in seeds() {
        run_or_name(seed, Compression::Lz4);
    }
}

/// What a clone has not written becomes something else when its snapshot is deleted.
#[test]
fn pins_of_clones_that_are_forgotten_are_noticed() {
    make(Some(Canary::PinForgotten));
    let found = (0..40).find(|seed| std::panic::catch_unwind(|| run(*seed, Compression::Off)).is_err());
    make(None);
    assert!(found.is_some(), "it is not noticed");
}
