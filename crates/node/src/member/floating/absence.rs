//! Whether no node has an address, as far as this node can know, and when to report it. It has no clock: the
//! caller passes the time.

use base::Instant;

use super::{ABSENT_LENGTH, RETURNED_LENGTH};

/// What a node knows about where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whereabouts {
    /// A node has it on a device, and confirms that.
    Held,
    /// No node has it.
    Nobody,
    /// Unknown: this node does not reach the record, or the holder does not answer.
    Unknown,
}

/// What to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// No node has had it for [`ABSENT_LENGTH`].
    Lost,
    /// A node has had it again for [`RETURNED_LENGTH`].
    Returned,
}

/// Since when no node has an address.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Absence {
    /// Since when no node has had it for longer than a moment.
    since: Option<Instant>,
    /// Since when a node has had it without a break.
    held_since: Option<Instant>,
    /// The absence has been reported.
    told: bool,
}

impl Absence {
    /// Notes what is seen now; returns what to report.
    pub(super) fn note(&mut self, now: Instant, seen: Whereabouts) -> Option<News> {
        if seen != Whereabouts::Held {
            self.held_since = None;
        }
        match seen {
            Whereabouts::Held => {
                let held_since = *self.held_since.get_or_insert(now);
                // A node that tries to set it, and cannot, seems to have it for a moment.
                if now.since(held_since) < RETURNED_LENGTH {
                    return None;
                }
                self.since = None;
                std::mem::take(&mut self.told).then_some(News::Returned)
            }
            Whereabouts::Nobody => {
                let since = *self.since.get_or_insert(now);
                if self.told || now.since(since) < ABSENT_LENGTH {
                    return None;
                }
                self.told = true;
                Some(News::Lost)
            }
            Whereabouts::Unknown => {
                // A reported absence lasts until a node is known to have the address.
                self.since = self.since.filter(|_| self.told);
                None
            }
        }
    }

    /// Since when no node has it, if that was reported and still lasts.
    pub(super) fn lost_since(&self) -> Option<Instant> {
        self.since.filter(|_| self.told)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// What is reported, and after how many seconds, if each of these is seen for its number of seconds.
    fn told(seen: &[(Whereabouts, u64)]) -> Vec<(News, u64)> {
        let (mut absence, mut told, mut seconds) = (Absence::default(), Vec::new(), 0);
        for (whereabouts, length) in seen {
            for _ in 0..*length {
                let now = Instant(0) + Duration::from_secs(seconds);
                told.extend(absence.note(now, *whereabouts).map(|news| (news, seconds)));
                seconds += 1;
            }
        }
        told
    }

    #[test]
    fn the_loss_and_the_return_of_an_address_are_each_reported_once() {
        use Whereabouts::{Held, Nobody, Unknown};
        let (lost, back) = (News::Lost, News::Returned);
        assert_eq!(told(&[(Held, 60), (Nobody, 29), (Held, 60)]), [], "it moves");
        assert_eq!(told(&[(Nobody, 300)]), [(lost, 30)], "nobody has ever had it");
        assert_eq!(told(&[(Held, 10), (Nobody, 40), (Held, 40)]), [(lost, 40), (back, 60)]);
        assert_eq!(told(&[(Nobody, 40), (Held, 4), (Nobody, 60)]), [(lost, 30)], "it could not be put on");
        assert_eq!(told(&[(Nobody, 20), (Held, 4), (Nobody, 20)]), [(lost, 30)], "nor before that was told");
        assert_eq!(told(&[(Nobody, 20), (Unknown, 1), (Nobody, 20)]), [], "somebody may have had it");
        assert_eq!(told(&[(Nobody, 40), (Unknown, 60), (Held, 19)]), [(lost, 30), (back, 110)]);
        assert_eq!(told(&[(Nobody, 40), (Unknown, 60), (Nobody, 60)]), [(lost, 30)], "it was told");
    }
}
