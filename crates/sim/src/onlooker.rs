//! Follows the record and looks at each change of the volume's configuration (A6).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use cluster::{Event, Revision};
use node::copies::{StandingEntry, VolumeEntry};
use rt::CoreId;

use crate::cluster::Cluster;
use crate::load::Counts;

/// A number that no node has.
const NUMBER: u16 = 60;
/// The simulated record answers at once.
const DEADLINE: Duration = Duration::from_secs(1);

/// Looks on from now on. Gives the epoch that was seen last.
pub fn start(cluster: &Cluster, counts: &Counts) -> Rc<Cell<u64>> {
    let seen = Rc::new(Cell::new(cluster.entry().epoch));
    let (epoch, key, counts) = (Rc::clone(&seen), cluster.volume_key().to_owned(), counts.clone());
    let store = cluster.memory.store(cluster::NodeId::new(NUMBER).expect("not 0"));
    let task = cluster.world.spawn_on(cluster.watcher, CoreId(0), move || async move {
        let mut watch =
            store.watch(Revision(0), DEADLINE).await.expect("nothing is wrong between it and the record");
        loop {
            let event = watch.next().await.expect("the record does not stop");
            let Event::Change(change) = event else { continue };
            for (_, value) in change.writes.iter().filter(|(changed, _)| *changed == key) {
                let value = value.as_ref().expect("nobody deletes the volume");
                look(
                    &serde_json::from_slice(value).expect("nodes write what they can read"),
                    &epoch,
                    &counts,
                );
            }
        }
    });
    drop(task);
    seen
}

fn look(entry: &VolumeEntry, seen: &Cell<u64>, counts: &Counts) {
    if entry.epoch <= seen.get() {
        // The watch begins in the past; and what is no change of members changes no epoch.
        assert!(entry.epoch > 0, "the first epoch is 1");
        return;
    }
    assert_eq!(entry.epoch, seen.get() + 1, "an epoch was left out");
    seen.set(entry.epoch);
    counts.count("epoch");
    let in_sync = |copy: &&node::copies::CopyEntry| copy.standing == StandingEntry::InSync;
    assert!(entry.copies.iter().any(|copy| in_sync(&copy)), "nobody is in sync: {entry:?}");
}
