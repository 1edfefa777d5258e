//! One node: its cores, its clock, and whether it runs.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::clock::NodeClock;
use crate::CoreId;
use crate::executor::{Core, Doorbell, Remote};

/// The number of a node in its world, from 0 in the order they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

base::shows!(Display for NodeId, |it| "node {}", it.0);

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeStatus {
    /// Its cores run.
    Running,
    /// A signal has stopped its process; its machine, and so the kernel's side of its connections, continues.
    Paused,
    /// Its process has ended or was killed; its machine is up and refuses connections.
    Ended,
    /// Its machine has no power.
    Off,
}

pub(super) type Main = Rc<dyn Fn(CoreId) -> Pin<Box<dyn Future<Output = ()>>>>;

/// Remembers that a core has a message.
struct Bell(Arc<AtomicBool>);

impl Doorbell for Bell {
    fn ring(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A core, and what the world knows of it.
pub(super) struct SimCore {
    pub(super) core: Rc<Core>,
    /// The core has a message.
    pub(super) rung: Arc<AtomicBool>,
    /// The true time when its last turn ends: it does nothing before that.
    pub(super) busy_until: u64,
}

/// One run of a node's process.
pub(super) struct Process {
    pub(super) cores: Vec<SimCore>,
    pub(super) remotes: Arc<[Arc<Remote>]>,
    /// The main of core 0 has returned: the process must end.
    pub(super) ended: Rc<Cell<bool>>,
}

impl Process {
    /// A process whose cores have nothing to do yet.
    pub(super) fn new(cores: usize, clock: &Rc<NodeClock>, mut seed: impl FnMut() -> u64) -> Process {
        let rung: Vec<Arc<AtomicBool>> = (0..cores).map(|_| Arc::default()).collect();
        let remotes: Arc<[Arc<Remote>]> =
            rung.iter().map(|rung| Remote::new(Box::new(Bell(Arc::clone(rung))))).collect();
        let cores = rung
            .into_iter()
            .enumerate()
            .map(|(number, rung)| {
                let clock: Rc<NodeClock> = Rc::clone(clock);
                let core = Core::new(CoreId(number as u16), Arc::clone(&remotes), clock, seed());
                SimCore { core, rung, busy_until: 0 }
            })
            .collect();
        Process { cores, remotes, ended: Rc::default() }
    }
}

pub(super) struct Node {
    pub(super) name: String,
    pub(super) core_count: usize,
    pub(super) clock: Rc<NodeClock>,
    pub(super) status: NodeStatus,
    /// Present while running or paused.
    pub(super) process: Option<Process>,
}
