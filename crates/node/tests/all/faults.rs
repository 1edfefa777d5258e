//! Disks that fail or are full: clients get the right error, and other clients notice nothing.

use std::rc::Rc;
use std::time::Duration;

use base::{BlockCount, BlockSize, Buf, ByteLen, Chain, Lba};
use initiator::command::CompareAndWrite;
use initiator::{Error, Lun, Session, Transfer};
use node::Config;
use node::control::{FaultKind, PoolSpec, TargetSpec};
use proto::scsi::Cdb;
use rt::sim::{DiskFaults, DiskImage};
use store::NewDisk;

use crate::commands::{register, set_write_cache};
use crate::content::{Stamp, stamped};
use crate::rig::{Client, DISK, MIB, POOL, RECORD, Rig, Shape, TARGET, log_in};
use crate::seeds::each_seed;
use crate::workload::volume_number;

/// After this time, a new volume's node has nothing more to write to its pool, such as its mark.
const AT_REST: Duration = Duration::from_secs(2);

/// Sense keys (SPC-4 table 43).
const NOT_READY: u8 = 0x02;
const MEDIUM_ERROR: u8 = 0x03;
const HARDWARE_ERROR: u8 = 0x04;

async fn write(session: &Session, lun: u16, lba: u64, blocks: u64) -> Result<(), Error> {
    let data = stamped(volume_number(lun), lba * 8, blocks as usize * 8, Stamp { client: 1, sequence: 1 });
    session.write(Lun(lun), Lba(lba), data, BlockSize::B4096).await
}

async fn read(session: &Session, lun: u16, lba: u64, blocks: u64) -> Result<(), Error> {
    session.read(Lun(lun), Lba(lba), BlockCount(blocks), BlockSize::B4096).await.map(drop)
}

/// The place on the disk of a block with this content.
fn find(image: &DiskImage, content: &[u8]) -> u64 {
    let mut block = [0; 512];
    let found = (0..image.size()).step_by(512).find(|at| {
        image.read(*at, &mut block);
        block == content[..512]
    });
    found.expect("it was written")
}

/// The LBA in fixed or descriptor sense data (SPC-4 4.5.2.2, 4.5.3).
fn information(error: &Error) -> Option<u64> {
    let Error::Status { sense, .. } = error else { return None };
    match sense[0] & 0x7f {
        0x70 if sense[0] & 0x80 != 0 => Some(u64::from(u32::from_be_bytes(sense[3..7].try_into().unwrap()))),
        0x72 if sense[8] == 0 => Some(u64::from_be_bytes(sense[12..20].try_into().unwrap())),
        _ => None,
    }
}

#[test]
fn a_disk_that_failed_to_write_is_shown_until_the_node_starts_again() {
    let rig = Rig::new(1, 2);
    rig.add(Shape::thick());
    let client = rig.client("client");
    let said = |rig: &Rig| {
        let (pool, faults) =
            rig.control(|control| async move { (control.pool(POOL).unwrap(), control.faults()) });
        (pool.state.unwrap().failed, faults)
    };
    assert!(matches!(said(&rig), (disks, faults) if disks.is_empty() && faults.is_empty()));
    rig.world.run_for(AT_REST);
    rig.world.set_disk_faults(rig.server, DISK, DiskFaults::default().with_unwritable(0..64 * MIB));
    client.run(|portal| async move {
        write(&*log_in(portal, "client", 0).await, 0, 300, 1).await.unwrap_err();
    });
    rig.world.set_disk_faults(rig.server, DISK, DiskFaults::default());
    rig.world.run_for(Duration::from_secs(90));
    let (disks, faults) = said(&rig);
    assert_eq!(disks.len(), 1);
    let errno = 5; // EIO
    assert_eq!((&*disks[0].path, disks[0].errno), (DISK.as_ref(), errno));
    assert_eq!(disks[0].age.as_secs(), 90);
    let [fault] = faults.as_slice() else { panic!("{faults:?}") };
    assert_eq!(fault.kind, FaultKind::DiskFailed { pool: POOL.into(), disk: DISK.into(), errno });
    assert_eq!(fault.age, Some(disks[0].age));
    rig.power_cycle();
    assert!(matches!(said(&rig), (disks, faults) if disks.is_empty() && faults.is_empty()));
}

/// A volume whose block 300 a host has written, and the block's place on the disk.
fn with_block_300(seed: u64) -> (Rig, u64) {
    let rig = Rig::new(seed, 2);
    rig.add(Shape::thick());
    rig.client("client")
        .run(|portal| async move { write(&*log_in(portal, "client", 0).await, 0, 300, 1).await.unwrap() });
    let content = stamped(volume_number(0), 2400, 8, Stamp { client: 1, sequence: 1 }).to_vec();
    let at = find(&rig.world.disk_image(rig.server, DISK), &content);
    (rig, at)
}

#[test]
fn a_block_that_cannot_be_read_is_named() {
    each_seed(2, |seed| {
        let (rig, at) = with_block_300(seed);
        let client = rig.client("reader");
        // In the middle of the block.
        let faults = DiskFaults::default().with_unreadable(at + 1024..at + 1536);
        rig.world.set_disk_faults(rig.server, DISK, faults);
        client.run(|portal| async move {
            let session = log_in(portal, "client", 0).await;
            for (start, blocks) in [(300, 1), (290, 20), (200, 400)] {
                let error = read(&session, 0, start, blocks).await.unwrap_err();
                assert_eq!(error.sense(), Some((MEDIUM_ERROR, 0x1100)), "unrecovered read error: {error}");
                assert_eq!(information(&error), Some(300));
            }
            let (compare, size) = (Chain::from(Buf::zeroed(4096)), BlockSize::B4096);
            let exchange = CompareAndWrite { lba: Lba(300), compare: compare.clone(), write: compare, size };
            let compared = session.compare_and_write(Lun(0), exchange).await;
            // VERIFY (10) of blocks 290 to 309.
            let verify = Cdb([0x2f, 0, 0, 0, 1, 34, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0]);
            let verified = session.command(Lun(0), verify, Transfer::None).await.map(drop);
            for error in [compared.unwrap_err(), verified.unwrap_err()] {
                assert_eq!(error.sense(), Some((MEDIUM_ERROR, 0x1100)), "{error}");
                assert_eq!(information(&error), Some(300));
            }
            read(&session, 0, 200, 100).await.unwrap();
            read(&session, 0, 301, 100).await.unwrap();
        });
    });
}

#[test]
fn read_errors_are_shown_until_their_acknowledgement_is_durable() {
    each_seed(3, |seed| {
        let (rig, at) = with_block_300(seed);
        let client = rig.client("reader");
        rig.world.set_disk_faults(rig.server, DISK, DiskFaults::default().with_unreadable(at..at + 512));
        let record = |fails: bool| {
            let faults = DiskFaults { write_error_one_in: u64::from(fails), ..DiskFaults::default() };
            rig.world.set_disk_faults(rig.server, RECORD, faults);
            rig.world.run_for(Duration::from_secs(if fails { 0 } else { 30 }));
        };
        let read_errors = || {
            let faults = rig.control(|control| async move { control.faults() }).into_iter();
            let kinds = faults.map(|fault| fault.kind);
            kinds.filter(|kind| matches!(kind, FaultKind::ReadFailed { .. })).collect::<Vec<_>>()
        };
        let acknowledge =
            || rig.control(|control| async move { control.acknowledge_read_errors(POOL).await });
        // The disk of the node's record has no space at the moment.
        record(true);
        client.run(|portal| async move {
            let session = log_in(portal, "client", 0).await;
            read(&session, 0, 300, 1).await.unwrap_err();
        });
        let shown = read_errors();
        let [FaultKind::ReadFailed { bad: 1, first: Some(first), .. }] = shown.as_slice() else {
            panic!("{shown:?}")
        };
        assert_eq!(first.lba, 300);
        record(false);
        rig.power_cycle();
        assert_eq!(read_errors(), shown);
        record(true);
        acknowledge().unwrap_err();
        assert_eq!(read_errors(), shown, "the next start would show it again");
        record(false);
        acknowledge().unwrap();
        assert!(read_errors().is_empty());
        rig.power_cycle();
        assert!(read_errors().is_empty());
        rig.client("after").run(|portal| async move {
            let session = log_in(portal, "client", 0).await;
            read(&session, 0, 300, 1).await.unwrap_err();
        });
        assert_eq!(read_errors(), shown, "it goes on");
    });
}

#[test]
fn a_pool_larger_than_its_file_systems_free_space_is_overcommitted() {
    let rig = Rig::new(1, 2);
    rig.add(Shape { name: "taken", ..Shape::thick() });
    let make = |name: &'static str| {
        let path = format!("/pools/{name}").into();
        let disks = vec![NewDisk { path, create: Some(ByteLen(64 * MIB)), reserve: false }];
        let spec = PoolSpec { name: name.into(), disks, wipe: false };
        rig.control(|control| async move { control.create_pool(spec).await }).unwrap().state.unwrap()
    };
    rig.world.leave_space(rig.server, 100 * MIB);
    let first = make("first");
    assert!(first.promised > 50 * MIB && first.overcommit.is_none(), "{first:?}");
    // Together they may take more space than there is.
    let second = make("second").overcommit.unwrap();
    assert!(second.promised > second.free && second.free > 64 * MIB, "{second:?}");
    let overcommitted = || {
        let pools = rig.control(|control| async move { control.pools() });
        let over = pools.into_iter().filter(|pool| pool.state.as_ref().unwrap().overcommit.is_some());
        over.map(|pool| pool.name).collect::<Vec<_>>()
    };
    assert_eq!(overcommitted(), ["first", "second"], "a disk is in no file system");
    // Barely enough space does not end the finding.
    rig.world.leave_space(rig.server, second.promised + MIB);
    assert_eq!(overcommitted().len(), 2);
    rig.world.leave_space(rig.server, second.promised * 2);
    assert!(overcommitted().is_empty());
    rig.world.leave_space(rig.server, second.promised + MIB);
    assert!(overcommitted().is_empty());
}

#[test]
fn a_disk_that_fails_to_write_stops_its_pool_and_no_other() {
    each_seed(3, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        rig.add_other_pool();
        let client = rig.client("client");
        let session = client.run(|portal| async move {
            let session = log_in(portal, "client", 0).await;
            session.make_ready(Lun(1)).await.unwrap();
            write(&session, 0, 0, 1).await.unwrap();
            session
        });
        let faults = DiskFaults { write_error_one_in: 1, ..DiskFaults::default() };
        rig.world.set_disk_faults(rig.server, DISK, faults);
        client.run(move |_| async move {
            let error = write(&session, 0, 0, 1).await.unwrap_err();
            let (key, _) = error.sense().unwrap();
            assert!([MEDIUM_ERROR, HARDWARE_ERROR, NOT_READY].contains(&key), "{error}");
            assert_eq!(information(&error), None, "nobody knows which block it was");
            // The content of the disk is unknown from now on: the node accepts no more writes, even where
            // they would succeed.
            for lba in [0, 500, 1000] {
                let error = write(&session, 0, lba, 1).await.unwrap_err();
                let (key, _) = error.sense().unwrap();
                assert!([HARDWARE_ERROR, NOT_READY].contains(&key), "{error}");
                assert!(session.flush(Lun(0)).await.is_err(), "a flush after a failed write is no promise");
            }
            write(&session, 1, 0, 600).await.unwrap();
            session.flush(Lun(1)).await.unwrap();
            read(&session, 1, 0, 600).await.unwrap();
        });
        // A restart reopens the disk.
        rig.world.set_disk_faults(rig.server, DISK, DiskFaults::default());
        rig.world.kill(rig.server);
        rig.start();
        rig.client("after").run(|portal| async move {
            let session = log_in(portal, "client", 0).await;
            write(&session, 0, 0, 1).await.unwrap();
            session.flush(Lun(0)).await.unwrap();
        });
    });
}

/// The sense of TEST UNIT READY, and the sense that REQUEST SENSE returns as data.
async fn readiness(session: &Session, lun: u16) -> [(u8, u16); 2] {
    let tested = session.command(Lun(lun), Cdb([0; 16]), Transfer::None).await;
    let tested = tested.map_or_else(|error| error.sense().unwrap(), |_| (0, 0));
    let mut cdb = [0; 16];
    (cdb[0], cdb[4]) = (0x03, 18);
    let asked = session.command(Lun(lun), Cdb(cdb), Transfer::In(18)).await.unwrap();
    let data = asked.data.unwrap().to_vec();
    [tested, (data[2], u16::from_be_bytes([data[12], data[13]]))]
}

/// Otherwise multipathing would fail a path because of its writes and reinstate it because of TEST UNIT
/// READY, without end.
#[test]
fn a_volume_on_a_disk_out_of_service_is_not_ready_and_others_are() {
    const READY: [(u8, u16); 2] = [(0, 0); 2];
    /// LOGICAL UNIT NOT READY, MANUAL INTERVENTION REQUIRED (SPC-4).
    const NEEDS_HELP: [(u8, u16); 2] = [(NOT_READY, 0x0403); 2];
    each_seed(3, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        rig.add_other_pool();
        let client = rig.client("client");
        // On both cores, because either may have the slice that fails.
        let sessions = client.run(|portal| async move {
            let mut sessions = Vec::new();
            for name in ["a", "b", "c", "d"] {
                let session = log_in(portal, name, 0).await;
                session.make_ready(Lun(1)).await.unwrap();
                assert_eq!([readiness(&session, 0).await, readiness(&session, 1).await], [READY; 2]);
                sessions.push(session);
            }
            write(&sessions[0], 0, 300, 1).await.unwrap();
            sessions
        });
        rig.world.set_disk_faults(rig.server, DISK, DiskFaults::default().with_unwritable(0..64 * MIB));
        let sessions = client.run(move |_| async move {
            write(&sessions[0], 0, 300, 1).await.unwrap_err();
            for session in &sessions {
                assert_eq!(write(session, 0, 300, 1).await.unwrap_err().sense(), Some(NEEDS_HELP[0]));
                assert_eq!([readiness(session, 0).await, readiness(session, 1).await], [NEEDS_HELP, READY]);
                write(session, 1, 300, 1).await.unwrap();
                read(session, 0, 300, 1).await.expect("what is there can be read");
            }
            sessions
        });
        rig.world.set_disk_faults(rig.server, DISK, DiskFaults::default());
        rig.control(|control| async move { control.reopen_pool(POOL).await }).unwrap();
        client.run(move |_| async move {
            for session in &sessions {
                session.make_ready(Lun(0)).await.unwrap();
                assert_eq!(readiness(session, 0).await, READY);
                write(session, 0, 300, 1).await.unwrap();
            }
        });
    });
}

/// A session that has written a block to the first unit, whose disk fails every flush from now on.
fn written_before_flushes_fail(rig: &Rig, client: Client<'_>) -> Rc<Session> {
    let session = client.run(|portal| async move {
        let session = log_in(portal, "client", 0).await;
        write(&session, 0, 0, 1).await.unwrap();
        session
    });
    let faults = DiskFaults { flush_error_one_in: 1, ..DiskFaults::default() };
    rig.world.set_disk_faults(rig.server, DISK, faults);
    session
}

#[test]
fn a_failed_flush_is_reported_and_not_forgotten() {
    each_seed(2, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        let client = rig.client("client");
        let session = written_before_flushes_fail(&rig, client);
        let session = client.run(move |_| async move {
            let error = session.flush(Lun(0)).await.unwrap_err();
            assert_eq!(error.sense(), Some((MEDIUM_ERROR, 0x0c00)), "write error: {error}");
            assert_eq!(information(&error), None, "nobody knows which block is lost");
            session
        });
        rig.world.set_disk_faults(rig.server, DISK, DiskFaults::default());
        client.run(move |_| async move {
            assert!(
                session.flush(Lun(0)).await.is_err(),
                "the second flush knows nothing of the first one's loss"
            );
        });
    });
}

/// INTERNAL TARGET FAILURE: after BUSY, initiators would repeat the command, which would never succeed.
const FAILED: Option<(u8, u16)> = Some((HARDWARE_ERROR, 0x4400));

#[test]
fn a_reservation_that_cannot_be_stored_has_failed() {
    let rig = Rig::new(1, 2);
    rig.add(Shape::thick());
    let client = rig.client("client");
    let session = client.run(|portal| log_in(portal, "client", 0));
    rig.world.set_disk_faults(rig.server, DISK, DiskFaults::default().with_unwritable(0..64 * MIB));
    client.run(move |_| async move {
        // The second time, the pool accepts no changes any more.
        for _ in 0..2 {
            let error = register(&session, 0, 7, true).await.unwrap_err();
            assert_eq!(error.sense(), FAILED, "{error}");
        }
        assert!(session.read_keys(Lun(0)).await.unwrap().is_empty());
    });
}

/// The pool may contain the change that it could not store: the next start would find it.
#[test]
fn nothing_is_answered_that_rests_on_a_reservation_that_could_not_be_stored() {
    let rig = Rig::new(1, 2);
    rig.add(Shape::thick());
    let client = rig.client("client");
    let session = client.run(|portal| log_in(portal, "client", 0));
    let faults = DiskFaults { flush_error_one_in: 1, ..DiskFaults::default() };
    rig.world.set_disk_faults(rig.server, DISK, faults);
    client.run(move |_| async move {
        // As far as any host knows, this host is not registered, so an unregistration would change nothing.
        for key in [7, 0] {
            let error = register(&session, 0, key, true).await.unwrap_err();
            assert_eq!(error.sense(), FAILED, "{key}: {error}");
        }
    });
    rig.world.set_disk_faults(rig.server, DISK, DiskFaults::default());
    rig.control(|control| async move { control.reopen_pool(POOL).await }).unwrap();
    rig.client("client").run(|portal| async move {
        register(&*log_in(portal, "client", 0).await, 0, 0, true).await.unwrap();
    });
    rig.power_cycle();
    let client = rig.client("client");
    let keys = client
        .run(|portal| async move { log_in(portal, "client", 0).await.read_keys(Lun(0)).await.unwrap() });
    assert!(keys.is_empty(), "{keys:?}");
}

#[test]
fn a_write_cache_that_cannot_be_flushed_is_not_turned_off_in_silence() {
    let rig = Rig::new(1, 2);
    rig.add(Shape::thick());
    let client = rig.client("client");
    let session = written_before_flushes_fail(&rig, client);
    client.run(move |_| async move {
        let error = set_write_cache(&session, 0, false).await.unwrap_err();
        assert_eq!(error.sense(), FAILED, "{error}");
    });
}

/// SBC-3, Caches: newer data in the cache goes to the medium first; if that fails, the medium does not have
/// the requested data.
#[test]
fn a_read_with_fua_and_a_verify_are_of_the_medium() {
    const READ_FUA: [u8; 10] = [0x28, 0x08, 0, 0, 0, 5, 0, 0, 1, 0];
    const VERIFY: [u8; 10] = [0x2f, 0, 0, 0, 0, 5, 0, 0, 1, 0];
    async fn ask(session: &Session, cdb: [u8; 10], transfer: Transfer) -> Result<(), Error> {
        let mut bytes = [0; 16];
        bytes[..10].copy_from_slice(&cdb);
        session.command(Lun(0), Cdb(bytes), transfer).await.map(drop)
    }
    for (cdb, data) in [(READ_FUA, true), (VERIFY, false)] {
        let transfer = move || if data { Transfer::In(4096) } else { Transfer::None };
        let rig = Rig::new(1, 2);
        rig.add(Shape::thick());
        let client = rig.client("client");
        let session = client.run(|portal| async move {
            let session = log_in(portal, "client", 0).await;
            write(&session, 0, 5, 1).await.unwrap();
            session.flush(Lun(0)).await.unwrap();
            session
        });
        rig.world.run_for(AT_REST);
        let faults = DiskFaults { flush_error_one_in: 1, ..DiskFaults::default() };
        rig.world.set_disk_faults(rig.server, DISK, faults);
        client.run(move |_| async move {
            ask(&session, cdb, transfer()).await.expect("there is nothing to flush");
            write(&session, 0, 5, 1).await.unwrap();
            read(&session, 0, 5, 1).await.expect("a cache will do");
            let error = ask(&session, cdb, transfer()).await.unwrap_err();
            assert_eq!(error.sense(), Some((MEDIUM_ERROR, 0x0c00)), "write error: {error}");
        });
    }
}

#[test]
fn a_full_disk_is_reported_as_such_and_recovers_when_there_is_space() {
    each_seed(2, |seed| {
        let rig = Rig::without_pool(seed, 2, Config::default());
        rig.control(|control| async move {
            // A file that takes space as it is written.
            let disk = store::NewDisk {
                path: "/pool".into(),
                create: Some(base::ByteLen(64 * MIB)),
                reserve: false,
            };
            let spec = node::control::PoolSpec { name: POOL.into(), disks: vec![disk], wipe: false };
            control.create_pool(spec).await.unwrap();
            let name = TARGET.to_owned();
            control.create_target(TargetSpec { name, alias: None, chap: None }).await.unwrap();
        });
        rig.add(Shape::thick());
        let client = rig.client("client");
        let session = client.run(|portal| async move {
            let session = log_in(portal, "client", 0).await;
            write(&session, 0, 0, 16).await.unwrap();
            session
        });
        rig.world.set_space(rig.server, Some(0));
        let session = client.run(move |_| async move {
            let error = write(&session, 0, 1000, 256).await.unwrap_err();
            // DATA PROTECT, SPACE ALLOCATION FAILED WRITE PROTECT (SBC-3 4.7.3.6).
            assert_eq!(error.sense(), Some((0x07, 0x2707)), "{error}");
            write(&session, 0, 0, 16).await.expect("what has its space can be written");
            session
        });
        rig.world.set_space(rig.server, None);
        client.run(move |_| async move {
            write(&session, 0, 1000, 256).await.unwrap();
            session.flush(Lun(0)).await.unwrap();
        });
    });
}
