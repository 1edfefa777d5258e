//! When core 0 looks for work of its own that nobody tells it of: each kind of work has a beat of its own.
//!
//! An idle node costs what it wakes for, so these looks come with its heartbeats. But all of them in one turn
//! would be a longer turn than hosts' requests should wait for: so they come with different ones.

use std::time::Duration;

use base::Instant;

use crate::member::HEARTBEAT;

/// A kind of work, in the order of their beats.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Beat {
    /// What is wrong, for events and findings.
    Events,
    /// What other nodes have removed, renamed or deleted.
    Tidying,
    /// Volumes here that the record lacks.
    Recording,
    /// Marks of pools.
    Marks,
    /// What the record says of this node.
    Announcing,
    /// Volumes to convert.
    Conversions,
    /// Which nodes vote.
    Voters,
    /// How many there are.
    Count,
}

const _: () = assert!(
    (Beat::Count as u128) * HEARTBEAT.as_millis() <= Duration::from_secs(1).as_millis(),
    "each has another beat of the same second"
);

impl Beat {
    /// The next beat of this work, which is due once in each period of whole seconds: a period later at most.
    pub(crate) fn after(self, now: Instant, period: Duration) -> Instant {
        now.offset_beat_after(period, HEARTBEAT * self as u32)
    }

    /// Waits for the next beat of this work.
    pub(crate) async fn wait(self, period: Duration) {
        rt::sleep_until(self.after(rt::now(), period)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn looks_come_with_heartbeats_and_not_with_each_other() {
        let second = Duration::from_secs(1);
        let all = [
            Beat::Events,
            Beat::Tidying,
            Beat::Recording,
            Beat::Marks,
            Beat::Announcing,
            Beat::Conversions,
            Beat::Voters,
        ];
        assert_eq!(all.len(), Beat::Count as usize);
        let mut beats = BTreeSet::new();
        for beat in all {
            let at = beat.after(Instant(7), second);
            assert_eq!((at + HEARTBEAT).beat_after(HEARTBEAT), at + 2 * HEARTBEAT, "a beat of heartbeats");
            assert_eq!(beat.after(at, second), at + second);
            assert!(beats.insert(at), "{beat:?} comes with another one");
        }
    }
}
