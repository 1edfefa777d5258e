//! What a world consists of, and how it takes its steps.
//!
//! A step is either something due on the agenda (a disk completes an operation, bytes arrive) or a turn of
//! one core. A turn takes a little time of that core alone, so the cores of all nodes run concurrently. The
//! seed decides which of the cores that could run goes first.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::Rng;

use super::clock::WorldTime;
use super::disk::{DiskNumber, Drive, OpenFile, Operation, Shelf};
use super::fault::Fault;
use super::ledger::{Due, Ledger};
use super::log::Event;
use super::net::Net;
use super::node::{Main, Node, NodeId, NodeStatus, Process};
use crate::executor::Clock;
use crate::{DiskError, OpenError, OpenOptions};

/// A turn runs at most this many tasks, just as a core in production returns to its ring regularly.
const TURN_TASKS_MAX: u64 = 64;

/// The minimum and maximum cost of a turn in nanoseconds, and the additional cost of each task.
const TURN_NANOS: (u64, u64) = (300, 3_000);
const TASK_NANOS: u64 = 200;

/// One turn in this many is followed by a delay: another program had the processor.
const DELAY_ONE_IN: u64 = 20_000;
const DELAY_NANOS_MAX: u64 = 5_000_000;

/// The upper bound of what a machine's clock shows when it joins the world or has power again.
pub(super) const CLOCK_START_NANOS_MAX: u64 = 1 << 50;

pub(super) struct Universe {
    pub(super) seed: u64,
    pub(super) time: WorldTime,
    /// Draws the order and the cost of turns.
    pub(super) rng: RefCell<Rng>,
    pub(super) ledger: RefCell<Ledger>,
    pub(super) nodes: RefCell<Vec<Node>>,
    pub(super) shelf: RefCell<Shelf>,
    pub(super) net: RefCell<Net>,
}

thread_local! {
    static CURRENT: RefCell<Option<(Rc<Universe>, NodeId)>> = const { RefCell::new(None) };
    static IS_CURRENT: Cell<bool> = const { Cell::new(false) };
}

/// Whether the current core belongs to a simulated world.
pub(super) fn is_current() -> bool {
    IS_CURRENT.get()
}

/// The world and the node of the caller.
pub(super) fn current() -> (Rc<Universe>, NodeId) {
    CURRENT.with_borrow(|current| {
        let (universe, node) = current.as_ref().expect("called outside of a simulated core");
        (Rc::clone(universe), *node)
    })
}

/// While this lives, code runs in a node of a world.
struct Inside {
    previous: Option<(Rc<Universe>, NodeId)>,
}

impl Inside {
    fn enter(universe: &Rc<Universe>, node: NodeId) -> Inside {
        IS_CURRENT.set(true);
        Inside { previous: CURRENT.replace(Some((Rc::clone(universe), node))) }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let previous = self.previous.take();
        IS_CURRENT.set(previous.is_some());
        drop(CURRENT.replace(previous));
    }
}

/// The result of a step, for loops that wait for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stepped {
    /// Something happened.
    Acted,
    /// Nothing was due until the limit, which is now.
    AtLimit,
    /// Nothing will ever happen again without action from outside.
    Idle,
}

impl Universe {
    pub(super) fn new(seed: u64) -> Rc<Universe> {
        let time = WorldTime::default();
        let mut rng = Rng::new(seed);
        Rc::new(Universe {
            seed,
            ledger: RefCell::new(Ledger::new(time.clone(), seed)),
            time,
            nodes: RefCell::default(),
            shelf: RefCell::new(Shelf::new(rng.fork())),
            net: RefCell::new(Net::new(rng.fork())),
            rng: RefCell::new(rng),
        })
    }

    /// Takes one step, but does not let time pass `limit`.
    pub(super) fn step(self: &Rc<Universe>, limit: u64) -> Stepped {
        loop {
            self.net.borrow_mut().close_dropped(&mut self.ledger.borrow_mut());
            let due = self.ledger.borrow_mut().take_due();
            if let Some(due) = due {
                self.act(due);
                return Stepped::Acted;
            }
            let (runnable, next_turn) = self.runnable();
            if !runnable.is_empty() {
                let chosen = self.rng.borrow_mut().below(runnable.len() as u64) as usize;
                let (node, core) = runnable[chosen];
                self.turn(node, core);
                return Stepped::Acted;
            }
            let next_due = self.ledger.borrow().next_due();
            match [next_due, next_turn].into_iter().flatten().min() {
                Some(next) if next <= limit => self.time.advance_to(next),
                Some(_) => {
                    self.time.advance_to(limit);
                    return Stepped::AtLimit;
                }
                None => return Stepped::Idle,
            }
        }
    }

    /// The cores that can run now, and the time when the next of the others can.
    fn runnable(&self) -> (Vec<(NodeId, usize)>, Option<u64>) {
        let now = self.time.now();
        let mut runnable = Vec::new();
        let mut next: Option<u64> = None;
        for (number, node) in self.nodes.borrow().iter().enumerate() {
            let Some(process) = node.process.as_ref().filter(|_| node.status == NodeStatus::Running) else {
                continue;
            };
            for (index, sim) in process.cores.iter().enumerate() {
                let has_work = sim.rung.load(Ordering::Relaxed) || sim.core.has_ready();
                let start = if has_work {
                    sim.busy_until
                } else if let Some(deadline) = sim.core.timers.next_deadline() {
                    node.clock.true_time_of(deadline).max(sim.busy_until)
                } else {
                    continue;
                };
                if start <= now {
                    runnable.push((NodeId(number as u32), index));
                } else {
                    next = Some(next.map_or(start, |next| next.min(start)));
                }
            }
        }
        (runnable, next)
    }

    /// Lets one core run what is ready.
    fn turn(self: &Rc<Universe>, node: NodeId, index: usize) {
        let (core, clock, rung, ended) = {
            let nodes = self.nodes.borrow();
            let node = &nodes[node.0 as usize];
            let process = node.process.as_ref().expect("only running nodes take turns");
            let sim = &process.cores[index];
            (Rc::clone(&sim.core), Rc::clone(&node.clock), Arc::clone(&sim.rung), Rc::clone(&process.ended))
        };
        let (tasks_max, mut cost, delay) = {
            let mut rng = self.rng.borrow_mut();
            let tasks_max = 1 + rng.below(TURN_TASKS_MAX);
            let cost = TURN_NANOS.0 + rng.below(TURN_NANOS.1 - TURN_NANOS.0);
            (tasks_max, cost, rng.one_in(DELAY_ONE_IN).then(|| rng.below(DELAY_NANOS_MAX)))
        };
        let ran = self.inside(node, &core, || {
            rung.store(false, Ordering::Relaxed);
            core.take_messages();
            core.fire_timers(clock.now());
            core.begin_turn();
            core.run_ready(tasks_max as usize)
        });
        cost += ran as u64 * TASK_NANOS;
        {
            let mut ledger = self.ledger.borrow_mut();
            ledger.log(Event::Turn(node, core.id(), ran));
            if let Some(delay) = delay {
                ledger.fault(Fault::CoreDelay);
                cost += delay;
            }
        }
        let mut nodes = self.nodes.borrow_mut();
        if let Some(process) = &mut nodes[node.0 as usize].process {
            process.cores[index].busy_until = self.time.now() + cost;
        }
        drop(nodes);
        if ended.get() {
            self.end_process(node);
        }
    }

    /// Runs `function` as code of a core.
    pub(super) fn inside<T>(
        self: &Rc<Universe>,
        node: NodeId,
        core: &Rc<crate::executor::Core>,
        function: impl FnOnce() -> T,
    ) -> T {
        let _inside = Inside::enter(self, node);
        let _entered = core.enter();
        function()
    }

    fn act(&self, due: Due) {
        match due {
            Due::Disk(operation) => {
                let completed = {
                    let mut ledger = self.ledger.borrow_mut();
                    let completed = self.shelf.borrow_mut().complete(operation, &mut ledger.faults);
                    if let Some(completed) = &completed {
                        let (ok, sum) = (completed.ok, completed.sum);
                        ledger.log(Event::DiskDone { disk: operation.0, op: operation.1, ok, sum });
                    }
                    completed
                };
                if let Some(completed) = completed {
                    completed.send();
                }
            }
            Due::Net(due) => self.net.borrow_mut().act(due, &mut self.ledger.borrow_mut()),
        }
    }

    /// Starts the process of a node that has none.
    pub(super) fn start(self: &Rc<Universe>, id: NodeId, main: &Main) {
        let (cores, ended) = {
            let mut nodes = self.nodes.borrow_mut();
            let node = &mut nodes[id.0 as usize];
            assert!(node.process.is_none(), "{id} ({}) runs already", node.name);
            let mut rng = self.rng.borrow_mut();
            if node.status == NodeStatus::Off {
                node.clock.restart(rng.below(CLOCK_START_NANOS_MAX));
            }
            let process = Process::new(node.core_count, &node.clock, || rng.next());
            let cores: Vec<_> = process.cores.iter().map(|sim| Rc::clone(&sim.core)).collect();
            let ended = Rc::clone(&process.ended);
            node.process = Some(process);
            node.status = NodeStatus::Running;
            (cores, ended)
        };
        self.ledger.borrow_mut().log(Event::Started(id));
        self.net.borrow_mut().power_on(id, &mut self.ledger.borrow_mut());
        for core in cores {
            let (main, ended) = (Rc::clone(main), Rc::clone(&ended));
            self.inside(id, &core, || {
                let number = core.id();
                crate::spawn(async move {
                    main(number).await;
                    ended.set(ended.get() || number.0 == 0);
                })
                .detach();
            });
        }
    }

    /// Ends the process of a node, as its own end or a kill would: the kernel closes everything that it had
    /// open.
    pub(super) fn end_process(self: &Rc<Universe>, id: NodeId) {
        let Some(process) = self.take_process(id) else { return };
        {
            let mut ledger = self.ledger.borrow_mut();
            ledger.log(Event::Stopped(id));
            self.net.borrow_mut().end_process(id, &mut ledger);
            self.shelf.borrow_mut().close_all(id);
        }
        self.tear_down(id, process);
    }

    /// Cuts the power of several nodes at the same time.
    pub(super) fn power_off(self: &Rc<Universe>, ids: &[NodeId]) {
        for id in ids {
            if self.nodes.borrow()[id.0 as usize].status == NodeStatus::Off {
                continue;
            }
            {
                let mut ledger = self.ledger.borrow_mut();
                ledger.fault(Fault::NodeCrash);
                ledger.log(Event::Stopped(*id));
                self.net.borrow_mut().power_off(*id, &mut ledger);
                self.shelf.borrow_mut().power_cut(*id, &mut ledger.faults);
            }
            let process = self.take_process(*id);
            self.nodes.borrow_mut()[id.0 as usize].status = NodeStatus::Off;
            if let Some(process) = process {
                self.tear_down(*id, process);
            }
        }
    }

    fn take_process(&self, id: NodeId) -> Option<Process> {
        let mut nodes = self.nodes.borrow_mut();
        let node = &mut nodes[id.0 as usize];
        let process = node.process.take()?;
        node.status = NodeStatus::Ended;
        Some(process)
    }

    fn tear_down(self: &Rc<Universe>, id: NodeId, process: Process) {
        // From now on, messages to a core and wakes of its tasks are dropped, not run.
        for sim in &process.cores {
            self.inside(id, &sim.core, || sim.core.remote().close());
        }
        for sim in &process.cores {
            self.inside(id, &sim.core, || sim.core.tear_down());
        }
    }

    pub(super) fn open_disk(
        &self,
        node: NodeId,
        path: &Path,
        options: OpenOptions,
        make: impl FnOnce(DiskNumber, &Drive) -> OpenFile,
    ) -> Result<Arc<OpenFile>, OpenError> {
        let mut ledger = self.ledger.borrow_mut();
        let file = self.shelf.borrow_mut().open(node, path, options, &mut ledger.faults, make)?;
        ledger.log(Event::Opened(node, file.disk));
        Ok(file)
    }

    pub(super) fn begin_disk_operation(&self, file: &Arc<OpenFile>, operation: Operation) {
        let mut ledger = self.ledger.borrow_mut();
        let begun = self.shelf.borrow_mut().begin(file, operation, &mut ledger.faults);
        if let Some((number, time, event)) = begun {
            ledger.log(event);
            let due = ledger.now() + time;
            ledger.schedule(due, Due::Disk(number));
        }
    }

    pub(super) fn allocate(
        &self,
        node: NodeId,
        disk: DiskNumber,
        offset: u64,
        len: u64,
    ) -> Result<(), DiskError> {
        let mut ledger = self.ledger.borrow_mut();
        self.shelf.borrow_mut().allocate(node, disk, offset, len, &mut ledger.faults)
    }
}
