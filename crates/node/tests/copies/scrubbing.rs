//! Each node reads what its volumes have in use, and repairs what it cannot read from another copy.

use std::cell::Cell;

use node::control::{
    ControlError, EndedWork, FaultKind, JobOutcome, Scrub, ScrubState, ScrubStatus, ScrubWait,
};
use rt::sim::{DiskFaults, DiskLatency};

use super::*;

const FOUND: [&str; 3] = ["read_failed", "block_repaired", "scrub_found_bad_blocks"];

impl Cluster {
    pub(super) fn scrub(&self, by: usize) -> Scrub {
        self.control(by, |control| async move {
            let name = Shape::thick().name;
            let mut found = control.begin_scrub(name).unwrap();
            while found.state == ScrubState::Running {
                rt::sleep(Duration::from_millis(10)).await;
                found = control.last_scrub(name).unwrap().unwrap();
            }
            found
        })
    }

    fn scrubs(&self, by: usize) -> ScrubStatus {
        let status = |control: Rc<Control>| async move { control.volume(Shape::thick().name).unwrap().scrub };
        self.control(by, status).unwrap()
    }

    /// The scrubs of a node that have not ended.
    fn unfinished(&self, by: usize) -> Vec<Scrub> {
        let all = self.control(by, |control| async move { control.unfinished_scrubs() });
        all.into_iter().map(|(_, scrub)| scrub).collect()
    }

    /// How many events of each of [`FOUND`] a node has reported since the last call.
    fn found(&self, by: usize) -> [usize; 3] {
        let told = self.told_of(by, &FOUND);
        FOUND.map(|code| told.iter().filter(|event| event.code.as_str() == code).count())
    }

    /// For each volume in which a scrub has left bad blocks: how many, and the first LBA.
    pub(super) fn unrepaired(&self, by: usize) -> Vec<(u64, u64)> {
        let faults = self.control(by, |control| async move { control.faults() });
        let unrepaired = |kind: FaultKind| match kind {
            FaultKind::ScrubUnrepaired { blocks, lba, .. } => Some((blocks, lba)),
            _ => None,
        };
        faults.into_iter().filter_map(|fault| unrepaired(fault.kind)).collect()
    }
}

#[test]
fn a_scrub_finds_what_has_rotted_and_repairs_it_from_the_other_copy() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Log, 2);
        cluster.write_marked([3, 700]);
        let nothing = cluster.scrub(0);
        assert_eq!((nothing.state, nothing.found.bad), (ScrubState::Done, 0));
        assert_eq!((nothing.done, nothing.total), (8 * MIB, 8 * MIB));
        assert!((1..8 * MIB).contains(&nothing.read), "{} bytes were in use", nothing.read);
        assert_eq!(cluster.found(0), [0; 3]);

        cluster.rot(0, [3, 700]);
        let other = cluster.scrub(1);
        assert_eq!(other.found.bad, 0, "the other node's disk is well");
        let scrub = cluster.scrub(0);
        assert_eq!((scrub.found.bad, scrub.found.repaired, scrub.found.first), (2, 2, None), "{scrub:?}");
        assert_eq!(cluster.found(0), [2, 2, 1]);
        assert_eq!(cluster.in_sync(0), 2, "no copy leaves for that");
        assert_eq!(cluster.scrubs(0).last.unwrap().found, scrub.found);
        assert!(cluster.unrepaired(0).is_empty());
        let ended = cluster.control(0, |control| async move { control.ended_jobs().remove(0).1 });
        assert_eq!(ended.outcome, JobOutcome::Done);
        assert!(
            matches!(&ended.work, EndedWork::Scrub { found, .. } if found.found == scrub.found),
            "{ended:?}"
        );

        // It can be read without the other copy.
        cluster.world.crash(cluster.servers[1]);
        cluster.world.run_for(Duration::from_secs(3));
        cluster.assert_reads(0, [3, 700]);
    });
}

/// A part of a log's map cannot be read. Hosts write to a few of its blocks all the time, faster than the
/// other disk reads the whole part, so the whole part is never valid at once.
#[test]
fn a_part_of_a_map_is_repaired_though_hosts_write_to_it_all_the_time() {
    const READS: Duration = Duration::from_millis(15);
    let cluster = Cluster::with_map_on_disk(0..600);
    let slow = DiskLatency { read: READS..READS * 2, spike_one_in: 0, ..DiskLatency::default() };
    cluster.world.set_disk_latency(cluster.servers[1], DISK, slow);
    for (index, name) in [(0, "one"), (1, "two")] {
        let (client, portal) = (cluster.client(name), cluster.portal(index));
        drop(cluster.world.spawn_on(client, CoreId(0), move || async move {
            let session = log_in(portal, name).await.unwrap();
            let mut value = 0;
            // Until one of the nodes is lost.
            while write(&session, 5 + value % 3, value).await.is_ok() {
                value += 1;
            }
        }));
    }
    cluster.world.run_for(Duration::from_millis(200));
    cluster.spoil_maps(0);
    let began = cluster.world.now();
    assert!((0..3).any(|_| cluster.scrub(0).found.unrepaired() == 0), "blocks are still bad");
    let took = cluster.world.now() - began;
    assert!(took < Duration::from_secs(90), "{took:?}");
    assert_eq!(cluster.in_sync(0), 2, "no copy leaves for that");
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(3));
    cluster.assert_reads(0, 100..600);
}

#[test]
fn without_another_copy_bad_blocks_are_counted_and_reported_until_a_scrub_finds_none() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Log, 1);
    cluster.write_marked([3, 4, 700]);
    cluster.rot(0, [700]);
    let scrub = cluster.scrub(0);
    assert_eq!((scrub.found.bad, scrub.found.repaired, scrub.found.first), (1, 0, Some(700)), "{scrub:?}");
    assert_eq!(cluster.found(0), [1, 0, 1]);
    assert_eq!(cluster.unrepaired(0), [(1, 700)]);
    let unreadable = Err(Some((0x03, 0x1100)));
    assert_eq!(cluster.read_all(0, [3, 700]), [Ok(super::bad_blocks::marked(3)), unreadable]);
    // The finding is there after a restart, too.
    cluster.world.crash(cluster.servers[0]);
    cluster.start(0);
    cluster.wait_until_in_sync(0, 1);
    cluster.world.run_for(Duration::from_secs(5));
    assert_eq!(cluster.unrepaired(0), [(1, 700)]);
    cluster.write_marked([700]);
    assert_eq!(cluster.scrub(0).found.bad, 0);
    assert!(cluster.unrepaired(0).is_empty());
}

/// Thick volumes have no checksums, but disks have: a sector that went bad since it was written is found.
#[test]
fn a_sector_of_a_thick_volume_that_cannot_be_read_is_repaired() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Thick, 2);
    cluster.write_marked([3, 700]);
    cluster.spoil(0, [3, 700], DiskFaults::default().remapping());
    let scrub = cluster.scrub(0);
    assert_eq!((scrub.found.bad, scrub.found.repaired), (2, 2), "{scrub:?}");
    assert_eq!(cluster.found(0), [2, 2, 1]);
    let failed = cluster.failed_reads();
    cluster.assert_reads(0, [3, 700]);
    assert_eq!(cluster.failed_reads(), failed, "the blocks are good again");
}

/// Nobody asks again: the node's record says that there was a scrub.
#[test]
fn a_scrub_continues_after_a_restart() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Log, 2);
    // One block for each step.
    cluster.write_marked((0..32).map(|number| number * 64));
    // Neither the recovery of the log nor a resync has to do with the block after that.
    cluster.world.run_for(Duration::from_secs(8));
    cluster.rot(0, [31 * 64]);
    cluster.control(0, |control| async move { control.begin_scrub(Shape::thick().name).unwrap() });
    for _ in 0..1000 {
        cluster.world.run_for(Duration::from_micros(200));
        if cluster.scrubs(0).done > Some(0) {
            break;
        }
    }
    let status = cluster.scrubs(0);
    assert!(status.last.is_none() && status.done > Some(0), "{status:?}");
    cluster.world.crash(cluster.servers[0]);
    cluster.start(0);
    cluster.wait_until_in_sync(0, 2);
    cluster.world.run_for(Duration::from_secs(90));
    let last = cluster.scrubs(0).last.expect("it has ended");
    assert_eq!((last.found.bad, last.found.repaired, last.stopped), (1, 1, false));
    cluster.assert_reads(0, [31 * 64]);
}

/// It would continue twenty seconds after the start.
#[test]
fn a_scrub_that_a_restart_has_interrupted_is_a_job_and_can_be_cancelled_for_good() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Log, 2);
    cluster.write_marked((0..32).map(|number| number * 64));
    cluster.world.run_for(Duration::from_secs(8));
    cluster.control(0, |control| async move { control.begin_scrub(Shape::thick().name).unwrap() });
    for _ in 0..1000 {
        cluster.world.run_for(Duration::from_micros(200));
        if cluster.scrubs(0).done > Some(0) {
            break;
        }
    }
    assert!(cluster.scrubs(0).last.is_none() && cluster.unfinished(0)[0].state == ScrubState::Running);
    let restart = || {
        cluster.world.crash(cluster.servers[0]);
        cluster.start(0);
    };
    restart();
    cluster.wait_until("the scrub is a job", || cluster.unfinished(0).len() == 1);
    let scrub = cluster.unfinished(0).remove(0);
    assert_eq!((scrub.state, scrub.volume.as_str()), (ScrubState::Interrupted, Shape::thick().name));
    assert!(scrub.waits_for.is_some() && scrub.total == 8 * MIB, "{scrub:?}");
    cluster.control(0, |control| async move {
        let id = control.volume(Shape::thick().name).unwrap().info.id;
        control.stop_scrub(id).await;
    });
    let ended = cluster.control(0, |control| async move { control.ended_jobs().remove(0).1 });
    assert!(matches!(ended.work, EndedWork::Scrub { .. }), "{ended:?}");
    assert_eq!(ended.outcome, JobOutcome::Cancelled);
    let is_cancelled = || {
        let status = cluster.scrubs(0);
        cluster.unfinished(0).is_empty() && status.done.is_none() && status.last.unwrap().stopped
    };
    assert!(is_cancelled());
    // Neither the schedule nor another restart continues it.
    cluster.world.run_for(Duration::from_secs(90));
    assert!(is_cancelled());
    restart();
    cluster.wait_until_in_sync(0, 2);
    cluster.world.run_for(Duration::from_secs(90));
    assert!(is_cancelled());
}

thread_local! {
    /// By how many seconds the calendar of the nodes has leapt.
    static LEAP: Cell<u64> = const { Cell::new(0) };
}

/// Stands still but for its leap.
fn leaping_calendar() -> u64 {
    CREATED + LEAP.get()
}

#[test]
fn each_node_scrubs_its_copy_by_schedule() {
    let config = Config { unix_now: leaping_calendar, ..Config::default() };
    let cluster = Cluster::with_config(1, 2, 2, &config);
    cluster.add_volume(VolumeKind::Log, 2);
    cluster.control(0, |control| async move { control.set_verify_every(None).await.unwrap() });
    cluster.write_marked([3, 700]);
    cluster.rot(0, [3]);
    cluster.world.run_for(Duration::from_secs(20));
    assert_eq!((cluster.scrubs(0).last, cluster.scrubs(1).last), (None, None));
    LEAP.set(40 * 86_400);
    cluster.world.run_for(Duration::from_secs(100));
    for (by, bad) in [(0, 1), (1, 0)] {
        let status = cluster.scrubs(by);
        let last = status.last.expect("it was due");
        assert_eq!((last.found.bad, last.found.repaired), (bad, bad));
        assert_eq!((status.done, status.next, status.is_overdue), (None, last.at + 28 * 86_400, false));
    }
    assert_eq!(cluster.found(0), [1, 1, 1]);
}

/// A volume in a pool of its own.
const OTHER: &str = "other";

/// A disk that does not answer holds up the scrub of its own volume, and of no other one.
#[test]
fn a_scrub_that_hangs_does_not_keep_others_from_their_turn() {
    let silence = Duration::from_secs(300);
    let config = Config { unix_now: leaping_calendar, ..Config::default() };
    let cluster = Cluster::with_config(1, 2, 2, &config);
    cluster.add_pool(0, "second", "/dev/second");
    cluster.add_volume(VolumeKind::Thick, 1);
    cluster.control(0, |control| async move {
        let new = new_volume("second", Shape { name: OTHER, mib: 4, ..Shape::thick() });
        let copies = Some(Placement::Count(1));
        control.create_volume(node::control::NewVolume { copies, ..new }).await.unwrap();
    });
    cluster.world.run_for(Duration::from_secs(1));
    let last_of_other = || {
        let last = |control: Rc<Control>| async move { control.volume(OTHER).unwrap().scrub.unwrap().last };
        cluster.control(0, last).map(|last| last.at)
    };
    // So it is due 28 days from now, and the other one, which has never been scrubbed, before that.
    cluster.control(0, |control| async move { control.begin_scrub(OTHER).unwrap() });
    cluster.wait_until("it is scrubbed", || last_of_other() == Some(CREATED));
    let latency = DiskLatency { read: silence..silence + Duration::from_nanos(1), ..DiskLatency::default() };
    cluster.world.set_disk_latency(cluster.servers[0], DISK, latency);
    LEAP.set(40 * 86_400);
    cluster.world.run_for(Duration::from_secs(45));
    let names = || cluster.unfinished(0).into_iter().map(|scrub| scrub.volume).collect::<Vec<_>>();
    assert_eq!((names(), last_of_other()), (vec![Shape::thick().name.to_owned()], Some(CREATED)));
    cluster.world.run_for(Duration::from_secs(120));
    assert_eq!(names(), [Shape::thick().name]);
    assert_eq!(cluster.unfinished(0)[0].waits_for, Some(ScrubWait::Disks));
    assert_eq!(last_of_other(), Some(leaping_calendar()));
    // The one that hung continues when the disk answers, and when hosts have had nine times as long.
    cluster.world.set_disk_latency(cluster.servers[0], DISK, DiskLatency::default());
    cluster.world.run_for(11 * silence);
    assert!(cluster.unfinished(0).is_empty() && !cluster.scrubs(0).last.unwrap().stopped);
}

/// It is cancelled during a step, and ordered again before that ends.
///
/// Before, the order joined the cancelled scrub, which then stopped.
#[test]
fn a_cancelled_scrub_that_is_ordered_again_during_its_step_continues() {
    let takes = Duration::from_secs(5);
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Thick, 1);
    cluster.world.run_for(Duration::from_secs(1));
    let latency = DiskLatency { read: takes..takes + Duration::from_nanos(1), ..DiskLatency::default() };
    cluster.world.set_disk_latency(cluster.servers[0], DISK, latency);
    cluster.control(0, |control| async move { control.begin_scrub(Shape::thick().name).unwrap() });
    cluster.world.run_for(Duration::from_secs(1));
    cluster.control(0, |control| async move {
        let id = control.volume(Shape::thick().name).unwrap().info.id;
        control.stop_scrub(id).await;
    });
    assert!(cluster.scrubs(0).last.unwrap().stopped);
    cluster.world.set_disk_latency(cluster.servers[0], DISK, DiskLatency::default());
    assert_eq!(cluster.scrub(0).state, ScrubState::Done);
    assert!(!cluster.scrubs(0).last.unwrap().stopped);
}

#[test]
fn ram_volumes_are_not_scrubbed_and_a_pool_is_scrubbed_without_them() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Ram, 1);
    let refused = cluster.control(0, |control| async move {
        let begun = control.begin_scrub(Shape::thick().name);
        (begun.map(|_| ()), control.begin_pool_scrub(POOL).unwrap().len())
    });
    assert!(matches!(refused, (Err(ControlError::NotScrubbable { .. }), 0)), "{refused:?}");
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Thick, 1);
    let begun = |control: Rc<Control>| async move { control.begin_pool_scrub(POOL).unwrap().len() };
    assert_eq!(cluster.control(0, begun), 1);
    cluster.world.run_for(Duration::from_secs(30));
    assert!(cluster.scrubs(0).last.is_some());
    let of_pool = |control: Rc<Control>| async move { control.pool(POOL).unwrap().state.unwrap().scrubs };
    let scrubs = cluster.control(0, of_pool);
    assert_eq!((scrubs.oldest.is_some(), scrubs.unrepaired, scrubs.unfinished), (true, 0, 0));
}
