//! Task management while commands are at a slow disk.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use base::{BlockSize, Lba};
use initiator::{Error, Lun, Session, TaskFunction};

use crate::content::{Stamp, stamped};
use crate::reservations::slow_writes;
use crate::rig::{DISK, Rig, Shape, log_in};
use crate::seeds::each_seed;
use crate::workload::{read_all, volume_number};

const LUN: u16 = 0;

async fn write(session: &Session, lba: u64, sequence: u64) -> Result<(), Error> {
    let data = stamped(volume_number(LUN), lba * 8, 8, Stamp { client: 1, sequence });
    session.write(Lun(LUN), Lba(lba), data, BlockSize::B4096).await
}

/// Writes until it is told that something has happened, or to stop.
async fn write_until(session: Rc<Session>, lba: u64, stop: Rc<Cell<bool>>) {
    for sequence in 1.. {
        if stop.get() || write(&session, lba, sequence).await.is_err() {
            return;
        }
    }
}

/// Sixteen writers of each session, and then `function` from the first one; nothing of the sessions that it reaches lands
/// after the answer.
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
        // What was sent after the abort, before its sender heard of it, is answered as ever.
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

#[test]
fn a_unit_reset_does_not_wait_for_those_who_come_after_it() {
    each_seed(2, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        rig.world.set_disk_latency(rig.server, DISK, slow_writes());
        let client = rig.client("client");
        let busy = client.run(|portal| log_in(portal, "busy", LUN));
        // These never leave the unit alone, whatever they are told.
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
