//! How copies come in sync: the displayed progress, the cost, and that a resync ends.

use node::copies::{Awaited, Cause, CopySync, KeptOut, NodeId, StandingEntry, Traffic};
use proto::scsi::AccessState;
use rt::sim::{DiskFaults, DiskLatency, NetProfile};

use super::*;

pub(super) const REGION: u64 = 64 << 10;

/// The progress of the copy on node `of` (from 1), as node `by` shows it; `None`: it is in sync.
pub(super) fn sync_of(cluster: &Cluster, by: usize, of: u16) -> Option<CopySync> {
    cluster.control(by, move |control| async move {
        let volumes = control.reconciler().unwrap().volumes();
        let copy = *volumes[0].entry.copies.iter().find(|copy| copy.node == of).unwrap();
        assert_eq!(copy.standing == StandingEntry::InSync, !volumes[0].syncs.contains_key(&copy.slot));
        volumes[0].syncs.get(&copy.slot).cloned()
    })
}

fn traffic(cluster: &Cluster, by: usize) -> BTreeMap<u16, Traffic> {
    cluster.control(by, |control| async move { control.replication().await.unwrap().traffic })
}

fn synced(cluster: &Cluster, by: usize) -> u64 {
    cluster.control(by, |control| async move { control.replication().await.unwrap().synced.values().sum() })
}

/// Writes one block to each of these regions through a node.
pub(super) fn write_regions(cluster: &Cluster, by: usize, regions: std::ops::Range<u64>) {
    let (client, portal) = (cluster.client("writer"), cluster.portal(by));
    cluster.world.block_on(client, CoreId(0), move || async move {
        let session = log_in(portal, "writer").await.unwrap();
        for region in regions {
            write(&session, region * REGION / u64::from(SIZE.bytes()), region + 1).await.unwrap();
        }
    });
}

#[test]
fn missing_data_is_shown_until_it_is_resynced() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 3);
        assert_eq!(sync_of(&cluster, 0, 3), None);
        cluster.world.crash(cluster.servers[2]);
        cluster.world.run_for(Duration::from_secs(2));
        write_regions(&cluster, 0, 0..30);
        cluster.world.run_for(Duration::from_secs(1));
        for by in 0..2 {
            let sync = sync_of(&cluster, by, 3).unwrap();
            assert_eq!((sync.left_bytes, sync.total_bytes, sync.copied_bytes), (30 * REGION, 30 * REGION, 0));
            assert_eq!(sync.cause, Cause::Silent);
            assert_eq!(sync.waits_for, Some(Awaited::Node(NodeId(3)).into()));
            assert_eq!(sync.seconds_left(), None);
        }
        cluster.start(2);
        // The progress counts all data since the node's own start; each node shows it, source or not.
        let mut shown = [0; 3];
        for _ in 0..20_000 {
            cluster.world.run_for(Duration::from_millis(5));
            let syncs: Vec<Option<CopySync>> = (0..3).map(|by| sync_of(&cluster, by, 3)).collect();
            for (by, sync) in syncs.iter().enumerate() {
                if let Some(sync) = sync.as_ref().filter(|sync| sync.copied_bytes > 0) {
                    assert_eq!(sync.cause, Cause::Silent);
                    assert!(sync.left_bytes + sync.copied_bytes >= sync.total_bytes, "{sync:?}");
                    shown[by] += 1;
                }
            }
            if syncs.iter().all(Option::is_none) {
                break;
            }
        }
        assert!((0..2).any(|by| shown[by] > 0), "no source has shown anything: {shown:?}");
        cluster.wait_until_in_sync(0, 3);
        let given = synced(&cluster, 0) + synced(&cluster, 1);
        assert!((30 * REGION..=64 * REGION).contains(&given), "{given}");
        let received: u64 = traffic(&cluster, 2).values().map(|traffic| traffic.sync_received).sum();
        assert!(received >= 30 * REGION, "{received}");
    });
}

/// Which node is reached first is random: here it is the third. The second, which would be asked first if
/// both were reached, has marked the same regions, and does not hear what was sent.
#[test]
fn regions_sent_by_one_node_are_not_sent_again_by_another() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 3);
        cluster.world.crash(cluster.servers[0]);
        cluster.world.run_for(Duration::from_secs(2));
        write_regions(&cluster, 1, 0..30);
        cluster.world.cut(cluster.servers[0], cluster.servers[1]);
        cluster.start(0);
        let is_given = || synced(&cluster, 2) >= 30 * REGION;
        assert!(cluster.world.run_until(is_given, Duration::from_secs(30)), "{}", synced(&cluster, 2));
        assert_eq!(cluster.in_sync(1), 2, "who does not reach all is not let in");
        cluster.world.heal(cluster.servers[0], cluster.servers[1]);
        cluster.wait_until_in_sync(1, 3);
        assert_eq!(synced(&cluster, 1), 0, "the second node has given what the third had given");
    });
}

/// During the resync of a copy, hosts are served best by the third one; with two copies there is none.
#[test]
fn the_source_of_a_resync_is_non_optimized_if_there_is_another() {
    let states = |cluster: &Cluster, by: usize| -> Vec<AccessState> {
        cluster.control(by, move |control| async move {
            let (_, paths) = control.reconciler().unwrap().some_paths(None).0.remove(0);
            let mut ways: BTreeMap<usize, AccessState> =
                paths.others.iter().map(|(node, way)| (usize::from(node.get()), way.state)).collect();
            ways.insert(by + 1, paths.own.state);
            ways.into_values().collect()
        })
    };
    use AccessState::{ActiveNonOptimized as Other, ActiveOptimized as Best, Unavailable};
    for (nodes, expected) in [(3, vec![Other, Best, Unavailable]), (2, vec![Best, Unavailable])] {
        let config = Config { resync_bytes_per_second_max: MIB_A_SECOND, ..Config::default() };
        let cluster = Cluster::with_config(1, nodes, 2, &config);
        cluster.add_volume(VolumeKind::Thick, nodes as u8);
        cluster.world.crash(cluster.servers[nodes - 1]);
        cluster.world.run_for(Duration::from_secs(2));
        write_regions(&cluster, 0, 0..64);
        cluster.start(nodes - 1);
        // A resync of four seconds, about which the others are informed each second.
        cluster.world.run_for(Duration::from_millis(2500));
        for by in 0..nodes - 1 {
            assert_eq!(states(&cluster, by), expected, "as node {} says", by + 1);
        }
        cluster.wait_until_in_sync(0, nodes);
        cluster.world.run_for(Duration::from_secs(4));
        (0..nodes).for_each(|by| assert_eq!(states(&cluster, by), vec![Best; nodes]));
    }
}

/// What the only host has sent to a node and received from it.
fn host_bytes(cluster: &Cluster, by: usize) -> (u64, u64) {
    let traffic = cluster.control(by, |control| async move {
        let sessions = control.sessions().await.unwrap();
        assert_eq!(sessions.len(), 1);
        sessions[0].traffic
    });
    (traffic.bytes_received, traffic.bytes_sent)
}

#[test]
fn hosts_send_once_whatever_the_number_of_copies_and_nodes_send_writes_once_to_each() {
    const WRITES: u64 = 50;
    let bytes = WRITES * u64::from(SIZE.bytes());
    let mut of_hosts = BTreeSet::new();
    for copies in 1..=4 {
        let cluster = Cluster::new(1, 4, 2);
        cluster.add_volume(VolumeKind::Thick, copies);
        let (client, portal) = (cluster.client("host"), cluster.portal(0));
        let session = cluster.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "host").await.unwrap();
            write(&session, 0, 1).await.unwrap();
            session
        });
        let (hosts_before, before) = (host_bytes(&cluster, 0), traffic(&cluster, 0));
        let session = cluster.world.block_on(client, CoreId(0), move || async move {
            for region in 0..WRITES {
                write(&session, region * REGION / u64::from(SIZE.bytes()), region + 1).await.unwrap();
            }
            session
        });
        let written = traffic(&cluster, 0);
        cluster.world.block_on(client, CoreId(0), move || async move {
            for region in 0..WRITES {
                assert_eq!(
                    read(&session, region * REGION / u64::from(SIZE.bytes())).await.unwrap(),
                    region + 1
                );
            }
            // The session is kept: it is inspected once more.
            rt::spawn(async move { drop((session, std::future::pending::<()>().await)) }).detach();
        });
        assert_eq!(traffic(&cluster, 0), written, "reads of {copies} copies");
        assert_eq!(written.len(), usize::from(copies) - 1);
        for (node, sent) in &written {
            let before = before.get(node).map_or(0, |before| before.writes_sent);
            let expected = Traffic { writes_sent: before + bytes, ..Traffic::default() };
            assert_eq!(*sent, expected, "to node {node} of {copies}");
            let received = traffic(&cluster, usize::from(*node) - 1)[&1].writes_received;
            assert_eq!(received, before + bytes, "by node {node} of {copies}");
        }
        let hosts = host_bytes(&cluster, 0);
        let (received, sent) = (hosts.0 - hosts_before.0, hosts.1 - hosts_before.1);
        assert!(received > bytes && sent > bytes, "{received}, {sent}");
        of_hosts.insert((received, sent));
    }
    assert_eq!(of_hosts.len(), 1, "{of_hosts:?}");
}

const MIB_A_SECOND: u64 = 1 << 20;

/// Two nodes with a resync limit of 1 MiB/s; node 1 is down and misses 64 regions: 4 MiB.
fn behind_by_four_mib(seed: u64, cores: usize) -> Cluster {
    let config = Config { resync_bytes_per_second_max: MIB_A_SECOND, ..Config::default() };
    let cluster = Cluster::with_config(seed, 2, cores, &config);
    cluster.add_volume(VolumeKind::Thick, 2);
    cluster.world.run_for(Duration::from_secs(1));
    cluster.world.crash(cluster.servers[0]);
    cluster.world.run_for(Duration::from_secs(2));
    write_regions(&cluster, 1, 0..64);
    cluster
}

#[test]
fn a_sync_keeps_to_the_budget_and_says_how_long_it_takes() {
    each_seed(2, |seed| {
        let cluster = behind_by_four_mib(seed, 2);
        cluster.start(0);
        let began = cluster.world.now();
        let begun = || sync_of(&cluster, 1, 1).is_some_and(|sync| sync.copied_bytes > 2 * MIB_A_SECOND);
        while !begun() {
            cluster.world.run_for(Duration::from_millis(50));
            assert!(cluster.world.now() - began < Duration::from_secs(20), "it does not get on");
        }
        for by in 0..2 {
            // The joiner shows what its source has reported, up to a second ago.
            let sync = sync_of(&cluster, by, 1).unwrap();
            assert_eq!(sync.total_bytes, 64 * REGION, "{sync:?}");
            // In the first of the seconds that are measured it made no progress.
            assert!((MIB_A_SECOND / 4..=MIB_A_SECOND * 3 / 2).contains(&sync.bytes_per_second), "{sync:?}");
            assert!((1..=12).contains(&sync.seconds_left().unwrap()), "{sync:?}");
            assert_eq!(sync.waits_for, None);
        }
        cluster.wait_until_in_sync(1, 2);
        let took = cluster.world.now() - began;
        assert!((3..=10).contains(&took.as_secs()), "{took:?}");
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
    });
}

/// The nodes' counters show how much a resync has to send: not what hosts write, but what that adds.
#[test]
fn host_writes_during_a_resync_are_counted() {
    each_seed(3, |seed| {
        let cluster = behind_by_four_mib(seed, 1);
        let dirtied = || -> u64 {
            cluster.control(1, |control| async move {
                control.replication().await.unwrap().dirtied.values().sum()
            })
        };
        let sent = || traffic(&cluster, 1).values().map(|traffic| traffic.sync_sent).sum::<u64>();
        cluster.world.run_for(Duration::from_millis(200));
        assert_eq!(dirtied(), 64 * REGION);
        write_regions(&cluster, 1, 0..64);
        cluster.world.run_for(Duration::from_millis(200));
        assert_eq!(dirtied(), 64 * REGION, "it misses them already");
        cluster.start(0);
        while sent() < 40 * REGION {
            cluster.world.run_for(Duration::from_millis(20));
        }
        // Some of these were sent, some are yet to be.
        for _ in 0..3 {
            write_regions(&cluster, 1, 0..64);
        }
        cluster.wait_until_in_sync(1, 2);
        cluster.world.run_for(Duration::from_millis(200));
        let (added, sent) = (dirtied() - 64 * REGION, sent());
        assert!((38 * REGION..=64 * REGION).contains(&added), "{} regions", added / REGION);
        let wanted = 64 * REGION + added;
        // What is on its way when the copy joins is sent again.
        let most = wanted + wanted / 20 + 16 * REGION;
        assert!(
            (wanted - 4 * REGION..=most).contains(&sent),
            "{} of {} regions",
            sent / REGION,
            wanted / REGION
        );
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
    });
}

/// Both sides are restarted in the middle. What is on the disk by then is not copied again, except what the
/// dirty maps on the disks did not reflect yet.
#[test]
fn a_resync_resumes_where_it_was_after_a_restart_of_either_side() {
    each_seed(2, |seed| {
        let cluster = behind_by_four_mib(seed, 1);
        cluster.start(0);
        let copied_more_than = |bytes: u64| {
            for _ in 0..400 {
                if sync_of(&cluster, 1, 1).is_some_and(|sync| sync.copied_bytes > bytes) {
                    return;
                }
                cluster.world.run_for(Duration::from_millis(50));
            }
            panic!("it does not get on: {:?}", sync_of(&cluster, 1, 1));
        };
        copied_more_than(MIB_A_SECOND);
        let first = synced(&cluster, 1);
        cluster.world.crash(cluster.servers[0]);
        cluster.world.run_for(Duration::from_secs(1));
        cluster.start(0);
        copied_more_than(2 * MIB_A_SECOND);
        let second = synced(&cluster, 1);
        assert!(second > first);
        cluster.world.crash(cluster.servers[1]);
        cluster.world.run_for(Duration::from_secs(1));
        cluster.start(1);
        cluster.wait_until_in_sync(1, 2);
        let all = second + synced(&cluster, 1);
        assert!((64 * REGION..=88 * REGION).contains(&all), "{} regions", all / REGION);
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
    });
}

/// What is empty at the source is not sent; neither is what a copy holds but may not hold according to its
/// dirty map.
#[test]
fn empty_and_equal_regions_are_not_copied() {
    let cluster = Cluster::new(1, 3, 2);
    cluster.add_volume(VolumeKind::Ram, 2);
    write_regions(&cluster, 0, 0..10);
    cluster.world.run_for(Duration::from_secs(1));
    // The RAM volume has lost its data: all of it must be copied.
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(2));
    cluster.start(1);
    cluster.wait_until_in_sync(0, 2);
    assert_eq!(cluster.checksum(0), cluster.checksum(1));
    assert!(synced(&cluster, 0) >= 128 * REGION, "all regions were looked at");
    let sent = traffic(&cluster, 0)[&2].sync_sent;
    assert!((10 * REGION..=20 * REGION).contains(&sent), "{sent}");
}

/// A disk that hangs on an otherwise healthy node: the others continue without the copy, and add it again,
/// but not at once.
pub(super) fn hanging_disk(seed: u64) {
    let cluster = Cluster::new(seed, 3, 2);
    cluster.add_volume(VolumeKind::Thick, 3);
    write_regions(&cluster, 0, 0..5);
    let hang = Duration::from_secs(20)..Duration::from_secs(21);
    let slow = DiskLatency { write: hang, ..DiskLatency::default() };
    cluster.world.set_disk_latency(cluster.servers[2], DISK, slow);
    let began = cluster.world.now();
    write_regions(&cluster, 0, 0..20);
    let stall = cluster.world.now() - began;
    assert!((1500..4500).contains(&stall.as_millis()), "{stall:?}");
    let sync = sync_of(&cluster, 0, 3).unwrap();
    assert_eq!(sync.cause, Cause::Overdue);
    cluster.world.set_disk_latency(cluster.servers[2], DISK, DiskLatency::default());
    cluster.world.run_for(Duration::from_secs(25));
    assert_eq!(cluster.in_sync(0), 2, "it is let in again too soon");
    cluster.wait_until_in_sync(0, 3);
    assert_eq!(cluster.checksum(0), cluster.checksum(2));
}

#[test]
fn a_disk_that_hangs_is_a_stall_of_two_seconds() {
    each_seed(2, hanging_disk);
}

/// The source lets a copy in. If another copy in sync did not reach it, writes through that one would wait
/// forever.
#[test]
fn a_copy_is_not_admitted_before_all_in_sync_reach_it() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 3);
        cluster.world.crash(cluster.servers[2]);
        cluster.world.run_for(Duration::from_secs(2));
        write_regions(&cluster, 0, 0..4);
        cluster.world.cut(cluster.servers[1], cluster.servers[2]);
        cluster.start(2);
        for turn in 0..40 {
            let began = cluster.world.now();
            write_regions(&cluster, turn % 2, 0..4);
            let took = cluster.world.now() - began;
            assert!(took < Duration::from_millis(350), "four writes took {took:?}");
            cluster.world.run_for(Duration::from_millis(200));
        }
        assert_eq!(cluster.in_sync(0), 2);
        // Dirty bits of the latest writes are cleared five seconds later, and that is progress.
        cluster.world.run_for(Duration::from_secs(10));
        let waits_for = sync_of(&cluster, 0, 3).unwrap().waits_for.unwrap();
        assert_eq!(waits_for.awaited, Awaited::KeptOut(KeptOut::Apart(NodeId(3), NodeId(2))));
        cluster.world.heal_all();
        cluster.wait_until_in_sync(0, 3);
    });
}

/// Promises that its node made before it died may hold for a second after its start. Until then it confirms
/// no write, and all writes would wait for it.
#[test]
fn a_copy_is_not_admitted_while_its_node_takes_no_part() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 3);
        let longest = cluster.keep_writing("writer", 0);
        cluster.world.crash(cluster.servers[2]);
        // A repeated packet, or a slow moment of a disk, takes longer than the limit of this test.
        cluster.world.set_net_profile(NetProfile { spike_one_in: 0, ..NetProfile::default() });
        for server in &cluster.servers {
            let latency = DiskLatency { spike_one_in: 0, ..DiskLatency::default() };
            cluster.world.set_disk_latency(*server, DISK, latency);
        }
        cluster.world.run_for(Duration::from_secs(2));
        cluster.start(2);
        // It has what it missed by now, except concurrent writes.
        cluster.world.run_for(Duration::from_millis(800));
        longest.set(Duration::ZERO);
        cluster.wait_until_in_sync(0, 3);
        let took = longest.get();
        assert!(!took.is_zero() && took < Duration::from_millis(100), "a write took {took:?}");
    });
}

/// A copy that is being opened on a hanging disk does not delay the other volumes of other nodes.
#[test]
fn a_disk_that_hangs_when_a_copy_is_opened_keeps_no_other_waiting() {
    const OTHER: &str = "other-pool";
    let cluster = Cluster::new(1, 3, 2);
    cluster.add_volume(VolumeKind::Thick, 3);
    let disk = "/dev/other";
    cluster.add_pool(0, OTHER, disk);
    let longest = cluster.keep_writing("writer", 0);
    let hang = Duration::from_secs(3)..Duration::from_millis(3001);
    let slow = DiskLatency { flush: hang.clone(), read: hang, ..DiskLatency::default() };
    cluster.world.set_disk_latency(cluster.servers[0], disk, slow);
    let made = cluster.world.spawn_on(cluster.servers[0], CoreId(0), || async {
        let shape = Shape { name: "other", ..Shape::thick() };
        let new = new_volume(OTHER, shape);
        let nodes = Some(Placement::Count(1));
        Control::current().create_volume(node::control::NewVolume { copies: nodes, ..new }).await
    });
    // When all nodes know it, its node opens it.
    let is_known = || {
        let volumes = |control: Rc<Control>| async move { control.reconciler().unwrap().volumes().len() };
        (0..600).any(|_| {
            cluster.world.run_for(Duration::from_millis(100));
            cluster.control(1, volumes) == 2
        })
    };
    assert!(is_known());
    longest.set(Duration::ZERO);
    cluster.world.crash(cluster.servers[2]);
    cluster.world.run_for(Duration::from_secs(5));
    let took = longest.get();
    assert!(
        !took.is_zero() && took < Duration::from_millis(1500),
        "a write took {took:?} when a node was lost"
    );
    assert_eq!(cluster.in_sync(0), 2);
    cluster.world.wait_for(made).expect("the node is there").unwrap();
}

/// The last copy in sync is not removed, however slow it is.
#[test]
fn the_last_copy_in_sync_may_take_its_time() {
    let cluster = Cluster::new(1, 2, 1);
    cluster.add_volume(VolumeKind::Thick, 2);
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(2));
    let slow =
        DiskLatency { write: Duration::from_secs(4)..Duration::from_secs(5), ..DiskLatency::default() };
    cluster.world.set_disk_latency(cluster.servers[0], DISK, slow);
    write_regions(&cluster, 0, 0..1);
    assert_eq!(cluster.in_sync(0), 1);
}

/// The only copy in sync cannot read some of what the other one misses, for a while.
fn unreadable(seed: u64) {
    let cluster = Cluster::new(seed, 2, 2);
    cluster.add_volume(VolumeKind::Thick, 2);
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(2));
    write_regions(&cluster, 0, 0..40);
    let faults = DiskFaults { read_error_one_in: 3, ..DiskFaults::default() };
    cluster.world.set_disk_faults(cluster.servers[0], DISK, faults);
    cluster.start(1);
    cluster.world.run_for(Duration::from_secs(10));
    // It has received all that could be read, and hosts are served meanwhile.
    write_regions(&cluster, 0, 40..60);
    cluster.world.set_disk_faults(cluster.servers[0], DISK, DiskFaults::default());
    cluster.wait_until_in_sync(0, 2);
    cluster.wait_until_all_serve();
    cluster.world.run_for(Duration::from_secs(1));
    assert_eq!(cluster.checksum(0), cluster.checksum(1));
}

#[test]
fn a_source_that_cannot_read_a_region_continues_to_serve() {
    each_seed(3, unreadable);
}

/// A resyncing copy cannot read what it holds: it receives that again.
#[test]
fn unreadable_blocks_of_a_resyncing_copy_are_rewritten() {
    each_seed(2, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        write_regions(&cluster, 0, 0..40);
        cluster.world.crash(cluster.servers[1]);
        cluster.world.run_for(Duration::from_secs(2));
        write_regions(&cluster, 0, 0..40);
        cluster.start(1);
        let faults = DiskFaults { read_error_one_in: 2, ..DiskFaults::default() };
        cluster.world.set_disk_faults(cluster.servers[1], DISK, faults);
        cluster.wait_until_in_sync(0, 2);
        cluster.world.set_disk_faults(cluster.servers[1], DISK, DiskFaults::default());
        cluster.wait_until_all_serve();
        cluster.world.run_for(Duration::from_secs(1));
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
    });
}
