//! A site's own etcd (3.4 or later) as the engine, by the JSON gateway that every etcd has.
//!
//! All is below one prefix: `PREFIXversion` says that the record is there, and in which layout; `PREFIXr/KEY`
//! are its keys, `PREFIXop/ID` what became of each transaction. A transaction puts its own result there in
//! the same transaction of etcd, also when it conflicts: so one that is sent again, because an answer was
//! lost, takes effect once, and one that was said to conflict never takes effect later. Results go with a
//! lease after an hour or two. One that takes effect writes `PREFIXversion` again: by etcd's revision and
//! count of that key each node sees whether what etcd has goes on from what the node knows.
//!
//! Threads of our own wait for etcd. One follows all changes by etcd's watch, from the revision after the
//! last one seen, so that none is skipped when a connection breaks; where etcd does not keep it any more,
//! watches start again from everything. Another one looks all the time whether etcd answers and has what it
//! had: nothing is followed of an etcd that was emptied or set back, and nothing is written to it.

mod access;
mod following;
mod gateway;
mod health;
mod layout;
mod transactions;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rt::sync::oneshot;
use serde_json::json;
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

/// Calls that are at etcd at the same time. Each needs a thread, and its calls are rare.
const WORKERS: usize = 4;

/// How long etcd may take when a record is begun.
const FOUND: Duration = Duration::from_secs(5);

/// Of which record in which etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How to come to it.
    pub access: Access,
    /// What our keys there begin with; ends with `/`. One cluster a prefix.
    pub prefix: String,
}

/// Why it does not run.
#[derive(Debug, ThisError)]
pub enum StartError {
    /// Settings.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A file.
    #[error(transparent)]
    Authorities(#[from] https::AuthoritiesError),
    /// Files.
    #[error(transparent)]
    Identity(#[from] https::IdentityError),
    /// A file.
    #[error("cannot read the password for etcd from {0}")]
    Password(PathBuf, #[source] std::io::Error),
    /// A file.
    #[error(
        "{0} is empty, or has more than one line or more than 1024 bytes: write the password on one line"
    )]
    NoPassword(PathBuf),
    /// A setting.
    #[error("the key prefix in etcd must end with / and have at most 128 bytes")]
    Prefix,
    /// No thread could be started.
    #[error("cannot start a thread for etcd")]
    Thread(#[source] std::io::Error),
    /// What it has said, or that it has not.
    #[error("etcd does not accept the record: {0}")]
    Refused(String),
}

/// The adapter of this node, running until it is dropped.
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

/// A request and when it is given up.
struct Job(Request, Instant);

impl Etcd {
    /// Begins a record, which nobody has yet, where the settings say. Needs etcd.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn found(settings: &Settings) -> Result<(), StartError> {
        let shared = Shared::new(settings)?;
        let (sender, done) = oneshot();
        let put = move || {
            let version = json!({ "key": shared.layout.version(), "value": base64(VERSION.as_bytes()) });
            let put = shared.gateway.ask("kv/put", &version, Instant::now() + FOUND);
            let why = || shared.gateway.trouble().unwrap_or_else(|| "it has not responded".to_owned());
            sender.send(put.map(drop).map_err(|_| StartError::Refused(why())));
        };
        let thread = thread::Builder::new().name("etcd-found".to_owned()).spawn(put);
        thread.map_err(StartError::Thread)?;
        done.await.unwrap_or_else(|_| Err(StartError::Refused("it has not responded".to_owned())))
    }

    /// Begins to follow. Whether etcd answers shows in [`Etcd::status`].
    ///
    /// # Errors
    /// See [`StartError`]; it is none that etcd does not answer.
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

    /// How it is, without asking anybody.
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

    /// What needs no etcd.
    fn answer_at_once(&self, request: Request) {
        match request {
            Request::Status { answer, .. } => answer.send(Ok(self.status())),
            Request::Watch { after, answer } => self.following().watch(after, answer),
            other => other.refuse(&Error::Foreign),
        }
    }

    /// Takes calls until nobody can make any, or none is wanted.
    fn work(&self, jobs: &Mutex<Receiver<Job>>) {
        // Long enough not to matter, short enough to end soon.
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

    /// The key, or all keys below `end`; linearizable.
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
