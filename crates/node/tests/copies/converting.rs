//! Volumes that are converted to another kind while a host writes, and nodes are lost.

use super::set_back::log_in_at_last;
use super::*;

use node::control::{AddedCopy, EndedWork};
use rt::sim::DiskLatency;

const NAME: &str = Shape::thick().name;
const SECOND_DISK: &str = "/dev/second";
/// The blocks that the host writes again and again.
const BLOCKS: u64 = 1500;

/// What the host has written.
#[derive(Default)]
struct Written {
    /// The number last written to each block.
    acked: RefCell<BTreeMap<u64, u64>>,
    stops: Cell<bool>,
    has_stopped: Cell<bool>,
}

/// Writes until it is to stop, each block until that succeeds.
async fn write_on(portal: SocketAddr, written: Rc<Written>) {
    let mut session = log_in_at_last(portal).await;
    let mut number = 0;
    while !written.stops.get() {
        number += 1;
        let lba = number * 7 % BLOCKS;
        while write_durably(&session, lba, number).await.is_err() {
            rt::sleep(Duration::from_millis(100)).await;
            session = log_in_at_last(portal).await;
        }
        written.acked.borrow_mut().insert(lba, number);
        rt::sleep(Duration::from_millis(1)).await;
    }
    written.has_stopped.set(true);
}

impl Cluster {
    fn start_writing(&self, portal: SocketAddr) -> Rc<Written> {
        let (client, written) = (self.client("writer"), Rc::new(Written::default()));
        let noted = Rc::clone(&written);
        drop(self.world.spawn_on(client, CoreId(0), move || write_on(portal, noted)));
        written
    }

    fn stop_writing(&self, written: &Written) {
        written.stops.set(true);
        assert!(self.world.run_until(|| written.has_stopped.get(), Duration::from_secs(60)), "a write hangs");
    }

    fn convert(&self, index: usize, kind: VolumeKind) {
        self.control(index, move |control| async move {
            control.convert_volume(NAME, kind).await.unwrap();
        });
    }

    fn free(&self, index: usize) -> base::ByteLen {
        self.control(index, |control| async move { control.pool(POOL).unwrap().state.unwrap().usage.free })
    }

    fn is_of_its_kind(&self, index: usize) -> bool {
        self.control(index, |control| async move { control.is_of_its_kind(NAME).unwrap_or(false) })
    }

    fn kinds_of_copy(&self, index: usize) -> (VolumeKind, Option<VolumeKind>) {
        self.control(index, |control| async move { control.kinds_of_copy(NAME).unwrap() })
    }

    fn wait_until_converted(&self) {
        for _ in 0..600 {
            if (0..self.servers.len()).all(|index| self.is_of_its_kind(index)) {
                return;
            }
            self.world.run_for(Duration::from_millis(100));
        }
        let all = (0..self.servers.len()).map(|index| {
            self.control(index, |control| async move { format!("{:?}", control.conversions()) })
        });
        panic!("not converted after a minute: {:?}", all.collect::<Vec<_>>());
    }

    /// Checks what a node reads.
    fn assert_reads_back(&self, index: usize, written: &Written) {
        let (client, portal) = (self.client("reader"), self.portal(index));
        let acked = written.acked.borrow().clone();
        assert!(acked.len() > 50, "only {} blocks were written", acked.len());
        self.world.block_on(client, CoreId(0), move || async move {
            let session = log_in_at_last(portal).await;
            for (lba, number) in acked {
                assert_eq!(read(&session, lba).await.unwrap(), number, "block {lba}");
            }
        });
    }
}

fn other(kind: VolumeKind) -> VolumeKind {
    kind.other().expect("it is on a disk")
}

/// Nodes that have a volume of this kind, with a copy on each, and a host that has been writing to it for a
/// second.
fn in_use(seed: u64, nodes: u8, kind: VolumeKind) -> (Cluster, Rc<Written>) {
    let cluster = Cluster::new(seed, nodes.into(), 2);
    cluster.add_shaped(Shape { kind, ..Shape::thick() }, nodes);
    let written = cluster.start_writing(cluster.portal(0));
    cluster.world.run_for(Duration::from_secs(1));
    (cluster, written)
}

#[test]
fn both_copies_are_converted_while_a_host_writes_and_neither_leaves() {
    for from in [VolumeKind::Thick, VolumeKind::Log] {
        each_seed(2, |seed| {
            let (cluster, written) = in_use(seed, 2, from);
            cluster.convert(1, other(from));
            assert_eq!(cluster.kinds_of_copy(1), (from, Some(other(from))), "it takes a moment");
            assert!(!cluster.is_of_its_kind(1));
            cluster.wait_until_converted();
            assert_eq!(cluster.in_sync(0), 2);
            cluster.world.run_for(Duration::from_secs(1));
            cluster.stop_writing(&written);
            for index in 0..2 {
                cluster.assert_reads_back(index, &written);
                assert_eq!(cluster.kinds_of_copy(index), (other(from), None));
                let told =
                    cluster.told_of(index, &["conversion_started", "volume_converted", "copy_out_of_sync"]);
                let codes: Vec<&str> = told.iter().map(|event| event.code.as_str()).collect();
                assert_eq!(codes, ["conversion_started", "volume_converted"], "node {index}");
                let ended = cluster.control(index, |control| async move { control.ended_jobs() });
                assert!(ended.iter().any(|(_, job)| matches!(job.work, EndedWork::Conversion { .. })));
            }
            // A copy that is added now is of the new kind, and the volume can grow again.
            cluster.control(0, |control| async move {
                control.grow_volume(NAME, base::ByteLen(9 * MIB)).await.unwrap();
            });
        });
    }
}

/// In a small pool, the stripe units of thick volumes are smaller than those of logs.
#[test]
fn a_copy_that_is_added_to_a_converted_volume_is_striped_like_the_others() {
    for from in [VolumeKind::Thick, VolumeKind::Log] {
        each_seed(2, |seed| {
            let cluster = Cluster::new(seed, 2, 2);
            cluster.add_shaped(Shape { kind: from, ..Shape::thick() }, 1);
            let written = cluster.start_writing(cluster.portal(0));
            cluster.convert(0, other(from));
            let is_converted = || cluster.kinds_of_copy(0) == (other(from), None);
            assert!(cluster.world.run_until(is_converted, Duration::from_secs(60)), "it is not converted");
            let added = AddedCopy { node: 2, pool: None, instead_of: None };
            cluster.control(0, |control| async move { control.add_copy(NAME, added).await }).unwrap();
            let is_in_sync = || cluster.in_sync(0) == 2;
            assert!(cluster.world.run_until(is_in_sync, Duration::from_secs(60)), "no copy is added");
            cluster.stop_writing(&written);
            cluster.world.run_for(Duration::from_secs(1));
            assert_eq!(cluster.checksum(0), cluster.checksum(1));
            cluster.assert_reads_back(1, &written);
        });
    }
}

#[test]
fn a_node_that_is_lost_in_the_middle_continues_when_it_is_back() {
    for from in [VolumeKind::Thick, VolumeKind::Log] {
        each_seed(4, |seed| {
            let (cluster, written) = in_use(seed, 2, from);
            cluster.convert(0, other(from));
            // The other node begins within a second.
            cluster.world.run_for(Duration::from_millis(500 * seed));
            if seed % 2 == 0 {
                cluster.world.kill(cluster.servers[1]);
            } else {
                cluster.world.crash(cluster.servers[1]);
            }
            cluster.world.run_for(Duration::from_secs(5));
            cluster.start(1);
            cluster.wait_until_in_sync(0, 2);
            cluster.wait_until_converted();
            cluster.stop_writing(&written);
            cluster.wait_until_all_serve();
            (0..2).for_each(|index| cluster.assert_reads_back(index, &written));
        });
    }
}

#[test]
fn the_only_copy_is_converted_across_power_cuts() {
    for from in [VolumeKind::Thick, VolumeKind::Log] {
        each_seed(4, |seed| {
            let (cluster, written) = in_use(seed, 1, from);
            cluster.convert(0, other(from));
            for _ in 0..2 {
                cluster.world.run_for(Duration::from_millis(300 * seed));
                cluster.world.crash(cluster.servers[0]);
                cluster.world.run_for(Duration::from_millis(200));
                cluster.start(0);
            }
            cluster.world.run_for(Duration::from_secs(2));
            cluster.wait_until_converted();
            cluster.stop_writing(&written);
            cluster.assert_reads_back(0, &written);
        });
    }
}

#[test]
fn a_conversion_that_is_cancelled_leaves_the_volume_as_it_was() {
    for from in [VolumeKind::Thick, VolumeKind::Log] {
        each_seed(3, |seed| {
            let (cluster, written) = in_use(seed, 2, from);
            let free = [0, 1].map(|index| cluster.free(index));
            cluster.convert(0, other(from));
            // Some copies may have been converted by then.
            cluster.world.run_for(Duration::from_millis(700 * seed));
            cluster.control(1, |control| async move {
                control.cancel_conversion(NAME).await.unwrap();
            });
            cluster.world.run_for(Duration::from_secs(2));
            cluster.wait_until_converted();
            cluster.stop_writing(&written);
            for index in 0..2 {
                let volume = cluster.control(index, |control| async move { control.volume(NAME).unwrap() });
                assert_eq!((volume.info.kind, volume.info.converting), (from, None));
                cluster.assert_reads_back(index, &written);
            }
            // The log of a log volume takes space as it is written.
            if from == VolumeKind::Thick {
                cluster.world.run_for(Duration::from_secs(2));
                assert_eq!([0, 1].map(|index| cluster.free(index)), free);
            }
            assert_eq!(cluster.in_sync(0), 2);
        });
    }
}

/// The disk holds nothing that counts: hosts wait for it once, for a second, and the copy stays in sync.
#[test]
fn a_disk_that_hangs_with_the_other_layout_holds_up_the_conversion_and_no_host() {
    let seconds = Duration::from_secs;
    for nodes in 1..=2 {
        each_seed(2, |seed| {
            let cluster = Cluster::new(seed, nodes, 2);
            cluster.add_volume(VolumeKind::Thick, nodes as u8);
            let server = cluster.servers[0];
            // The other layout goes where most space is left.
            cluster.world.add_disk(server, SECOND_DISK, 256 * MIB, 512);
            cluster.control(0, |control| async move {
                let disk = NewDisk { path: SECOND_DISK.into(), create: None, reserve: false };
                control.add_disk(POOL, disk, false).await.unwrap();
            });
            let written = cluster.start_writing(cluster.portal(0));
            cluster.world.run_for(seconds(1));
            cluster.convert(0, VolumeKind::Log);
            let is_being_copied = || {
                cluster.control(0, |control| async move {
                    control.conversions().iter().any(|(_, conversion)| conversion.done > 0)
                })
            };
            if seed % 2 == 0 {
                assert!(cluster.world.run_until(is_being_copied, seconds(3)));
            }
            let silence = seconds(20)..seconds(21);
            let (read, write, flush) = (silence.clone(), silence.clone(), silence);
            let silent = DiskLatency { read, write, flush, ..DiskLatency::default() };
            cluster.world.set_disk_latency(server, SECOND_DISK, silent);
            assert!(!cluster.is_of_its_kind(0), "it hangs in the middle");
            let last = || written.acked.borrow().values().max().copied().unwrap_or(0);
            cluster.world.run_for(seconds(3));
            let before = last();
            cluster.world.run_for(seconds(8));
            assert!(last() > before + 300, "{} writes in 8 s", last() - before);
            assert_eq!(cluster.in_sync(0), nodes);
            cluster.world.set_disk_latency(server, SECOND_DISK, DiskLatency::default());
            cluster.world.run_for(seconds(20));
            cluster.wait_until_converted();
            cluster.stop_writing(&written);
            assert!(cluster.told_of(0, &["copy_out_of_sync"]).is_empty());
            (0..nodes).for_each(|index| cluster.assert_reads_back(index, &written));
        });
    }
}
