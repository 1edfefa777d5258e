//! Volumes with copies on several nodes: every node serves, and the loss of a node is only a stall.
//!
//! When the node returns, its copy gets what it missed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod addresses;
mod adopting;
mod all_paths;
mod bad_blocks;
mod budget;
mod clocks;
mod compare_and_write;
mod converting;
mod deleted;
mod events;
mod failed_disks;
mod fork_ends;
mod forks;
mod forks_crashes;
mod founding;
mod full_disks;
mod ghosts;
mod given_up;
mod growing;
mod lacking_logs;
mod links;
mod logs;
mod lost_blocks;
mod many;
#[cfg(debug_assertions)]
mod mistakes;
mod moving;
mod old_copies;
mod partial_blocks;
mod pausing;
mod placement;
mod power;
mod provisioning;
mod record_lost;
mod record_stalled;
mod reservations;
#[expect(dead_code, reason = "the other tests need more of it")]
#[path = "../all/rig.rs"]
mod rig;
mod scrubbing;
#[path = "../all/seeds.rs"]
mod seeds;
mod set_back;
mod silent_disks;
mod snapshots;
mod sole;
mod stopping;
mod switching;
mod syncs;
mod unreadable;
mod verifying;
mod waits;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::{BlockCount, BlockSize, Chain, Lba, Rng};
use initiator::command::Write;
use initiator::{Lun, Session};
use node::config::{Memories, RecordEngine};
use node::control::{Place, Placement, PoolSpec, RecordPlace, TargetSpec};
use node::copies::{Answer, Ask};
use node::{Config, Control, StartError, StartSpec};
use rt::CoreId;
use rt::sim::linear::{Kind, NEVER, Op, check};
use rt::sim::{NodeId, World};
use rt::sync::Receiver;
use store::{NewDisk, VolumeKind};

use crate::rig::{CREATED, DISK, MIB, POOL, Shape, TARGET, map, named, new_volume};
use crate::seeds::{each_seed, each_seed_twice};

const LUN: Lun = Lun(0);
const SIZE: BlockSize = BlockSize::B4096;
const LINK_PORT: u16 = 3270;
/// The cluster of all nodes.
const CLUSTER: &str = "0123456789abcdef0123456789abcdef";

/// A calendar of all nodes that begins when volumes are created, and runs this many times as fast as time
/// does.
fn calendar(times: u64) -> u64 {
    CREATED + rt::time_of_day().saturating_sub(rt::sim::CALENDAR_START).as_secs() * times
}

/// Servers that share a cluster's record.
struct Cluster {
    world: World,
    servers: Vec<NodeId>,
    configs: Vec<Arc<Config>>,
    cores: usize,
    record: cluster::memory::Memory,
}

impl Cluster {
    /// `nodes` nodes in a cluster, each with a pool, and a target.
    fn new(seed: u64, nodes: usize, cores: usize) -> Cluster {
        Cluster::with_config(seed, nodes, cores, &Config::default())
    }

    fn with_config(seed: u64, nodes: usize, cores: usize, config: &Config) -> Cluster {
        Cluster::with_disks(seed, nodes, cores, config, &[512])
    }

    /// The same on disks with these block sizes, one for each node in turn.
    fn with_disks(seed: u64, nodes: usize, cores: usize, config: &Config, disk_blocks: &[u32]) -> Cluster {
        let mut cluster = Cluster::stopped(seed, nodes, cores, config);
        for index in 0..nodes {
            let first_place = Some(cluster.place_in_cluster(index));
            let config = Config { first_place, ..Config::clone(&cluster.configs[index]) };
            cluster.configs[index] = Arc::new(config);
        }
        cluster.start_all(disk_blocks);
        cluster.meet();
        cluster
    }

    /// Nodes with pools, each in a cluster of its own.
    fn apart(seed: u64, nodes: usize, cores: usize, config: &Config, disk_blocks: &[u32]) -> Cluster {
        let cluster = Cluster::stopped(seed, nodes, cores, config);
        cluster.start_all(disk_blocks);
        cluster
    }

    /// Machines without processes.
    fn stopped(seed: u64, nodes: usize, cores: usize, config: &Config) -> Cluster {
        let world = World::new(seed);
        let memory = cluster::memory::Memory::new((1..=nodes as u16).filter_map(cluster::NodeId::new));
        let servers: Vec<NodeId> =
            (0..nodes).map(|index| world.add_machine(&format!("server-{}", index + 1), cores)).collect();
        let configs = servers.iter().map(|server| {
            let portal = SocketAddr::new(world.address(*server), 3260);
            let known = BTreeMap::from([(CLUSTER.to_owned(), memory.clone())]);
            let founded = cluster::memory::Memory::new(cluster::NodeId::new(1));
            let record = RecordEngine::Memories(Memories { known, founded });
            Arc::new(Config { data_dir: "/ursa".into(), portals: vec![portal], record, ..config.clone() })
        });
        let configs = configs.collect();
        Cluster { world, servers, configs, cores, record: memory }
    }

    /// Starts all nodes, each of which gets a pool.
    fn start_all(&self, disk_blocks: &[u32]) {
        for index in 0..self.servers.len() {
            self.start(index);
            let disk_block = disk_blocks[index % disk_blocks.len()];
            self.world.add_disk(self.servers[index], DISK, 64 * MIB, disk_block);
            self.create_pool(index, POOL, DISK);
        }
    }

    /// Creates a pool of a node on this disk.
    fn create_pool(&self, index: usize, name: &'static str, disk: &'static str) {
        self.control(index, move |control| async move {
            let disks = vec![NewDisk { path: disk.into(), create: None, reserve: false }];
            control.create_pool(PoolSpec { name: name.into(), disks, wipe: false }).await.unwrap();
        });
    }

    /// Adds a disk of 64 MiB to a node, and creates a pool on it.
    fn add_pool(&self, index: usize, name: &'static str, disk: &'static str) {
        self.world.add_disk(self.servers[index], disk, 64 * MIB, 512);
        self.create_pool(index, name, disk);
    }

    /// Makes all nodes one cluster.
    fn enter(&self) {
        (0..self.servers.len()).for_each(|index| self.enter_one(index));
        self.meet();
    }

    /// Waits until all nodes know each other, and creates a target.
    fn meet(&self) {
        let nodes = self.servers.len();
        let all_there =
            || self.control(0, |control| async move { control.reconciler().unwrap().nodes() }).len() == nodes;
        assert!(self.world.run_until(all_there, Duration::from_secs(30)));
        self.world.run_for(Duration::from_secs(2));
        self.control(0, |control| async move {
            let name = TARGET.to_owned();
            control.create_target(TargetSpec { name, alias: None, chap: None }).await.unwrap();
        });
    }

    /// Makes one more node a member.
    fn enter_one(&self, index: usize) {
        let place = self.place_in_cluster(index);
        self.control(index, move |control| async move { control.enter_cluster(place, 0).await.unwrap() });
    }

    /// The place that a node takes.
    fn place_in_cluster(&self, index: usize) -> Place {
        Place {
            cluster: CLUSTER.to_owned(),
            node: index as u16 + 1,
            listen: vec![SocketAddr::new(self.world.address(self.servers[index]), LINK_PORT)],
            witness: false,
            record: RecordPlace::Nodes,
            force_new: false,
            leave: false,
            incarnation: 0,
            members: Vec::new(),
        }
    }

    fn start(&self, index: usize) {
        let started = self.begin_start(index);
        self.world.wait_for(started).expect("the node answers").expect("the node starts");
    }

    /// Starts a node, and does not wait until it serves.
    fn begin_start(&self, index: usize) -> Receiver<Result<Vec<SocketAddr>, StartError>> {
        let (ready, started) = rt::sync::oneshot();
        let start = Rc::new(Cell::new(Some((StartSpec::default(), ready))));
        let config = Arc::clone(&self.configs[index]);
        self.world.restart(self.servers[index], move |core| {
            let start = (core == CoreId(0)).then(|| start.take()).flatten();
            node::run(Arc::clone(&config), start)
        });
        started
    }

    fn control<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        index: usize,
        function: impl FnOnce(Rc<Control>) -> F + 'static,
    ) -> T {
        self.world.block_on(self.servers[index], CoreId(0), move || function(Control::current()))
    }

    fn portal(&self, index: usize) -> SocketAddr {
        self.configs[index].portals[0]
    }

    fn portals(&self) -> Vec<SocketAddr> {
        (0..self.servers.len()).map(|index| self.portal(index)).collect()
    }

    /// Creates a volume of 8 MiB with this many copies and maps it.
    fn add_volume(&self, kind: VolumeKind, copies: u8) {
        self.add_shaped(Shape { kind, ..Shape::thick() }, copies);
    }

    /// As [`Cluster::add_volume`]; if it is thick, it has checksums.
    fn add_checked_volume(&self, kind: VolumeKind, copies: u8) {
        let new = new_volume(POOL, Shape { kind, ..Shape::thick() });
        self.add_new(node::control::NewVolume { checksums: true, ..new }, copies);
    }

    fn add_shaped(&self, shape: Shape, copies: u8) {
        self.add_new(new_volume(POOL, shape), copies);
    }

    fn add_new(&self, new: node::control::NewVolume, copies: u8) {
        self.control(0, move |control| async move {
            let name = new.name.clone();
            control
                .create_volume(node::control::NewVolume { copies: Some(Placement::Count(copies)), ..new })
                .await
                .unwrap();
            map(&control, &name, 0).await.unwrap();
        });
        // The other nodes follow in a moment.
        self.world.run_for(Duration::from_millis(100));
    }

    fn client(&self, name: &str) -> NodeId {
        self.world.add_node(name, 1, |_| std::future::pending())
    }

    /// The volume of [`Cluster::add_volume`], as a node knows it; `None`: it knows of none.
    fn shown(&self, index: usize) -> Option<node::member::CopiesStatus> {
        self.control(index, |control| async move {
            let mut volumes = control.reconciler().ok()?.volumes();
            // They are ordered by random identities.
            volumes.sort_by_key(|volume| volume.entry.name != Shape::thick().name);
            volumes.into_iter().next()
        })
    }

    /// Number of copies of the volume of [`Cluster::add_volume`] that are in sync, as a node knows.
    fn in_sync(&self, index: usize) -> usize {
        let copies = self.shown(index).unwrap().entry.copies;
        copies.iter().filter(|copy| copy.standing == node::copies::StandingEntry::InSync).count()
    }

    /// Waits until all nodes serve hosts: what the record says may still be about earlier processes of the
    /// nodes.
    fn wait_until_all_serve(&self) {
        let serves = |index| self.shown(index).is_some_and(|volume| volume.serving);
        for _ in 0..600 {
            self.world.run_for(Duration::from_millis(100));
            if (0..self.servers.len()).all(serves) {
                return;
            }
        }
        panic!("not all nodes serve after a minute");
    }

    fn wait_until_in_sync(&self, by: usize, copies: usize) {
        let there = self.world.run_until(|| false, Duration::from_millis(1));
        assert!(!there);
        for _ in 0..600 {
            if self.in_sync(by) == copies {
                return;
            }
            self.world.run_for(Duration::from_millis(100));
        }
        for (index, server) in self.servers.iter().enumerate() {
            for core in 0..self.cores {
                let unrest = self.world.block_on(*server, CoreId(core as u16), || async {
                    let copies = node::copies::Copies::current();
                    copies
                        .slices()
                        .iter()
                        .map(|copy| format!("{}: {}\n", copy.address(), copy.unrest()))
                        .collect::<String>()
                });
                println!("node {} core {core}: {unrest}", index + 1);
            }
        }
        panic!(
            "not in sync after a minute: {:?}",
            self.control(by, |control| async move { control.reconciler().unwrap().volumes() })
        );
    }

    /// Crashes nodes, cuts them off and lets them return, for a few seconds; in the end all are there.
    fn disturb(&self, rng: &mut Rng) {
        let nodes = self.servers.len();
        let mut down: Vec<usize> = Vec::new();
        for _ in 0..6 {
            self.world.run_for(Duration::from_millis(rng.below(3000)));
            let index = rng.below(nodes as u64) as usize;
            let other = (index + 1) % nodes;
            match rng.below(5) {
                0 | 1 if !down.contains(&index) => {
                    self.world.crash(self.servers[index]);
                    down.push(index);
                }
                2 => self.world.cut(self.servers[index], self.servers[other]),
                3 => self.world.cut_one_way(self.servers[index], self.servers[other]),
                _ => self.world.heal_all(),
            }
            if let Some(index) = down.first().copied().filter(|_| rng.one_in(2)) {
                down.remove(0);
                self.start(index);
            }
        }
        self.world.heal_all();
        down.into_iter().for_each(|index| self.start(index));
    }

    /// A checksum of what a node's copy holds.
    fn checksum(&self, index: usize) -> Vec<[u8; 32]> {
        let id = self.shown(index).unwrap().entry.id;
        self.control(index, move |control| async move {
            let reconciler = control.reconciler().unwrap();
            let info = control.volume(&id).unwrap().info;
            let mut all = Vec::new();
            for slice in 0..info.stripe.slices() {
                let len = info.stripe.slice_len(slice, info.capacity).0;
                let ask = Ask::Digests { id: id.clone(), slice, offset: 0, len };
                match reconciler.ask(reconciler.me(), ask).await.unwrap() {
                    Answer::Digests(digests) => all.extend(digests),
                    _ => panic!("asked for digests"),
                }
            }
            all
        })
    }
}

async fn log_in(portal: SocketAddr, name: &str) -> Option<Rc<Session>> {
    let session = Session::connect(portal, TARGET, &named(name)).await.ok()?;
    session.make_ready(LUN).await.ok()?;
    Some(Rc::new(session))
}

fn block(value: u64) -> Chain {
    let mut bytes = vec![0; SIZE.bytes() as usize];
    bytes.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
    Chain::copy_of(&bytes)
}

/// Number of unit attentions that a session may have pending: each ends one command.
const ATTENTIONS_MAX: usize = 4;

/// Sends a command, and again as long as a pending unit attention of the session ends it.
async fn attended<T>(send: impl AsyncFn() -> Result<T, initiator::Error>) -> Result<T, initiator::Error> {
    for _ in 0..ATTENTIONS_MAX {
        match send().await {
            Err(error) if error.is_unit_attention() => {}
            done => return done,
        }
    }
    send().await
}

async fn write(session: &Session, lba: u64, value: u64) -> Result<(), initiator::Error> {
    attended(async || session.write(LUN, Lba(lba), block(value), SIZE).await).await
}

/// As [`write`], but on the disk when it returns, even on a sole copy.
async fn write_durably(session: &Session, lba: u64, value: u64) -> Result<(), initiator::Error> {
    let write = Write { lba: Lba(lba), data: block(value), size: SIZE, durable: true };
    attended(async || session.send(LUN, &write).await).await
}

async fn read(session: &Session, lba: u64) -> Result<u64, initiator::Error> {
    let data = attended(async || session.read(LUN, Lba(lba), BlockCount(1), SIZE).await).await?;
    Ok(u64::from_le_bytes(data[..8].try_into().unwrap()))
}

#[test]
fn writes_through_one_node_are_read_through_all() {
    each_seed(3, |seed| {
        for kind in [VolumeKind::Thick, VolumeKind::Ram, VolumeKind::Log] {
            let cluster = Cluster::new(seed, 3, 2);
            cluster.add_volume(kind, 3);
            let (client, portals) = (cluster.client("client"), cluster.portals());
            cluster.world.block_on(client, CoreId(0), move || async move {
                let mut sessions = Vec::new();
                for portal in portals {
                    sessions.push(log_in(portal, "client").await.expect("every node serves"));
                }
                for lba in 0..40 {
                    let value = 1000 + lba;
                    write(&sessions[lba as usize % 3], lba * 50, value).await.unwrap();
                    for session in &sessions {
                        assert_eq!(read(session, lba * 50).await.unwrap(), value);
                    }
                }
            });
            assert_eq!(cluster.checksum(0), cluster.checksum(1));
            assert_eq!(cluster.checksum(0), cluster.checksum(2));
        }
    });
}

#[test]
fn a_lost_node_is_a_stall_and_returns_with_what_it_missed() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        let (client, portal) = (cluster.client("client"), cluster.portal(1));
        let began = cluster.world.now();
        cluster.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "client").await.unwrap();
            for lba in 0..20 {
                write(&session, lba, 1).await.unwrap();
            }
        });
        assert!(cluster.world.now() - began < Duration::from_secs(1));
        cluster.world.crash(cluster.servers[0]);
        let lost = cluster.world.now();
        cluster.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "client").await.unwrap();
            for lba in 10..30 {
                write(&session, lba, 2).await.unwrap();
                assert_eq!(read(&session, lba).await.unwrap(), 2);
            }
        });
        let stall = cluster.world.now() - lost;
        assert!(stall < Duration::from_millis(1500), "{stall:?}");
        assert_eq!(cluster.in_sync(1), 1);
        cluster.start(0);
        cluster.wait_until_in_sync(1, 2);
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
        let portal = cluster.portal(0);
        cluster.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "client").await.unwrap();
            for (lba, value) in [(0, 1), (9, 1), (10, 2), (29, 2), (30, 0)] {
                assert_eq!(read(&session, lba).await.unwrap(), value);
            }
        });
    });
}

/// Acts as the watcher of a process that was killed, on the same machine.
fn watcher(cluster: &Cluster, handoff: node::control::Handoff) -> usize {
    let machine = cluster.client("watcher");
    cluster.world.block_on(machine, CoreId(0), move || async move {
        handoff.carry_out(None, Duration::from_secs(2)).await.unwrap()
    })
}

#[test]
fn an_announced_death_is_a_short_stall() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 3);
        let (client, portal) = (cluster.client("client"), cluster.portal(1));
        cluster.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "client").await.unwrap();
            write(&session, 0, 1).await.unwrap();
        });
        let handoff =
            cluster.control(0, |control| async move { control.handoff() }).expect("it is in a cluster");
        cluster.world.crash(cluster.servers[0]);
        let lost = cluster.world.now();
        assert_eq!(watcher(&cluster, handoff.clone()), 2, "both of the others believe it");
        cluster.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "client").await.unwrap();
            write(&session, 1, 2).await.unwrap();
            assert_eq!(read(&session, 0).await.unwrap(), 1);
        });
        let stall = cluster.world.now() - lost;
        assert!(stall < Duration::from_millis(300), "{stall:?}");
        assert_eq!(cluster.in_sync(1), 2);

        // A late report about an earlier process does not affect the present one.
        cluster.start(0);
        cluster.wait_until_in_sync(1, 3);
        assert_eq!(watcher(&cluster, handoff), 0, "they have seen a later life");
        cluster.world.run_for(Duration::from_secs(1));
        assert_eq!(cluster.in_sync(1), 3);
    });
}

/// What hosts saw of a few blocks, by block.
type History = Rc<RefCell<Vec<Vec<Op>>>>;

const HOT: u64 = 6;

/// Reads and writes a few blocks through one node, without end, and again when it is back.
async fn worker(portal: SocketAddr, name: String, history: History, time: Rc<Cell<u64>>, mut rng: Rng) {
    let mut value = 0;
    let id = u64::from(name.as_bytes()[name.len() - 1]);
    loop {
        let Some(session) = log_in(portal, &name).await else {
            rt::sleep(Duration::from_millis(200)).await;
            continue;
        };
        loop {
            let lba = rng.below(HOT);
            let tick = || {
                time.set(time.get() + 1);
                time.get()
            };
            let call = tick();
            if rng.one_in(2) {
                value += 1;
                let written = value << 8 | id;
                let at = history.borrow()[lba as usize].len();
                history.borrow_mut()[lba as usize].push(Op {
                    kind: Kind::Write,
                    value: written,
                    call,
                    reply: NEVER,
                });
                match write_durably(&session, lba, written).await {
                    Ok(()) => history.borrow_mut()[lba as usize][at].reply = tick(),
                    Err(_) => break,
                }
            } else {
                match read(&session, lba).await {
                    Ok(value) => history.borrow_mut()[lba as usize].push(Op {
                        kind: Kind::Read,
                        value,
                        call,
                        reply: tick(),
                    }),
                    Err(_) => break,
                }
            }
            rt::sleep(Duration::from_micros(rng.below(3000))).await;
        }
    }
}

/// Nodes crash, are cut off, and return during I/O through all of them.
///
/// At the end all copies are equal, and what hosts saw is possible.
fn faults(seed: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let nodes = 2 + rng.below(2) as usize;
    let cluster = Cluster::new(seed, nodes, 1 + rng.below(2) as usize);
    cluster.add_volume(VolumeKind::Thick, nodes as u8);
    let history: History = Rc::new(RefCell::new(vec![Vec::new(); HOT as usize]));
    let time = Rc::new(Cell::new(0));
    for index in 0..nodes {
        for number in 0..2 {
            let name = format!("client-{}", (b'a' + index as u8 * 2 + number) as char);
            let client = cluster.client(&name);
            let (portal, history, time) = (cluster.portal(index), Rc::clone(&history), Rc::clone(&time));
            let rng = rng.fork();
            drop(cluster.world.spawn_on(client, CoreId(0), move || worker(portal, name, history, time, rng)));
        }
    }
    cluster.disturb(&mut rng);
    cluster.wait_until_in_sync(0, nodes);
    cluster.world.run_for(Duration::from_secs(3));
    check_all(seed, &history.borrow());
    cluster.world.log_hash()
}

fn check_each(seed: u64, history: &[Vec<Op>]) {
    for (lba, ops) in history.iter().enumerate() {
        if let Err(violation) = check(0, ops) {
            panic!("seed {seed}, block {lba}: {violation:?} in {} operations", ops.len());
        }
    }
}

fn check_all(seed: u64, history: &[Vec<Op>]) {
    check_each(seed, history);
    let count: usize = history.iter().map(Vec::len).sum();
    assert!(count > 500, "only {count} operations");
}

#[test]
fn histories_are_linearizable_while_nodes_crash_and_links_break() {
    each_seed(12, |seed| {
        faults(seed);
    });
}

#[test]
fn two_runs_of_one_seed_are_the_same() {
    each_seed_twice(1, |seed| faults(1000 + seed));
}
