//! Which nodes get the copies of a new volume: one without room is skipped, and an error says why.

use cluster::memory::Fault;
use node::control::{ControlError, NewVolume};
use node::copies::DeletedVolume;
use rt::sim::DiskLatency;

use super::*;

/// A volume of this many MiB, with copies.
fn new(name: &'static str, mib: u64, copies: Option<Placement>) -> NewVolume {
    let shape = Shape { name, ..Shape::thick() };
    NewVolume { size: base::ByteLen(mib * MIB), copies, ..new_volume(POOL, shape) }
}

impl Cluster {
    fn create(&self, index: usize, new: NewVolume) -> Result<(), String> {
        self.control(index, |control| async move {
            control.create_volume(new).await.map(drop).map_err(|error| error.to_string())
        })
    }

    /// The nodes on which the volume has copies.
    fn nodes_of(&self, name: &'static str) -> Vec<u16> {
        self.control(0, move |control| async move {
            let entry = control.volume_entry(name).unwrap();
            entry.copies.iter().map(|copy| copy.node).collect()
        })
    }
}

#[test]
fn a_node_without_room_is_passed_over() {
    let cluster = Cluster::new(1, 3, 2);
    // It has fewer copies than any other node, and almost no room.
    cluster.create(1, new("fills", 56, None)).unwrap();
    cluster.create(0, new("db", 8, Some(Placement::Count(2)))).unwrap();
    assert_eq!(cluster.nodes_of("db"), [1, 3]);
    // With a copy of "db" on node 3, node 2 has the fewest copies: it is asked, but does not qualify.
    cluster.create(0, new("mail", 8, Some(Placement::Default))).unwrap();
    assert_eq!(cluster.nodes_of("mail"), [1, 3]);
}

#[test]
fn where_too_few_have_room_each_says_why_and_nothing_is_left() {
    let cluster = Cluster::new(1, 3, 2);
    cluster.create(1, new("fills", 56, None)).unwrap();
    cluster.create(2, new("fills-too", 56, None)).unwrap();
    let error = cluster.create(0, new("db", 8, Some(Placement::Count(2)))).unwrap_err();
    for said in ["2 requested, 1 available", "node 2: ", "node 3: ", "free"] {
        assert!(error.contains(said), "{error}");
    }
    let left = cluster.control(0, |control| async move { control.volumes().await.len() });
    assert_eq!(left, 0, "the copy that was made is deleted again");
    // If nodes are named, none is replaced by another.
    let error = cluster.create(0, new("db", 8, Some(Placement::Nodes(vec![2, 1])))).unwrap_err();
    assert!(error.starts_with("node 2: ") && !error.contains("node 3"), "{error}");
}

#[test]
fn by_default_a_volume_of_a_cluster_has_two_copies() {
    let cluster = Cluster::new(1, 2, 1);
    cluster.create(0, new("db", 8, Some(Placement::Default))).unwrap();
    assert_eq!(cluster.nodes_of("db"), [1, 2]);
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(10));
    let error = cluster.create(0, new("mail", 8, Some(Placement::Default))).unwrap_err();
    assert!(error.contains("2 requested, 1 available"), "{error}");
    let ranking = cluster.control(0, |control| async move {
        control.check_volume(&new("mail", 8, Some(Placement::Default))).await
    });
    assert!(matches!(ranking, Err(ControlError::Copies { wanted: 2, there: 1, .. })));
    cluster.create(0, new("mail", 8, Some(Placement::Count(1)))).unwrap();
    assert_eq!(cluster.nodes_of("mail"), [1]);
}

impl Cluster {
    /// Number of copies that each node has in its pool, and that the record says that the volume has; `None`:
    /// it has no such volume.
    fn copies_kept(&self, name: &'static str) -> (Vec<usize>, Option<usize>) {
        let nodes = 0..self.servers.len();
        let volumes =
            nodes.map(|index| self.control(index, |control| async move { control.volumes().await.len() }));
        let entry = self.control(0, move |control| async move { control.volume_entry(name).ok() });
        (volumes.collect(), entry.map(|entry| entry.copies.len()))
    }
}

/// The record has the volume, or never will: its copies exist, or are deleted. They must not be deleted if
/// the volume is in the record in the end.
#[test]
fn a_volume_whose_record_was_not_answered_for_has_its_copies() {
    for (fault, another) in
        [(Fault::AnswersLost, false), (Fault::Unreachable, false), (Fault::Unreachable, true)]
    {
        let cluster = Cluster::new(1, 2, 1);
        let node = cluster::NodeId::new(1).unwrap();
        cluster.record.begin(node, fault);
        let made = cluster.world.spawn_on(cluster.servers[0], CoreId(0), || async {
            Control::current().create_volume(new("db", 8, Some(Placement::Count(2)))).await.map(drop)
        });
        cluster.world.run_for(Duration::from_secs(20));
        if another {
            // It draws the same number as the first one, whose transaction comes too late then.
            cluster.create(1, new("mail", 4, Some(Placement::Nodes(vec![2])))).unwrap();
        }
        cluster.record.end(node, fault);
        let made = cluster.world.wait_for(made).unwrap();
        cluster.world.run_for(Duration::from_secs(5));
        let expected = if another { (vec![0, 1], None) } else { (vec![1, 1], Some(2)) };
        assert_eq!(cluster.copies_kept("db"), expected, "{fault:?}: {made:?}");
        assert_eq!(made.is_ok(), !another, "{fault:?}: {made:?}");
    }
}

/// The node gives up the creation. The copies are deleted, the late one when it has been created.
#[test]
fn a_copy_that_is_created_too_late_is_deleted() {
    for seconds in [35, 100] {
        let cluster = Cluster::new(1, 2, 1);
        let slow = Duration::from_secs(seconds)..Duration::from_secs(seconds + 1);
        let slow = DiskLatency { write: slow, ..DiskLatency::default() };
        cluster.world.set_disk_latency(cluster.servers[1], DISK, slow);
        let made = cluster.world.spawn_on(cluster.servers[0], CoreId(0), || async {
            Control::current().create_volume(new("db", 8, Some(Placement::Nodes(vec![1, 2])))).await.map(drop)
        });
        cluster.world.run_for(Duration::from_secs(1));
        cluster.world.set_disk_latency(cluster.servers[1], DISK, DiskLatency::default());
        cluster.world.wait_for(made).unwrap().unwrap_err();
        cluster.world.run_for(Duration::from_secs(seconds));
        assert_eq!(cluster.copies_kept("db"), (vec![0, 0], None), "{seconds} seconds");
    }
}

/// A node gives up the creation while the node with the first copy is down: it cannot be asked to delete the
/// copy, and finds in the record that it has to.
#[test]
fn a_copy_of_a_volume_that_was_not_created_is_deleted_by_a_node_that_was_down() {
    let cluster = Cluster::new(1, 3, 1);
    let slow = Duration::from_secs(40)..Duration::from_secs(41);
    let slow = DiskLatency { write: slow, ..DiskLatency::default() };
    cluster.world.set_disk_latency(cluster.servers[2], DISK, slow);
    let made = cluster.world.spawn_on(cluster.servers[0], CoreId(0), || async {
        Control::current().create_volume(new("db", 8, Some(Placement::Nodes(vec![2, 3])))).await.map(drop)
    });
    cluster.world.run_for(Duration::from_secs(2));
    assert_eq!(cluster.copies_kept("db"), (vec![0, 1, 0], None), "the third node does not answer");
    cluster.world.crash(cluster.servers[1]);
    cluster.world.set_disk_latency(cluster.servers[2], DISK, DiskLatency::default());
    cluster.world.wait_for(made).unwrap().unwrap_err();
    cluster.start(1);
    cluster.world.run_for(Duration::from_secs(60));
    assert_eq!(cluster.copies_kept("db"), (vec![0, 0, 0], None));
    let noted = cluster.control(0, |control| async move {
        control.reconciler().unwrap().list::<DeletedVolume>("deleted-volume/")
    });
    assert!(noted.is_empty(), "it is not remembered forever: {noted:?}");
}
