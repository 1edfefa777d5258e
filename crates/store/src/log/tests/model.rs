//! Random lives of a pool with log volumes, compared with a map of sectors.
//!
//! They overwrite, unmap, fill the pool, create and delete volumes, empty disks that leave the pool, and lose
//! power at any moment. After each opening everything is compared, and the invariants are checked.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use base::Rng;
use rt::sim::DiskLatency;

use super::*;
use crate::canary::{Canary, make};

const SECTOR: u64 = 512;

/// How many sectors of a volume the tests use; the others are never written.
const SECTORS: u64 = 2400;

/// How many sectors are written in a hot life: so few that what the cleaner finds in its victims fits in one
/// record.
const HOT_SECTORS: u64 = 8 * 8;

/// What is known about a sector.
#[derive(Clone, Debug, Default)]
struct Known {
    /// The content if none of the later writes survived.
    certain: u64,
    /// The later writes. Until a power cut, the content is the last one; after it, any of them is possible.
    later: Vec<u64>,
    /// A write of the sector failed: the content is any of these.
    unsure: bool,
}

impl Known {
    fn may_be(&self, found: u64) -> bool {
        self.certain == found || self.later.contains(&found)
    }

    fn is(&self, found: u64) -> bool {
        if self.unsure { self.may_be(found) } else { *self.later.last().unwrap_or(&self.certain) == found }
    }
}

#[derive(Default)]
struct Model {
    volumes: BTreeMap<VolumeId, BTreeMap<u64, Known>>,
    number: u64,
    full: u64,
    names: u64,
}

type Shared = Rc<RefCell<Model>>;

/// A sector that begins with a number; 0 means zeros. Blocks of such sectors shrink to a quarter, or to a
/// half, or do not shrink, and change that now and then.
fn sector(number: u64) -> Vec<u8> {
    let mut sector = number.to_le_bytes().repeat(SECTOR as usize / 8);
    Rng::new(number).fill(&mut sector[8..8 + [0, 200, 504][(number / 40 % 3) as usize]]);
    sector
}

/// A volume with open slices.
struct Open {
    id: VolumeId,
    stripe: crate::Stripe,
    slices: Vec<Rc<Slice>>,
}

impl Open {
    fn new(pool: &Pool, disks: &CoreDisks, id: VolumeId) -> Open {
        Open { id, stripe: pool.volume(id).unwrap().stripe, slices: slices(pool, disks, id) }
    }

    async fn write(&self, start: u64, data: Vec<u8>, durability: Durability) -> Result<(), SliceError> {
        for piece in self.stripe.pieces(ByteOffset(start * SECTOR), ByteLen(data.len() as u64)) {
            let from = (piece.volume_offset.0 - start * SECTOR) as usize;
            let data = Chain::copy_of(&data[from..from + piece.len.0 as usize]);
            let slice = &self.slices[usize::from(piece.slice)];
            // This is simulated time. If a write waits too long, the panic says what the log is doing.
            let written =
                rt::timeout(Duration::from_secs(60), slice.write(piece.offset, data, durability)).await;
            written.unwrap_or_else(|_| panic!("a write hangs: {}", log_of(slice).at_what()))?;
        }
        Ok(())
    }

    async fn zero(&self, start: u64, count: u64) -> Result<(), SliceError> {
        for piece in self.stripe.pieces(ByteOffset(start * SECTOR), ByteLen(count * SECTOR)) {
            let slice = &self.slices[usize::from(piece.slice)];
            let zeroed = rt::timeout(Duration::from_secs(60), slice.zero(piece.offset, piece.len)).await;
            zeroed.unwrap_or_else(|_| panic!("UNMAP hangs: {}", log_of(slice).at_what()))?;
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), SliceError> {
        for slice in &self.slices {
            slice.flush().await?;
        }
        Ok(())
    }

    async fn read(&self, start: u64, count: u64) -> Vec<u64> {
        let mut bytes = Vec::new();
        for piece in self.stripe.pieces(ByteOffset(start * SECTOR), ByteLen(count * SECTOR)) {
            let slice = &self.slices[usize::from(piece.slice)];
            bytes.extend(slice.read(piece.offset, piece.len).await.unwrap().to_vec());
        }
        let number = |bytes: &[u8]| {
            let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            assert_eq!(bytes, sector(number), "a sector of one piece");
            number
        };
        bytes.chunks(SECTOR as usize).map(number).collect()
    }

    /// Compares everything. After a power cut, what is found is the content from now on.
    async fn compare(&self, model: &Shared, after_cut: bool, what: &str) {
        let found = self.read(0, SECTORS).await;
        let mut model = model.borrow_mut();
        let known = model.volumes.get_mut(&self.id).unwrap();
        for (at, found) in (0..).zip(found) {
            let known = known.entry(at).or_default();
            let fits = if after_cut { known.may_be(found) } else { known.is(found) };
            assert!(fits, "{what}: sector {at} of {} holds {found} and not {known:?}", self.id);
            if after_cut {
                *known = Known { certain: found, ..Known::default() };
            } else if known.unsure {
                known.later.push(found);
                known.unsure = false;
            }
        }
    }
}

/// Notes what is about to be written.
fn note(model: &Shared, id: VolumeId, start: u64, count: u64, zero: bool) -> Vec<u8> {
    let mut model = model.borrow_mut();
    let mut data = Vec::new();
    for at in start..start + count {
        model.number += 1;
        let number = if zero { 0 } else { model.number };
        model.volumes.get_mut(&id).unwrap().entry(at).or_default().later.push(number);
        data.extend(sector(number));
    }
    data
}

/// Notes how the write ended.
fn done(model: &Shared, id: VolumeId, start: u64, count: u64, result: Result<(), SliceError>, durable: bool) {
    let mut model = model.borrow_mut();
    if result.is_err() {
        assert_eq!(result, Err(SliceError::Full));
        model.full += 1;
    }
    for at in start..start + count {
        let known = model.volumes.get_mut(&id).unwrap().get_mut(&at).unwrap();
        match result {
            Ok(()) if durable => {
                known.certain = known.later.pop().unwrap();
                known.later.clear();
                known.unsure = false;
            }
            Ok(()) => known.unsure = false,
            Err(_) => known.unsure = true,
        }
    }
}

/// Writes, zeroes and flushes. With `hot`, a few blocks are written again and again.
async fn live(volumes: Vec<Rc<Open>>, model: Shared, mut rng: Rng, ops: u64, hot: bool) {
    let (sectors, ops) = if hot { (HOT_SECTORS, 4 * ops) } else { (SECTORS, ops) };
    for _ in 0..ops {
        let volume = &volumes[rng.below(volumes.len() as u64) as usize];
        let id = volume.id;
        let start = rng.below(sectors);
        let long = !hot && rng.one_in(4);
        let aligned = rng.one_in(2);
        let start = if aligned { start / 8 * 8 } else { start };
        let count = (if long { 1 + rng.below(600) } else { 8 }).min(SECTORS - start);
        match rng.below(20) {
            0..12 => {
                let durable = rng.one_in(2);
                let durability = if durable { Durability::Durable } else { Durability::Cached };
                let data = note(&model, id, start, count, false);
                let result = volume.write(start, data, durability).await;
                done(&model, id, start, count, result, durable);
            }
            12..15 => {
                // All at once, some in the same block.
                let mut tasks = Vec::new();
                for at in (start..start + count.min(40)).step_by(4) {
                    let count = 4.min(start + count.min(40) - at);
                    let data = note(&model, id, at, count, false);
                    let (volume, model) = (Rc::clone(volume), Rc::clone(&model));
                    tasks.push(rt::spawn(async move {
                        let result = volume.write(at, data, Durability::Durable).await;
                        done(&model, volume.id, at, count, result, true);
                    }));
                }
                for task in tasks {
                    task.await;
                }
            }
            15..18 => {
                note(&model, id, start, count, true);
                let result = volume.zero(start, count).await;
                // Whole blocks take no room for data, and there are segments for their records in a full log.
                let whole = start % 8 == 0 && count % 8 == 0;
                assert!(!whole || result.is_ok(), "UNMAP of {count} sectors at {start}: {result:?}");
                done(&model, id, start, count, result, false);
            }
            18 => {
                let noted: Vec<(u64, u64)> = {
                    let model = model.borrow();
                    let sure = model.volumes[&id].iter().filter(|(_, known)| !known.unsure);
                    sure.filter_map(|(at, known)| Some((*at, *known.later.last()?))).collect()
                };
                volume.flush().await.unwrap();
                let mut model = model.borrow_mut();
                for (at, number) in noted {
                    let known = model.volumes.get_mut(&id).unwrap().get_mut(&at).unwrap();
                    *known = Known { certain: number, ..Known::default() };
                }
            }
            _ => volume.compare(&model, false, "while it lives").await,
        }
    }
}

/// Opens the pool, compares everything, checks, and creates and deletes volumes. With `compresses`, some
/// volumes are compressed, and some change that.
async fn look(
    model: Shared,
    disks: usize,
    after_cut: bool,
    compresses: bool,
    mut rng: Rng,
) -> (Pool, CoreDisks, Vec<Rc<Open>>) {
    let pool = open(disks).await;
    let core_disks = pool.share_disks().attach();
    let ids: Vec<VolumeId> = model.borrow().volumes.keys().copied().collect();
    let mut volumes = Vec::new();
    for id in ids {
        let volume = Open::new(&pool, &core_disks, id);
        for slice in &volume.slices {
            slice.ready().await.unwrap();
        }
        volume.compare(&model, after_cut, "after opening").await;
        for slice in &volume.slices {
            check(slice).await;
        }
        volumes.push(Rc::new(volume));
    }
    if volumes.len() > 1 && rng.one_in(3) {
        let gone = volumes.remove(rng.below(volumes.len() as u64) as usize);
        let id = gone.id;
        drop(gone);
        pool.delete_volume(id).await.unwrap();
        model.borrow_mut().volumes.remove(&id);
    }
    if volumes.len() < 2 {
        let name = {
            let mut model = model.borrow_mut();
            model.names += 1;
            format!("v{}", model.names)
        };
        // The end is in the middle of a block.
        let capacity = SECTORS * SECTOR + [0, 512, 1 << 30][rng.below(3) as usize];
        let spec =
            VolumeSpec { compression: setting(compresses), ..spec(&name, capacity, 1 << rng.below(2)) };
        match pool.create_volume(spec).await {
            Ok(info) => {
                model.borrow_mut().volumes.insert(info.id, BTreeMap::new());
                volumes.push(Rc::new(Open::new(&pool, &core_disks, info.id)));
            }
            Err(error) => assert!(matches!(error, crate::StoreError::NoSpace { .. }), "{error}"),
        }
    }
    if compresses {
        for volume in &volumes {
            pool.set_compression(volume.id, setting(!rng.one_in(4))).await.unwrap();
        }
    }
    if disks > 1 && rng.one_in(2) {
        leave_or_stay(&pool, &mut rng).await;
    }
    (pool, core_disks, volumes)
}

/// Lets a disk leave the pool, without ever removing it, or keeps it.
pub(super) async fn leave_or_stay(pool: &Pool, rng: &mut Rng) {
    if pool.leaving().is_none() {
        // The other one may be too full for that.
        let left = pool.leave(&path(rng.below(2) as usize)).await;
        let is_full = matches!(left, Err(crate::StoreError::NoSpace { .. }));
        assert!(left.is_ok() || is_full, "{left:?}");
    } else if rng.one_in(2) {
        pool.stay().await.unwrap();
    }
    // The roots move. The logs may have no room yet, or not be open.
    let _ = pool.empty_logs().await;
}

/// A slot of one of the two copies of the state of a log, if there are two.
fn slot_of_a_state(volumes: &[Rc<Open>], rng: &mut Rng) -> Option<(usize, u64)> {
    let slices: Vec<&Rc<Slice>> = volumes.iter().flat_map(|volume| &volume.slices).collect();
    let slice = slices.get(rng.below(slices.len().max(1) as u64) as usize)?;
    let copies = state_slots(slice);
    let copy = &copies[rng.below(2) as usize];
    let is_twice = copies.iter().all(|copy| !copy.is_empty());
    is_twice.then(|| copy[rng.below(copy.len() as u64) as usize])
}

fn setting(compresses: bool) -> Compression {
    if compresses { Compression::Lz4 } else { Compression::Off }
}

fn run(seed: u64, compresses: bool) -> u64 {
    let world = World::new(seed);
    let mut rng = Rng::new(seed);
    // Of its own, so that a seed means the same life as before.
    let mut damage = Rng::new(seed ^ 0xbad);
    let disks = 1 + rng.below(2) as usize;
    // There is room for both volumes, or not.
    let bytes = [5 << 20, 6 << 20, 8 << 20, 12 << 20][rng.below(4) as usize];
    let node = machine(&world, disks, bytes, 1);
    let hot = rng.one_in(4);
    let latency =
        DiskLatency { read: Duration::from_micros(60)..Duration::from_millis(60), ..DiskLatency::default() };
    (0..disks).filter(|_| hot).for_each(|disk| world.set_disk_latency(node, path(disk), latency.clone()));
    let model = Shared::default();
    world.block_on(node, CORE, move || async move { drop(create(disks).await) });
    let mut after_cut = false;
    for _ in 0..6 {
        let (shared, forked) = (Rc::clone(&model), rng.fork());
        let (pool, core_disks, volumes) =
            world.block_on(node, CORE, move || look(shared, disks, after_cut, compresses, forked));
        let (shared, forked, ops) = (Rc::clone(&model), rng.fork(), 1 + rng.below(150));
        let open = volumes.clone();
        let ended = world.spawn_on(node, CORE, move || live(open, shared, forked, ops, hot));
        if rng.one_in(3) {
            world.wait_for(ended).unwrap();
            world.block_on(node, CORE, move || async move {
                drop((volumes, core_disks));
                pool.logs_ended().await;
            });
            after_cut = false;
        } else {
            // A cut at any moment.
            world.run_for(Duration::from_micros(rng.below(if hot { 2_000_000 } else { 400_000 })));
            drop(ended);
            let bad = slot_of_a_state(&volumes, &mut damage).filter(|_| damage.one_in(2));
            if rng.one_in(3) {
                world.kill(node)
            } else {
                world.crash(node)
            }
            if let Some((disk, at)) = bad {
                let at = at + SECTOR * damage.below(BLOCK / SECTOR);
                world.corrupt_disk(node, path(disk), at..at + SECTOR);
            }
            drop((pool, core_disks, volumes));
            world.run_for(Duration::from_millis(200));
            world.restart(node, |_| std::future::pending());
            after_cut = true;
        }
    }
    let full = model.borrow().full;
    world.block_on(node, CORE, move || async move {
        drop(look(model, disks, after_cut, compresses, rng).await);
    });
    full
}

/// Use `LOG_SEEDS=from..to` to run more seeds.
fn seeds() -> std::ops::Range<u64> {
    let Ok(range) = std::env::var("LOG_SEEDS") else { return 0..60 };
    let (from, to) = range.split_once("..").expect("from..to");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn equal_to_the_obvious_version() {
    let full: u64 = seeds().map(|seed| run_or_name(seed, false)).sum();
    assert!(full > 0, "some pools were full");
}

#[test]
fn equal_to_the_obvious_version_with_compression() {
    for seed in seeds() {
        run_or_name(seed, true);
    }
}

/// Runs a life. If it fails, its seed is printed.
fn run_or_name(seed: u64, compresses: bool) -> u64 {
    std::panic::catch_unwind(|| run(seed, compresses)).unwrap_or_else(|panic| {
        eprintln!("seed {seed}");
        std::panic::resume_unwind(panic)
    })
}

/// A host read overwritten data, because the block had been written to the place that it was moved from.
#[test]
fn moves_that_come_late_are_noticed() {
    make(Some(Canary::MoveLate));
    let found = (0..100).find(|seed| std::panic::catch_unwind(|| run(*seed, false)).is_err());
    make(None);
    println!("seed {found:?}");
    assert!(found.is_some(), "MoveLate is not noticed");
}
