//! The checks that a cluster must pass in a drill, and their results.

use std::time::Duration;

use api::{ClientError, Verification};
use base::ByteLen;
use cli::size;
use initiator::load::{LoadError, Report};
use serde::Serialize;

use super::full::Filled;
use super::moved::Moved;
use super::rot::Rotted;

/// The limits that a cluster must meet.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest time that a request may wait.
    pub stall: Duration,
    /// The same after the loss of all nodes, from their return.
    pub recovery: Duration,
}

/// The longest wait that does not count as a stall: a busy machine or closing connections may cause it.
pub const NO_STALL: Duration = Duration::from_millis(250);

impl Default for Limits {
    /// What the design promises: a lease of a second, plus the time to agree.
    ///
    /// After the loss of all nodes: the time they take to start and to know that no promises remain, and the
    /// time a client takes to reconnect.
    fn default() -> Limits {
        Limits { stall: Duration::from_millis(1_500), recovery: Duration::from_secs(15) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    pub passed: bool,
    pub found: String,
}

/// The facts to judge.
pub struct Found<'a> {
    /// How long all nodes were down; `None`: never.
    pub outage: Option<Duration>,
    /// The longest time that a request waited.
    pub stall: Duration,
    pub report: &'a Result<Report, LoadError>,
    /// How long it took until all copies were in sync; `None`: too long.
    pub sync: Option<Duration>,
    pub moved: &'a Moved,
    /// The bytes to copy at least, if a copy was rebuilt.
    pub all_of: Option<u64>,
    /// If no copy may go out of sync: when the first one did, in milliseconds after the fault, if one did.
    pub spared: Option<Option<i64>>,
    /// If data on a disk has changed: what was found of that.
    pub rot: Option<&'a Rotted>,
    /// If the pools were full: what became of that.
    pub full: Option<&'a Filled>,
    pub verification: &'a Result<Verification, ClientError>,
}

pub fn judge(limits: &Limits, found: &Found<'_>) -> Vec<Check> {
    let mut checks = vec![answers(found.report), data(found.report), stall(limits, found), sync(found.sync)];
    checks.extend(sent(found.moved));
    checks.extend(found.all_of.map(|bytes| all(bytes, found.moved)));
    checks.extend(found.spared.map(|out_ms| spared(out_ms, found.moved)));
    checks.push(equal(found.verification));
    checks.extend(found.rot.map(rot));
    checks.extend(found.full.into_iter().flat_map(full));
    checks
}

fn check(passed: bool, found: impl Into<String>) -> Check {
    Check { passed, found: found.into() }
}

fn answers(report: &Result<Report, LoadError>) -> Check {
    match report {
        Ok(report) => {
            let (reads, writes) = (report.reads.requests, report.writes.requests);
            check(reads + writes > 0, format!("{reads} reads and {writes} writes without an error"))
        }
        Err(LoadError::WrongData(_)) => check(true, "no request failed"),
        Err(error) => check(false, format!("a request failed: {error}")),
    }
}

fn data(report: &Result<Report, LoadError>) -> Check {
    match report {
        Ok(_) => check(true, "every read returned the data written last; a final pass read all of it back"),
        Err(error @ LoadError::WrongData(_)) => check(false, error.to_string()),
        Err(_) => check(false, "the final pass did not read the data back"),
    }
}

fn stall(limits: &Limits, found: &Found<'_>) -> Check {
    let seconds = |time: Duration| format!("{:.3} s", time.as_secs_f64());
    match found.outage {
        None => check(
            found.stall <= limits.stall,
            format!(
                "the longest wait for a response was {} (limit {})",
                seconds(found.stall),
                seconds(limits.stall)
            ),
        ),
        Some(outage) => {
            let recovery = found.stall.saturating_sub(outage);
            let (recovery_max, recovered) = (seconds(limits.recovery), seconds(recovery));
            check(
                recovery <= limits.recovery,
                format!("all requests answered {recovered} after the nodes restarted (limit {recovery_max})"),
            )
        }
    }
}

fn sync(sync: Option<Duration>) -> Check {
    match sync {
        Some(time) => {
            check(true, format!("all copies in sync {:.3} s after the fault ended", time.as_secs_f64()))
        }
        None => check(false, "not all copies are in sync again"),
    }
}

/// The resync sent no more than the copy missed: with a dirty map, nothing else needs to be copied.
fn sent(moved: &Moved) -> Option<Check> {
    let (dirty, max) = (moved.dirty_bytes?, moved.sent_max()?);
    let found = format!(
        "resync sent {} (limit {}: {} missed, {} added by host writes meanwhile)",
        size(moved.sent_bytes),
        size(max),
        size(dirty),
        size(moved.dirtied_bytes),
    );
    Some(check(moved.sent_bytes <= max, found))
}

fn all(bytes: u64, moved: &Moved) -> Check {
    let synced = moved.synced_bytes;
    check(
        synced >= bytes,
        format!("the new copy needed {}, and resync brought {}", size(bytes), size(synced)),
    )
}

fn spared(out_ms: Option<i64>, moved: &Moved) -> Check {
    match out_ms {
        None => check(
            moved.sent_bytes == 0,
            format!("all copies stayed in sync, and resync sent {}", size(moved.sent_bytes)),
        ),
        Some(ms) => check(false, format!("a copy went out of sync after {ms} ms, although none should have")),
    }
}

fn equal(verification: &Result<Verification, ClientError>) -> Check {
    match verification {
        Ok(found) if found.equal => check(true, format!("all {} copies are identical", found.nodes.len())),
        Ok(found) if found.different_bytes > 0 => check(
            false,
            format!("the copies differ in {}: {:?}", ByteLen(found.different_bytes), found.differences),
        ),
        Ok(found) => {
            let problem = found.problem.as_deref().unwrap_or("it was stopped");
            check(false, format!("the verify is incomplete: {problem}"))
        }
        Err(error) => check(false, format!("the verify failed: {error}")),
    }
}

/// If no read has found the damage, nothing was tried.
fn rot(rotted: &Rotted) -> Check {
    let Rotted { damaged_blocks, failed_reads, repaired_blocks } = rotted;
    check(
        *repaired_blocks > 0,
        format!(
            "{damaged_blocks} blocks damaged: {failed_reads} reads found that, and {repaired_blocks} blocks were repaired from another copy"
        ),
    )
}

fn full(filled: &Filled) -> Vec<Check> {
    let Filled { filled_bytes, unmapped_bytes, rewritten_bytes, refused_writes, failure } = filled;
    if let Some(failure) = failure {
        return vec![check(false, failure.as_str())];
    }
    vec![
        check(
            *filled_bytes > 0,
            format!("{} written until the pools were full, and all of it read back", size(*filled_bytes)),
        ),
        check(
            true,
            format!(
                "{} unmapped, and {} of it written again; before that, writes of the load failed {refused_writes} times for lack of space",
                size(*unmapped_bytes),
                size(*rewritten_bytes),
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use api::VerificationState;
    use initiator::load::Direction;

    use super::*;

    fn report(requests: u64) -> Result<Report, LoadError> {
        let mut direction = Direction::default();
        direction.requests = requests;
        let elapsed = Duration::from_secs(5);
        Ok(Report { elapsed, client_cpu: None, reads: direction.clone(), writes: direction })
    }

    fn verification(equal: bool) -> Result<Verification, ClientError> {
        Ok(Verification {
            state: VerificationState::Done,
            equal,
            total_bytes: 8,
            checked_bytes: 8,
            unchecked_bytes: 0,
            problem: None,
            different_bytes: if equal { 0 } else { 4 },
            differences: Vec::new(),
            nodes: vec![1, 2],
            age_s: 0,
            took_s: 0,
        })
    }

    fn passes(
        stall_ms: u64,
        outage: Option<u64>,
        requests: u64,
        equal: bool,
        sync: Option<u64>,
    ) -> Vec<bool> {
        let found = Found {
            outage: outage.map(Duration::from_secs),
            stall: Duration::from_millis(stall_ms),
            report: &report(requests),
            sync: sync.map(Duration::from_secs),
            moved: &Moved::default(),
            all_of: None,
            spared: None,
            rot: None,
            full: None,
            verification: &verification(equal),
        };
        judge(&Limits::default(), &found).iter().map(|check| check.passed).collect()
    }

    #[test]
    fn everything_must_be_good() {
        assert_eq!(passes(1500, None, 1, true, Some(3)), [true; 5]);
        assert_eq!(passes(1501, None, 1, true, Some(3)), [true, true, false, true, true]);
        assert_eq!(passes(20_000, Some(5), 1, true, Some(3)), [true; 5]);
        assert_eq!(passes(20_001, Some(5), 1, true, Some(3)), [true, true, false, true, true]);
        assert_eq!(passes(0, None, 0, false, None), [false, true, true, false, false]);
    }

    #[test]
    fn no_more_is_sent_than_was_missed_and_all_of_a_new_copy_is_brought() {
        let judged = |dirty_bytes, sent_bytes, synced_bytes, all_of| {
            let moved = Moved { dirty_bytes, dirtied_bytes: 20 << 20, synced_bytes, sent_bytes };
            let found = Found {
                outage: None,
                stall: Duration::ZERO,
                report: &report(1),
                sync: Some(Duration::ZERO),
                moved: &moved,
                all_of,
                spared: None,
                rot: None,
                full: None,
                verification: &verification(true),
            };
            let checks = judge(&Limits::default(), &found);
            checks[4..checks.len() - 1].iter().map(|check| check.passed).collect::<Vec<bool>>()
        };
        let most = 127 << 20;
        assert_eq!(judged(Some(100 << 20), most, 0, None), [true]);
        assert_eq!(judged(Some(100 << 20), most + 1, 0, None), [false]);
        assert!(judged(None, most, 0, None).is_empty());
        assert_eq!(judged(Some(most), 0, most, Some(most)), [true, true]);
        assert_eq!(judged(Some(most), 0, most - 1, Some(most)), [true, false]);
    }

    #[test]
    fn unaffected_copies_stay_in_sync() {
        let passed = |out_ms, sent_bytes| spared(out_ms, &Moved { sent_bytes, ..Moved::default() }).passed;
        assert!(passed(None, 0));
        assert!(!passed(None, 4096) && !passed(Some(700), 0));
    }

    #[test]
    fn damage_must_be_found() {
        let judged = |repaired_blocks| rot(&Rotted { damaged_blocks: 40, failed_reads: 3, repaired_blocks });
        assert!(judged(1).passed && !judged(0).passed);
    }

    #[test]
    fn full_pools_must_take_writes_again() {
        let filled = Filled { filled_bytes: 50 << 20, refused_writes: 7, ..Filled::default() };
        assert_eq!(full(&filled).iter().map(|check| check.passed).collect::<Vec<bool>>(), [true; 2]);
        let nothing = Filled { filled_bytes: 0, ..filled.clone() };
        assert!(!full(&nothing)[0].passed);
        let failure = Some("writes after UNMAP: no space".to_owned());
        let checks = full(&Filled { failure, ..filled });
        assert_eq!(checks, [check(false, "writes after UNMAP: no space")]);
    }

    #[test]
    fn wrong_data_does_not_count_as_a_request_error() {
        let wrong = initiator::WrongSector { sector: 7, expected: 2, found: [0; 3], whole: false };
        let found = Found {
            outage: None,
            stall: Duration::ZERO,
            report: &Err(LoadError::WrongData(wrong)),
            sync: Some(Duration::ZERO),
            moved: &Moved::default(),
            all_of: None,
            spared: None,
            rot: None,
            full: None,
            verification: &verification(true),
        };
        let checks = judge(&Limits::default(), &found);
        assert!(checks[0].passed && !checks[1].passed, "{checks:?}");
        assert!(checks[1].found.starts_with("wrong data: sector 7 should hold write 2"), "{checks:?}");
    }
}
