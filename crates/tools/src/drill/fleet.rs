//! A cluster of processes of this program, on loopback, each with a directory of its own.
//!
//! None of them survives the process that started it: the nodes die with it, however it ends.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use api::{
    Client, ClusterInit, ClusterJoin, ClusterNode, Compression, CopyState, LinkFor, LinkRole, NewDisk,
    PoolCreate, PoolForget, TokenCreate, Volume, VolumeCreate, VolumeKind,
};
use base::Instant;
use cli::replace_copy;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use super::DrillError;
use super::gate::{Gate, Way};
use super::waiter::Waiter;
use super::watch::now;

/// Limit from the start of a process until its API responds.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Limit from SIGTERM until the process has exited; sessions may take a few seconds to log out.
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// Limit until all nodes know each other and vote.
const FORM_LIMIT: Duration = Duration::from_secs(30);
/// Limit until links use the right networks: nodes check that every half a minute.
const LINKS_LIMIT: Duration = Duration::from_secs(70);
/// Limit until a new volume is in sync on all of its nodes.
const VOLUME_LIMIT: Duration = Duration::from_secs(30);

/// Ports below Linux's range for outgoing connections (from 32768), so that no connection takes a port before
/// the node has it.
const PORTS_FIRST: u32 = 20_000;
const PORTS: u32 = 12_000;

/// Limit until a lost pool is removed from the record and a copy is created in a new one.
const REPLACE_LIMIT: Duration = Duration::from_secs(60);

/// The pool that a node creates at its first start, and its file in the node's directory.
const POOL: &str = "default";
const POOL_FILE: &str = "pools/default.img";

/// The name of a drill's volume.
pub const VOLUME: &str = "drill";

/// The cluster to start.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The number of nodes with a copy of the volume.
    pub copies: u8,
    /// The number of further nodes, without a copy.
    pub others: u8,
    /// Heartbeats have a network of their own, and only it has gates.
    pub beats_apart: bool,
    /// One more node is a witness.
    pub witness: bool,
    /// Data sent across a cut is lost, with its connections; otherwise it arrives when the cut ends.
    pub lossy: bool,
    pub kind: VolumeKind,
    /// The pools have space for half of the volume only; the load uses the volume's first part.
    pub small_pools: bool,
    /// Nodes have watchers, which report their death to the others.
    pub watchers: bool,
    /// The volume's size in bytes.
    pub size: u64,
    /// The directory for the nodes' data. It must not exist, and is removed if the drill passes.
    pub directory: PathBuf,
}

impl Shape {
    /// The size of each node's pool.
    pub fn pool_bytes(&self) -> u64 {
        match self.kind.is_durable() {
            false => ROOM,
            true if self.small_pools => whole_mebibytes(self.size / 2),
            // Logs are full long before their pool has no space left, and the load overwrites the volume.
            true if self.kind.is_thin() => self.size + self.size / 2 + ROOM,
            true => self.size + ROOM,
        }
    }

    /// The part of the volume that the load uses; `None`: all of it.
    pub fn load_span(&self) -> Option<u64> {
        self.small_pools.then(|| whole_mebibytes(self.size / 16))
    }
}

fn whole_mebibytes(bytes: u64) -> u64 {
    bytes >> 20 << 20
}

/// The nodes: first those with a copy; the witness, if there is one, is last.
pub struct Fleet {
    shape: Shape,
    nodes: Vec<Member>,
    gates: Vec<Between>,
    keep: bool,
}

/// A gate between two nodes; the one with the higher number connects.
struct Between {
    higher: u16,
    lower: u16,
    gate: Gate,
}

/// The direction that is cut at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutDirection {
    /// What the node sends.
    ByIt,
    /// What the node receives.
    ToIt,
}

/// A node.
pub struct Member {
    pub number: u16,
    process: Option<Child>,
    arguments: Vec<String>,
    data: PathBuf,
    pool_bytes: u64,
    log: PathBuf,
    link: SocketAddr,
    /// Where it listens for heartbeats, if they have a network of their own; data then uses the other
    /// address.
    beats: Option<SocketAddr>,
    /// Where it listens for iSCSI.
    pub portal: SocketAddr,
    pub client: Client,
}

impl Fleet {
    /// Starts the nodes, forms a cluster, and creates a volume with its copies.
    pub fn start(shape: Shape, waiter: &Waiter) -> Result<Fleet, DrillError> {
        let failed = |source| DrillError::Directory(shape.directory.clone(), source);
        // Fails if the directory exists: all of it is removed at the end.
        fs::create_dir_all(shape.directory.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
        fs::create_dir(&shape.directory).map_err(failed)?;
        let count = u16::from(shape.copies) + u16::from(shape.others) + u16::from(shape.witness);
        let mut fleet = Fleet { nodes: Vec::new(), gates: Vec::new(), shape, keep: false };
        for number in 1..=count {
            let mut node = Member::new(number, &fleet.shape)?;
            node.go_by(&fleet.gates_to_lower(number)?);
            node.start()?;
            fleet.nodes.push(node);
        }
        for node in &fleet.nodes {
            node.wait_until_it_answers(waiter)?;
        }
        fleet.form(waiter)?;
        fleet.make_volume(waiter)?;
        Ok(fleet)
    }

    /// Puts gates between the node and all lower ones; returns each node's address and that of its gate.
    fn gates_to_lower(&mut self, higher: u16) -> Result<Vec<(SocketAddr, SocketAddr)>, DrillError> {
        let mut ways = Vec::new();
        for lower in &self.nodes {
            let before = lower.beats.unwrap_or(lower.link);
            let gate = Gate::new(before, self.shape.lossy).map_err(DrillError::Gate)?;
            ways.push((before, gate.address()));
            self.gates.push(Between { higher, lower: lower.number, gate });
        }
        Ok(ways)
    }

    /// Cuts these directions between the node and another one, or all others; or ends the cut.
    pub fn cut(&self, node: u16, other: Option<u16>, what: &[CutDirection], cut: bool) {
        let concerns = |between: &&Between| {
            let ends = [between.higher, between.lower];
            ends.contains(&node) && other.is_none_or(|other| ends.contains(&other))
        };
        for between in self.gates.iter().filter(concerns) {
            for said in what {
                // The node with the higher number connects.
                let way = if (between.higher == node) == (*said == CutDirection::ByIt) {
                    Way::There
                } else {
                    Way::Back
                };
                between.gate.keep(way, cut);
            }
        }
    }

    /// Cuts all gates in both directions, or ends the cut.
    pub fn cut_all(&self, cut: bool) {
        for between in &self.gates {
            [Way::There, Way::Back].into_iter().for_each(|way| between.gate.keep(way, cut));
        }
    }

    /// Waits until heartbeats alone use their network, if they have one of their own.
    pub fn wait_for_beats_apart(&self, waiter: &Waiter) -> Result<(), DrillError> {
        let apart = || self.gates.iter().all(|between| between.gate.connections() == 1);
        match self.shape.beats_apart {
            true => waiter.wait(LINKS_LIMIT, "heartbeats to use their own network", apart),
            false => Ok(()),
        }
    }

    fn form(&self, waiter: &Waiter) -> Result<(), DrillError> {
        let [first, others @ ..] = self.nodes.as_slice() else { return Ok(()) };
        first.client.init_cluster(&ClusterInit { listen: first.listens() })?;
        for node in others {
            let token = first.client.create_token(&TokenCreate::default())?.token;
            let witness = self.shape.witness && usize::from(node.number) == self.nodes.len();
            node.client.join_cluster(&ClusterJoin { token, listen: node.listens(), witness })?;
        }
        self.wait_for_votes(waiter)?;
        for node in &self.nodes {
            let Some(beats) = node.beats else { continue };
            for (address, role) in [(node.link, LinkRole::Replication), (beats, LinkRole::Heartbeat)] {
                let link = LinkFor { address: address.to_string(), role: Some(role) };
                first.client.keep_link_for(node.number, &link)?;
            }
        }
        Ok(())
    }

    /// Waits until every node sees all others, and all vote.
    fn wait_for_votes(&self, waiter: &Waiter) -> Result<(), DrillError> {
        let votes = |node: &ClusterNode| node.up && node.votes;
        let complete = |node: &Member| {
            let all = node.client.cluster_nodes().unwrap_or_default();
            all.len() == self.nodes.len() && all.iter().all(votes)
        };
        waiter.wait(FORM_LIMIT, "the nodes to vote", || self.nodes.iter().all(complete))
    }

    fn make_volume(&self, waiter: &Waiter) -> Result<(), DrillError> {
        let kind = self.shape.kind;
        let nodes = self.with_copies().iter().map(|node| node.number).collect();
        // The scenarios look for blocks in the pool's file, and fill the pool with as many as it has room
        // for.
        let compression = kind.is_compressible().then_some(Compression::Off);
        let new = VolumeCreate::new(VOLUME, self.shape.size);
        let volume = VolumeCreate { kind, nodes: Some(nodes), compression, ..new };
        self.nodes[0].client.create_volume(&volume)?;
        waiter.wait(VOLUME_LIMIT, "the volume to be in sync", || self.is_whole())
    }

    /// Whether all nodes with a copy respond and agree that all copies are in sync.
    pub fn is_whole(&self) -> bool {
        let whole = |volume: Volume| {
            volume.serving && volume.copies.iter().all(|copy| copy.state == CopyState::InSync)
        };
        self.with_copies().iter().all(|node| node.client.volume(VOLUME).is_ok_and(whole))
    }

    pub fn with_copies(&self) -> &[Member] {
        &self.nodes[..usize::from(self.shape.copies)]
    }

    /// The part of the volume that the load uses; `None`: all of it.
    pub fn load_span(&self) -> Option<u64> {
        self.shape.load_span()
    }

    /// The number of these nodes.
    pub fn copies(&self) -> u8 {
        self.shape.copies
    }

    fn without_copies(&mut self) -> &mut [Member] {
        &mut self.nodes[usize::from(self.shape.copies)..]
    }

    /// Kills all nodes without a copy at once with SIGKILL; they have exited when this returns.
    pub fn kill_without_copies(&mut self) {
        kill_at_once(self.without_copies());
    }

    /// Starts the nodes without a copy again, and waits until they vote.
    pub fn start_without_copies(&mut self, waiter: &Waiter) -> Result<(), DrillError> {
        self.without_copies().iter_mut().try_for_each(Member::start)?;
        self.wait_for_votes(waiter)
    }

    pub fn node(&mut self, number: u16) -> &mut Member {
        &mut self.nodes[usize::from(number) - 1]
    }

    /// Kills all nodes at once with SIGKILL, the witness too; they have exited when this returns.
    pub fn kill_all(&mut self) {
        kill_at_once(&mut self.nodes);
    }

    /// Starts a node that has lost its disks, creates a pool on new ones, and rebuilds its copy from the
    /// others.
    pub fn replace_disks(&mut self, number: u16, waiter: &Waiter) -> Result<Replaced, DrillError> {
        let node = self.node(number);
        node.start()?;
        node.wait_until_it_answers(waiter)?;
        let forget = || node.client.forget_pool(POOL, &PoolForget { unmap: false }, None).is_ok();
        waiter.wait(REPLACE_LIMIT, "the lost pool to be removed from the record", forget)?;
        let path = node.pool_file().display().to_string();
        let disk = NewDisk { path, size: Some(node.pool_bytes), preallocate: false };
        let pool = PoolCreate { name: POOL.into(), disks: vec![disk], wipe: false };
        node.client.create_pool(&pool, None)?;
        // As an administrator would, on a node that has a copy.
        let asked = self.with_copies().iter().find(|node| node.number != number);
        let asked = asked.expect("a drill has two copies or more");
        let volume = asked.client.volume(VOLUME)?.id;
        let mut gone = now();
        replace_copy(&asked.client, &volume, number, None, || gone = now())
            .map_err(|error| DrillError::Replace(error.to_string()))?;
        Ok(Replaced { gone, made: now() })
    }

    /// Starts all nodes again.
    pub fn start_all(&mut self) -> Result<(), DrillError> {
        self.nodes.iter_mut().try_for_each(Member::start)
    }

    /// Keeps the directory with the nodes' logs; returns its path.
    pub fn keep(&mut self) -> &Path {
        self.keep = true;
        &self.shape.directory
    }
}

/// When a copy was removed, and when its replacement was created.
#[derive(Clone, Copy, Debug)]
pub struct Replaced {
    /// From then on the volume has no copy there.
    pub gone: Instant,
    /// From then on it has a new, empty copy.
    pub made: Instant,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.kill_all();
        if !self.keep {
            // If this fails, the files remain in a directory for temporary files.
            let _ = fs::remove_dir_all(&self.shape.directory);
        }
    }
}

impl Member {
    fn new(number: u16, shape: &Shape) -> Result<Member, DrillError> {
        let [portal, api, link] = [free_port()?, free_port()?, free_port()?];
        let beats = shape.beats_apart.then(free_port).transpose()?;
        let data = shape.directory.join(format!("n{number}"));
        let pool = shape.pool_bytes();
        let ram = if shape.kind.is_durable() { ROOM } else { shape.size + ROOM };
        let arguments = [
            ("--data-dir", data.display().to_string()),
            ("--name", format!("n{number}")),
            ("--iscsi-listen", portal.to_string()),
            ("--api-listen", api.to_string()),
            ("--cores", cores_of_each(usize::from(shape.copies)).to_string()),
            ("--pool-size", pool.to_string()),
            ("--ram-max", ram.to_string()),
            ("--data-max", DATA_MAX.to_string()),
            ("--watcher", shape.watchers.to_string()),
        ];
        let arguments = arguments.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        Ok(Member {
            number,
            process: None,
            arguments: arguments.collect(),
            data,
            pool_bytes: pool,
            log: shape.directory.join(format!("n{number}.log")),
            link,
            beats,
            portal,
            client: Client::new(&format!("http://{api}")),
        })
    }

    /// The addresses where it listens for other nodes. Control links use the first one until heartbeats have
    /// a network.
    fn listens(&self) -> Vec<String> {
        self.beats.into_iter().chain([self.link]).map(|address| address.to_string()).collect()
    }

    /// Makes the node reach these addresses of other nodes through the other ones.
    fn go_by(&mut self, ways: &[(SocketAddr, SocketAddr)]) {
        if !ways.is_empty() {
            let ways: Vec<String> = ways.iter().map(|(from, to)| format!("{from}={to}")).collect();
            self.arguments.extend(["--link-via".to_owned(), ways.join(",")]);
        }
    }

    /// Starts the process, for the first time or again.
    pub fn start(&mut self) -> Result<(), DrillError> {
        let failed = |error| DrillError::Process(self.number, error);
        let log = File::options().create(true).append(true).open(&self.log).map_err(failed)?;
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg("serve").args(&self.arguments);
        command.stdin(Stdio::null()).stdout(log.try_clone().map_err(failed)?).stderr(log);
        // Ctrl-C is for the drill alone, which stops the nodes.
        command.process_group(0);
        let parent = rustix::process::getpid();
        let die_with_parent = move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have exited before.
            match rustix::process::getppid() {
                found if found == Some(parent) => Ok(()),
                _ => Err(io::ErrorKind::NotFound.into()),
            }
        };
        // SAFETY: between fork and exec, the function makes two system calls, and takes no memory and no
        // lock.
        unsafe { command.pre_exec(die_with_parent) };
        self.process = Some(command.spawn().map_err(failed)?);
        Ok(())
    }

    /// Waits until its API responds.
    pub fn wait_until_it_answers(&self, waiter: &Waiter) -> Result<(), DrillError> {
        waiter.wait(START_LIMIT, &format!("n{} to answer", self.number), || self.client.health().is_ok())
    }

    /// Kills the process with SIGKILL; it has exited when this returns.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have exited on its own.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Kills the process with SIGKILL, and deletes its pool.
    pub fn lose_disks(&mut self) -> Result<(), DrillError> {
        self.kill();
        let path = self.pool_file();
        fs::remove_file(&path).map_err(|error| DrillError::Directory(path, error))
    }

    pub fn pool_file(&self) -> PathBuf {
        self.data.join(POOL_FILE)
    }

    /// Sends SIGTERM.
    pub fn tell_to_stop(&self) {
        self.signal(Signal::TERM);
    }

    /// Waits until the process has exited.
    pub fn wait_until_it_is_gone(&mut self, waiter: &Waiter) -> Result<(), DrillError> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let gone = || process.try_wait().is_ok_and(|status| status.is_some());
        waiter.wait(STOP_LIMIT, &format!("n{} to stop", self.number), gone)?;
        self.process = None;
        Ok(())
    }

    /// Sends SIGSTOP: the process stops, and the kernel still accepts what it is sent.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Sends SIGCONT.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.process.as_ref().map(Pid::from_child) {
            // The process may have exited on its own; the next step finds that out.
            let _ = kill_process(pid, signal);
        }
    }
}

fn kill_at_once(nodes: &mut [Member]) {
    nodes.iter().for_each(|node| node.signal(Signal::KILL));
    nodes.iter_mut().for_each(Member::kill);
}

/// Bytes that a pool needs besides its volumes; enough for a pool without volumes.
const ROOM: u64 = 256 << 20;

/// Memory for the data of a node's commands: the load's depth is small.
const DATA_MAX: u64 = 64 << 20;

/// Cores per node: all nodes and the load share the machine.
fn cores_of_each(nodes: usize) -> usize {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    (available / (nodes + 1)).clamp(1, 4)
}

/// A free loopback address, which no other call returns.
pub fn free_port() -> Result<SocketAddr, DrillError> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..PORTS {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        // Two drills that run at the same time start far apart.
        let port = PORTS_FIRST + (std::process::id().wrapping_mul(397).wrapping_add(step)) % PORTS;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port as u16));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err(DrillError::NoPort)
}
