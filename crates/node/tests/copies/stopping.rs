//! Nodes that are stopped on purpose: one for maintenance, or all for the night.

use node::Handle;
use node::control::ControlError;
use rt::sim::NodeStatus;

use super::*;

impl Cluster {
    fn maintain(&self, asked: usize, node: u16, on: bool) -> Result<bool, ControlError> {
        self.control(asked, move |control| async move { control.maintain_node(node, on).await })
    }

    /// Stops these nodes as a service manager does, at the same time.
    pub(super) fn stop(&self, indices: &[usize]) {
        let handles: Vec<Handle> =
            indices.iter().map(|index| Handle::new(self.world.handle(self.servers[*index]))).collect();
        self.world.wait_for(rt::join_all(handles.iter().map(Handle::drain)));
        let ended =
            || indices.iter().all(|index| self.world.status(self.servers[*index]) == NodeStatus::Ended);
        assert!(self.world.run_until(ended, Duration::from_secs(5)), "the nodes end");
    }

    /// Number of regions for which a node's copies say that another copy may differ.
    pub(super) fn dirty_regions(&self, index: usize) -> usize {
        let cores = (0..self.cores).map(|core| {
            self.world.block_on(self.servers[index], CoreId(core as u16), || async {
                let slices = node::copies::Copies::current().slices();
                slices.iter().map(|slice| slice.dirty_regions()).sum::<usize>()
            })
        });
        cores.sum()
    }

    /// Writes blocks of one volume through a node, one after the other, until it is cut off.
    ///
    /// Returns the longest time of a write.
    pub(super) fn keep_writing(&self, name: &'static str, through: usize) -> Rc<Cell<Duration>> {
        let (client, portal) = (self.client(name), self.portal(through));
        let longest = Rc::new(Cell::new(Duration::ZERO));
        let told = Rc::clone(&longest);
        drop(self.world.spawn_on(client, CoreId(0), move || async move {
            let session = log_in(portal, name).await.expect("it serves");
            for value in 0.. {
                let began = rt::now();
                if write(&session, value * 7 % 2048, value).await.is_err() {
                    return;
                }
                told.set(told.get().max(rt::now() - began));
            }
        }));
        longest
    }
}

#[test]
fn a_node_in_maintenance_is_stopped_without_a_stall() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        let longest = cluster.keep_writing("writer", 0);
        cluster.world.run_for(Duration::from_secs(1));
        assert!(cluster.maintain(2, 2, true).unwrap(), "its copy leaves at once");
        assert_eq!(cluster.in_sync(0), 1);
        let refused = cluster.maintain(2, 1, true);
        assert!(matches!(refused, Err(ControlError::OnlyInSync { node: 1, .. })), "{refused:?}");
        cluster.world.run_for(Duration::from_secs(2));
        assert_eq!(cluster.in_sync(0), 1, "and does not return by itself");
        cluster.stop(&[1]);
        cluster.world.run_for(Duration::from_secs(2));
        cluster.start(1);
        cluster.world.run_for(Duration::from_secs(3));
        assert_eq!(cluster.in_sync(0), 1, "neither when its node is back");
        // A change of the record takes this long, and the two heartbeats by which each node learns that the
        // other acts on it; a lost node would cost a second.
        assert!(longest.get() < Duration::from_millis(400), "a write took {:?}", longest.get());
        assert!(cluster.maintain(0, 2, false).unwrap());
        cluster.wait_until_in_sync(0, 2);
    });
}

/// After a black-out recent writes are copied; after an orderly stop nothing is.
///
/// Hosts have stopped before: a node may miss a write that is on its way to it when it stops.
#[test]
fn nothing_is_copied_after_all_nodes_were_stopped() {
    each_seed(6, |seed| {
        let nodes = 2 + seed as usize % 2;
        let cluster = Cluster::new(seed, nodes, 2);
        cluster.add_volume(VolumeKind::Thick, nodes as u8);
        let written = Rc::new(Cell::new(0));
        for (index, name) in ["writer-a", "writer-b", "writer-c"].into_iter().enumerate().take(nodes) {
            let (client, portal, written) =
                (cluster.client(name), cluster.portal(index), Rc::clone(&written));
            drop(cluster.world.spawn_on(client, CoreId(0), move || async move {
                let session = log_in(portal, name).await.expect("it serves");
                for value in 0..400 {
                    write(&session, value * 7 % 2048, value).await.expect("nothing fails");
                }
                written.set(written.get() + 1);
            }));
        }
        assert!(cluster.world.run_until(|| written.get() == nodes, Duration::from_secs(4)), "all is written");
        assert!(cluster.dirty_regions(0) > 0, "of what was written lately it is not noted that all have it");
        let all: Vec<usize> = (0..nodes).collect();
        cluster.stop(&all);
        all.iter().for_each(|index| cluster.start(*index));
        let dirty: Vec<usize> = all.iter().map(|index| cluster.dirty_regions(*index)).collect();
        assert_eq!(dirty, vec![0; nodes], "seed {seed}");
        cluster.world.run_for(Duration::from_secs(3));
        cluster.wait_until_in_sync(0, nodes);
        for index in 1..nodes {
            assert_eq!(cluster.checksum(0), cluster.checksum(index));
        }
    });
}

/// The node waits for that on a core which wakes anyway, instead of asking the core again and again.
#[test]
fn a_watcher_is_told_again_only_when_there_is_something_else_to_tell() {
    let cluster = Cluster::new(1, 3, 1);
    cluster.world.run_for(Duration::from_secs(5));
    let handoff = cluster.control(0, |control| control.next_handoff(None)).expect("it is in a cluster");
    let known = Some(handoff.clone());
    let same = cluster.control(0, |control| async move {
        rt::timeout(Duration::from_secs(3), control.next_handoff(known)).await
    });
    assert_eq!(same, Err(rt::Elapsed), "it waits as long as there is nothing else to tell");
    let told = cluster.control(0, |control| control.next_handoff(None));
    assert_eq!(told, Some(handoff));
}
