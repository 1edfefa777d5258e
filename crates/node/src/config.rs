//! How a node runs. Everything has a default; `ursa` reads it from a file and from its arguments.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::control::Control;
use crate::floating::Devices;
use crate::port_numbers::NodeNumber;

/// What a node shows another one, by what it is asked for.
pub type Shown = Pin<Box<dyn Future<Output = Option<String>>>>;

/// See [`Config::show`].
#[derive(Clone)]
pub struct Show(Arc<dyn Fn(Rc<Control>, String) -> Shown + Send + Sync>);

impl Show {
    /// By this function, on core 0.
    pub fn new(show: impl Fn(Rc<Control>, String) -> Shown + Send + Sync + 'static) -> Show {
        Show(Arc::new(show))
    }

    /// What is shown; `None`: this node does not know that.
    pub fn show(&self, control: Rc<Control>, what: String) -> Shown {
        (self.0)(control, what)
    }
}

impl Default for Show {
    fn default() -> Show {
        Show::new(|_, _| Box::pin(async { None }))
    }
}

impl fmt::Debug for Show {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Show")
    }
}

/// What becomes of a request that another node has passed on: the answer, or why it was not begun.
pub type Carried = Pin<Box<dyn Future<Output = Result<String, String>>>>;

/// See [`Config::carry`].
#[derive(Clone)]
pub struct Carry(Arc<dyn Fn(String) -> Carried + Send + Sync>);

impl Carry {
    /// By this function, on core 0.
    pub fn new(carry: impl Fn(String) -> Carried + Send + Sync + 'static) -> Carry {
        Carry(Arc::new(carry))
    }

    /// Carries it out.
    pub fn carry(&self, request: String) -> Carried {
        (self.0)(request)
    }
}

impl Default for Carry {
    fn default() -> Carry {
        Carry::new(|_| Box::pin(async { Err("it does not carry out requests for other nodes".into()) }))
    }
}

impl fmt::Debug for Carry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Carry")
    }
}

/// The settings of a node.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node's name, for people.
    pub name: String,
    /// Its number, if it belongs to a cluster: its ports are numbered by it from the first login to the last.
    pub node_number: Option<NodeNumber>,
    /// Where the record lies, and pools made without a path.
    pub data_dir: PathBuf,
    /// Where to listen for iSCSI.
    pub portals: Vec<SocketAddr>,
    /// How much memory RAM volumes may take together, in bytes.
    pub ram_bytes_max: u64,
    /// How much memory the maps of log volumes may take together, in bytes.
    pub map_bytes_max: u64,
    /// The bounds of each log of a pool, in which log volumes lie.
    pub log: store::LogTuning,
    /// How much memory the data of writes may take, in bytes, on all cores together, and again that of reads:
    /// sessions share it, but each may hold 8 MiB of either, and besides what `commands_max` writes bring
    /// without being asked.
    pub data_bytes_max: usize,
    /// Whether reads of volumes with other copies wait for a word of the nodes that have them, which came
    /// after the read (R24): this machine's clocks may stop while time goes on elsewhere, as those of a
    /// virtual machine do when it is paused.
    pub read_confirm: bool,
    /// Bytes a second that this node may give to bring other nodes' copies up to date; 0: as much as hosts'
    /// writes leave.
    pub resync_bytes_per_second_max: u64,
    /// Commands that one session may have outstanding.
    pub commands_max: u32,
    /// How long a login may take.
    pub login_deadline: Duration,
    /// After how long without a word from an initiator it is asked for a sign of life, and after as long
    /// again dropped.
    pub nop_interval: Duration,
    /// How long a session gets to log out after it was asked to: because the node stops, an administrator
    /// ends it, or nothing is mapped for it any more.
    pub drain_deadline: Duration,
    /// Whether an initiator that some target asks for a secret must prove itself to see targets, too.
    pub discovery_chap: bool,
    /// Where to connect instead of these addresses of other nodes: to a tunnel, or to what a drill has put
    /// between them.
    pub link_via: BTreeMap<SocketAddr, SocketAddr>,
    /// What keeps the record of a cluster that the node is in.
    pub record: RecordEngine,
    /// What the node shows another node of its cluster that asks for it, as text that only the two must
    /// understand; `None`: it does not know that.
    pub show: Show,
    /// How the node carries out what another node of its cluster was asked for, and cannot itself: it has no
    /// copy of the volume.
    pub carry: Carry,
    /// How floating addresses come to the machine's network devices, and leave them.
    pub devices: Devices,
    /// The wall clock, in seconds since 1970: when tokens expire.
    pub unix_now: fn() -> u64,
}

pub use cluster::etcd::{Access, AccessError};

/// What keeps a cluster's record.
#[derive(Clone, Debug)]
pub enum RecordEngine {
    /// The nodes themselves, by Raft, in a file each.
    Embedded,
    /// A site's own etcd.
    Etcd(Access),
    /// The memory of the process that simulates them all.
    Memory(cluster::memory::Memory),
    /// The simulated nodes themselves, by Raft.
    Simulated(cluster::embedded::Files),
}

/// What syncs may take unless told otherwise: half of a network of 10 Gbit/s, and most of what one disk
/// gives.
pub const RESYNC_BYTES_PER_SECOND_MAX: u64 = 512 << 20;

/// The port that IANA has assigned to iSCSI.
pub const ISCSI_PORT: u16 = 3260;

impl Default for Config {
    fn default() -> Config {
        Config {
            name: "ursa".into(),
            node_number: None,
            data_dir: "ursa-data".into(),
            portals: vec![SocketAddr::from(([0, 0, 0, 0], ISCSI_PORT))],
            ram_bytes_max: 1 << 30,
            map_bytes_max: 1 << 30,
            log: store::LogTuning::default(),
            data_bytes_max: 512 << 20,
            read_confirm: false,
            resync_bytes_per_second_max: RESYNC_BYTES_PER_SECOND_MAX,
            commands_max: 128,
            login_deadline: Duration::from_secs(15),
            nop_interval: Duration::from_secs(30),
            drain_deadline: Duration::from_secs(5),
            discovery_chap: false,
            link_via: BTreeMap::new(),
            record: RecordEngine::Embedded,
            show: Show::default(),
            carry: Carry::default(),
            devices: Devices::default(),
            unix_now: || 0,
        }
    }
}
