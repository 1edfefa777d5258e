//! Restores in the history of a volume. Each replaces all that the volume holds by what a snapshot has.
//!
//! A restore brings back values that were written before. To check a history, one has to know whether a read
//! has seen the write or the restore. So what a restore has written has a *name* of its own, with the number
//! of the restore. What a read has found is named by its time: if it comes after a restore, and finds what
//! the snapshot has there, it has seen the restore. If it may have come before or after a restore, and the
//! names differ, it says nothing, and is left out.
//!
//! Restores of a volume follow each other: one begins when it is known what has become of the last one.

use std::collections::BTreeMap;

use rt::sim::linear::{Kind, NEVER, Op, Time};

/// The bit that marks the name of what a restore has written.
const RESTORED: u64 = 1 << 63;

/// What sectors hold, by their numbers.
pub type Sectors = BTreeMap<u64, u64>;

/// A restore that has happened, or may happen.
struct Replaced {
    /// Its number: unique, and higher than those of earlier restores.
    number: u64,
    call: Time,
    /// [`NEVER`]: it may happen, or may have happened.
    reply: Time,
    /// What the snapshot has. It is empty elsewhere.
    to: Sectors,
    /// What was there before, as far as that was kept and read.
    kept: Sectors,
}

/// All restores of a volume.
#[derive(Default)]
pub struct AllReplaced(Vec<Replaced>);

impl Replaced {
    fn name(&self) -> u64 {
        RESTORED | self.number
    }

    fn value(&self, sector: u64, empty: u64) -> u64 {
        self.to.get(&sector).copied().unwrap_or(empty)
    }
}

impl AllReplaced {
    /// Whether there was none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes that the volume may be restored to this from now on.
    pub fn begin(&mut self, number: u64, call: Time, to: Sectors) {
        let is_next = self.0.last().is_none_or(|last| last.number < number && last.reply < call);
        assert!(is_next, "restore {number} begins before the last one has ended");
        self.0.push(Replaced { number, call, reply: NEVER, to, kept: Sectors::new() });
    }

    /// Notes that a restore had happened by then.
    pub fn end(&mut self, number: u64, reply: Time) {
        if let Some(one) = self.0.iter_mut().find(|one| one.number == number) {
            one.reply = reply;
        }
    }

    /// Notes that a restore has not happened, and never will.
    pub fn cancel(&mut self, number: u64) {
        self.0.retain(|one| one.number != number);
    }

    /// Notes what was there directly before a restore.
    pub fn keep(&mut self, number: u64, kept: Sectors) {
        if let Some(one) = self.0.iter_mut().find(|one| one.number == number) {
            one.kept = kept;
        }
    }

    /// Whether the volume may have been restored since then.
    pub fn is_restored_since(&self, time: Time) -> bool {
        self.0.iter().any(|one| one.reply >= time)
    }

    /// Whether the volume was restored after the first of these times, and before the second one.
    pub fn is_restored_between(&self, after: Time, before: Time) -> bool {
        self.0.iter().any(|one| one.call > after && one.reply < before)
    }

    /// What restores since then may have brought back to a sector. `empty` is the value before the first
    /// write.
    pub fn brought_back(&self, sector: u64, since: Time, empty: u64) -> Vec<u64> {
        self.0.iter().filter(|one| one.reply >= since).map(|one| one.value(sector, empty)).collect()
    }

    /// The names that a value of a sector can have: itself, and those of restores that have brought it back.
    pub fn names(&self, sector: u64, value: u64, empty: u64) -> Vec<u64> {
        let brought_back = self.0.iter().filter(|one| one.value(sector, empty) == value);
        std::iter::once(value).chain(brought_back.map(Replaced::name)).collect()
    }

    /// The name of a value that was found in a sector in this time; `None`: it could be one or the other.
    pub fn name(&self, sector: u64, value: u64, (call, reply): (Time, Time), empty: u64) -> Option<u64> {
        let first = self.0.iter().take_while(|one| one.reply < call).count();
        let last = self.0.iter().take_while(|one| one.call <= reply).count();
        let first_name = self.name_after(first, sector, value, empty);
        let mut names = (first + 1..=last).map(|count| self.name_after(count, sector, value, empty));
        names.all(|name| name == first_name).then_some(first_name)
    }

    /// The name of a value that was found after `count` restores, and before the next one.
    fn name_after(&self, count: usize, sector: u64, value: u64, empty: u64) -> u64 {
        let last = count.checked_sub(1).and_then(|last| self.0.get(last));
        last.filter(|last| last.value(sector, empty) == value).map_or(value, Replaced::name)
    }

    /// The operations on a sector, by names, and with the restores as writes, in the order of their calls.
    pub fn named(&self, sector: u64, ops: &[Op], empty: u64) -> Vec<Op> {
        let named = |op: &Op| match op.kind {
            Kind::Write => Some(*op),
            Kind::Read => {
                let value = self.name(sector, op.value, (op.call, op.reply), empty)?;
                Some(Op { value, ..*op })
            }
        };
        let write =
            |one: &Replaced| Op { kind: Kind::Write, value: one.name(), call: one.call, reply: one.reply };
        let mut all: Vec<Op> = ops.iter().filter_map(named).chain(self.0.iter().map(write)).collect();
        all.sort_by_key(|op| op.call);
        all
    }

    /// Which value each exchange of a sector was to replace, by names: `exchanged` has the values that were
    /// compared. A restore exchanges what it has kept for what the snapshot has: nothing comes between the
    /// two.
    pub fn exchanged(
        &self,
        sector: u64,
        ops: &[Op],
        exchanged: &BTreeMap<u64, u64>,
        empty: u64,
    ) -> BTreeMap<u64, u64> {
        let writes = ops.iter().filter(|op| op.kind == Kind::Write);
        let by_hosts = writes.filter_map(|op| {
            let old = *exchanged.get(&op.value)?;
            Some((op.value, self.name(sector, old, (op.call, op.reply), empty)?))
        });
        let by_restores = self.0.iter().enumerate().filter_map(|(count, one)| {
            let kept = *one.kept.get(&sector)?;
            Some((one.name(), self.name_after(count, sector, kept, empty)))
        });
        by_hosts.chain(by_restores).collect()
    }
}

/// A value, or the restore that has written it, as text.
pub fn shown(name: u64) -> String {
    match name & RESTORED {
        0 => name.to_string(),
        _ => format!("by restore {}", name & !RESTORED),
    }
}

#[cfg(test)]
mod tests {
    use rt::sim::linear::check;

    use super::*;
    use crate::exchanges;

    const SECTOR: u64 = 8;

    fn write(value: u64, call: Time, reply: Time) -> Op {
        Op { kind: Kind::Write, value, call, reply }
    }

    fn read(value: u64, call: Time, reply: Time) -> Op {
        Op { kind: Kind::Read, value, call, reply }
    }

    /// Restore 1 to value 1, from 20 to 30.
    fn restored() -> AllReplaced {
        let mut all = AllReplaced::default();
        all.begin(1, 20, Sectors::from([(SECTOR, 1)]));
        all.end(1, 30);
        all
    }

    fn holds(all: &AllReplaced, ops: &[Op]) -> bool {
        check(0, &all.named(SECTOR, ops, 0)).is_ok()
    }

    #[test]
    fn a_restore_brings_back_what_was_overwritten_and_nothing_else() {
        let before = [write(1, 1, 2), write(2, 3, 4), read(2, 5, 6)];
        let then = |more: &[Op]| holds(&restored(), &[&before[..], more].concat());
        assert!(then(&[read(1, 31, 32)]));
        assert!(!then(&[read(2, 31, 32)]), "it is as if it had not been restored");
        assert!(!then(&[read(1, 18, 19)]), "it was not restored yet");
        assert!(then(&[read(1, 21, 22)]) && then(&[read(2, 21, 22)]), "one or the other");
        assert!(then(&[write(3, 31, 32), read(3, 33, 34)]));
        assert!(!then(&[write(3, 31, 32), read(1, 33, 34)]), "a write after the restore is lost");
        assert!(!holds(&AllReplaced::default(), &[&before[..], &[read(1, 31, 32)]].concat()));
    }

    #[test]
    fn a_restore_that_may_happen_happens_or_not_and_one_that_is_refused_does_not() {
        let mut all = AllReplaced::default();
        all.begin(1, 20, Sectors::from([(SECTOR, 1)]));
        let before = [write(1, 1, 2), write(2, 3, 4)];
        let ops = |value| [&before[..], &[read(value, 31, 32)]].concat();
        assert!(holds(&all, &ops(1)) && holds(&all, &ops(2)));
        assert!(all.is_restored_since(1_000) && !all.is_restored_between(10, 1_000));
        all.cancel(1);
        assert!(!holds(&all, &ops(1)) && holds(&all, &ops(2)));
        assert!(!all.is_restored_since(1));
    }

    #[test]
    fn what_the_snapshot_does_not_have_is_empty_then() {
        let all = restored();
        let ops = |value| [write(5, 1, 2), read(value, 31, 32)];
        let named = |value| check(0, &all.named(SECTOR + 1, &ops(value), 0));
        assert!(named(0).is_ok() && named(5).is_err());
        assert_eq!(all.brought_back(SECTOR + 1, 25, 0), [0]);
        assert_eq!((all.brought_back(SECTOR, 30, 0), all.brought_back(SECTOR, 31, 0)), (vec![1], vec![]));
        assert!(all.is_restored_between(19, 31) && !all.is_restored_between(20, 31));
    }

    #[test]
    fn the_second_restore_to_a_snapshot_is_not_taken_for_the_first() {
        let mut all = restored();
        all.begin(2, 40, Sectors::from([(SECTOR, 1)]));
        all.end(2, 50);
        let before = [write(1, 1, 2), write(2, 3, 4), read(1, 31, 32), write(3, 33, 34)];
        let then = |read: Op| holds(&all, &[&before[..], &[read]].concat());
        assert!(then(read(1, 51, 52)) && then(read(3, 35, 36)));
        assert!(!then(read(1, 35, 36)) && !then(read(3, 51, 52)));
    }

    /// A write that is neither in what was kept nor there after the restore was lost in between.
    #[test]
    fn nothing_comes_between_what_is_kept_and_what_is_restored() {
        let mut all = restored();
        all.keep(1, Sectors::from([(SECTOR, 2)]));
        let ops = |more: &[Op]| [&[write(1, 1, 2), write(2, 3, 4)][..], more].concat();
        let check = |more: &[Op]| {
            let (named, exchanged) =
                (all.named(SECTOR, &ops(more), 0), all.exchanged(SECTOR, &ops(more), &BTreeMap::new(), 0));
            exchanges::check(0, &named, &exchanged).is_ok()
        };
        assert!(check(&[read(1, 31, 32)]));
        assert!(!check(&[write(3, 5, 6)]), "it was answered before, and was not kept");
        assert!(!check(&[write(3, 21, 22), read(1, 31, 32)]), "it was answered meanwhile");
        assert!(check(&[write(3, 21, 22), read(3, 31, 32)]), "it may have come afterwards");
    }

    #[test]
    fn an_exchange_of_what_a_restore_has_brought_back_follows_the_restore() {
        let all = restored();
        let exchanged = BTreeMap::from([(7, 1)]);
        let with = |exchange: Op| {
            let ops = [write(1, 1, 2), write(2, 3, 4), exchange];
            let (named, old) = (all.named(SECTOR, &ops, 0), all.exchanged(SECTOR, &ops, &exchanged, 0));
            (exchanges::check(0, &named, &old).is_ok(), old)
        };
        assert_eq!(with(write(7, 31, 32)), (true, BTreeMap::from([(7, RESTORED | 1)])));
        assert_eq!(with(write(7, 15, 16)), (false, BTreeMap::from([(7, 1)])), "2 was there then");
        assert_eq!(with(write(7, 25, 35)), (true, BTreeMap::new()), "it is like any write");
    }
}
