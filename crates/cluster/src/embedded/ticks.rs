//! When an engine's ticks are due.
//!
//! What an idle engine costs is that its thread wakes. So ticks in which nothing would happen are taken
//! together with the next one in which something may, or with a message: see `Engine::ticks_together`.

use base::Instant;

use crate::limits::TICK;

/// See the module.
pub(super) struct Ticks {
    /// When the last tick was due that was taken or skipped.
    last: Instant,
    /// How many are to be taken together.
    planned: u32,
}

impl Ticks {
    /// The first tick is due [`TICK`] after `now`.
    pub(super) fn new(now: Instant) -> Ticks {
        Ticks { last: now, planned: 1 }
    }

    /// Plans to take this many ticks together; returns when the last of them is due.
    pub(super) fn plan(&mut self, ticks: u32) -> Instant {
        self.planned = ticks;
        self.last + TICK * ticks
    }

    /// How many ticks to take before what has come now is handled, so that it counts from the right tick:
    /// those that are due, except the last that was planned, which comes after it.
    pub(super) fn take_idle(&mut self, now: Instant) -> u32 {
        let taken = self.due(now).min(self.planned - 1);
        self.last = self.last + TICK * taken;
        self.planned -= taken;
        taken
    }

    /// How many ticks to take now: those that are due, but not more than were planned.
    ///
    /// The others were missed, because the disk was busy, and are skipped.
    pub(super) fn take(&mut self, now: Instant) -> u32 {
        let due = self.due(now);
        self.last = self.last + TICK * due;
        due.min(self.planned)
    }

    fn due(&self, now: Instant) -> u32 {
        let due = now.since(self.last).as_nanos() / TICK.as_nanos();
        u32::try_from(due).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_keep_their_pace_and_missed_ones_are_skipped() {
        let at = |tenths: u32| Instant(7) + TICK * tenths / 10;
        let mut ticks = Ticks::new(at(0));
        assert_eq!(ticks.plan(1), at(10));
        assert_eq!((ticks.take(at(9)), ticks.take(at(11)), ticks.take(at(19))), (0, 1, 0));
        assert_eq!(ticks.plan(1), at(20), "lateness does not add up");
        assert_eq!(ticks.take(at(20)), 1);
        assert_eq!(ticks.plan(2), at(40));
        assert_eq!(ticks.take(at(33)), 1, "a message came before the second of them");
        assert_eq!(ticks.plan(2), at(50));
        assert_eq!(ticks.take(at(95)), 2, "six were due");
        assert_eq!(ticks.plan(1), at(100));
        assert_eq!((ticks.take_idle(at(100)), ticks.take(at(100))), (0, 1), "what has come counts first");
        assert_eq!(ticks.plan(4), at(140));
        assert_eq!((ticks.take_idle(at(125)), ticks.take(at(125))), (2, 0));
        assert_eq!(ticks.plan(4), at(160));
        assert_eq!((ticks.take_idle(at(195)), ticks.take(at(195))), (3, 1), "seven were due");
        assert_eq!(ticks.plan(1), at(200));
    }
}
