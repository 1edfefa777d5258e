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

#[derive(Default)]
pub(super) struct Following {
    /// All there is; `None` until it was read for the first time.
    known: Option<(Everything, Watches)>,
    /// Watches that begin when it was.
    waiting: Vec<(Revision, Answer<Watch>)>,
    ended: bool,
}

impl Following {
    pub(super) fn revision(&self) -> Revision {
        self.known.as_ref().map(|(now, _)| now.revision).unwrap_or_default()
    }

    pub(super) fn watch(&mut self, after: Revision, answer: Answer<Watch>) {
        let count = self.known.as_mut().map_or(self.waiting.len(), |(_, watches)| watches.count());
        match &mut self.known {
            _ if self.ended => answer.send(Err(Error::Stopped)),
            _ if count >= WATCHES_MAX => answer.send(Err(Error::Busy)),
            Some((now, watches)) => answer.send(Ok(watches.watch(after, now))),
            None => self.waiting.push((after, answer)),
        }
    }

    /// Watches are told that no more will come.
    pub(super) fn end(&mut self) {
        *self = Following { ended: true, ..Following::default() };
    }

    fn begin(&mut self, all: Everything) {
        match &mut self.known {
            _ if self.ended => return,
            Some((now, watches)) => {
                watches.replaced(&all);
                *now = all;
            }
            None => {
                let watches = Watches::new(all.revision);
                self.known = Some((all, watches));
            }
        }
        for (after, answer) in std::mem::take(&mut self.waiting) {
            self.watch(after, answer);
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
            if !whole {
                let all = self.range("", Some(self.layout.end("")), Instant::now() + READ_ALL);
                let Ok(all) = all else {
                    thread::sleep(PAUSE);
                    continue;
                };
                self.following().begin(all);
                whole = true;
            }
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
