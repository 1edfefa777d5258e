//! The world as a scenario sees it.

use std::cell::RefCell;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use base::Instant;

use super::clock::NodeClock;
use super::disk::{Astray, DiskFaults, DiskLatency};
use super::fault::{Fault, FaultCounts};
use super::image::DiskImage;
use super::log::Event;
use super::net::NetProfile;
use super::node::{Main, Node, NodeId, NodeStatus};
use super::recording::{Recording, Tap, Tape};
use super::universe::{CLOCK_START_NANOS_MAX, Stepped, Universe};
use crate::sync::{Receiver, oneshot};
use crate::{CoreId, Handle};

/// How much virtual time [`World::block_on`], [`World::wait_for`] and [`World::run_until_idle`] let pass
/// before they consider what they wait for as hung.
pub const IDLE_LIMIT: Duration = Duration::from_secs(3600);

/// The number of events that a panicking world prints.
const PRINTED_EVENTS: usize = 40;

/// A simulated world. See the [module](super).
pub struct World(Rc<Universe>);

impl World {
    /// A world without nodes, in which everything follows from `seed`.
    pub fn new(seed: u64) -> World {
        World(Universe::new(seed))
    }

    /// The world's seed.
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    // Nodes.

    /// Adds a machine, and starts a process with this many cores on it.
    ///
    /// Each core runs `main(core)`; when core 0's main returns, the process ends. The machine's address is
    /// [`World::address`]. Its monotonic clock starts anywhere; its time of day is that of all machines,
    /// which starts with the world at [`CALENDAR_START`](super::CALENDAR_START).
    pub fn add_node<F: Future<Output = ()> + 'static>(
        &self,
        name: &str,
        cores: usize,
        main: impl Fn(CoreId) -> F + 'static,
    ) -> NodeId {
        let id = self.add_machine(name, cores);
        self.0.start(id, &boxed(main));
        id
    }

    /// Adds a machine without a process; [`World::restart`] starts one.
    pub fn add_machine(&self, name: &str, cores: usize) -> NodeId {
        assert!(cores > 0 && cores <= usize::from(u16::MAX), "a node has at least one core");
        let shows = self.0.rng.borrow_mut().below(CLOCK_START_NANOS_MAX);
        let mut nodes = self.0.nodes.borrow_mut();
        let id = NodeId(nodes.len() as u32);
        nodes.push(Node {
            name: name.to_owned(),
            core_count: cores,
            clock: Rc::new(NodeClock::new(self.0.time.clone(), shows)),
            status: NodeStatus::Ended,
            process: None,
        });
        drop(nodes);
        self.add_address(id, self.address(id));
        id
    }

    /// Starts a process on a node that has none (crashed, killed, ended, or new), with as many cores as
    /// before.
    pub fn restart<F: Future<Output = ()> + 'static>(
        &self,
        node: NodeId,
        main: impl Fn(CoreId) -> F + 'static,
    ) {
        self.0.start(node, &boxed(main));
    }

    /// Cuts the power of a node.
    ///
    /// Every task is dropped without another poll, connections die silently, and any part of what its disks
    /// had not flushed survives. Peers notice by their timeouts, or when the node is back and resets
    /// connections that it no longer knows.
    pub fn crash(&self, node: NodeId) {
        self.0.power_off(&[node]);
    }

    /// Cuts the power of all nodes that have it.
    pub fn power_off_all(&self) {
        let nodes: Vec<NodeId> = self.nodes().filter(|node| self.status(*node) != NodeStatus::Off).collect();
        self.0.power_off(&nodes);
    }

    /// Kills a node's process, as SIGKILL does.
    ///
    /// Every task is dropped without another poll; the kernel closes its connections; its disks lose nothing,
    /// and writes under way continue.
    pub fn kill(&self, node: NodeId) {
        if matches!(self.status(node), NodeStatus::Ended | NodeStatus::Off) {
            return;
        }
        self.0.ledger.borrow_mut().fault(Fault::NodeKill);
        self.0.end_process(node);
    }

    /// Stops a node's process as SIGSTOP does. Its clock and the kernel's side of its connections continue.
    pub fn pause(&self, node: NodeId) {
        self.set_status(node, NodeStatus::Running, NodeStatus::Paused);
        self.0.ledger.borrow_mut().fault(Fault::NodePause);
    }

    /// Stops a node as a hypervisor stops a virtual machine: its clock stops, too.
    ///
    /// What is sent to it waits. In reality its kernel's side of connections would stop as well; here it
    /// continues, so that nothing is lost meanwhile that could be answered when the node is back.
    pub fn freeze(&self, node: NodeId) {
        self.set_status(node, NodeStatus::Running, NodeStatus::Paused);
        self.0.nodes.borrow()[node.0 as usize].clock.stop();
        self.0.ledger.borrow_mut().fault(Fault::ClockStop);
    }

    /// Lets a paused or frozen node continue. Its clock continues where it stopped.
    pub fn resume(&self, node: NodeId) {
        self.go_on(node, false);
    }

    /// As [`World::resume`], but corrects the machine's time of day for the time during which its clock was
    /// stopped.
    pub fn resume_with_time_of_day(&self, node: NodeId) {
        self.go_on(node, true);
    }

    /// Lets a node's clock leap forward by `by`, as after a hypervisor has corrected it. What was to happen
    /// in between is due.
    pub fn leap_clock(&self, node: NodeId, by: Duration) {
        self.0.nodes.borrow()[node.0 as usize].clock.leap(by.as_nanos() as u64);
        self.0.ledger.borrow_mut().fault(Fault::ClockLeap);
    }

    /// Sets a node's time of day forward. Its clock does not change.
    pub fn put_time_of_day_forward(&self, node: NodeId, by: Duration) {
        self.put_time_of_day(node, by.as_nanos() as i128);
    }

    /// Sets a node's time of day back. Its clock does not change.
    pub fn put_time_of_day_back(&self, node: NodeId, by: Duration) {
        self.put_time_of_day(node, -(by.as_nanos() as i128));
    }

    fn put_time_of_day(&self, node: NodeId, nanos: i128) {
        self.0.nodes.borrow()[node.0 as usize].clock.set_time_of_day_by(nanos);
        self.0.ledger.borrow_mut().fault(Fault::TimeOfDaySet);
    }

    fn go_on(&self, node: NodeId, put_right: bool) {
        self.set_status(node, NodeStatus::Paused, NodeStatus::Running);
        self.0.nodes.borrow()[node.0 as usize].clock.go_on(put_right);
        self.0.ledger.borrow_mut().log(Event::Resumed(node));
    }

    fn set_status(&self, node: NodeId, from: NodeStatus, to: NodeStatus) {
        let status = &mut self.0.nodes.borrow_mut()[node.0 as usize].status;
        assert_eq!(*status, from, "{node} cannot become {to:?}");
        *status = to;
    }

    /// The state of the node.
    pub fn status(&self, node: NodeId) -> NodeStatus {
        self.0.nodes.borrow()[node.0 as usize].status
    }

    /// All nodes, in the order they were added.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.0.nodes.borrow().len() as u32).map(NodeId)
    }

    /// The node's name.
    pub fn name(&self, node: NodeId) -> String {
        self.0.nodes.borrow()[node.0 as usize].name.clone()
    }

    /// Lets the node's clock run fast (or slow, if negative) by this many parts per million from now on.
    pub fn set_clock_drift(&self, node: NodeId, ppm: i32) {
        self.0.nodes.borrow()[node.0 as usize].clock.set_drift(ppm);
    }

    /// Access to the cores of a running node.
    ///
    /// # Panics
    /// If the node does not run.
    pub fn handle(&self, node: NodeId) -> Handle {
        let nodes = self.0.nodes.borrow();
        let process = nodes[node.0 as usize].process.as_ref();
        Handle::new(Arc::clone(&process.unwrap_or_else(|| panic!("{node} has no process")).remotes))
    }

    // Time.

    /// The true time since the world began.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.0.time.now())
    }

    /// Lets this much time pass.
    pub fn run_for(&self, duration: Duration) {
        let limit = self.after(duration);
        while self.0.step(limit) == Stepped::Acted {}
        self.0.time.advance_to(limit.max(self.0.time.now()));
    }

    /// Lets time pass until `condition` holds, but not longer than `limit`; returns whether it holds.
    pub fn run_until(&self, mut condition: impl FnMut() -> bool, limit: Duration) -> bool {
        let limit = self.after(limit);
        while !condition() {
            if self.0.step(limit) != Stepped::Acted {
                return condition();
            }
        }
        true
    }

    /// Lets time pass until nothing will happen any more unless the scenario acts; returns false if that
    /// takes longer than [`IDLE_LIMIT`].
    pub fn run_until_idle(&self) -> bool {
        let limit = self.after(IDLE_LIMIT);
        loop {
            match self.0.step(limit) {
                Stepped::Acted => {}
                Stepped::AtLimit => return false,
                Stepped::Idle => return true,
            }
        }
    }

    /// Runs the world until `future` is ready, for example one of [`World::handle`]. It runs outside of all
    /// nodes.
    ///
    /// # Panics
    /// If it is not ready within [`IDLE_LIMIT`], or can never be.
    pub fn wait_for<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let limit = self.after(IDLE_LIMIT);
        loop {
            if woken.0.swap(false, Ordering::Relaxed)
                && let Poll::Ready(value) = future.as_mut().poll(&mut context)
            {
                return value;
            }
            let stepped = self.0.step(limit);
            let waits = stepped == Stepped::Acted || woken.0.load(Ordering::Relaxed);
            assert!(waits, "seed {}: what the scenario waits for does not happen ({stepped:?})", self.seed());
        }
    }

    /// Runs an async function as a task of a core of a running node, and runs the world until it returns.
    ///
    /// # Panics
    /// If the node does not run, stops before the function has returned, or the function hangs for
    /// [`IDLE_LIMIT`].
    pub fn block_on<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        node: NodeId,
        core: CoreId,
        function: impl FnOnce() -> F + 'static,
    ) -> T {
        self.wait_for(self.spawn_on(node, core, function))
            .unwrap_or_else(|_| panic!("seed {}: {node} stopped before the function returned", self.seed()))
    }

    /// Inspects a process: runs `function` as code of a core, which takes no time.
    ///
    /// It must change nothing; otherwise the run differs from one without it.
    ///
    /// # Panics
    /// If the node has no process.
    pub fn inspect<T>(&self, node: NodeId, core: CoreId, function: impl FnOnce() -> T) -> T {
        let target = self.core(node, core);
        self.0.inside(node, &target, function)
    }

    fn core(&self, node: NodeId, core: CoreId) -> Rc<crate::executor::Core> {
        let nodes = self.0.nodes.borrow();
        let process = nodes[node.0 as usize].process.as_ref();
        let process = process.unwrap_or_else(|| panic!("{node} has no process"));
        Rc::clone(&process.cores[core.0 as usize].core)
    }

    /// Starts an async function as a task of a core of a running node.
    ///
    /// [`World::wait_for`] or other tasks can receive its result; that is an error if the node stopped before
    /// the function had returned.
    ///
    /// # Panics
    /// If the node does not run.
    pub fn spawn_on<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        node: NodeId,
        core: CoreId,
        function: impl FnOnce() -> F + 'static,
    ) -> Receiver<T> {
        let (reply, result) = oneshot();
        let target = self.core(node, core);
        self.0.inside(node, &target, || {
            crate::spawn(async move { reply.send(function().await) }).detach();
        });
        result
    }

    fn after(&self, duration: Duration) -> u64 {
        (Instant(self.0.time.now()) + duration).0
    }

    // Disks.

    /// Plugs an empty block device of `size` bytes into a node.
    pub fn add_disk(&self, node: NodeId, path: impl AsRef<Path>, size: u64, block_size: u32) {
        self.put_disk(node, path, DiskImage::new(size, block_size));
    }

    /// Plugs in a block device with this content.
    pub fn put_disk(&self, node: NodeId, path: impl AsRef<Path>, image: DiskImage) {
        self.0.shelf.borrow_mut().put_device(node, path.as_ref(), image);
    }

    /// Puts a file with this content into a node's file system.
    pub fn put_file(&self, node: NodeId, path: impl AsRef<Path>, image: DiskImage) {
        self.0.shelf.borrow_mut().put_file(node, path.as_ref(), image);
    }

    /// Moves a disk, or a file, to another node, which must have none at that path. A process that has it
    /// open finds it missing.
    pub fn move_disk(&self, from: NodeId, path: impl AsRef<Path>, to: NodeId, new_path: impl AsRef<Path>) {
        let mut shelf = self.0.shelf.borrow_mut();
        let disk = shelf.take(from, path.as_ref());
        shelf.plug(to, new_path.as_ref(), disk);
    }

    /// Makes a disk, or a file, larger, as when a logical volume is enlarged; the new part reads as zeros.
    ///
    /// A process that has it open uses only what it had before ([`Disk::set_size`](crate::Disk::set_size)).
    pub fn grow_disk(&self, node: NodeId, path: impl AsRef<Path>, size: u64) {
        self.0.shelf.borrow_mut().drive(node, path.as_ref()).0.grow(size);
    }

    /// Removes a disk, or a file, from the world.
    pub fn remove_disk(&self, node: NodeId, path: impl AsRef<Path>) {
        self.0.shelf.borrow_mut().remove(node, path.as_ref());
    }

    /// Whether the node has a disk or a file at this path.
    pub fn has_disk(&self, node: NodeId, path: impl AsRef<Path>) -> bool {
        self.0.shelf.borrow().exists(node, path.as_ref())
    }

    /// What a read of the whole disk would return now.
    pub fn disk_image(&self, node: NodeId, path: impl AsRef<Path>) -> DiskImage {
        self.0.shelf.borrow_mut().drive(node, path.as_ref()).0.content().clone()
    }

    /// Limits the file system of a node to this many bytes, shared by all its files; `None`: no limit.
    pub fn set_space(&self, node: NodeId, bytes: Option<u64>) {
        self.0.shelf.borrow_mut().set_space(node, bytes);
    }

    /// Limits the file system of a node so that its files have this many bytes left.
    pub fn leave_space(&self, node: NodeId, bytes: u64) {
        let mut shelf = self.0.shelf.borrow_mut();
        let used = shelf.used(node);
        shelf.set_space(node, Some(used + bytes));
    }

    /// Sets the latency of a disk from now on.
    pub fn set_disk_latency(&self, node: NodeId, path: impl AsRef<Path>, latency: DiskLatency) {
        self.0.shelf.borrow_mut().drive(node, path.as_ref()).0.latency = latency;
    }

    /// Sets the faults of a disk from now on.
    pub fn set_disk_faults(&self, node: NodeId, path: impl AsRef<Path>, faults: DiskFaults) {
        self.0.shelf.borrow_mut().drive(node, path.as_ref()).0.faults = faults;
    }

    /// The faults that a disk has now: writes may have ended some ([`DiskFaults::remaps`]).
    pub fn disk_faults(&self, node: NodeId, path: impl AsRef<Path>) -> DiskFaults {
        self.0.shelf.borrow_mut().drive(node, path.as_ref()).0.faults.clone()
    }

    /// Makes a disk die (or, with false, return with all its content): every operation on it fails, and so
    /// does opening it.
    pub fn set_disk_dead(&self, node: NodeId, path: impl AsRef<Path>, dead: bool) {
        self.0.shelf.borrow_mut().drive(node, path.as_ref()).0.dead = dead;
    }

    /// Changes a bit in every sector of a range of a disk, without any error: silent corruption.
    pub fn corrupt_disk(&self, node: NodeId, path: impl AsRef<Path>, range: std::ops::Range<u64>) {
        let mut shelf = self.0.shelf.borrow_mut();
        let (drive, rng) = shelf.drive(node, path.as_ref());
        drive.corrupt(range, rng);
        self.0.ledger.borrow_mut().fault(Fault::Corruption);
    }

    /// Flips a bit of one byte of a disk, without any error.
    pub fn flip_bit(&self, node: NodeId, path: impl AsRef<Path>, at: u64) {
        self.0.shelf.borrow_mut().drive(node, path.as_ref()).0.flip(at);
        self.0.ledger.borrow_mut().fault(Fault::Corruption);
    }

    /// Makes the next write that touches a range of a disk go astray, without any error.
    pub fn lead_write_astray(
        &self,
        node: NodeId,
        path: impl AsRef<Path>,
        range: std::ops::Range<u64>,
        astray: Astray,
    ) {
        self.0.shelf.borrow_mut().drive(node, path.as_ref()).0.astray = Some((range, astray));
    }

    /// Records the operations of a disk from now on, until power is cut or the disk is opened again after a
    /// failure; see [`super::for_each_cut`].
    pub fn record_disk(&self, node: NodeId, path: impl AsRef<Path>) -> Recording {
        self.record_disks(&[(node, path.as_ref())])
    }

    /// Records the operations of several disks, which will lose power together.
    pub fn record_disks(&self, disks: &[(NodeId, &Path)]) -> Recording {
        let recording = Recording(Rc::new(RefCell::new(Tape { disks: Vec::new(), steps: Vec::new() })));
        let mut shelf = self.0.shelf.borrow_mut();
        for (number, (node, path)) in disks.iter().enumerate() {
            let (drive, _) = shelf.drive(*node, path);
            drive.record(&recording, Tap::new(&recording, number));
        }
        recording
    }

    // The network.

    /// The initial address of a node: 10.0.0.1 for the first, and so on.
    pub fn address(&self, node: NodeId) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0001 + node.0))
    }

    /// Gives a node one more address. Connections use an address in the same /24 (or /64) as source if there
    /// is one.
    pub fn add_address(&self, node: NodeId, address: IpAddr) {
        self.0.net.borrow_mut().add_address(node, address);
    }

    /// Sets how the network behaves from now on.
    pub fn set_net_profile(&self, profile: NetProfile) {
        self.0.net.borrow_mut().set_profile(profile);
    }

    /// Cuts the link from one node to another, in this direction only.
    ///
    /// What is sent is held, and delivered after the link heals, unless the connection times out before.
    pub fn cut_one_way(&self, from: NodeId, to: NodeId) {
        self.0.net.borrow_mut().set_cut(from, to, true, &mut self.0.ledger.borrow_mut());
    }

    /// Cuts the link between two nodes in both directions.
    pub fn cut(&self, a: NodeId, b: NodeId) {
        self.cut_one_way(a, b);
        self.cut_one_way(b, a);
    }

    /// Heals the link between two nodes in both directions.
    pub fn heal(&self, a: NodeId, b: NodeId) {
        let (mut net, mut ledger) = (self.0.net.borrow_mut(), self.0.ledger.borrow_mut());
        net.set_cut(a, b, false, &mut ledger);
        net.set_cut(b, a, false, &mut ledger);
    }

    /// Heals all cuts.
    pub fn heal_all(&self) {
        self.0.net.borrow_mut().heal_all(&mut self.0.ledger.borrow_mut());
    }

    /// Cuts one of several links between two nodes, from one address to another, in this direction only.
    pub fn cut_addresses_one_way(&self, from: IpAddr, to: IpAddr) {
        self.0.net.borrow_mut().set_address_cut(from, to, true, &mut self.0.ledger.borrow_mut());
    }

    /// Heals one of several links between two nodes, in this direction only.
    pub fn heal_addresses_one_way(&self, from: IpAddr, to: IpAddr) {
        self.0.net.borrow_mut().set_address_cut(from, to, false, &mut self.0.ledger.borrow_mut());
    }

    /// Breaks all connections between two nodes with a reset; returns how many there were.
    pub fn break_connections(&self, a: NodeId, b: NodeId) -> usize {
        self.0.net.borrow_mut().break_between(a, b, &mut self.0.ledger.borrow_mut())
    }

    // What happened.

    /// How often each kind of fault has taken effect so far.
    pub fn fault_counts(&self) -> FaultCounts {
        self.0.ledger.borrow().faults.clone()
    }

    /// Writes a line to the event log.
    pub fn note(&self, note: impl Into<String>) {
        self.0.ledger.borrow_mut().log(Event::Note(note.into()));
    }

    /// A hash of all events so far: equal for two runs of one scenario with one seed.
    pub fn log_hash(&self) -> u64 {
        self.0.ledger.borrow().log.hash()
    }

    /// The number of events so far.
    pub fn event_count(&self) -> u64 {
        self.0.ledger.borrow().log.count()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The tasks are left as they are: one of them may be the one that panics.
            eprintln!("seed {}, the last events:", self.seed());
            if let Ok(ledger) = self.0.ledger.try_borrow() {
                eprint!("{}", ledger.log.tail(PRINTED_EVENTS));
            }
            return;
        }
        for node in self.nodes() {
            self.0.end_process(node);
        }
    }
}

fn boxed<F: Future<Output = ()> + 'static>(main: impl Fn(CoreId) -> F + 'static) -> Main {
    Rc::new(move |core| Box::pin(main(core)))
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}
