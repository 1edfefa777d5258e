//! Follows the record and checks each change of the volumes' configurations (A6) and of snapshots (A15), and
//! that no split brain occurs (A14).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use cluster::Event;
use node::copies::{
    CopyEntry, FORK_EPOCHS, Leaves, Restores, SNAPSHOT_CHANGES, SNAPSHOTS, SnapshotEntry, SnapshotState,
    StandingEntry, VolumeEntry, split_key,
};
use rt::CoreId;
use rt::sim::linear::Time;
use store::VolumeId;

use crate::cluster::{Cluster, Volume};
use crate::history::History;
use crate::load::Counts;

/// The volume's entry in each epoch since the onlooker started.
pub type Epochs = Rc<RefCell<BTreeMap<u64, VolumeEntry>>>;

/// A snapshot as the record has it, or had it last.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Its entry.
    pub entry: SnapshotEntry,
    /// The restore for which it was begun: it keeps what the volumes were before.
    pub restores: Option<Restores>,
    /// When it was seen to exist first, by the clock of the histories.
    pub completed: Option<Time>,
    /// When that restore was seen to be complete.
    pub restored: Option<Time>,
    /// The record does not have it any more.
    pub is_gone: bool,
}

impl Recorded {
    /// Whether it is neither being taken nor deleted.
    pub fn exists(&self) -> bool {
        self.entry.state == SnapshotState::Complete && !self.is_gone
    }
}

/// All snapshots that the record has had, by number.
pub type Snapshots = Rc<RefCell<BTreeMap<u32, Recorded>>>;

/// Starts to follow the snapshots of the record. `clock` is the history of any volume.
pub fn follow_snapshots(cluster: &Cluster, clock: &History, counts: &Counts) -> Snapshots {
    let snapshots = Snapshots::default();
    let (seen, record) = (Rc::clone(&snapshots), Rc::clone(&cluster.record));
    let (clock, counts) = (clock.clone(), counts.clone());
    let task = cluster.world.spawn_on(cluster.watcher, CoreId(0), move || async move {
        let mut watch = record.watch().await;
        loop {
            let event = watch.next().await.expect("the record does not stop");
            let Event::Change(change) = event else { continue };
            // One that changes its state has two keys in a change.
            let mut changed: BTreeMap<u32, Option<SnapshotEntry>> = BTreeMap::new();
            for (key, value) in &change.writes {
                let number =
                    [SNAPSHOTS, SNAPSHOT_CHANGES].iter().find_map(|prefix| key.strip_prefix(*prefix));
                let Some(number) = number.and_then(|number| number.parse().ok()) else { continue };
                let decode = |value| serde_json::from_slice(value).expect("nodes write what they can read");
                let entry: Option<SnapshotEntry> = value.as_deref().map(decode);
                let now = changed.entry(number).or_default();
                *now = now.take().or(entry);
            }
            for (number, entry) in changed {
                look_at_snapshot(number, entry, &mut seen.borrow_mut(), clock.tick(), &counts);
            }
        }
    });
    drop(task);
    snapshots
}

/// Checks a change of a snapshot: what was refused or deleted never comes back, and nothing that exists goes
/// before it is being deleted. A restore that is decided is not undone, and keeps what the volumes were.
fn look_at_snapshot(
    number: u32,
    now: Option<SnapshotEntry>,
    seen: &mut BTreeMap<u32, Recorded>,
    time: Time,
    counts: &Counts,
) {
    use SnapshotState::{Complete, Deleting, Preparing, Restoring};
    let newest = seen.keys().next_back().copied().unwrap_or(0);
    let Some(known) = seen.get_mut(&number) else {
        let entry = now.expect("a snapshot is gone that nobody has begun");
        assert!(number > newest && entry.state == Preparing, "that is no new snapshot: {entry:?}");
        let restores = entry.restores;
        seen.insert(number, Recorded { entry, restores, completed: None, restored: None, is_gone: false });
        return;
    };
    assert!(!known.is_gone, "a snapshot is back: {now:?}");
    let (before, state) = (known.entry.state, now.as_ref().map(|entry| entry.state));
    let discards = known.restores.is_some_and(|restores| restores.discards);
    let is_possible = match before {
        Preparing if known.restores.is_some() => state != Some(Complete),
        Preparing => state != Some(Restoring),
        // What the volumes were is kept, unless it is discarded.
        Restoring if discards => matches!(state, Some(Restoring) | None),
        Restoring => matches!(state, Some(Restoring | Complete)),
        Complete => matches!(state, Some(Complete | Deleting)),
        Deleting => matches!(state, Some(Deleting) | None),
    };
    assert!(is_possible, "a snapshot goes from {:?} to {now:?}", known.entry);
    if before == Preparing && matches!(state, Some(Deleting) | None) {
        counts.count(if known.restores.is_some() { "restore undone" } else { "snapshot undone" });
    }
    known.completed = known.completed.or((state == Some(Complete)).then_some(time));
    if before == Restoring && state != Some(Restoring) {
        known.restored = Some(time);
    }
    match now {
        Some(entry) => known.entry = entry,
        None => known.is_gone = true,
    }
}

/// Starts to follow the record of each volume.
pub fn start(cluster: &Cluster, counts: &Counts) -> Vec<Epochs> {
    cluster.volumes.iter().map(|volume| look_on(cluster, volume, counts)).collect()
}

fn look_on(cluster: &Cluster, volume: &Volume, counts: &Counts) -> Epochs {
    let entry = cluster.entry_of(volume);
    let epochs = Rc::new(RefCell::new(BTreeMap::from([(entry.epoch, entry)])));
    let id = VolumeId::parse(&cluster.entry_of(volume).id).expect("nodes write what they can read");
    let (split, forks) = (split_key(id), cluster.forks);
    let (seen, key, counts) = (Rc::clone(&epochs), volume.key.clone(), counts.clone());
    let record = Rc::clone(&cluster.record);
    let task = cluster.world.spawn_on(cluster.watcher, CoreId(0), move || async move {
        let mut watch = record.watch().await;
        loop {
            let event = watch.next().await.expect("the record does not stop");
            let Event::Change(change) = event else { continue };
            assert!(!change.writes.iter().any(|(changed, _)| *changed == split), "a volume is split");
            for (_, value) in change.writes.iter().filter(|(changed, _)| *changed == key) {
                let value = value.as_ref().expect("nobody deletes the volume");
                look(
                    serde_json::from_slice(value).expect("nodes write what they can read"),
                    &mut seen.borrow_mut(),
                    forks,
                    &counts,
                );
            }
        }
    });
    drop(task);
    epochs
}

fn look(entry: VolumeEntry, seen: &mut BTreeMap<u64, VolumeEntry>, forks: bool, counts: &Counts) {
    let last = *seen.keys().next_back().expect("it began with one");
    if entry.epoch <= last {
        // The watch begins with changes from the past, and a change of anything but members keeps the epoch.
        assert!(entry.epoch > 0, "the first epoch is 1");
        return;
    }
    if forks && entry.epoch > FORK_EPOCHS && entry.epoch != last + 1 {
        check_settled(&entry, seen);
        counts.count("fork settled");
    } else {
        assert_eq!(entry.epoch, last + 1, "an epoch was left out");
    }
    counts.count("epoch");
    let before =
        |node: u16| seen[&last].copies.iter().find(|copy| copy.node == node).map(|copy| &copy.standing);
    for copy in &entry.copies {
        match (before(copy.node), &copy.standing) {
            (Some(StandingEntry::Joining), StandingEntry::InSync) => counts.count("copy in sync again"),
            (Some(StandingEntry::Outside), StandingEntry::Joining) => counts.count("copy joins"),
            _ => {}
        }
    }
    let moved = |copy: &&CopyEntry| matches!(copy.leaves, Some(Leaves::After(_)));
    for gone in seen[&last].copies.iter().filter(moved) {
        if entry.copies.iter().all(|copy| copy.node != gone.node) {
            counts.count("copy gone for another");
        }
    }
    assert!(in_sync(&entry).next().is_some(), "nobody is in sync: {entry:?}");
    seen.insert(entry.epoch, entry);
}

/// Checks the change by which the record learns that a node has continued alone.
///
/// That node's copy is the only one in sync, one epoch beyond the node's own, and was in sync in every epoch
/// that the record has had since the one from which it continued.
fn check_settled(entry: &VolumeEntry, seen: &BTreeMap<u64, VolumeEntry>) {
    let alone: Vec<u16> = in_sync(entry).map(|copy| copy.node).collect();
    let parent = entry.epoch - 1 - FORK_EPOCHS;
    let mut since = seen.range(parent..).map(|(_, entry)| entry).peekable();
    assert!(since.peek().is_some(), "an epoch that no node has continued from: {entry:?}");
    for before in since {
        let was = |node: &u16| in_sync(before).any(|copy| copy.node == *node);
        assert!(alone.len() == 1 && alone.iter().all(was), "{entry:?} is settled after {before:?}");
    }
}

fn in_sync(entry: &VolumeEntry) -> impl Iterator<Item = &CopyEntry> {
    entry.copies.iter().filter(|copy| copy.standing == StandingEntry::InSync)
}
