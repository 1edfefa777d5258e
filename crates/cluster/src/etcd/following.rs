//! What this node knows of the record by following etcd's changes.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Shared;
use super::gateway::{PAUSE, number};
use crate::call::Answer;
use crate::error::Error;
use crate::limits::WATCHES_MAX;
use crate::transaction::Revision;
use crate::watch::{Everything, Watch, Watches};

/// How long reading everything may take before it is tried again.
const READ_ALL: Duration = Duration::from_secs(10);

pub(super) struct Following {
    /// All there is, nothing before it was read for the first time; `None`: it is over.
    known: Option<(Everything, Watches)>,
}

impl Default for Following {
    fn default() -> Following {
        Following { known: Some((Everything::default(), Watches::new(Revision(0)))) }
    }
}

impl Following {
    pub(super) fn revision(&self) -> Revision {
        self.known.as_ref().map(|(now, _)| now.revision).unwrap_or_default()
    }

    /// A watch begins at once, also while etcd does not answer: it is told when it does.
    pub(super) fn watch(&mut self, after: Revision, answer: Answer<Watch>) {
        match &mut self.known {
            None => answer.send(Err(Error::Stopped)),
            Some((now, watches)) => answer.send(match watches.count() {
                WATCHES_MAX.. => Err(Error::Busy),
                _ => Ok(watches.watch(after, now)),
            }),
        }
    }

    /// Watches are told that no more will come.
    pub(super) fn end(&mut self) {
        self.known = None;
    }

    fn begin(&mut self, all: Everything) {
        if let Some((now, watches)) = &mut self.known {
            watches.replaced(&all);
            *now = all;
        }
    }

    /// Takes one answer of etcd's watch; says whether to go on with this one. `None`: etcd does not keep what comes next.
    fn take(&mut self, answer: &Value, layout: &super::Layout) -> Option<bool> {
        let result = &answer["result"];
        if number(&result["compact_revision"]) > 0 {
            return None;
        }
        if result["canceled"] == true || result.is_null() {
            return Some(false);
        }
        let Some((now, watches)) = &mut self.known else { return Some(false) };
        let changes = layout.changes(&result["events"])?;
        for change in changes {
            if change.revision > now.revision {
                now.change(&change);
                watches.change(change, now);
            }
        }
        Some(true)
    }
}

impl Shared {
    pub(super) fn following(&self) -> MutexGuard<'_, Following> {
        self.following.lock().expect("no code panics while it holds what is known")
    }

    /// Follows until it is to stop.
    pub(super) fn follow(&self) {
        let mut whole = false;
        while !self.stopping.load(Ordering::Relaxed) {
            // What breaks a connection may have been the end of one etcd and the beginning of another one.
            let ready = match whole {
                true => self.look(),
                false => self
                    .range("", Some(self.layout.end("")), Instant::now() + READ_ALL)
                    .map(|all| self.following().begin(all)),
            };
            if ready.is_err() {
                thread::sleep(PAUSE);
                continue;
            }
            whole = true;
            let (key, end) = self.layout.all();
            // Revisions of others are not counted: etcd may have dropped what lies between, and then says so.
            let from = self.following().revision().0 + 1;
            let create = json!({ "key": key, "range_end": end, "start_revision": from.to_string() });
            self.gateway.stream("watch", &json!({ "create_request": create }), |answer| {
                if self.stopping.load(Ordering::Relaxed) {
                    return false;
                }
                let taken = self.following().take(answer, &self.layout);
                whole = taken.is_some();
                taken.unwrap_or_default()
            });
            // Whatever ended it may do so again at once.
            thread::sleep(PAUSE);
        }
    }
}
