//! EXTENDED COPY between volumes.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use base::{BlockCount, BlockSize, Lba};
use initiator::command::{CopySegment, ExtendedCopy};
use initiator::{Error, Lun, Session, TaskFunction};
use rt::sim::DiskFaults;

use crate::commands::{Copy, extended_copy, naa, set_write_protection, start_stop};
use crate::content::{Stamp, stamped};
use crate::reservations::slow_writes;
use crate::rig::{DISK, MIB, POOL, Rig, Shape, log_in, new_volume};
use crate::seeds::each_seed;
use crate::workload::{read_all, volume_number};

/// COPY ABORTED, COPY TARGET DEVICE NOT REACHABLE (SPC-4).
const NOT_REACHABLE: (u8, u16) = (0x0a, 0x0d02);
/// COPY ABORTED, THIRD PARTY DEVICE FAILURE (SPC-4).
const THIRD_PARTY: (u8, u16) = (0x0a, 0x0d01);

/// The response of a copy's source or target: its sense key, and additional sense code and qualifier.
///
/// SPC-4, EXTENDED COPY command errors detected during processing of segment descriptors.
#[derive(Debug, PartialEq, Eq)]
enum Answered {
    Source(u8, u16),
    Target(u8, u16),
}

fn answered(error: &Error) -> Answered {
    let Error::Status { sense, .. } = error else { panic!("{error}") };
    assert_eq!(error.sense(), Some(THIRD_PARTY), "{error}");
    let answer = |at: u8| {
        let answer = &sense[usize::from(at)..];
        assert_eq!(answer[0], 0x02, "CHECK CONDITION");
        (answer[3], u16::from_be_bytes([answer[13], answer[14]]))
    };
    match (sense[8], sense[9]) {
        (at, 0) => {
            let (key, code) = answer(at);
            Answered::Source(key, code)
        }
        (_, at) => {
            let (key, code) = answer(at);
            Answered::Target(key, code)
        }
    }
}

/// Two volumes, the first with data to copy, and a session that sees both.
async fn log_in_to_two(portal: SocketAddr) -> (Rc<Session>, Copy) {
    let session = log_in(portal, "client", 0).await;
    session.make_ready(Lun(1)).await.unwrap();
    let data = stamped(volume_number(0), 0, 1024 * 8, Stamp { client: 1, sequence: 1 });
    session.write(Lun(0), Lba(0), data, BlockSize::B4096).await.unwrap();
    let (source, target) = (naa(&session, 0).await, naa(&session, 1).await);
    let copy = Copy { source, source_lba: 0, target, target_lba: 0, blocks: 1024 };
    (session, copy)
}

async fn is_untouched(session: &Session, lun: u16) -> bool {
    let found = session.read(Lun(lun), Lba(0), BlockCount(1024), BlockSize::B4096).await.unwrap();
    found.iter().all(|byte| *byte == 0)
}

#[test]
fn no_copy_writes_to_a_unit_that_is_write_protected() {
    each_seed(1, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        rig.add(Shape { lun: 1, ..Shape::ram() });
        rig.client("client").run(|portal| async move {
            let (session, copy) = log_in_to_two(portal).await;
            set_write_protection(&session, 1, true).await.unwrap();
            let refused = extended_copy(&session, 0, copy).await.unwrap_err();
            assert_eq!(
                answered(&refused),
                Answered::Target(0x07, 0x2702),
                "DATA PROTECT, software write protected"
            );
            set_write_protection(&session, 1, false).await.unwrap();
            assert!(is_untouched(&session, 1).await);
            // The source may be write-protected.
            set_write_protection(&session, 0, true).await.unwrap();
            extended_copy(&session, 1, copy).await.unwrap();
        });
    });
}

#[test]
fn no_copy_uses_a_unit_that_is_stopped() {
    each_seed(1, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        rig.add(Shape { lun: 1, ..Shape::ram() });
        rig.client("client").run(|portal| async move {
            let (session, copy) = log_in_to_two(portal).await;
            // NOT READY, INITIALIZING COMMAND REQUIRED.
            for (stopped, asked, expected) in
                [(1, 0, Answered::Target(0x02, 0x0402)), (0, 1, Answered::Source(0x02, 0x0402))]
            {
                start_stop(&session, stopped, false).await.unwrap();
                let refused = extended_copy(&session, asked, copy).await.unwrap_err();
                assert_eq!(answered(&refused), expected);
                start_stop(&session, stopped, true).await.unwrap();
                assert!(is_untouched(&session, 1).await);
            }
            extended_copy(&session, 0, copy).await.unwrap();
        });
    });
}

/// The initiator receives a medium error of the copy's source.
#[test]
fn a_copy_reports_what_cannot_be_read() {
    each_seed(1, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        rig.add(Shape { lun: 1, ..Shape::ram() });
        let client = rig.client("client");
        let (session, copy) = client.run(log_in_to_two);
        let faults = DiskFaults::default().with_unreadable(0..64 * MIB);
        rig.world.set_disk_faults(rig.server, DISK, faults);
        client.run(move |_| async move {
            let refused = extended_copy(&session, 1, copy).await.unwrap_err();
            assert_eq!(
                answered(&refused),
                Answered::Source(0x03, 0x1100),
                "MEDIUM ERROR, unrecovered read error"
            );
        });
    });
}

#[test]
fn a_copy_moves_blocks_from_one_volume_to_another() {
    each_seed(3, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        rig.add(Shape { lun: 1, ..Shape::ram() });
        rig.client("client").run(|portal| async move {
            let session = log_in(portal, "client", 0).await;
            session.make_ready(Lun(1)).await.unwrap();
            let data = stamped(volume_number(0), 100 * 8, 700 * 8, Stamp { client: 1, sequence: 1 });
            session.write(Lun(0), Lba(100), data.clone(), BlockSize::B4096).await.unwrap();
            let copy = Copy {
                source: naa(&session, 0).await,
                source_lba: 100,
                target: naa(&session, 1).await,
                target_lba: 900,
                blocks: 700,
            };
            extended_copy(&session, 0, copy).await.unwrap();
            let found = session.read(Lun(1), Lba(899), BlockCount(702), BlockSize::B4096).await.unwrap();
            assert!(found[4096..found.len() - 4096] == data.to_vec()[..]);
            assert!(found[..4096].iter().chain(&found[found.len() - 4096..]).all(|byte| *byte == 0));
        });
    });
}

#[test]
fn extended_copy_does_not_bypass_lun_maps() {
    each_seed(1, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        let hidden = Shape { name: "hidden", ..Shape::ram() };
        let id = rig.control(move |control| async move {
            control.create_volume(new_volume(POOL, hidden)).await.unwrap()
        });
        rig.client("client").run(move |portal| async move {
            let session = log_in(portal, "client", 0).await;
            let seen = naa(&session, 0).await;
            // The last 100 bits of the name are those of the volume's identity.
            let mut hidden = seen;
            hidden[4..].copy_from_slice(&id.0[4..]);
            hidden[3] = seen[3] & 0xf0 | id.0[3] & 0x0f;
            for (source, target) in [(hidden, seen), (seen, hidden)] {
                let copy = Copy { source, source_lba: 0, target, target_lba: 0, blocks: 1 };
                let refused = extended_copy(&session, 0, copy).await.unwrap_err();
                assert_eq!(refused.sense(), Some(NOT_REACHABLE), "{refused}");
            }
        });
    });
}

/// A copy of 192 MiB to a disk that needs 20 s for it, aborted by its own session or by another session's
/// reset.
#[test]
fn a_copy_ends_when_it_is_aborted_and_nothing_of_it_lands_after_the_answer() {
    for (function, by_another) in
        [(TaskFunction::AbortTaskSet, false), (TaskFunction::LogicalUnitReset, true)]
    {
        each_seed(2, |seed| {
            let rig = Rig::new(seed, 2);
            rig.add(Shape { lun: 1, ..Shape::thick() });
            rig.add(Shape { lun: 0, ..Shape::ram() });
            let client = rig.client("client");
            let (session, other) = client.run(|portal| async move {
                let session = log_in(portal, "client", 0).await;
                session.make_ready(Lun(1)).await.unwrap();
                let other = log_in(portal, "other", 0).await;
                other.make_ready(Lun(1)).await.unwrap();
                (session, other)
            });
            rig.world.set_disk_latency(rig.server, DISK, slow_writes());
            client.run(move |_| async move {
                for round in 1..=6 {
                    let stamp = Stamp { client: 1, sequence: round };
                    let data = stamped(volume_number(0), 0, 2048 * 8, stamp);
                    session.write(Lun(0), Lba(0), data, BlockSize::B4096).await.unwrap();
                }
                let (source, destination) = (naa(&session, 0).await, naa(&session, 1).await);
                let copier = Rc::clone(&session);
                let copying = rt::spawn(async move {
                    let whole = CopySegment { source: Lba(0), destination: Lba(0), count: BlockCount(2048) };
                    let segments = [whole; 24];
                    let size = BlockSize::B4096;
                    let copy = ExtendedCopy { source, destination, size, segments: &segments };
                    copier.extended_copy(Lun(0), copy).await
                });
                rt::sleep(Duration::from_millis(500)).await;
                let began = rt::now();
                let who = if by_another { &other } else { &session };
                assert_eq!(who.manage(function, Lun(0)).await.unwrap(), 0);
                let took = rt::now().since(began);
                assert!(took < Duration::from_secs(1), "one step takes 200 ms at most, this took {took:?}");
                let at_the_answer = read_all(&other, Shape { lun: 1, ..Shape::thick() }).await;
                rt::sleep(Duration::from_secs(2)).await;
                let later = read_all(&other, Shape { lun: 1, ..Shape::thick() }).await;
                assert!(at_the_answer == later, "the copy goes on");
                let result = copying.await;
                assert!(
                    matches!(result, Err(Error::Aborted | Error::Status { status: 0x40, .. })),
                    "{result:?}"
                );
            });
        });
    }
}
