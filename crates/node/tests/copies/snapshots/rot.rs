//! Blocks that only snapshots have, and that have rotted on one node's disk.

use super::*;
use crate::bad_blocks::marked;

/// What a node reports about such blocks.
const FOUND: [&str; 2] = ["read_failed", "block_repaired"];

impl Cluster {
    /// A log volume, in which a snapshot has these blocks with [`marked`] values.
    fn with_past(seed: u64, copies: u8, lbas: [u64; 2]) -> Cluster {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Log, copies);
        cluster.write_marked(lbas);
        cluster.take(0, &[NAME], "before").unwrap();
        // The other node hears of it in a moment.
        cluster.world.run_for(Duration::from_millis(500));
        cluster
    }

    /// Writes something else to these blocks.
    fn overwrite(&self, lbas: [u64; 2]) {
        let (client, portal) = (self.client("other"), self.portal(0));
        self.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "other").await.unwrap();
            for lba in lbas {
                write(&session, lba, 1).await.unwrap();
            }
        });
        self.world.run_for(Duration::from_millis(500));
    }

    /// The texts of what a node has reported since the last call: bad blocks, and repaired ones.
    fn told_of_rot(&self, index: usize) -> (Vec<String>, usize) {
        let told = self.told_of(index, &FOUND);
        let (failed, repaired): (Vec<_>, Vec<_>) =
            told.into_iter().partition(|event| event.code.as_str() == FOUND[0]);
        (failed.into_iter().map(|event| event.text).collect(), repaired.len())
    }
}

/// Before, a scrub read of snapshots only the map, and rot showed when somebody restored one.
#[test]
fn a_scrub_repairs_what_only_a_snapshot_has_from_the_other_copy() {
    each_seed(3, |seed| {
        let cluster = Cluster::with_past(seed, 2, [3, 700]);
        cluster.overwrite([3, 700]);
        let before = cluster.content(1, "before");
        assert_eq!(cluster.content(0, "before"), before);
        assert_eq!(cluster.scrub(0).found.bad, 0);
        cluster.rot(0, [3, 700]);
        cluster.told_of_rot(0);
        let scrub = cluster.scrub(0);
        assert_eq!((scrub.found.bad, scrub.found.repaired, scrub.found.first), (2, 2, None), "{scrub:?}");
        let (failed, repaired) = cluster.told_of_rot(0);
        assert_eq!((failed.len(), repaired), (2, 2));
        assert!(failed.iter().all(|text| text.ends_with("in snapshot before")), "{failed:?}");
        assert_eq!(cluster.content(0, "before"), before);
        assert_eq!(cluster.scrub(0).found.bad, 0);
        assert_eq!(cluster.told_of_rot(0), (vec![], 0), "it is reported once");
        assert_eq!(cluster.in_sync(0), 2, "no copy leaves for that");
        // The volume has what was written since.
        assert_eq!(cluster.read_all(0, [3, 700]), [Ok(1), Ok(1)]);
    });
}

#[test]
fn what_no_other_copy_has_of_a_snapshot_is_reported_until_the_snapshot_is_deleted() {
    let cluster = Cluster::with_past(1, 1, [3, 700]);
    cluster.overwrite([3, 700]);
    cluster.rot(0, [700]);
    let found = cluster.scrub(0).found;
    assert_eq!((found.bad, found.repaired, found.first, found.of_snapshots), (1, 0, Some(700), 1));
    assert_eq!(cluster.unrepaired(0), [(1, 700)]);
    let (failed, repaired) = cluster.told_of_rot(0);
    assert_eq!((failed.len(), repaired), (1, 0), "{failed:?}");
    assert_eq!(cluster.read_all(0, [3, 700]), [Ok(1), Ok(1)], "hosts do not notice");
    cluster.control(0, |control| async move { control.delete_snapshot("before").await.unwrap() });
    cluster.world.run_for(Duration::from_secs(10));
    assert_eq!(cluster.scrub(0).found.bad, 0);
    assert!(cluster.unrepaired(0).is_empty());
}

/// A snapshot keeps what the repair after a host's read replaces.
#[test]
fn a_repair_after_a_read_repairs_the_snapshot_too() {
    let cluster = Cluster::with_past(1, 2, [3, 700]);
    let before = cluster.content(1, "before");
    cluster.rot(0, [3]);
    cluster.assert_reads(0, [3]);
    // A look at what was noted comes every 20 s.
    cluster.world.run_for(Duration::from_secs(45));
    assert_eq!(cluster.content(0, "before"), before);
    assert_eq!(cluster.read_all(0, [3]), [Ok(marked(3))]);
    assert_eq!(cluster.scrub(0).found.bad, 0);
    assert_eq!(cluster.in_sync(0), 2);
}
