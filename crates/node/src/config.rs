//! The configuration of a node. Everything has a default; `ursa` reads it from a file and from its arguments.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::attach::port_numbers::NodeNumber;
use crate::control::{Control, Place};
use crate::copies::Refused;
use crate::member::floating::Devices;

/// The answer to a request of another node, as text, or why the request was not begun.
pub type PeerAnswer = Pin<Box<dyn Future<Output = Result<String, Refused>>>>;

/// See [`Config::peer_requests`].
#[derive(Clone)]
pub struct PeerRequests(Arc<dyn Fn(Rc<Control>, String) -> PeerAnswer + Send + Sync>);

impl PeerRequests {
    /// Calls this function, on core 0.
    pub fn new(answer: impl Fn(Rc<Control>, String) -> PeerAnswer + Send + Sync + 'static) -> PeerRequests {
        PeerRequests(Arc::new(answer))
    }

    /// Executes `request`.
    pub fn answer(&self, control: Rc<Control>, request: String) -> PeerAnswer {
        (self.0)(control, request)
    }
}

impl Default for PeerRequests {
    fn default() -> PeerRequests {
        PeerRequests::new(|_, _| Box::pin(async { Err(Refused::UnknownRequest) }))
    }
}

base::shows!(Debug for PeerRequests, "PeerRequests");

/// The settings of a node.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node's name, for people.
    pub name: String,
    /// For tests: the node's number in the cluster that it creates at its first start.
    pub node_number: NodeNumber,
    /// The directory of the record, and of pools created without a path.
    pub data_dir: PathBuf,
    /// The addresses to listen at for iSCSI.
    pub portals: Vec<SocketAddr>,
    /// How much memory all RAM volumes together may take, in bytes.
    pub ram_bytes_max: u64,
    /// How much memory the maps of all log volumes together may take, in bytes.
    pub map_bytes_max: u64,
    /// The limits of each log of a pool, which holds the log volumes.
    pub log: store::LogTuning,
    /// How much memory write data may take, in bytes, on all cores together; read data may take as much
    /// again. Sessions share it, but each may hold 8 MiB of either, and in addition what `commands_max`
    /// writes bring as immediate or unsolicited data.
    pub data_bytes_max: usize,
    /// Whether reads of replicated volumes wait until the nodes with the other copies confirm them (R24).
    /// Needed if this machine's clocks may stop while time continues elsewhere, as in a virtual machine that
    /// is paused.
    pub read_confirm: bool,
    /// Bytes per second that this node may send to bring other nodes' copies up to date; 0: as much as hosts'
    /// writes leave.
    pub resync_bytes_per_second_max: u64,
    /// Commands that one session may have outstanding.
    pub commands_max: u32,
    /// How long a login may take.
    pub login_deadline: Duration,
    /// After how long without a PDU from an initiator the node sends it a NOP-In, and after how much longer
    /// without an answer it drops the connection.
    pub nop_interval: Duration,
    /// How long a session has to log out after the node asked it to: because the node stops, an administrator
    /// ends it, or no LUN is mapped for it any more.
    pub drain_deadline: Duration,
    /// Whether discovery, too, requires CHAP of an initiator if any target requires it of that initiator.
    pub discovery_chap: bool,
    /// Addresses to connect to instead of these addresses of other nodes: a tunnel's, or those of a drill's
    /// proxy.
    pub link_via: BTreeMap<SocketAddr, SocketAddr>,
    /// Where the record of the node's cluster is kept.
    pub record: RecordEngine,
    /// For tests: the place in a cluster that the node takes at its first start. Without one, it creates a
    /// cluster, in which it listens at no address until it is asked to.
    pub first_place: Option<Place>,
    /// Executes requests of other nodes of the cluster: what they ask this node to show, and what they cannot
    /// execute themselves. Requests and answers are text that only the HTTP interfaces of the two nodes
    /// interpret.
    pub peer_requests: PeerRequests,
    /// Sets floating addresses on the machine's network devices, and removes them.
    pub devices: Devices,
    /// The wall clock, in seconds since 1970. Tokens expire by it.
    pub unix_now: fn() -> u64,
}

pub use cluster::etcd::{Access, AccessError};

/// Where a cluster's record is kept.
#[derive(Clone, Debug)]
pub enum RecordEngine {
    /// In the nodes themselves, by Raft, in one file per node.
    Embedded,
    /// In the site's own etcd.
    Etcd(Access),
    /// In the memory of the process that simulates all nodes.
    Memory(cluster::memory::Memory),
    /// The same, with a record for each of several clusters.
    Memories(Memories),
    /// In the simulated nodes themselves, by Raft.
    Simulated(cluster::embedded::Files),
}

/// The records of several simulated clusters.
#[derive(Clone, Debug)]
pub struct Memories {
    /// Those of these clusters, by identity.
    pub known: BTreeMap<String, cluster::memory::Memory>,
    /// That of a cluster that the node creates, whose identity nobody knows before.
    pub founded: cluster::memory::Memory,
}

impl Memories {
    /// The record of a cluster.
    pub(crate) fn of(&self, cluster: &str) -> &cluster::memory::Memory {
        self.known.get(cluster).unwrap_or(&self.founded)
    }
}

/// The default rate of resyncs: half of a 10 Gbit/s network, and most of what one disk delivers.
pub const RESYNC_BYTES_PER_SECOND_MAX: u64 = 512 << 20;

/// The port that IANA has assigned to iSCSI.
pub const ISCSI_PORT: u16 = 3260;

impl Default for Config {
    fn default() -> Config {
        Config {
            name: "ursa".into(),
            node_number: NodeNumber::FIRST,
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
            first_place: None,
            peer_requests: PeerRequests::default(),
            devices: Devices::default(),
            unix_now: || 0,
        }
    }
}
