//! Snapshots that expire: each is deleted once, by whichever node is up, and none that is on hold.

use node::control::FaultKind;

use super::*;

const DAY: u64 = 86_400;

thread_local! {
    /// The calendar of all nodes, in seconds since the creation of the volumes: their clocks begin at
    /// different times.
    static CALENDAR: Cell<u64> = const { Cell::new(0) };
}

fn calendar() -> u64 {
    CREATED + CALENDAR.get()
}

/// More than a look at the ages of snapshots, and the deletion, take.
const SOON: Duration = Duration::from_secs(15);

impl Cluster {
    /// Nodes with a calendar that only tests advance, and a log volume with copies on all of them.
    fn with_calendar(seed: u64, nodes: usize) -> Cluster {
        CALENDAR.set(0);
        let config = Config { unix_now: calendar, ..Config::default() };
        let cluster = Cluster::with_config(seed, nodes, 2, &config);
        cluster.add_volume(VolumeKind::Log, nodes as u8);
        cluster
    }

    /// Takes a snapshot that expires after a number of seconds.
    fn take_until(&self, name: &'static str, seconds: u64) {
        let volumes = vec![NAME.to_owned()];
        let spec = SnapshotSpec {
            name: name.into(),
            volumes,
            expires_after: Some(seconds),
            ..SnapshotSpec::default()
        };
        self.control(0, move |control| async move { control.create_snapshot(spec).await.unwrap() });
        // All nodes know it.
        self.world.run_for(Duration::from_millis(500));
    }

    fn update(&self, index: usize, name: &'static str, update: SnapshotUpdate) -> SnapshotEntry {
        self.control(index, move |control| async move {
            control.update_snapshot(name, update).await.unwrap().entry
        })
    }

    fn known_names(&self, index: usize) -> Vec<String> {
        self.snapshots(index).into_iter().map(|(name, _)| name).collect()
    }

    /// The snapshots that nodes have reported as expired since the last call.
    fn reported(&self) -> Vec<String> {
        let of = |index| self.control(index, |control| control.next_events()).events;
        let events = (0..self.servers.len()).flat_map(of).map(|(_, event)| event);
        let expired = events.filter(|event| event.code.as_str() == "snapshot_expired");
        expired.map(|event| event.subject).collect()
    }

    /// What nodes report about old snapshots: how many there are, and the oldest one.
    fn old(&self) -> Vec<(usize, String)> {
        let of = |index| self.control(index, |control| async move { control.faults() });
        let faults = (0..self.servers.len()).flat_map(of);
        let old = faults.filter_map(|fault| match fault.kind {
            FaultKind::SnapshotsOld { count, oldest, .. } => Some((count, oldest)),
            _ => None,
        });
        old.collect()
    }
}

#[test]
fn snapshots_that_expire_are_deleted_once_whichever_nodes_are_up() {
    each_seed(6, |seed| {
        let cluster = Cluster::with_calendar(seed, 3);
        cluster.take_until("first", DAY);
        cluster.take_until("second", DAY);
        cluster.take_until("later", 3 * DAY);
        cluster.take(0, &[NAME], "stays").unwrap();
        CALENDAR.set(DAY - 60);
        cluster.world.run_for(SOON);
        assert_eq!(cluster.known_names(0).len(), 4, "a minute too early");
        // The node that would otherwise do it may be down.
        let lost = Rng::new(seed).below(3) as usize;
        cluster.world.crash(cluster.servers[lost]);
        cluster.world.run_for(Duration::from_secs(5));
        CALENDAR.set(DAY);
        cluster.world.run_for(SOON);
        cluster.start(lost);
        cluster.wait_until_all_serve();
        cluster.wait_until_in_sync(0, 3);
        cluster.world.run_for(SOON);
        for index in 0..3 {
            assert_eq!(cluster.known_names(index), ["later", "stays"], "node {index}");
            assert_eq!(cluster.snapshots_in_pool(index), 2, "node {index}");
        }
        let mut reported = cluster.reported();
        reported.sort();
        assert_eq!(reported, ["first", "second"]);
    });
}

#[test]
fn a_snapshot_on_hold_stays_until_it_is_released() {
    let cluster = Cluster::with_calendar(1, 2);
    cluster.take_until("first", DAY);
    cluster.update(1, "first", hold(true));
    CALENDAR.set(2 * DAY);
    cluster.world.run_for(SOON);
    assert_eq!(cluster.known_names(0), ["first"]);
    assert!(cluster.reported().is_empty());
    cluster.update(0, "first", hold(false));
    cluster.world.run_for(SOON);
    assert!(cluster.known_names(0).is_empty());
    assert_eq!(cluster.reported().len(), 1);
}

#[test]
fn an_expiry_is_changed_and_removed() {
    let cluster = Cluster::with_calendar(1, 2);
    for name in ["longer", "never", "sooner"] {
        cluster.take_until(name, 2 * DAY);
    }
    let after = |seconds| SnapshotUpdate { expires_after: Some(seconds), ..SnapshotUpdate::default() };
    CALENDAR.set(DAY);
    assert_eq!(cluster.update(1, "longer", after(3 * DAY)).expires, Some(CREATED + 4 * DAY));
    assert_eq!(cluster.update(1, "never", after(0)).expires, None);
    cluster.update(0, "sooner", after(60));
    CALENDAR.set(DAY + 60);
    cluster.world.run_for(SOON);
    assert_eq!(cluster.known_names(1), ["longer", "never"]);
    CALENDAR.set(4 * DAY);
    cluster.world.run_for(SOON);
    assert_eq!(cluster.known_names(1), ["never"]);
}

#[test]
fn old_snapshots_that_nothing_deletes_are_reported_by_one_node() {
    let cluster = Cluster::with_calendar(1, 2);
    for name in ["first", "second"] {
        cluster.take(0, &[NAME], name).unwrap();
    }
    cluster.take_until("expires", 90 * DAY);
    cluster.world.run_for(SOON);
    assert!(cluster.old().is_empty());
    CALENDAR.set(30 * DAY);
    cluster.world.run_for(SOON);
    assert_eq!(cluster.old(), [(2, "first".to_owned())]);
    cluster.update(1, "first", hold(true));
    cluster.world.run_for(SOON);
    assert_eq!(cluster.old(), [(1, "second".to_owned())]);
    cluster.delete_snapshot(0, "second").unwrap();
    cluster.world.run_for(SOON);
    assert!(cluster.old().is_empty());
}

#[test]
fn labels_and_expiries_are_checked() {
    let cluster = Cluster::with_calendar(1, 2);
    let take = |labels: &[(&str, &str)], expires_after| {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let (name, volumes) = ("first".to_owned(), vec![NAME.to_owned()]);
        let spec = SnapshotSpec { name, volumes, expires_after, labels };
        cluster.control(0, move |control| async move { control.create_snapshot(spec).await })
    };
    for (key, expires_after, expected) in [("a b", None, "labels"), ("app", Some(0), "expires_after")] {
        let refused = take(&[(key, "shop")], expires_after);
        let is_expected = matches!(&refused, Err(ControlError::Invalid { field, .. }) if *field == expected);
        assert!(is_expected, "{refused:?}");
    }
    assert!(cluster.known_names(0).is_empty());
    let taken = take(&[("app", "shop")], Some(DAY)).unwrap().entry;
    assert_eq!((taken.labels["app"].as_str(), taken.expires), ("shop", Some(CREATED + DAY)));
    cluster.world.run_for(Duration::from_secs(1));
    let known = cluster.control(1, |control| async move { control.snapshot("first").unwrap().entry });
    assert_eq!((known.labels, known.expires), (taken.labels, taken.expires));
}
