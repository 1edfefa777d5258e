//! Pools that come back with an old copy of a volume whose present copy is in another pool of the node.

use node::control::{AddedCopy, ControlError};
use rt::sim::DiskFaults;

use super::moving::the_volume;
use super::*;

/// A copy on the second node, whose disk was lost, has been rebuilt in another pool there, and written to
/// (3). The disk is back, with the old copy, and the node is down.
fn a_lost_disk_is_back(seed: u64) -> Cluster {
    let cluster = Cluster::new(seed, 2, 2);
    cluster.add_volume(VolumeKind::Thick, 2);
    cluster.write_all(0, 1);
    let server = cluster.servers[1];
    cluster.world.crash(server);
    let lost = cluster.world.disk_image(server, DISK);
    cluster.world.remove_disk(server, DISK);
    cluster.world.run_for(Duration::from_secs(3));
    cluster.write_all(0, 2);
    cluster.start(1);
    cluster.add_pool(1, "other", "/dev/other");
    cluster.world.run_for(Duration::from_secs(2));
    assert!(cluster.remove_copy(0, 2).unwrap(), "its copy cannot be opened, and may be taken away");
    cluster.control(0, |control| async move {
        let added = AddedCopy { node: 2, pool: Some("other".into()), instead_of: None };
        control.add_copy(&the_volume(&control), added).await.unwrap();
    });
    cluster.wait_until_in_sync(0, 2);
    assert_eq!(cluster.checksum(0), cluster.checksum(1));
    cluster.write_all(1, 3);
    cluster.world.crash(server);
    cluster.world.put_disk(server, DISK, lost);
    cluster
}

/// The pools of the second node that hold a copy.
fn pools_of_the_second(cluster: &Cluster) -> Vec<String> {
    cluster.control(1, |control| async move {
        control.volumes().await.into_iter().map(|volume| volume.pool).collect()
    })
}

/// A copy whose disk is lost is rebuilt in another pool of its node. The disk returns with the old copy,
/// which is never taken for the new one.
#[test]
fn a_lost_disk_is_replaced_and_returns() {
    each_seed(3, |seed| {
        let cluster = a_lost_disk_is_back(seed);
        cluster.start(1);
        cluster.world.run_for(Duration::from_secs(3));
        cluster.wait_until_in_sync(0, 2);
        cluster.assert_all(1, 3);
        cluster.wait_until("the old copy is deleted", || pools_of_the_second(&cluster) == ["other"]);
        cluster.assert_all(1, 3);
    });
}

/// As [`a_lost_disk_is_back`]; the node is up, and the disk fails at once, so the old copy cannot be deleted.
fn an_old_copy_stays(seed: u64) -> Cluster {
    let cluster = a_lost_disk_is_back(seed);
    cluster.start(1);
    let faults = DiskFaults::default().with_unwritable(0..64 * MIB);
    cluster.world.set_disk_faults(cluster.servers[1], DISK, faults);
    cluster.wait_until_in_sync(0, 2);
    cluster.world.run_for(Duration::from_secs(3));
    assert_eq!(pools_of_the_second(&cluster), ["other", POOL]);
    cluster
}

/// The copy in the other pool has nothing to do with that.
#[test]
fn a_pool_with_an_old_copy_is_reopened_without_the_present_one() {
    each_seed(3, |seed| {
        let cluster = an_old_copy_stays(seed);
        let reopened = cluster.control(1, |control| async move { control.reopen_pool(POOL).await.map(drop) });
        assert!(matches!(reopened, Err(ControlError::PoolClosed(..))), "{reopened:?}");
        cluster.world.run_for(Duration::from_secs(3));
        assert_eq!(cluster.in_sync(0), 2);
        cluster.assert_all(1, 3);
    });
}

/// It does not matter that the volume is mapped: hosts use the copy in the other pool, before and after.
#[test]
fn a_pool_with_an_old_copy_is_forgotten_without_the_present_one() {
    each_seed(3, |seed| {
        let cluster = an_old_copy_stays(seed);
        cluster.control(1, |control| async move { control.forget_pool(POOL, false).await.unwrap() });
        cluster.world.run_for(Duration::from_secs(3));
        assert_eq!(pools_of_the_second(&cluster), ["other"]);
        assert_eq!(cluster.in_sync(0), 2);
        cluster.assert_all(1, 3);
    });
}

/// The same if the pool could not be opened again, and the present copy is the only one: the volume's maps
/// are not lost with the pool, and stay.
#[test]
fn a_closed_pool_with_an_old_copy_is_forgotten_without_the_maps_of_the_present_one() {
    let cluster = an_old_copy_stays(1);
    let reopened = cluster.control(1, |control| async move { control.reopen_pool(POOL).await.map(drop) });
    assert!(matches!(reopened, Err(ControlError::PoolClosed(..))), "{reopened:?}");
    assert!(cluster.remove_copy(1, 1).unwrap(), "it is gone at once");
    cluster.wait_until("node 1 deletes its copy", || cluster.kept(0) == 0);
    let left = cluster.control(1, |control| async move { control.pool_remains(POOL).await.unwrap() });
    assert!(left.maps.is_empty() && left.volumes.as_ref().is_some_and(Vec::is_empty), "{left:?}");
    cluster.control(1, |control| async move { control.forget_pool(POOL, true).await.unwrap() });
    cluster.world.run_for(Duration::from_secs(1));
    cluster.assert_all(1, 3);
}
