//! When a node may act in a volume's newest configuration (R10 to R12, R14).
//!
//! Configurations arrive in order. Where some are missing (a node that was out of touch for so long that the
//! record no longer has them) this process may have been outside in between, unless it is in sync before and
//! after: nobody is made so again without having said, in an epoch in which it joins, that it has all. One
//! that takes a copy out may be acted in only when that copy can no longer answer reads: when the leases it
//! was given before have run out, or it has itself said that it knows. One that leaves this process itself
//! outside takes effect at once; whom it has taken out is remembered until this process is a member again.

use std::collections::BTreeMap;

use base::Instant;

use crate::lease::Leases;
use crate::{Config, Epoch, Incarnation, NodeId, Revision, Slot, Standing};

/// The revision of a configuration that no record has: later than all that do.
pub const BEYOND_RECORD: Revision = Revision(u64::MAX);

/// One node's view of one volume's configurations.
#[derive(Debug)]
pub struct Membership {
    slot: Slot,
    incarnation: Incarnation,
    /// From the one that is acted in to the newest that is known.
    configs: Vec<Config>,
    /// Whether the first of them is acted in; else nothing is yet.
    active: bool,
    /// Whether one between them is not known.
    gap: bool,
    /// Who was taken out of the copies in sync since this process was last a member, by node: it may hold
    /// leases of this node.
    removed: BTreeMap<NodeId, Removed>,
    /// Between configurations that are known one was missed: whoever was given a lease at an earlier revision
    /// than this may have been taken out there.
    missed_before: Option<Revision>,
}

/// The last removal of a node's copy.
#[derive(Clone, Copy, Debug)]
struct Removed {
    slot: Slot,
    life: Incarnation,
    /// Leases that it was given at an earlier one bind.
    revision: Revision,
}

/// A configuration to act in from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activation {
    /// The configuration.
    pub config: Config,
    /// Whether this process was a member all the time since the one it acted in before, so that what it knows
    /// still holds.
    pub kept: bool,
}

impl Membership {
    /// A process that holds the slot's copy and has just begun.
    pub fn new(slot: Slot, incarnation: Incarnation) -> Membership {
        Membership {
            slot,
            incarnation,
            configs: Vec::new(),
            active: false,
            gap: false,
            removed: BTreeMap::new(),
            missed_before: None,
        }
    }

    /// Takes the next configuration of the volume. One that is known already changes nothing.
    pub fn learn(&mut self, config: Config) {
        match self.configs.last() {
            Some(newest) if config.epoch <= newest.epoch => {}
            Some(newest) => {
                if config.epoch.0 != newest.epoch.0 + 1 {
                    self.gap = true;
                    // One of a node that has gone on alone is in no record, and nothing is between the two:
                    // what was missed before stays missed.
                    if config.revision != BEYOND_RECORD {
                        self.missed_before = Some(config.revision);
                    }
                }
                for slot in newest.in_sync().without(self.slot).iter() {
                    let before = newest.in_sync_life(slot).expect("it is in sync");
                    if config.in_sync_life(slot) != Some(before) {
                        let (node, life) = before;
                        self.removed.insert(node, Removed { slot, life, revision: config.revision });
                    }
                }
                // Who goes on by the record after all is waited for as far as that goes: nothing is promised
                // against what is known.
                self.removed
                    .values_mut()
                    .for_each(|removed| removed.revision = removed.revision.min(config.revision));
                self.configs.push(config);
            }
            None => {
                // A copy that was dropped and added again, in one life: it does not know what went before.
                let is_first = config.epoch == Epoch::FIRST || config.revision == BEYOND_RECORD;
                self.missed_before = (!is_first).then_some(config.revision);
                self.configs.push(config);
            }
        }
    }

    /// What this process knew of the volume's blocks is forgotten: it acts in nothing, and goes on as one
    /// that has just begun. The leases that it gave under configurations before the newest still count.
    pub fn forget(&mut self) {
        self.active = false;
    }

    /// The newest configuration that is known.
    pub fn newest(&self) -> Option<&Config> {
        self.configs.last()
    }

    /// The configuration that is acted in.
    pub fn active(&self) -> Option<&Config> {
        self.configs.first().filter(|_| self.active)
    }

    /// When the newest configuration may be acted in; `None` if it is.
    pub fn due(&self, leases: &Leases) -> Option<Instant> {
        let newest = self.configs.last()?;
        if self.active && self.configs.len() == 1 {
            return None;
        }
        if newest.standing(self.slot, self.incarnation) == Standing::Outside {
            return Some(Instant(0));
        }
        let is_back =
            |node: NodeId, removed: &Removed| newest.in_sync_life(removed.slot) == Some((node, removed.life));
        let gone = self.removed.iter().filter(|(node, removed)| !is_back(**node, removed));
        let released = gone.map(|(node, removed)| leases.released_at(*node, removed.revision));
        let missed = self.missed_before.map(|revision| leases.all_released_at(revision));
        let due = released.chain(missed).fold(leases.quiet_until(), Instant::max);
        Some(due)
    }

    /// The newest configuration, when it may be acted in.
    pub fn poll(&mut self, now: Instant, leases: &Leases) -> Option<Activation> {
        if now < self.due(leases)? {
            return None;
        }
        let me = |config: &Config| config.standing(self.slot, self.incarnation);
        let newest = self.configs.last().expect("something is due");
        let before = &self.configs[..self.configs.len() - 1];
        let in_sync = |config: &Config| matches!(me(config), Standing::InSync(_));
        // Who was taken out is promoted only when it has said, acting in an epoch in which it joins, that it
        // has all: who has heard of none has not said it.
        let hidden = self.gap && !(in_sync(&self.configs[0]) && in_sync(newest));
        let always =
            self.active && !hidden && self.configs.iter().all(|config| me(config) != Standing::Outside);
        let demoted = matches!(me(newest), Standing::Joining(_))
            && before.iter().any(|config| matches!(me(config), Standing::InSync(_)));
        let activation = Activation { config: newest.clone(), kept: always && !demoted };
        if me(newest) != Standing::Outside {
            self.removed.clear();
            self.missed_before = None;
        }
        self.configs.drain(..self.configs.len() - 1);
        self.gap = false;
        self.active = true;
        Some(activation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Terms;
    use crate::{NodeId, Revision};

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn slot(number: usize) -> Slot {
        Slot::new(number).unwrap()
    }

    fn config() -> Config {
        Config::initial(
            &[(NodeId(1), Incarnation(1)), (NodeId(2), Incarnation(1)), (NodeId(3), Incarnation(1))],
            Revision(1),
        )
    }

    fn later(config: Config, revision: u64) -> Config {
        config.committed_at(Revision(revision))
    }

    #[test]
    fn who_has_forgotten_still_waits_for_leases_of_who_was_removed() {
        let mut leases = Leases::new(at(0), Incarnation(1), Terms::default());
        leases.set_applied(Revision(1));
        let mut me = Membership::new(slot(0), Incarnation(1));
        me.learn(config());
        assert!(me.poll(at(1010), &leases).is_some());
        leases.set_applied(Revision(2));
        let alone = config().remove(slot(1)).unwrap().remove(slot(2)).unwrap();
        me.learn(later(alone.clone(), 2));
        let waits = me.due(&leases);
        me.forget();
        assert_eq!((me.active(), me.due(&leases)), (None, waits), "as if nothing was forgotten");
        let activation = me.poll(at(5000), &leases).unwrap();
        assert!(!activation.kept && me.active() == me.newest(), "{activation:?}");
    }

    #[test]
    fn a_removed_copys_leases_are_waited_for() {
        let mut leases = Leases::new(at(0), Incarnation(1), Terms::default());
        leases.set_applied(Revision(1));
        let mut me = Membership::new(slot(0), Incarnation(1));
        me.learn(config());
        assert_eq!(me.poll(at(1000), &leases), None, "an earlier life may have promised something");
        assert!(!me.poll(at(1010), &leases).unwrap().kept, "it has just begun");

        let other = Leases::new(at(0), Incarnation(1), Terms::default());
        leases.handle_request(at(4000), NodeId(2), other.request(at(4000)));
        me.learn(later(config().remove(slot(1)).unwrap(), 2));
        assert_eq!(me.due(&leases), Some(at(5000)));
        assert_eq!(me.poll(at(4999), &leases), None);
        let activation = me.poll(at(5000), &leases).unwrap();
        assert!(activation.kept && activation.config.epoch.0 == 2);
        assert_eq!(me.due(&leases), None);
    }

    /// Lives are counted by node: another node's copy in the same slot may be in the life of the same number.
    #[test]
    fn whose_slot_is_another_node_s_by_now_is_waited_for() {
        let mut leases = Leases::new(at(0), Incarnation(1), Terms::default());
        leases.set_applied(Revision(1));
        let mut me = Membership::new(slot(0), Incarnation(1));
        me.learn(config());
        me.poll(at(2000), &leases).unwrap();
        let other = Leases::new(at(0), Incarnation(1), Terms::default());
        leases.handle_request(at(4000), NodeId(2), other.request(at(4000)));
        let mut next = config();
        let steps: [&dyn Fn(&Config) -> Config; 5] = [
            &|config| config.remove(slot(1)).unwrap(),
            &|config| config.drop_copy(slot(1)).unwrap(),
            &|config| config.add(slot(1), NodeId(9)).unwrap(),
            &|config| config.admit(slot(1), Incarnation(1)).unwrap(),
            &|config| config.promote(slot(1)).unwrap(),
        ];
        for (step, revision) in steps.iter().zip(2..) {
            next = later(step(&next), revision);
            me.learn(next.clone());
        }
        assert_eq!(me.due(&leases), Some(at(5000)), "node 2 may read until then");
    }

    /// Found by the simulator: a node that was restarted, and had not heard of the removal yet, promised
    /// something to who was removed; it made itself a member by what it heard in between, in which it was
    /// none, and acted while the other one could still answer reads.
    #[test]
    fn who_was_removed_while_this_process_was_outside_is_waited_for() {
        let mut leases = Leases::new(at(0), Incarnation(2), Terms::default());
        leases.set_applied(Revision(1));
        let mut me = Membership::new(slot(0), Incarnation(2));
        me.learn(config());
        assert!(me.poll(at(0), &leases).is_some(), "outside: it names its last life");
        let other = Leases::new(at(0), Incarnation(1), Terms::default());
        leases.handle_request(at(4000), NodeId(2), other.request(at(4000)));
        let alone = config().remove(slot(1)).unwrap().remove(slot(2)).unwrap();
        me.learn(later(alone.clone(), 2));
        assert!(me.poll(at(4001), &leases).is_some(), "still outside");
        leases.set_applied(Revision(2));
        me.learn(later(alone.recover(slot(0), Incarnation(2)).unwrap(), 3));
        assert_eq!(me.due(&leases), Some(at(5000)), "node 2 may read until then");
        assert!(me.poll(at(5000), &leases).is_some());
        me.learn(later(me.newest().unwrap().admit(slot(1), Incarnation(1)).unwrap(), 4));
        assert_eq!(me.due(&leases), Some(leases.quiet_until()), "that is settled");
    }

    #[test]
    fn who_may_have_been_removed_in_what_was_missed_is_waited_for() {
        let mut leases = Leases::new(at(0), Incarnation(2), Terms::default());
        leases.set_applied(Revision(1));
        let mut me = Membership::new(slot(0), Incarnation(2));
        let pair = config().remove(slot(2)).unwrap();
        me.learn(later(pair.clone(), 1));
        assert!(me.poll(at(0), &leases).is_some(), "outside: it names its last life");
        // In between the third copy was brought up to date, and removed.
        let third = Leases::new(at(0), Incarnation(1), Terms::default());
        leases.handle_request(at(4000), NodeId(3), third.request(at(4000)));
        let missed =
            pair.admit(slot(2), Incarnation(1)).unwrap().promote(slot(2)).unwrap().remove(slot(2)).unwrap();
        me.learn(later(missed.remove(slot(1)).unwrap(), 5));
        leases.set_applied(Revision(5));
        me.learn(later(me.newest().unwrap().recover(slot(0), Incarnation(2)).unwrap(), 6));
        assert_eq!(me.due(&leases), Some(at(5000)));
    }

    #[test]
    fn what_was_missed_is_not_forgotten_by_going_on_alone() {
        let mut leases = Leases::new(at(0), Incarnation(1), Terms::default());
        leases.set_applied(Revision(1));
        let mut me = Membership::new(slot(0), Incarnation(1));
        let pair = config().remove(slot(2)).unwrap();
        me.learn(later(pair.clone(), 1));
        assert!(me.poll(at(2000), &leases).is_some());
        let third = Leases::new(at(0), Incarnation(1), Terms::default());
        leases.handle_request(at(4000), NodeId(3), third.request(at(4000)));
        let missed = pair.admit(slot(2), Incarnation(1)).unwrap().remove(slot(2)).unwrap();
        me.learn(later(missed.clone(), 5));
        let alone = missed.remove(slot(1)).unwrap();
        me.learn(Config::recorded(
            Epoch(100),
            BEYOND_RECORD,
            std::array::from_fn(|index| alone.copy(slot(index))),
        ));
        assert_eq!(me.due(&leases), Some(at(5000)), "the third may read until then");
    }

    #[test]
    fn what_was_promised_before_the_copy_was_dropped_and_added_again_stands() {
        let mut leases = Leases::new(at(0), Incarnation(1), Terms::default());
        leases.set_applied(Revision(1));
        let third = Leases::new(at(0), Incarnation(1), Terms::default());
        leases.handle_request(at(4000), NodeId(3), third.request(at(4000)));
        // Since then this node's copy was dropped, the third removed, and this node's added anew.
        let mut me = Membership::new(slot(0), Incarnation(1));
        let alone = config().remove(slot(0)).unwrap().remove(slot(2)).unwrap();
        let again = alone.drop_copy(slot(0)).unwrap().add(slot(0), NodeId(1)).unwrap();
        me.learn(later(again.admit(slot(0), Incarnation(1)).unwrap(), 6));
        leases.set_applied(Revision(6));
        assert_eq!(me.due(&leases), Some(at(5000)));
        let mut fresh = Membership::new(slot(0), Incarnation(1));
        fresh.learn(config());
        assert_eq!(fresh.due(&leases), Some(leases.quiet_until()), "a volume is new to everybody");
    }

    /// A node that went on alone in a configuration of no record is let in again by the record.
    #[test]
    fn who_was_removed_in_no_record_is_waited_for_as_far_as_the_record_goes() {
        let mut leases = Leases::new(at(0), Incarnation(1), Terms::default());
        leases.set_applied(Revision(1));
        let mut me = Membership::new(slot(0), Incarnation(1));
        me.learn(config());
        me.poll(at(2000), &leases).unwrap();
        let alone = config().remove(slot(1)).unwrap().remove(slot(2)).unwrap();
        me.learn(alone.clone().committed_at(BEYOND_RECORD));
        me.learn(later(alone.admit(slot(2), Incarnation(5)).unwrap(), 7));
        leases.set_applied(Revision(7));
        let other = Leases::new(at(0), Incarnation(2), Terms::default());
        leases.handle_request(at(4000), NodeId(2), other.request(at(4000)));
        assert_eq!(
            me.due(&leases),
            Some(leases.quiet_until()),
            "it was promised nothing against what is known"
        );
    }

    #[test]
    fn who_is_outside_stops_at_once() {
        let leases = Leases::new(at(0), Incarnation(1), Terms::default());
        let mut me = Membership::new(slot(1), Incarnation(1));
        me.learn(later(config().remove(slot(1)).unwrap(), 2));
        let activation = me.poll(at(0), &leases).unwrap();
        assert!(!activation.kept);
    }

    /// Found by the simulator: a copy that was in sync all the time heard of one configuration long after the
    /// last one that it had heard of, forgot what was not done yet, and was read at once, while another one
    /// still had it to do.
    #[test]
    fn who_was_in_sync_and_is_was_so_in_what_it_missed() {
        let mut leases = Leases::new(at(0), Incarnation(1), Terms::default());
        leases.set_applied(Revision(3));
        let mut me = Membership::new(slot(1), Incarnation(1));
        me.learn(config());
        me.poll(at(2000), &leases).unwrap();
        let joined = config().remove(slot(2)).unwrap().admit(slot(2), Incarnation(1)).unwrap();
        me.learn(later(joined, 3));
        let activation = me.poll(at(2000), &leases).unwrap();
        assert!(activation.kept && activation.config.epoch == Epoch(3), "{activation:?}");
    }

    #[test]
    fn who_joined_may_have_been_out_in_what_it_missed() {
        let mut leases = Leases::new(at(0), Incarnation(1), Terms::default());
        leases.set_applied(Revision(2));
        let mut me = Membership::new(slot(2), Incarnation(1));
        let joins = config().remove(slot(2)).unwrap().admit(slot(2), Incarnation(1)).unwrap();
        me.learn(later(joins.clone(), 2));
        me.poll(at(2000), &leases).unwrap();
        let again = joins.remove(slot(2)).unwrap().admit(slot(2), Incarnation(1)).unwrap();
        leases.set_applied(Revision(4));
        me.learn(later(again.clone(), 4));
        assert!(!me.poll(at(2000), &leases).unwrap().kept);
        let in_sync = again.promote(slot(2)).unwrap();
        me.learn(later(in_sync.clone(), 5));
        assert!(me.poll(at(2000), &leases).unwrap().kept, "nothing is missing any more");
        // What is in sync as another life of its node was taken out in between.
        let mut other = Membership::new(slot(2), Incarnation(2));
        other.learn(later(in_sync.clone(), 5));
        other.poll(at(2000), &leases).unwrap();
        let back = in_sync.remove(slot(2)).unwrap().admit(slot(2), Incarnation(2)).unwrap();
        other.learn(later(back.promote(slot(2)).unwrap(), 8));
        leases.set_applied(Revision(8));
        assert!(!other.poll(at(2000), &leases).unwrap().kept);
    }

    #[test]
    fn who_was_out_in_between_knows_nothing_any_more() {
        let mut leases = Leases::new(at(0), Incarnation(1), Terms::default());
        leases.set_applied(Revision(3));
        let mut me = Membership::new(slot(1), Incarnation(1));
        me.learn(config());
        me.poll(at(2000), &leases).unwrap();
        let out = later(config().remove(slot(1)).unwrap(), 2);
        me.learn(out.clone());
        me.learn(later(out.admit(slot(1), Incarnation(1)).unwrap(), 3));
        assert!(!me.poll(at(2000), &leases).unwrap().kept);
    }
}
