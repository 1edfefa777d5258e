//! Snapshots by schedule: one for each time, whichever nodes are up, and only what is kept stays.

use node::control::{FaultKind, ScheduleChange, ScheduleSpec, ScheduleStatus};
use node::copies::{OfSchedule, Retention, ScheduleEntry, ScheduleObstacle};

use super::*;

/// A quarter of an hour, which takes 45 s.
const EVERY: u64 = 900;
const SCHEDULE: &str = "quarterly";

/// Twenty seconds of the calendar per second, from the creation of volumes. A node that is lost meanwhile
/// does not delay a snapshot until the next one is due.
fn hurried_calendar() -> u64 {
    calendar(20)
}

impl Cluster {
    /// Nodes with a hurried calendar, and a log volume with copies on all of them.
    fn hurried(seed: u64, nodes: usize) -> Cluster {
        let config = Config { unix_now: hurried_calendar, ..Config::default() };
        let cluster = Cluster::with_config(seed, nodes, 2, &config);
        cluster.add_volume(VolumeKind::Log, nodes as u8);
        cluster
    }

    /// Waits until the next snapshot is due.
    fn run_to_next_time(&self) {
        let now = self.control(0, |_| async { hurried_calendar() });
        self.world.run_for(Duration::from_secs((EVERY - now % EVERY) / 20));
    }

    fn add_schedule(&self, volumes: &[&str], keep: u32) -> ScheduleStatus {
        let volumes = volumes.iter().map(|volume| (*volume).to_owned()).collect();
        let retention = Retention { keep, ..Retention::default() };
        let spec = ScheduleSpec { name: SCHEDULE.into(), volumes, every: EVERY, retention };
        self.control(0, move |control| async move { control.create_snapshot_schedule(spec).await.unwrap() })
    }

    fn change_schedule(&self, change: ScheduleChange) {
        self.control(0, move |control| async move {
            control.change_snapshot_schedule(SCHEDULE, change).await.unwrap();
        });
    }

    /// Adds snapshots that the schedule has taken, from number 1,000 on, to the record alone.
    fn add_taken(&self, schedule: &ScheduleEntry, count: u32) {
        let volume = &schedule.volumes[0];
        let of = SnapshotOf {
            id: volume.id.clone(),
            name: volume.name.clone(),
            size: 1 << 20,
            copies: Vec::new(),
        };
        let entry = |number: u32| SnapshotEntry {
            number,
            name: format!("taken-{number}"),
            at: CREATED,
            node: 1,
            incarnation: 0,
            state: SnapshotState::Complete,
            volumes: vec![of.clone()],
            pause_us: 0,
            held: false,
            expires: None,
            labels: BTreeMap::new(),
            restores: None,
            schedule: Some(OfSchedule {
                name: schedule.name.clone(),
                id: schedule.id,
                due: CREATED + u64::from(number),
            }),
        };
        let entries: Vec<SnapshotEntry> = (1_000..1_000 + count).map(entry).collect();
        self.control(0, move |control| async move {
            let reconciler = control.reconciler().unwrap();
            for entry in entries {
                let transaction = Reconciler::transaction()
                    .put(&entry.key(), json(&entry))
                    .put(LAST_SNAPSHOT, json(&entry.number));
                reconciler.commit(transaction).await.unwrap();
            }
        });
    }

    fn schedule(&self, index: usize) -> ScheduleStatus {
        self.control(index, |control| async move { control.snapshot_schedule(SCHEDULE).unwrap() })
    }

    /// The snapshots that the schedule has taken, as a node knows them.
    fn scheduled(&self, index: usize) -> Vec<SnapshotEntry> {
        let all = self.control(index, |control| async move { control.snapshots(None).unwrap() });
        let entries = all.into_iter().map(|status| status.entry);
        entries.filter(|entry| entry.state == SnapshotState::Complete && entry.schedule.is_some()).collect()
    }

    /// For which times it has taken them.
    fn due(&self, index: usize) -> Vec<u64> {
        self.scheduled(index).iter().map(|entry| entry.schedule.as_ref().unwrap().due).collect()
    }

    /// The nodes that report that a snapshot was missed.
    fn who_has_missed(&self) -> Vec<usize> {
        let says = |by: &usize| {
            let faults = self.control(*by, |control| async move { control.faults() });
            faults.iter().any(|fault| matches!(fault.kind, FaultKind::SnapshotScheduleMissed { .. }))
        };
        (0..self.servers.len()).filter(says).collect()
    }

    /// The events about schedules that nodes have emitted since the last call.
    fn events_of_schedules(&self) -> Vec<&'static str> {
        let of = |index| self.control(index, |control| control.next_events()).events;
        let events = (0..self.servers.len()).flat_map(of).map(|(_, event)| event.code.as_str());
        events.filter(|code| code.starts_with("snapshot_schedule")).collect()
    }
}

/// Whether there is one for each time from the first to the last.
fn is_complete(due: &[u64]) -> bool {
    due.iter().all(|at| at.is_multiple_of(EVERY)) && due.windows(2).all(|two| two[1] == two[0] + EVERY)
}

#[test]
fn one_is_taken_for_each_time_whichever_nodes_are_lost() {
    each_seed(6, |seed| {
        let mut rng = Rng::new(seed);
        let cluster = Cluster::hurried(seed, 3);
        cluster.add_schedule(&[NAME], 100);
        for _ in 0..2 {
            cluster.run_to_next_time();
            // Nodes look once a second.
            cluster.world.run_for(Duration::from_micros(rng.below(1_500_000)));
            let lost = rng.below(3) as usize;
            cluster.world.crash(cluster.servers[lost]);
            cluster.world.run_for(Duration::from_secs(10 + rng.below(10)));
            cluster.start(lost);
            cluster.wait_until_all_serve();
            cluster.wait_until_in_sync(0, 3);
        }
        cluster.run_to_next_time();
        cluster.run_to_next_time();
        cluster.world.run_for(Duration::from_secs(10));
        let due = cluster.due(0);
        assert!(due.len() >= 4 && is_complete(&due), "{due:?}");
        assert_eq!(due, cluster.due(2));
        assert!(cluster.who_has_missed().is_empty());
        let status = cluster.schedule(1);
        assert_eq!((status.snapshots, status.entry.failed), (due.len(), None));
        let last = status.entry.last.unwrap();
        assert_eq!(Some(&last.due), due.last());
        assert!(last.name.starts_with("quarterly-2023-11-1") && last.at >= last.due, "{last:?}");
    });
}

#[test]
fn only_what_is_kept_or_held_stays_of_what_the_schedule_has_taken() {
    let cluster = Cluster::hurried(1, 2);
    cluster.add_schedule(&[NAME], 2);
    cluster.take(0, &[NAME], "by-hand").unwrap();
    cluster.run_to_next_time();
    cluster.world.run_for(Duration::from_secs(10));
    let taken = cluster.scheduled(0);
    let [first] = taken.as_slice() else { panic!("{taken:?}") };
    let name = first.name.clone();
    cluster.control(1, move |control| async move {
        control.update_snapshot(&name, hold(true)).await.unwrap();
    });
    for _ in 0..4 {
        cluster.run_to_next_time();
    }
    cluster.world.run_for(Duration::from_secs(10));
    cluster.change_schedule(ScheduleChange { paused: Some(true), ..ScheduleChange::default() });
    cluster.world.run_for(Duration::from_secs(10));
    let due = cluster.due(0);
    assert_eq!((due.len(), due[0]), (3, first.schedule.as_ref().unwrap().due), "{due:?}");
    assert!(due[2] == due[1] + EVERY && due[1] > due[0] + 2 * EVERY, "the latest two: {due:?}");
    let number_of = |cluster: &Cluster| cluster.snapshots(1).len();
    assert_eq!(number_of(&cluster), 4, "and the one that somebody has taken");
    assert_eq!((cluster.snapshots_in_pool(0), cluster.snapshots_in_pool(1)), (4, 4));
    // It is paused, and then deleted: nothing else happens to them.
    cluster.world.run_for(Duration::from_secs(100));
    assert_eq!((cluster.due(0), cluster.schedule(0).next), (due, None));
    cluster.control(1, |control| async move { control.delete_snapshot_schedule(SCHEDULE).await.unwrap() });
    // The other node follows in a moment.
    cluster.world.run_for(Duration::from_secs(1));
    // Another schedule of that name does not delete them.
    cluster.add_schedule(&[NAME], 1);
    cluster.run_to_next_time();
    cluster.world.run_for(Duration::from_secs(10));
    assert_eq!(number_of(&cluster), 4 + 1);
    assert_eq!(cluster.schedule(0).snapshots, 1);
}

#[test]
fn a_schedule_that_is_paused_while_it_deletes_stops() {
    let cluster = Cluster::hurried(1, 2);
    let schedule = cluster.add_schedule(&[NAME], 1).entry;
    cluster.run_to_next_time();
    cluster.world.run_for(Duration::from_secs(5));
    cluster.add_taken(&schedule, 300);
    let count = cluster.scheduled(0).len();
    assert_eq!(count, 1 + 300, "none of them is deleted before the next one is due");
    cluster.run_to_next_time();
    let is_deleting = || {
        cluster.world.run_for(Duration::from_micros(50));
        cluster.scheduled(0).len() < count
    };
    assert!((0..100_000).any(|_| is_deleting()), "one is taken, and the others are deleted");
    cluster.change_schedule(ScheduleChange { paused: Some(true), ..ScheduleChange::default() });
    let left = cluster.scheduled(0).len();
    assert!(left > 1, "it was paused too late");
    cluster.world.run_for(Duration::from_secs(10));
    assert_eq!(cluster.scheduled(0).len(), left);
}

#[test]
fn of_those_that_were_missed_one_is_made_good() {
    let cluster = Cluster::hurried(1, 2);
    cluster.add_schedule(&[NAME], 100);
    cluster.run_to_next_time();
    cluster.run_to_next_time();
    cluster.world.run_for(Duration::from_secs(10));
    let before = cluster.due(0);
    assert!(before.len() >= 2 && is_complete(&before), "{before:?}");
    for server in &cluster.servers {
        cluster.world.crash(*server);
    }
    cluster.world.run_for(Duration::from_secs(300));
    let started = [0, 1].map(|index| cluster.begin_start(index));
    for started in started {
        cluster.world.wait_for(started).expect("the node answers").expect("the node starts");
    }
    cluster.wait_until_all_serve();
    cluster.world.run_for(Duration::from_secs(10));
    cluster.run_to_next_time();
    cluster.world.run_for(Duration::from_secs(10));
    let due = cluster.due(0);
    let (earlier, later) = due.split_at(before.len());
    assert_eq!(earlier, before);
    assert!(later.len() >= 2 && is_complete(later), "{due:?}");
    assert!(later[0] >= before[before.len() - 1] + 6 * EVERY, "{due:?}");
    assert_eq!(cluster.events_of_schedules(), ["snapshot_schedule_recovered"]);
    assert!(cluster.who_has_missed().is_empty());
}

#[test]
fn a_schedule_that_cannot_take_one_says_why_until_it_can() {
    let cluster = Cluster::hurried(1, 2);
    cluster.add_other_volume();
    cluster.add_schedule(&[NAME, OTHER], 10);
    cluster.control(0, |control| async move { control.delete_volume(OTHER, true).await.unwrap() });
    cluster.run_to_next_time();
    cluster.world.run_for(Duration::from_secs(20));
    assert!(cluster.snapshots(0).is_empty(), "one of all volumes, or none");
    assert_eq!(cluster.who_has_missed(), [0], "people are told once");
    assert_eq!(cluster.events_of_schedules(), ["snapshot_schedule_missed"]);
    let status = cluster.schedule(1);
    let deleted = ScheduleObstacle::VolumeDeleted { volume: OTHER.into() };
    assert_eq!(status.entry.failed.map(|failed| failed.obstacle), Some(deleted));
    assert!(status.missed_since.is_some_and(|since| since.is_multiple_of(EVERY)));

    let volumes = Some(vec![NAME.to_owned()]);
    cluster.change_schedule(ScheduleChange { volumes, ..ScheduleChange::default() });
    cluster.world.run_for(Duration::from_secs(5));
    assert_eq!(cluster.due(0).len(), 1);
    assert!(cluster.who_has_missed().is_empty());
    assert_eq!(cluster.events_of_schedules(), ["snapshot_schedule_recovered"]);
    let status = cluster.schedule(0);
    assert_eq!((status.entry.failed, status.missed_since), (None, None));
}

#[test]
fn a_schedule_is_checked_when_it_is_created() {
    let cluster = Cluster::hurried(1, 2);
    cluster.add_schedule(&[NAME], 10);
    let create = |name: &str, volume: &str, every| {
        let retention = Retention { daily: 7, ..Retention::default() };
        let spec = ScheduleSpec { name: name.into(), volumes: vec![volume.into()], every, retention };
        cluster.control(1, move |control| async move { control.create_snapshot_schedule(spec).await })
    };
    assert!(create("daily", NAME, 86_400).is_ok());
    let again = create("daily", NAME, 86_400);
    assert!(matches!(again, Err(ControlError::Exists { .. })), "{again:?}");
    let unknown = create("other", "none", 86_400);
    assert!(matches!(unknown, Err(ControlError::NotFound { kind: "volume", .. })), "{unknown:?}");
    for (name, every, expected) in
        [("often", 59, "every"), ("long", 367 * 86_400, "every"), (&*"n".repeat(43), 86_400, "name")]
    {
        let refused = create(name, NAME, every);
        let is_expected = matches!(&refused, Err(ControlError::Invalid { field, .. }) if *field == expected);
        assert!(is_expected, "{refused:?}");
    }
}
