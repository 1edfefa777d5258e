//! Persistent reservations over cores, sessions and restarts.

use std::time::Duration;

use base::{BlockCount, BlockSize, Lba};
use initiator::command::ServiceAction::{PreemptAndAbort, Release, Reserve};
use initiator::{Error, Lun, Session};
use rt::sim::DiskLatency;

use crate::commands::{CONFLICT, Copy, extended_copy, naa, register, reserve};
use crate::content::{Stamp, stamped};
use crate::rig::{DISK, Rig, Shape, log_in};
use crate::seeds::each_seed;
use crate::workload::{read_all, volume_number};

const LUN: u16 = 0;

async fn write(session: &Session, lba: u64, sequence: u64) -> Result<(), Error> {
    let data = stamped(volume_number(LUN), lba * 8, 8, Stamp { client: 1, sequence });
    session.write(Lun(LUN), Lba(lba), data, BlockSize::B4096).await
}

fn is_conflict(result: &Result<(), Error>) -> bool {
    matches!(result, Err(Error::Status { status: CONFLICT, .. }))
}

/// Slow writes and fast reads, so that reads show late writes.
pub(crate) fn slow_writes() -> DiskLatency {
    let ms = Duration::from_millis;
    DiskLatency { write: ms(5)..ms(200), spike_one_in: 0, ..DiskLatency::default() }
}

#[test]
fn a_reservation_holds_back_the_sessions_of_other_cores() {
    each_seed(2, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        rig.client("client").run(|portal| async move {
            let holder = log_in(portal, "holder", LUN).await;
            let other = log_in(portal, "other", LUN).await;
            write(&other, 0, 1).await.unwrap();
            register(&holder, LUN, 7, false).await.unwrap();
            reserve(&holder, LUN, Reserve, 7, 0).await.unwrap();
            assert!(is_conflict(&write(&other, 0, 2).await));
            write(&holder, 0, 3).await.unwrap();
            other.read(Lun(LUN), Lba(0), BlockCount(1), BlockSize::B4096).await.unwrap();
            let release = reserve(&other, LUN, Release, 7, 0).await;
            assert!(is_conflict(&release), "{release:?}");
            reserve(&holder, LUN, Release, 7, 0).await.unwrap();
            write(&other, 0, 4).await.unwrap();
        });
        let (all, one) = rig.control(|control| async move {
            let all = control.stats().await.unwrap().sum();
            let id = *all.keys().next().unwrap();
            (all, control.volume_stats(id).await.unwrap())
        });
        assert_eq!(all.len(), 1);
        assert!(one.bytes.iter().any(|bytes| *bytes > 0), "{one:?}");
        assert!(
            all.values().all(|stats| stats.bytes == one.bytes),
            "asked for alone, it is the same: {one:?}"
        );
    });
}

#[test]
fn no_write_of_a_preempted_initiator_lands_after_the_answer() {
    each_seed(12, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        let client = rig.client("client");
        let (victim, preempter) = client.run(move |portal| async move {
            let victim = log_in(portal, "victim", LUN).await;
            let preempter = log_in(portal, "preempter", LUN).await;
            register(&victim, LUN, 1, false).await.unwrap();
            reserve(&victim, LUN, Reserve, 1, 0).await.unwrap();
            register(&preempter, LUN, 2, seed % 2 == 0).await.unwrap();
            (victim, preempter)
        });
        rig.world.set_disk_latency(rig.server, DISK, slow_writes());
        client.run(move |_| async move {
            let writers: Vec<_> = (0..16)
                .map(|writer| {
                    let victim = std::rc::Rc::clone(&victim);
                    rt::spawn(async move {
                        // As fast as possible, and also after it heard that it was preempted.
                        for sequence in 1.. {
                            let result = write(&victim, writer * 60, sequence).await;
                            if is_conflict(&result) {
                                return;
                            }
                        }
                    })
                })
                .collect();
            rt::sleep(Duration::from_millis(250)).await;
            let began = rt::now();
            reserve(&preempter, LUN, PreemptAndAbort, 2, 1).await.unwrap();
            let took = rt::now().since(began);
            assert!(took < Duration::from_secs(2), "writes take 200 ms at most, this took {took:?}");
            let at_the_answer = read_all(&preempter, Shape::thick()).await;
            rt::sleep(Duration::from_secs(1)).await;
            assert!(at_the_answer == read_all(&preempter, Shape::thick()).await, "a write landed late");
            let reservation = preempter.read_reservation(Lun(LUN)).await.unwrap();
            assert_eq!(reservation.map(|reservation| reservation.key), Some(2));
            rt::join_all(writers).await;
        });
    });
}

/// All at once, also a command that ends while another one is waited for.
#[test]
fn all_commands_of_preempted_initiators_are_aborted() {
    each_seed(8, |seed| {
        let rig = Rig::new(seed, 1);
        rig.add(Shape::thick());
        let client = rig.client("client");
        let (victims, preempter) = client.run(move |portal| async move {
            let victims = [log_in(portal, "one", LUN).await, log_in(portal, "two", LUN).await];
            for victim in &victims {
                register(victim, LUN, 1, false).await.unwrap();
            }
            let preempter = log_in(portal, "preempter", LUN).await;
            register(&preempter, LUN, 2, false).await.unwrap();
            (victims, preempter)
        });
        #[expect(clippy::async_yields_async, reason = "the write is awaited later")]
        let begin = |victim: usize, seconds: u64| {
            let time = Duration::from_secs(seconds);
            let write_time = time..time + Duration::from_millis(1);
            let slow = DiskLatency { write: write_time, spike_one_in: 0, ..DiskLatency::default() };
            rig.world.set_disk_latency(rig.server, DISK, slow);
            let session = std::rc::Rc::clone(&victims[victim]);
            client.run(move |_| async move {
                let begun = rt::spawn(async move { write(&session, victim as u64 * 60, 1).await });
                rt::sleep(Duration::from_millis(10)).await;
                begun
            })
        };
        let writes = [begin(0, 5), begin(1, 2)];
        client.run(move |_| async move {
            reserve(&preempter, LUN, PreemptAndAbort, 2, 1).await.unwrap();
            for write in writes {
                let told = write.await.unwrap_err();
                assert!(matches!(told, Error::Status { status: 0x40, .. }), "TASK ABORTED: {told}");
            }
        });
    });
}

/// If a command cannot be executed in time, its initiator gets a response before it gives up.
#[test]
fn a_preemption_that_waits_for_a_stuck_write_says_so() {
    each_seed(4, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        let client = rig.client("client");
        let (victim, preempter) = client.run(move |portal| async move {
            let victim = log_in(portal, "victim", LUN).await;
            let preempter = log_in(portal, "preempter", LUN).await;
            register(&victim, LUN, 1, false).await.unwrap();
            reserve(&victim, LUN, Reserve, 1, 0).await.unwrap();
            register(&preempter, LUN, 2, false).await.unwrap();
            (victim, preempter)
        });
        let write_time = Duration::from_secs(40)..Duration::from_secs(41);
        let stuck = DiskLatency { write: write_time, spike_one_in: 0, ..DiskLatency::default() };
        rig.world.set_disk_latency(rig.server, DISK, stuck);
        client.run(move |_| async move {
            let writer = std::rc::Rc::clone(&victim);
            let stuck = rt::spawn(async move { write(&writer, 0, 1).await });
            rt::sleep(Duration::from_millis(10)).await;
            for _ in 0..2 {
                // The second waits for its turn.
                let began = rt::now();
                let said = reserve(&preempter, LUN, PreemptAndAbort, 2, 1).await.unwrap_err();
                assert_eq!(said.sense(), Some((0x02, 0x0407)), "NOT READY, operation in progress: {said}");
                let took = rt::now().since(began);
                assert!(took < Duration::from_secs(20), "{took:?}");
            }
            // TASK ABORTED, unless our initiator timed out and aborted it itself.
            let aborted = stuck.await.unwrap_err();
            let told = matches!(aborted, Error::TimedOut | Error::Status { status: 0x40, .. });
            assert!(told, "{aborted}");
            rt::sleep(Duration::from_secs(20)).await;
            // It was done all the same.
            let reservation = preempter.read_reservation(Lun(LUN)).await.unwrap();
            assert_eq!(reservation.map(|reservation| reservation.key), Some(2));
            let at_the_end = read_all(&preempter, Shape::thick()).await;
            rt::sleep(Duration::from_secs(60)).await;
            assert!(at_the_end == read_all(&preempter, Shape::thick()).await, "a write landed late");
            reserve(&preempter, LUN, Release, 2, 0).await.unwrap();
        });
    });
}

#[test]
fn no_copy_of_a_preempted_initiator_lands_after_the_answer() {
    each_seed(6, |seed| {
        let source = Shape { name: "source", lun: 1, ..Shape::ram() };
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        rig.add(source);
        let client = rig.client("client");
        let (victim, preempter) = client.run(move |portal| async move {
            let victim = log_in(portal, "victim", LUN).await;
            victim.make_ready(Lun(1)).await.unwrap();
            let data = stamped(volume_number(1), 0, 4096, Stamp { client: 1, sequence: 1 });
            victim.write(Lun(1), Lba(0), data, BlockSize::B4096).await.unwrap();
            let preempter = log_in(portal, "preempter", LUN).await;
            register(&victim, LUN, 1, false).await.unwrap();
            reserve(&victim, LUN, Reserve, 1, 0).await.unwrap();
            register(&preempter, LUN, 2, false).await.unwrap();
            (victim, preempter)
        });
        rig.world.set_disk_latency(rig.server, DISK, slow_writes());
        client.run(move |_| async move {
            let (from, to) = (naa(&victim, 1).await, naa(&victim, LUN).await);
            let copies: Vec<_> = (0..4)
                .map(|number| {
                    let victim = std::rc::Rc::clone(&victim);
                    rt::spawn(async move {
                        let copy = Copy {
                            source: from,
                            source_lba: 0,
                            target: to,
                            target_lba: number * 512,
                            blocks: 512,
                        };
                        // Sent to the source: the target knows of the copy only by the copy's own writes.
                        let _ = extended_copy(&victim, 1, copy).await;
                    })
                })
                .collect();
            rt::sleep(Duration::from_millis(20)).await;
            reserve(&preempter, LUN, PreemptAndAbort, 2, 1).await.unwrap();
            let at_the_answer = read_all(&preempter, Shape::thick()).await;
            rt::join_all(copies).await;
            rt::sleep(Duration::from_secs(1)).await;
            assert!(at_the_answer == read_all(&preempter, Shape::thick()).await, "a copy landed late");
        });
    });
}

#[test]
fn reservations_survive_a_power_cut_if_requested() {
    each_seed(2, |seed| {
        for aptpl in [true, false] {
            let rig = Rig::new(seed, 2);
            rig.add(Shape::thick());
            rig.client("client").run(move |portal| async move {
                let holder = log_in(portal, "holder", LUN).await;
                register(&holder, LUN, 7, aptpl).await.unwrap();
                reserve(&holder, LUN, Reserve, 7, 0).await.unwrap();
            });
            rig.power_cycle();
            rig.client("after").run(move |portal| async move {
                let other = log_in(portal, "other", LUN).await;
                assert_eq!(is_conflict(&write(&other, 0, 1).await), aptpl);
                let (keys, holder) = if aptpl { (vec![7], Some(7)) } else { (vec![], None) };
                assert_eq!(other.read_keys(Lun(LUN)).await.unwrap(), keys);
                let reservation = other.read_reservation(Lun(LUN)).await.unwrap();
                assert_eq!(reservation.map(|reservation| reservation.key), holder);
            });
        }
    });
}
