//! Clones: volumes that begin as a snapshot on all copies that have it, and then differ from it; what they
//! keep from being deleted; and nothing is left of them if their node is lost.

use std::ops::Range;

use node::control::{AddedCopy, ClonesCreated, ClonesSpec};
use node::copies::{CLONES_AT_ONCE, NEW_CLONES, NewClones, StandingEntry};

use super::*;

const BLOCKS: Range<u64> = 0..8;
const CLONE: &str = "test";

fn spec(name: &str, count: Option<u16>, copies: Placement) -> ClonesSpec {
    ClonesSpec { snapshot: "first".into(), volume: None, name: name.into(), count, copies }
}

impl Cluster {
    /// Two nodes with a log volume; snapshot "first" has 1 in the first blocks, and the volume has 2.
    fn with_snapshot(seed: u64, nodes: usize) -> Cluster {
        let cluster = Cluster::new(seed, nodes, 2);
        cluster.add_volume(VolumeKind::Log, 2);
        cluster.fill(0, BLOCKS, 1);
        cluster.take(0, &[NAME], "first").unwrap();
        cluster.fill(1, BLOCKS, 2);
        cluster
    }

    fn clone_first(&self, index: usize, spec: ClonesSpec) -> Result<ClonesCreated, ControlError> {
        self.control(index, move |control| async move { control.create_clones(spec).await })
    }

    /// Maps a clone through a node that has a copy, and waits until all nodes show that.
    fn map_clone(&self, index: usize, name: &'static str) {
        self.control(index, move |control| async move { map(&control, name, OTHER_LUN.0).await.unwrap() });
        self.world.run_for(Duration::from_secs(2));
    }

    /// The values of blocks of the clone that is mapped, read through a node.
    fn of_clone(&self, index: usize, blocks: Range<u64>) -> Vec<u64> {
        let (client, portal) = (self.client("reader of the clone"), self.portal(index));
        self.world.block_on(client, CoreId(0), move || async move {
            let session = log_in_at_last(portal).await;
            while session.make_ready(OTHER_LUN).await.is_err() {
                rt::sleep(Duration::from_millis(100)).await;
            }
            let mut values = Vec::new();
            for lba in blocks {
                let read = async || session.read(OTHER_LUN, Lba(lba), BlockCount(1), SIZE).await;
                let data = attended(read).await.unwrap().to_vec();
                values.push(u64::from_le_bytes(data[..8].try_into().unwrap()));
            }
            values
        })
    }

    /// Writes a block of the clone that is mapped, through a node.
    fn write_clone(&self, index: usize, lba: u64, value: u64) {
        let (client, portal) = (self.client("writer of the clone"), self.portal(index));
        self.world.block_on(client, CoreId(0), move || async move {
            let session = log_in_at_last(portal).await;
            while session.make_ready(OTHER_LUN).await.is_err() {
                rt::sleep(Duration::from_millis(100)).await;
            }
            let write = async || session.write(OTHER_LUN, Lba(lba), block(value), SIZE).await;
            attended(write).await.unwrap();
            attended(async || session.flush(OTHER_LUN).await).await.unwrap();
        });
    }

    fn entry_of(&self, index: usize, name: &'static str) -> Option<VolumeEntry> {
        self.control(index, move |control| async move {
            control.reconciler().unwrap().volume_named(name).map(|volume| volume.entry)
        })
    }

    /// The nodes with copies of the clone that are read through the snapshot.
    fn read_through(&self, index: usize) -> Vec<u16> {
        let entry = self.entry_of(index, CLONE).unwrap();
        entry.reads().map(|(_, copies)| copies.iter().map(|copy| copy.node).collect()).unwrap_or_default()
    }

    /// How many volumes a node's pool has.
    fn volumes_in_pool(&self, index: usize) -> usize {
        self.control(index, |control| async move { control.volumes().await.len() })
    }

    fn delete_clone(&self, index: usize, name: &'static str) {
        self.control(index, move |control| async move { control.delete_volume(name, true).await.unwrap() });
    }

    fn remove_copy_of(&self, index: usize, name: &'static str, node: u16) -> Result<bool, ControlError> {
        self.control(index, move |control| async move { control.remove_copy(name, node).await })
    }

    /// Deletes the snapshot, and waits until no pool has it.
    fn delete_first(&self) {
        self.delete_snapshot(0, "first").unwrap();
        self.world.run_for(Duration::from_secs(10));
        assert!(self.snapshots(0).is_empty(), "a copy still has it");
        assert_eq!(self.snapshots_in_pool(0) + self.snapshots_in_pool(1), 0);
    }

    fn restart_all(&self) {
        for server in &self.servers {
            self.world.crash(*server);
        }
        for index in 0..self.servers.len() {
            drop(self.begin_start(index));
        }
        self.world.run_for(Duration::from_secs(5));
        self.wait_until_all_serve();
        self.wait_until_in_sync(0, 2);
    }
}

#[test]
fn a_clone_begins_as_the_snapshot_on_all_copies_and_goes_its_own_way() {
    each_seed(3, |seed| {
        let cluster = Cluster::with_snapshot(seed, 2);
        let created = cluster.clone_first(1, spec(CLONE, None, Placement::Default)).unwrap();
        assert_eq!((created.snapshot.as_str(), created.volume.as_str()), ("first", NAME));
        // Nothing but the extent of its dirty map.
        assert_eq!((created.clones[0].0.as_str(), created.used), (CLONE, Some(1 << 20)));
        cluster.map_clone(0, CLONE);
        for index in 0..2 {
            assert_eq!(cluster.of_clone(index, BLOCKS), [1; 8], "through node {}", index + 1);
        }
        cluster.write_clone(0, 1, 9);
        cluster.fill(1, 5..6, 3);
        let check = || {
            for index in 0..2 {
                assert_eq!(cluster.of_clone(index, BLOCKS), [1, 9, 1, 1, 1, 1, 1, 1]);
                assert_eq!(cluster.holds(index, 0..3), [2], "what was written to the clone shows");
                assert_eq!(cluster.holds(index, 5..6), [3]);
                assert_eq!(cluster.snapshot_block(index, "first", NAME), 1);
            }
        };
        check();
        let shown = cluster.control(1, |control| async move {
            control.reconciler().unwrap().volume_named(CLONE).unwrap().clone_of.unwrap()
        });
        assert_eq!((shown.volume.as_str(), shown.snapshot.as_str()), (NAME, "first"));
        cluster.restart_all();
        check();

        let refused = cluster.delete_snapshot(0, "first");
        assert!(matches!(&refused, Err(ControlError::SnapshotHasClones { count: 1, .. })), "{refused:?}");
        let refused = cluster.control(0, |control| async move { control.delete_volume(NAME, true).await });
        assert!(matches!(&refused, Err(ControlError::HasSnapshots { .. })), "{refused:?}");
        let refused = cluster.remove_copy_of(0, NAME, 2);
        let is_read =
            matches!(&refused, Err(ControlError::ReadByClone { node: 2, clone, .. }) if clone == CLONE);
        assert!(is_read, "{refused:?}");
        cluster.delete_clone(0, CLONE);
        cluster.delete_first();
        assert_eq!([0, 1].map(|index| cluster.volumes_in_pool(index)), [1, 1]);
    });
}

/// More than one change of the record creates, through a node without a copy.
#[test]
fn many_clones_are_created_at_once() {
    let cluster = Cluster::with_snapshot(1, 3);
    let count = CLONES_AT_ONCE as u16 + 8;
    let created = cluster.clone_first(2, spec("vm", Some(count), Placement::Nodes(vec![2]))).unwrap();
    assert_eq!((created.clones.len(), created.used), (usize::from(count), None));
    let names: Vec<&str> = created.clones.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((names[0], names[39]), ("vm-1", "vm-40"));
    cluster.world.run_for(Duration::from_secs(2));
    assert_eq!([0, 1].map(|index| cluster.volumes_in_pool(index)), [1, 41]);
    cluster.map_clone(1, "vm-40");
    assert_eq!(cluster.of_clone(1, BLOCKS), [1; 8]);
    let refused = cluster.delete_snapshot(2, "first");
    assert!(matches!(&refused, Err(ControlError::SnapshotHasClones { count: 40, .. })), "{refused:?}");

    // A name is taken.
    let refused = cluster.clone_first(0, spec("vm", Some(41), Placement::Default));
    assert!(matches!(&refused, Err(ControlError::Exists { .. })), "{refused:?}");
    let refused = cluster.clone_first(0, spec("none", Some(0), Placement::Default));
    assert!(matches!(&refused, Err(ControlError::Invalid { field: "count", .. })), "{refused:?}");
    let refused = cluster.clone_first(0, spec("elsewhere", None, Placement::Nodes(vec![3])));
    let is_absent = matches!(
        &refused,
        Err(ControlError::NotCloned { node: Some(3), obstacle: SnapshotObstacle::Absent, .. })
    );
    assert!(is_absent, "{refused:?}");
    assert_eq!([0, 1].map(|index| cluster.volumes_in_pool(index)), [1, 41]);
}

/// A copy that is added later has everything itself. When no other is left, the snapshot can go.
#[test]
fn a_clone_that_was_created_while_a_node_was_down_gets_copies_of_its_own() {
    let cluster = Cluster::with_snapshot(1, 2);
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(5));
    let refused = cluster.clone_first(0, spec(CLONE, None, Placement::Default));
    assert!(matches!(&refused, Err(ControlError::Copies { wanted: 2, there: 1, .. })), "{refused:?}");
    cluster.clone_first(0, spec(CLONE, None, Placement::Count(1))).unwrap();
    cluster.start(1);
    cluster.wait_until_all_serve();
    cluster.wait_until_in_sync(0, 2);
    let added = AddedCopy { node: 2, pool: None, instead_of: None };
    cluster.control(0, move |control| async move { control.add_copy(CLONE, added).await.unwrap() });
    let is_in_sync = || {
        let copies = cluster.entry_of(0, CLONE).unwrap().copies;
        copies.len() == 2 && copies.iter().all(|copy| copy.standing == StandingEntry::InSync)
    };
    for _ in 0..600 {
        if is_in_sync() {
            break;
        }
        cluster.world.run_for(Duration::from_millis(100));
    }
    assert!(is_in_sync());
    assert_eq!(cluster.read_through(0), [1]);
    cluster.map_clone(0, CLONE);
    for index in 0..2 {
        assert_eq!(cluster.of_clone(index, BLOCKS), [1; 8], "through node {}", index + 1);
    }
    let refused = cluster.remove_copy_of(0, NAME, 1);
    assert!(matches!(&refused, Err(ControlError::ReadByClone { node: 1, .. })), "{refused:?}");
    assert!(cluster.remove_copy_of(0, CLONE, 1).unwrap());
    cluster.delete_first();
    assert_eq!(cluster.of_clone(1, BLOCKS), [1; 8]);
}

/// Once a clone is thick, it needs nothing of the snapshot.
#[test]
fn a_clone_that_is_converted_is_none_any_more() {
    let cluster = Cluster::with_snapshot(1, 2);
    cluster.clone_first(0, spec(CLONE, None, Placement::Default)).unwrap();
    assert_eq!(cluster.read_through(0).len(), 2);
    cluster.control(0, |control| async move {
        control.convert_volume(CLONE, VolumeKind::Thick).await.map(drop).unwrap();
    });
    for _ in 0..600 {
        if cluster.read_through(0).is_empty() {
            break;
        }
        cluster.world.run_for(Duration::from_millis(100));
    }
    assert!(cluster.read_through(0).is_empty());
    cluster.delete_first();
    cluster.map_clone(0, CLONE);
    assert_eq!(cluster.of_clone(1, BLOCKS), [1; 8]);
}

/// Creates clones, and crashes a node at some moment: afterwards all of them exist, or none, in the record
/// and in pools.
fn crash_while_cloning(seed: u64) {
    let mut rng = Rng::new(seed);
    let cluster = Cluster::with_snapshot(seed, 2);
    let answer = Rc::new(Cell::new(None));
    let told = Rc::clone(&answer);
    drop(cluster.world.spawn_on(cluster.servers[0], CoreId(0), move || async move {
        let created = Control::current().create_clones(spec(CLONE, Some(3), Placement::Default)).await;
        // If the record did not answer, they may have been created all the same.
        let is_open = matches!(created, Err(ControlError::Cluster(_) | ControlError::Unfinished(_)));
        told.set((!is_open).then_some(created.is_ok()));
    }));
    cluster.crash_one_within(&mut rng, Duration::from_millis(40));
    cluster.world.run_for(Duration::from_secs(60));
    let names = |index| {
        let names = cluster.control(index, |control| async move { control.volume_names().await });
        let mut names: Vec<String> = names.into_values().filter(|name| name != NAME).collect();
        names.sort();
        names
    };
    let begun = cluster.control(0, |control| async move {
        control.reconciler().unwrap().list::<NewClones>(NEW_CLONES).len()
    });
    assert_eq!(begun, 0, "nobody gives them up");
    assert_eq!(names(0), names(1));
    let in_pools = [0, 1].map(|index| cluster.volumes_in_pool(index));
    match names(0).len() {
        0 => {
            assert_eq!((answer.get().unwrap_or(false), in_pools), (false, [1, 1]));
            cluster.delete_first();
        }
        3 => {
            assert_ne!(answer.get(), Some(false), "they were refused, and exist");
            assert_eq!(in_pools, [4, 4]);
            cluster.map_clone(0, "test-3");
            for index in 0..2 {
                assert_eq!(cluster.of_clone(index, BLOCKS), [1; 8], "through node {}", index + 1);
            }
        }
        count => panic!("{count} of 3 clones exist"),
    }
}

#[test]
fn a_crash_leaves_all_clones_or_none() {
    each_seed(24, crash_while_cloning);
}

/// Any node gives up the clones of a life that is over.
#[test]
fn clones_of_a_lost_node_are_given_up() {
    let cluster = Cluster::with_snapshot(1, 2);
    let new = cluster.control(0, |control| async move {
        let reconciler = control.reconciler().unwrap();
        let volume = reconciler.volume_named(NAME).unwrap().entry;
        let snapshot = control.snapshot("first").unwrap().entry.number;
        let new = NewClones {
            of: node::copies::Origin {
                volume: volume.id,
                snapshot: node::copies::pool_number(reconciler.cluster(), snapshot),
            },
            first: 700,
            node: 1,
            incarnation: 0,
            clones: vec![node::copies::NewClone {
                id: node::VolumeId([7; 16]).to_string(),
                name: CLONE.into(),
            }],
            nodes: vec![1, 2],
        };
        let transaction = Reconciler::transaction().put(&new.key(), json(&new));
        reconciler.commit(transaction).await.unwrap();
        new
    });
    // The node that has written them knows of them.
    let is_given_up = || {
        let key = new.key();
        cluster.control(0, move |control| async move {
            control.reconciler().unwrap().get::<NewClones>(&key).is_none()
        })
    };
    for _ in 0..100 {
        if is_given_up() {
            break;
        }
        cluster.world.run_for(Duration::from_millis(100));
    }
    assert!(is_given_up());
    cluster.world.run_for(Duration::from_secs(5));
    cluster.delete_first();
}
