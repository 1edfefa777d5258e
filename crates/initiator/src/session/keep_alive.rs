//! Detects from what arrives whether the target is alive.
//!
//! Time is counted in ticks of our own task: a process that was suspended for a while must not mistake its
//! own silence for the target's.

use std::time::Duration;

/// How often a session checks its time limits: this is their precision.
pub(super) const TICK: Duration = Duration::from_millis(500);

/// The number of ticks that last at least `duration`.
pub(super) fn ticks(duration: Duration) -> u32 {
    let ticks = duration.as_nanos().div_ceil(TICK.as_nanos());
    u32::try_from(ticks).unwrap_or(u32::MAX).max(1)
}

#[derive(Debug)]
pub(super) struct KeepAlive {
    /// After this many ticks of silence the target is pinged.
    ask_after: u32,
    /// After this many ticks of silence the session is given up.
    give_up_after: u32,
    /// Ticks since something arrived.
    silent: u32,
}

/// What the session must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    /// Ping the target.
    Ask,
    /// The target was pinged a tick ago and has not answered: it is in doubt now.
    Doubt,
    GiveUp,
}

impl KeepAlive {
    /// Pings after `ask_after` of silence, and gives up if nothing arrives within `deadline` after that.
    pub(super) fn new(ask_after: Duration, deadline: Duration) -> KeepAlive {
        let ask_after = ticks(ask_after);
        KeepAlive { ask_after, give_up_after: ask_after.saturating_add(ticks(deadline)), silent: 0 }
    }

    /// Something arrived: whatever it is, the target is alive. Returns whether the target was in doubt.
    pub(super) fn heard(&mut self) -> bool {
        let doubted = self.is_silent();
        self.silent = 0;
        doubted
    }

    /// A tick has passed.
    pub(super) fn tick(&mut self) -> Step {
        self.silent = self.silent.saturating_add(1);
        match self.silent {
            silent if silent == self.ask_after => Step::Ask,
            silent if silent >= self.give_up_after => Step::GiveUp,
            silent if silent == self.ask_after + 1 => Step::Doubt,
            _ => Step::Nothing,
        }
    }

    /// The target was pinged more than a tick ago and has not answered.
    pub(super) fn is_silent(&self) -> bool {
        self.silent > self.ask_after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_once_and_gives_up() {
        let mut keep_alive = KeepAlive::new(Duration::from_secs(1), Duration::from_millis(1600));
        let mut steps = |count: usize| -> Vec<Step> { (0..count).map(|_| keep_alive.tick()).collect() };
        assert_eq!(steps(5), [Step::Nothing, Step::Ask, Step::Doubt, Step::Nothing, Step::Nothing]);
        assert_eq!(steps(2), [Step::GiveUp, Step::GiveUp]);
        assert!(keep_alive.is_silent());
        assert!(keep_alive.heard() && !keep_alive.is_silent());
        assert_eq!([keep_alive.tick(), keep_alive.tick()], [Step::Nothing, Step::Ask]);
        assert!(!keep_alive.is_silent() && !keep_alive.heard(), "it was asked only now");
    }

    #[test]
    fn times_are_rounded_up() {
        for (millis, expected) in [(0, 1), (1, 1), (500, 1), (501, 2), (30_000, 60)] {
            assert_eq!(ticks(Duration::from_millis(millis)), expected);
        }
        assert_eq!(ticks(Duration::MAX), u32::MAX);
    }
}
