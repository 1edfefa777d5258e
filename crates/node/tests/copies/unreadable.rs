//! Entries of the cluster's record that a later version has written, as in a rolling update: their objects
//! are neither closed nor forgotten.

use node::control::{FaultKind, User, UserChange};
use node::copies::{StandingEntry, volume_key};
use node::member::{ClusterError, Reconciler};
use serde_json::{Value, json};

use super::*;
use crate::rig::TARGET;

/// A value that this version understands in no entry.
const LATER: &str = "as a later version has it";

impl Cluster {
    /// Changes an entry as a node of a later version would.
    fn change_as_later(&self, key: &str, change: impl FnOnce(&mut Value) + 'static) {
        let key = key.to_owned();
        self.control(0, move |control| async move {
            let reconciler = control.reconciler().unwrap();
            let found =
                reconciler.store().get(&key, Duration::from_secs(5)).await.unwrap().expect("it is there");
            let mut value: Value = serde_json::from_slice(&found.value).unwrap();
            change(&mut value);
            let transaction =
                Reconciler::transaction().expect(&key, Some(found.revision)).put(&key, value.to_string());
            reconciler.store().cas(transaction, Duration::from_secs(5)).await.unwrap();
        });
        self.world.run_for(Duration::from_millis(500));
    }

    fn volume_key(&self) -> String {
        let id = self.control(0, |control| async move { control.volume("thick").unwrap().info.id });
        volume_key(id)
    }

    /// Whether a write and a read through a node succeed, if it serves within five seconds.
    fn is_served_by(&self, index: usize, value: u64) -> bool {
        let (client, portal) = (self.client("host"), self.portal(index));
        self.world.block_on(client, CoreId(0), move || async move {
            let works = async {
                let session = log_in(portal, "host").await?;
                write(&session, 9, value).await.ok()?;
                Some(read(&session, 9).await.is_ok())
            };
            rt::timeout(Duration::from_secs(5), works).await.ok().flatten().unwrap_or(false)
        })
    }

    /// What a host reads through a node.
    fn reads(&self, index: usize, lba: u64) -> Option<u64> {
        let (client, portal) = (self.client("reader"), self.portal(index));
        self.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "reader").await?;
            read(&session, lba).await.ok()
        })
    }

    /// The keys of the entries that a node reports to be unreadable.
    fn unreadable_keys(&self, index: usize) -> Vec<String> {
        let faults = self.control(index, |control| async move { control.faults() });
        let keys = faults.into_iter().filter_map(|fault| match fault.kind {
            FaultKind::RecordEntriesUnreadable { keys } => Some(keys),
            _ => None,
        });
        keys.flatten().collect()
    }

    fn tells(&self, index: usize) -> Vec<&'static str> {
        let taken = self.control(index, |control| control.next_events());
        taken.events.iter().map(|(_, event)| event.code.as_str()).collect()
    }
}

fn is_refused<T>(result: Result<T, node::control::ControlError>) -> bool {
    matches!(result, Err(node::control::ControlError::Cluster(ClusterError::Unreadable(_))))
}

/// The new part of an entry does not concern which nodes serve: both nodes continue, and only a later version
/// changes the entry.
#[test]
fn a_volume_of_a_later_version_is_served_on() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        let key = cluster.volume_key();
        let longest = cluster.keep_writing("writer", 0);
        cluster.world.run_for(Duration::from_secs(1));
        (0..2).for_each(|index| drop(cluster.tells(index)));
        longest.set(Duration::ZERO);
        cluster.change_as_later(&key, |entry| entry["copies"][1]["leaves"] = json!({ "later": LATER }));
        cluster.world.run_for(Duration::from_secs(5));
        assert!(!longest.get().is_zero() && longest.get() < Duration::from_millis(500), "{longest:?}");
        assert!(cluster.is_served_by(0, 5) && cluster.is_served_by(1, 6));
        for index in 0..2 {
            assert_eq!(cluster.unreadable_keys(index), [key.as_str()]);
            let told = cluster.tells(index);
            let is_wrong = |code: &&str| code.starts_with("volume_") || code.starts_with("copy_");
            assert!(!told.iter().any(is_wrong), "{told:?}");
        }
        let before = cluster.record.value(&key).unwrap();
        cluster.control(0, |control| async move {
            assert!(is_refused(control.rename_volume("thick", "other").await));
            assert!(is_refused(control.delete_volume("thick", true).await));
            let mapped = control.delete_volume("thick", false).await;
            assert!(is_refused(mapped), "its maps are there as well");
        });
        assert!(cluster.is_served_by(0, 6) && cluster.is_served_by(1, 5), "it is mapped");
        assert_eq!(cluster.record.value(&key).unwrap(), before, "it is as the later version has written it");

        // A later version can change which nodes serve, and this one follows.
        cluster.change_as_later(&key, |entry| {
            entry["epoch"] = json!(entry["epoch"].as_u64().unwrap() + 1);
            entry["copies"][1]["standing"] = json!("outside");
            entry["copies"][1]["incarnation"] = json!(0);
        });
        assert!(cluster.is_served_by(0, 7));
        assert!(!cluster.is_served_by(1, 8), "it misses writes");
        assert_eq!(cluster.in_sync(0), 1);

        // This version changes an entry again once it can read it.
        cluster.change_as_later(&key, |entry| {
            drop(entry["copies"][1].as_object_mut().unwrap().remove("leaves"));
        });
        cluster.wait_until_in_sync(0, 2);
        cluster.wait_until_all_serve();
        assert!(cluster.unreadable_keys(0).is_empty() && cluster.is_served_by(1, 9));
    });
}

/// Even the copies in sync cannot be read: in the same epoch they are the same as before; in another one they
/// are unknown.
#[test]
fn a_copy_waits_if_no_node_knows_whether_it_is_in_sync() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        let key = cluster.volume_key();
        assert!(cluster.is_served_by(0, 4));
        cluster.change_as_later(&key, |entry| entry["copies"] = json!({ "later": LATER }));
        cluster.world.run_for(Duration::from_secs(5));
        assert!(cluster.is_served_by(0, 5) && cluster.is_served_by(1, 6));

        cluster.change_as_later(&key, |entry| entry["epoch"] = json!(entry["epoch"].as_u64().unwrap() + 1));
        // Longer than any lease.
        cluster.world.run_for(Duration::from_secs(2));
        assert!(!cluster.is_served_by(0, 7) && !cluster.is_served_by(1, 8));
        for index in 0..2 {
            let open = cluster.control(index, |control| async move {
                control.reconciler().unwrap().volumes().first().map(|volume| volume.here)
            });
            assert!(matches!(open, Some(Some((_, true)))), "the copy is there, and open: {open:?}");
        }

        // The later version has written it in the old form again.
        let (one, two) = (cluster.life(0), cluster.life(1));
        cluster.change_as_later(&key, move |entry| {
            entry["epoch"] = json!(entry["epoch"].as_u64().unwrap() + 1);
            let copy = |slot: u8, life: u64| json!({ "slot": slot, "node": slot + 1, "standing": "in-sync", "incarnation": life, "made": 1 });
            entry["copies"] = json!([copy(0, one), copy(1, two)]);
        });
        cluster.wait_until_in_sync(0, 2);
        cluster.wait_until_all_serve();
        assert!(cluster.is_served_by(0, 9) && cluster.reads(1, 9) == Some(9));
        assert!(cluster.unreadable_keys(0).is_empty());
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
    });
}

impl Cluster {
    fn life(&self, index: usize) -> u64 {
        self.control(index, |control| async move { control.reconciler().unwrap().incarnation().0 })
    }
}

/// A node that starts and has never known the entry's earlier content.
#[test]
fn a_node_that_starts_serves_what_a_later_version_has_written() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        let key = cluster.volume_key();
        assert!(cluster.is_served_by(0, 5));
        cluster.world.crash(cluster.servers[1]);
        cluster.world.run_for(Duration::from_secs(5));
        assert_eq!(cluster.in_sync(0), 1);
        cluster.change_as_later(&key, |entry| entry["paused"] = json!([LATER]));
        cluster.start(1);
        cluster.world.run_for(Duration::from_secs(5));
        assert!(cluster.is_served_by(0, 6) && !cluster.is_served_by(1, 7));
        // It changes nothing in the entry, not even the copies in sync.
        assert_eq!(cluster.in_sync(0), 1);
        cluster.change_as_later(&key, |entry| drop(entry.as_object_mut().unwrap().remove("paused")));
        cluster.wait_until_in_sync(0, 2);
        cluster.wait_until_all_serve();
        assert_eq!(cluster.reads(1, 9), Some(6));
    });
}

/// Hosts that may log in still may, and maps stay.
#[test]
fn access_stays_what_it_was() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Thick, 2);
    let user = || User {
        name: "anna".into(),
        role: node::control::Role::Admin,
        password: "x".into(),
        stamp: 1,
        created: 1,
    };
    cluster.control(0, move |control| async move {
        drop(control.change_user(UserChange::First(user())).await.unwrap());
    });
    cluster.world.run_for(Duration::from_millis(500));
    (0..2).for_each(|index| drop(cluster.tells(index)));
    let target = format!("target/{TARGET}");
    cluster.change_as_later(&target, |entry| entry["maps"] = json!({ "later": LATER }));
    cluster.change_as_later("user/anna", |entry| entry["role"] = json!(LATER));
    cluster.change_as_later("node/00002", |entry| entry["addresses"] = json!(LATER));
    cluster.world.run_for(Duration::from_secs(5));
    assert!(cluster.is_served_by(0, 5) && cluster.is_served_by(1, 6), "with the link between the two");
    for index in 0..2 {
        cluster.control(index, |control| async move {
            assert_eq!(control.user("anna").map(|user| user.role), Some(node::control::Role::Admin));
            assert_eq!(control.reconciler().unwrap().nodes().len(), 2);
            assert!(is_refused(control.delete_target(TARGET, true).await));
            let password = Some("y".into());
            let change = UserChange::Set { name: "anna".into(), new_name: None, role: None, password };
            assert!(is_refused(control.change_user(change).await));
        });
        let told = cluster.tells(index);
        let is_wrong = |code: &&str| code.starts_with("target_") || code.starts_with("node_removed");
        assert!(!told.iter().any(is_wrong), "{told:?}");
    }
    assert_eq!(cluster.in_sync(0), 2);
    let standing = cluster.control(1, |control| async move {
        control.reconciler().unwrap().volumes()[0]
            .entry
            .copies
            .iter()
            .map(|copy| copy.standing)
            .collect::<Vec<_>>()
    });
    assert_eq!(standing, [StandingEntry::InSync; 2]);
}
