//! What a log does when hosts leave it alone: it merges what they have written.
//!
//! Then its figures are exact, what was overwritten is free, and a recovery has nothing to replay. After that
//! it does nothing until something is written. A merge writes the state twice, whatever has changed, so a
//! little that was written in a large log has to wait longer.

use std::rc::Rc;
use std::time::Duration;

use base::Instant;

use super::append::SAY_AFTER;
use super::place::SLOT_BYTES;
use super::{Inner, Running};

/// A log merges what hosts have written when they have written nothing for this long.
///
/// That is longer than it takes until the log says that all of it is durable ([`SAY_AFTER`]), which costs
/// less.
pub(super) const MERGE_AFTER: Duration = Duration::from_secs(3);

const _: () =
    assert!(MERGE_AFTER.as_millis() > 2 * SAY_AFTER.as_millis(), "a pause is reported as durable first");

/// The log waits this many times as long at most: an hour.
const MERGE_AFTER_TIMES_MAX: u64 = 1200;

/// How often it looks meanwhile: more may have been written, which has to wait less long.
const LOOK_AFTER_MAX: Duration = Duration::from_secs(15);

impl Running {
    /// Whether hosts have changed something that no checkpoint has begun to merge.
    pub(super) fn is_unmerged(&self) -> bool {
        self.active.blocks() + self.active.zeros() > 0
    }

    /// How long hosts must have written nothing before it is merged: in proportion to what the copies of the
    /// state take for each byte that has changed.
    ///
    /// So if a host writes a little every few seconds, what the log writes for its state stays in proportion
    /// to that.
    pub(super) fn merges_after(&self) -> Duration {
        let changed = (self.active.blocks() + self.active.zeros()).max(1) * SLOT_BYTES as u64;
        let times = (2 * self.state_len as u64).div_ceil(changed).clamp(1, MERGE_AFTER_TIMES_MAX);
        MERGE_AFTER * times as u32
    }
}

impl Inner {
    /// Schedules a merge for when hosts leave the log alone. Called after each record of hosts.
    pub(super) fn merge_at_rest(self: &Rc<Inner>) {
        {
            let mut state = self.state.borrow_mut();
            if state.append.resting || !state.is_unmerged() {
                return;
            }
            state.append.resting = true;
        }
        let log = Rc::downgrade(self);
        rt::spawn(async move {
            let mut quiet = None;
            while let Some(inner) = log.upgrade()
                && let Some(wait) = inner.look_for_rest(&mut quiet)
            {
                drop(inner);
                rt::sleep(wait).await;
            }
        })
        .detach();
    }

    /// Begins a checkpoint if hosts have left the log alone for long enough. `quiet`: their newest record at
    /// the last look, and since when it is the newest.
    ///
    /// Returns how long until the next look. `None`: there is nothing left to merge, or the log has ended.
    fn look_for_rest(self: &Rc<Inner>, quiet: &mut Option<(u64, Instant)>) -> Option<Duration> {
        let wait = {
            let mut state = self.state.borrow_mut();
            if !self.goes_on() || !state.is_unmerged() {
                state.append.resting = false;
                return None;
            }
            let (newest, now) = (state.append.newest, rt::now());
            let is_quiet = |seen: u64| seen == newest && state.append.is_idle();
            let since = quiet.filter(|(seen, _)| is_quiet(*seen)).map_or(now, |(_, since)| since);
            *quiet = Some((newest, since));
            let left = state.merges_after().saturating_sub(now.since(since));
            state.checkpoint_wanted |= left.is_zero();
            if left.is_zero() { MERGE_AFTER } else { left.min(LOOK_AFTER_MAX) }
        };
        self.tend();
        Some(wait)
    }
}
