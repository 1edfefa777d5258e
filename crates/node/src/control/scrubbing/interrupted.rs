//! Scrubs that were interrupted, in this life of the node or in an earlier one, and have not been continued
//! yet: they are jobs like the running ones, and can be cancelled.

use std::rc::Rc;
use std::time::Duration;

use store::PoolId;

use super::{Control, Scrub, ScrubState, ScrubWait, Unscrubbable};
use crate::data::VolumeId;
use crate::shard::Shard;

impl Control {
    /// The scrubs that have not ended: those that are running, and those that were interrupted, of volumes
    /// whose pool is open.
    pub fn unfinished_scrubs(&self) -> Vec<(VolumeId, Scrub)> {
        let running = {
            let all = self.scrubs.of.borrow();
            let running = all.iter().filter(|(_, scrubbing)| scrubbing.is_running());
            running.map(|(id, scrubbing)| (*id, scrubbing.shown())).collect::<Vec<_>>()
        };
        let interrupted = self.scrubs.kept.unfinished().into_iter();
        let interrupted = interrupted.filter_map(|id| Some((id, self.interrupted_scrub(id)?.1)));
        running.into_iter().chain(interrupted).collect()
    }

    /// Stops a scrub before its next step, or for good if it was interrupted. The next one begins at the
    /// start of the volume.
    ///
    /// The record says so before this returns, if it can be written: a restart does not continue the scrub.
    pub async fn stop_scrub(self: &Rc<Control>, id: VolumeId) {
        if let Some(running) = self.scrubs.running(id) {
            running.stopped.set(true);
            let found = running.found.borrow().found;
            self.keep_end(running.pool, id, ScrubState::Stopped, found);
        } else if let Some((pool, scrub)) = self.interrupted_scrub(id) {
            self.keep_end(pool, id, ScrubState::Stopped, scrub.found);
            self.scrubs.interrupted.borrow_mut().remove(&id);
            if let Some(last) = self.scrubs.of.borrow().get(&id).filter(|last| last.pool == pool) {
                last.found.borrow_mut().state = ScrubState::Stopped;
            }
            self.note_scrubbed(id, Scrub { state: ScrubState::Stopped, waits_for: None, ..scrub });
        }
        self.save_scrubs().await;
    }

    /// The scrub of a volume that was interrupted, and its pool.
    pub(super) fn interrupted_scrub(&self, id: VolumeId) -> Option<(PoolId, Scrub)> {
        if self.scrubs.running(id).is_some() {
            return None;
        }
        let (pool, info) = self.volume_named(&id.to_string()).ok()?;
        let pool = pool.id();
        let progress = self.scrubs.kept.of(pool, id).progress?;
        let waits_for = Some(match self.why_not_scrubbable(&info) {
            None => ScrubWait::Turn,
            Some(Unscrubbable::OutOfSync) => ScrubWait::Sync,
            Some(_) => ScrubWait::Serving,
        });
        let last = self.scrubs.of.borrow().get(&id).map(Rc::clone);
        if let Some(last) = last.filter(|last| last.pool == pool) {
            return Some((pool, Scrub { waits_for, ..last.shown() }));
        }
        // An earlier life of the node has begun it.
        let now = (Shard::current().config().unix_now)();
        let scrub = Scrub {
            volume: self.shown_name(&info),
            state: ScrubState::Interrupted,
            age: Duration::from_secs(now.saturating_sub(progress.began)),
            took: Duration::ZERO,
            total: progress.size,
            done: progress.done,
            read: 0,
            found: progress.found,
            problem: Some(Unscrubbable::Restarted),
            waits_for,
            left: None,
        };
        Some((pool, scrub))
    }
}
