//! What a snapshot has, read through any node: the bytes of the moment at which it was taken.

use node::control::{CopyUnread, SNAPSHOT_READ_BYTES_MAX};

use super::*;

const BLOCK: u64 = 4096;

impl Cluster {
    /// Reads a range of a volume as a snapshot has it, through a node.
    fn read_snapshot(
        &self,
        index: usize,
        (volume, snapshot): (&str, &str),
        offset: u64,
        len: u64,
    ) -> Result<Vec<u8>, ControlError> {
        let at = VolumeAt { volume: volume.into(), snapshot: snapshot.into() };
        self.control(index, move |control| async move {
            let read = control.read_snapshot(&at, ByteOffset(offset), ByteLen(len)).await;
            read.map(|data| data.to_vec())
        })
    }
}

/// Any range, in both slices, through nodes with and without a copy, while a host overwrites the volume.
#[test]
fn a_snapshot_reads_as_it_was_through_any_node() {
    each_seed(3, |seed| {
        let mut rng = Rng::new(seed);
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Log, 2);
        let (blocks, size) = (Shape::thick().blocks(), Shape::thick().blocks() * BLOCK);
        let values: Vec<(u64, u64)> = (1..120).map(|value| (rng.below(blocks), value)).collect();
        let mut was = vec![0; blocks as usize];
        values.iter().for_each(|(lba, value)| was[*lba as usize] = *value);
        let was: Vec<u8> = was.into_iter().flat_map(|value| block(value).to_vec()).collect();
        cluster.write_values(0, values);
        cluster.take(2, &[NAME], "first").unwrap();
        let (stops, client, portal) = (Rc::new(Cell::new(false)), cluster.client("host"), cluster.portal(1));
        let stopped = Rc::clone(&stops);
        let host = cluster.world.spawn_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "host").await.unwrap();
            let mut number = 1000;
            while !stopped.get() {
                number += 1;
                write(&session, number * 7 % blocks, number).await.unwrap();
            }
            number
        });
        // The other nodes hear of it in a moment.
        cluster.world.run_for(Duration::from_millis(500));
        for _ in 0..12 {
            let offset = rng.below(size);
            let len = rng.below(1 + (size - offset).min(SNAPSHOT_READ_BYTES_MAX));
            let expected = &was[offset as usize..(offset + len) as usize];
            for index in 0..3 {
                let found = cluster.read_snapshot(index, (NAME, "first"), offset, len).unwrap();
                assert!(found == expected, "{len} bytes at {offset} through node {}", index + 1);
            }
        }
        let whole = cluster.read_snapshot(2, (NAME, "1"), MIB / 2, SNAPSHOT_READ_BYTES_MAX).unwrap();
        let end = MIB / 2 + SNAPSHOT_READ_BYTES_MAX;
        assert!(whole == was[(MIB / 2) as usize..end as usize], "the longest range");
        stops.set(true);
        assert!(cluster.world.wait_for(host).unwrap() > 1000, "the host has written");
    });
}

#[test]
fn another_nodes_copy_is_read_if_the_own_one_lacks_the_snapshot() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Log, 2);
    cluster.write_values(0, vec![(0, 7), (300, 8)]);
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(5));
    cluster.take(0, &[NAME], "only-first").unwrap();
    cluster.start(1);
    cluster.wait_until_in_sync(0, 2);
    cluster.wait_until_all_serve();
    cluster.write_values(1, vec![(0, 9), (300, 9)]);
    let at = (NAME, "only-first");
    let found = cluster.read_snapshot(1, at, 0, 3 * MIB).unwrap();
    assert!(found == cluster.read_snapshot(0, at, 0, 3 * MIB).unwrap());
    assert_eq!(found[..BLOCK as usize], *block(7).contiguous());
    assert_eq!(found[300 * BLOCK as usize..301 * BLOCK as usize], *block(8).contiguous());
    let here = cluster.control(1, |control| async move {
        let at = VolumeAt { volume: NAME.into(), snapshot: "only-first".into() };
        control.read_snapshot_here(&at, ByteOffset(0), ByteLen(BLOCK)).await
    });
    let lacks =
        |nodes: &[(u16, CopyUnread)]| matches!(nodes, [(2, CopyUnread::Copy(SnapshotObstacle::Absent))]);
    assert!(matches!(&here, Err(ControlError::SnapshotUnread { nodes, .. }) if lacks(nodes)), "{here:?}");

    cluster.world.crash(cluster.servers[0]);
    cluster.world.run_for(Duration::from_secs(5));
    let lost = |nodes: &[(u16, CopyUnread)]| matches!(nodes, [(1, CopyUnread::Unreached)]);
    let refused = cluster.read_snapshot(1, at, 0, BLOCK);
    assert!(
        matches!(&refused, Err(ControlError::SnapshotUnread { nodes, .. }) if lost(nodes)),
        "{refused:?}"
    );
    cluster.start(0);
    cluster.wait_until_in_sync(1, 2);
    cluster.wait_until_all_serve();
    assert!(cluster.read_snapshot(1, at, 0, 3 * MIB).unwrap() == found);
}

#[test]
fn what_a_snapshot_does_not_have_is_refused() {
    let cluster = Cluster::new(1, 3, 2);
    cluster.add_volume(VolumeKind::Log, 2);
    cluster.add_other_volume();
    cluster.take(0, &[NAME], "first").unwrap();
    let size = Shape::thick().blocks() * BLOCK;
    for index in [0, 2] {
        assert!(cluster.read_snapshot(index, (NAME, "first"), size, 0).unwrap().is_empty());
        for (offset, len) in [(size, 1), (size - 1, 2), (u64::MAX, 1), (0, SNAPSHOT_READ_BYTES_MAX + 1)] {
            let refused = cluster.read_snapshot(index, (NAME, "first"), offset, len);
            assert!(matches!(refused, Err(ControlError::Invalid { .. })), "{refused:?}");
        }
        let refused = cluster.read_snapshot(index, (OTHER, "first"), 0, 1);
        assert!(matches!(refused, Err(ControlError::NotInSnapshot { .. })), "{refused:?}");
        for at in [("none", "first"), (NAME, "none")] {
            let refused = cluster.read_snapshot(index, at, 0, 1);
            assert!(matches!(refused, Err(ControlError::NotFound { .. })), "{refused:?}");
        }
    }
    cluster.delete_snapshot(0, "first").unwrap();
    cluster.world.run_for(Duration::from_secs(1));
    for index in [0, 2] {
        let refused = cluster.read_snapshot(index, (NAME, "1"), 0, 1);
        assert!(matches!(refused, Err(ControlError::NotFound { .. })), "{refused:?}");
    }
}
