//! Checks permanently whether etcd answers and has this cluster's record, so that nothing that asks for this
//! needs to wait.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Shared;
use super::following::Seen;
use super::gateway::number;
use super::layout::{Last, VERSION, base64};
use super::trouble::EtcdTrouble;
use crate::error::Error;
use crate::store::Status;

/// The interval between two checks.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long etcd may take to answer a check.
const LOOK: Duration = Duration::from_secs(1);
/// How long the last answer counts: long enough that one check may fail.
const ANSWER_AGE_MAX: Duration = Duration::from_secs(2);
const _: () = assert!(ANSWER_AGE_MAX.as_millis() > LOOK_EVERY.as_millis() + LOOK.as_millis());

/// How long etcd may have transactions that it has not reported. A report takes milliseconds, and the next
/// connection reports what was missed meanwhile. Reading everything instead reveals less about whether the
/// record continues what was known.
const BEHIND_MAX: Duration = Duration::from_secs(2);

/// The state of etcd as of the last check.
#[derive(Default)]
pub(super) struct Health {
    answered: Option<Instant>,
    /// The leader's term.
    term: u64,
    /// etcd answers, but not as it must.
    pub(super) wrong: Option<Wrong>,
    /// Since when etcd has transactions that it has not reported.
    behind: Option<Instant>,
}

/// Why the content of etcd is not this cluster's record as this node knows it.
///
/// The node then follows none of it, and writes nothing to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It does not have this cluster's record.
    Missing,
    /// Another version of Ursa wrote the record.
    Version,
    /// The record is older than what was seen. This stays so for the life of this node, as `Another` does:
    /// etcd may have forgotten which copies are in sync.
    Older { found: Seen, seen: Seen },
    /// It is not the etcd that this node knows.
    Another,
}

impl Wrong {
    /// Whether it remains wrong even if later answers are right.
    pub(super) fn stays(self) -> bool {
        matches!(self, Wrong::Older { .. } | Wrong::Another)
    }
}

impl Shared {
    pub(super) fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().expect("no code panics while it holds what is known")
    }

    /// Checks until the adapter stops.
    pub(super) fn look_after(&self) {
        while !self.stopping.load(Ordering::Relaxed) {
            // The result is kept for whoever asks for the status.
            let _ = self.look();
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Asks etcd whether it has the record, with a read that only a majority can answer.
    pub(super) fn look(&self) -> Result<(), Error> {
        let seen = self.following().seen;
        let question = json!({ "key": self.layout.version() });
        let answer = self.gateway.ask("kv/range", &question, Instant::now() + LOOK);
        let answer = answer.map_err(|_| {
            // An etcd that is back after an outage gets new time to report its changes.
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

    /// Whether etcd fails to report changes.
    pub(super) fn is_behind(&self) -> bool {
        self.health().behind.is_some_and(|since| since.elapsed() > BEHIND_MAX)
    }

    /// Whether an answer comes from the right etcd, according to its header and the version key. `seen` is
    /// what was known when the request was sent.
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

    /// Stores what is wrong according to the newest answer; returns what is wrong according to all answers.
    pub(super) fn found(&self, wrong: Option<Wrong>) -> Option<Wrong> {
        let mut health = self.health();
        if !health.wrong.is_some_and(Wrong::stays) {
            if let Some(wrong) = wrong.filter(|wrong| health.wrong != Some(*wrong)) {
                tracing::error!("etcd is not used: {}", EtcdTrouble::from(wrong));
            }
            health.wrong = wrong;
        }
        health.wrong
    }

    /// The state of the record, without asking etcd.
    pub(super) fn status(&self) -> Status {
        let revision = self.following().revision();
        let health = self.health();
        let lately = health.answered.is_some_and(|answered| answered.elapsed() < ANSWER_AGE_MAX);
        let quorum = lately && health.wrong.is_none();
        let trouble = || health.wrong.map_or_else(|| self.gateway.trouble(), EtcdTrouble::from);
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
