//! Copies are compared while hosts use them, and differences are found.

use node::control::{EndedWork, FaultKind, JobOutcome, Uncompared, Verification, VerificationState};

use super::*;

use rt::sim::{DiskFaults, DiskLatency};

impl Cluster {
    pub fn verify(&self, by: usize) -> Verification {
        self.control(by, |control| async move {
            let name = Shape::thick().name;
            let mut found = control.begin_verification(name).unwrap();
            while found.state == VerificationState::Running {
                rt::sleep(Duration::from_millis(10)).await;
                found = control.verification(name).unwrap().unwrap();
            }
            found
        })
    }

    /// The results of the comparisons that a node remembers, newest first.
    fn ended_comparisons(&self, by: usize) -> Vec<JobOutcome> {
        self.control(by, |control| async move {
            let ended = control.ended_jobs().into_iter().map(|(_, job)| job);
            let compared = ended.filter(|job| matches!(job.work, EndedWork::Verification { .. }));
            compared.map(|job| job.outcome).collect()
        })
    }
}

#[test]
fn copies_that_hosts_write_to_are_equal_all_the_time() {
    each_seed(5, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 3);
        let longest = ["writer-a", "writer-b", "writer-c"].into_iter().enumerate();
        let longest: Vec<_> = longest.map(|(index, name)| cluster.keep_writing(name, index)).collect();
        cluster.world.run_for(Duration::from_secs(1));
        longest.iter().for_each(|longest| longest.set(Duration::ZERO));
        for by in 0..3 {
            let found = cluster.verify(by);
            assert!(found.is_equal(), "{found:?}");
            assert_eq!((found.done, found.total), (8 * MIB, 8 * MIB));
            assert_eq!(found.nodes, [1, 2, 3].into());
        }
        // Commands in progress at the end count, too.
        cluster.world.run_for(Duration::from_millis(800));
        for longest in longest {
            let took = longest.get();
            assert!(!took.is_zero() && took < Duration::from_millis(800), "a write took {took:?}");
        }
    });
}

const VALUE: u64 = 0x0123_4567_89ab_cdef;
const LBA: u64 = 1500;

impl Cluster {
    /// Writes [`VALUE`] to [`LBA`] as a host.
    fn write_value(&self, client: NodeId) {
        let portal = self.portal(0);
        self.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "writer").await.unwrap();
            write(&session, LBA, VALUE).await.unwrap();
        });
    }

    /// Changes the sector of a disk that has [`VALUE`].
    fn corrupt_value(&self, index: usize) {
        let image = self.world.disk_image(self.servers[index], DISK);
        let mut word = [0; 8];
        let at = (0..image.size()).step_by(512).find(|at| {
            image.read(*at, &mut word);
            u64::from_le_bytes(word) == VALUE
        });
        let at = at.expect("it is on the disk");
        self.world.corrupt_disk(self.servers[index], DISK, at..at + 512);
    }
}

#[test]
fn silent_corruption_of_a_sector_is_found_on_its_node() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 3);
        let client = cluster.client("writer");
        cluster.write_value(client);
        assert!(cluster.verify(0).is_equal());
        cluster.corrupt_value(1);
        let found = cluster.verify(2);
        assert!(!found.is_equal());
        let region = 64 << 10;
        assert_eq!((found.different, found.unchecked, found.differences.len()), (region, 0, 1));
        let difference = &found.differences[0];
        let offset = LBA * u64::from(SIZE.bytes()) / region * region;
        assert_eq!((difference.offset, difference.len), (offset, region));
        assert_eq!(difference.nodes, [2].into(), "the other two have the same");
        let told = cluster.control(2, |control| control.next_events());
        assert!(told.events.iter().any(|(_, event)| event.code.as_str() == "copies_mismatch"));
        // The finding ends when a new comparison finds them equal, not when it begins: a host has written
        // there meanwhile.
        let known = cluster.control(2, |control| async move {
            let name = Shape::thick().name;
            let begun = control.begin_verification(name).unwrap();
            (begun.state, begun.different, Vec::from_iter(control.known_to_differ().into_values()))
        });
        assert_eq!(known, (VerificationState::Running, 0, vec![region]));
        cluster.verify(2);
        cluster.write_value(client);
        assert!(cluster.verify(2).is_equal());
        let known = cluster.control(2, |control| async move { control.known_to_differ() });
        assert_eq!(Vec::from_iter(known.into_values()), [0]);
    });
}

/// A node that cannot know reports nothing as equal.
#[test]
fn a_node_that_is_not_in_sync_compares_nothing() {
    let config = Config { resync_bytes_per_second_max: 1 << 20, ..Config::default() };
    let cluster = Cluster::with_config(1, 2, 2, &config);
    cluster.add_volume(VolumeKind::Thick, 2);
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(2));
    super::syncs::write_regions(&cluster, 0, 0..100);
    cluster.start(1);
    cluster.world.run_for(Duration::from_secs(1));
    let found = cluster.verify(1);
    assert_eq!((found.state, found.unchecked, found.different), (VerificationState::Done, 8 * MIB, 0));
    assert!(!found.is_equal());
    let problem = found.problem.unwrap();
    assert!(matches!(problem, Uncompared::OutOfSyncHere), "{problem}");
    cluster.wait_until_in_sync(0, 2);
    assert!(cluster.verify(1).is_equal());
    assert_eq!(cluster.ended_comparisons(1), [JobOutcome::Done, JobOutcome::Failed]);
    assert!(cluster.ended_comparisons(0).is_empty(), "they are their node's own");
}

/// A comparison reports what it could not compare, and continues with the remaining copies.
#[test]
fn a_node_that_is_lost_meanwhile_is_not_called_equal() {
    let cluster = Cluster::new(1, 3, 2);
    cluster.add_volume(VolumeKind::Thick, 3);
    cluster.control(0, |control| async move {
        control.begin_verification(Shape::thick().name).unwrap();
    });
    cluster.world.run_for(Duration::from_millis(5));
    cluster.world.crash(cluster.servers[2]);
    let found = cluster.verify(0);
    assert_eq!(found.state, VerificationState::Done);
    assert_eq!((found.done, found.nodes), (8 * MIB, [1, 2].into()));
    assert_eq!((found.different, found.unchecked), (0, 0), "parts are tried again: {:?}", found.problem);
}

/// Ten minutes of the calendar per second, from the creation of volumes: an hourly comparison is due every
/// six seconds, and nodes check every twenty.
fn hurried_calendar() -> u64 {
    calendar(600)
}

const HOUR: Duration = Duration::from_secs(3600);

/// What the record has of the volume's comparisons.
fn remembered(cluster: &Cluster, by: usize) -> node::copies::VerificationEntry {
    cluster
        .control(by, |control| async move { control.reconciler().unwrap().volumes().remove(0).verification })
}

/// The nodes that report that copies differ.
fn who_says_that_copies_differ(cluster: &Cluster) -> Vec<usize> {
    let says = |by: &usize| {
        let faults = cluster.control(*by, |control| async move { control.faults() });
        faults.iter().any(|fault| matches!(fault.kind, FaultKind::CopiesMismatch { .. }))
    };
    (0..cluster.servers.len()).filter(says).collect()
}

fn set_verify_every(cluster: &Cluster, every: Option<Duration>) {
    cluster.control(0, move |control| async move { control.set_verify_every(every).await.unwrap() });
}

#[test]
fn copies_are_compared_by_schedule_and_what_differs_is_remembered_until_it_is_equal() {
    let config = Config { unix_now: hurried_calendar, ..Config::default() };
    let cluster = Cluster::with_config(1, 3, 2, &config);
    cluster.add_volume(VolumeKind::Thick, 3);
    let client = cluster.client("writer");
    cluster.write_value(client);
    assert_eq!(remembered(&cluster, 0).last, None);
    set_verify_every(&cluster, Some(HOUR));
    cluster.world.run_for(Duration::from_secs(60));
    let entry = remembered(&cluster, 1);
    let last = entry.last.expect("it was compared by somebody");
    assert_eq!((last.different, last.unchecked, last.stopped, entry.progress), (0, 0, false, None));
    assert!(who_says_that_copies_differ(&cluster).is_empty());

    set_verify_every(&cluster, None);
    cluster.world.run_for(Duration::from_secs(60));
    let before = remembered(&cluster, 0);
    cluster.corrupt_value(1);
    cluster.world.run_for(Duration::from_secs(60));
    assert_eq!(remembered(&cluster, 0), before, "never is never");

    set_verify_every(&cluster, Some(HOUR));
    cluster.world.run_for(Duration::from_secs(60));
    let last = remembered(&cluster, 0).last.unwrap();
    assert_eq!((last.different, before.last.unwrap().different), (64 << 10, 0));
    assert_eq!(who_says_that_copies_differ(&cluster), [0], "people are told once");
    // A node that forgets its result has that of the record.
    cluster.world.crash(cluster.servers[0]);
    cluster.world.run_for(Duration::from_secs(2));
    assert_eq!(cluster.control(1, |control| async move { control.faults().len() }), 1);
    cluster.start(0);
    cluster.wait_until_in_sync(1, 3);
    assert_eq!(who_says_that_copies_differ(&cluster), [0]);
    // The finding ends when a comparison finds them equal: a host has written there meanwhile.
    cluster.write_value(client);
    cluster.world.run_for(Duration::from_secs(60));
    assert!(who_says_that_copies_differ(&cluster).is_empty());
}

/// One copy is gone for a while: what was compared before counts.
#[test]
fn a_comparison_by_schedule_waits_for_all_copies_and_continues_where_it_was() {
    let config = Config { unix_now: hurried_calendar, ..Config::default() };
    let cluster = Cluster::with_config(2, 3, 2, &config);
    cluster.add_volume(VolumeKind::Thick, 3);
    set_verify_every(&cluster, Some(HOUR));
    let by = || {
        (0..3).find(|by| !cluster.control(*by, |control| async move { control.verifications() }).is_empty())
    };
    assert!(cluster.world.run_until(|| by().is_some(), Duration::from_secs(60)));
    let by = by().unwrap();
    cluster.world.run_for(Duration::from_millis(60));
    let other = (by + 1) % 3;
    cluster.world.crash(cluster.servers[other]);
    cluster.world.run_for(Duration::from_secs(60));
    let entry = remembered(&cluster, by);
    let progress = entry.progress.expect("it was interrupted");
    assert!(progress.done > 0 && progress.done < progress.size, "{progress:?}");
    assert_eq!(entry.last, None, "and nothing is said of its end");
    cluster.start(other);
    cluster.wait_until_in_sync(by, 3);
    cluster.world.run_for(Duration::from_secs(60));
    let entry = remembered(&cluster, by);
    let last = entry.last.expect("it was compared to its end");
    assert_eq!((last.different, last.unchecked, entry.progress), (0, 0, None));
}

/// A comparison delays hosts' writes while it reads. If a disk hangs meanwhile, its copy goes out of sync,
/// and no write waits longer than for that.
#[test]
fn a_disk_that_hangs_while_copies_are_compared_stalls_no_write_for_long() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 3);
        super::syncs::write_regions(&cluster, 0, 0..100);
        let longest = cluster.keep_writing("writer", 0);
        let hangs = Duration::from_secs(20)..Duration::from_secs(21);
        let latency = DiskLatency { read: hangs, ..DiskLatency::default() };
        cluster.world.set_disk_latency(cluster.servers[2], DISK, latency);
        cluster.control(0, |control| async move {
            control.begin_verification(Shape::thick().name).unwrap();
        });
        cluster.world.run_for(Duration::from_secs(8));
        assert_eq!(cluster.in_sync(0), 2, "the disk that hangs has left");
        assert!(longest.replace(Duration::ZERO) < Duration::from_secs(2), "a write took so long");
        cluster.world.run_for(Duration::from_secs(1));
        assert!(!longest.get().is_zero(), "the host has met no error and writes");
        let found = cluster.verify(0);
        assert_eq!(found.nodes, [1, 2].into(), "{found:?}");
    });
}

/// The comparison reports which node's disk could not read which block.
#[test]
fn a_comparison_says_which_block_of_which_disk_cannot_be_read() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Thick, 2);
    cluster.write_marked([11]);
    // On both: no other copy can repair it.
    let places = [0, 1].map(|index| cluster.place_of(index, super::bad_blocks::marked(11)));
    for index in [0, 1] {
        cluster.spoil(index, [11], DiskFaults::default());
    }
    let problem = cluster.verify(0).problem.unwrap().to_string();
    let said = |node: usize| {
        format!("node {node} cannot read LBA 11 of its copy (byte {} of its disk {DISK})", places[node - 1])
    };
    assert!([1, 2].into_iter().any(|node| problem == said(node)), "{problem}");
}
