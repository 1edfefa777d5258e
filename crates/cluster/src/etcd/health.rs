//! Whether etcd answers, and has this cluster's record: looked at all the time, so that nobody waits who wants to know.

use std::fmt;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Shared;
use super::gateway::number;
use super::layout::VERSION;
use crate::error::Error;
use crate::store::Status;
use crate::transaction::Revision;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long etcd may take to answer one.
const LOOK: Duration = Duration::from_secs(1);
/// For how long the last answer counts: that of one look may be lost.
const ANSWER_AGE_MAX: Duration = Duration::from_secs(2);
const _: () = assert!(ANSWER_AGE_MAX.as_millis() > LOOK_EVERY.as_millis() + LOOK.as_millis());

/// How etcd is, as of the last look.
#[derive(Default)]
pub(super) struct Health {
    answered: Option<Instant>,
    /// Of its leader.
    term: u64,
    /// It answers, and not what it must.
    pub(super) wrong: Option<Wrong>,
}

/// What is in etcd is not this cluster's record as this node knows it. None of it is followed, and nothing is written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// There is no record.
    Missing,
    /// By another version of the layout.
    Version,
    /// It has gone back. That stays so for the life of this node: what was forgotten may have been who is in sync.
    Older { found: Revision, seen: Revision },
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Missing => f.write_str("it has no record of this cluster: is it the right etcd?"),
            Wrong::Version => f.write_str("what it has of this cluster was made by another version of Ursa"),
            Wrong::Older { found, seen } => write!(
                f,
                "it has gone back to {found}, and this node has seen {seen}: was it restored from a backup?"
            ),
        }
    }
}

impl Shared {
    pub(super) fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().expect("no code panics while it holds what is known")
    }

    /// Looks until it is to stop.
    pub(super) fn look_after(&self) {
        while !self.stopping.load(Ordering::Relaxed) {
            // What is wrong is kept for whoever asks.
            let _ = self.look();
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Asks etcd, by a read that only its majority can answer, whether it has the record.
    pub(super) fn look(&self) -> Result<(), Error> {
        let seen = self.following().revision();
        let question = json!({ "key": self.layout.version() });
        let answer = self.gateway.ask("kv/range", &question, Instant::now() + LOOK);
        let answer = answer.map_err(|_| Error::Etcd)?;
        self.judge(seen, &answer["header"], &answer)?;
        let mut health = self.health();
        (health.answered, health.term) = (Some(Instant::now()), number(&answer["header"]["raft_term"]));
        Ok(())
    }

    /// Whether an answer is that of the right etcd: by its head, and by what it has at the key of the version. `seen` is the newest revision that was known when it was
    /// asked.
    pub(super) fn judge(&self, seen: Revision, header: &Value, version: &Value) -> Result<(), Error> {
        let found = Revision(number(&header["revision"]));
        let wrong = match &version["kvs"][0]["value"] {
            _ if found < seen => Some(Wrong::Older { found, seen }),
            Value::Null => Some(Wrong::Missing),
            value if *value != super::layout::base64(VERSION.as_bytes()) => Some(Wrong::Version),
            _ => None,
        };
        let mut health = self.health();
        if !matches!(health.wrong, Some(Wrong::Older { .. })) {
            if let Some(wrong) = wrong.filter(|wrong| health.wrong != Some(*wrong)) {
                tracing::error!("etcd is not used: {wrong}");
            }
            health.wrong = wrong;
        }
        if health.wrong.is_some() { Err(Error::WrongEtcd) } else { Ok(()) }
    }

    /// What is known without asking.
    pub(super) fn status(&self) -> Status {
        let revision = self.following().revision();
        let health = self.health();
        let lately = health.answered.is_some_and(|answered| answered.elapsed() < ANSWER_AGE_MAX);
        let quorum = lately && health.wrong.is_none();
        let silent = || self.gateway.trouble().unwrap_or_else(|| "it has not answered yet".to_owned());
        let trouble = || health.wrong.map_or_else(silent, |wrong| wrong.to_string());
        Status {
            node: None,
            leader: None,
            term: health.term,
            quorum,
            revision,
            generation: 1,
            voters: Vec::new(),
            learners: Vec::new(),
            trouble: (!quorum).then(trouble),
        }
    }
}
