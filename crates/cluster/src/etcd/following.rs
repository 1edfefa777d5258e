//! What this node knows of the record from following etcd's changes.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Shared;
use super::gateway::{PAUSE, number};
use super::health::{LOOK_EVERY, Wrong};
use super::layout::{Last, Step};
use crate::call::Answer;
use crate::error::Error;
use crate::limits::WATCHES_MAX;
use crate::transaction::{Revision, Versioned};
use crate::watch::{Everything, Watch, Watches};

/// How long reading everything may take before the node tries again.
const READ_ALL: Duration = Duration::from_secs(10);

pub(super) struct Following {
    /// The whole record, empty until it was read for the first time; `None`: the adapter has stopped.
    known: Option<(Everything, Watches)>,
    pub(super) seen: Seen,
    /// What a new connection must report first: the last transaction, as this node saw it. Two records may
    /// have the same number of changes at the same revisions, for example if one was set back and then
    /// continued differently. Nothing else tells them apart.
    awaited: Option<(Last, u128)>,
}

/// How far a node has seen the changes of which etcd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// The ID that the etcd cluster gives itself; `None`: nothing was seen yet.
    pub(super) etcd: Option<u64>,
    /// The last revision seen, which also counts what others do in that etcd.
    pub(super) revision: Revision,
    /// The last transaction seen.
    pub(super) last: Last,
    /// Its ID; `None`: it was not reported as a change, but read with the whole record.
    pub(super) op: Option<u128>,
}

impl Seen {
    /// Reads it from the header of an answer, and the last transaction in that answer.
    pub(super) fn of(header: &Value, last: Last) -> Seen {
        Seen { etcd: name_of(header), revision: Revision(number(&header["revision"])), last, op: None }
    }

    /// Whether an answer with this header comes from another etcd than the one seen.
    pub(super) fn is_elsewhere(self, header: &Value) -> bool {
        self.etcd.is_some() && self.etcd != name_of(header)
    }

    /// The state after one more step.
    fn with(self, step: &Step) -> Seen {
        let (last, op) = step.last.map_or((self.last, self.op), |last| (last, step.op));
        Seen { revision: step.change.revision, last, op, ..self }
    }
}

/// The ID of etcd's cluster, from the header of an answer.
fn name_of(header: &Value) -> Option<u64> {
    Some(number(&header["cluster_id"])).filter(|name| *name > 0)
}

/// What an answer of etcd's watch says about the following ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// More will come.
    Come,
    /// Another watch must continue where this one ends.
    Another,
    /// etcd no longer has the changes.
    Lost,
    /// The changes are not of this record: others are missing between the last transaction seen and this one.
    Foreign(Seen),
}

impl Default for Following {
    fn default() -> Following {
        let nothing = (Everything::default(), Watches::new(Revision(0)));
        Following { known: Some(nothing), seen: Seen::default(), awaited: None }
    }
}

impl Following {
    pub(super) fn revision(&self) -> Revision {
        self.known.as_ref().map(|(now, _)| now.revision).unwrap_or_default()
    }

    /// Starts a watch at once, even if etcd does not answer: changes follow when it does.
    pub(super) fn watch(&mut self, after: Revision, answer: Answer<Watch>) {
        match &mut self.known {
            None => answer.send(Err(Error::Stopped)),
            Some((now, watches)) => answer.send(match watches.count() {
                WATCHES_MAX.. => Err(Error::Busy),
                _ => Ok(watches.watch(after, now)),
            }),
        }
    }

    /// Ends all watches.
    pub(super) fn end(&mut self) {
        self.known = None;
    }

    /// Whether the record can have become `all`: everything written up to the last revision seen must be as
    /// it was seen.
    fn may_go_on_with(&self, all: &Everything) -> bool {
        let Some((now, _)) = &self.known else { return true };
        let old = |entry: &Versioned| entry.revision <= self.seen.revision;
        all.entries.iter().all(|(key, entry)| !old(entry) || now.entries.get(key) == Some(entry))
    }

    fn begin(&mut self, all: Everything, seen: Seen) {
        if let Some((now, watches)) = &mut self.known {
            watches.replaced(&all);
            (*now, self.seen) = (all, seen);
        }
    }

    /// The revision from which etcd must report changes on a new connection.
    fn begin_watch(&mut self) -> Revision {
        self.awaited = self.seen.op.map(|op| (self.seen.last, op));
        match self.awaited {
            Some((last, _)) => last.revision,
            None => Revision(self.seen.revision.0 + 1),
        }
    }

    /// Handles one answer of etcd's watch.
    fn take(&mut self, answer: &Value, layout: &super::Layout) -> Next {
        let result = &answer["result"];
        if number(&result["compact_revision"]) > 0 {
            return Next::Lost;
        }
        if result["canceled"] == true || result.is_null() {
            return Next::Another;
        }
        let Some((now, watches)) = &mut self.known else { return Next::Another };
        let Some(steps) = layout.steps(&result["events"]) else { return Next::Lost };
        if let (Some((last, op)), Some(first)) = (self.awaited, steps.first()) {
            if (first.last, first.op) != (Some(last), Some(op)) {
                return Next::Foreign(self.seen.with(first));
            }
            self.awaited = None;
        }
        let from = self.seen.revision;
        for step in steps.into_iter().filter(|step| step.change.revision > from) {
            let after = self.seen.with(&step);
            if step.last.is_some() && after.last.count != self.seen.last.count + 1 {
                return Next::Foreign(after);
            }
            self.seen = after;
            let change = step.change;
            if change.revision > now.revision {
                now.change(&change);
                watches.change(change, now);
            }
        }
        Next::Come
    }
}

impl Shared {
    pub(super) fn following(&self) -> MutexGuard<'_, Following> {
        self.following.lock().expect("no code panics while it holds what is known")
    }

    /// Follows changes until the adapter stops.
    pub(super) fn follow(&self) {
        let mut whole = false;
        while !self.stopping.load(Ordering::Relaxed) {
            // Nothing that this etcd says counts any more.
            if self.health().wrong.is_some_and(Wrong::stays) {
                thread::sleep(LOOK_EVERY);
                continue;
            }
            // The connection may have broken because one etcd was replaced by another.
            let ready = match whole {
                true => self.look(),
                false => self.read_all(),
            };
            if ready.is_err() {
                thread::sleep(PAUSE);
                continue;
            }
            whole = true;
            let (key, end) = self.layout.all();
            // The start does not depend on others' revisions: if etcd has compacted the changes in between,
            // it says so.
            let from = self.following().begin_watch();
            let create = json!({ "key": key, "range_end": end, "start_revision": from.0.to_string() });
            self.gateway.stream("watch", &json!({ "create_request": create }), |answer| {
                if self.stopping.load(Ordering::Relaxed) {
                    return false;
                }
                let mut following = self.following();
                let next = following.take(answer, &self.layout);
                let seen = following.seen;
                drop(following);
                if let Next::Foreign(found) = next {
                    self.found(Some(Wrong::Older { found, seen }));
                }
                whole = next != Next::Lost;
                next == Next::Come
            });
            // Something on the way to etcd may let requests pass, but no changes: then the node reads
            // everything.
            whole &= !self.is_behind();
            // The cause that ended the stream may end the next one at once, too.
            thread::sleep(PAUSE);
        }
    }

    fn read_all(&self) -> Result<(), Error> {
        let (all, seen) = self.range("", Some(self.layout.end("")), Instant::now() + READ_ALL)?;
        let mut following = self.following();
        if following.may_go_on_with(&all) {
            following.begin(all, seen);
            return Ok(());
        }
        let known = following.seen;
        drop(following);
        self.found(Some(Wrong::Older { found: seen, seen: known }));
        Err(Error::WrongEtcd)
    }
}
