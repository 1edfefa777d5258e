//! Whether etcd answers, and has this cluster's record: looked at all the time, so that nobody waits who
//! wants to know.

use std::fmt;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Shared;
use super::following::Seen;
use super::gateway::number;
use super::layout::{Last, VERSION, base64};
use crate::error::Error;
use crate::store::Status;

/// Between two looks.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long etcd may take to answer one.
const LOOK: Duration = Duration::from_secs(1);
/// For how long the last answer counts: that of one look may be lost.
const ANSWER_AGE_MAX: Duration = Duration::from_secs(2);
const _: () = assert!(ANSWER_AGE_MAX.as_millis() > LOOK_EVERY.as_millis() + LOOK.as_millis());

/// How long it may have transactions without telling of them: one that is told takes milliseconds, and what
/// was missed meanwhile is told by the next connection. Who reads all there is instead learns less of whether
/// it goes on from what was known.
const BEHIND_MAX: Duration = Duration::from_secs(2);

/// How etcd is, as of the last look.
#[derive(Default)]
pub(super) struct Health {
    answered: Option<Instant>,
    /// Of its leader.
    term: u64,
    /// It answers, and not what it must.
    pub(super) wrong: Option<Wrong>,
    /// Since when it has transactions that it has not told of.
    behind: Option<Instant>,
}

/// What is in etcd is not this cluster's record as this node knows it. None of it is followed, and nothing is
/// written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// There is no record.
    Missing,
    /// By another version of the layout.
    Version,
    /// It has gone back. That stays so for the life of this node, as the next does: what was forgotten may
    /// have been who is in sync.
    Older { found: Seen, seen: Seen },
    /// What this node has seen before was in another one.
    Another,
}

impl Wrong {
    /// No answer that is right changes it.
    pub(super) fn stays(self) -> bool {
        matches!(self, Wrong::Older { .. } | Wrong::Another)
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Missing => f.write_str("it does not have this cluster's record: is it the right etcd?"),
            Wrong::Version => {
                f.write_str("its record of this cluster was written by another version of Ursa")
            }
            Wrong::Older { found, seen } => write!(
                f,
                "it has gone back to {found}, but this node has seen {seen}: was it restored from a backup?"
            ),
            Wrong::Another => {
                f.write_str("it is not the etcd that this node knows: was it replaced by a copy?")
            }
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
        let seen = self.following().seen;
        let question = json!({ "key": self.layout.version() });
        let answer = self.gateway.ask("kv/range", &question, Instant::now() + LOOK);
        let answer = answer.map_err(|_| {
            // How it was before it was away says nothing of how it tells what comes after.
            self.health().behind = None;
            Error::Etcd
        })?;
        let found = self.judge(seen, &answer["header"], &answer)?;
        let behind = found.last != seen.last && self.following().seen.last == seen.last;
        let mut health = self.health();
        health.behind = behind.then(|| health.behind.unwrap_or_else(Instant::now));
        (health.answered, health.term) = (Some(Instant::now()), number(&answer["header"]["raft_term"]));
        Ok(())
    }

    /// Whether it does not tell of changes.
    pub(super) fn is_behind(&self) -> bool {
        self.health().behind.is_some_and(|since| since.elapsed() > BEHIND_MAX)
    }

    /// Whether an answer is that of the right etcd: by its head, and by what it has at the key of the
    /// version. `seen` is what was known when it was asked.
    pub(super) fn judge(&self, seen: Seen, header: &Value, version: &Value) -> Result<Seen, Error> {
        let version = &version["kvs"][0];
        let found = Seen::of(header, Last::of(version));
        let wrong = match &version["value"] {
            _ if seen.is_elsewhere(header) => Some(Wrong::Another),
            Value::Null => Some(Wrong::Missing),
            value if *value != base64(VERSION.as_bytes()) => Some(Wrong::Version),
            _ if found.revision < seen.revision || !found.last.may_follow(seen.last) => {
                Some(Wrong::Older { found, seen })
            }
            _ => None,
        };
        match self.found(wrong) {
            Some(_) => Err(Error::WrongEtcd),
            None => Ok(found),
        }
    }

    /// Takes down what is wrong by the newest answer; says what is wrong after all that was seen.
    pub(super) fn found(&self, wrong: Option<Wrong>) -> Option<Wrong> {
        let mut health = self.health();
        if !health.wrong.is_some_and(Wrong::stays) {
            if let Some(wrong) = wrong.filter(|wrong| health.wrong != Some(*wrong)) {
                tracing::error!("etcd is not used: {wrong}");
            }
            health.wrong = wrong;
        }
        health.wrong
    }

    /// What is known without asking.
    pub(super) fn status(&self) -> Status {
        let revision = self.following().revision();
        let health = self.health();
        let lately = health.answered.is_some_and(|answered| answered.elapsed() < ANSWER_AGE_MAX);
        let quorum = lately && health.wrong.is_none();
        let silent = || self.gateway.trouble().unwrap_or_else(|| "it has not responded yet".to_owned());
        let trouble = || health.wrong.map_or_else(silent, |wrong| wrong.to_string());
        Status {
            node: None,
            leader: None,
            term: health.term,
            quorum,
            forgotten: false,
            revision,
            generation: 1,
            voters: Vec::new(),
            learners: Vec::new(),
            trouble: (!quorum).then(trouble),
            stalled: None,
        }
    }
}
