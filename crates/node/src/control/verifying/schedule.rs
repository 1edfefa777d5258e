//! The schedule of verifications: at an interval, one volume of the cluster at a time, spread over the
//! interval.
//!
//! This is the decision, without I/O. Times in seconds since 1970 and the entries of the cluster's record go
//! in, and the volume whose turn it is comes out.

use std::time::Duration;

use store::VolumeId;

use crate::copies::VerificationEntry;

/// How much nodes' clocks may differ. If a verification ended later than that in the future, the clock that
/// noted it was wrong.
const CLOCKS_DIFFER_MAX: u64 = 86_400;
/// The pause after a part, as a multiple of the time that the part took. Hosts get this share of the time,
/// and the verification slows down with the disks.
const PAUSE_PARTS: u32 = 9;
/// The highest rate of a verification. A volume of 1 TiB takes five hours or more.
const BYTES_PER_SECOND_MAX: u64 = 64 << 20;

/// A volume that this node could compare.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its identity.
    pub id: VolumeId,
    /// When it was created, in seconds since 1970.
    pub created: u64,
    /// What the record says about its verifications.
    pub entry: VerificationEntry,
}

/// When a volume is due, in seconds since 1970. One that was interrupted has been due since it began.
pub fn due(now: u64, every: Duration, id: VolumeId, created: u64, entry: &VerificationEntry) -> u64 {
    let began = entry.progress.as_ref().map(|progress| progress.began);
    due_at(now, every, id, created, began, entry.last.as_ref().map(|last| last.at))
}

/// The same by when the one began that was interrupted, and when the last one ended.
pub fn due_at(
    now: u64,
    every: Duration,
    id: VolumeId,
    created: u64,
    began: Option<u64>,
    last: Option<u64>,
) -> u64 {
    match (began, last) {
        (Some(began), _) => began.min(now),
        (None, Some(last)) if last > now.saturating_add(CLOCKS_DIFFER_MAX) => now,
        (None, Some(last)) => last.saturating_add(every.as_secs()),
        (None, None) => created.saturating_add(share_of(id, every.as_secs())),
    }
}

/// The volume to verify now: the one that has been due for longest.
pub fn next(now: u64, every: Duration, candidates: &[Candidate]) -> Option<VolumeId> {
    let due = candidates.iter().map(|it| (due(now, every, it.id, it.created, &it.entry), it.id));
    due.filter(|(at, _)| *at <= now).min().map(|(_, id)| id)
}

/// The time in which no volume is due, if nothing but the time changes.
#[derive(Clone, Copy, Debug)]
pub struct Quiet {
    from: u64,
    until: u64,
}

impl Quiet {
    /// None of these is due now.
    pub fn of(now: u64, every: Duration, candidates: &[Candidate]) -> Quiet {
        let due = candidates.iter().map(|it| due(now, every, it.id, it.created, &it.entry));
        Quiet { from: now, until: due.min().unwrap_or(u64::MAX) }
    }

    /// Whether it has this moment; not if the clock was set back.
    pub fn has(self, now: u64) -> bool {
        (self.from..self.until).contains(&now)
    }
}

/// The pause after a part of `bytes` bytes that took `took`.
pub fn pause(took: Duration, bytes: u64) -> Duration {
    let by_rate = Duration::from_micros(bytes.saturating_mul(1_000_000) / BYTES_PER_SECOND_MAX);
    (took * PAUSE_PARTS).max(by_rate.saturating_sub(took))
}

/// The share of the interval before a volume's first verification. It is fixed for each volume, so that
/// volumes that were created together are not due together.
fn share_of(id: VolumeId, every: u64) -> u64 {
    let [.., a, b, c, d] = id.0;
    ((u128::from(every) * u128::from(u32::from_be_bytes([a, b, c, d]))) >> u32::BITS) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copies::{VerificationProgress, Verified};

    const DAY: u64 = 86_400;
    const NOW: u64 = 1_000 * DAY;
    const EVERY: Duration = Duration::from_secs(30 * DAY);

    /// A volume whose share of an interval is `share` of 256.
    fn candidate(share: u8, last: Option<u64>) -> Candidate {
        let mut bytes = [0; 16];
        (bytes[0], bytes[12]) = (1, share);
        let last = last.map(|at| Verified { at, node: 1, stopped: false, different: 0, unchecked: 0 });
        let entry = VerificationEntry { last, progress: None };
        Candidate { id: VolumeId(bytes), created: NOW, entry }
    }

    fn due_of(candidate: &Candidate) -> u64 {
        due(NOW, EVERY, candidate.id, candidate.created, &candidate.entry)
    }

    #[test]
    fn volumes_that_were_made_together_are_compared_one_after_the_other() {
        let due = |share| due_of(&candidate(share, None));
        assert_eq!((due(0), due(128)), (NOW, NOW + 15 * DAY));
        assert!(due(255) > NOW + 29 * DAY && due(255) < NOW + 30 * DAY);
        let all = [candidate(200, None), candidate(128, None)];
        assert_eq!(next(NOW + 14 * DAY, EVERY, &all), None);
        assert_eq!(
            next(NOW + 30 * DAY, EVERY, &all),
            Some(all[1].id),
            "the one that has been due for longest"
        );
    }

    #[test]
    fn each_is_compared_again_after_the_interval() {
        let last = [candidate(7, Some(NOW))];
        assert_eq!(next(NOW + 30 * DAY - 1, EVERY, &last), None);
        assert_eq!(next(NOW + 30 * DAY, EVERY, &last), Some(last[0].id));
        assert_eq!(next(NOW + 60, Duration::from_secs(60), &last), Some(last[0].id));
    }

    #[test]
    fn nothing_is_due_before_the_first_one_is() {
        let all = [candidate(7, Some(NOW)), candidate(8, Some(NOW - DAY))];
        let quiet = Quiet::of(NOW, EVERY, &all);
        assert!(quiet.has(NOW) && quiet.has(NOW + 29 * DAY - 1) && !quiet.has(NOW + 29 * DAY));
        assert_eq!(next(NOW + 29 * DAY, EVERY, &all), Some(all[1].id));
        assert!(!quiet.has(NOW - 1), "the clock was set back");
        assert!(Quiet::of(NOW, EVERY, &[]).has(NOW + 400 * DAY));
    }

    #[test]
    fn an_interrupted_verify_goes_first() {
        let mut interrupted = candidate(7, Some(NOW - DAY));
        let (began, size, done) = (NOW - 60, 1 << 30, 1 << 20);
        let progress =
            VerificationProgress { began, size, done, different: 0, unchecked: 0, nodes: [1, 2].into() };
        interrupted.entry.progress = Some(progress);
        let other = candidate(9, Some(NOW - 30 * DAY + 1));
        assert_eq!(next(NOW, EVERY, &[other, interrupted.clone()]), Some(interrupted.id));
    }

    #[test]
    fn a_clock_that_was_far_ahead_does_not_put_a_comparison_off() {
        let ahead = |by| [candidate(7, Some(NOW + by))];
        assert_eq!(next(NOW, EVERY, &ahead(400 * DAY)), Some(candidate(7, None).id));
        assert_eq!(next(NOW, EVERY, &ahead(3_600)), None, "nodes' clocks differ");
    }

    #[test]
    fn hosts_have_nine_tenths_of_the_time_and_the_rate_is_bounded() {
        let millis = Duration::from_millis;
        assert_eq!(pause(millis(10), 1 << 20), millis(90));
        assert_eq!(pause(millis(1), 1 << 20), Duration::from_micros(14_625), "64 MiB a second");
        assert_eq!(pause(millis(400), 1 << 20), millis(3_600), "slow disks are left alone for longer");
    }
}
