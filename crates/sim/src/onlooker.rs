//! Follows the record and looks at each change of the volumes' configurations (A6).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use cluster::Event;
use node::copies::{StandingEntry, VolumeEntry};
use rt::CoreId;

use crate::cluster::{Cluster, Volume};
use crate::load::Counts;

/// What the volume was in each epoch, from the one on in which the looking on began.
pub type Epochs = Rc<RefCell<BTreeMap<u64, VolumeEntry>>>;

/// Looks on at each volume from now on.
pub fn start(cluster: &Cluster, counts: &Counts) -> Vec<Epochs> {
    cluster.volumes.iter().map(|volume| look_on(cluster, volume, counts)).collect()
}

fn look_on(cluster: &Cluster, volume: &Volume, counts: &Counts) -> Epochs {
    let entry = cluster.entry_of(volume);
    let epochs = Rc::new(RefCell::new(BTreeMap::from([(entry.epoch, entry)])));
    let (seen, key, counts) = (Rc::clone(&epochs), volume.key.clone(), counts.clone());
    let record = Rc::clone(&cluster.record);
    let task = cluster.world.spawn_on(cluster.watcher, CoreId(0), move || async move {
        let mut watch = record.watch().await;
        loop {
            let event = watch.next().await.expect("the record does not stop");
            let Event::Change(change) = event else { continue };
            for (_, value) in change.writes.iter().filter(|(changed, _)| *changed == key) {
                let value = value.as_ref().expect("nobody deletes the volume");
                look(
                    serde_json::from_slice(value).expect("nodes write what they can read"),
                    &mut seen.borrow_mut(),
                    &counts,
                );
            }
        }
    });
    drop(task);
    epochs
}

fn look(entry: VolumeEntry, seen: &mut BTreeMap<u64, VolumeEntry>, counts: &Counts) {
    let last = *seen.keys().next_back().expect("it began with one");
    if entry.epoch <= last {
        // The watch begins in the past; and what is no change of members changes no epoch.
        assert!(entry.epoch > 0, "the first epoch is 1");
        return;
    }
    assert_eq!(entry.epoch, last + 1, "an epoch was left out");
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
    let in_sync = |copy: &&node::copies::CopyEntry| copy.standing == StandingEntry::InSync;
    assert!(entry.copies.iter().any(|copy| in_sync(&copy)), "nobody is in sync: {entry:?}");
    seen.insert(entry.epoch, entry);
}
