//! The engine in the nodes of a simulated world: a task on a core in virtual time, instead of a thread and a
//! file as in production.
//!
//! [`Files`] has the contents of all nodes' files, and survives the nodes. A transaction takes a while; if
//! the process ends before it is durable, the file has all of it or nothing, as SQLite guarantees. [`Files`]
//! also checks that all nodes apply the same history.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::time::Duration;

use rt::sync::oneshot;

use super::callers::Callers;
use super::engine::{Engine, Notification, Settings};
use super::message::{is_promise_kept, may_wait};
use super::saved::{Batch, Identity, Saved};
use super::ticks::Ticks;
use crate::limits::REOPEN_EVERY;
use crate::members::Members;
use crate::memory::Fault;
use crate::node_id::NodeId;
use crate::stall::Stall;
use crate::store::{Request, Store};
use crate::transaction::Revision;
use crate::watch::{Change, Everything, Watch, Watches};

/// How long a transaction of the file takes, in microseconds: a flush of an idle or a busy flash disk.
const WRITE_MICROS: std::ops::Range<u64> = 200..8_000;
/// Entries above which the log is shortened: few, so that nodes that were away get snapshots.
const LOG_ENTRIES: usize = 64;

/// The files of all nodes of a simulated cluster. Cheap to clone.
#[derive(Clone)]
pub struct Files(Arc<Mutex<Shared>>);

base::shows!(Debug for Files, |it| "Files of nodes, of which one has applied {:?}", it.lock().seen.revision);

struct Shared {
    files: BTreeMap<NodeId, File>,
    /// All changes that any node has applied.
    history: Vec<Change>,
    /// The whole record after the last of these.
    seen: Everything,
    /// The watches of observers outside of all nodes.
    watches: Watches,
}

/// The state of one node.
struct File {
    saved: Saved,
    /// A transaction that is not durable yet.
    writing: Option<Batch>,
    faults: BTreeSet<Fault>,
    /// The engine's queue, while it runs.
    door: Option<Arc<Door>>,
    /// Why nothing can be written.
    stalled: Option<Stall>,
}

impl Files {
    /// The files of a new cluster with these members, which all start with the same empty record.
    pub fn new(cluster: u128, voters: &[NodeId], learners: &[NodeId]) -> Files {
        let members = Members {
            voters: voters.iter().copied().collect(),
            learners: learners.iter().copied().collect(),
            ..Members::default()
        };
        let file = |node: &NodeId| {
            let identity = Identity { cluster, generation: 1, node: *node };
            let saved = Saved { identity, members: members.clone(), ..Saved::founding(cluster, *node) };
            (*node, File { saved, writing: None, faults: BTreeSet::new(), door: None, stalled: None })
        };
        let files = voters.iter().chain(learners).map(file).collect();
        let (seen, watches) = (Everything::default(), Watches::new(Revision(0)));
        Files(Arc::new(Mutex::new(Shared { files, history: Vec::new(), seen, watches })))
    }

    /// Runs the engine of `node` on this core, from the content of its file.
    ///
    /// `send` sends messages to other nodes; it may lose them.
    pub fn start(
        &self,
        node: NodeId,
        witness: bool,
        send: impl FnMut(NodeId, Vec<u8>) + 'static,
    ) -> Simulated {
        let door = Arc::new(Door::default());
        let saved = {
            let mut shared = self.lock();
            let file = shared.file(node);
            // The transaction that was under way when the process ended is in the file, or not.
            let half = file.writing.take().filter(|_| rt::random().is_multiple_of(2));
            half.iter().for_each(|batch| file.saved.write(batch));
            file.saved.check();
            file.door = Some(Arc::clone(&door));
            file.stalled = None;
            file.saved.clone()
        };
        let settings = Settings { witness, log_entries: LOG_ENTRIES, ..Settings::new(rt::random()) };
        let engine = Engine::new(saved, settings);
        let callers = Callers::new(engine.record().revision());
        let (files, inside) = (self.clone(), Arc::clone(&door));
        let (send, told) = (Box::new(send), VecDeque::new());
        rt::spawn(Driver { node, files, settings, engine, callers, told, send, door: inside }.run()).detach();
        let requests = Arc::clone(&door);
        let store = Store::new(move |request| requests.push(Input::Request(request)));
        Simulated { node, files: self.clone(), store, door }
    }

    /// Starts a fault of `node`.
    pub fn begin(&self, node: NodeId, fault: Fault) {
        self.lock().file(node).faults.insert(fault);
    }

    /// Ends a fault of `node`.
    pub fn end(&self, node: NodeId, fault: Fault) {
        let mut shared = self.lock();
        let file = shared.file(node);
        if file.faults.remove(&fault)
            && let Some(door) = &file.door
        {
            door.push(Input::Wake);
        }
    }

    /// The record's value at `key`, as of the node that has applied most.
    pub fn value(&self, key: &str) -> Option<Arc<[u8]>> {
        self.lock().seen.entries.get(key).map(|entry| Arc::clone(&entry.value))
    }

    /// Follows each change as soon as the first node has applied it, for an observer outside of all nodes.
    pub fn watch(&self, after: Revision) -> Watch {
        let mut shared = self.lock();
        let Shared { watches, seen, .. } = &mut *shared;
        watches.watch(after, seen)
    }

    fn has(&self, node: NodeId, fault: Fault) -> bool {
        self.lock().file(node).faults.contains(&fault)
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().expect("no code panics while it holds the files")
    }
}

impl Shared {
    fn file(&mut self, node: NodeId) -> &mut File {
        self.files.get_mut(&node).expect("a member of the cluster that was made")
    }

    /// Checks what a node has applied: a change, or a snapshot after which it has `now`. Returns what is
    /// wrong.
    fn look(&mut self, told: &Notification, now: &Everything) -> Result<(), &'static str> {
        match told {
            Notification::Change(change) if change.revision.0 == self.seen.revision.0 + 1 => {
                self.history.push(change.clone());
                self.seen.change(change);
                self.watches.change(change.clone(), &self.seen);
            }
            Notification::Change(change) => {
                let known = change.revision.0.checked_sub(1).and_then(|at| self.history.get(at as usize));
                return if known == Some(change) { Ok(()) } else { Err("two nodes have two histories") };
            }
            Notification::Replaced if now.revision == self.seen.revision && *now != self.seen => {
                return Err("a snapshot is not what the record was");
            }
            Notification::Replaced => {}
        }
        Ok(())
    }
}

/// The running engine of a simulated node. It stops when this is dropped, or with its node.
pub struct Simulated {
    node: NodeId,
    files: Files,
    store: Store,
    door: Arc<Door>,
}

impl Simulated {
    /// Why this node's copy accepts no changes now. It recovers automatically.
    pub fn stalled(&self) -> Option<Stall> {
        self.files.lock().file(self.node).stalled
    }

    /// The calls.
    pub fn store(&self) -> Store {
        self.store.clone()
    }

    /// Delivers a message from the node `from`.
    pub fn deliver(&self, from: NodeId, bytes: Vec<u8>) {
        let waits = self.door.needs_no_answers.load(Ordering::Relaxed) && may_wait(&bytes);
        let message = Input::Message(from, bytes);
        if waits { self.door.leave(message) } else { self.door.push(message) }
    }

    /// Messages to `node` may have been lost, because its link broke.
    pub fn unreachable(&self, node: NodeId) {
        self.door.push(Input::Unreachable(node));
    }

    /// The process of `node` is dead.
    pub fn died(&self, node: NodeId) {
        self.door.push(Input::Died(node));
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        self.door.push(Input::Stop);
    }
}

enum Input {
    Request(Request),
    Message(NodeId, Vec<u8>),
    Unreachable(NodeId),
    Died(NodeId),
    /// Check again: a fault has ended.
    Wake,
    Stop,
}

/// The inputs queued for the engine.
#[derive(Default)]
struct Door {
    inputs: Mutex<(VecDeque<Input>, Option<Waker>)>,
    /// As in production, answers to heartbeats need not wake the engine.
    needs_no_answers: AtomicBool,
}

impl Door {
    fn push(&self, input: Input) {
        let waker = {
            let mut inside = self.lock();
            inside.0.push_back(input);
            inside.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Leaves an input for when the engine wakes.
    fn leave(&self, input: Input) {
        self.lock().0.push_back(input);
    }

    fn lock(&self) -> MutexGuard<'_, (VecDeque<Input>, Option<Waker>)> {
        self.inputs.lock().expect("no code panics while it holds the door")
    }

    /// All queued inputs, as soon as there are any.
    async fn take(&self) -> VecDeque<Input> {
        poll_fn(|context| {
            let mut inside = self.lock();
            if inside.0.is_empty() {
                inside.1 = Some(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(std::mem::take(&mut inside.0))
        })
        .await
    }
}

struct Driver {
    node: NodeId,
    files: Files,
    settings: Settings,
    engine: Engine,
    callers: Callers,
    /// Changes that watches have yet to receive.
    told: VecDeque<Notification>,
    send: Box<dyn FnMut(NodeId, Vec<u8>)>,
    door: Arc<Door>,
}

impl Driver {
    /// As in production, runs engines one after the other, each until its file cannot be written.
    async fn run(mut self) {
        while let Err(stall) = self.run_engine().await {
            if !self.recover(stall).await {
                return;
            }
        }
    }

    /// Waits until the file can be written, and starts another engine from its content; returns false if the
    /// driver is to stop.
    async fn recover(&mut self, stall: Stall) -> bool {
        self.files.lock().file(self.node).stalled = Some(stall);
        self.callers.stall(stall);
        self.door.needs_no_answers.store(false, Ordering::Relaxed);
        let mut next = rt::now() + REOPEN_EVERY;
        loop {
            let inputs = rt::timeout(next.since(rt::now()), self.door.take()).await.unwrap_or_default();
            for input in inputs {
                match input {
                    Input::Request(request) => self.callers.request_stalled(&self.engine, stall, request),
                    Input::Message(..) | Input::Unreachable(_) | Input::Died(_) | Input::Wake => {}
                    Input::Stop => return false,
                }
            }
            if rt::now() < next {
                continue;
            }
            next = rt::now() + REOPEN_EVERY;
            if self.files.has(self.node, Fault::DiskFull) {
                continue;
            }
            let saved = {
                let mut shared = self.files.lock();
                let file = shared.file(self.node);
                file.stalled = None;
                file.saved.check();
                file.saved.clone()
            };
            self.engine = Engine::new(saved, Settings { seed: rt::random(), ..self.settings });
            self.callers.resume(&self.engine);
            return true;
        }
    }

    async fn run_engine(&mut self) -> Result<(), Stall> {
        let mut ticks = Ticks::new(rt::now());
        self.settle().await?;
        loop {
            let due = ticks.plan(self.engine.ticks_together());
            self.door.needs_no_answers.store(self.engine.needs_no_answers(), Ordering::Relaxed);
            let inputs = rt::timeout_at(due, self.door.take()).await.unwrap_or_default();
            if !inputs.is_empty() {
                self.tick(ticks.take_idle(rt::now()));
            }
            for input in inputs {
                match input {
                    Input::Request(request) => self.request(request),
                    Input::Message(..) if self.files.has(self.node, Fault::Unreachable) => {}
                    Input::Message(from, bytes) => {
                        let taken = self.engine.handle_message(from, &bytes);
                        assert_eq!(taken, Ok(()), "all nodes are of one cluster");
                    }
                    Input::Unreachable(node) => self.engine.handle_unreachable(node),
                    Input::Died(node) => self.engine.handle_death(node),
                    Input::Wake => {}
                    Input::Stop => return Ok(()),
                }
            }
            // As in production, ticks that were missed are skipped.
            self.tick(ticks.take(rt::now()));
            self.settle().await?;
        }
    }

    fn tick(&mut self, ticks: u32) {
        let now = rt::now();
        (0..ticks).for_each(|_| self.engine.handle_tick(now));
    }

    fn request(&mut self, request: Request) {
        let request = match request {
            Request::Cas { transaction, deadline, answer }
                if self.files.has(self.node, Fault::AnswersLost) =>
            {
                // Dropping the answer would report the loss; the caller must only find out at its deadline.
                std::mem::forget(answer);
                Request::Cas { transaction, deadline, answer: oneshot().0 }
            }
            request => request,
        };
        self.tell();
        self.callers.request(&mut self.engine, rt::now(), request);
    }

    /// Does everything that the engine requests.
    async fn settle(&mut self) -> Result<(), Stall> {
        while let Some(batch) = self.engine.poll_batch() {
            self.look();
            self.send_all();
            self.write(batch).await?;
            self.engine.handle_persisted();
        }
        self.look();
        self.send_all();
        self.tell();
        self.callers.answer(&mut self.engine);
        self.engine.check();
        Ok(())
    }

    async fn write(&self, batch: Batch) -> Result<(), Stall> {
        self.files.lock().file(self.node).writing = Some(batch);
        let micros = WRITE_MICROS.start + rt::random() % (WRITE_MICROS.end - WRITE_MICROS.start);
        rt::sleep(Duration::from_micros(micros)).await;
        let mut shared = self.files.lock();
        let file = shared.file(self.node);
        let batch = file.writing.take().expect("one at a time");
        let fails = file.faults.contains(&Fault::DiskFull);
        // Whether the file has a failed transaction is unknown.
        if !fails || rt::random().is_multiple_of(2) {
            file.saved.write(&batch);
        }
        if fails { Err(Stall::NoSpace) } else { Ok(()) }
    }

    fn send_all(&mut self) {
        let lost = self.files.has(self.node, Fault::Unreachable);
        while let Some((to, bytes)) = self.engine.poll_message() {
            let kept = is_promise_kept(&self.files.lock().file(self.node).saved, &bytes);
            assert!(kept, "{} says to {to} what is not on its disk", self.node);
            if !lost {
                (self.send)(to, bytes);
            }
        }
    }

    /// Shows applied changes to the observers before any node can learn of them.
    fn look(&mut self) {
        while let Some(told) = self.engine.poll_notification() {
            let looked = self.files.lock().look(&told, self.engine.record().everything());
            assert_eq!(looked, Ok(()), "{}: {told:?}", self.node);
            self.told.push_back(told);
        }
    }

    fn tell(&mut self) {
        if self.files.has(self.node, Fault::WatchHeld) {
            return;
        }
        for told in self.told.drain(..) {
            self.callers.tell(told, self.engine.record().everything());
        }
    }
}
