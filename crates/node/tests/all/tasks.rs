//! Task management while commands are at a slow disk.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use base::{BlockSize, Lba};
use initiator::{Error, Lun, Options, Session, TaskFunction};
use node::Config;
use node::control::{MapSpec, TargetSpec};
use rt::sim::{DiskLatency, NetProfile};

use crate::content::{Stamp, stamped};
use crate::reservations::slow_writes;
use crate::rig::{DISK, MIB, Rig, Shape, TARGET, log_in, log_in_again, named};
use crate::seeds::each_seed;
use crate::workload::{read_all, volume_number};

const LUN: u16 = 0;

async fn write(session: &Session, lba: u64, sequence: u64) -> Result<(), Error> {
    let data = stamped(volume_number(LUN), lba * 8, 8, Stamp { client: 1, sequence });
    session.write(Lun(LUN), Lba(lba), data, BlockSize::B4096).await
}

/// Writes until a command fails, or until it is to stop.
async fn write_until(session: Rc<Session>, lba: u64, stop: Rc<Cell<bool>>) {
    for sequence in 1.. {
        if stop.get() || write(&session, lba, sequence).await.is_err() {
            return;
        }
    }
}

/// Sixteen writers of each session, and then `function` from the first one.
///
/// No write of the affected sessions takes effect after the response.
fn abort_under_load(seed: u64, function: TaskFunction, reaches_all: bool) {
    let rig = Rig::new(seed, 2);
    rig.add(Shape::thick());
    rig.world.set_disk_latency(rig.server, DISK, slow_writes());
    rig.client("client").run(move |portal| async move {
        let first = log_in(portal, "first", LUN).await;
        let second = log_in(portal, "second", LUN).await;
        let sessions = if reaches_all { vec![&first, &second] } else { vec![&first] };
        let stop = Rc::new(Cell::new(false));
        let writers: Vec<_> = (0..16)
            .map(|writer| {
                let session = Rc::clone(sessions[writer % sessions.len()]);
                rt::spawn(write_until(session, writer as u64 * 60, Rc::clone(&stop)))
            })
            .collect();
        rt::sleep(Duration::from_millis(300)).await;
        let began = rt::now();
        assert_eq!(first.manage(function, Lun(LUN)).await.unwrap(), 0);
        let took = rt::now().since(began);
        assert!(took < Duration::from_secs(2), "writes take 200 ms at most, this took {took:?}");
        // Commands sent after the abort, before their sender learned of it, are answered as usual.
        stop.set(true);
        rt::join_all(writers).await;
        second.make_ready(Lun(LUN)).await.unwrap();
        first.make_ready(Lun(LUN)).await.unwrap();
        let at_the_answer = read_all(&second, Shape::thick()).await;
        rt::sleep(Duration::from_secs(1)).await;
        assert!(at_the_answer == read_all(&second, Shape::thick()).await, "a write landed late");
        write(&first, 5, 1).await.unwrap();
    });
}

#[test]
fn no_write_lands_after_a_unit_reset_was_answered() {
    each_seed(6, |seed| abort_under_load(seed, TaskFunction::LogicalUnitReset, true));
}

#[test]
fn no_write_lands_after_a_target_reset_was_answered() {
    each_seed(2, |seed| abort_under_load(seed, TaskFunction::TargetWarmReset, true));
}

#[test]
fn no_write_lands_after_its_task_set_was_aborted() {
    each_seed(4, |seed| abort_under_load(seed, TaskFunction::AbortTaskSet, false));
}

#[test]
fn no_write_lands_after_all_task_sets_were_cleared() {
    each_seed(4, |seed| abort_under_load(seed, TaskFunction::ClearTaskSet, true));
}

/// RFC 7143 11.6.1: response 2, "LUN does not exist".
#[test]
fn functions_on_a_lun_that_does_not_exist_say_so() {
    each_seed(1, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        rig.client("client").run(|portal| async move {
            let session = log_in(portal, "client", LUN).await;
            for function in
                [TaskFunction::AbortTaskSet, TaskFunction::ClearTaskSet, TaskFunction::LogicalUnitReset]
            {
                assert_eq!(session.manage(function, Lun(7)).await.unwrap(), 2, "{function:?}");
                assert_eq!(session.manage(function, Lun(LUN)).await.unwrap(), 0, "{function:?}");
            }
        });
    });
}

/// RFC 7143 11.5.1: it ends all connections of all initiators, on any core, after the response.
#[test]
fn a_cold_reset_ends_all_sessions_of_its_target_and_no_others() {
    const SECOND: &str = "iqn.2026-01.org.ursa:second";
    each_seed(2, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        rig.control(|control| async move {
            let name = SECOND.to_owned();
            control.create_target(TargetSpec { name, alias: None, chap: None }).await.unwrap();
            let spec = MapSpec { target: SECOND.into(), host: "any".into(), lun: Some(LUN) };
            control.map(Shape::thick().name, spec).await.unwrap();
        });
        let client = rig.client("client");
        let (sessions, second) = client.run(|portal| async move {
            let mut sessions = Vec::new();
            for name in ["first", "second", "third", "fourth"] {
                sessions.push(log_in(portal, name, LUN).await);
            }
            (sessions, Session::connect(portal, SECOND, &named("elsewhere")).await.unwrap())
        });
        let cores = rig.control(|control| async move { control.sessions().await }).unwrap();
        let cores: BTreeSet<_> = cores.into_iter().map(|session| session.core).collect();
        assert_eq!(cores.len(), 2, "they are on both cores");
        client.run(move |portal| async move {
            let asker = Rc::clone(&sessions[0]);
            assert_eq!(asker.manage(TaskFunction::TargetColdReset, Lun(LUN)).await.unwrap(), 0);
            // It logs in again at once, and stays.
            let again = log_in_again(portal, "first", LUN).await;
            rt::sleep(Duration::from_secs(1)).await;
            assert!(sessions.iter().all(|session| session.ended().is_some()), "of the target");
            assert!(again.ended().is_none(), "it came after the reset");
            assert!(second.ended().is_none(), "of another target");
            write(&*log_in(portal, "second", LUN).await, 0, 1).await.unwrap();
        });
    });
}

/// The requesting session was cut off before its writes had ended. No session waits for the reset any more,
/// and the target continues.
#[test]
fn a_cold_reset_whose_session_has_ended_meanwhile_drops_nobody() {
    each_seed(2, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        let client = rig.client("client");
        let (asker, other) = client.run(|portal| async move {
            (log_in(portal, "asker", LUN).await, log_in(portal, "other", LUN).await)
        });
        rig.world.set_disk_latency(rig.server, DISK, writes_that_take(100));
        client.run(move |_| async move {
            let writer = Rc::clone(&asker);
            let write = rt::spawn(async move { write(&writer, 0, 1).await });
            rt::sleep(Duration::from_millis(10)).await;
            let answer = asker.manage(TaskFunction::TargetColdReset, Lun(LUN)).await;
            assert!(matches!(answer, Err(Error::Ended(_))), "{answer:?}");
            assert!(write.await.is_err());
        });
        // Until the write has ended, and the reset is over.
        rig.world.set_disk_latency(rig.server, DISK, DiskLatency::default());
        rig.world.run_for(Duration::from_secs(100));
        client.run(move |_| async move {
            assert!(other.ended().is_none(), "a session that nobody has reset is dropped");
            other.make_ready(Lun(LUN)).await.unwrap();
        });
    });
}

#[test]
fn a_unit_reset_does_not_wait_for_later_commands() {
    each_seed(2, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        rig.world.set_disk_latency(rig.server, DISK, slow_writes());
        let client = rig.client("client");
        let busy = client.run(|portal| log_in(portal, "busy", LUN));
        // These never stop writing, whatever response they get.
        for writer in 0..32 {
            let busy = Rc::clone(&busy);
            client.spawn(move |_| async move {
                for sequence in 1.. {
                    let result = write(&busy, writer * 60, sequence).await;
                    assert!(!matches!(result, Err(Error::Ended(_))), "{result:?}");
                }
            });
        }
        client.run(|portal| async move {
            rt::sleep(Duration::from_millis(300)).await;
            let other = log_in(portal, "other", LUN).await;
            let began = rt::now();
            assert_eq!(other.manage(TaskFunction::LogicalUnitReset, Lun(LUN)).await.unwrap(), 0);
            let took = rt::now().since(began);
            assert!(took < Duration::from_secs(1), "writes take 200 ms at most, this took {took:?}");
        });
    });
}

/// A disk whose writes take this many seconds.
fn writes_that_take(seconds: u64) -> DiskLatency {
    let write = Duration::from_secs(seconds)..Duration::from_secs(seconds + 1);
    DiskLatency { write, spike_one_in: 0, ..DiskLatency::default() }
}

/// RFC 7143 11.6.1: "function complete" says that the tasks have no further effect, and no other response
/// would be true of tasks that have ended.
#[test]
fn a_function_is_answered_when_its_tasks_are_over_however_long_that_takes() {
    for function in [TaskFunction::AbortTaskSet, TaskFunction::LogicalUnitReset] {
        each_seed(2, |seed| {
            let rig = Rig::new(seed, 2);
            rig.add(Shape::thick());
            let client = rig.client("client");
            let session = client.run(|portal| log_in(portal, "client", LUN));
            // Less than the 30 s after which the client aborts the command itself.
            rig.world.set_disk_latency(rig.server, DISK, writes_that_take(20));
            client.run(move |_| async move {
                let writer = Rc::clone(&session);
                let write = rt::spawn(async move { write(&writer, 0, 1).await });
                rt::sleep(Duration::from_millis(10)).await;
                let began = rt::now();
                assert_eq!(session.manage(function, Lun(LUN)).await.unwrap(), 0);
                let took = rt::now().since(began);
                assert!(took > Duration::from_secs(19), "the write is at the disk, this took {took:?}");
                assert!(matches!(write.await, Err(Error::Aborted)));
                session.make_ready(Lun(LUN)).await.unwrap();
                let at_the_answer = read_all(&session, Shape::thick()).await;
                rt::sleep(Duration::from_secs(40)).await;
                assert!(at_the_answer == read_all(&session, Shape::thick()).await, "a write landed late");
            });
        });
    }
}

/// An initiator must not wait forever: its session is cut off without a response, and it can log in again
/// when the write has ended.
#[test]
fn a_function_whose_tasks_do_not_end_ends_the_session() {
    each_seed(2, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        let client = rig.client("client");
        // The same ISID again: another one would be another initiator port, which would not have to wait.
        let options = || Options { isid: Some([0x80, 0, 0, 1, 0, 1]), ..named("client") };
        let session = client.run(move |portal| async move {
            let session = Session::connect(portal, TARGET, &options()).await.unwrap();
            session.make_ready(Lun(LUN)).await.unwrap();
            Rc::new(session)
        });
        rig.world.set_disk_latency(rig.server, DISK, writes_that_take(100));
        client.run(move |portal| async move {
            let began = rt::now();
            let writer = Rc::clone(&session);
            let write = rt::spawn(async move { write(&writer, 0, 1).await });
            rt::sleep(Duration::from_millis(10)).await;
            let answer = session.manage(TaskFunction::LogicalUnitReset, Lun(LUN)).await;
            assert!(matches!(answer, Err(Error::Ended(_))), "{answer:?}");
            let took = rt::now().since(began);
            assert!(took < Duration::from_secs(70), "{took:?}");
            assert!(write.await.is_err());
            let again = loop {
                match Session::connect(portal, TARGET, &options()).await {
                    Ok(session) => break session,
                    Err(_) => rt::sleep(Duration::from_secs(1)).await,
                }
            };
            again.make_ready(Lun(LUN)).await.unwrap();
            assert!(rt::now().since(began) >= Duration::from_secs(100), "the write is at the disk");
            let at_the_login = read_all(&again, Shape::thick()).await;
            rt::sleep(Duration::from_secs(40)).await;
            assert!(at_the_login == read_all(&again, Shape::thick()).await, "a write landed late");
        });
    });
}

/// A write that waits for its data is in the task set as well (SAM-5): a reset by another session aborts it.
#[test]
fn a_write_whose_data_is_on_its_way_is_aborted_by_the_reset_of_another_session() {
    each_seed(2, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        let client = rig.client("client");
        let (victim, other) = client.run(move |portal| async move {
            rt::join_all(["victim", "other"].map(|name| log_in(portal, name, LUN)))
                .await
                .try_into()
                .map(|[victim, other]: [_; 2]| (victim, other))
                .unwrap_or_else(|_| unreachable!())
        });
        rig.world.set_net_profile(NetProfile { bandwidth: MIB, ..NetProfile::default() });
        client.run(move |_| async move {
            let writer = Rc::clone(&victim);
            let write = rt::spawn(async move {
                let data = stamped(volume_number(LUN), 0, 1024 * 8, Stamp { client: 1, sequence: 1 });
                writer.write(Lun(LUN), Lba(0), data, BlockSize::B4096).await
            });
            rt::sleep(Duration::from_secs(1)).await;
            assert_eq!(other.manage(TaskFunction::LogicalUnitReset, Lun(LUN)).await.unwrap(), 0);
            let result = write.await;
            assert!(matches!(result, Err(Error::Status { status: 0x40, .. })), "TASK ABORTED: {result:?}");
            other.make_ready(Lun(LUN)).await.unwrap();
            let found = other.read(Lun(LUN), Lba(0), base::BlockCount(64), BlockSize::B4096).await.unwrap();
            assert!(found.iter().all(|byte| *byte == 0), "it was written");
        });
    });
}

/// After TASK ABORTED a command has no further effect, too: the initiator may write again through another
/// path.
#[test]
fn no_write_lands_after_it_was_answered_as_aborted() {
    each_seed(2, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        let client = rig.client("client");
        let (victim, other) = client.run(move |portal| async move {
            (log_in(portal, "victim", LUN).await, log_in(portal, "other", LUN).await)
        });
        rig.world.set_disk_latency(rig.server, DISK, writes_that_take(3));
        client.run(move |_| async move {
            let writer = Rc::clone(&victim);
            let write = rt::spawn(async move { write(&writer, 0, 1).await });
            rt::sleep(Duration::from_millis(10)).await;
            let resetter = Rc::clone(&other);
            let reset =
                rt::spawn(async move { resetter.manage(TaskFunction::LogicalUnitReset, Lun(LUN)).await });
            let result = write.await;
            assert!(matches!(result, Err(Error::Status { status: 0x40, .. })), "TASK ABORTED: {result:?}");
            victim.make_ready(Lun(LUN)).await.unwrap();
            let at_the_answer = read_all(&victim, Shape::thick()).await;
            assert_eq!(reset.await.unwrap(), 0);
            rt::sleep(Duration::from_secs(10)).await;
            victim.make_ready(Lun(LUN)).await.unwrap();
            assert!(at_the_answer == read_all(&victim, Shape::thick()).await, "it landed late");
        });
    });
}

/// Writes that are aborted and sent again and again to a disk that hangs hold at most the session's share and
/// the unsolicited data of one window (ARCHITECTURE.md, *Memory*).
#[test]
fn writes_that_are_aborted_and_run_on_hold_bounded_memory() {
    const SHARE: u64 = 8 * MIB;
    const WINDOW: u64 = 128;
    /// FirstBurstLength: all data of a write is unsolicited.
    const WRITE: u64 = 128 << 10;
    each_seed(2, |seed| {
        // One session of one core: its share is the smallest possible.
        let config = Config { data_bytes_max: 16 << 20, ..Config::default() };
        let rig = Rig::with_config(seed, 2, config);
        rig.add(Shape { mib: 40, ..Shape::thick() });
        let client = rig.client("client");
        let session = client.run(|portal| log_in(portal, "client", LUN));
        rig.world.set_disk_latency(rig.server, DISK, writes_that_take(20));
        let taken = || {
            let sessions = rig.control(|control| async move { control.sessions().await }).unwrap();
            sessions.iter().map(|session| session.traffic.commands).sum::<u64>()
        };
        let before = taken();
        client.run(move |_| async move {
            for round in 0..2 {
                for write in 0..WINDOW {
                    let session = Rc::clone(&session);
                    let lba = (round * WINDOW + write) * (WRITE / 4096);
                    rt::spawn(async move {
                        let stamp = Stamp { client: 1, sequence: 1 };
                        let data = stamped(volume_number(LUN), lba * 8, WRITE as usize / 512, stamp);
                        session.write(Lun(LUN), Lba(lba), data, BlockSize::B4096).await
                    })
                    .detach();
                }
                rt::sleep(Duration::from_secs(2)).await;
                let aborter = Rc::clone(&session);
                rt::spawn(async move { aborter.manage(TaskFunction::AbortTaskSet, Lun(LUN)).await }).detach();
                rt::sleep(Duration::from_secs(1)).await;
                // The response says how far the window extends.
                session.ping().await.unwrap();
            }
            rt::sleep(Duration::from_secs(2)).await;
        });
        // No write has ended: the node holds the data of each that it accepted.
        let held = (taken() - before) * WRITE;
        assert!(held >= WINDOW * WRITE, "{held} bytes");
        assert!(held <= SHARE + WINDOW * WRITE, "{held} bytes");
    });
}
