//! Runs on simulated disks: time is virtual, and everything follows from the seed.

use std::sync::Arc;
use std::time::Duration;

use rt::CoreId;
use rt::sim::{DiskFaults, DiskLatency, NodeId, World};

use super::{Found, Gauge, LanePlan, Outcome, Place, Plan, Preparation, RunError, conduct, prepare};
use crate::device::Failure;
use crate::{Access, Content, Workload};

const DISK: &str = "/dev/disk";
const MIB: u64 = 1 << 20;

/// A machine with two cores and a disk of 8 MiB that takes 100 µs for every request.
struct Rig {
    world: World,
    machine: NodeId,
}

impl Rig {
    fn new() -> Rig {
        let world = World::new(7);
        let machine = world.add_node("client", 2, |_| std::future::pending());
        world.add_disk(machine, DISK, 8 * MIB, 512);
        let rig = Rig { world, machine };
        rig.set_latency(Duration::from_micros(100));
        rig
    }

    fn set_latency(&self, latency: Duration) {
        let exactly = latency..latency + Duration::from_nanos(1);
        let latency = DiskLatency {
            read: exactly.clone(),
            write: exactly.clone(),
            flush: exactly.clone(),
            spike_one_in: 0,
            spike: exactly,
            ..DiskLatency::default()
        };
        self.world.set_disk_latency(self.machine, DISK, latency);
    }

    fn prepare(&self, plan: Plan, preparation: Preparation) -> Result<Vec<Found>, RunError> {
        let preparation = Preparation { writes: plan.workload.writes(), ..preparation };
        let (gauge, _phases) = Gauge::new(plan.lanes.len());
        self.world.block_on(
            self.machine,
            CoreId(0),
            || async move { prepare(&plan, &preparation, &gauge).await },
        )
    }

    fn run(&self, plan: Plan) -> Outcome {
        self.run_with(plan, |_| {})
    }

    /// Runs a plan; `meanwhile` lets time pass and changes the world.
    fn run_with(&self, plan: Plan, meanwhile: impl FnOnce(&Rig)) -> Outcome {
        let (gauge, _phases) = Gauge::new(plan.lanes.len());
        let result = self
            .world
            .spawn_on(self.machine, CoreId(0), || async move { conduct(plan, Arc::new(gauge)).await });
        meanwhile(self);
        self.world.wait_for(result).unwrap().unwrap()
    }
}

fn workload() -> Workload {
    Workload {
        block: 4096,
        depth: 4,
        access: Access::Random { align: 4096 },
        warm_up: Duration::from_millis(500),
        duration: Duration::from_secs(2),
        ..Workload::default()
    }
}

fn plan(workload: Workload) -> Plan {
    let lanes =
        (0..workload.threads).map(|thread| LanePlan { place: 0, core: CoreId((thread % 2) as u16), thread });
    Plan {
        places: vec![Place::Disk(DISK.into())],
        lanes: lanes.collect(),
        workload,
        sessions: 1,
        timeout: Duration::from_secs(30),
        pattern: 99,
        filled: false,
    }
}

#[test]
fn a_closed_loop_is_as_fast_as_its_target() {
    let outcome = Rig::new().run(plan(Workload { threads: 2, write_percent: 30, ..workload() }));
    // Eight requests at a time, of 100 µs each: 80,000 per second.
    let [reads, writes] = &outcome.recorder.directions;
    let requests = reads.requests + writes.requests;
    assert!((155_000..=160_000).contains(&requests), "{requests}");
    assert!((0.29..0.31).contains(&(writes.requests as f64 / requests as f64)));
    assert!((99.0..102.0).contains(&reads.latency.percentile_us(50.0)));
    assert_eq!(reads.latency.count() + writes.latency.count() - requests, 8, "what was under way at the end");
    assert_eq!(outcome.ended, outcome.window.until);
    assert!(outcome.losses.is_empty());
}

#[test]
fn a_seed_is_a_run() {
    let run = || Rig::new().run(plan(Workload { write_percent: 50, ..workload() }));
    let [one, two] = [run(), run()];
    assert_eq!(one.recorder.series, two.recorder.series);
}

/// One read of a second, 5,000 others of 100 µs: a closed loop and an open loop show different results.
#[test]
fn a_stall_shows_in_all_requests_that_it_delays() {
    let stall = |rig: &Rig| {
        rig.world.run_for(Duration::from_secs(2));
        rig.set_latency(Duration::from_secs(1));
        rig.world.run_for(Duration::from_millis(50));
        rig.set_latency(Duration::from_micros(100));
    };
    let closed =
        Workload { depth: 1, warm_up: Duration::ZERO, duration: Duration::from_secs(5), ..workload() };
    let open = Workload { rate: Some(1000.0), ..closed.clone() };
    let closed = Rig::new().run_with(plan(closed), stall).recorder;
    assert_eq!(closed.directions[0].latency.count_above(Duration::from_millis(100)), 1);
    let open = Rig::new().run_with(plan(open), stall).recorder;
    let latency = &open.directions[0].latency;
    assert_eq!(latency.count(), 5000);
    // Requests that were due in this second waited for half a second on average; then the queue had to be
    // worked off.
    let delayed = latency.count_above(Duration::from_millis(100));
    assert!((900..1200).contains(&delayed), "{delayed}");
    assert!(latency.percentile_us(90.0) > 300_000.0);
}

#[test]
fn a_rate_that_cannot_be_kept_is_reported() {
    // Two requests at a time, of 10 ms each: 200 per second. 1,000 per second are due for 100 s. The run
    // waits for a timeout of 30 s.
    let rig = Rig::new();
    rig.set_latency(Duration::from_millis(10));
    let workload = Workload { depth: 2, rate: Some(1000.0), ..workload() };
    let outcome = rig.run(plan(Workload { duration: Duration::from_secs(100), ..workload }));
    assert!((70_000..80_000).contains(&outcome.never_begun), "{}", outcome.never_begun);
    let reads = &outcome.recorder.directions[0];
    assert!((19_900..=20_100).contains(&reads.requests), "{}", reads.requests);
    assert!(reads.latency.percentile_us(50.0) > 30e6, "what never began has waited");
}

#[test]
fn a_target_that_falls_silent_ends_the_run() {
    let rig = Rig::new();
    let mut plan = plan(Workload { duration: Duration::from_secs(10), write_percent: 50, ..workload() });
    plan.timeout = Duration::from_secs(5);
    let outcome = rig.run_with(plan, |rig| {
        rig.world.run_for(Duration::from_secs(3));
        rig.set_latency(Duration::from_secs(3600));
    });
    assert!(matches!(outcome.losses[..], [super::Loss { failure: Failure::Silent(_), .. }]));
    assert_eq!(outcome.unanswered.iter().sum::<u64>(), 4);
    let lost_after = outcome.ended - outcome.window.start;
    assert!((7.9..8.3).contains(&lost_after.as_secs_f64()), "{lost_after:?}");
    let answered = outcome.losses[0].last_answer.unwrap() - outcome.window.start;
    assert!((2.9..3.1).contains(&answered.as_secs_f64()), "{answered:?}");
}

#[test]
fn an_error_ends_the_run_with_what_was_measured() {
    let rig = Rig::new();
    let outcome = rig.run_with(plan(Workload { threads: 2, ..workload() }), |rig| {
        rig.world.run_for(Duration::from_secs(1));
        let faults = DiskFaults { read_error_one_in: 100, ..DiskFaults::default() };
        rig.world.set_disk_faults(rig.machine, DISK, faults);
    });
    assert!(matches!(outcome.losses[0].failure, Failure::Disk(rt::DiskError::Media(_))));
    assert_eq!(outcome.unanswered, [0; 2], "an error is an answer");
    assert!(outcome.ended < outcome.window.until);
    assert!(outcome.recorder.directions[0].requests > 10_000);
}

#[test]
fn verified_runs_check_what_they_wrote() {
    let workload = Workload { verify: true, threads: 2, write_percent: 50, ..workload() };
    for access in [Access::Random { align: 4096 }, Access::Sequential { stride: 4096, interlocked: false }] {
        let outcome = Rig::new().run(plan(Workload { access, ..workload.clone() }));
        assert!(outcome.losses.is_empty(), "{:?}", outcome.losses);
        assert!(outcome.checked > 50_000 && outcome.unchecked > 0);
    }
}

#[test]
fn filled_targets_are_checked_completely() {
    let workload = Workload { verify: true, threads: 2, write_percent: 20, ..workload() };
    let rig = Rig::new();
    let fill = Preparation { fill: Some(Content::Random), ..Preparation::default() };
    let found = rig.prepare(plan(workload.clone()), fill).unwrap();
    assert_eq!(found[0].empty, Some(false));
    let outcome = rig.run(Plan { filled: true, ..plan(workload) });
    assert!(outcome.losses.is_empty(), "{:?}", outcome.losses);
    assert_eq!(outcome.unchecked, 0);
}

#[test]
fn damage_is_found() {
    let workload = Workload { verify: true, write_percent: 10, ..workload() };
    let rig = Rig::new();
    let fill = Preparation { fill: Some(Content::Random), ..Preparation::default() };
    rig.prepare(plan(workload.clone()), fill).unwrap();
    let outcome = rig.run_with(Plan { filled: true, ..plan(workload) }, |rig| {
        rig.world.run_for(Duration::from_secs(1));
        rig.world.corrupt_disk(rig.machine, DISK, 4 * MIB..4 * MIB + 4096);
    });
    let Failure::WrongData(wrong) = &outcome.losses[0].failure else {
        panic!("{:?}", outcome.losses);
    };
    assert!((8192..8200).contains(&wrong.sector));
}

#[test]
fn data_is_not_destroyed_by_accident() {
    let rig = Rig::new();
    let reads = plan(workload());
    let writes = plan(Workload { write_percent: 1, ..workload() });
    let found = rig.prepare(writes.clone(), Preparation::default()).unwrap();
    assert_eq!((found[0].size, found[0].block, found[0].empty), (8 * MIB, 512, Some(true)));
    rig.run(plan(Workload { write_percent: 100, ..workload() }));
    for (plan, fill) in [(&writes, None), (&reads, Some(Content::Zero))] {
        let refused = rig.prepare(plan.clone(), Preparation { fill, ..Preparation::default() });
        assert!(matches!(refused, Err(RunError::HasData { place: 0, .. })));
    }
    assert_eq!(rig.prepare(reads, Preparation::default()).unwrap()[0].empty, Some(false));
    let overwrite = Preparation { overwrite: true, fill: Some(Content::Zero), ..Preparation::default() };
    assert!(rig.prepare(writes, overwrite).is_ok());
    assert_eq!(rig.world.disk_image(rig.machine, DISK).allocated_bytes(), 8 * MIB);
}

#[test]
fn a_pattern_must_fit() {
    let rig = Rig::new();
    let too_large = plan(Workload { span: Some(16 * MIB), ..workload() });
    let crowded = plan(Workload { verify: true, span: Some(MIB / 32), ..workload() });
    for plan in [too_large, crowded] {
        let (gauge, _phases) = Gauge::new(1);
        let result = rig
            .world
            .block_on(rig.machine, CoreId(0), || async move { conduct(plan, Arc::new(gauge)).await });
        assert!(matches!(result, Err(RunError::Misfit { .. })));
    }
}
