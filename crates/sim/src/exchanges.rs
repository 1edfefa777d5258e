//! Checks histories with exchanges (COMPARE AND WRITE): each exchange is atomic, or did not happen (A11).
//!
//! An exchange replaces the old value by the new one directly, with nothing between the two. So values that
//! follow each other by exchanges form a chain in a known order, and all operations on a chain come before or
//! after all operations on any other chain. [`linear`] checks the rest, and sees each chain as a single
//! value.

use std::collections::{BTreeMap, BTreeSet};

use rt::sim::linear::{self, Kind, NEVER, Op, Time, Violation};

/// Why a history is impossible.
#[derive(Debug, PartialEq, Eq)]
pub enum Unexchangeable {
    /// It is not linearizable, even without exchanges, or with each chain seen as one value, named by its
    /// first.
    Impossible(Violation),
    /// The first value was exchanged for the second, and also for the third.
    Twice(u64, u64, u64),
    /// Exchanges had replaced the first value by the second, and the first was seen, or written, after that.
    Undone(u64, u64),
}

impl Unexchangeable {
    /// The values that the violation is about.
    pub fn values(&self) -> Vec<u64> {
        match *self {
            Unexchangeable::Impossible(Violation::FromNowhere(value) | Violation::FromTheFuture(value)) => {
                vec![value]
            }
            Unexchangeable::Impossible(Violation::Overlap(one, other) | Violation::Inside(one, other))
            | Unexchangeable::Undone(one, other) => vec![one, other],
            Unexchangeable::Twice(old, one, other) => vec![old, one, other],
        }
    }
}

/// Checks the history of one sector.
///
/// `initial` is the value before the first write; `exchanged` maps each new value to the old value that it
/// was to replace.
pub fn check(initial: u64, history: &[Op], exchanged: &BTreeMap<u64, u64>) -> Result<(), Unexchangeable> {
    linear::check(initial, history).map_err(Unexchangeable::Impossible)?;
    let mut times: BTreeMap<u64, (Time, Time)> = BTreeMap::new();
    for op in history {
        let (first_reply, last_call) = times.entry(op.value).or_insert((NEVER, 0));
        (*first_reply, *last_call) = (op.reply.min(*first_reply), op.call.max(*last_call));
    }
    // A write may not have happened if its value was never seen, nor exchanged for one that was seen.
    let mut happened = BTreeSet::new();
    for (value, _) in times.iter().filter(|(_, (first_reply, _))| *first_reply != NEVER) {
        let mut value = *value;
        while happened.insert(value)
            && let Some(old) = exchanged.get(&value)
        {
            value = *old;
        }
    }
    let old_of = |new: &u64| exchanged.get(new).copied().filter(|_| happened.contains(new));
    let mut next: BTreeMap<u64, u64> = BTreeMap::new();
    for (new, old) in happened.iter().filter_map(|new| Some((*new, old_of(new)?))) {
        if let Some(other) = next.insert(old, new) {
            return Err(Unexchangeable::Twice(old, other, new));
        }
    }
    let mut first_of: BTreeMap<u64, u64> = BTreeMap::new();
    let firsts = next.keys().filter(|value| old_of(value).is_none());
    for first in firsts {
        let (mut latest, mut at) = ((0, *first), *first);
        loop {
            if let Some((first_reply, last_call)) = times.get(&at) {
                if *first_reply < latest.0 {
                    return Err(Unexchangeable::Undone(latest.1, at));
                }
                latest = latest.max((*last_call, at));
            }
            first_of.insert(at, *first);
            match next.get(&at) {
                Some(new) => at = *new,
                None => break,
            }
        }
    }
    let as_one = |op: &Op| {
        let value = first_of.get(&op.value).copied().unwrap_or(op.value);
        // A chain has one write: that of its first value. If that is the initial value, there is none.
        let kind = if value == op.value { op.kind } else { Kind::Read };
        Op { kind, value, ..*op }
    };
    linear::check(initial, &history.iter().map(as_one).collect::<Vec<_>>())
        .map_err(Unexchangeable::Impossible)
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    fn op(kind: Kind, value: u64, call: Time, reply: Time) -> Op {
        Op { kind, value, call, reply }
    }

    #[test]
    fn a_write_between_is_noticed() {
        // 1 is present; 9 is written and seen while 1 is exchanged for 2.
        let between = |seen_first: bool| {
            let mut history = vec![
                op(Kind::Write, 1, 1, 2),
                op(Kind::Read, 1, 3, 4),
                op(Kind::Write, 2, 5, 20),
                op(Kind::Write, 9, 6, 7),
                op(Kind::Read, 2, 21, 22),
            ];
            if seen_first {
                history.push(op(Kind::Read, 1, 8, 9));
            }
            check(0, &history, &BTreeMap::from([(2, 1)]))
        };
        assert!(matches!(between(false), Err(Unexchangeable::Impossible(_))));
        assert!(between(true).is_err());
        let (old, new, write) =
            (op(Kind::Write, 1, 1, 2), op(Kind::Write, 2, 5, 20), op(Kind::Write, 9, 6, 7));
        assert_eq!(check(0, &[old, new, write], &BTreeMap::from([(2, 1)])), Ok(()), "it may have come last");
    }

    #[test]
    fn a_value_is_exchanged_once() {
        let history = [op(Kind::Write, 1, 1, 2), op(Kind::Write, 2, 3, 6), op(Kind::Write, 3, 4, 5)];
        let exchanged = BTreeMap::from([(2, 1), (3, 1)]);
        assert_eq!(check(0, &history, &exchanged), Err(Unexchangeable::Twice(1, 2, 3)));
        let unseen = [history[0], op(Kind::Write, 2, 3, NEVER), history[2]];
        assert_eq!(check(0, &unseen, &exchanged), Ok(()));
    }

    /// Tries every order: the specification, and far too slow for anything else.
    fn brute(state: u64, left: &[Op], exchanged: &BTreeMap<u64, u64>) -> bool {
        if left.iter().all(|op| op.reply == NEVER) {
            return true;
        }
        let first_reply = left.iter().map(|op| op.reply).min().unwrap_or(NEVER);
        (0..left.len()).any(|at| {
            let op = left[at];
            let fits = match op.kind {
                Kind::Read => op.value == state,
                Kind::Write => exchanged.get(&op.value).is_none_or(|old| *old == state),
            };
            let rest: Vec<Op> =
                left.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, op)| *op).collect();
            op.call <= first_reply && fits && brute(op.value, &rest, exchanged)
        })
    }

    #[test]
    fn agrees_with_brute_force() {
        let mut rng = Rng::new(1);
        let (mut good, mut bad) = (0u32, 0u32);
        for _ in 0..40_000 {
            let count = 1 + rng.below(6) as usize;
            let mut times: Vec<u64> = (1..=2 * count as u64).collect();
            for at in (1..times.len()).rev() {
                times.swap(at, rng.below(at as u64 + 1) as usize);
            }
            let (mut history, mut exchanged, mut last) = (Vec::new(), BTreeMap::new(), 0);
            for pair in times.chunks_exact(2) {
                let (call, reply) = (pair[0].min(pair[1]), pair[0].max(pair[1]));
                if rng.one_in(3) {
                    history.push(op(Kind::Read, rng.below(last + 1), call, reply));
                    continue;
                }
                last += 1;
                if rng.one_in(2) {
                    exchanged.insert(last, rng.below(last));
                }
                history.push(op(Kind::Write, last, call, if rng.one_in(6) { NEVER } else { reply }));
            }
            let want = brute(0, &history, &exchanged);
            let got = check(0, &history, &exchanged);
            assert_eq!(want, got.is_ok(), "{history:?} {exchanged:?} {got:?}");
            *(if want { &mut good } else { &mut bad }) += 1;
        }
        assert!(good > 1_000 && bad > 1_000, "{good} possible, {bad} not");
    }
}
