//! Thick volumes with checksums: what a disk holds that was not written there is a bad block, and nothing
//! else is, whenever the power fails.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use base::{ByteLen, ByteOffset, Chain, Rng};
use rt::Durability;
use rt::sim::{Astray, DiskFaults, DiskImage, NodeId, Recording, Subsets, World, for_each_cut};
use store::{LogTuning, Pool, ReadFailure, SliceError, VolumeId, VolumeKind, VolumeSpec, ZeroingWatch};

use crate::disk::{CORE, Volume, creating, existing, machine, opening, path, paths, sevens, thick};

const MIB: u64 = 1 << 20;
const SECTOR: u64 = 512;
/// What has one checksum.
const UNIT: u64 = 4096;
/// What one page of checksums covers.
const PAGE_COVERS: u64 = 1008 * UNIT;

fn checked(capacity: u64) -> VolumeSpec {
    VolumeSpec { checksums: true, slices: Some(1), ..thick("db", capacity) }
}

fn filled(byte: u8, len: u64) -> Chain {
    Chain::copy_of(&vec![byte; len as usize])
}

/// A volume of 64 KiB with checksums that is full of sevens, and its offset on the disk.
fn checked_sevens(world: &World, node: NodeId) -> (Pool, Volume, u64) {
    sevens(world, node, checked(16 * UNIT))
}

/// The units that cannot be read; of the others, each holds what `expected` says.
async fn bad_units(volume: &Volume, start: u64, expected: impl Fn(u64) -> u8) -> BTreeSet<u64> {
    let mut bad = BTreeSet::new();
    for unit in 0..16 {
        match volume.slices[0].read(ByteOffset(unit * UNIT), ByteLen(UNIT)).await {
            Ok(data) => assert_eq!(data.to_vec(), [expected(unit); UNIT as usize], "unit {unit}"),
            Err(SliceError::Unreadable(found)) => {
                let at = (found.offset.0, found.disk, found.disk_offset, found.cause);
                assert_eq!(at, (unit * UNIT, 0, start + unit * UNIT, ReadFailure::Medium));
                bad.insert(unit);
            }
            Err(error) => panic!("{error}"),
        }
    }
    bad
}

#[derive(Clone, Copy, Debug)]
enum Lie {
    Decay,
    Lost,
    Misdirected,
}

/// Each lie of a disk is found by the next read, names the block, and is repaired by writing it again.
#[test]
fn what_a_disk_lies_about_is_a_bad_block() {
    for (seed, block) in [(1, 512), (2, 4096)] {
        for lie in [Lie::Decay, Lie::Lost, Lie::Misdirected] {
            let world = World::new(seed);
            let node = machine(&world, &[(4 << 20, block)]);
            let (pool, volume, start) = checked_sevens(&world, node);
            let unit_5 = start + 5 * UNIT..start + 6 * UNIT;
            match lie {
                Lie::Decay => world.corrupt_disk(node, path(0), unit_5.end - SECTOR..unit_5.end),
                Lie::Lost => world.lead_write_astray(node, path(0), unit_5, Astray::Lost),
                Lie::Misdirected => {
                    let elsewhere = Astray::Misdirected(3 * UNIT as i64);
                    world.lead_write_astray(node, path(0), unit_5, elsewhere);
                }
            }
            world.block_on(node, CORE, move || async move {
                let slice = &volume.slices[0];
                let (mut held, mut wanted) = (7, BTreeSet::from([5]));
                if !matches!(lie, Lie::Decay) {
                    held = 9;
                    slice.write(ByteOffset(5 * UNIT), filled(held, UNIT), Durability::Durable).await.unwrap();
                }
                if matches!(lie, Lie::Misdirected) {
                    wanted.insert(8);
                }
                let expected = |unit: u64| if unit == 5 { held } else { 7 };
                assert_eq!(bad_units(&volume, start, expected).await, wanted, "{lie:?}");
                // A read of more names the first one.
                let all = slice.read(ByteOffset(SECTOR), ByteLen(15 * UNIT)).await;
                let Err(SliceError::Unreadable(first)) = all else { panic!("{lie:?}: {all:?}") };
                assert_eq!((first.offset.0, first.disk_offset), (5 * UNIT, start + 5 * UNIT));
                // A write of a part needs the rest, and does not make the block look whole.
                let part = slice.write(ByteOffset(5 * UNIT + SECTOR), filled(1, SECTOR), Durability::Cached);
                assert!(matches!(part.await, Err(SliceError::Unreadable(_))), "{lie:?}");
                assert!(slice.read_edges(ByteOffset(5 * UNIT), ByteLen(SECTOR)).await.is_err());
                assert_eq!(bad_units(&volume, start, expected).await, wanted, "{lie:?}");
                assert_eq!(slice.write_unit(), UNIT);
                for unit in wanted {
                    slice.rewrite(ByteOffset(unit * UNIT), filled(expected(unit), UNIT)).await.unwrap();
                }
                assert_eq!(bad_units(&volume, start, expected).await, BTreeSet::new(), "{lie:?}");
                drop(pool);
            });
        }
    }
}

/// A disk that loses even the write that should repair a block does not make it look good.
#[test]
fn a_block_that_cannot_be_repaired_stays_bad() {
    let world = World::new(1);
    let node = machine(&world, &[(4 << 20, 512)]);
    let (pool, volume, start) = checked_sevens(&world, node);
    let unit_5 = start + 5 * UNIT..start + 6 * UNIT;
    world.corrupt_disk(node, path(0), unit_5.clone());
    world.lead_write_astray(node, path(0), unit_5, Astray::Lost);
    world.block_on(node, CORE, move || async move {
        let slice = &volume.slices[0];
        let failed = slice.rewrite(ByteOffset(5 * UNIT), filled(7, UNIT)).await;
        assert_eq!(failed, Err(SliceError::Unwritable));
        assert_eq!(bad_units(&volume, start, |_| 7).await, BTreeSet::from([5]));
        slice.rewrite(ByteOffset(5 * UNIT), filled(7, UNIT)).await.unwrap();
        assert_eq!(bad_units(&volume, start, |_| 7).await, BTreeSet::new());
        drop(pool);
    });
}

/// A write that the disk has lost where there was nothing before: the block is in use nevertheless, so
/// whoever copies what is in use finds it.
#[test]
fn a_lost_write_to_a_hole_is_in_use() {
    let world = World::new(1);
    let node = machine(&world, &[]);
    // A file knows its holes.
    world.put_file(node, path(0), DiskImage::new(8 * MIB, 512));
    let (pool, volume) = world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        let info = pool.create_volume(checked(MIB)).await.unwrap();
        let volume = Volume::open(&pool, info.id);
        // Opens the page of checksums, so that the next write is one of data.
        volume.write(0, &[1; UNIT as usize], Durability::Durable).await.unwrap();
        (pool, volume)
    });
    world.lead_write_astray(node, path(0), 0..8 * MIB, Astray::Lost);
    world.block_on(node, CORE, move || async move {
        volume.write(8 * UNIT, &[2; UNIT as usize], Durability::Durable).await.unwrap();
        let slice = &volume.slices[0];
        let used = slice.allocated(ByteOffset(8 * UNIT), ByteLen(UNIT), 1).await.unwrap();
        assert_eq!(used, [(ByteOffset(8 * UNIT), ByteLen(UNIT))]);
        assert!(slice.read(ByteOffset(8 * UNIT), ByteLen(UNIT)).await.is_err());
        drop(pool);
    });
}

/// What the checksums say of parts that were not written to lately counts after the node has stopped; of the
/// others, what the disk holds counts.
#[test]
fn checksums_that_were_settled_outlive_the_node() {
    for settles in [true, false] {
        let world = World::new(1);
        let node = machine(&world, &[(4 << 20, 512)]);
        let (pool, volume, start) = checked_sevens(&world, node);
        let id = volume.info.id;
        world.block_on(node, CORE, move || async move {
            if settles {
                volume.slices[0].settle(Duration::ZERO).await.unwrap();
            }
            drop((volume, pool));
        });
        world.corrupt_disk(node, path(0), start + 5 * UNIT..start + 5 * UNIT + SECTOR);
        world.block_on(node, CORE, move || async move {
            let pool = Pool::open(&paths(1), opening(1)).await.unwrap();
            let volume = Volume::open(&pool, id);
            let found = volume.read(5 * UNIT, UNIT).await;
            assert_eq!(found.is_err(), settles);
            assert_eq!(volume.read(6 * UNIT, UNIT).await.unwrap(), [7; UNIT as usize]);
        });
    }
}

/// A page of checksums that is damaged, or cannot be read, makes nothing unreadable.
#[test]
fn damaged_checksums_are_computed_again() {
    for is_unreadable in [false, true] {
        let world = World::new(1);
        let node = machine(&world, &[(4 << 20, 512)]);
        let (pool, volume, start) = checked_sevens(&world, node);
        let id = volume.info.id;
        world.block_on(node, CORE, move || async move {
            volume.slices[0].settle(Duration::ZERO).await.unwrap();
            drop((volume, pool));
        });
        let mut disk = vec![0; 4 << 20];
        world.disk_image(node, path(0)).read(0, &mut disk);
        let page = disk.windows(8).position(|bytes| bytes == b"URSASUMS").unwrap() as u64;
        match is_unreadable {
            false => world.corrupt_disk(node, path(0), page..page + UNIT),
            true => {
                let faults = DiskFaults::default().with_unreadable(page..page + UNIT).remapping();
                world.set_disk_faults(node, path(0), faults);
            }
        }
        let (pool, volume) = world.block_on(node, CORE, move || async move {
            let pool = Pool::open(&paths(1), opening(1)).await.unwrap();
            let volume = Volume::open(&pool, id);
            assert_eq!(volume.read(0, 16 * UNIT).await.unwrap(), [7; 16 * UNIT as usize]);
            (pool, volume)
        });
        // From now on they are compared again.
        world.corrupt_disk(node, path(0), start + 5 * UNIT..start + 5 * UNIT + SECTOR);
        world.block_on(node, CORE, move || async move {
            assert_eq!(bad_units(&volume, start, |_| 7).await, BTreeSet::from([5]));
            drop(pool);
        });
    }
}

/// Either may win if two changes of a block are under way, also if the caller of one has gone away. No block
/// becomes unreadable for that, even if that change gives back the space of zeros.
#[test]
fn a_change_whose_caller_goes_away_leaves_its_blocks_readable() {
    for abandoned in [8, 0] {
        let won: BTreeSet<u8> = (0..40).map(|seed| winner(seed, abandoned)).collect();
        assert_eq!(won, BTreeSet::from([abandoned, 9]));
    }
}

/// What a block holds after a change to `abandoned` whose caller has gone away, and a write of nines.
fn winner(seed: u64, abandoned: u8) -> u8 {
    let world = World::new(seed);
    let node = machine(&world, &[(4 << 20, 512)]);
    let (pool, volume, _) = checked_sevens(&world, node);
    let volume = Rc::new(volume);
    let writing = Rc::clone(&volume);
    world.block_on(node, CORE, move || async move {
        let slice = &writing.slices[0];
        let write = |byte| slice.write(ByteOffset(UNIT), filled(byte, 2 * UNIT), Durability::Cached);
        let zero = || slice.zero(ByteOffset(UNIT), ByteLen(2 * UNIT));
        let short = Duration::from_micros(1);
        let is_late = match abandoned {
            0 => {
                zero().await.unwrap();
                rt::timeout(short, zero()).await.is_err()
            }
            byte => rt::timeout(short, write(byte)).await.is_err(),
        };
        assert!(is_late, "the disk is slower");
        write(9).await.unwrap();
    });
    world.run_until_idle();
    world.block_on(node, CORE, move || async move {
        let found = volume.read(UNIT, UNIT).await.unwrap();
        assert!(found == [abandoned; UNIT as usize] || found == [9; UNIT as usize]);
        // It may be closed, and says nothing of these blocks.
        volume.slices[0].settle(Duration::ZERO).await.unwrap();
        assert_eq!(volume.read(UNIT, UNIT).await.unwrap(), found);
        drop(pool);
        found[0]
    })
}

/// A volume takes its checksums with it wherever it is converted to, and gets them there.
#[test]
fn a_converted_volume_has_checksums_if_it_is_to_have_some() {
    let world = World::new(1);
    let node = machine(&world, &[(32 * MIB, 512)]);
    world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        let segment = Some(ByteLen(64 << 10));
        let bounds = LogTuning { segment, changes_min: 128, changes_max: 512, ..LogTuning::default() };
        pool.set_log_tuning(bounds);
        let id = pool.create_volume(checked(MIB)).await.unwrap().id;
        let volume = Volume::open(&pool, id);
        volume.write(0, &vec![5; MIB as usize], Durability::Durable).await.unwrap();
        let free = pool.usage().free;
        for (kind, checksums) in [(VolumeKind::Log, false), (VolumeKind::Thick, true)] {
            let (compression, watch) = (store::Compression::Off, ZeroingWatch::default());
            pool.check_conversion(id, kind, checksums).unwrap();
            pool.begin_conversion(id, kind, compression, checksums, watch).await.unwrap();
            volume.begin_conversion(&pool);
            let slice = &volume.slices[0];
            while slice.convert_some().await.unwrap().0 > 0 {}
            assert!(slice.become_equal().await.unwrap());
            pool.switch_volume(id).await.unwrap();
            assert!(slice.end_conversion(true).await);
            pool.leave_layouts(id);
            pool.free_left_layouts(id, ZeroingWatch::default()).await.unwrap();
            let info = pool.volume(id).unwrap();
            assert_eq!((info.kind, info.checksums), (kind, checksums));
            assert_eq!(volume.read(0, MIB).await.unwrap(), vec![5; MIB as usize]);
        }
        assert_eq!(pool.usage().free, free, "the former extents are free");
    });
}

/// What was written to a sector: the number, and the act since which it is durable.
#[derive(Clone, Copy, Debug)]
struct Write {
    number: u64,
    durable: u64,
}

/// What was written, by sector.
#[derive(Default)]
struct History(BTreeMap<u64, Vec<Write>>);

impl History {
    fn note(&mut self, sectors: std::ops::Range<u64>, number: impl Fn(u64) -> u64, durable: u64) {
        for sector in sectors {
            self.0.entry(sector).or_default().push(Write { number: number(sector), durable });
        }
    }

    fn flushed(&mut self, act: u64) {
        let writes = self.0.values_mut().flatten();
        writes.for_each(|write| write.durable = write.durable.min(act));
    }

    /// Whether a sector may hold this number when everything up to this act was acknowledged.
    fn may_be(&self, sector: u64, acked: u64, found: u64) -> bool {
        let Some(writes) = self.0.get(&sector) else { return found == 0 };
        let from = writes.iter().rposition(|write| write.durable <= acked);
        from.is_none() && found == 0 || writes[from.unwrap_or(0)..].iter().any(|write| write.number == found)
    }
}

const ACTS: u64 = 24;

/// The first sectors of the volume, and those around the border of two pages.
const ZONES: [std::ops::Range<u64>; 2] = [0..48, PAGE_COVERS / SECTOR - 24..PAGE_COVERS / SECTOR + 24];

fn record(seed: u64) -> (Recording, Rc<RefCell<History>>, VolumeId) {
    let world = World::new(seed);
    let node = machine(&world, &[(8 * MIB, 512)]);
    let (pool, id) = world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        let id = pool.create_volume(checked(PAGE_COVERS + 64 * UNIT)).await.unwrap().id;
        (pool, id)
    });
    let recording = world.record_disk(node, path(0));
    let (acks, history) = (recording.clone(), Rc::new(RefCell::new(History::default())));
    let noted = Rc::clone(&history);
    world.block_on(node, CORE, move || async move {
        let mut rng = Rng::new(seed);
        let volume = Volume::open(&pool, id);
        for act in 1..=ACTS {
            let zone = ZONES[rng.below(2) as usize].clone();
            let start = zone.start + rng.below(40);
            let sectors = start..(start + 1 + rng.below(12)).min(zone.end);
            let (offset, len) = (sectors.start * SECTOR, (sectors.end - sectors.start) * SECTOR);
            match rng.below(10) {
                0 | 1 => {
                    // Also makes durable what was written.
                    let settled = volume.slices[0].settle(Duration::ZERO).await;
                    settled.unwrap();
                }
                2 => {
                    volume.flush().await.unwrap();
                    noted.borrow_mut().flushed(act);
                }
                3 => {
                    noted.borrow_mut().note(sectors, |_| 0, u64::MAX);
                    volume.zero(offset, len).await.unwrap();
                }
                kind => {
                    let number = |sector: u64| act * 10_000 + sector + 1;
                    let bytes: Vec<u8> =
                        sectors.clone().flat_map(|at| number(at).to_le_bytes().repeat(64)).collect();
                    let (durability, durable) = match kind < 7 {
                        true => (Durability::Durable, act),
                        false => (Durability::Cached, u64::MAX),
                    };
                    noted.borrow_mut().note(sectors, number, durable);
                    volume.write(offset, &bytes, durability).await.unwrap();
                }
            }
            acks.ack(act);
        }
        drop((volume, pool));
    });
    (recording, history, id)
}

/// What the zones hold.
async fn zones(volume: &Volume) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for zone in ZONES {
        let len = (zone.end - zone.start) * SECTOR;
        let data = volume.read(zone.start * SECTOR, len).await.expect("nothing makes a block unreadable");
        for (sector, bytes) in zone.zip(data.chunks(SECTOR as usize)) {
            assert!(bytes.chunks(8).all(|number| *number == bytes[..8]), "sector {sector} is of one piece");
            found.push((sector, u64::from_le_bytes(bytes[..8].try_into().unwrap())));
        }
    }
    found
}

fn cut_everywhere(seed: u64) {
    let (recording, history, id) = record(seed);
    let cuts = for_each_cut(&recording, Subsets { bits: 3, seed }, |cut| {
        let world = World::new(2);
        let node = world.add_node("node", 1, |_| std::future::pending());
        world.put_disk(node, path(0), cut.images[0].clone());
        let found = world.block_on(node, CORE, move || async move {
            let pool = Pool::open(&paths(1), opening(1)).await.unwrap();
            let volume = Volume::open(&pool, id);
            let found = zones(&volume).await;
            volume.slices[0].settle(Duration::ZERO).await.unwrap();
            drop((volume, pool));
            let pool = Pool::open(&paths(1), opening(1)).await.unwrap();
            assert_eq!(zones(&Volume::open(&pool, id)).await, found, "and it stays so");
            found
        });
        let history = history.borrow();
        for (sector, number) in found {
            let writes = history.0.get(&sector);
            assert!(
                history.may_be(sector, cut.acked, number),
                "{cut}: sector {sector} is {number}: {writes:?}"
            );
        }
    });
    assert!(cuts > 100, "{cuts}");
}

/// Whichever sectors of whatever was under way survive, each block can be read, and holds what was written
/// last or what a flush did not cover.
#[test]
fn no_power_cut_makes_a_block_unreadable() {
    (0..2).for_each(cut_everywhere);
}

#[test]
#[cfg(debug_assertions)]
fn pages_that_are_opened_late_or_closed_early_are_noticed() {
    use store::canary::{Canary, make};
    for canary in [Canary::ChecksumsUnopened, Canary::ChecksumsUnflushed] {
        make(Some(canary));
        let noticed = (0..3).any(|seed| std::panic::catch_unwind(|| cut_everywhere(seed)).is_err());
        make(None);
        assert!(noticed, "{canary:?}");
    }
}
