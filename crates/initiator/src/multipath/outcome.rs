//! What a failure means for the command, and for its path.

use crate::Error;

/// What is known of a command that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The unit has answered: the answer goes to the caller.
    Final,
    /// The command can be sent again, if that does no harm.
    Again {
        /// What the command may have done.
        done: Done,
        /// What happens to the path.
        path: Fate,
        /// The unit was busy: pause first.
        pause: bool,
    },
}

/// What a command may have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    Nothing,
    /// Perhaps some or all of it, and nothing more from now on.
    Perhaps,
    /// Perhaps some or all of it, now or later; commands sent from now on come after it.
    Unsettled,
    /// Perhaps some or all of it, and it may still be under way.
    UnderWay,
}

/// What happens to a path after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The path is fine.
    Fine,
    /// The unit behind it must be asked for its name and access state.
    Check,
    /// The path is lost.
    Lost,
}

/// SAM-5 table 40.
const CHECK_CONDITION: u8 = 0x02;
const BUSY: u8 = 0x08;
const TASK_SET_FULL: u8 = 0x28;
const TASK_ABORTED: u8 = 0x40;

/// Sense keys (SPC-4 table 43).
const NOT_READY: u8 = 0x02;
const UNIT_ATTENTION: u8 = 0x06;
const ABORTED_COMMAND: u8 = 0x0b;

/// LOGICAL UNIT IS IN PROCESS OF BECOMING READY, and NOT ACCESSIBLE because of the access state: transition,
/// standby, unavailable.
const BECOMING_READY: u16 = 0x0401;
const IN_TRANSITION: u16 = 0x040a;
const IN_STANDBY: u16 = 0x040b;
const IN_UNAVAILABLE: u16 = 0x040c;

/// I/O PROCESS TERMINATED.
const IO_PROCESS_TERMINATED: u16 = 0x0006;

pub(super) fn judge(error: &Error) -> Verdict {
    let again = |done, path, pause| Verdict::Again { done, path, pause };
    match error {
        Error::NotSent(_) => again(Done::Nothing, Fate::Lost, false),
        Error::Ended(_) => again(Done::UnderWay, Fate::Lost, false),
        Error::Aborted => again(Done::Perhaps, Fate::Fine, false),
        Error::TimedOut => again(Done::Perhaps, Fate::Check, false),
        Error::TargetFailure(_) => again(Done::Perhaps, Fate::Check, true),
        Error::Status { status: BUSY | TASK_SET_FULL, .. } => again(Done::Nothing, Fate::Fine, true),
        Error::Status { status: TASK_ABORTED, .. } => again(Done::Perhaps, Fate::Fine, false),
        Error::Status { status: CHECK_CONDITION, .. } => judge_sense(error.sense()),
        _ => Verdict::Final,
    }
}

fn judge_sense(sense: Option<(u8, u16)>) -> Verdict {
    let again = |done, path, pause| Verdict::Again { done, path, pause };
    match sense {
        // SAM-5 5.14: a command that ends with a unit attention was not executed.
        Some((UNIT_ATTENTION, _)) => again(Done::Nothing, Fate::Check, false),
        Some((NOT_READY, BECOMING_READY | IN_TRANSITION)) => again(Done::Nothing, Fate::Check, true),
        Some((NOT_READY, IN_STANDBY | IN_UNAVAILABLE)) => again(Done::Nothing, Fate::Check, false),
        // Ursa reports this for a write that other nodes may still complete. Commands sent now come after it.
        Some((ABORTED_COMMAND, IO_PROCESS_TERMINATED)) => again(Done::Unsettled, Fate::Fine, true),
        // A failure on the way, for example damaged data.
        Some((ABORTED_COMMAND, _)) => again(Done::Perhaps, Fate::Fine, true),
        _ => Verdict::Final,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ended;

    fn check(key: u8, code: u16) -> Error {
        let [high, low] = code.to_be_bytes();
        Error::Status { status: 0x02, sense: vec![0x72, key, high, low, 0, 0, 0, 0] }
    }

    fn status(status: u8) -> Error {
        Error::Status { status, sense: Vec::new() }
    }

    #[test]
    fn failures_are_classified() {
        let again = |done, path, pause| Verdict::Again { done, path, pause };
        let lost = Error::Ended(Ended::Closed);
        let cases = [
            (Error::NotSent(Ended::Silent), again(Done::Nothing, Fate::Lost, false)),
            (lost, again(Done::UnderWay, Fate::Lost, false)),
            (Error::Aborted, again(Done::Perhaps, Fate::Fine, false)),
            (Error::TimedOut, again(Done::Perhaps, Fate::Check, false)),
            (status(0x08), again(Done::Nothing, Fate::Fine, true)),
            (status(0x28), again(Done::Nothing, Fate::Fine, true)),
            (status(0x40), again(Done::Perhaps, Fate::Fine, false)),
            (status(0x18), Verdict::Final), // RESERVATION CONFLICT
            (check(0x06, 0x2a06), again(Done::Nothing, Fate::Check, false)), // access state changed
            (check(0x06, 0x2900), again(Done::Nothing, Fate::Check, false)), // power on
            (check(0x02, 0x0401), again(Done::Nothing, Fate::Check, true)),
            (check(0x02, 0x040a), again(Done::Nothing, Fate::Check, true)),
            (check(0x02, 0x040b), again(Done::Nothing, Fate::Check, false)),
            (check(0x02, 0x040c), again(Done::Nothing, Fate::Check, false)),
            (check(0x02, 0x3a00), Verdict::Final), // no medium
            (check(0x0b, 0x0006), again(Done::Unsettled, Fate::Fine, true)), // other copies are out of reach
            (check(0x0b, 0x4703), again(Done::Perhaps, Fate::Fine, true)), // damaged on the way
            (check(0x03, 0x1100), Verdict::Final), // the disk cannot read it
            (check(0x0e, 0x1d00), Verdict::Final), // miscompare
            (check(0x05, 0x2400), Verdict::Final), // not supported
            (check(0x07, 0x2707), Verdict::Final), // out of space
        ];
        for (error, expected) in cases {
            assert_eq!(judge(&error), expected, "{error}");
        }
        assert_eq!(judge(&Error::Status { status: 0x02, sense: vec![] }), Verdict::Final);
    }
}
