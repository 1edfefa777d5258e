//! A mail server on a simulated disk: time is virtual, and everything follows from the seed.

use std::sync::Arc;
use std::time::Duration;

use rt::CoreId;
use rt::sim::{DiskFaults, DiskLatency, NodeId, World};

use super::super::{LanePlan, Misfit, Place, Plan, RunError};
use super::{MailOutcome, MailProfile, conduct_mail};
use crate::Content;
use crate::device::Failure;
use crate::engine::Gauge;
use crate::mail::{KINDS, SEND};

const DISK: &str = "/dev/disk";
const MIB: u64 = 1 << 20;

/// A machine with a disk that takes 1 ms for every request.
struct Rig {
    world: World,
    machine: NodeId,
}

impl Rig {
    fn new(size: u64) -> Rig {
        let world = World::new(7);
        let machine = world.add_node("client", 1, |_| std::future::pending());
        world.add_disk(machine, DISK, size, 512);
        let rig = Rig { world, machine };
        rig.set_latency(Duration::from_millis(1));
        rig
    }

    fn set_latency(&self, latency: Duration) {
        let exactly = latency..latency + Duration::from_nanos(1);
        let latency = DiskLatency {
            read: exactly.clone(),
            write: exactly.clone(),
            flush: Duration::ZERO..Duration::from_nanos(1),
            spike_one_in: 0,
            spike: exactly,
            ..DiskLatency::default()
        };
        self.world.set_disk_latency(self.machine, DISK, latency);
    }

    /// Runs a server; `meanwhile` lets time pass and changes the world.
    fn run(&self, profile: MailProfile, meanwhile: impl FnOnce(&Rig)) -> Result<MailOutcome, RunError> {
        let (gauge, _phases) = Gauge::new(1);
        let plan = plan(&profile);
        let result = self.world.spawn_on(self.machine, CoreId(0), || async move {
            conduct_mail(plan, profile, Arc::new(gauge)).await
        });
        meanwhile(self);
        self.world.wait_for(result).unwrap()
    }
}

/// A hundred tasks per second.
fn profile() -> MailProfile {
    MailProfile {
        users: 1000,
        tasks: 288,
        day: Duration::from_secs(8 * 3600),
        compression: 10.0,
        duration: Duration::from_secs(20),
        span: None,
        content: Content::Random,
        verify: false,
        seed: 3,
    }
}

fn plan(profile: &MailProfile) -> Plan {
    Plan {
        workload: profile.workload(),
        places: vec![Place::Disk(DISK.into())],
        lanes: vec![LanePlan { place: 0, core: CoreId(0), thread: 0 }],
        sessions: 1,
        timeout: Duration::from_secs(30),
        pattern: 99,
        filled: false,
    }
}

/// The number of tasks of a kind that ended, and their lowest and highest latency in milliseconds.
fn of_kind(outcome: &MailOutcome, kind: usize) -> (u64, f64, f64) {
    let (mut ended, mut low, mut high) = (0, f64::MAX, 0f64);
    for window in &outcome.windows {
        let notes = &window.tasks[kind];
        ended += notes.ended;
        if notes.latency.count() > 0 {
            (low, high) = (low.min(notes.latency.min_us() / 1e3), high.max(notes.latency.max_us() / 1e3));
        }
    }
    (ended, low, high)
}

#[test]
fn tasks_take_as_long_as_their_pages_and_their_log() {
    let outcome = Rig::new(256 * MIB).run(profile(), |_| {}).unwrap();
    let counts: Vec<u64> = (0..KINDS.len()).map(|kind| of_kind(&outcome, kind).0).collect();
    let all: u64 = counts.iter().sum();
    assert!((1860..2140).contains(&all), "a hundred a second for twenty seconds: {all}");
    let sent = counts[SEND] as f64 / all as f64;
    assert!((sent / (13.0 / 131.0) - 1.0).abs() < 0.15, "{sent}");
    // Sending: eight pages, one after the other, and a write of the log that may have to wait for another.
    let (_, low, high) = of_kind(&outcome, SEND);
    assert!((8.9..9.5).contains(&low) && (9.0..13.0).contains(&high), "{low} {high}");
    let browsing = KINDS.iter().position(|kind| kind.name == "browse folders").unwrap();
    let (_, low, high) = of_kind(&outcome, browsing);
    assert!((11.9..12.1).contains(&low) && high < 12.1, "nothing is logged: {low} {high}");
    assert!(outcome.outcome.losses.is_empty() && outcome.outcome.never_begun == 0);
}

#[test]
fn databases_are_read_and_written_and_the_log_is_written() {
    let outcome = Rig::new(256 * MIB).run(profile(), |_| {}).unwrap();
    let mut requests = [[0; 2]; 3];
    let mut log_bytes = 0;
    for window in &outcome.windows {
        for (sums, directions) in requests.iter_mut().zip(&window.requests) {
            sums.iter_mut().zip(directions).for_each(|(sum, direction)| *sum += direction.requests);
        }
        log_bytes += window.requests[2][1].bytes;
    }
    let [[reads_1, writes_1], [reads_2, writes_2], [log_reads, log_writes]] = requests;
    assert!(log_reads == 0 && log_writes > 1500, "{log_writes}");
    let mix = (reads_1 + reads_2) as f64 / (reads_1 + reads_2 + writes_1 + writes_2) as f64;
    assert!((0.58..0.66).contains(&mix), "{mix}");
    assert!((0.8..1.25).contains(&(reads_1 as f64 / reads_2 as f64)));
    let a_task = log_bytes as f64 / 1024.0 / 2000.0;
    assert!((120.0..170.0).contains(&a_task), "{a_task} KiB of log a task");
}

#[test]
fn a_seed_is_a_run() {
    let run = || Rig::new(256 * MIB).run(profile(), |_| {}).unwrap();
    let [one, two] = [run(), run()];
    assert_eq!(one.outcome.recorder.series, two.outcome.recorder.series);
}

/// The disk is stalled for two seconds, in which two hundred tasks are due.
#[test]
fn a_stall_shows_in_all_tasks_that_it_delays() {
    let outcome = Rig::new(256 * MIB).run(profile(), |rig| {
        rig.world.run_for(Duration::from_secs(10));
        rig.set_latency(Duration::from_secs(2));
        rig.world.run_for(Duration::from_millis(20));
        rig.set_latency(Duration::from_millis(1));
    });
    let outcome = outcome.unwrap();
    let late: u64 = outcome
        .windows
        .iter()
        .flat_map(|window| &window.tasks)
        .map(|task| task.latency.count_above(Duration::from_millis(500)))
        .sum();
    assert!(late > 1, "those whose page was asked for then: {late}");
    assert_eq!(outcome.outcome.ended, outcome.outcome.window.until);
}

#[test]
fn a_server_that_does_not_keep_up_is_reported() {
    let rig = Rig::new(256 * MIB);
    // Two logs, each with 20 writes per second of at most 1 MiB: at best 200 messages of 192 KiB per second.
    rig.set_latency(Duration::from_millis(50));
    let outcome = rig.run(MailProfile { compression: 100.0, ..profile() }, |_| {}).unwrap();
    assert!(outcome.outcome.never_begun > 5_000, "{}", outcome.outcome.never_begun);
    // A message that was due at the end has waited as long as the run waits at most.
    let last = &outcome.windows[19].tasks[0].latency;
    assert!(last.min_us() > 25e6, "{}", last.min_us());
}

#[test]
fn a_volume_that_is_lost_ends_the_run() {
    let rig = Rig::new(256 * MIB);
    let outcome = rig.run(profile(), |rig| {
        rig.world.run_for(Duration::from_secs(5));
        rig.world.set_disk_faults(
            rig.machine,
            DISK,
            DiskFaults { write_error_one_in: 100, ..DiskFaults::default() },
        );
    });
    let outcome = outcome.unwrap().outcome;
    assert!(matches!(outcome.losses[0].failure, Failure::Disk(_)) && !outcome.losses[0].read);
    assert!(outcome.ended < outcome.window.until);

    let rig = Rig::new(256 * MIB);
    let outcome = rig.run(profile(), |rig| {
        rig.world.run_for(Duration::from_secs(5));
        rig.set_latency(Duration::from_secs(3600));
    });
    let outcome = outcome.unwrap().outcome;
    assert!(matches!(outcome.losses[0].failure, Failure::Silent(_)));
    assert!(outcome.unanswered[0] > 50, "all workers wait for a page: {:?}", outcome.unanswered);
}

#[test]
fn pages_are_checked() {
    let verify = MailProfile { verify: true, ..profile() };
    let rig = Rig::new(128 * MIB);
    let outcome = rig.run(verify.clone(), |_| {}).unwrap().outcome;
    assert!(outcome.losses.is_empty(), "{:?}", outcome.losses);
    assert!(outcome.checked > 5_000 && outcome.unchecked > 0);
    let outcome = rig.run(verify, |rig| {
        rig.world.run_for(Duration::from_secs(10));
        rig.world.corrupt_disk(rig.machine, DISK, 0..32 * MIB);
    });
    let outcome = outcome.unwrap().outcome;
    assert!(matches!(outcome.losses[0].failure, Failure::WrongData(_)));
}

#[test]
fn a_target_may_be_too_small() {
    let refused = Rig::new(64 * MIB).run(profile(), |_| {});
    assert!(matches!(
        refused,
        Err(RunError::Misfit { place: 0, misfit: Misfit::SmallPart { what: "a database", .. } })
    ));
}
