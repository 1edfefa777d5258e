//! Linearizability of one block, checked in O(n log n), for simulations of clients in this world or a smaller
//! one.
//!
//! A volume is a set of independent registers, one per block, so a history is linearizable if and
//! only if its projection on every block is (P-compositionality). The workload never writes the
//! same value twice to a block, so every read names the one write it read from. With that, no
//! search is needed (Gibbons and Korach, "Testing Shared Memories", 1997):
//!
//! - A *cluster* is a write and all the reads that returned its value.
//! - Its *zone* spans from the first response in the cluster to the last invocation. A zone is
//!   forward if the response comes first, else backward.
//! - The history is linearizable when no read ends before its write begins, no two forward zones
//!   overlap, and no backward zone lies inside a forward zone.

use std::collections::BTreeMap;

/// Logical time in the simulator. Every invocation and response has a distinct time.
pub type Time = u64;

/// The reply time of an unanswered operation: a write that was never acknowledged may take effect at any
/// later time.
pub const NEVER: Time = Time::MAX;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It wrote the value.
    Write,
    /// It read the value.
    Read,
}

/// One operation as its client saw it.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// Write or read.
    pub kind: Kind,
    /// The value that was written or read.
    pub value: u64,
    /// When it began.
    pub call: Time,
    /// When it was answered; [`NEVER`]: it was not.
    pub reply: Time,
}

/// Why a history is impossible.
#[derive(Debug, PartialEq, Eq)]
pub enum Violation {
    /// The value was never written.
    FromNowhere(u64),
    /// A read returned the value before anyone began to write it.
    FromTheFuture(u64),
    /// Both values must be current at the same moment.
    Overlap(u64, u64),
    /// The second value must be current while the first still is.
    Inside(u64, u64),
}

struct Zone {
    value: u64,
    low: Time,
    high: Time,
}

/// Checks the history of one block. `initial` is the value before the first write.
///
/// # Panics
/// If an operation ends before it begins, or two write the same value.
pub fn check(initial: u64, history: &[Op]) -> Result<(), Violation> {
    let (forward, backward) = zones(initial, history)?;

    for pair in forward.windows(2) {
        if pair[0].high > pair[1].low {
            return Err(Violation::Overlap(pair[0].value, pair[1].value));
        }
    }
    for inner in &backward {
        // The only forward zone that can contain `inner` is the last one to begin before it.
        let index = forward.partition_point(|zone| zone.low < inner.low);
        if index > 0 && forward[index - 1].high > inner.high {
            return Err(Violation::Inside(forward[index - 1].value, inner.value));
        }
    }
    Ok(())
}

/// When a read that takes no time could have found a value.
pub struct Moments {
    /// When the write of the value began.
    from: Time,
    /// The first response and the last invocation in its cluster.
    first_reply: Time,
    last_call: Time,
    /// The zones of all other values.
    forward: Vec<Zone>,
    backward: Vec<Zone>,
}

impl Moments {
    /// Whether it could have found it then, in a history that is linearizable without this read.
    pub fn has(&self, at: Time) -> bool {
        // Its zone with the read. It is never a backward one that is longer than a moment.
        let (low, high) = (self.first_reply.min(at), self.last_call.max(at));
        at >= self.from
            && !self.forward.iter().any(|zone| zone.low < high && zone.high > low)
            && !self.backward.iter().any(|zone| zone.low > low && zone.high < high)
    }
}

/// When a read that takes no time could have found `value`, according to the history of one block.
///
/// # Errors
/// The value was never written, or the history is impossible.
pub fn moments(initial: u64, history: &[Op], value: u64) -> Result<Moments, Violation> {
    let (mut forward, mut backward) = zones(initial, history)?;
    [&mut forward, &mut backward].into_iter().for_each(|zones| zones.retain(|zone| zone.value != value));
    let first = Op { kind: Kind::Write, value: initial, call: 0, reply: 0 };
    let ops: Vec<&Op> = std::iter::once(&first).chain(history).filter(|op| op.value == value).collect();
    let write = ops.iter().find(|op| op.kind == Kind::Write).ok_or(Violation::FromNowhere(value))?;
    let first_reply = ops.iter().map(|op| op.reply).fold(NEVER, Time::min);
    let last_call = ops.iter().map(|op| op.call).fold(0, Time::max);
    Ok(Moments { from: write.call, first_reply, last_call, forward, backward })
}

/// Forward zones sorted by `low`, and backward zones in any order.
fn zones(initial: u64, history: &[Op]) -> Result<(Vec<Zone>, Vec<Zone>), Violation> {
    let mut clusters: BTreeMap<u64, Vec<Op>> = BTreeMap::new();
    let first = Op { kind: Kind::Write, value: initial, call: 0, reply: 0 };
    for op in std::iter::once(&first).chain(history) {
        assert!(op.call <= op.reply, "{op:?}");
        clusters.entry(op.value).or_default().push(*op);
    }

    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    for (value, ops) in clusters {
        let mut writes = ops.iter().filter(|op| op.kind == Kind::Write);
        let write = writes.next().ok_or(Violation::FromNowhere(value))?;
        assert!(writes.next().is_none(), "the workload must write unique values");

        if ops.iter().any(|op| op.kind == Kind::Read && op.reply < write.call) {
            return Err(Violation::FromTheFuture(value));
        }
        if write.reply == NEVER && ops.len() == 1 {
            continue; // It may never have happened.
        }
        let first_reply = ops.iter().map(|op| op.reply).fold(NEVER, Time::min);
        let last_call = ops.iter().map(|op| op.call).fold(0, Time::max);
        if first_reply < last_call {
            forward.push(Zone { value, low: first_reply, high: last_call });
        } else {
            backward.push(Zone { value, low: last_call, high: first_reply });
        }
    }
    forward.sort_by_key(|zone| zone.low);
    Ok((forward, backward))
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::{Kind, NEVER, Op, check, moments};

    /// Tries every order. The specification, and far too slow for anything else.
    fn brute(state: u64, left: &[Op]) -> bool {
        if left.iter().all(|op| op.reply == NEVER) {
            return true;
        }
        let first_reply = left.iter().map(|op| op.reply).min().unwrap();
        (0..left.len()).any(|i| {
            let op = left[i];
            if op.call > first_reply {
                return false; // Another operation ended before this one began.
            }
            if op.kind == Kind::Read && op.value != state {
                return false;
            }
            let rest: Vec<Op> = left.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, o)| *o).collect();
            brute(op.value, &rest)
        })
    }

    /// A history of at most `max` operations.
    fn any_history(rng: &mut Rng, max: u64) -> Vec<Op> {
        let n = 1 + rng.below(max) as usize;
        // Distinct times: a random interleaving of n calls and n replies.
        let mut times: Vec<u64> = (1..=2 * n as u64).collect();
        for i in (1..times.len()).rev() {
            let j = rng.below(i as u64 + 1) as usize;
            times.swap(i, j);
        }
        let mut next_value = 1;
        let mut history = Vec::new();
        for i in 0..n {
            let (a, b) = (times[2 * i], times[2 * i + 1]);
            let (call, mut reply) = (a.min(b), a.max(b));
            if rng.below(2) == 0 {
                if rng.one_in(6) {
                    reply = NEVER;
                }
                history.push(Op { kind: Kind::Write, value: next_value, call, reply });
                next_value += 1;
            } else {
                history.push(Op { kind: Kind::Read, value: 0, call, reply });
            }
        }
        for op in history.iter_mut().filter(|op| op.kind == Kind::Read) {
            op.value = rng.below(next_value);
        }
        history
    }

    #[test]
    fn agrees_with_brute_force() {
        let mut rng = Rng::new(1);
        let (mut good, mut bad) = (0u32, 0u32);
        for _ in 0..40_000 {
            let history = any_history(&mut rng, 7);
            let want = brute(0, &history);
            let got = check(0, &history).is_ok();
            assert_eq!(want, got, "{history:?}");
            *(if want { &mut good } else { &mut bad }) += 1;
        }
        assert!(good > 1_000 && bad > 1_000, "{good} linearizable, {bad} not");
    }

    #[test]
    fn a_value_has_the_moments_at_which_a_read_could_find_it() {
        let mut rng = Rng::new(2);
        let (mut good, mut bad) = (0u32, 0u32);
        for _ in 0..20_000 {
            let mut history = any_history(&mut rng, 8);
            if check(0, &history).is_err() {
                continue;
            }
            let (value, at) = (rng.below(5), rng.below(18));
            let got = moments(0, &history, value).is_ok_and(|moments| moments.has(at));
            history.push(Op { kind: Kind::Read, value, call: at, reply: at });
            assert_eq!(check(0, &history).is_ok(), got, "{history:?}");
            *(if got { &mut good } else { &mut bad }) += 1;
        }
        assert!(good > 1_000 && bad > 1_000, "{good} could be read, {bad} not");
    }
}
