//! Whole nodes in a simulated world, with the record of their cluster, one volume with a copy on each, and a machine that looks on.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use base::ByteLen;
use cluster::memory::Memory;
use initiator::{Error, Lun, Options, Session, Timeouts};
use node::config::RecordEngine;
use node::control::{MapSpec, NewVolume, Place, Placement, PoolSpec, TargetSpec};
use node::copies::{Answer, Ask, Copies, StandingEntry, VolumeEntry};
use node::{Config, Control, StartError, Wanted};
use rt::CoreId;
use rt::sim::{NodeId, NodeStatus, World};
use rt::sync::Receiver;
use store::{NewDisk, VolumeKind};

use crate::layout::VOLUME_BYTES;
use crate::plan::Plan;

/// Each node's disk.
pub const DISK: &str = "/dev/disk";
/// The target.
pub const TARGET: &str = "iqn.2026-01.org.ursa:target";
/// The volume's number there.
pub const LUN: Lun = Lun(0);

const DISK_BYTES: u64 = 16 << 20;
const ISCSI_PORT: u16 = 3260;
const LINK_PORT: u16 = 3270;
const POOL: &str = "pool";
const VOLUME: &str = "volume";
const CLUSTER: &str = "0123456789abcdef0123456789abcdef";

/// What nodes need at most to find each other in a quiet world.
const MEETING_MAX: Duration = Duration::from_secs(30);

/// The portals of a node that has started, or why it has not.
type Started = Result<Vec<SocketAddr>, StartError>;

/// A machine with a node.
pub struct Server {
    /// The machine.
    pub machine: NodeId,
    /// Its address for initiators.
    pub portal: SocketAddr,
    config: Arc<Config>,
    /// Tells when the life that was begun last serves, or why it does not.
    starting: RefCell<Option<Receiver<Started>>>,
}

/// See the module.
pub struct Cluster {
    /// Where all happens.
    pub world: World,
    /// The record.
    pub memory: Memory,
    /// The machines with nodes, in the order of the nodes' numbers from 1.
    pub servers: Vec<Server>,
    /// The machine that holds the third vote of two nodes, and nothing else.
    pub witness: Option<NodeId>,
    /// The machine that looks on and tells of deaths.
    pub watcher: NodeId,
    cores: usize,
    volume_key: String,
}

impl Cluster {
    /// Nodes that have found each other, with the volume mapped.
    pub fn new(plan: &Plan) -> Cluster {
        let world = World::new(plan.seed);
        let numbers = (1..=plan.nodes as u16).filter_map(cluster::NodeId::new);
        let memory = Memory::new(numbers);
        let servers = (0..plan.nodes).map(|index| {
            let machine = world.add_machine(&format!("server-{}", index + 1), plan.cores);
            let portal = SocketAddr::new(world.address(machine), ISCSI_PORT);
            let record = RecordEngine::Memory(memory.clone());
            let (data_dir, portals) = ("/ursa".into(), vec![portal]);
            let config = Arc::new(Config { data_dir, portals, record, ..Config::default() });
            world.add_disk(machine, DISK, DISK_BYTES, 512);
            Server { machine, portal, config, starting: RefCell::default() }
        });
        let servers: Vec<Server> = servers.collect();
        let idle = |name: &str| world.add_node(name, 1, |_| std::future::pending());
        let witness = plan.witness.then(|| idle("witness"));
        let watcher = idle("watcher");
        let volume_key = String::new();
        let mut cluster = Cluster { world, memory, servers, witness, watcher, cores: plan.cores, volume_key };
        cluster.found(plan);
        cluster
    }

    fn found(&mut self, plan: &Plan) {
        let nodes = self.servers.len();
        for index in 0..nodes {
            self.start(index);
            let there = self.world.run_until(|| self.is_started(index), MEETING_MAX);
            assert!(there, "node {} starts", index + 1);
            let disks = vec![NewDisk { path: DISK.into(), create: None, reserve: false }];
            let listen = vec![SocketAddr::new(self.world.address(self.servers[index].machine), LINK_PORT)];
            self.control(index, move |control| async move {
                control.create_pool(PoolSpec { name: POOL.into(), disks, wipe: false }).await?;
                let place = Place {
                    cluster: CLUSTER.to_owned(),
                    node: index as u16 + 1,
                    listen,
                    witness: false,
                    force_new: false,
                    incarnation: 0,
                    members: Vec::new(),
                };
                control.enter_cluster(place, 0).await
            })
            .expect("nothing has failed yet");
        }
        let all_there = || {
            let heard = |control: Rc<Control>| async move {
                control.keeper().map_or(0, |keeper| keeper.nodes().iter().filter(|(_, up)| *up).count())
            };
            (0..nodes).all(|index| self.control(index, heard) == nodes)
        };
        assert!(wait(&self.world, MEETING_MAX, all_there), "the nodes find each other");
        let (block_size, copies) = (plan.block, nodes as u8);
        let volume = self.control(0, move |control| async move {
            let target = TargetSpec { name: TARGET.to_owned(), alias: None, chap: None };
            control.create_target(target).await?;
            let new = NewVolume {
                name: VOLUME.into(),
                pool: Some(POOL.into()),
                kind: VolumeKind::Thick,
                size: ByteLen(VOLUME_BYTES),
                block_size,
                native_512: false,
                slices: None,
                created: 1_700_000_000,
                map: None,
                copies: Some(Placement::Count(copies)),
            };
            let volume = control.create_volume(new).await?;
            let everybody = MapSpec { target: TARGET.into(), host: "any".into(), lun: Some(LUN.0) };
            control.map(VOLUME, everybody).await?;
            Ok::<_, node::control::ControlError>(volume)
        });
        let volume = volume.expect("nothing has failed yet");
        self.volume_key = node::copies::volume_key(volume.info.id);
        let all_serve = || (0..nodes).all(|index| self.serves(index));
        assert!(wait(&self.world, MEETING_MAX, all_serve), "all nodes serve");
    }

    /// Starts a node whose process is gone. [`Cluster::is_started`] tells when it serves.
    pub fn start(&self, index: usize) {
        let server = &self.servers[index];
        let (ready, started) = rt::sync::oneshot();
        let start = Rc::new(Cell::new(Some((Wanted::default(), ready))));
        let config = Arc::clone(&server.config);
        self.world.restart(server.machine, move |core| {
            let start = (core == CoreId(0)).then(|| start.take()).flatten();
            node::run(Arc::clone(&config), start)
        });
        server.starting.replace(Some(started));
    }

    /// What the node does.
    pub fn status(&self, index: usize) -> NodeStatus {
        self.world.status(self.servers[index].machine)
    }

    /// Whether the node runs and has started.
    pub fn is_started(&self, index: usize) -> bool {
        if self.status(index) != NodeStatus::Running {
            return false;
        }
        let mut starting = self.servers[index].starting.borrow_mut();
        let Some(receiver) = &mut *starting else { return true };
        // Nobody is to be woken: it is asked again.
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

    /// Does something as an administrator of a node that has started.
    ///
    /// # Panics
    /// If it stops meanwhile.
    pub fn control<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        index: usize,
        function: impl FnOnce(Rc<Control>) -> F + 'static,
    ) -> T {
        let machine = self.servers[index].machine;
        self.world.block_on(machine, CoreId(0), move || function(Control::current()))
    }

    /// The volume as the record has it now.
    pub fn entry(&self) -> VolumeEntry {
        let value = self.memory.value(&self.volume_key).expect("nobody deletes the volume");
        serde_json::from_slice(&value).expect("nodes write what they can read")
    }

    /// The key of the volume in the record.
    pub fn volume_key(&self) -> &str {
        &self.volume_key
    }

    /// Whether the record says that the node's copy is in sync.
    pub fn is_in_sync(&self, index: usize) -> bool {
        let copies = self.entry().copies;
        let copy = copies.iter().find(|copy| usize::from(copy.node) == index + 1);
        copy.is_some_and(|copy| copy.standing == StandingEntry::InSync)
    }

    /// Whether hosts are served through a node that has started.
    pub fn serves(&self, index: usize) -> bool {
        self.control(index, |control| async move {
            control.keeper().is_some_and(|keeper| keeper.volumes().first().is_some_and(|it| it.serving))
        })
    }

    /// Whether a disk of a node that has started is out of service, or its pool could not be opened.
    pub fn pool_failed(&self, index: usize) -> bool {
        let of_pool = self.control(index, |control| async move {
            control.pools().iter().any(|pool| pool.state.as_ref().map_or(true, |it| !it.failed.is_empty()))
        });
        // One write that failed ends a copy's part, also where the pool goes on.
        let mut of_copies = (0..self.cores).map(|core| {
            self.world.block_on(self.servers[index].machine, CoreId(core as u16), || async {
                Copies::current().slices().iter().any(|slice| slice.has_failed())
            })
        });
        of_pool || of_copies.any(|failed| failed)
    }

    /// Of a node that has started: in how many regions its copy says that another may differ.
    pub fn dirty_regions(&self, index: usize) -> usize {
        // One that was told to stop may end while it is asked core by core.
        let cores = (0..self.cores).filter(|_| self.is_started(index)).map(|core| {
            self.world.block_on(self.servers[index].machine, CoreId(core as u16), || async {
                Copies::current().slices().iter().map(|slice| slice.dirty_regions()).sum::<usize>()
            })
        });
        cores.sum()
    }

    /// What slices of a node that has started have not finished, for a person.
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
        cores.collect()
    }

    /// The checksums of the copy of a node that has started.
    pub fn checksum(&self, index: usize) -> Option<Vec<u32>> {
        self.control(index, |control| async move {
            let keeper = control.keeper()?;
            let id = keeper.volumes().first()?.entry.id.clone();
            match keeper.ask(keeper.me(), Ask::Checksum { id }).await {
                Ok(Answer::Checksum(sums)) => Some(sums),
                _ => None,
            }
        })
    }

    /// Bytes of a node's disk as a read finds them now.
    pub fn disk(&self, index: usize) -> rt::sim::DiskImage {
        self.world.disk_image(self.servers[index].machine, Path::new(DISK))
    }

    /// A machine for a host.
    pub fn add_host(&self, name: &str) -> NodeId {
        self.world.add_node(name, 1, |_| std::future::pending())
    }
}

/// Lets time pass until `condition` holds, which may itself take time; says whether it holds within `limit`.
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

/// How the initiator of this name logs in. It is less patient than real ones, so that a run has more lost paths and aborted commands in it;
/// and it stays until it is cut off.
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

/// A session with one node, with unit attentions taken.
///
/// # Errors
/// What the initiator says.
pub async fn log_in(portal: SocketAddr, name: &str) -> Result<Session, Error> {
    log_in_as(portal, &named(name)).await
}

/// As [`log_in`].
///
/// # Errors
/// What the initiator says.
pub async fn log_in_as(portal: SocketAddr, options: &Options) -> Result<Session, Error> {
    let session = Session::connect(portal, TARGET, options).await?;
    session.make_ready(LUN).await?;
    Ok(session)
}
