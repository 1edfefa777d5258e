//! Notices that other nodes add to the log what this version of Ursa cannot read.
//!
//! The message with such an entry is refused, so the log here ends before it. The leader sends the message
//! again, without end, and its heartbeats keep arriving: nothing else shows that this node no longer follows.

use super::Position;
use crate::limits::{UNREADABLE_GAP_TICKS, UNREADABLE_TICKS};
use crate::stall::Stall;

/// The messages that were refused since the log last grew. See the module.
#[derive(Default)]
pub(super) struct Unreadable(Option<Messages>);

/// Times are in ticks.
struct Messages {
    first: u64,
    last: u64,
    /// Where the log here ended.
    end: Position,
}

impl Messages {
    /// Whether the log still ends in the same place, and the sender still tries.
    fn lasts(&self, now: u64, end: Position) -> bool {
        self.end == end && now <= self.last + UNREADABLE_GAP_TICKS
    }
}

impl Unreadable {
    /// A message for the log, which ends at `end`, could not be read.
    pub(super) fn handle_refused(&mut self, now: u64, end: Position) {
        match self.0.as_mut().filter(|messages| messages.lasts(now, end)) {
            Some(messages) => messages.last = now,
            None => self.0 = Some(Messages { first: now, last: now, end }),
        }
    }

    /// Why the log, which ends at `end`, does not grow, if that is because of such messages.
    pub(super) fn stall(&self, now: u64, end: Position) -> Option<Stall> {
        let messages = self.0.as_ref().filter(|messages| messages.lasts(now, end))?;
        (messages.last - messages.first >= UNREADABLE_TICKS).then_some(Stall::Unreadable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{HEARTBEAT_TICKS, SNAPSHOT_TICKS};

    const END: Position = Position { index: 7, term: 2 };

    /// Refuses a message in each of these ticks.
    fn refused(ticks: std::ops::Range<u64>) -> Unreadable {
        let mut unreadable = Unreadable::default();
        ticks.for_each(|tick| unreadable.handle_refused(tick, END));
        unreadable
    }

    #[test]
    fn messages_that_are_sent_again_and_again_stall_the_record() {
        assert_eq!(refused(0..0).stall(150, END), None);
        assert_eq!(refused(0..1).stall(150, END), None, "one message");
        assert_eq!(refused(0..100).stall(150, END), None, "another leader may lack the entry");
        assert_eq!(refused(0..101).stall(100, END), Some(Stall::Unreadable));
    }

    /// A leader repeats a snapshot when the last one counts as lost and a heartbeat was answered after that.
    #[test]
    fn snapshots_that_are_sent_again_and_again_stall_the_record_too() {
        let again = SNAPSHOT_TICKS + 2 * HEARTBEAT_TICKS as u64;
        let mut unreadable = refused(0..1);
        unreadable.handle_refused(again, END);
        assert_eq!(unreadable.stall(again, END), Some(Stall::Unreadable));
        assert_eq!(unreadable.stall(2 * again, END), Some(Stall::Unreadable), "until the next one comes");
    }

    #[test]
    fn the_stall_ends_when_the_log_grows_or_nobody_tries_any_more() {
        let mut unreadable = refused(0..400);
        let until = 399 + UNREADABLE_GAP_TICKS;
        assert_eq!(unreadable.stall(until, END), Some(Stall::Unreadable));
        assert_eq!(unreadable.stall(until + 1, END), None);
        let longer = Position { index: 8, term: 3 };
        assert_eq!(unreadable.stall(400, longer), None);
        unreadable.handle_refused(401, longer);
        assert_eq!(unreadable.stall(401, longer), None, "it begins again");
    }
}
