//! Runs an engine on a thread of its own, with its file, a clock, and a function that sends its messages.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::callers::Callers;
use super::engine::{Engine, Refused, Settings};
use super::file::{File, FileError};
use super::message::may_wait;
use super::saved::Batch;
use super::ticks::Ticks;
use crate::error::Error;
use crate::limits::{INBOX_BYTES_MAX, INBOX_MAX, REOPEN_EVERY};
use crate::node_id::NodeId;
use crate::stall::Stall;
use crate::store::{Request, Store};

/// The running embedded engine of this node. It stops when this is dropped; see also [`Embedded::stop`].
pub struct Embedded {
    inbox: SyncSender<Input>,
    door: Arc<Door>,
    ended: Mutex<Receiver<()>>,
    store: Store,
}

/// Why the engine could not be started.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The messages say it.
pub enum StartError {
    /// Its file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot start a thread for the cluster's record")]
    Thread(#[source] std::io::Error),
}

/// Sends a message to a node. It must not wait; a message that cannot be sent now is lost.
type Send = Box<dyn FnMut(NodeId, Vec<u8>) + std::marker::Send>;

enum Input {
    Request(Request),
    Message(NodeId, Vec<u8>),
    Unreachable(NodeId),
    Died(NodeId),
    /// Check whether to stop.
    Wake,
}

/// The state that the engine's thread shares with others.
#[derive(Default)]
struct Door {
    stopping: AtomicBool,
    /// Why the record accepts no changes now ([`Stall::code`]); 0: it does.
    stalled: AtomicU8,
    /// The bytes of messages in the queue, and of those that are left.
    bytes: AtomicUsize,
    /// Answers to heartbeats need not wake the engine ([`Engine::needs_no_answers`]).
    needs_no_answers: AtomicBool,
    /// Those that have come, until it wakes.
    left: Mutex<Vec<(NodeId, Vec<u8>)>>,
}

impl Door {
    fn stall(&self, stall: Option<Stall>) {
        self.stalled.store(stall.map_or(0, Stall::code), Ordering::Relaxed);
    }

    /// Leaves a message for when the engine wakes, if it may wait until then.
    fn leave(&self, from: NodeId, bytes: Vec<u8>) -> Result<(), (NodeId, Vec<u8>)> {
        // If the engine needs them from now on, it finds this one with its next tick.
        if !self.needs_no_answers.load(Ordering::Relaxed) || !may_wait(&bytes) {
            return Err((from, bytes));
        }
        let mut left = self.left();
        if left.len() >= INBOX_MAX {
            return Err((from, bytes));
        }
        left.push((from, bytes));
        Ok(())
    }

    fn left(&self) -> MutexGuard<'_, Vec<(NodeId, Vec<u8>)>> {
        self.left.lock().expect("no code panics while it holds this")
    }
}

impl Embedded {
    /// Starts from the file at `path`, which [`File::create`] created.
    ///
    /// `send` sends messages to other nodes. It is called on the engine's thread, must not wait, and may lose
    /// messages.
    pub fn start(
        path: &Path,
        settings: Settings,
        send: impl FnMut(NodeId, Vec<u8>) + std::marker::Send + 'static,
    ) -> Result<Embedded, StartError> {
        let (file, saved) = File::open(path)?;
        // IDs of reads must differ from those of an earlier life, whatever seed the caller passes.
        let seed = settings.seed ^ RandomState::new().hash_one(path);
        let settings = Settings { seed, ..settings };
        let (inbox, inputs) = sync_channel(INBOX_MAX);
        let door = Arc::new(Door::default());
        let inside = Arc::clone(&door);
        let own_path = path.to_owned();
        let (running, ended) = sync_channel(0);
        let send: Send = Box::new(send);
        let run = move || {
            // raft-rs panics if a node violates the rules of Raft. That ends this node's part in the record,
            // not the node.
            let door = Arc::clone(&inside);
            let run = AssertUnwindSafe(|| {
                Driver::new(Engine::new(saved, settings), settings, (own_path, file), send, inside)
                    .run(&inputs);
            });
            match catch_unwind(run) {
                Ok(()) => tracing::debug!("the cluster's record has stopped"),
                Err(_) => {
                    door.stall(Some(Stall::Defect));
                    tracing::error!(
                        "the cluster's record has stopped because of a bug in Ursa: restart the node and report this"
                    );
                }
            }
            drop(running);
        };
        thread::Builder::new().name("record".to_owned()).spawn(run).map_err(StartError::Thread)?;
        let requests = inbox.clone();
        let store = Store::new(move |request| match requests.try_send(Input::Request(request)) {
            Ok(()) => {}
            Err(TrySendError::Full(Input::Request(request))) => request.refuse(&Error::Busy),
            // The request is dropped, so its caller learns that the engine has stopped.
            Err(_) => {}
        });
        Ok(Embedded { inbox, door, ended: Mutex::new(ended), store })
    }

    /// Why this node's copy accepts no changes now. It recovers automatically.
    pub fn stalled(&self) -> Option<Stall> {
        Stall::of_code(self.door.stalled.load(Ordering::Relaxed))
    }

    /// The calls.
    pub fn store(&self) -> Store {
        self.store.clone()
    }

    /// Delivers a message from the authenticated node `from`. It is lost if too many are queued.
    pub fn deliver(&self, from: NodeId, bytes: Vec<u8>) {
        let len = bytes.len();
        if self.door.bytes.load(Ordering::Relaxed) + len > INBOX_BYTES_MAX {
            return;
        }
        self.door.bytes.fetch_add(len, Ordering::Relaxed);
        if let Err((from, bytes)) = self.door.leave(from, bytes)
            && self.inbox.try_send(Input::Message(from, bytes)).is_err()
        {
            self.door.bytes.fetch_sub(len, Ordering::Relaxed);
        }
    }

    /// Messages to `node` may have been lost, because its link broke.
    pub fn unreachable(&self, node: NodeId) {
        let _ = self.inbox.try_send(Input::Unreachable(node));
    }

    /// The process of `node` is dead. If it was the leader, its successor need not wait for an election
    /// timeout.
    pub fn died(&self, node: NodeId) {
        let _ = self.inbox.try_send(Input::Died(node));
    }

    /// Stops the engine and waits until it has ended, at most for `timeout`; returns whether it has.
    pub fn stop(self, timeout: Duration) -> bool {
        self.door.stopping.store(true, Ordering::Relaxed);
        let _ = self.inbox.try_send(Input::Wake);
        let ended = self.ended.lock().expect("only held here");
        matches!(ended.recv_timeout(timeout), Err(RecvTimeoutError::Disconnected))
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // If the queue is full, the engine notices at its next tick.
        self.door.stopping.store(true, Ordering::Relaxed);
        let _ = self.inbox.try_send(Input::Wake);
    }
}

struct Driver {
    /// While stalled: the last engine, which only answers what it already knew.
    engine: Engine,
    settings: Settings,
    path: PathBuf,
    /// `None` while stalled.
    file: Option<File>,
    send: Send,
    door: Arc<Door>,
    began: Instant,
    callers: Callers,
    /// The last leader and term that were logged.
    led: (Option<u64>, u64),
    /// Nodes whose messages were refused, and when that was logged.
    refused: BTreeMap<NodeId, (Refused, Instant)>,
}

impl Driver {
    fn new(
        engine: Engine,
        settings: Settings,
        (path, file): (PathBuf, File),
        send: Send,
        door: Arc<Door>,
    ) -> Driver {
        let callers = Callers::new(engine.record().revision());
        Driver {
            engine,
            settings,
            path,
            file: Some(file),
            send,
            door,
            began: Instant::now(),
            callers,
            led: (None, 0),
            refused: BTreeMap::new(),
        }
    }

    fn now(&self) -> base::Instant {
        base::Instant::default() + self.began.elapsed()
    }

    /// Runs engines one after the other, each until its file cannot be written, until the driver is to stop.
    fn run(&mut self, inputs: &Receiver<Input>) {
        while let Err(error) = self.run_engine(inputs) {
            if !self.recover(&error, inputs) {
                return;
            }
        }
    }

    /// Waits until the file can be written again, and starts another engine from its content.
    ///
    /// This is like a crash of the engine: nothing depends on whether the last batch was written, because
    /// nothing that depends on it has left the node. Meanwhile this node neither leads nor votes, and the
    /// others elect another leader. Returns false if the driver is to stop.
    fn recover(&mut self, error: &FileError, inputs: &Receiver<Input>) -> bool {
        let mut stall = error.stall();
        tracing::error!(
            error = error as &dyn std::error::Error,
            "the cluster's record cannot be written: this node does not take part in it until it can be written again"
        );
        if let Some(file) = self.file.take() {
            file.abandon();
        }
        self.callers.stall(stall);
        self.led = (None, 0);
        self.door.stall(Some(stall));
        self.door.needs_no_answers.store(false, Ordering::Relaxed);
        let mut next = Instant::now() + REOPEN_EVERY;
        loop {
            match inputs.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Input::Request(request)) => self.callers.request_stalled(&self.engine, stall, request),
                Ok(Input::Message(_, bytes)) => {
                    self.door.bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
                }
                Ok(Input::Unreachable(_) | Input::Died(_) | Input::Wake) | Err(RecvTimeoutError::Timeout) => {
                }
                Err(RecvTimeoutError::Disconnected) => return false,
            }
            if self.door.stopping.load(Ordering::Relaxed) {
                return false;
            }
            if Instant::now() < next {
                continue;
            }
            match File::reopen(&self.path) {
                Ok((file, saved)) => {
                    let seed = self.settings.seed ^ RandomState::new().hash_one(&self.path);
                    self.engine = Engine::new(saved, Settings { seed, ..self.settings });
                    self.file = Some(file);
                    self.callers.resume(&self.engine);
                    self.door.stall(None);
                    tracing::info!("the cluster's record can be written again");
                    return true;
                }
                Err(error) => {
                    stall = error.stall();
                    self.door.stall(Some(stall));
                    tracing::debug!(error = &error as &dyn std::error::Error, "it still cannot be written");
                }
            }
            next = Instant::now() + REOPEN_EVERY;
        }
    }

    fn run_engine(&mut self, inputs: &Receiver<Input>) -> Result<(), FileError> {
        let mut ticks = Ticks::new(self.now());
        self.settle()?;
        loop {
            let due = ticks.plan(self.engine.ticks_together());
            let needs_none = self.engine.needs_no_answers();
            self.door.needs_no_answers.store(needs_none, Ordering::Relaxed);
            if !needs_none && self.take_left() {
                self.settle()?;
                continue;
            }
            let input = inputs.recv_timeout(due.since(self.now()));
            self.take_left();
            match input {
                Ok(input) => {
                    self.tick(ticks.take_idle(self.now()));
                    self.take(input);
                    // All queued inputs share one transaction of the disk.
                    inputs.try_iter().take(INBOX_MAX).for_each(|input| self.take(input));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.end(),
            }
            if self.door.stopping.load(Ordering::Relaxed) {
                return self.end();
            }
            // Ticks that were missed while the disk was busy are skipped: the messages that arrived meanwhile
            // are handled first, so a slow disk of its own never makes a node start an election.
            self.tick(ticks.take(self.now()));
            self.settle()?;
            self.door.stall(self.engine.stalled());
        }
    }

    /// Takes the messages that were left; returns whether there were any.
    fn take_left(&mut self) -> bool {
        let left = std::mem::take(&mut *self.door.left());
        let any = !left.is_empty();
        left.into_iter().for_each(|(from, bytes)| self.take(Input::Message(from, bytes)));
        any
    }

    fn tick(&mut self, ticks: u32) {
        let now = self.now();
        (0..ticks).for_each(|_| self.engine.handle_tick(now));
    }

    fn end(&mut self) -> Result<(), FileError> {
        self.settle()?;
        match self.engine.poll_rest() {
            Some(rest) => self.write(&rest),
            None => Ok(()),
        }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Request(request) => self.request(request),
            Input::Message(from, bytes) => {
                self.door.bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
                if let Err(refused) = self.engine.handle_message(from, &bytes) {
                    self.log_refused(from, refused);
                }
            }
            Input::Unreachable(node) => self.engine.handle_unreachable(node),
            Input::Died(node) => self.engine.handle_death(node),
            Input::Wake => {}
        }
    }

    /// Logs once per minute and node: a removed node that does not know of its removal keeps asking.
    fn log_refused(&mut self, from: NodeId, refused: Refused) {
        const AGAIN: Duration = Duration::from_secs(60);
        let known = self.refused.get(&from);
        if known.is_none_or(|(before, at)| *before != refused || at.elapsed() >= AGAIN) {
            tracing::warn!(%from, %refused, "messages about the cluster's record were refused");
            self.refused.insert(from, (refused, Instant::now()));
        }
    }

    fn request(&mut self, request: Request) {
        self.tell();
        let now = self.now();
        self.callers.request(&mut self.engine, now, request);
    }

    /// Does everything that the engine requests.
    fn settle(&mut self) -> Result<(), FileError> {
        while let Some(batch) = self.engine.poll_batch() {
            // A leader sends entries while its own disk writes them.
            self.send_all();
            self.write(&batch)?;
            self.engine.handle_persisted();
        }
        self.send_all();
        self.tell();
        self.callers.answer(&mut self.engine);
        let status = self.engine.status();
        if self.led != (status.leader, status.term) {
            self.led = (status.leader, status.term);
            tracing::info!(leader = status.leader, term = status.term, "leader of the cluster's record");
        }
        Ok(())
    }

    fn write(&mut self, batch: &Batch) -> Result<(), FileError> {
        let file = self.file.as_mut().expect("an engine runs while its file is open");
        file.write(batch)
    }

    fn send_all(&mut self) {
        while let Some((to, bytes)) = self.engine.poll_message() {
            (self.send)(to, bytes);
        }
    }

    fn tell(&mut self) {
        while let Some(told) = self.engine.poll_notification() {
            self.callers.tell(told, self.engine.record().everything());
        }
    }
}
