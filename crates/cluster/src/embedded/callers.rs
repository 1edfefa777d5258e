//! The callers that wait for an engine's replies, and the watches that wait for changes.

use std::collections::BTreeMap;

use base::Instant;

use super::engine::{Answered, CallId, Engine, Notification};
use crate::call::Answer;
use crate::error::Error;
use crate::limits::WATCHES_MAX;
use crate::stall::Stall;
use crate::store::{Request, Status};
use crate::transaction::{Outcome, Revision, Versioned};
use crate::watch::{Everything, Watches};

/// See the module.
pub(super) struct Callers {
    waiting: BTreeMap<CallId, Waiting>,
    calls: CallId,
    watches: Watches,
}

/// A caller that waits for the engine's reply.
enum Waiting {
    Get(String, Answer<Option<Versioned>>),
    List(String, Answer<Everything>),
    Cas(Answer<Outcome>),
    Members(Answer<()>),
}

impl Waiting {
    fn fail(self, error: Error) {
        match self {
            Waiting::Get(_, answer) => answer.send(Err(error)),
            Waiting::List(_, answer) => answer.send(Err(error)),
            Waiting::Cas(answer) => answer.send(Err(error)),
            Waiting::Members(answer) => answer.send(Err(error)),
        }
    }
}

impl Callers {
    /// No callers yet, for a record whose last change is `revision`.
    pub fn new(revision: Revision) -> Callers {
        Callers { waiting: BTreeMap::new(), calls: 0, watches: Watches::new(revision) }
    }

    /// Passes a request to the engine.
    ///
    /// [`Callers::tell`] must have passed on all earlier changes, so that a new watch starts from the present
    /// record.
    pub fn request(&mut self, engine: &mut Engine, now: Instant, request: Request) {
        self.calls += 1;
        let call = self.calls;
        let waiting = match request {
            Request::Get { key, deadline, answer } => {
                engine.read(call, now + deadline);
                Waiting::Get(key, answer)
            }
            Request::List { prefix, deadline, answer } => {
                engine.read(call, now + deadline);
                Waiting::List(prefix, answer)
            }
            Request::Cas { transaction, deadline, answer } => {
                engine.propose(call, transaction, now + deadline);
                Waiting::Cas(answer)
            }
            Request::Members { change, deadline, answer } => {
                engine.change_members(call, change, now + deadline);
                Waiting::Members(answer)
            }
            Request::Watch { answer, .. } if self.watches.count() >= WATCHES_MAX => {
                return answer.send(Err(Error::Busy));
            }
            Request::Watch { after, answer } => {
                return answer.send(Ok(self.watches.watch(after, engine.record().everything())));
            }
            Request::Status { answer, .. } => return answer.send(Ok(engine.status())),
        };
        self.waiting.insert(call, waiting);
    }

    /// As [`Callers::request`], while the engine has ended because its file cannot be written: only what this
    /// node already knows is answered.
    pub fn request_stalled(&mut self, last: &Engine, stall: Stall, request: Request) {
        match request {
            Request::Watch { after, answer } if self.watches.count() < WATCHES_MAX => {
                answer.send(Ok(self.watches.watch(after, last.record().everything())));
            }
            Request::Status { answer, .. } => {
                let status = Status { leader: None, quorum: false, stalled: Some(stall), ..last.status() };
                answer.send(Ok(status));
            }
            request => request.refuse(&Error::Stalled(stall)),
        }
    }

    /// The engine has ended because its file cannot be written. Pending changes may still take effect,
    /// because other nodes may have them.
    pub fn stall(&mut self, stall: Stall) {
        for waiting in std::mem::take(&mut self.waiting).into_values() {
            let error = match waiting {
                Waiting::Get(..) | Waiting::List(..) => Error::Stalled(stall),
                Waiting::Cas(_) | Waiting::Members(_) => Error::OutcomeUnknown,
            };
            waiting.fail(error);
        }
    }

    /// Another engine continues from the file. It may have applied less than watches have seen; what it
    /// applies again is not sent to them again.
    pub fn resume(&mut self, engine: &Engine) {
        self.watches.replaced(engine.record().everything());
    }

    /// Passes a change on to the watches. `now` is the engine's record.
    pub fn tell(&mut self, told: Notification, now: &Everything) {
        match told {
            Notification::Change(change) => self.watches.change(change, now),
            Notification::Replaced => self.watches.replaced(now),
        }
    }

    /// Passes the engine's replies on to the callers.
    pub fn answer(&mut self, engine: &mut Engine) {
        while let Some(reply) = engine.poll_reply() {
            let Some(waiting) = self.waiting.remove(&reply.call) else { continue };
            let record = engine.record();
            match (waiting, reply.result) {
                (Waiting::Get(key, answer), Ok(_)) => answer.send(Ok(record.get(&key).cloned())),
                (Waiting::List(prefix, answer), Ok(_)) => {
                    let entries = record.list(&prefix).map(|(key, it)| (key.clone(), it.clone())).collect();
                    answer.send(Ok(Everything { revision: record.revision(), entries }));
                }
                (Waiting::Cas(answer), Ok(Answered::Outcome(outcome))) => answer.send(Ok(outcome)),
                (Waiting::Members(answer), Ok(_)) => answer.send(Ok(())),
                (Waiting::Cas(_), Ok(_)) => unreachable!("a transaction is answered by its outcome"),
                (waiting, Err(error)) => waiting.fail(error),
            }
        }
    }
}
