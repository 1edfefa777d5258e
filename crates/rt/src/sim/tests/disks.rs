//! Disks and their faults.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use base::{Buf, Rng, SharedBuf};

use super::one_node;
use crate::sim::{Astray, DiskFaults, DiskImage, DiskLatency, Fault, NodeId, World};
use crate::{CoreId, Disk, DiskError, Durability, OpenError, OpenOptions};

const SIZE: u64 = 1 << 20;

fn bytes(byte: u8, len: usize) -> SharedBuf {
    Buf::copy_of(&vec![byte; len]).share()
}

async fn open(path: &str) -> Disk {
    Disk::open(Path::new(path), OpenOptions::default()).await.unwrap()
}

async fn create(path: &str, size: u64) -> Result<Disk, OpenError> {
    Disk::open(Path::new(path), OpenOptions { create: Some(size), ..OpenOptions::default() }).await
}

async fn read(disk: &Disk, offset: u64, len: usize) -> Vec<u8> {
    disk.read(offset, Buf::zeroed(len)).await.unwrap().to_vec()
}

fn with_disk(seed: u64) -> (World, NodeId) {
    let (world, node) = one_node(seed);
    world.add_disk(node, "/d", SIZE, 512);
    (world, node)
}

#[test]
fn writes_are_read_back() {
    let (world, node) = with_disk(1);
    world.block_on(node, CoreId(0), || async {
        let disk = open("/d").await;
        assert_eq!((disk.size(), disk.block()), (SIZE, 512));
        disk.write(512, bytes(1, 1024), Durability::Cached).await.unwrap();
        disk.write(1024, bytes(2, 512), Durability::Durable).await.unwrap();
        disk.zero(512, 512).await.unwrap();
        assert_eq!(read(&disk, 0, 2048).await, [[0; 512], [0; 512], [2; 512], [0; 512]].concat());
        disk.flush().await.unwrap();
        for (offset, len) in [(1, 512), (0, 100), (SIZE, 512), (u64::MAX - 511, 512)] {
            let error = disk.read(offset, Buf::zeroed(len)).await.unwrap_err();
            assert!(matches!(error, DiskError::Range { .. }), "{error}");
            let error = disk.write(offset, bytes(1, len), Durability::Cached).await.unwrap_err();
            assert!(matches!(error, DiskError::Range { .. }), "{error}");
        }
    });
}

#[test]
fn a_disk_is_locked_and_shared() {
    let (world, node) = with_disk(1);
    world.block_on(node, CoreId(0), || async {
        let disk = open("/d").await;
        let in_use = Disk::open(Path::new("/d"), OpenOptions::default()).await;
        assert!(matches!(in_use, Err(OpenError::InUse(_))));
        let share = disk.share();
        let written = crate::call(CoreId(1), move || async move {
            let disk = share();
            disk.write(0, bytes(7, 512), Durability::Cached).await.is_ok()
        });
        assert!(written.await);
        assert_eq!(read(&disk, 0, 512).await, [7; 512]);
        drop(disk);
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let disk = Disk::open(Path::new("/d"), options).await.unwrap();
        let error = disk.write(0, bytes(1, 512), Durability::Cached).await.unwrap_err();
        assert!(matches!(error, DiskError::ReadOnly));
    });
    // A dead process holds no lock.
    world.block_on(node, CoreId(0), || async { std::mem::forget(open("/d").await) });
    world.kill(node);
    world.restart(node, |_| std::future::pending());
    world.block_on(node, CoreId(0), || async { drop(open("/d").await) });
}

#[test]
fn files_are_created_once_and_survive_their_node() {
    let (world, node) = one_node(1);
    world.block_on(node, CoreId(0), || async {
        assert!(matches!(
            Disk::open(Path::new("/f"), OpenOptions::default()).await,
            Err(OpenError::System { source, .. }) if source.kind() == std::io::ErrorKind::NotFound
        ));
        Disk::check_new(Path::new("/f"), SIZE, false).unwrap();
        let file = create("/f", SIZE).await.unwrap();
        assert!(matches!(
            Disk::check_new(Path::new("/f"), SIZE, false),
            Err(OpenError::System { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists
        ));
        file.write(8192, bytes(3, 4096), Durability::Durable).await.unwrap();
        assert_eq!(file.allocated(0, SIZE, 9).await.unwrap(), [(8192, 4096)]);
        assert!(matches!(
            create("/f", SIZE).await,
            Err(OpenError::System { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists
        ));
    });
    let other = world.add_node("b", 1, |_| std::future::pending());
    world.crash(node);
    world.move_disk(node, "/f", other, "/elsewhere");
    assert!(!world.has_disk(node, "/f"));
    world.block_on(other, CoreId(0), || async {
        let file = open("/elsewhere").await;
        assert_eq!(read(&file, 8192, 4096).await, [3; 4096]);
        file.zero(0, SIZE).await.unwrap();
        assert_eq!(file.allocated(0, SIZE, 9).await.unwrap(), []);
    });
}

#[test]
fn a_full_file_system_refuses_and_does_not_latch() {
    let (world, node) = one_node(1);
    world.set_space(node, Some(16384));
    world.block_on(node, CoreId(0), || async {
        let options = OpenOptions { create: Some(SIZE), reserve: true, read_only: false };
        assert!(Disk::check_new(Path::new("/r"), SIZE, true).is_err());
        Disk::check_new(Path::new("/r"), SIZE, false).unwrap();
        assert!(Disk::open(Path::new("/r"), options).await.is_err());
        let file = create("/f", SIZE).await.unwrap();
        file.write(0, bytes(1, 16384), Durability::Cached).await.unwrap();
        let full = file.write(16384, bytes(1, 512), Durability::Cached).await;
        assert!(matches!(full, Err(DiskError::Full)));
        file.write(0, bytes(2, 16384), Durability::Cached).await.unwrap();
        file.zero(0, 4096).await.unwrap();
        file.write(16384, bytes(1, 512), Durability::Cached).await.unwrap();
    });
    assert_eq!(world.fault_counts().of(Fault::DiskFull), 2);
}

#[test]
fn a_failed_write_or_flush_latches_until_reopened() {
    let (world, node) = with_disk(1);
    world.set_disk_faults(node, "/d", DiskFaults::default().with_unwritable(4096..8192));
    let disk = world.block_on(node, CoreId(0), || async {
        let disk = open("/d").await;
        disk.write(0, bytes(1, 4096), Durability::Durable).await.unwrap();
        assert_eq!(disk.failure(), None);
        let failed = disk.write(7680, bytes(1, 1024), Durability::Cached).await;
        assert!(matches!(failed, Err(DiskError::Media(_))), "{failed:?}");
        let failure = disk.share()().failure().unwrap();
        // EIO.
        assert_eq!((failure.error, failure.at), (5, crate::now()));
        for result in [
            disk.write(0, bytes(2, 512), Durability::Cached).await,
            disk.flush().await,
            disk.share()().zero(0, 512).await,
        ] {
            assert!(matches!(result, Err(DiskError::Latched)), "{result:?}");
        }
        assert_eq!(read(&disk, 0, 4096).await, [1; 4096]);
        disk
    });
    drop(disk);
    world.set_disk_faults(node, "/d", DiskFaults { flush_error_one_in: 1, ..DiskFaults::default() });
    world.block_on(node, CoreId(0), || async {
        let disk = open("/d").await;
        disk.write(0, bytes(2, 512), Durability::Cached).await.unwrap();
        assert!(matches!(disk.flush().await, Err(DiskError::Media(_))));
        assert!(matches!(disk.flush().await, Err(DiskError::Latched)));
    });
    let counts = world.fault_counts();
    assert_eq!((counts.of(Fault::WriteError), counts.of(Fault::FlushError)), (1, 1));
}

#[test]
fn reads_fail_where_configured() {
    let (world, node) = with_disk(1);
    world.set_disk_faults(node, "/d", DiskFaults::default().with_unreadable(512..1024));
    world.block_on(node, CoreId(0), || async {
        let disk = open("/d").await;
        assert!(disk.read(0, Buf::zeroed(512)).await.is_ok());
        assert!(matches!(disk.read(0, Buf::zeroed(1024)).await, Err(DiskError::Media(_))));
        assert!(disk.read(1024, Buf::zeroed(512)).await.is_ok());
        disk.flush().await.unwrap();
    });
    world.set_disk_dead(node, "/d", true);
    world.block_on(node, CoreId(0), || async {
        assert!(Disk::open(Path::new("/d"), OpenOptions::default()).await.is_err());
    });
    assert_eq!(world.fault_counts().of(Fault::ReadError), 1);
    assert_eq!(world.fault_counts().of(Fault::DeadDisk), 1);
}

#[test]
fn a_bad_block_is_remapped_by_a_write_or_stays_bad() {
    for remaps in [true, false] {
        let (world, node) = with_disk(1);
        let faults = DiskFaults { remaps, ..DiskFaults::default().with_unreadable(512..2048) };
        world.set_disk_faults(node, "/d", faults);
        world.block_on(node, CoreId(0), move || async move {
            let disk = open("/d").await;
            disk.rewrite(1024, bytes(7, 512)).await.unwrap();
            disk.flush().await.unwrap();
            assert_eq!(disk.read(1024, Buf::zeroed(512)).await.is_ok(), remaps);
            for offset in [512, 1536] {
                assert!(disk.read(offset, Buf::zeroed(512)).await.is_err(), "it was not written");
            }
        });
    }
}

#[test]
fn a_block_that_cannot_be_rewritten_does_not_take_the_disk_out_of_service() {
    let (world, node) = with_disk(1);
    world.set_disk_faults(node, "/d", DiskFaults::default().with_unwritable(512..1024));
    world.block_on(node, CoreId(0), || async {
        let disk = open("/d").await;
        assert!(disk.rewrite(512, bytes(7, 512)).await.is_err());
        assert_eq!(disk.failure(), None);
        disk.write(1024, bytes(7, 512), Durability::Durable).await.unwrap();
        assert!(disk.write(512, bytes(7, 512), Durability::Durable).await.is_err());
        assert!(disk.failure().is_some());
    });
}

#[test]
fn corruption_is_silent() {
    let (world, node) = with_disk(1);
    world.corrupt_disk(node, "/d", 512..1536);
    let found = world.block_on(node, CoreId(0), || async { read(&open("/d").await, 0, 2048).await });
    let wrong: Vec<usize> = (0..4).filter(|sector| found[sector * 512..][..512] != [0; 512]).collect();
    assert_eq!(wrong, [1, 2]);
}

#[test]
fn one_write_is_misdirected() {
    let (world, node) = with_disk(1);
    let written = |astray| {
        world.lead_write_astray(node, "/d", 512..1024, astray);
        world.block_on(node, CoreId(0), || async {
            let disk = open("/d").await;
            disk.write(0, bytes(9, 4096), Durability::Durable).await.unwrap();
            disk.write(0, bytes(1, 512), Durability::Durable).await.unwrap();
            disk.write(512, bytes(2, 512), Durability::Durable).await.unwrap();
            disk.write(1024, bytes(3, 512), Durability::Durable).await.unwrap();
            let found = read(&disk, 0, 4096).await;
            found.iter().step_by(512).copied().collect::<Vec<u8>>()
        })
    };
    // The first write that touches the range is the one of all 4096 bytes.
    assert_eq!(written(Astray::Lost), [1, 2, 3, 0, 0, 0, 0, 0]);
    world.lead_write_astray(node, "/d", 512..1024, Astray::Misdirected(1024));
    let found = world.block_on(node, CoreId(0), || async {
        let disk = open("/d").await;
        disk.write(512, bytes(7, 512), Durability::Durable).await.unwrap();
        disk.write(512, bytes(8, 512), Durability::Durable).await.unwrap();
        read(&disk, 0, 4096).await.iter().step_by(512).copied().collect::<Vec<u8>>()
    });
    assert_eq!(found, [1, 8, 3, 7, 0, 0, 0, 0]);
    let counts = world.fault_counts();
    assert_eq!((counts.of(Fault::LostWrite), counts.of(Fault::MisdirectedWrite)), (1, 1));
}

/// Over many seeds: flushed or durable data always survives; each sector of the rest survives or not.
#[test]
fn a_power_cut_keeps_what_was_promised_and_any_part_of_the_rest() {
    let (mut torn, mut kept, mut lost) = (0, 0, 0);
    for seed in 0..60 {
        let (world, node) = with_disk(seed);
        world.block_on(node, CoreId(0), || async {
            let disk = open("/d").await;
            disk.write(0, bytes(1, 4096), Durability::Cached).await.unwrap();
            disk.write(4096, bytes(1, 4096), Durability::Cached).await.unwrap();
            disk.flush().await.unwrap();
            disk.write(8192, bytes(2, 4096), Durability::Cached).await.unwrap();
            disk.write(8192, bytes(3, 512), Durability::Durable).await.unwrap();
            disk.write(4096, bytes(2, 4096), Durability::Cached).await.unwrap();
        });
        world.crash(node);
        let image = world.disk_image(node, "/d");
        let sectors = |offset: u64| {
            let mut found = vec![0; 4096];
            image.read(offset, &mut found);
            found
                .chunks(512)
                .map(|sector| {
                    assert!(sector.iter().all(|byte| *byte == sector[0]), "a torn sector");
                    sector[0]
                })
                .collect::<Vec<u8>>()
        };
        assert_eq!(sectors(0), [1; 8]);
        assert_eq!(sectors(8192)[0], 3);
        let doubtful = sectors(4096);
        match doubtful.iter().filter(|byte| **byte == 2).count() {
            0 => lost += 1,
            8 => kept += 1,
            _ => torn += 1,
        }
        assert!(doubtful.iter().all(|byte| [1, 2].contains(byte)), "{doubtful:?}");
    }
    assert!(torn > 10 && kept > 5 && lost > 5, "{torn} torn, {kept} kept, {lost} lost");
}

#[test]
fn a_write_under_way_may_survive_in_part_and_a_killed_process_loses_nothing() {
    let mut torn = 0;
    for seed in 0..100 {
        let (world, node) = with_disk(seed);
        drop(world.spawn_on(node, CoreId(0), || async {
            let disk = open("/d").await;
            disk.write(0, bytes(1, 8192), Durability::Durable).await.unwrap();
        }));
        world.run_for(Duration::from_micros(30));
        world.crash(node);
        torn += world.fault_counts().of(Fault::TornWrite);
        world.restart(node, |_| std::future::pending());
        let slow = Duration::from_millis(10)..Duration::from_millis(20);
        world.set_disk_latency(node, "/d", DiskLatency { write: slow, ..DiskLatency::default() });
        drop(world.spawn_on(node, CoreId(0), || async {
            let disk = open("/d").await;
            disk.write(0, bytes(2, 8192), Durability::Cached).await.unwrap();
        }));
        world.run_for(Duration::from_micros(30));
        world.kill(node);
        world.restart(node, |_| std::future::pending());
        // Otherwise the writes of the dead process could come after those of its successor.
        world.block_on(node, CoreId(0), || async {
            let locked = Disk::open(Path::new("/d"), OpenOptions::default()).await;
            assert!(matches!(locked, Err(OpenError::InUse(_))));
        });
        world.run_for(Duration::from_secs(1));
        world.block_on(node, CoreId(0), || async { drop(open("/d").await) });
        let mut found = [0; 8192];
        world.disk_image(node, "/d").read(0, &mut found);
        assert_eq!(found, [2; 8192], "seed {seed}");
    }
    assert!(torn > 20, "{torn}");
}

#[test]
fn an_image_moves_between_worlds() {
    let mut image = DiskImage::new(SIZE, 4096);
    image.write(4096, &[9; 4096]);
    let (world, node) = one_node(3);
    world.put_disk(node, "/d", image.clone());
    world.block_on(node, CoreId(0), || async {
        let disk = open("/d").await;
        assert_eq!(disk.block(), 4096);
        assert_eq!(read(&disk, 4096, 4096).await, [9; 4096]);
    });
    assert_eq!(world.disk_image(node, "/d"), image);
}

/// What a sector may hold: the writes that the disk received, oldest first. All before `floor` are certainly
/// overwritten.
#[derive(Clone, Default)]
struct Versions {
    written: Vec<u8>,
    floor: usize,
}

impl Versions {
    fn newest(&self) -> u8 {
        self.written.last().copied().unwrap_or(0)
    }

    fn may_hold(&self, byte: u8) -> bool {
        self.written[self.floor..].contains(&byte) || self.written.is_empty() && byte == 0
    }
}

/// A disk against the simplest model of one: one writer, random writes, flushes, reads and power cuts.
#[test]
fn a_disk_is_neither_kinder_nor_crueller_than_its_model() {
    const SECTORS: usize = 64;
    let (mut cuts, mut old, mut new) = (0, 0, 0);
    for seed in 0..60 {
        let (world, node) = one_node(seed);
        world.add_disk(node, "/d", (SECTORS * 512) as u64, 512);
        let fresh = Versions { written: vec![0], floor: 0 };
        let model = Rc::new(RefCell::new(vec![fresh; SECTORS]));
        let mut rng = Rng::new(seed);
        for _ in 0..6 {
            let (model_of_task, mut random) = (Rc::clone(&model), rng.fork());
            drop(world.spawn_on(node, CoreId(0), move || async move {
                let disk = open("/d").await;
                loop {
                    let first = random.below(SECTORS as u64) as usize;
                    let count = 1 + random.below((SECTORS - first).min(9) as u64) as usize;
                    let (offset, len) = ((first * 512) as u64, count * 512);
                    let byte = if random.one_in(8) { 0 } else { random.next() as u8 };
                    match random.below(8) {
                        0 => {
                            let before: Vec<usize> =
                                model_of_task.borrow().iter().map(|it| it.written.len()).collect();
                            disk.flush().await.unwrap();
                            for (versions, len) in model_of_task.borrow_mut().iter_mut().zip(before) {
                                versions.floor = versions.floor.max(len.saturating_sub(1));
                            }
                        }
                        1..3 => {
                            let found = read(&disk, offset, len).await;
                            for (versions, sector) in
                                model_of_task.borrow()[first..].iter().zip(found.chunks(512))
                            {
                                assert_eq!(sector, [versions.newest(); 512]);
                            }
                        }
                        kind => {
                            for versions in &mut model_of_task.borrow_mut()[first..first + count] {
                                versions.written.push(byte);
                            }
                            if byte == 0 {
                                disk.zero(offset, len as u64).await.unwrap();
                                continue;
                            }
                            let durable = kind == 3;
                            let durability = if durable { Durability::Durable } else { Durability::Cached };
                            disk.write(offset, bytes(byte, len), durability).await.unwrap();
                            for versions in &mut model_of_task.borrow_mut()[first..first + count] {
                                versions.floor =
                                    if durable { versions.written.len() - 1 } else { versions.floor };
                            }
                        }
                    }
                }
            }));
            world.run_for(Duration::from_micros(rng.below(20_000)));
            world.crash(node);
            cuts += 1;
            let image = world.disk_image(node, "/d");
            for (number, versions) in model.borrow_mut().iter_mut().enumerate() {
                let mut sector = [0; 512];
                image.read((number * 512) as u64, &mut sector);
                assert_eq!(sector, [sector[0]; 512], "seed {seed}: sector {number} is torn");
                assert!(versions.may_hold(sector[0]), "seed {seed}: sector {number} holds {}", sector[0]);
                if sector[0] == versions.newest() {
                    new += 1;
                } else {
                    old += 1;
                }
                *versions = Versions { written: vec![sector[0]], floor: 0 };
            }
            world.restart(node, |_| std::future::pending());
        }
    }
    assert!(cuts == 360 && old > 500 && new > 5000, "{cuts} cuts, {old} old sectors, {new} new ones");
}
