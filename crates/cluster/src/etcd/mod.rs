//! A site's own etcd (3.4 or later) as the engine, by the JSON gateway that every etcd has.
//!
//! All is below one prefix: `PREFIXr/KEY` are the record's keys, `PREFIXop/ID` what became of each transaction. A transaction puts its own
//! result there in the same transaction of etcd, also when it conflicts: so one that is sent again, because an answer was lost,
//! takes effect once, and one that was said to conflict never takes effect later. Results go with a lease after an hour or two.
//!
//! Threads of our own wait for etcd. One follows all changes by etcd's watch, from the revision after the last one seen, so that none is skipped
//! when a connection breaks; where etcd does not keep it any more, watches start again from everything.
//!
//! etcd without TLS and without users only, so far.

mod following;
mod gateway;
mod layout;
mod transactions;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use thiserror::Error as ThisError;

use crate::error::Error;
use crate::limits::CALLS_MAX;
use crate::store::{Request, Status, Store};
use crate::watch::Everything;
use following::Following;
use gateway::{Gateway, number};
use layout::Layout;
use transactions::Lease;

/// Calls that are at etcd at the same time. Each needs a thread, and its calls are rare.
const WORKERS: usize = 4;

/// Where etcd is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `http://ADDRESS:PORT` of its members; any of them will do, and all are tried.
    pub endpoints: Vec<String>,
    /// What our keys there begin with; ends with `/`. One cluster a prefix.
    pub prefix: String,
}

/// Why it does not run.
#[derive(Debug, ThisError)]
pub enum StartError {
    /// A setting.
    #[error("etcd's endpoints are missing, or one is not http://ADDRESS:PORT")]
    Endpoints,
    /// A setting.
    #[error("the prefix of keys in etcd has to end with / and may have 128 bytes")]
    Prefix,
    /// No thread could be started.
    #[error("no thread for etcd")]
    Thread(#[source] std::io::Error),
}

/// The adapter of this node, running until it is dropped.
pub struct Etcd {
    store: Store,
    shared: Arc<Shared>,
}

struct Shared {
    layout: Layout,
    gateway: Gateway,
    lease: Mutex<Option<Lease>>,
    following: Mutex<Following>,
    stopping: AtomicBool,
}

/// A request and when it is given up.
struct Job(Request, Instant);

impl Etcd {
    /// Begins to follow. Whether etcd answers shows with the first call.
    pub fn start(settings: &Settings) -> Result<Etcd, StartError> {
        let right = |endpoint: &String| endpoint.starts_with("http://") && endpoint.len() > 7;
        if settings.endpoints.is_empty() || !settings.endpoints.iter().all(right) {
            return Err(StartError::Endpoints);
        }
        if !settings.prefix.ends_with('/') || settings.prefix.len() > 128 {
            return Err(StartError::Prefix);
        }
        let shared = Arc::new(Shared {
            layout: Layout::new(&settings.prefix),
            gateway: Gateway::new(&settings.endpoints),
            lease: Mutex::new(None),
            following: Mutex::new(Following::default()),
            stopping: AtomicBool::new(false),
        });
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
        spawn("etcd-watch", Box::new(move || shared.follow()))?;
        Ok(etcd)
    }

    /// The calls.
    pub fn store(&self) -> Store {
        self.store.clone()
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
            | Request::Cas { deadline, .. }
            | Request::Status { deadline, .. } => *deadline,
            Request::Members { .. } => return request.refuse(&Error::Foreign),
            Request::Watch { .. } => {
                let Request::Watch { after, answer } = request else { return };
                return shared.following().watch(after, answer);
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
            Request::Get { key, answer, .. } => answer.send(self.range(&key, None, until).map(|found| {
                let entry = found.entries.into_iter().next();
                entry.map(|(_, entry)| entry)
            })),
            Request::List { prefix, answer, .. } => {
                let end = self.layout.end(&prefix);
                answer.send(self.range(&prefix, Some(end), until));
            }
            Request::Cas { transaction, answer, .. } => answer.send(self.carry_out(&transaction, until)),
            Request::Status { answer, .. } => answer.send(self.status(until)),
            Request::Watch { .. } | Request::Members { .. } => request.refuse(&Error::Foreign),
        }
    }

    /// The key, or all keys below `end`; linearizable.
    fn range(&self, key: &str, end: Option<String>, until: Instant) -> Result<Everything, Error> {
        let mut body = json!({ "key": self.layout.key(key) });
        if let Some(end) = end {
            body["range_end"] = end.into();
        }
        let found = self.gateway.ask("kv/range", &body, until).map_err(|failed| failed.of_read())?;
        self.layout.everything(&found).ok_or(Error::NoQuorum)
    }

    fn status(&self, until: Instant) -> Result<Status, Error> {
        let ask = |path| self.gateway.ask(path, &json!({}), until).map_err(|failed| failed.of_read());
        let (status, members) = (ask("maintenance/status")?, ask("cluster/member/list")?);
        let leader = Some(number(&status["leader"])).filter(|leader| *leader != 0);
        let role = |learner: bool| {
            let all = members["members"].as_array().into_iter().flatten();
            let such = all.filter(move |it| it["isLearner"].as_bool().unwrap_or_default() == learner);
            such.map(|it| number(&it["ID"])).collect()
        };
        Ok(Status {
            node: None,
            leader,
            term: number(&status["raftTerm"]),
            quorum: leader.is_some(),
            revision: self.following().revision(),
            generation: 1,
            voters: role(false),
            learners: role(true),
        })
    }
}
