//! A pool whose disk failed is reopened while sessions continue.

use std::rc::Rc;
use std::time::Duration;

use base::{BlockCount, BlockSize, ByteLen, Lba};
use initiator::command::ServiceAction;
use initiator::{Error, Lun, Session};
use node::control::{ControlError, PoolStatus};
use rt::sim::{DiskFaults, DiskLatency};
use store::NewDisk;

use crate::commands::{CONFLICT, register, reserve};
use crate::content::{Stamp, stamped};
use crate::rig::{DISK, MIB, OTHER, POOL, Rig, Shape, log_in, named};
use crate::seeds::each_seed;
use crate::silence::silence;
use crate::workload::volume_number;

const LUN: Lun = Lun(0);
/// BUSY (SAM-5).
const BUSY: u8 = 0x08;
/// POWER ON, RESET, OR BUS DEVICE RESET OCCURRED, and the more specific POWER ON OCCURRED.
const POWER_ON: [(u8, u16); 2] = [(0x06, 0x2900), (0x06, 0x2901)];

async fn write(session: &Session, lba: u64, sequence: u64) -> Result<(), Error> {
    let data = stamped(volume_number(0), lba * 8, 8, Stamp { client: 1, sequence });
    session.write(LUN, Lba(lba), data, BlockSize::B4096).await
}

async fn read(session: &Session, lba: u64) -> Vec<u8> {
    session.read(LUN, Lba(lba), BlockCount(1), BlockSize::B4096).await.unwrap().to_vec()
}

fn reopen(rig: &Rig) -> Result<PoolStatus, ControlError> {
    rig.control(|control| async move { control.reopen_pool(POOL).await })
}

/// A disk that failed to write, and two sessions: one has registered a key that would not survive a power
/// cut, and has the reservation.
///
/// The earlier write to block 7 is durable.
fn failed(seed: u64) -> (Rig, Rc<Session>, Rc<Session>) {
    let rig = Rig::new(seed, 2);
    rig.add(Shape::thick());
    rig.add_other_pool();
    let sessions = rig.client("client").run(|portal| async move {
        let holder = log_in(portal, "holder", 0).await;
        let other = log_in(portal, "other", 0).await;
        write(&holder, 7, 1).await.unwrap();
        holder.flush(LUN).await.unwrap();
        register(&holder, 0, 7, false).await.unwrap();
        reserve(&holder, 0, ServiceAction::Reserve, 7, 0).await.unwrap();
        (holder, other)
    });
    rig.world.set_disk_faults(rig.server, DISK, DiskFaults::default().with_unwritable(0..64 * MIB));
    let holder = Rc::clone(&sessions.0);
    rig.client("writer").run(|_| async move { write(&holder, 8, 2).await.unwrap_err() });
    (rig, sessions.0, sessions.1)
}

#[test]
fn sessions_find_the_lun_busy_and_then_continue_with_their_reservations() {
    each_seed(4, |seed| {
        let (rig, holder, other) = failed(seed);
        rig.world.set_disk_faults(rig.server, DISK, DiskFaults::default());
        // So slow that other commands arrive meanwhile.
        let slow = Duration::from_millis(300)..Duration::from_millis(301);
        let slow =
            DiskLatency { read: slow.clone(), write: slow.clone(), flush: slow, ..DiskLatency::default() };
        rig.world.set_disk_latency(rig.server, DISK, slow);
        let reopened = rig.world.spawn_on(rig.server, rt::CoreId(0), || async {
            node::Control::current().reopen_pool(POOL).await
        });
        rig.world.run_for(Duration::from_millis(500));
        let (during, newcomer) = (Rc::clone(&holder), named("newcomer"));
        rig.client("during").run(|portal| async move {
            assert_eq!(during.report_luns().await.unwrap(), [Lun(0), Lun(1)]);
            let error = write(&during, 8, 3).await.unwrap_err();
            assert!(matches!(error, Error::Status { status: BUSY, .. }), "{error:?}");
            let session = Session::connect(portal, crate::rig::TARGET, &newcomer).await.unwrap();
            let error = write(&session, 8, 3).await.unwrap_err();
            assert!(matches!(error, Error::Status { status: BUSY, .. }), "{error:?}");
            // The other pool continues, and its LUN has not changed.
            let read = during.read(Lun(1), Lba(0), BlockCount(1), BlockSize::B4096).await;
            assert!(
                read.is_err_and(|error| error.sense().is_some_and(|(key, _)| key == 6)),
                "its first attention"
            );
            during.read(Lun(1), Lba(0), BlockCount(1), BlockSize::B4096).await.unwrap();
        });
        let pool = rig.world.wait_for(reopened).unwrap().unwrap();
        assert!(pool.state.unwrap().failed.is_empty());
        rig.world.set_disk_latency(rig.server, DISK, DiskLatency::default());
        assert_eq!(rig.control(|control| async move { control.faults().len() }), 0);
        rig.client("after").run(|_| async move {
            let told = write(&holder, 8, 4).await.unwrap_err().sense().unwrap();
            assert!(POWER_ON.contains(&told), "{told:?}");
            write(&holder, 8, 5).await.unwrap();
            holder.flush(LUN).await.unwrap();
            holder.read(Lun(1), Lba(0), BlockCount(1), BlockSize::B4096).await.unwrap();
            let before = stamped(volume_number(0), 7 * 8, 8, Stamp { client: 1, sequence: 1 });
            assert_eq!(read(&holder, 7).await, before.to_vec(), "what was flushed");
            let told = write(&other, 8, 6).await.unwrap_err().sense().unwrap();
            assert!(POWER_ON.contains(&told), "{told:?}");
            let refused = write(&other, 8, 6).await.unwrap_err();
            assert!(matches!(refused, Error::Status { status: CONFLICT, .. }), "{refused:?}");
        });
    });
}

#[test]
fn a_disk_that_fails_again_leaves_the_lun_busy_until_it_is_repaired_or_forgotten() {
    for forgotten in [false, true] {
        let (rig, holder, _) = failed(1);
        // To open a pool, the node writes its owner.
        assert!(matches!(reopen(&rig), Err(ControlError::PoolClosed(..))));
        let session = Rc::clone(&holder);
        rig.client("during").run(|_| async move {
            let error = write(&session, 8, 3).await.unwrap_err();
            assert!(matches!(error, Error::Status { status: BUSY, .. }), "{error:?}");
        });
        if forgotten {
            rig.control(|control| async move { control.forget_pool(POOL, false).await }).unwrap();
            rig.client("after").run(|_| async move {
                // LOGICAL UNIT NOT SUPPORTED.
                assert_eq!(write(&holder, 8, 4).await.unwrap_err().sense(), Some((0x05, 0x2500)));
            });
            continue;
        }
        rig.world.set_disk_faults(rig.server, DISK, DiskFaults::default());
        reopen(&rig).unwrap();
        rig.client("after").run(|_| async move {
            write(&holder, 8, 4).await.unwrap_err();
            write(&holder, 8, 5).await.unwrap();
        });
    }
}

/// The change waits for the reopening. If it held the pool meanwhile, its disk could not be opened again.
#[test]
fn a_change_of_a_volume_that_waits_for_the_reopening_does_not_prevent_it() {
    each_seed(4, |seed| {
        let (rig, holder, _) = failed(seed);
        rig.world.set_disk_faults(rig.server, DISK, DiskFaults::default());
        // The pool is not closed before this read has ended.
        let slow = Duration::from_secs(2)..Duration::from_secs(3);
        rig.world.set_disk_latency(rig.server, DISK, DiskLatency { read: slow, ..DiskLatency::default() });
        let _read = rig
            .client("reader")
            .spawn(move |_| async move { holder.read(LUN, Lba(7), BlockCount(1), BlockSize::B4096).await });
        rig.world.run_for(Duration::from_millis(100));
        let reopened = rig.world.spawn_on(rig.server, rt::CoreId(0), || async {
            node::Control::current().reopen_pool(POOL).await
        });
        rig.world.run_for(Duration::from_millis(100));
        let grown = rig.world.spawn_on(rig.server, rt::CoreId(0), || async {
            node::Control::current().grow_volume("thick", ByteLen(16 * MIB)).await
        });
        rig.world.run_for(Duration::from_millis(100));
        rig.world.set_disk_latency(rig.server, DISK, DiskLatency::default());
        let pool = rig.world.wait_for(reopened).unwrap().unwrap();
        assert!(pool.state.unwrap().failed.is_empty());
        let grown = rig.world.wait_for(grown).unwrap().unwrap();
        assert_eq!(grown.info.capacity, ByteLen(16 * MIB));
    });
}

/// The dry run of adding a disk waits for a disk that does not answer. If it held the pool meanwhile, the
/// pool's own disk could not be opened again.
#[test]
fn a_look_at_a_silent_disk_does_not_prevent_the_reopening_of_the_pool() {
    const NEW: &str = "/dev/new";
    let (rig, ..) = failed(1);
    rig.world.set_disk_faults(rig.server, DISK, DiskFaults::default());
    rig.world.add_disk(rig.server, NEW, 64 * MIB, 512);
    rig.world.set_disk_latency(rig.server, NEW, silence());
    let look = || async {
        let disk = NewDisk { path: NEW.into(), create: None, reserve: false };
        node::Control::current().check_added_disk(POOL, disk, false).await
    };
    let looking = rig.world.spawn_on(rig.server, rt::CoreId(0), look);
    rig.world.run_for(Duration::from_millis(100));
    assert!(reopen(&rig).unwrap().state.unwrap().failed.is_empty());
    let looked_at = rig.world.wait_for(looking).unwrap();
    assert!(matches!(looked_at, Err(ControlError::Unfinished(_))), "{looked_at:?}");
    rig.world.set_disk_latency(rig.server, NEW, DiskLatency::default());
    rig.world.run_for(Duration::from_secs(7200));
    let looked_at = rig.world.block_on(rig.server, rt::CoreId(0), look).unwrap();
    assert_eq!(looked_at.size, ByteLen(64 * MIB));
}

#[test]
fn a_pool_that_works_is_not_interrupted() {
    let (rig, ..) = failed(1);
    let works = rig.control(|control| async move { control.reopen_pool(OTHER).await });
    assert!(matches!(works, Err(ControlError::PoolWorks(_))), "{works:?}");
    let none = rig.control(|control| async move { control.reopen_pool("none").await });
    assert!(matches!(none, Err(ControlError::NotFound { .. })), "{none:?}");
}
