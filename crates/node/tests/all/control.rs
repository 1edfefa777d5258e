//! Administrators' changes during I/O.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use base::{BlockCount, BlockSize, ByteLen, Chain, Lba, Rng};
use initiator::{Ended, Error, Lun, Session};
use node::Config;
use node::control::{ControlError, MapSpec, NewVolume, PoolSpec, PoolStatus, TargetSpec};
use rt::sim::{DiskFaults, DiskImage};
use store::{MetadataState, NewDisk, VolumeKind};

use crate::commands::register;
use crate::content::{Stamp, single_stamp, stamped};
use crate::reservations::slow_writes;
use crate::rig::{Client, DISK, MIB, POOL, Rig, Shape, TARGET, log_in, map, named, new_volume};
use crate::seeds::each_seed;
use crate::shadow::Shadow;
use crate::workload::{Worker, read_all, volume_number};

const LUN: u16 = 0;
/// A disk that is added to the pool.
const SECOND: &str = "/dev/second";

/// LOGICAL UNIT NOT SUPPORTED, and the unit attentions that report changes (SPC-4 table 44).
const NOT_SUPPORTED: (u8, u16) = (0x05, 0x2500);
const CAPACITY_CHANGED: (u8, u16) = (0x06, 0x2a09);
const LUNS_CHANGED: (u8, u16) = (0x06, 0x3f0e);

async fn read_block(session: &Session, lun: u16, lba: u64) -> Result<(), Error> {
    session.read(Lun(lun), Lba(lba), BlockCount(1), BlockSize::B4096).await.map(drop)
}

fn free(rig: &Rig) -> ByteLen {
    rig.control(|control| async move { control.pools()[0].state.as_ref().unwrap().usage.free })
}

/// Adds the disk at [`SECOND`] to the pool. Returns how many it has then.
fn add_second_disk(rig: &Rig) -> Result<usize, ControlError> {
    rig.control(|control| async move {
        let disk = NewDisk { path: SECOND.into(), create: None, reserve: false };
        control.add_disk(POOL, disk, false).await.map(|pool| pool.paths.len())
    })
}

/// Checks whether the pool can lose a disk, and removes it.
fn remove_disk(rig: &Rig, path: &'static str) -> Result<PoolStatus, ControlError> {
    rig.control(move |control| async move {
        control.check_disk_removal(POOL, path.as_ref())?;
        control.remove_disk(POOL, path.into()).await
    })
}

/// A client that writes to all of `shape` on several sessions until its session ends or the unit is gone.
fn keep_busy(rig: &Rig, shape: Shape, seed: u64) {
    let shadow = Rc::new(RefCell::new(Shadow::new(volume_number(shape.lun))));
    let client = rig.client(shape.name);
    let logged_in = Rc::new(Cell::new(0));
    for worker in Worker::share(shape, 4, &shadow, &mut Rng::new(seed)) {
        let name = format!("busy-{}-{}", shape.name, worker.blocks.start);
        let logged_in = Rc::clone(&logged_in);
        client.spawn(move |portal| async move {
            let session = log_in(portal, &name, shape.lun).await;
            logged_in.set(logged_in.get() + 1);
            let ended = worker.work(session, u64::MAX).await.unwrap_err();
            let expected = matches!(ended, Error::Ended(Ended::Closed | Ended::Broken(_) | Ended::LoggedOut))
                || [Some(NOT_SUPPORTED), Some(LUNS_CHANGED), Some(CAPACITY_CHANGED)].contains(&ended.sense());
            assert!(expected, "{ended}");
        });
    }
    assert!(rig.world.run_until(|| logged_in.get() == 4, Duration::from_secs(10)));
    rig.world.run_for(Duration::from_millis(10));
}

#[test]
fn a_volume_that_is_deleted_while_in_use_gives_its_space_back_and_a_new_one_reads_zeros() {
    each_seed(6, |seed| {
        let rig = Rig::new(seed, 2);
        let shape = Shape::thick();
        let other = Shape { name: "other", lun: 1, ..Shape::thick() };
        // If the target has another LUN, the sessions stay; otherwise they are asked to log out.
        if seed % 2 == 0 {
            rig.add(other);
        }
        let before = free(&rig);
        rig.add(shape);
        keep_busy(&rig, shape, seed);
        let began = rig.world.now();
        rig.control(|control| async move { control.delete_volume("thick", true).await }).unwrap();
        let took = rig.world.now() - began;
        assert!(took < Duration::from_secs(1), "{took:?}");
        assert_eq!(free(&rig), before);
        rig.world.run_for(Duration::from_secs(15));
        rig.add(shape);
        rig.client("after").run(move |portal| async move {
            let session = log_in(portal, "after", LUN).await;
            let all = read_all(&session, shape).await;
            assert!(all.iter().all(|byte| *byte == 0), "a new volume reads as zeros");
        });
    });
}

#[test]
fn an_unmapped_lun_is_gone_at_once() {
    each_seed(4, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        rig.add(Shape { lun: 1, ..Shape::ram() });
        let client = rig.client("client");
        let session = client.run(|portal| log_in(portal, "client", LUN));
        keep_busy(&rig, Shape::thick(), seed);
        rig.control(|control| async move { control.unmap(TARGET, LUN, None).await }).unwrap();
        client.run(move |_| async move {
            let gone = read_block(&session, LUN, 0).await.unwrap_err();
            assert_eq!(gone.sense(), Some(NOT_SUPPORTED), "{gone}");
            session.make_ready(Lun(1)).await.unwrap();
            read_block(&session, 1, 0).await.unwrap();
        });
        // The volume itself is intact, and can be mapped again.
        rig.control(|control| async move { map(&control, "thick", 5).await }).unwrap();
        rig.client("again").run(|portal| async move {
            read_block(&*log_in(portal, "again", 5).await, 5, 0).await.unwrap();
        });
    });
}

#[test]
fn the_sessions_of_a_target_that_is_deleted_end_and_see_nothing_meanwhile() {
    each_seed(4, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        let client = rig.client("client");
        let session = client.run(|portal| log_in(portal, "client", LUN));
        keep_busy(&rig, Shape::thick(), seed);
        rig.control(|control| async move { control.delete_target(TARGET, true).await }).unwrap();
        client.run(move |portal| async move {
            let gone = read_block(&session, LUN, 0).await;
            assert!(gone.is_err(), "it sees a volume that is not mapped any more");
            rt::sleep(Duration::from_secs(12)).await;
            assert!(session.ended().is_some());
            let refused = Session::connect(portal, TARGET, &crate::rig::named("client")).await;
            assert!(matches!(refused, Err(Error::Login { .. })), "{:?}", refused.err());
        });
        let sessions = rig.control(|control| async move { control.sessions().await }).unwrap();
        assert!(sessions.is_empty(), "{sessions:?}");
        rig.control(|control| async move { control.delete_volume("thick", false).await }).unwrap();
    });
}

#[test]
fn clients_notice_a_grown_volume_and_use_its_new_end() {
    each_seed(4, |seed| {
        for kind in [VolumeKind::Thick, VolumeKind::Ram, VolumeKind::Log] {
            let rig = Rig::new(seed, 2);
            let shape = Shape { kind, ..Shape::thick() };
            rig.add(shape);
            let client = rig.client("client");
            let (one, other) = client.run(|portal| async move {
                (log_in(portal, "one", LUN).await, log_in(portal, "other", LUN).await)
            });
            keep_busy(&rig, shape, seed);
            rig.control(|control| async move { control.grow_volume("thick", ByteLen(12 * MIB)).await })
                .unwrap();
            client.run(move |_| async move {
                for session in [&one, &other] {
                    let told = read_block(session, LUN, 0).await.unwrap_err();
                    assert_eq!(told.sense(), Some(CAPACITY_CHANGED), "{told}");
                    let capacity = session.read_capacity(Lun(LUN)).await.unwrap();
                    assert_eq!(capacity.blocks, BlockCount(12 * MIB / 4096));
                }
                // Across the former end.
                let stamp = Stamp { client: 1, sequence: 1 };
                let data = stamped(volume_number(LUN), (9 * MIB) / 512, 2 * MIB as usize / 512, stamp);
                one.write(Lun(LUN), Lba(9 * MIB / 4096), data, BlockSize::B4096).await.unwrap();
                let count = BlockCount(4 * MIB / 4096);
                let found = other.read(Lun(LUN), Lba(8 * MIB / 4096), count, BlockSize::B4096).await.unwrap();
                let (zeros, rest) = found.split_at(MIB as usize);
                let (written, more_zeros) = rest.split_at(2 * MIB as usize);
                assert!(zeros.iter().chain(more_zeros).all(|byte| *byte == 0), "what is new reads as zeros");
                assert_eq!(single_stamp(volume_number(LUN), 9 * MIB / 512, written), Some(stamp));
                let beyond = read_block(&one, LUN, 12 * MIB / 4096).await.unwrap_err();
                assert_eq!(beyond.sense(), Some((0x05, 0x2100)), "LBA out of range: {beyond}");
            });
        }
    });
}

#[test]
fn administrators_and_clients_do_not_get_in_each_others_way() {
    each_seed(3, |seed| {
        let rig = Rig::new(seed, 3);
        let shape = Shape::thick();
        rig.add(shape);
        let shadow = Rc::new(RefCell::new(Shadow::new(volume_number(LUN))));
        let clients: Vec<_> = Worker::share(shape, 4, &shadow, &mut Rng::new(seed))
            .into_iter()
            .map(|worker| {
                let name = format!("client-{}", worker.blocks.start);
                rig.client(&name).spawn(move |portal| async move {
                    let session = log_in(portal, &name, LUN).await;
                    let mut worker = worker;
                    for _ in 0..60 {
                        // Each of the other volumes that are mapped and unmapped causes a unit attention for
                        // all.
                        match worker.step(&session).await {
                            Err(error) if error.is_unit_attention() => {}
                            result => result.unwrap(),
                        }
                    }
                })
            })
            .collect();
        for number in 0..3 {
            rig.control(move |control| async move {
                let other = Shape { name: "other", lun: 1, mib: 4, ..Shape::thick() };
                control.create_volume(new_volume(POOL, other)).await.unwrap();
                map(&control, "other", 1).await.unwrap();
                let name = format!("iqn.2026-01.org.ursa:other-{number}");
                control.create_target(TargetSpec { name, alias: None, chap: None }).await.unwrap();
                control.rename_volume("other", "renamed").await.unwrap();
                control.grow_volume("renamed", ByteLen(5 * MIB)).await.unwrap();
                control.delete_volume("renamed", true).await.unwrap();
            });
        }
        clients.into_iter().for_each(|client| rig.world.wait_for(client).unwrap());
        rig.client("reader").run(move |portal| async move {
            let session = log_in(portal, "reader", LUN).await;
            let all = read_all(&session, shape).await;
            shadow.borrow().check_alive(0, &all).unwrap();
        });
    });
}

#[test]
fn a_volume_is_deleted_when_the_commands_at_its_slow_disk_have_ended() {
    each_seed(3, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        rig.world.set_disk_latency(rig.server, DISK, slow_writes());
        keep_busy(&rig, Shape::thick(), seed);
        rig.control(|control| async move { control.delete_volume("thick", true).await }).unwrap();
    });
}

#[test]
fn a_volume_that_cannot_be_mapped_is_not_made() {
    each_seed(2, |seed| {
        let rig = Rig::new(seed, 2);
        let before = free(&rig);
        let create = |target: &str, host: &str| {
            let map = Some(MapSpec { target: target.into(), host: host.into(), lun: None });
            let new = NewVolume { map, ..new_volume(POOL, Shape::thick()) };
            rig.control(|control| async move { control.create_volume(new).await })
        };
        assert!(matches!(create("no iSCSI name", "any"), Err(ControlError::Name(_))));
        let nobody = create("iqn.2026-01.org.ursa:new", "nobody");
        assert!(matches!(nobody, Err(ControlError::NotFound { kind: "host", .. })), "{nobody:?}");
        assert!(rig.control(|control| async move { control.volumes().await }).is_empty());
        assert_eq!(free(&rig), before, "no space was taken");
        create("iqn.2026-01.org.ursa:new", "any").unwrap();
    });
}

/// The rules of one target change; the sessions of another one hear nothing.
#[test]
fn a_change_of_one_target_does_not_disturb_the_sessions_of_another() {
    each_seed(2, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        let client = rig.client("client");
        let session = client.run(|portal| log_in(portal, "client", LUN));
        rig.control(|control| async move {
            let shape = Shape { name: "other", ..Shape::thick() };
            let map = Some(MapSpec { target: format!("{TARGET}-2"), host: "any".into(), lun: None });
            control.create_volume(NewVolume { map, ..new_volume(POOL, shape) }).await.unwrap();
        });
        let session = client.run(move |_| async move {
            read_block(&session, LUN, 0).await.expect("no unit attention");
            session
        });
        // Now one that concerns it: another LUN in its target.
        rig.control(|control| async move { map(&control, "other", 1).await }).unwrap();
        client.run(move |_| async move {
            let told = read_block(&session, LUN, 0).await.unwrap_err();
            assert_eq!(told.sense(), Some(LUNS_CHANGED), "{told}");
            session.make_ready(Lun(1)).await.unwrap();
            read_block(&session, 1, 0).await.unwrap();
        });
    });
}

/// Writes these bytes of the volume, and reads them back.
async fn write_and_read(session: Rc<Session>, bytes: Range<u64>) {
    session.make_ready(Lun(LUN)).await.unwrap();
    let stamp = Stamp { client: 1, sequence: 1 };
    for at in bytes.clone().step_by(MIB as usize) {
        let data = stamped(volume_number(LUN), at / 512, MIB as usize / 512, stamp);
        session.write(Lun(LUN), Lba(at / 4096), data, BlockSize::B4096).await.unwrap();
    }
    for at in bytes.step_by(MIB as usize) {
        let count = BlockCount(MIB / 4096);
        let found = session.read(Lun(LUN), Lba(at / 4096), count, BlockSize::B4096).await.unwrap();
        assert_eq!(single_stamp(volume_number(LUN), at / 512, &found), Some(stamp));
    }
}

/// A volume of 40 MiB that a client writes to; returns another client, and its session.
fn busy_40_mib(rig: &Rig, seed: u64) -> (Client<'_>, Rc<Session>) {
    let shape = Shape { mib: 40, ..Shape::thick() };
    rig.add(shape);
    let client = rig.client("client");
    let session = client.run(|portal| log_in(portal, "client", LUN));
    keep_busy(rig, shape, seed);
    (client, session)
}

fn grow_to_80_mib(rig: &Rig) -> Result<(), ControlError> {
    rig.control(|control| async move { control.grow_volume("thick", ByteLen(80 * MIB)).await.map(drop) })
}

fn assert_80_mib(rig: &Rig) {
    let volume = rig.control(|control| async move { control.volume("thick") }).unwrap();
    assert_eq!(volume.info.capacity, ByteLen(80 * MIB));
}

#[test]
fn a_volume_grows_onto_a_disk_that_is_added_while_clients_write() {
    each_seed(4, |seed| {
        let rig = Rig::new(seed, 2);
        let (client, session) = busy_40_mib(&rig, seed);
        // Its blocks are as large as the volume's; the first disk's are smaller.
        rig.world.add_disk(rig.server, SECOND, 32 * MIB, 4096);
        assert!(matches!(grow_to_80_mib(&rig), Err(ControlError::Store(store::StoreError::NoSpace { .. }))));
        assert_eq!(add_second_disk(&rig).unwrap(), 2);
        grow_to_80_mib(&rig).unwrap();
        client.run(move |_| write_and_read(session, 40 * MIB..80 * MIB));
        rig.power_cycle();
        assert_80_mib(&rig);
    });
}

/// The disk's place, its path and its device are free for another one at once, and hosts notice nothing.
#[test]
fn an_empty_disk_is_removed_while_clients_write() {
    each_seed(4, |seed| {
        let rig = Rig::new(seed, 2);
        let (client, session) = busy_40_mib(&rig, seed);
        rig.world.add_disk(rig.server, SECOND, 32 * MIB, 512);
        let remove = |path| remove_disk(&rig, path).map(|pool| pool.paths);
        assert_eq!(add_second_disk(&rig).unwrap(), 2);
        let is_full = |error| matches!(error, ControlError::Store(store::StoreError::NoSpace { .. }));
        assert!(remove(DISK).is_err_and(is_full), "the other disk is too small for what lies on it");
        assert_eq!(remove(SECOND).unwrap(), [std::path::PathBuf::from(DISK)]);
        // It was wiped, and no core holds it any more.
        assert_eq!(add_second_disk(&rig).unwrap(), 2);
        grow_to_80_mib(&rig).unwrap();
        client.run(move |_| write_and_read(session, 40 * MIB..80 * MIB));
        assert!(remove(SECOND).is_err_and(is_full));
        rig.power_cycle();
        assert_80_mib(&rig);
    });
}

/// What hosts write while parts of their volume move is where they find it later, also after a restart in the
/// middle.
#[test]
fn a_disk_is_emptied_and_removed_while_clients_write() {
    each_seed(6, |seed| {
        let rig = Rig::new(seed, 2);
        let shape = Shape { mib: 40, ..Shape::thick() };
        rig.add(shape);
        keep_busy(&rig, shape, seed);
        rig.world.add_disk(rig.server, SECOND, 64 * MIB, 512);
        add_second_disk(&rig).unwrap();
        let moves = rig.control(|control| async move {
            control.check_disk_removal(POOL, DISK.as_ref()).map(|would| would.moves)
        });
        assert_eq!(moves.unwrap(), ByteLen(40 * MIB));
        let leaving = remove_disk(&rig, DISK).unwrap().state.unwrap().leaving.unwrap();
        assert_eq!((leaving.path, leaving.left), (DISK.into(), ByteLen(40 * MIB)));
        let pool = || rig.control(|control| async move { control.pool(POOL) }).unwrap();
        if seed % 2 == 0 {
            // As many administrators do.
            let kept = rig.control(|control| async move { control.keep_disk(POOL, DISK.into()).await });
            assert!(kept.unwrap().state.unwrap().leaving.is_none());
            assert!(remove_disk(&rig, DISK).unwrap().state.unwrap().leaving.is_some());
        }
        let restarts = seed % 3 == 0;
        if restarts {
            rig.world.run_for(Duration::from_millis(seed * 100));
            rig.power_cycle();
        }
        let removed = || pool().paths == [std::path::PathBuf::from(SECOND)];
        let mut waited = 0;
        while !removed() {
            rig.world.run_for(Duration::from_secs(1));
            waited += 1;
            assert!(waited < 600, "{:?}", pool());
        }
        if restarts {
            // The others have lost their sessions.
            let client = rig.client("client");
            let session = client.run(|portal| log_in(portal, "client", LUN));
            client.run(move |_| write_and_read(session, 0..40 * MIB));
        } else {
            // They compare what they read.
            rig.world.run_for(Duration::from_secs(2));
        }
        rig.power_cycle();
        assert_eq!(pool().paths, [std::path::PathBuf::from(SECOND)]);
        assert_eq!(pool().state.unwrap().usage.disks.len(), 1);
    });
}

/// The same for a log volume: its logs return their zones, also after a restart in the middle.
#[test]
fn a_disk_with_zones_of_logs_is_emptied_and_removed_while_clients_write() {
    each_seed(4, |seed| {
        let rig = Rig::new(seed, 2);
        let shape = Shape { kind: VolumeKind::Log, mib: 16, ..Shape::thick() };
        rig.add(shape);
        keep_busy(&rig, shape, seed);
        rig.world.run_for(Duration::from_secs(1));
        rig.world.add_disk(rig.server, SECOND, 96 * MIB, 512);
        add_second_disk(&rig).unwrap();
        let leaving = remove_disk(&rig, DISK).unwrap().state.unwrap().leaving.unwrap();
        assert_eq!(leaving.path, std::path::PathBuf::from(DISK));
        let pool = || rig.control(|control| async move { control.pool(POOL) }).unwrap();
        let restarts = seed % 2 == 0;
        if restarts {
            rig.world.run_for(Duration::from_millis(seed * 100));
            rig.power_cycle();
        }
        let mut waited = 0;
        while pool().paths != [std::path::PathBuf::from(SECOND)] {
            rig.world.run_for(Duration::from_secs(1));
            waited += 1;
            assert!(waited < 120, "{:?}", pool());
        }
        if !restarts {
            // They compare what they read.
            rig.world.run_for(Duration::from_secs(2));
        }
        rig.power_cycle();
        assert_eq!(pool().paths, [std::path::PathBuf::from(SECOND)]);
        let client = rig.client("client");
        let session = client.run(|portal| log_in(portal, "client", LUN));
        client.run(move |_| write_and_read(session, 0..16 * MIB));
    });
}

/// All cores write to the new space, and hosts notice nothing.
#[test]
fn a_volume_grows_onto_what_its_disk_has_grown_by_while_clients_write() {
    each_seed(4, |seed| {
        let rig = Rig::new(seed, 2);
        let (client, session) = busy_40_mib(&rig, seed);
        let grow_pool = || rig.control(|control| async move { control.grow_pool(POOL).await });
        let is_not_larger = |error| matches!(error, ControlError::Store(store::StoreError::NotGrown { .. }));
        assert!(grow_pool().is_err_and(is_not_larger));
        let before = rig.control(|control| async move { control.pool(POOL) }).unwrap();
        rig.world.grow_disk(rig.server, DISK, 128 * MIB);
        assert!(matches!(grow_to_80_mib(&rig), Err(ControlError::Store(store::StoreError::NoSpace { .. }))));
        let foreseen = rig.control(|control| async move { control.check_growth(POOL) }).unwrap();
        let after = grow_pool().unwrap();
        let total = |pool: &PoolStatus| pool.state.as_ref().unwrap().usage.total.0;
        assert_eq!(total(&after), total(&before) + 64 * MIB);
        assert_eq!((foreseen.len(), foreseen[0].after.0), (1, total(&after)));
        grow_to_80_mib(&rig).unwrap();
        client.run(move |_| write_and_read(session, 40 * MIB..80 * MIB));
        rig.power_cycle();
        assert_80_mib(&rig);
        let reopened = rig.control(|control| async move { control.pool(POOL) }).unwrap();
        assert_eq!(total(&reopened), total(&after));
    });
}

#[test]
fn a_pool_that_could_not_be_given_away_is_served_as_before() {
    let rig = Rig::new(1, 2);
    rig.add(Shape::thick());
    let client = rig.client("client");
    client.run(|portal| async move {
        let session = log_in(portal, "client", LUN).await;
        register(&session, LUN, 7, false).await.unwrap();
    });
    rig.control(|control| async move { control.unmap(TARGET, LUN, None).await }).unwrap();
    rig.world.set_disk_faults(
        rig.server,
        DISK,
        DiskFaults { write_error_one_in: 1, ..DiskFaults::default() },
    );
    rig.control(|control| async move { control.export_pool(POOL).await }).unwrap_err();
    let pool = rig.control(|control| async move { control.pool(POOL) }).unwrap().state.unwrap();
    assert_eq!((pool.metadata, pool.volumes), (MetadataState::Failed, 1));
    rig.control(|control| async move { map(&control, "thick", LUN).await }).unwrap();
    client.run(|portal| async move {
        let session = Session::connect(portal, TARGET, &named("client")).await.unwrap();
        session.make_ready(Lun(LUN)).await.expect_err("its disk takes no writes any more");
        read_block(&session, LUN, 0).await.unwrap();
        assert_eq!(session.read_keys(Lun(LUN)).await.unwrap(), [7], "it is registered still");
    });
}

/// Wherever the pool is imported, its checksums count, those of blocks that were written just now, too.
#[test]
fn an_exported_pool_has_no_open_checksums() {
    let rig = Rig::new(1, 2);
    rig.control(|control| async move {
        let new = NewVolume { checksums: true, ..new_volume(POOL, Shape::thick()) };
        control.create_volume(new).await.unwrap();
        map(&control, "thick", LUN).await.unwrap();
    });
    rig.client("client").run(|portal| async move {
        let session = log_in(portal, "client", LUN).await;
        let data = Chain::copy_of(&[7; 4096]);
        session.write(Lun(LUN), Lba(0), data, BlockSize::B4096).await.unwrap();
    });
    // 1: closed, 2: open.
    let states = || {
        let mut disk = vec![0; 64 * MIB as usize];
        rig.world.disk_image(rig.server, DISK).read(0, &mut disk);
        let pages = disk.chunks(512).filter(|sector| sector.starts_with(b"URSASUMS"));
        pages.map(|page| page[10]).collect::<BTreeSet<u8>>()
    };
    assert_eq!(states(), BTreeSet::from([2]));
    rig.control(|control| async move {
        control.unmap(TARGET, LUN, None).await.unwrap();
        control.export_pool(POOL).await.unwrap();
    });
    assert_eq!(states(), BTreeSet::from([1]));
}

#[test]
fn a_pool_that_could_not_be_made_leaves_no_files() {
    let rig = Rig::without_pool(1, 2, Config::default());
    let disk = |path: &str, create: Option<u64>| NewDisk {
        path: path.into(),
        create: create.map(ByteLen),
        reserve: false,
    };
    let create = |disks: Vec<NewDisk>| {
        let spec = PoolSpec { name: "p".into(), disks, wipe: false };
        rig.control(|control| async move { control.create_pool(spec).await })
    };
    rig.world.add_disk(rig.server, "/dev/small", MIB, 512);
    rig.world.put_file(rig.server, "/there", DiskImage::new(32 * MIB, 512));
    let made = || ["/a", "/b", "/there", "/dev/small"].map(|path| rig.world.has_disk(rig.server, path));
    for disks in [
        // The second one is missing, exists already, or is too small.
        vec![disk("/a", Some(32 * MIB)), disk("/missing", None)],
        vec![disk("/a", Some(32 * MIB)), disk("/there", Some(32 * MIB))],
        vec![disk("/a", Some(32 * MIB)), disk("/b", Some(MIB))],
        vec![disk("/there", None), disk("/a", Some(32 * MIB)), disk("/dev/small", None)],
    ] {
        create(disks).unwrap_err();
        assert_eq!(made(), [false, false, true, true]);
    }
    // The file system is full.
    rig.world.set_space(rig.server, Some(0));
    create(vec![disk("/a", Some(32 * MIB))]).unwrap_err();
    assert_eq!(made(), [false, false, true, true]);
    rig.world.set_space(rig.server, None);
    create(vec![disk("/a", Some(32 * MIB)), disk("/there", None)]).unwrap();
    assert_eq!(made(), [true, false, true, true]);
}
