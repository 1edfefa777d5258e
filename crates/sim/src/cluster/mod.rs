//! Whole nodes in a simulated world, with their cluster's record and an onlooker's machine.
//!
//! Each node has a copy of one volume. Some plans have a second volume, in the same pool or in a pool of its
//! own.

mod founding;
mod opened;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use base::{ByteLen, ByteOffset};
use cluster::embedded::Files;
use cluster::memory::Memory;
use initiator::{Error, Lun, Options, Session, Timeouts};
use node::control::{Fault, FaultKind, Place, PoolSpec, Scrub, Verification, VerificationState};
use node::copies::{Answer, Ask, Copies, CopyEntry, SliceCopy, StandingEntry, VolumeEntry};
use node::events::Event;
use node::{Config, Control, StartError, StartSpec};
use rt::CoreId;
use rt::sim::{DiskImage, NodeId, NodeStatus, World};
use rt::sync::Receiver;
use store::{LogTuning, NewDisk, VolumeId, VolumeKind};

pub use self::opened::{Expects, Found};
use crate::layout::{self, Layout};
use crate::media::Spot;
use crate::plan::{Beside, Plan};
use crate::record::Record;

/// The disks of each node's pool. Some plans use only the first.
const DISKS: &[&str] = &["/dev/disk", "/dev/disk-2"];
/// The disks of the second volume's pool, if it has its own.
const DISKS_BESIDE: &[&str] = &["/dev/beside", "/dev/beside-2"];
/// The target.
pub const TARGET: &str = "iqn.2026-01.org.ursa:target";
/// The LUN of the first volume.
pub const LUN: Lun = Lun(0);

const DISK_BYTES: u64 = 16 << 20;
const ISCSI_PORT: u16 = 3260;
/// The file with each node's own record.
pub const RECORD: &str = "/ursa/record";
const POOL: &str = "pool";
/// See [`DISKS_BESIDE`].
const POOL_BESIDE: &str = "pool-beside";
/// The first volume.
const VOLUME: &str = "volume";
const VOLUME_BESIDE: &str = "beside";
/// The LUN of the second volume.
const LUN_BESIDE: Lun = Lun(1);
const CLUSTER: u128 = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;

/// Bytes of a segment of logs.
pub const LOG_SEGMENT_BYTES: u64 = 64 << 10;

/// So small that logs are merged and cleaned, and get zones, all the time.
const LOG_TUNING: LogTuning = LogTuning {
    segment: Some(ByteLen(LOG_SEGMENT_BYTES)),
    zone_segments: 16,
    changes_min: 256,
    changes_max: 1024,
    replay_bytes: 512 << 10,
    scan_bytes_all: 0,
};

/// So little memory that logs keep only some of their leaves, and sometimes none.
const MAP_BYTES: u64 = 256 << 10;

/// The portals of a node that has started, or why it has not started.
type Started = Result<Vec<SocketAddr>, StartError>;

/// A machine with a node.
pub struct Server {
    /// The machine.
    pub machine: NodeId,
    /// Its address for initiators.
    pub portal: SocketAddr,
    config: Arc<Config>,
    /// Until this time, leases from before a stop of the node's clock may seem valid to the node.
    pub misled_until: Cell<Duration>,
    /// Reports whether the node's latest process serves, or why it does not.
    starting: RefCell<Option<Receiver<Started>>>,
}

/// A pool of each node, on disks of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub name: &'static str,
    /// Its disks.
    pub disks: &'static [&'static str],
}

/// A volume with a copy on each node.
pub struct Volume {
    /// Its index in [`Cluster::volumes`].
    pub index: usize,
    /// Its name.
    pub name: &'static str,
    /// The pool of its copies.
    pub pool: Pool,
    /// Its number for hosts.
    pub lun: Lun,
    /// How its blocks are stored: thick or log.
    pub kind: VolumeKind,
    /// Whether it is thick and has checksums.
    pub checksums: bool,
    /// Which of its blocks are used for what.
    pub layout: Layout,
    /// Its key in the record, once it has been created.
    pub key: String,
    /// Its number on nodes, once it has been created.
    number: u32,
}

/// A simulated cluster: see the module.
pub struct Cluster {
    /// The world in which it runs.
    pub world: World,
    /// The record.
    pub record: Rc<Record>,
    /// The machines with nodes, in the order of the nodes' numbers from 1.
    pub servers: Vec<Server>,
    /// The machine that has the third vote beside two nodes, and nothing else.
    pub witness: Option<NodeId>,
    /// The machine that observes the record and reports deaths of nodes.
    pub watcher: NodeId,
    /// Cores of each node.
    pub cores: usize,
    /// Block size of all disks, in bytes.
    disk_block: u32,
    /// Pools are in files, whose file systems may be full.
    in_files: bool,
    /// The second node may continue alone with each volume.
    pub forks: bool,
    /// The pools of each node.
    pub pools: Vec<Pool>,
    /// The volumes; hosts of all kinds use the first.
    pub volumes: Vec<Volume>,
}

impl Volume {
    /// The blocks that hosts exchange by COMPARE AND WRITE.
    pub fn exchanged(&self) -> Range<u64> {
        if self.index == 0 { layout::EXCHANGED } else { 0..0 }
    }
}

impl Server {
    fn new(world: &World, machine: NodeId, record: &Record, read_confirm: bool) -> Server {
        let portal = SocketAddr::new(world.address(machine), ISCSI_PORT);
        let (data_dir, portals, record) = ("/ursa".into(), vec![portal], record.engine());
        let unix_now = || rt::time_of_day().as_secs();
        let config = Config {
            data_dir,
            portals,
            record,
            read_confirm,
            unix_now,
            log: LOG_TUNING,
            map_bytes_max: MAP_BYTES,
            ..Config::default()
        };
        let config = Arc::new(config);
        let misled_until = Cell::default();
        Server { machine, portal, config, misled_until, starting: RefCell::default() }
    }

    /// Has the node take this place in a cluster at its first start.
    fn take(&mut self, place: Place) {
        self.config = Arc::new(Config { first_place: Some(place), ..Config::clone(&self.config) });
    }

    fn is_started(&self, world: &World) -> bool {
        if world.status(self.machine) != NodeStatus::Running {
            return false;
        }
        let mut starting = self.starting.borrow_mut();
        let Some(receiver) = &mut *starting else { return true };
        // The waker does nothing: the caller polls again.
        match Pin::new(receiver).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => false,
            Poll::Ready(Ok(Ok(_))) => {
                *starting = None;
                true
            }
            // The process ends in a moment.
            Poll::Ready(_) => {
                *starting = Some(rt::sync::oneshot().1);
                false
            }
        }
    }
}

/// With Raft, the first node alone has a vote at first; it gives votes to the others when they join.
fn new_record(plan: &Plan) -> Record {
    let numbers = |count: usize| (1..=count as u16).filter_map(cluster::NodeId::new);
    if !plan.raft {
        return Record::Memory(Memory::new(numbers(plan.nodes)));
    }
    let numbers: Vec<cluster::NodeId> = numbers(plan.nodes + usize::from(plan.witness)).collect();
    Record::Raft(Files::new(CLUSTER, &numbers[..1], &numbers[1..]))
}

impl Cluster {
    /// Starts nodes, waits until they have found each other, and creates and maps the volumes.
    pub fn new(plan: &Plan) -> Cluster {
        let world = World::new(plan.seed);
        let volume = |index, name, pool, lun, layout| {
            let (key, number) = (String::new(), 0);
            let kind = if plan.logs[index] { VolumeKind::Log } else { VolumeKind::Thick };
            let checksums = plan.checksums && kind == VolumeKind::Thick;
            Volume { index, name, pool, lun, kind, checksums, layout, key, number }
        };
        let count = 1 + usize::from(plan.two_disks);
        let first = Pool { name: POOL, disks: &DISKS[..count] };
        let mut pools = vec![first];
        let mut volumes = vec![volume(0, VOLUME, first, LUN, layout::FIRST)];
        if let Some(beside) = plan.beside {
            if beside == Beside::OwnPool {
                pools.push(Pool { name: POOL_BESIDE, disks: &DISKS_BESIDE[..count] });
            }
            let pool = pools[pools.len() - 1];
            volumes.push(volume(1, VOLUME_BESIDE, pool, LUN_BESIDE, layout::BESIDE));
        }
        let record = Rc::new(new_record(plan));
        let servers = (0..plan.nodes).map(|index| {
            let machine = world.add_machine(&format!("server-{}", index + 1), plan.cores);
            for disk in pools.iter().flat_map(|pool| pool.disks) {
                let image = DiskImage::new(DISK_BYTES, plan.disk_block);
                match plan.has_pools_in_files() {
                    true => world.put_file(machine, disk, image),
                    false => world.put_disk(machine, disk, image),
                }
            }
            Server::new(&world, machine, &record, plan.confirms[index])
        });
        let servers: Vec<Server> = servers.collect();
        let idle = |name: &str| world.add_node(name, 1, |_| std::future::pending());
        let witness = plan.witness.then(|| idle("witness"));
        let watcher = idle("watcher");
        let (cores, disk_block, in_files) = (plan.cores, plan.disk_block, plan.has_pools_in_files());
        let forks = plan.forks;
        let mut cluster = Cluster {
            world,
            record,
            servers,
            witness,
            watcher,
            cores,
            disk_block,
            in_files,
            forks,
            pools,
            volumes,
        };
        cluster.found(plan);
        cluster
    }

    /// Starts a node that has no process. [`Cluster::is_started`] reports when it serves.
    pub fn start(&self, index: usize) {
        self.start_server(&self.servers[index]);
    }

    fn start_server(&self, server: &Server) {
        let (ready, started) = rt::sync::oneshot();
        let start = Rc::new(Cell::new(Some((StartSpec::default(), ready))));
        let config = Arc::clone(&server.config);
        self.world.restart(server.machine, move |core| {
            let start = (core == CoreId(0)).then(|| start.take()).flatten();
            node::run(Arc::clone(&config), start)
        });
        server.starting.replace(Some(started));
    }

    /// The state of the node's process.
    pub fn status(&self, index: usize) -> NodeStatus {
        self.world.status(self.servers[index].machine)
    }

    /// Whether the node runs and has started.
    pub fn is_started(&self, index: usize) -> bool {
        self.servers[index].is_started(&self.world)
    }

    /// Runs `function` as an administrator of a node that has started.
    ///
    /// # Panics
    /// If the node stops meanwhile.
    pub fn control<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        index: usize,
        function: impl FnOnce(Rc<Control>) -> F + 'static,
    ) -> T {
        let machine = self.servers[index].machine;
        self.world.block_on(machine, CoreId(0), move || function(Control::current()))
    }

    /// The first volume, as the record has it now.
    pub fn entry(&self) -> VolumeEntry {
        self.entry_of(&self.volumes[0])
    }

    /// A volume, as the record has it now.
    pub fn entry_of(&self, volume: &Volume) -> VolumeEntry {
        let value = self.record.value(&volume.key).expect("nobody deletes the volume");
        serde_json::from_slice(&value).expect("nodes write what they can read")
    }

    /// The incarnations of a node's copies of the volumes in these pools, according to the record; 0: no
    /// copy.
    pub fn lives_of(&self, index: usize, pools: &[Pool]) -> Vec<u64> {
        let volumes = self.volumes.iter().filter(|volume| pools.contains(&volume.pool));
        volumes.map(|volume| self.copy_of(volume, index).map_or(0, |copy| copy.incarnation)).collect()
    }

    /// A node's copy, as the record has it.
    fn copy_of(&self, volume: &Volume, index: usize) -> Option<CopyEntry> {
        self.entry_of(volume).copies.into_iter().find(|copy| usize::from(copy.node) == index + 1)
    }

    /// Whether the record says that the node's copy of the first volume is in sync.
    pub fn is_in_sync(&self, index: usize) -> bool {
        self.has_in_sync(&self.volumes[0], index)
    }

    /// Whether the record says that the node's copy of this volume is in sync.
    pub fn has_in_sync(&self, volume: &Volume, index: usize) -> bool {
        self.copy_of(volume, index).is_some_and(|copy| copy.standing == StandingEntry::InSync)
    }

    /// Whether the record says that the node's copies of all volumes are in sync and none is to be removed.
    pub fn has_all(&self, index: usize) -> bool {
        let mut volumes = self.volumes.iter();
        volumes.all(|volume| self.has_in_sync(volume, index) && !self.is_to_leave(volume, index))
    }

    /// Whether the node has a copy, according to the record.
    pub fn has_copy(&self, volume: &Volume, index: usize) -> bool {
        self.copy_of(volume, index).is_some()
    }

    /// Whether the node's copy is to be removed.
    pub fn is_to_leave(&self, volume: &Volume, index: usize) -> bool {
        self.copy_of(volume, index).is_some_and(|copy| self.entry_of(volume).is_to_leave(&copy))
    }

    /// Starts an operation as an administrator of a node that has started, and does not wait for it.
    pub fn ask_to<F: Future<Output = ()> + 'static>(
        &self,
        index: usize,
        ask: impl FnOnce(Rc<Control>) -> F + 'static,
    ) {
        let ask = move || async move {
            if let Some(control) = Control::try_current() {
                ask(control).await;
            }
        };
        drop(self.world.spawn_on(self.servers[index].machine, CoreId(0), ask));
    }

    /// Compares the copies of a volume, by request to a node that has started.
    pub fn verify(&self, volume: &Volume, by: usize) -> Verification {
        let name = volume.name;
        self.control(by, move |control| async move {
            let mut found = control.begin_verification(name).expect("all copies are in sync");
            while found.state == VerificationState::Running {
                rt::sleep(Duration::from_millis(10)).await;
                found = control.verification(name).ok().flatten().expect("it was begun");
            }
            found
        })
    }

    /// Begins to scrub the volumes of a pool on a node that has started. Returns the IDs of those that are
    /// being scrubbed.
    pub fn begin_scrubs(&self, index: usize, pool: Pool) -> Vec<String> {
        self.control(index, move |control| async move {
            let begun = control.begin_pool_scrub(pool.name).unwrap_or_default();
            begun.into_iter().map(|(id, _)| id.to_string()).collect()
        })
    }

    /// The last scrub of a volume on a node that has started.
    pub fn last_scrub(&self, index: usize, id: &str) -> Option<Scrub> {
        let id = id.to_owned();
        self.control(index, move |control| async move { control.last_scrub(&id).ok().flatten() })
    }

    /// Whether a node that has started serves all volumes to hosts.
    pub fn serves(&self, index: usize) -> bool {
        let count = self.volumes.len();
        self.control(index, move |control| async move {
            let volumes = control.reconciler().map_or_else(|_| Vec::new(), |reconciler| reconciler.volumes());
            volumes.len() == count && volumes.iter().all(|volume| volume.serving)
        })
    }

    /// Whether a node that has started has just heard another one request leases.
    pub fn hears(&self, index: usize, other: usize) -> bool {
        let other = node::copies::NodeId(other as u16 + 1);
        self.control(index, move |control| async move {
            control.reconciler().is_ok_and(|reconciler| reconciler.hears(other))
        })
    }

    /// Whether the node knows of a volume with which a node continued alone, and that is not settled; `None`:
    /// it does not know yet.
    pub fn has_fork(&self, index: usize) -> Option<bool> {
        if !self.is_started(index) {
            return None;
        }
        let ids = self.volumes.iter().filter_map(|volume| VolumeId::parse(&self.entry_of(volume).id));
        let ids: Vec<VolumeId> = ids.collect();
        self.world.inspect(self.servers[index].machine, CoreId(0), || {
            let reconciler = Control::try_current()?.reconciler().ok()?;
            Some(ids.iter().any(|id| reconciler.has_fork(*id)))
        })
    }

    /// Whether, on a node that has started, a disk is out of service, a pool could not be opened, or a part
    /// of a copy could not.
    pub fn pool_failed(&self, index: usize) -> bool {
        let of_pool = self.control(index, |control| async move {
            control.pools().iter().any(|pool| pool.state.as_ref().map_or(true, |it| !it.failed.is_empty()))
                || control.has_unopened_slices()
        });
        // A single failed write ends a slice's copy, even if the pool continues.
        let mut of_copies = (0..self.cores).map(|core| {
            self.world.block_on(self.servers[index].machine, CoreId(core as u16), || async {
                Copies::current().slices().iter().any(|slice| slice.has_failed())
            })
        });
        of_pool || of_copies.any(|failed| failed)
    }

    /// Reopens the pools of a node that has started, and does not wait for it.
    pub fn reopen_pools(&self, index: usize) {
        let names: Vec<&str> = self.pools.iter().map(|pool| pool.name).collect();
        self.ask_to(index, |control| async move {
            for name in names {
                drop(control.reopen_pool(name).await);
            }
        });
    }

    /// Acknowledges the failed reads of a node's pool; returns whether all are.
    pub fn acknowledge_read_errors(&self, index: usize, pool: Pool) -> bool {
        self.control(index, move |control| async move {
            let acknowledged = control.acknowledge_read_errors(pool.name).await;
            let is_left = |fault: &Fault| {
                matches!(&fault.kind, FaultKind::ReadFailed { pool: of, .. } if *of == pool.name)
            };
            acknowledged.is_ok() && !control.faults().iter().any(is_left)
        })
    }

    /// Takes a node's events since the last time; `None`: there were too many for the node to keep.
    pub fn take_events(&self, index: usize) -> Option<Vec<Event>> {
        let taken = self.control(index, |control| control.next_events());
        (taken.missed == 0).then(|| taken.events.into_iter().map(|(_, event)| event).collect())
    }

    /// In how many regions the copies of a node that has started say that another copy may differ.
    pub fn dirty_regions(&self, index: usize) -> usize {
        // Inspected without passing time: a node that was told to stop might end during the call.
        let cores = (0..self.cores).map(|core| {
            self.world.inspect(self.servers[index].machine, CoreId(core as u16), || {
                Copies::current().slices().iter().map(|slice| slice.dirty_regions()).sum::<usize>()
            })
        });
        cores.sum()
    }

    /// Whether copies of a node that has started have lost blocks (R27).
    pub fn has_lost(&self, index: usize) -> bool {
        (0..self.cores).any(|core| {
            self.world.inspect(self.servers[index].machine, CoreId(core as u16), || {
                Copies::current().slices().iter().any(|slice| slice.has_lost())
            })
        })
    }

    /// Whether the volume's copy on a node that has started says that another copy may differ at `offset`.
    pub fn notes(&self, volume: &Volume, index: usize, offset: ByteOffset) -> bool {
        let region_bytes = u64::from(replica::Geometry::REGION_BYTES);
        (0..self.cores).any(|core| {
            self.world.inspect(self.servers[index].machine, CoreId(core as u16), || {
                let notes = |copy: &SliceCopy| {
                    let place = copy.place_of(offset);
                    place.is_some_and(|at| !copy.replica().map().get(at.0 / region_bytes).is_empty())
                };
                Copies::current()
                    .slices()
                    .iter()
                    .any(|copy| copy.address().volume == volume.number && notes(copy))
            })
        })
    }

    /// The volume that this is a copy of.
    pub fn volume_of(&self, copy: &SliceCopy) -> Option<&Volume> {
        self.volumes.iter().find(|volume| volume.number == copy.address().volume)
    }

    /// What slices of a node that has started have not finished, as text.
    pub fn unrest(&self, index: usize) -> String {
        let cores = (0..self.cores).map(|core| {
            self.world.block_on(self.servers[index].machine, CoreId(core as u16), || async {
                let slices = Copies::current().slices();
                slices
                    .iter()
                    .map(|copy| format!("{}: {}; ", copy.address(), copy.unrest()))
                    .collect::<String>()
            })
        });
        let pools = self.control(index, |control| async move { format!("{:?}", control.pools()) });
        cores.chain([pools]).collect()
    }

    /// A checksum of what the copy on a node that has started holds.
    pub fn checksum(&self, volume: &Volume, index: usize) -> Option<Vec<[u8; 32]>> {
        let id = self.entry_of(volume).id;
        self.control(index, |control| async move {
            let reconciler = control.reconciler().ok()?;
            let info = control.volume(&id).ok()?.info;
            let mut all = Vec::new();
            for slice in 0..info.stripe.slices() {
                let len = info.stripe.slice_len(slice, info.capacity).0;
                let ask = Ask::Digests { id: id.clone(), slice, offset: 0, len };
                match reconciler.ask(reconciler.me(), ask).await {
                    Ok(Answer::Digests(digests)) => all.extend(digests),
                    _ => return None,
                }
            }
            Some(all)
        })
    }

    /// The content of the disks of a node's pool, as a read finds it now.
    pub fn disks(&self, index: usize, pool: Pool) -> Vec<DiskImage> {
        let machine = self.servers[index].machine;
        pool.disks.iter().map(|disk| self.world.disk_image(machine, Path::new(disk))).collect()
    }

    /// Flips a bit in each of these places of a node's disks.
    pub fn flip_bits(&self, index: usize, pool: Pool, spots: &[Spot]) {
        let machine = self.servers[index].machine;
        spots.iter().for_each(|spot| self.world.flip_bit(machine, pool.disks[spot.disk], spot.at));
    }

    /// The content of the file with a node's own record, as a read finds it now.
    pub fn node_record(&self, index: usize) -> DiskImage {
        self.world.disk_image(self.servers[index].machine, RECORD)
    }

    /// Replaces a node's disk by another one.
    pub fn put_disk(&self, index: usize, disk: &str, image: DiskImage) {
        let machine = self.servers[index].machine;
        self.world.remove_disk(machine, disk);
        match self.in_files {
            true => self.world.put_file(machine, disk, image),
            false => self.world.put_disk(machine, disk, image),
        }
    }

    /// Replaces all disks of a node's pool by empty ones: a pool that has lost one disk is of no use.
    pub fn put_blank_disks(&self, index: usize, pool: Pool) {
        for disk in pool.disks {
            self.put_disk(index, disk, DiskImage::new(DISK_BYTES, self.disk_block));
        }
    }

    /// Sets a node's own record back to an earlier state.
    pub fn put_node_record(&self, index: usize, image: DiskImage) {
        let machine = self.servers[index].machine;
        self.world.remove_disk(machine, RECORD);
        self.world.put_file(machine, RECORD, image);
    }

    /// Whether a node that has started has this pool, without failed disks.
    pub fn has_well_pool(&self, index: usize, pool: Pool) -> bool {
        self.control(index, move |control| async move {
            let pools = control.pools();
            let found = pools.iter().find(|found| found.name == pool.name);
            found.is_some_and(|found| found.state.as_ref().is_ok_and(|it| it.failed.is_empty()))
        })
    }

    /// The disks of a node's pool, and which one is leaving it; `None`: the node has not started, or the pool
    /// is not open.
    pub fn present_disks(&self, index: usize, pool: Pool) -> Option<(Vec<PathBuf>, Option<PathBuf>)> {
        if !self.is_started(index) {
            return None;
        }
        self.world.inspect(self.servers[index].machine, CoreId(0), || {
            let status = Control::try_current()?.pool(pool.name).ok()?;
            let leaving = status.state.ok()?.leaving;
            Some((status.paths, leaving.map(|leaving| leaving.path)))
        })
    }

    /// The kind of a node's copy of a volume, and the one that it is being converted to; `None`: the node has
    /// not started, or has no copy.
    pub fn kinds_of_copy(&self, volume: &Volume, index: usize) -> Option<(VolumeKind, Option<VolumeKind>)> {
        if !self.is_started(index) {
            return None;
        }
        self.world.inspect(self.servers[index].machine, CoreId(0), || {
            Control::try_current()?.kinds_of_copy(volume.name).ok()
        })
    }

    /// Whether a node's copy of a volume is of the kind that the volume should have; `None`: the node has not
    /// started, or has no copy.
    pub fn is_of_its_kind(&self, volume: &Volume, index: usize) -> Option<bool> {
        if !self.is_started(index) {
            return None;
        }
        self.world.inspect(self.servers[index].machine, CoreId(0), || {
            Control::try_current()?.is_of_its_kind(volume.name).ok()
        })
    }

    /// The conversions of a node's copies, as text.
    pub fn conversions(&self, index: usize) -> String {
        if !self.is_started(index) {
            return "it has not started".to_owned();
        }
        self.control(index, |control| async move { format!("{:?}", control.conversions()) })
    }

    /// Forgets a pool of a node that has started, creates it again on the present disks, and does not wait
    /// for it.
    pub fn make_pool_again(&self, index: usize, again: Pool) {
        self.ask_to(index, move |control| async move {
            let _ = control.forget_pool(again.name, false).await;
            drop(control.create_pool(pool(again)).await);
        });
    }

    /// Adds a machine for a host.
    pub fn add_host(&self, name: &str) -> NodeId {
        self.world.add_node(name, 1, |_| std::future::pending())
    }
}

fn pool(pool: Pool) -> PoolSpec {
    let disk = |path: &&str| NewDisk { path: path.into(), create: None, reserve: false };
    let disks = pool.disks.iter().map(disk).collect();
    PoolSpec { name: pool.name.into(), disks, wipe: false }
}

/// Lets time pass until `condition` holds, at most `limit`; returns whether it does.
///
/// `condition` itself may take time.
pub fn wait(world: &World, limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    const AGAIN: Duration = Duration::from_millis(100);
    let until = world.now() + limit;
    while !condition() {
        if world.now() > until {
            return false;
        }
        world.run_for(AGAIN);
    }
    true
}

/// Options of the initiator of this name.
///
/// It is less patient than real ones, so that a run has more lost paths and aborted commands. It stays until
/// it is cut off.
pub fn named(name: &str) -> Options {
    let timeouts = Timeouts {
        login: Duration::from_secs(2),
        command: Duration::from_secs(5),
        abort: Duration::from_secs(3),
        reset: Duration::from_secs(3),
        ping_after: Duration::from_secs(1),
        ping_deadline: Duration::from_secs(2),
    };
    let initiator = format!("iqn.2026-01.org.ursa:{name}");
    Options { initiator, timeouts, obedient: false, ..Options::default() }
}

/// Logs in to one node and takes the unit attentions of the unit.
///
/// A unit that rejects writes, because its disk failed, is no error: it can still be read.
pub async fn log_in(portal: SocketAddr, lun: Lun, name: &str) -> Result<Session, Error> {
    log_in_as(portal, lun, &named(name)).await
}

/// As [`log_in`], with these options.
pub async fn log_in_as(portal: SocketAddr, lun: Lun, options: &Options) -> Result<Session, Error> {
    let session = Session::connect(portal, TARGET, options).await?;
    match session.make_ready(lun).await {
        Err(error) if !error.needs_help() => Err(error),
        _ => Ok(session),
    }
}
