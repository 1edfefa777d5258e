//! A site's own etcd (3.4 or later) as the engine, through the JSON gateway that every etcd has.
//!
//! All keys are below one prefix: `PREFIXversion` says that the record exists, and in which layout;
//! `PREFIXr/KEY` are its keys; `PREFIXop/ID` are the results of transactions. Each transaction writes its own
//! result in the same transaction of etcd, even if it conflicts. So a transaction that is sent again because
//! an answer was lost takes effect once, and one that was reported as a conflict never takes effect later.
//! Results expire with a lease after one to two hours. A transaction that takes effect writes `PREFIXversion`
//! again: etcd's revision and write count of that key tell each node whether the content of etcd continues
//! what the node knows.
//!
//! Threads of our own wait for etcd. One follows all changes with etcd's watch, from the revision after the
//! last one seen, so that no change is skipped when a connection breaks. If etcd no longer has that revision,
//! watches start again from the whole record. Another thread checks permanently whether etcd answers and has
//! what it had: a node neither follows nor writes to an etcd that was emptied or set back.

mod access;
mod following;
mod gateway;
mod health;
mod layout;
mod transactions;
mod trouble;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rt::sync::oneshot;
use serde_json::{Value, json};
use thiserror::Error as ThisError;

use crate::error::Error;
use crate::limits::CALLS_MAX;
use crate::store::{Request, Status, Store};
use crate::watch::Everything;
pub use access::{Access, AccessError};
use following::{Following, Seen};
use gateway::Gateway;
use health::Health;
use layout::{Layout, VERSION, base64};
use transactions::Lease;
pub use trouble::{EtcdState, EtcdTrouble, MemberTrouble, TlsFault};

/// The number of calls that may be at etcd at the same time. Each needs a thread; calls to etcd are rare.
const WORKERS: usize = 4;

/// How long etcd may take when a record is created or deleted.
const FOUND: Duration = Duration::from_secs(5);

/// Which record, in which etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How to reach etcd.
    pub access: Access,
    /// The prefix of our keys; ends with `/`. Each cluster has its own.
    pub prefix: String,
}

/// Why etcd could not be used.
#[derive(Debug, ThisError)]
#[allow(missing_docs)] // The messages say it.
pub enum StartError {
    /// The settings are invalid.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A file with CA certificates.
    #[error(transparent)]
    Authorities(#[from] https::AuthoritiesError),
    /// The files of the client's certificate and key.
    #[error(transparent)]
    Identity(#[from] https::IdentityError),
    #[error("cannot read the password for etcd from {0}")]
    Password(PathBuf, #[source] std::io::Error),
    #[error(
        "{0} is empty, or has more than one line or more than 1024 bytes: write the password on one line"
    )]
    NoPassword(PathBuf),
    #[error("the key prefix in etcd must end with / and have at most 128 bytes")]
    Prefix,
    #[error("cannot start a thread for etcd")]
    Thread(#[source] std::io::Error),
    #[error("etcd does not accept the record: {0}")]
    Refused(EtcdTrouble),
}

/// The adapter of this node. It runs until it is dropped.
pub struct Etcd {
    store: Store,
    shared: Arc<Shared>,
}

struct Shared {
    layout: Layout,
    gateway: Gateway,
    health: Mutex<Health>,
    lease: Mutex<Option<Lease>>,
    following: Mutex<Following>,
    stopping: AtomicBool,
}

/// A request and its deadline.
struct Job(Request, Instant);

impl Etcd {
    /// Creates a new record at the place that the settings name. Needs etcd.
    pub async fn found(settings: &Settings) -> Result<(), StartError> {
        let shared = Shared::new(settings)?;
        let version = json!({ "key": shared.layout.version(), "value": base64(VERSION.as_bytes()) });
        shared.ask_once("kv/put", version).await
    }

    /// Deletes the record at the place that the settings name, with everything in it. No node may use it any
    /// more. Needs etcd.
    pub async fn delete(settings: &Settings) -> Result<(), StartError> {
        let shared = Shared::new(settings)?;
        let (key, range_end) = shared.layout.all();
        shared.ask_once("kv/deleterange", json!({ "key": key, "range_end": range_end })).await
    }

    /// Starts to follow the record. [`Etcd::status`] shows whether etcd answers.
    ///
    /// # Errors
    /// See [`StartError`]. An etcd that does not answer is no error here.
    pub fn start(settings: &Settings) -> Result<Etcd, StartError> {
        let shared = Arc::new(Shared::new(settings)?);
        let (inbox, jobs) = sync_channel(CALLS_MAX);
        let jobs = Arc::new(Mutex::new(jobs));
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.to_owned()).spawn(run).map(drop).map_err(StartError::Thread)
        };
        let etcd = Etcd { store: store(inbox, &shared), shared: Arc::clone(&shared) };
        for _ in 0..WORKERS {
            let (shared, jobs) = (Arc::clone(&shared), Arc::clone(&jobs));
            spawn("etcd", Box::new(move || shared.work(&jobs)))?;
        }
        let looking = Arc::clone(&shared);
        spawn("etcd-health", Box::new(move || looking.look_after()))?;
        spawn("etcd-watch", Box::new(move || shared.follow()))?;
        Ok(etcd)
    }

    /// The calls.
    pub fn store(&self) -> Store {
        self.store.clone()
    }

    /// The state of the record, without asking etcd.
    pub fn status(&self) -> Status {
        self.shared.status()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.shared.following().end();
    }
}

fn store(inbox: SyncSender<Job>, shared: &Arc<Shared>) -> Store {
    let shared = Arc::clone(shared);
    Store::new(move |request| {
        if shared.stopping.load(Ordering::Relaxed) {
            return request.refuse(&Error::Stopped);
        }
        let deadline = match &request {
            Request::Get { deadline, .. }
            | Request::List { deadline, .. }
            | Request::Cas { deadline, .. } => *deadline,
            Request::Members { .. } | Request::Watch { .. } | Request::Status { .. } => {
                return shared.answer_at_once(request);
            }
        };
        match inbox.try_send(Job(request, Instant::now() + deadline)) {
            Ok(()) => {}
            Err(TrySendError::Full(Job(request, _))) => request.refuse(&Error::Busy),
            Err(TrySendError::Disconnected(Job(request, _))) => request.refuse(&Error::Stopped),
        }
    })
}

impl Shared {
    fn new(settings: &Settings) -> Result<Shared, StartError> {
        if !settings.prefix.ends_with('/') || settings.prefix.len() > 128 {
            return Err(StartError::Prefix);
        }
        Ok(Shared {
            layout: Layout::new(&settings.prefix),
            gateway: Gateway::new(&settings.access)?,
            health: Mutex::default(),
            lease: Mutex::new(None),
            following: Mutex::default(),
            stopping: AtomicBool::new(false),
        })
    }

    /// Sends a request to etcd, from a thread of its own.
    async fn ask_once(self, path: &'static str, body: Value) -> Result<(), StartError> {
        let (sender, done) = oneshot();
        let ask = move || {
            let answer = self.gateway.ask(path, &body, Instant::now() + FOUND);
            sender.send(answer.map(drop).map_err(|_| StartError::Refused(self.gateway.trouble())));
        };
        let thread = thread::Builder::new().name("etcd-found".to_owned()).spawn(ask);
        thread.map_err(StartError::Thread)?;
        done.await.unwrap_or_else(|_| Err(StartError::Refused(EtcdTrouble::Silent)))
    }

    /// Answers requests that do not need etcd.
    fn answer_at_once(&self, request: Request) {
        match request {
            Request::Status { answer, .. } => answer.send(Ok(self.status())),
            Request::Watch { after, answer } => self.following().watch(after, answer),
            other => other.refuse(&Error::Foreign),
        }
    }

    /// Executes calls until no caller can make any, or the adapter stops.
    fn work(&self, jobs: &Mutex<Receiver<Job>>) {
        // Long enough to cost nothing, short enough to stop soon.
        const LOOK: Duration = Duration::from_millis(500);
        loop {
            let job = jobs.lock().expect("no code panics while it holds the jobs").recv_timeout(LOOK);
            match job {
                Ok(Job(request, _)) if self.stopping.load(Ordering::Relaxed) => {
                    request.refuse(&Error::Stopped)
                }
                Ok(Job(request, until)) => self.answer(request, until),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) if !self.stopping.load(Ordering::Relaxed) => {
                }
                Err(_) => return,
            }
        }
    }

    fn answer(&self, request: Request, until: Instant) {
        match request {
            Request::Get { key, answer, .. } => {
                answer.send(self.range(&key, None, until).map(|(found, _)| {
                    let entry = found.entries.into_iter().next();
                    entry.map(|(_, entry)| entry)
                }))
            }
            Request::List { prefix, answer, .. } => {
                let end = self.layout.end(&prefix);
                answer.send(self.range(&prefix, Some(end), until).map(|(found, _)| found));
            }
            Request::Cas { transaction, answer, .. } => answer.send(self.carry_out(&transaction, until)),
            other => self.answer_at_once(other),
        }
    }

    /// Reads one key, or all keys below `end`; linearizable.
    fn range(&self, key: &str, end: Option<String>, until: Instant) -> Result<(Everything, Seen), Error> {
        let mut range = json!({ "key": self.layout.key(key) });
        if let Some(end) = end {
            range["range_end"] = end.into();
        }
        let version = json!({ "key": self.layout.version() });
        let reads = json!({ "success": [{ "request_range": version }, { "request_range": range }] });
        let seen = self.following().seen;
        let found = self.gateway.ask("kv/txn", &reads, until).map_err(|_| Error::Etcd)?;
        let read = |at: usize| &found["responses"][at]["response_range"];
        let seen = self.judge(seen, &found["header"], read(0))?;
        let all = self.layout.everything(seen.last, read(1)).ok_or(Error::Etcd)?;
        Ok((all, seen))
    }
}
