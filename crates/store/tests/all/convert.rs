//! Converting volumes while they are written to, with crashes and without room.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use base::{ByteLen, ByteOffset, Chain, Rng};
use rt::Durability;
use rt::sim::{DiskFaults, DiskLatency, NodeId, World};
use store::{
    ClusterId, Compression, CopyOf, CopyState, LogTuning, Moved, Pool, SliceError, StoreError, VolumeId,
    VolumeKind, VolumeSpec, ZeroingWatch,
};

use crate::disk::{CORE, Volume, creating, existing, machine, opening, path, paths, thick};

const MIB: u64 = 1 << 20;
const SECTOR: u64 = 512;
const WRITERS: u64 = 4;

/// What a volume should hold.
#[derive(Default)]
struct Known {
    /// The number last written to each sector; missing: zeros.
    acked: BTreeMap<u64, u64>,
    /// Writes that have begun: if there is a crash, they may have happened.
    under_way: BTreeMap<u64, u64>,
    last: u64,
    stopped: bool,
}

fn sector(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(SECTOR as usize / 8)
}

async fn create() -> Pool {
    let pool = Pool::create(existing(1), creating()).await.unwrap();
    bound_logs(&pool);
    pool
}

/// Logs that fit in a pool of some MiB.
fn bound_logs(pool: &Pool) {
    let segment = Some(ByteLen(64 << 10));
    pool.set_log_tuning(LogTuning { segment, changes_min: 128, changes_max: 512, ..LogTuning::default() });
}

/// Writes single sectors, durably, until it is to stop. Of neighbouring sectors, each writer has one: they
/// share blocks of logs.
async fn write(volume: Rc<Volume>, known: Rc<RefCell<Known>>, writer: u64, mut rng: Rng, zeroes: bool) {
    let sectors = volume.info.capacity.0 / SECTOR;
    while !known.borrow().stopped {
        let at = rng.below(sectors / WRITERS) * WRITERS + writer;
        let is_zeroed = zeroes && rng.one_in(4);
        let number = {
            let mut known = known.borrow_mut();
            known.last += 1;
            let number = if is_zeroed { 0 } else { known.last };
            known.under_way.insert(at, number);
            number
        };
        match is_zeroed {
            true => volume.zero(at * SECTOR, SECTOR).await.unwrap(),
            false => volume.write(at * SECTOR, &sector(number), Durability::Durable).await.unwrap(),
        }
        {
            let mut known = known.borrow_mut();
            known.under_way.remove(&at);
            known.acked.insert(at, number);
        }
        rt::sleep(Duration::from_micros(rng.below(100))).await;
    }
}

fn start(volume: &Rc<Volume>, known: &Rc<RefCell<Known>>, seed: u64, zeroes: bool) -> Vec<rt::Task<()>> {
    let writer =
        |number| write(Rc::clone(volume), Rc::clone(known), number, Rng::new(seed + number * 1000), zeroes);
    (0..WRITERS).map(|number| rt::spawn(writer(number))).collect()
}

async fn stop(writers: Vec<rt::Task<()>>, known: &Rc<RefCell<Known>>) {
    known.borrow_mut().stopped = true;
    for writer in writers {
        writer.await;
    }
    known.borrow_mut().stopped = false;
}

/// Compares the volume with what it should hold. What was under way has happened, or it has not.
async fn check(volume: &Volume, known: &RefCell<Known>) {
    let data = volume.read(0, volume.info.capacity.0).await.unwrap();
    let mut known = known.borrow_mut();
    for (at, found) in (0..).zip(data.chunks(SECTOR as usize)) {
        let number = u64::from_le_bytes(found[..8].try_into().unwrap());
        assert!(found == sector(number), "sector {at} is of one piece");
        let acked = known.acked.get(&at).copied().unwrap_or(0);
        let under_way = known.under_way.remove(&at);
        assert!(number == acked || Some(number) == under_way, "sector {at}: {number}, not {acked}");
        known.acked.insert(at, number);
    }
}

async fn begin(pool: &Pool, volume: &Volume, kind: VolumeKind) {
    let (id, watch) = (volume.info.id, ZeroingWatch::default());
    let checksums = volume.info.checksums && kind == VolumeKind::Thick;
    pool.begin_conversion(id, kind, Compression::Off, checksums, watch).await.unwrap();
    volume.begin_conversion(pool);
}

async fn copy(volume: &Volume) -> Result<(), SliceError> {
    for slice in &volume.slices {
        while slice.convert_some().await?.0 > 0 {}
    }
    Ok(())
}

/// Does what a node does for a conversion that has begun.
async fn finish(pool: &Pool, volume: &Volume) -> Result<(), SliceError> {
    loop {
        copy(volume).await?;
        let mut equal = true;
        for slice in &volume.slices {
            equal &= slice.become_equal().await?;
        }
        if equal {
            break;
        }
    }
    pool.switch_volume(volume.info.id).await.unwrap();
    end(pool, volume, true).await;
    Ok(())
}

async fn end(pool: &Pool, volume: &Volume, switched: bool) {
    for slice in &volume.slices {
        slice.end_conversion(switched).await;
    }
    pool.leave_layouts(volume.info.id);
    pool.free_left_layouts(volume.info.id, ZeroingWatch::default()).await.unwrap();
}

#[test]
fn a_volume_is_converted_there_and_back_while_it_is_written() {
    (0..8).for_each(convert_there_and_back);
}

#[test]
#[cfg(debug_assertions)]
fn mistakes_of_conversions_are_noticed() {
    use store::canary::{Canary, make};
    for canary in [Canary::ConvertOnce, Canary::ConvertUnheld, Canary::EqualOnce] {
        make(Some(canary));
        let fails = |seed: &u64| std::panic::catch_unwind(|| convert_there_and_back(*seed)).is_err();
        let noticed = (0..40).find(fails);
        make(None);
        assert!(noticed.is_some(), "{canary:?} is not noticed");
    }
}

fn convert_there_and_back(seed: u64) {
    let world = World::new(seed);
    let node = machine(&world, &[(32 * MIB, 512)]);
    world.block_on(node, CORE, move || async move {
        let pool = create().await;
        // Not a whole number of blocks of a log.
        let spec = VolumeSpec { checksums: seed % 2 == 1, ..thick("db", MIB + 3 * SECTOR) };
        let id = pool.create_volume(spec).await.unwrap().id;
        let free = pool.usage().free;
        let volume = Rc::new(Volume::open(&pool, id));
        let known = Rc::default();
        for kind in [VolumeKind::Log, VolumeKind::Thick, VolumeKind::Log, VolumeKind::Thick] {
            let writers = start(&volume, &known, seed, true);
            rt::sleep(Duration::from_millis(5)).await;
            begin(&pool, &volume, kind).await;
            assert_eq!(pool.volume(id).unwrap().converting, Some(kind));
            finish(&pool, &volume).await.unwrap();
            rt::sleep(Duration::from_millis(5)).await;
            stop(writers, &known).await;
            let info = pool.volume(id).unwrap();
            assert_eq!((info.kind, info.converting), (kind, None));
            check(&volume, &known).await;
        }
        assert_eq!(pool.usage().free, free, "nothing is left of the logs");
        drop((volume, pool));
        let pool = Pool::open(&paths(1), opening(1)).await.unwrap();
        check(&Volume::open(&pool, id), &known).await;
    });
}

/// A life that ends with a power cut after `time`, or when the volume has been converted. Returns how long it
/// took.
fn live(
    world: &World,
    node: NodeId,
    from: VolumeKind,
    time: Duration,
    known: &Rc<RefCell<Known>>,
) -> (VolumeId, Duration) {
    let (noted, done) = (Rc::clone(known), Rc::new(RefCell::new(false)));
    let (is_done, seed) = (Rc::clone(&done), world.seed());
    let id = world.block_on(node, CORE, move || async move {
        let pool = create().await;
        let spec = VolumeSpec { kind: from, checksums: seed % 2 == 1, ..thick("db", MIB) };
        let id = pool.create_volume(spec).await.unwrap().id;
        let volume = Rc::new(Volume::open(&pool, id));
        start(&volume, &noted, seed, false).into_iter().for_each(rt::Task::detach);
        rt::sleep(Duration::from_millis(10)).await;
        rt::spawn(async move {
            begin(&pool, &volume, from.other().unwrap()).await;
            finish(&pool, &volume).await.unwrap();
            is_done.replace(true);
            std::future::pending::<()>().await;
        })
        .detach();
        id
    });
    let began = world.now();
    world.run_until(|| *done.borrow(), time);
    let took = world.now() - began;
    world.crash(node);
    world.restart(node, |_| std::future::pending());
    (id, took)
}

#[test]
fn a_power_cut_at_any_point_of_a_conversion_loses_nothing() {
    for from in [VolumeKind::Thick, VolumeKind::Log] {
        let all = {
            let world = World::new(1000);
            let node = machine(&world, &[(32 * MIB, 512)]);
            live(&world, node, from, Duration::from_secs(60), &Rc::default()).1
        };
        assert!(all < Duration::from_secs(60), "it ends");
        let mut unfinished = 0;
        for seed in 0..40u32 {
            let world = World::new(seed.into());
            let node = machine(&world, &[(32 * MIB, 512)]);
            let known = Rc::default();
            let (id, _) = live(&world, node, from, all * seed / 36, &known);
            unfinished += world.block_on(node, CORE, move || async move {
                let pool = Pool::open(&paths(1), opening(1)).await.unwrap();
                bound_logs(&pool);
                let volume = Rc::new(Volume::open(&pool, id));
                check(&volume, &known).await;
                let is_unfinished = volume.info.converting.is_some();
                if is_unfinished {
                    assert_eq!(volume.info.kind, from);
                    let writers = start(&volume, &known, 7, false);
                    finish(&pool, &volume).await.unwrap();
                    stop(writers, &known).await;
                    check(&volume, &known).await;
                    assert_eq!(pool.volume(id).unwrap().kind, from.other().unwrap());
                }
                u32::from(is_unfinished)
            });
        }
        assert!((5..40).contains(&unfinished), "{unfinished} of 40 were cut off in the middle");
    }
}

#[test]
fn a_conversion_without_room_waits_and_fails_no_write() {
    let world = World::new(5);
    let node = machine(&world, &[(32 * MIB, 512)]);
    world.block_on(node, CORE, || async {
        let pool = create().await;
        let id = pool.create_volume(thick("db", 4 * MIB)).await.unwrap().id;
        let volume = Rc::new(Volume::open(&pool, id));
        let known: Rc<RefCell<Known>> = Rc::default();
        for at in 0..4 * MIB / SECTOR {
            known.borrow_mut().acked.insert(at, at + 1);
        }
        known.borrow_mut().last = 4 * MIB / SECTOR;
        let data: Vec<u8> = (0..4 * MIB / SECTOR).flat_map(|at| sector(at + 1)).collect();
        volume.write(0, &data, Durability::Durable).await.unwrap();
        begin(&pool, &volume, VolumeKind::Log).await;
        // The logs have one zone of 1 MiB each, and get no more.
        let free = pool.usage().free;
        let filler = VolumeSpec { slices: Some(1), ..thick("filler", free.0) };
        let filler = pool.create_volume(filler).await.unwrap().id;
        assert_eq!(copy(&volume).await, Err(SliceError::Full));
        let writers = start(&volume, &known, 5, true);
        rt::sleep(Duration::from_millis(50)).await;
        assert_eq!(copy(&volume).await, Err(SliceError::Full));
        stop(writers, &known).await;
        check(&volume, &known).await;
        assert_eq!(volume.slices[0].become_equal().await, Ok(false));
        pool.delete_volume(filler).await.unwrap();
        let writers = start(&volume, &known, 6, true);
        finish(&pool, &volume).await.unwrap();
        stop(writers, &known).await;
        check(&volume, &known).await;
        assert_eq!(pool.volume(id).unwrap().kind, VolumeKind::Log);
    });
}

#[test]
fn a_conversion_is_cancelled_and_what_it_excludes_is_refused() {
    for from in [VolumeKind::Thick, VolumeKind::Log] {
        let world = World::new(6);
        let node = machine(&world, &[(32 * MIB, 512)]);
        world.block_on(node, CORE, move || async move {
            let to = from.other().unwrap();
            let pool = create().await;
            let id = pool.create_volume(VolumeSpec { kind: from, ..thick("db", MIB) }).await.unwrap().id;
            let mut volume = Volume::open(&pool, id);
            volume.write(0, &sector(1), Durability::Durable).await.unwrap();
            for kind in [from, VolumeKind::Ram] {
                let refused = pool.check_conversion(id, kind, false);
                assert!(matches!(refused, Err(StoreError::NotConvertible(_))), "{refused:?}");
            }
            pool.check_conversion(id, to, false).unwrap();
            let free = pool.usage().free;
            begin(&pool, &volume, to).await;
            copy(&volume).await.unwrap();
            let refused = pool.check_conversion(id, to, false);
            assert!(matches!(refused, Err(StoreError::BeingConverted(_))), "{refused:?}");
            let refused = pool.grow_volume(id, ByteLen(2 * MIB)).await;
            assert!(matches!(refused, Err(StoreError::BeingConverted(_))), "{refused:?}");
            for slice in &volume.slices {
                assert!(slice.become_equal().await.unwrap());
                slice.count_present_only();
                slice.end_conversion(false).await;
            }
            pool.cancel_conversion(id).await.unwrap();
            end(&pool, &volume, false).await;
            if from == VolumeKind::Thick {
                assert_eq!(pool.usage().free, free);
            }
            let again = pool.cancel_conversion(id).await;
            assert!(matches!(again, Err(StoreError::NotBeingConverted(_))), "{again:?}");
            pool.grow_volume(id, ByteLen(2 * MIB)).await.unwrap();
            volume.grow(&pool);
            assert_eq!(volume.read(0, SECTOR).await.unwrap(), sector(1));
            // A reserve is nothing that a thick volume can have.
            if from == VolumeKind::Log {
                let space = store::SpacePolicy { reserve: ByteLen(MIB), ..store::SpacePolicy::default() };
                pool.set_space(id, space).await.unwrap();
                let refused = pool.check_conversion(id, to, false);
                assert!(matches!(refused, Err(StoreError::SpaceInvalid)), "{refused:?}");
            }
        });
    }
}

/// Of the layouts, both count.
async fn become_equal(volume: &Volume) {
    copy(volume).await.unwrap();
    for slice in &volume.slices {
        assert!(slice.become_equal().await.unwrap());
    }
}

/// Otherwise, an older write of a whole block could take back what a later one has written beside it.
#[test]
fn a_change_that_waits_for_the_end_of_a_conversion_is_not_overtaken() {
    let world = World::new(11);
    let node = machine(&world, &[(32 * MIB, 512)]);
    world.block_on(node, CORE, || async {
        let pool = create().await;
        let id = pool.create_volume(thick("db", MIB)).await.unwrap().id;
        let volume = Rc::new(Volume::open(&pool, id));
        begin(&pool, &volume, VolumeKind::Log).await;
        become_equal(&volume).await;
        pool.switch_volume(id).await.unwrap();
        let write = |number: u64| {
            let volume = Rc::clone(&volume);
            async move { volume.write(0, &sector(number), Durability::Durable).await.unwrap() }
        };
        let under_way = rt::spawn(write(1));
        let (ending, last) = (Rc::clone(&volume), write(3));
        let after = rt::spawn(async move {
            ending.slices[0].end_conversion(true).await;
            last.await;
        });
        let waiting = rt::spawn(write(2));
        for task in [under_way, after, waiting] {
            task.await;
        }
        assert_eq!(volume.read(0, SECTOR).await.unwrap(), sector(3));
        end(&pool, &volume, true).await;
        assert_eq!(volume.read(0, SECTOR).await.unwrap(), sector(3));
    });
}

/// Nobody knows when it reaches the disk: perhaps when its place is another volume's.
#[test]
fn a_change_whose_caller_has_gone_away_keeps_the_layouts() {
    for from in [VolumeKind::Thick, VolumeKind::Log] {
        let world = World::new(12);
        let node = machine(&world, &[(32 * MIB, 512)]);
        world.block_on(node, CORE, move || async move {
            let pool = create().await;
            let id = pool.create_volume(VolumeSpec { kind: from, ..thick("db", MIB) }).await.unwrap().id;
            let volume = Volume::open(&pool, id);
            begin(&pool, &volume, from.other().unwrap()).await;
            copy(&volume).await.unwrap();
            let write =
                volume.slices[0].write(ByteOffset(0), Chain::copy_of(&sector(1)), Durability::Durable);
            assert!(rt::timeout(Duration::from_nanos(1), write).await.is_err(), "it takes longer");
            copy(&volume).await.unwrap();
            assert_eq!(volume.slices[0].become_equal().await, Err(SliceError::Offline));
            assert_eq!(volume.slices[1].become_equal().await, Ok(true));
            assert!(!volume.slices[0].end_conversion(false).await);
            assert!(volume.slices[1].end_conversion(false).await);
        });
    }
}

/// A thick volume both of whose layouts count, and that its log has no room for; and data for all of it.
async fn equal_without_room() -> (Pool, Rc<Volume>, Vec<u8>) {
    let pool = create().await;
    let id = pool.create_volume(thick("db", 4 * MIB)).await.unwrap().id;
    let volume = Rc::new(Volume::open(&pool, id));
    begin(&pool, &volume, VolumeKind::Log).await;
    // The logs have one zone of 1 MiB each, and get no more.
    let free = pool.usage().free;
    pool.create_volume(VolumeSpec { slices: Some(1), ..thick("filler", free.0) }).await.unwrap();
    become_equal(&volume).await;
    let data = (0..4 * MIB / SECTOR).flat_map(|at| sector(at + 1)).collect();
    (pool, volume, data)
}

/// The volume is not on its way yet: it has room, so its hosts see no error.
#[test]
fn a_write_without_room_in_the_log_waits_until_it_is_known_whether_that_counts() {
    let world = World::new(13);
    let node = machine(&world, &[(32 * MIB, 512)]);
    world.block_on(node, CORE, || async {
        let (_pool, volume, data) = equal_without_room().await;
        let (writing, written) = (Rc::clone(&volume), data.clone());
        let writing = rt::spawn(async move { writing.write(0, &written, Durability::Durable).await });
        rt::sleep(Duration::from_secs(1)).await;
        volume.slices.iter().for_each(store::Slice::count_present_only);
        assert_eq!(writing.await, Ok(()));
        assert_eq!(volume.read(0, 4 * MIB).await.unwrap(), data);
        assert_eq!(volume.slices[0].become_equal().await, Ok(false), "it is behind");
    });
}

/// A write fails only if the log is to be the volume's, or nobody finds out.
#[test]
fn a_write_without_room_in_the_log_fails_if_the_volume_was_switched() {
    let world = World::new(14);
    let node = machine(&world, &[(32 * MIB, 512)]);
    world.block_on(node, CORE, || async {
        let (pool, volume, data) = equal_without_room().await;
        let writer = Rc::clone(&volume);
        let writing = rt::spawn(async move { writer.write(0, &data, Durability::Durable).await });
        rt::sleep(Duration::from_secs(1)).await;
        pool.switch_volume(volume.info.id).await.unwrap();
        end(&pool, &volume, true).await;
        assert_eq!(writing.await, Err(SliceError::Full));
    });
}

#[test]
fn a_block_that_the_disk_cannot_read_is_not_converted_to_zeros() {
    let world = World::new(15);
    let node = machine(&world, &[(8 * MIB, 512)]);
    let (pool, volume) = world.block_on(node, CORE, || async {
        let pool = create().await;
        let id = pool.create_volume(VolumeSpec { slices: Some(1), ..thick("db", MIB / 2) }).await.unwrap().id;
        let volume = Volume::open(&pool, id);
        volume.write(0, &vec![7; 512 << 10], Durability::Durable).await.unwrap();
        (pool, volume)
    });
    let mut disk = vec![0; 8 << 20];
    world.disk_image(node, path(0)).read(0, &mut disk);
    let start = disk.windows(4096).position(|bytes| bytes.iter().all(|byte| *byte == 7)).unwrap() as u64;
    let bad = start + (300 << 10);
    world.set_disk_faults(node, path(0), DiskFaults::default().with_unreadable(bad..bad + 512).remapping());
    world.block_on(node, CORE, move || async move {
        begin(&pool, &volume, VolumeKind::Log).await;
        for _ in 0..2 {
            let stopped = copy(&volume).await;
            let Err(SliceError::Unreadable(found)) = stopped else { panic!("{stopped:?}") };
            assert_eq!(found.offset, ByteOffset(300 << 10));
            assert_eq!(volume.slices[0].become_equal().await, Ok(false));
        }
        // A host writes it.
        volume.write(300 << 10, &[8; 512], Durability::Durable).await.unwrap();
        finish(&pool, &volume).await.unwrap();
        let mut expected = vec![7; 512 << 10];
        expected[300 << 10..(300 << 10) + 512].fill(8);
        assert_eq!(volume.read(0, MIB / 2).await.unwrap(), expected);
        assert_eq!(pool.volume(volume.info.id).unwrap().kind, VolumeKind::Log);
    });
}

/// A machine with a disk for a volume and a larger one for its other layout.
fn with_two_disks(world: &World) -> NodeId {
    machine(world, &[(16 * MIB, 512), (64 * MIB, 512)])
}

/// Creates a volume on the first disk, and adds the second one to the pool: the other layout goes where most
/// space is left.
async fn create_on_first(spec: VolumeSpec) -> (Pool, Rc<Volume>) {
    let pool = create().await;
    let id = pool.create_volume(spec).await.unwrap().id;
    pool.add_disk(existing(2).remove(1), true).await.unwrap();
    let volume = Rc::new(Volume::open(&pool, id));
    (pool, volume)
}

/// From now on, the second disk takes 20 seconds for everything.
fn hang_second(world: &World, node: NodeId) {
    let silence = Duration::from_secs(20)..Duration::from_secs(21);
    let (read, write, flush) = (silence.clone(), silence.clone(), silence);
    world.set_disk_latency(node, path(1), DiskLatency { read, write, flush, ..DiskLatency::default() });
}

/// A write waits for it once, for a second: neither the copying nor a switch or a cancellation holds up hosts
/// then.
#[test]
fn hosts_do_not_wait_for_a_disk_that_hangs_with_the_other_layout() {
    let seconds = Duration::from_secs;
    for from in [VolumeKind::Thick, VolumeKind::Log] {
        let world = World::new(17);
        let node = with_two_disks(&world);
        let (pool, volume) = world.block_on(node, CORE, move || async move {
            let (pool, volume) = create_on_first(VolumeSpec { kind: from, ..thick("db", MIB / 8) }).await;
            volume.write(0, &vec![1; (MIB / 8) as usize], Durability::Durable).await.unwrap();
            begin(&pool, &volume, from.other().unwrap()).await;
            copy(&volume).await.unwrap();
            (pool, volume)
        });
        hang_second(&world, node);
        let (pool, volume) = world.block_on(node, CORE, move || async move {
            let began = rt::now();
            for number in 2..10 {
                volume.write(0, &sector(number), Durability::Durable).await.unwrap();
            }
            let took = rt::now() - began;
            assert!(took < Duration::from_millis(1500), "{took:?}");
            assert_eq!(copy(&volume).await, Err(SliceError::Offline));
            assert_eq!(volume.slices[0].become_equal().await, Err(SliceError::Offline));
            let _ = volume.slices[1].become_equal().await;
            let ending = Rc::clone(&volume);
            let ended = rt::spawn(async move {
                for slice in &ending.slices {
                    assert!(slice.end_conversion(false).await);
                }
                pool.cancel_conversion(ending.info.id).await.unwrap();
                pool.leave_layouts(ending.info.id);
                pool
            });
            volume.write(0, &sector(10), Durability::Durable).await.unwrap();
            let took = rt::now() - began;
            assert!(took < seconds(4), "{took:?}");
            let pool = ended.await;
            assert!(rt::now() - began > seconds(20), "what was written there late has ended");
            assert_eq!(volume.read(0, SECTOR).await.unwrap(), sector(10));
            (pool, volume)
        });
        world.set_disk_latency(node, path(1), DiskLatency::default());
        world.block_on(node, CORE, move || async move {
            pool.free_left_layouts(volume.info.id, ZeroingWatch::default()).await.unwrap();
            begin(&pool, &volume, from.other().unwrap()).await;
            finish(&pool, &volume).await.unwrap();
            let mut expected = vec![1; (MIB / 8) as usize];
            expected[..SECTOR as usize].copy_from_slice(&sector(10));
            assert!(volume.read(0, MIB / 8).await.unwrap() == expected);
        });
    }
}

/// What was written late to the other layout is written again when the disk answers.
#[test]
fn a_conversion_continues_when_its_disk_answers() {
    for from in [VolumeKind::Thick, VolumeKind::Log] {
        let world = World::new(18);
        let node = with_two_disks(&world);
        let (pool, volume) = world.block_on(node, CORE, move || async move {
            let (pool, volume) = create_on_first(VolumeSpec { kind: from, ..thick("db", MIB / 8) }).await;
            begin(&pool, &volume, from.other().unwrap()).await;
            copy(&volume).await.unwrap();
            (pool, volume)
        });
        hang_second(&world, node);
        let volume = world.block_on(node, CORE, move || async move {
            // The first one reaches the other disk, after all that follow.
            for number in 1..4 {
                volume.write(0, &sector(number), Durability::Durable).await.unwrap();
            }
            volume
        });
        world.set_disk_latency(node, path(1), DiskLatency::default());
        world.block_on(node, CORE, move || async move {
            assert_eq!(copy(&volume).await, Err(SliceError::Offline), "the write has not ended");
            volume.slices[0].late_ended().await;
            finish(&pool, &volume).await.unwrap();
            assert_eq!(volume.read(0, SECTOR).await.unwrap(), sector(3));
        });
    }
}

/// A merge of a large log takes seconds. No host waits for it, so it is not late then: otherwise such a
/// volume would never be switched.
#[test]
fn a_copy_that_holds_lost_blocks_is_converted_though_merges_take_seconds() {
    let ms = Duration::from_millis;
    let world = World::new(20);
    let node = with_two_disks(&world);
    let (pool, volume) = world.block_on(node, CORE, move || async move {
        let of = CopyOf { cluster: ClusterId([7; 16]), slot: 1, state: CopyState::Blank };
        let spec = VolumeSpec { id: Some(VolumeId([1; 16])), copy: Some(of), ..thick("db", MIB / 8) };
        let (pool, volume) = create_on_first(spec).await;
        volume.write(0, &vec![1; (MIB / 8) as usize], Durability::Durable).await.unwrap();
        for slice in &volume.slices {
            assert!(slice.hold(&[(ByteOffset(0), ByteLen(4096))]).await.unwrap());
        }
        begin(&pool, &volume, VolumeKind::Log).await;
        copy(&volume).await.unwrap();
        (pool, volume)
    });
    let (write, flush) = (ms(400)..ms(410), ms(400)..ms(410));
    let slow = DiskLatency { write, flush, spike_one_in: 0, ..DiskLatency::default() };
    world.set_disk_latency(node, path(1), slow);
    world.block_on(node, CORE, move || async move {
        for slice in &volume.slices {
            assert_eq!(slice.become_equal().await, Ok(true));
            slice.count_present_only();
        }
        for slice in &volume.slices {
            let began = rt::now();
            assert!(slice.hold(&[(ByteOffset(16384), ByteLen(4096))]).await.unwrap());
            assert!(rt::now() - began < ms(1500), "hosts wait for that");
            slice.late_ended().await;
            assert_eq!(slice.become_equal().await, Ok(false), "it may not be merged");
        }
        finish(&pool, &volume).await.unwrap();
        assert_eq!(pool.volume(volume.info.id).unwrap().kind, VolumeKind::Log);
    });
}

/// Both layouts count for a moment, until it is known which one will: then hosts do not wait for the other
/// one.
#[test]
fn a_write_to_both_layouts_ends_when_the_one_on_a_disk_that_hangs_is_dropped() {
    let seconds = Duration::from_secs;
    for from in [VolumeKind::Thick, VolumeKind::Log] {
        let world = World::new(19);
        let node = with_two_disks(&world);
        let (pool, volume) = world.block_on(node, CORE, move || async move {
            let (pool, volume) = create_on_first(VolumeSpec { kind: from, ..thick("db", MIB / 8) }).await;
            begin(&pool, &volume, from.other().unwrap()).await;
            become_equal(&volume).await;
            (pool, volume)
        });
        hang_second(&world, node);
        world.block_on(node, CORE, move || async move {
            let writer = Rc::clone(&volume);
            let writing = rt::spawn(async move { writer.write(0, &sector(1), Durability::Durable).await });
            rt::sleep(seconds(3)).await;
            let began = rt::now();
            volume.slices.iter().for_each(store::Slice::count_present_only);
            assert_eq!(writing.await, Ok(()));
            let took = rt::now() - began;
            assert!(took < Duration::from_millis(200), "{took:?}");
            assert_eq!(volume.read(0, SECTOR).await.unwrap(), sector(1));
            assert_eq!(volume.slices[0].become_equal().await, Err(SliceError::Offline));
            volume.slices[0].late_ended().await;
            drop(pool);
        });
    }
}

/// What counts from the switch on is durable before it, also on a disk that the commit does not flush. And
/// the space of the former layout is free, although nobody has freed it.
#[test]
fn a_power_cut_right_after_the_switch_loses_nothing() {
    for (seed, from) in (0..6).zip([VolumeKind::Thick, VolumeKind::Log].into_iter().cycle()) {
        let world = World::new(seed);
        let small = (16 * MIB, 512);
        let node = machine(&world, &[small, small, small, (32 * MIB, 512)]);
        let data: Vec<u8> = (0..MIB / SECTOR).flat_map(|at| sector(at + 1)).collect();
        let written = data.clone();
        let (id, free) = world.block_on(node, CORE, move || async move {
            let pool = Pool::create(existing(4), creating()).await.unwrap();
            bound_logs(&pool);
            let free = pool.usage().free.0;
            let id = pool.create_volume(VolumeSpec { kind: from, ..thick("db", MIB) }).await.unwrap().id;
            let volume = Volume::open(&pool, id);
            volume.write(0, &written, Durability::Durable).await.unwrap();
            begin(&pool, &volume, from.other().unwrap()).await;
            become_equal(&volume).await;
            pool.switch_volume(id).await.unwrap();
            rt::spawn(async move {
                let _open = (pool, volume);
                std::future::pending::<()>().await;
            })
            .detach();
            (id, free)
        });
        world.crash(node);
        world.restart(node, |_| std::future::pending());
        world.block_on(node, CORE, move || async move {
            let pool = Pool::open(&paths(4), opening(1)).await.unwrap();
            let volume = Volume::open(&pool, id);
            assert_eq!((volume.info.kind, volume.info.converting), (from.other().unwrap(), None));
            assert!(volume.read(0, MIB).await.unwrap() == data, "seed {seed}");
            if from == VolumeKind::Log {
                assert_eq!(pool.usage().free.0, free - MIB, "nothing is left of the logs");
            }
        });
    }
}

#[test]
fn no_disk_leaves_while_a_volume_is_converted_nor_the_other_way_round() {
    let world = World::new(16);
    let node = machine(&world, &[(32 * MIB, 512); 2]);
    world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(2), creating()).await.unwrap();
        bound_logs(&pool);
        let id = pool.create_volume(thick("db", MIB)).await.unwrap().id;
        let volume = Volume::open(&pool, id);
        pool.leave(&path(0)).await.unwrap();
        let begun =
            pool.begin_conversion(id, VolumeKind::Log, Compression::Off, false, ZeroingWatch::default());
        for refused in [pool.check_conversion(id, VolumeKind::Log, false), begun.await.map(drop)] {
            assert!(matches!(refused, Err(StoreError::DiskIsLeaving { .. })), "{refused:?}");
        }
        // A part that was about to move stays where it is if the disk stays, and the volume is converted.
        let moving = pool.next_move().await.unwrap().unwrap();
        pool.stay().await.unwrap();
        begin(&pool, &volume, VolumeKind::Log).await;
        let (moving, moved) = pool.move_part(moving, volume.slices.len()).await;
        assert!(matches!(moved, Moved::Not(StoreError::VolumeNotHeld(_))), "{moved:?}");
        pool.end_move(moving, &moved).await;
        for refused in [pool.check_leave(&path(0)).map(drop), pool.leave(&path(0)).await] {
            assert!(matches!(refused, Err(StoreError::BeingConverted(_))), "{refused:?}");
        }
        finish(&pool, &volume).await.unwrap();
        assert_eq!(pool.leaving(), None);
        // There and back: then no log is in the way, and the disk can leave.
        begin(&pool, &volume, VolumeKind::Thick).await;
        finish(&pool, &volume).await.unwrap();
        pool.leave(&path(0)).await.unwrap();
    });
}

#[test]
fn a_volume_takes_its_compression_to_the_log_and_leaves_it_there() {
    let world = World::new(17);
    let node = machine(&world, &[(32 * MIB, 512)]);
    world.block_on(node, CORE, || async {
        let pool = create().await;
        let id = pool.create_volume(thick("db", MIB)).await.unwrap().id;
        let compression = |pool: &Pool| pool.volume(id).unwrap().compression;
        pool.set_compression(id, Compression::Lz4).await.unwrap();
        assert_eq!(compression(&pool), Compression::Off);
        let volume = Volume::open(&pool, id);
        begin(&pool, &volume, VolumeKind::Log).await;
        assert_eq!(compression(&pool), Compression::Off);
        pool.set_compression(id, Compression::Lz4).await.unwrap();
        assert_eq!(compression(&pool), Compression::Lz4);
        drop(volume);
        pool.logs_ended().await;
        drop(pool);
        let pool = Pool::open(&paths(1), opening(1)).await.unwrap();
        bound_logs(&pool);
        assert_eq!(compression(&pool), Compression::Lz4);
        let volume = Volume::open(&pool, id);
        finish(&pool, &volume).await.unwrap();
        assert_eq!(compression(&pool), Compression::Lz4);
        begin(&pool, &volume, VolumeKind::Thick).await;
        finish(&pool, &volume).await.unwrap();
        assert_eq!(compression(&pool), Compression::Off);
    });
}

/// The extents that a volume grows by are those of the kind that it had when they were taken.
#[test]
fn a_volume_that_is_converted_while_it_grows_is_of_one_kind() {
    for (seed, from) in (0..6).zip([VolumeKind::Thick, VolumeKind::Log].into_iter().cycle()) {
        let world = World::new(seed);
        let node = machine(&world, &[(96 * MIB, 512)]);
        world.block_on(node, CORE, move || async move {
            let pool = create().await;
            let id = pool.create_volume(VolumeSpec { kind: from, ..thick("db", MIB) }).await.unwrap().id;
            let mut volume = Volume::open(&pool, id);
            volume.write(0, &sector(1), Durability::Durable).await.unwrap();
            let grower = pool.clone();
            let growing = rt::spawn(async move { grower.grow_volume(id, ByteLen(48 * MIB)).await.map(drop) });
            rt::yield_now().await;
            let (to, watch) = (from.other().unwrap(), ZeroingWatch::default());
            let begun = pool.begin_conversion(id, to, Compression::Off, false, watch).await;
            if begun.is_ok() {
                volume.grow(&pool);
                volume.begin_conversion(&pool);
                finish(&pool, &volume).await.unwrap();
            }
            // Whichever came second may have been refused.
            for refused in [begun.map(drop), growing.await] {
                assert!(matches!(refused, Ok(()) | Err(StoreError::BeingConverted(_))), "{refused:?}");
            }
            drop(volume);
            pool.logs_ended().await;
            drop(pool);
            let pool = Pool::open(&paths(1), opening(1)).await.unwrap();
            assert_eq!(Volume::open(&pool, id).read(0, SECTOR).await.unwrap(), sector(1));
        });
    }
}
