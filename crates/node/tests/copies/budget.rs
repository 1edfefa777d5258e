//! Resyncs obey the limits of nodes and of the cluster, and their order.

use node::copies::{Awaited, CopySync, NodeId, Restraint, SYNCS_AT_ONCE_MAX, StandingEntry};

use super::*;

const REGION: u64 = 64 << 10;

/// Creates and maps a volume with copies on these nodes, at this LUN.
fn add(cluster: &Cluster, name: &'static str, lun: u16, mib: u64, nodes: &[u16]) {
    let placement = Placement::Nodes(nodes.to_vec());
    cluster.control(usize::from(nodes[0]) - 1, move |control| async move {
        let new = new_volume(POOL, Shape { name, mib, lun, ..Shape::thick() });
        control.create_volume(node::control::NewVolume { copies: Some(placement), ..new }).await.unwrap();
        map(&control, name, lun).await.unwrap();
    });
    cluster.world.run_for(Duration::from_millis(100));
}

/// Writes one block to each of this many regions of the volume at this LUN.
fn dirty(cluster: &Cluster, by: usize, lun: u16, regions: u64) {
    let (client, portal) = (cluster.client("writer"), cluster.portal(by));
    cluster.world.block_on(client, CoreId(0), move || async move {
        let session = Session::connect(portal, TARGET, &named("writer")).await.unwrap();
        session.make_ready(Lun(lun)).await.unwrap();
        for region in 0..regions {
            let at = Lba(region * REGION / u64::from(SIZE.bytes()));
            session.write(Lun(lun), at, block(region + 1), SIZE).await.unwrap();
        }
    });
}

/// The progress of the copies on node `of` (from 1) that are not in sync, by the volume's name.
fn syncs(cluster: &Cluster, by: usize, of: u16) -> BTreeMap<String, CopySync> {
    cluster.control(by, move |control| async move {
        let volumes = control.reconciler().unwrap().volumes().into_iter();
        let behind = volumes.filter_map(|volume| {
            let copy = volume.entry.copies.iter().find(|copy| copy.node == of)?;
            let behind = copy.standing != StandingEntry::InSync;
            behind.then(|| (volume.entry.name.clone(), volume.syncs[&copy.slot].clone()))
        });
        behind.collect()
    })
}

fn given(cluster: &Cluster, by: usize) -> u64 {
    cluster.control(by, |control| async move { control.replication().await.unwrap().synced.values().sum() })
}

fn budget(cluster: &Cluster, by: usize) -> Option<u64> {
    cluster.control(by, |control| async move { control.replication().await.unwrap().sync_budget })
}

/// Two nodes are sources for a third one, for a volume each.
#[test]
fn the_sum_of_all_nodes_stays_within_the_clusters_limit() {
    const LIMIT: u64 = MIB;
    each_seed(2, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        add(&cluster, "one", 0, 8, &[1, 3]);
        add(&cluster, "two", 1, 8, &[2, 3]);
        cluster.control(1, |control| async move { control.limit_syncs(Some(LIMIT)).await.unwrap() });
        cluster.world.crash(cluster.servers[2]);
        cluster.world.run_for(Duration::from_secs(2));
        let regions = 96;
        dirty(&cluster, 0, 0, regions);
        dirty(&cluster, 1, 1, regions);
        cluster.start(2);
        let began = cluster.world.now();
        // What both together have sent, every tenth of a second from when the first has sent something.
        let mut sums: Vec<u64> = Vec::new();
        let mut limited = [0; 3];
        let mut halved = 0;
        while !(0..2).all(|by| syncs(&cluster, by, 3).is_empty()) {
            cluster.world.run_for(Duration::from_millis(100));
            assert!(cluster.world.now() - began < Duration::from_secs(60), "they do not end");
            let sum = given(&cluster, 0) + given(&cluster, 1);
            if sum > 0 {
                sums.push(sum);
            }
            for (by, limited) in limited.iter_mut().enumerate() {
                let all = syncs(&cluster, by, 3);
                let both = all.len() == 2
                    && all.values().all(|sync| sync.limited_by == Some(Restraint::ClusterLimit));
                *limited += u32::from(both);
            }
            halved += u32::from((0..2).all(|by| budget(&cluster, by) == Some(LIMIT / 2)));
        }
        assert!(*sums.last().unwrap() >= 2 * regions * REGION, "{sums:?}");
        // Each core of each node may begin with a fiftieth of a second's worth, or four regions, and one
        // more.
        let burst = 2 * 2 * 5 * REGION;
        assert!(sums[0] <= LIMIT / 10 + burst, "{sums:?}");
        // From then on no unused budget is left over.
        for window in sums[10..].windows(21) {
            let more = window[20] - window[0];
            assert!(more <= 2 * LIMIT + 2 * 2 * REGION, "{more} bytes in two seconds: {sums:?}");
        }
        assert!(limited.iter().all(|times| *times > 10), "{limited:?}");
        assert!(halved > 10, "{halved}");
        // All are in sync: the next source is the only one. And without a limit all is as it was.
        assert_eq!(budget(&cluster, 0), Some(LIMIT));
        cluster.control(0, |control| async move { control.limit_syncs(None).await.unwrap() });
        cluster.world.run_for(Duration::from_millis(100));
        assert_eq!(budget(&cluster, 1), Some(node::config::RESYNC_BYTES_PER_SECOND_MAX));
    });
}

/// Some volumes are in sync early, instead of all of them late.
#[test]
fn a_node_resyncs_a_few_volumes_at_once_and_the_others_wait_for_their_turn() {
    each_seed(8, turns);
}

fn turns(seed: u64) {
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    // In less than two seconds all are in sync: none counts as stuck.
    let config = Config { resync_bytes_per_second_max: 4 * MIB, ..Config::default() };
    let cluster = Cluster::with_config(seed, 2, 2, &config);
    for (lun, name) in NAMES.into_iter().enumerate() {
        add(&cluster, name, lun as u16, 4, &[1, 2]);
    }
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(2));
    (0..6).for_each(|lun| dirty(&cluster, 0, lun, 24));
    cluster.start(1);
    let began = cluster.world.now();
    let (now, later) = NAMES.split_at(SYNCS_AT_ONCE_MAX);
    let copied = |all: &BTreeMap<String, CopySync>| all.values().map(|sync| sync.copied_bytes).sum::<u64>();
    let wait = |all: &BTreeMap<String, CopySync>| {
        later.iter().all(|name| all.get(*name).is_some_and(|sync| sync.limited_by == Some(Restraint::Turn)))
    };
    // Until all of them are there, it may be any volume's turn.
    let first = loop {
        let all = syncs(&cluster, 0, 2);
        if copied(&all) >= MIB && wait(&all) {
            break all;
        }
        cluster.world.run_for(Duration::from_millis(50));
        assert!(cluster.world.now() - began < Duration::from_secs(20), "they do not begin");
    };
    assert_eq!(first.len(), 6);
    let mut waited = 0;
    loop {
        cluster.world.run_for(Duration::from_millis(25));
        let all = syncs(&cluster, 0, 2);
        if now.iter().any(|name| all.get(*name).is_none_or(|sync| sync.left_bytes == 0)) {
            break;
        }
        for name in later {
            assert_eq!(all[*name].limited_by, Some(Restraint::Turn), "{name}: {:?}", all[*name]);
            assert_eq!(all[*name].copied_bytes, first[*name].copied_bytes, "{name}");
            waited += 1;
        }
        for name in now {
            assert_eq!(all[*name].limited_by, Some(Restraint::NodeLimit), "{name}: {:?}", all[*name]);
        }
        let still = later.iter().filter_map(|name| all[*name].waits_for.clone());
        for what in still {
            let turn = Awaited::Budget { source: NodeId(1), restraint: Some(Restraint::Turn) };
            assert_eq!(what.awaited, turn);
        }
    }
    assert!(waited >= 10, "{waited}");
    while !syncs(&cluster, 0, 2).is_empty() {
        cluster.world.run_for(Duration::from_millis(100));
        assert!(cluster.world.now() - began < Duration::from_secs(60), "they do not end");
    }
    // A copy that waits for its turn hears that it will have one, and does not ask again and again.
    let all = given(&cluster, 0);
    assert!((6 * 24 * REGION..=6 * 40 * REGION).contains(&all), "{} regions", all / REGION);
}
