//! A node in a simulated world, with disks, volumes and clients.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::{BlockSize, ByteLen};
use cluster::Transaction;
use cluster::memory::Memory;
use initiator::{Lun, Options, Session};
use node::access::Target;
use node::config::RecordEngine;
use node::control::{ControlError, ImportSpec, MapSpec, NewVolume, PoolSpec, TargetSpec};
use node::member::Reconciler;
use node::{Config, Control, NodeNumber, StartError, StartSpec};
use rt::CoreId;
use rt::sim::{NodeId, World};
use rt::sync::Receiver;
use store::{NewDisk, VolumeKind};

pub(crate) const TARGET: &str = "iqn.2026-01.org.ursa:target";
pub(crate) const DISK: &str = "/dev/disk";
pub(crate) const RECORD: &str = "/ursa/record";
pub(crate) const POOL: &str = "pool";
/// A second pool, and the volume in it.
pub(crate) const OTHER: &str = "other";
pub(crate) const OTHER_DISK: &str = "/dev/other";
pub(crate) const MIB: u64 = 1 << 20;

/// One server and its clients.
pub(crate) struct Rig {
    pub(crate) world: World,
    pub(crate) server: NodeId,
    pub(crate) portal: SocketAddr,
    /// The record of the node's cluster.
    pub(crate) record: Memory,
    config: Arc<Config>,
}

/// A second node: see [`Rig::add_twin`].
pub(crate) struct Twin {
    pub(crate) server: NodeId,
    pub(crate) portal: SocketAddr,
}

/// A volume to be created and mapped to all hosts.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) kind: VolumeKind,
    pub(crate) block: BlockSize,
    pub(crate) mib: u64,
    pub(crate) lun: u16,
}

impl Shape {
    /// A thick volume of 8 MiB with blocks of 4096 bytes at LUN 0.
    pub(crate) const fn thick() -> Shape {
        Shape { name: "thick", kind: VolumeKind::Thick, block: BlockSize::B4096, mib: 8, lun: 0 }
    }

    /// The same as a RAM volume.
    pub(crate) const fn ram() -> Shape {
        Shape { name: "ram", kind: VolumeKind::Ram, ..Shape::thick() }
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.mib * MIB / u64::from(self.block.bytes())
    }
}

impl Rig {
    /// A node that has started for the first time, with a pool on a disk of 64 MiB and a target.
    pub(crate) fn new(seed: u64, cores: usize) -> Rig {
        Rig::with_config(seed, cores, Config::default())
    }

    pub(crate) fn with_config(seed: u64, cores: usize, config: Config) -> Rig {
        let rig = Rig::without_pool(seed, cores, config);
        rig.world.add_disk(rig.server, DISK, 64 * MIB, 512);
        rig.create_pool(POOL, DISK);
        rig.control(|control| async move {
            let name = TARGET.to_owned();
            control.create_target(TargetSpec { name, alias: None, chap: None }).await
        })
        .unwrap();
        rig
    }

    /// A node that has started for the first time.
    pub(crate) fn without_pool(seed: u64, cores: usize, config: Config) -> Rig {
        let rig = Rig::not_started(seed, cores, config);
        rig.start();
        rig
    }

    /// Only the machine.
    pub(crate) fn not_started(seed: u64, cores: usize, config: Config) -> Rig {
        let record = record_of(config.node_number);
        Rig::with_record(seed, cores, config, record)
    }

    /// Only the machine of a node whose cluster has this record.
    pub(crate) fn with_record(seed: u64, cores: usize, config: Config, record: Memory) -> Rig {
        let world = World::new(seed);
        let server = world.add_machine("server", cores);
        let portal = SocketAddr::new(world.address(server), 3260);
        let (data_dir, portals) = ("/ursa".into(), vec![portal]);
        let engine = RecordEngine::Memory(record.clone());
        let config = Arc::new(Config { data_dir, portals, record: engine, ..config });
        Rig { world, server, portal, record, config }
    }

    /// Starts the node on a machine without a process, and waits until it serves.
    pub(crate) fn start(&self) {
        self.start_with(StartSpec::default()).expect("the node starts");
    }

    /// Starts the node, which creates what is wanted and missing.
    pub(crate) fn start_with(&self, wanted: StartSpec) -> Result<(), StartError> {
        self.start_on(self.server, Arc::clone(&self.config), wanted)
    }

    fn start_on(&self, machine: NodeId, config: Arc<Config>, wanted: StartSpec) -> Result<(), StartError> {
        let (ready, started) = rt::sync::oneshot();
        let start = Rc::new(Cell::new(Some((wanted, ready))));
        self.world.restart(machine, move |core| {
            let start = (core == CoreId(0)).then(|| start.take()).flatten();
            node::run(Arc::clone(&config), start)
        });
        self.world.wait_for(started).expect("the node answers").map(drop)
    }

    /// Adds a second node with the present targets and volumes of the first; from then on their data is
    /// independent.
    ///
    /// To initiators the two look like nodes with copies, but each is in a cluster of its own, and nothing
    /// keeps the copies equal.
    pub(crate) fn add_twin(&self, number: u64) -> Twin {
        let server = self.world.add_machine("twin", 2);
        self.world.put_disk(server, DISK, self.world.disk_image(self.server, DISK));
        let portal = SocketAddr::new(self.world.address(server), 3260);
        let node_number = NodeNumber::new(number).unwrap();
        let record = RecordEngine::Memory(record_of(node_number));
        let config = Config { portals: vec![portal], node_number, record, ..Config::clone(&self.config) };
        self.start_on(server, Arc::new(config), StartSpec::default()).expect("the node starts");
        let targets: Vec<Target> =
            self.control(|control| async move { control.access().targets().cloned().collect() });
        self.control_on(server, |control| async move {
            let put = |transaction: Transaction, target: &Target| {
                transaction.put(&format!("target/{}", target.name), serde_json::to_vec(target).unwrap())
            };
            let transaction = targets.iter().fold(Reconciler::transaction(), put);
            control.reconciler().unwrap().commit(transaction).await.unwrap();
            let import = ImportSpec { paths: vec![DISK.into()], name: None, force: true };
            control.import_pool(import).await.unwrap();
        });
        Twin { server, portal }
    }

    /// Cuts the power, and starts the node again.
    pub(crate) fn power_cycle(&self) {
        self.world.crash(self.server);
        self.start();
    }

    /// Runs a function as an administrator.
    pub(crate) fn control<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        function: impl FnOnce(Rc<Control>) -> F + 'static,
    ) -> T {
        self.control_on(self.server, function)
    }

    /// As [`Rig::control`], on the given machine.
    pub(crate) fn control_on<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        server: NodeId,
        function: impl FnOnce(Rc<Control>) -> F + 'static,
    ) -> T {
        self.world.block_on(server, CoreId(0), move || function(Control::current()))
    }

    pub(crate) fn create_pool(&self, name: &str, disk: &str) {
        let disks = vec![NewDisk { path: disk.into(), create: None, reserve: false }];
        let spec = PoolSpec { name: name.into(), disks, wipe: false };
        self.control(|control| async move { control.create_pool(spec).await }).unwrap();
    }

    /// Adds a second pool, with a disk of 32 MiB and a thick volume at LUN 1.
    pub(crate) fn add_other_pool(&self) {
        self.world.add_disk(self.server, OTHER_DISK, 32 * MIB, 512);
        self.create_pool(OTHER, OTHER_DISK);
        self.control(|control| async move {
            let shape = Shape { name: OTHER, ..Shape::thick() };
            control.create_volume(new_volume(OTHER, shape)).await.unwrap();
            map(&control, OTHER, 1).await.unwrap();
        });
    }

    /// Creates a volume in the first pool and maps it.
    pub(crate) fn add(&self, shape: Shape) {
        self.control(move |control| async move {
            control.create_volume(new_volume(POOL, shape)).await.unwrap();
            map(&control, shape.name, shape.lun).await.unwrap();
        });
    }

    /// Adds a machine for clients.
    pub(crate) fn client(&self, name: &str) -> Client<'_> {
        Client { rig: self, node: self.world.add_node(name, 1, |_| std::future::pending()) }
    }
}

/// The empty record of a cluster with this node.
fn record_of(node: NodeNumber) -> Memory {
    Memory::new(cluster::NodeId::new(node.get().into()))
}

/// When volumes were created, in seconds since 1970.
pub(crate) const CREATED: u64 = 1_700_000_000;

pub(crate) fn new_volume(pool: &str, shape: Shape) -> NewVolume {
    NewVolume {
        name: shape.name.into(),
        pool: Some(pool.into()),
        kind: shape.kind,
        size: ByteLen(shape.mib * MIB),
        block_size: shape.block,
        native_512: false,
        slices: None,
        created: CREATED,
        map: None,
        copies: None,
        space: store::SpacePolicy::default(),
        // Tests find blocks on disks by what they hold.
        compression: store::Compression::Off,
        checksums: false,
    }
}

/// Maps a volume to all hosts.
pub(crate) async fn map(control: &Rc<Control>, volume: &str, lun: u16) -> Result<u16, ControlError> {
    let spec = MapSpec { target: TARGET.into(), host: "any".into(), lun: Some(lun) };
    control.map(volume, spec).await
}

/// A machine with initiators.
#[derive(Clone, Copy)]
pub(crate) struct Client<'a> {
    rig: &'a Rig,
    pub(crate) node: NodeId,
}

impl Client<'_> {
    /// Runs a client to its end.
    pub(crate) fn run<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        function: impl FnOnce(SocketAddr) -> F + 'static,
    ) -> T {
        let portal = self.rig.portal;
        self.rig.world.block_on(self.node, CoreId(0), move || function(portal))
    }

    /// Starts a client.
    pub(crate) fn spawn<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        function: impl FnOnce(SocketAddr) -> F + 'static,
    ) -> Receiver<T> {
        let portal = self.rig.portal;
        self.rig.world.spawn_on(self.node, CoreId(0), move || function(portal))
    }
}

/// How the initiator of this name logs in. Each name is another initiator.
///
/// It stays until it is cut off: what the node does for initiators that leave on request, it must do for the
/// others, too.
pub(crate) fn named(name: &str) -> Options {
    Options { initiator: format!("iqn.2026-01.org.ursa:{name}"), obedient: false, ..Options::default() }
}

/// Logs in as the initiator of this name, and takes the unit attentions.
pub(crate) async fn log_in(portal: SocketAddr, name: &str, lun: u16) -> Rc<Session> {
    let session = Session::connect(portal, TARGET, &named(name)).await.expect("the login succeeds");
    session.make_ready(Lun(lun)).await.expect("the unit is ready");
    Rc::new(session)
}

/// As [`log_in`], again and again until the login succeeds.
pub(crate) async fn log_in_again(portal: SocketAddr, name: &str, lun: u16) -> Rc<Session> {
    for _ in 0..1000 {
        if let Ok(session) = Session::connect(portal, TARGET, &named(name)).await
            && session.make_ready(Lun(lun)).await.is_ok()
        {
            return Rc::new(session);
        }
        rt::sleep(Duration::from_millis(50)).await;
    }
    panic!("{name} does not get in");
}
