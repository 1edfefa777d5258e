//! Volumes that are deleted while a node with a copy is unreachable.

use node::control::{ControlError, NotServed};
use node::copies::DeletedVolume;
use rt::sim::DiskLatency;

use super::*;

impl Cluster {
    /// The volumes of a node's pools, by name.
    fn names_on(&self, index: usize) -> Vec<String> {
        self.control(index, |control| async move {
            control.volumes().await.into_iter().map(|volume| volume.info.name).collect()
        })
    }

    /// The nodes that still have to learn of each deleted volume, as a node has followed the record.
    fn noted(&self, by: usize) -> Vec<Vec<u16>> {
        self.control(by, |control| async move {
            let deleted = control.reconciler().unwrap().list::<DeletedVolume>("deleted-volume/");
            deleted.into_iter().map(|deleted| deleted.nodes).collect()
        })
    }

    fn delete(&self, asked: usize) {
        self.control(asked, |control| async move { control.delete_volume("thick", true).await }).unwrap();
    }

    #[track_caller]
    fn wait_for(&self, what: &str, is_so: impl Fn() -> bool) {
        assert!(self.world.run_until(is_so, Duration::from_secs(30)), "{what}");
    }
}

#[test]
fn a_node_that_was_down_deletes_its_copy_when_it_is_back() {
    each_seed(4, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        let kind = if seed.is_multiple_of(2) { VolumeKind::Ram } else { VolumeKind::Thick };
        cluster.add_volume(kind, 3);
        cluster.world.crash(cluster.servers[1]);
        if seed > 2 {
            // It is missed already, or not yet.
            cluster.world.run_for(Duration::from_secs(3));
        }
        cluster.delete(0);
        assert_eq!((cluster.names_on(0), cluster.names_on(2)), (vec![], vec![]));
        cluster.wait_for("the others have said that it is gone", || cluster.noted(0) == [[2]]);
        cluster.start(1);
        cluster.wait_for("it deletes what it has", || cluster.names_on(1).is_empty());
        cluster.wait_for("it is not remembered forever", || cluster.noted(0).is_empty());
        // Its name and its place are free.
        cluster.add_volume(kind, 3);
        cluster.wait_until_all_serve();
        assert_eq!((cluster.in_sync(0), cluster.noted(0)), (3, vec![]));
        cluster.delete(1);
        assert!((0..3).all(|index| cluster.names_on(index).is_empty()));
        cluster.wait_for("all have said that it is gone", || cluster.noted(1).is_empty());
    });
}

/// Its node serves it without the record, and still deletes it.
#[test]
fn a_volume_whose_only_copy_is_unreachable_is_deleted_when_its_node_is_back() {
    each_seed(4, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        let kind = if seed.is_multiple_of(2) { VolumeKind::Ram } else { VolumeKind::Thick };
        cluster.control(1, move |control| async move {
            control.create_volume(new_volume(POOL, Shape { kind, ..Shape::thick() })).await.unwrap();
        });
        let is_known = |by: usize| {
            cluster.control(by, |control| async move {
                control.reconciler().unwrap().volume_named(Shape::thick().name).is_some()
            })
        };
        cluster.wait_for("it is in the record", || is_known(0) && is_known(1));
        let delete = || {
            let name = Shape::thick().name;
            cluster.control(0, move |control| async move { control.delete_unreachable(name, true).await })
        };
        let refused = delete();
        assert!(matches!(refused, Err(ControlError::ElsewhereOnly { node: 2, .. })), "{refused:?}");
        cluster.world.crash(cluster.servers[1]);
        cluster.world.run_for(Duration::from_secs(3));
        delete().unwrap();
        assert!(!is_known(0));
        assert_eq!(cluster.noted(0), [[2]]);
        cluster.start(1);
        cluster.wait_for("its node deletes what it has", || cluster.names_on(1).is_empty());
        cluster.wait_for("it is not remembered forever", || cluster.noted(0).is_empty());
        assert!(!is_known(0) && !is_known(1), "it is not adopted again");
    });
}

/// Its pool has not noted yet that the volume is the cluster's, because its disk is slow: the record has the
/// volume only afterwards.
#[test]
fn a_volume_of_a_node_that_has_just_joined_is_deleted_for_good() {
    let cluster = Cluster::apart(1, 3, 2, &Config::default(), &[512]);
    cluster.control(1, |control| async move {
        control.create_volume(new_volume(POOL, Shape::thick())).await.unwrap();
    });
    // Until the node has written its pool's mark: it would not leave its own cluster while that takes so
    // long.
    cluster.world.run_for(Duration::from_secs(2));
    let slow = Duration::from_secs(5);
    let latency = DiskLatency { write: slow..slow + Duration::from_nanos(1), ..DiskLatency::default() };
    cluster.world.set_disk_latency(cluster.servers[1], DISK, latency);
    cluster.enter();
    let name = Shape::thick().name;
    let is_known = || {
        cluster.control(0, move |control| async move {
            control.reconciler().unwrap().volume_named(name).is_some()
        })
    };
    assert!(cluster.world.run_until(is_known, Duration::from_secs(90)), "it is in the record");
    cluster.world.crash(cluster.servers[1]);
    cluster.world.set_disk_latency(cluster.servers[1], DISK, DiskLatency::default());
    cluster.world.run_for(Duration::from_secs(3));
    cluster.control(0, move |control| async move { control.delete_unreachable(name, true).await }).unwrap();
    cluster.start(1);
    cluster.wait_for("its node deletes what it has", || cluster.names_on(1).is_empty());
    cluster.wait_for("it is not remembered for ever", || cluster.noted(0).is_empty());
    cluster.world.run_for(Duration::from_secs(5));
    assert!(!is_known() && cluster.names_on(1).is_empty(), "it is not adopted again");
}

/// A remaining volume is shown with the reason why it is not served, and is kept if the record says nothing
/// about it.
#[test]
fn copies_unknown_to_the_record_are_kept_and_shown_as_unusable() {
    let cluster = Cluster::new(1, 3, 1);
    cluster.add_volume(VolumeKind::Thick, 2);
    cluster.world.crash(cluster.servers[1]);
    cluster.delete(0);
    // As if the record had been set back.
    cluster.control(0, |control| async move {
        let reconciler = control.reconciler().unwrap();
        let deleted = reconciler.list::<DeletedVolume>("deleted-volume/").remove(0);
        let key = format!("deleted-volume/{}", deleted.id);
        reconciler.commit(node::member::Reconciler::transaction().delete(&key)).await.unwrap();
    });
    cluster.start(1);
    cluster.world.run_for(Duration::from_secs(10));
    let problem = cluster.control(1, |control| async move { control.volume("thick").unwrap().problem });
    assert!(matches!(problem, Some(NotServed::NotInRecord)), "{problem:?}");
    cluster.delete(1);
    assert!(cluster.names_on(1).is_empty());
}
