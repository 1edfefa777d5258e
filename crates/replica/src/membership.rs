//! When a node may act in a volume's newest configuration (R10 to R12, R14).
//!
//! Configurations arrive in order. Some may be missing, if the node was out of touch for so long that the
//! record no longer has them. Then this process may have been outside in between, unless it is in sync before
//! and after: no copy is promoted again without having said, in an epoch in which it joins, that it has
//! everything.
//!
//! A configuration that removes a copy takes effect only when that copy can no longer answer reads: when the
//! leases that it got before have expired, or it has itself said that it knows. A configuration in which this
//! process is outside takes effect at once; the copies that it removes are remembered until this process is a
//! member again.

use std::collections::BTreeMap;

use base::Instant;

use crate::lease::Leases;
use crate::{Config, Epoch, Incarnation, NodeId, Revision, Slot, Standing};

/// The revision of a configuration that is in no record: later than all recorded ones.
pub const BEYOND_RECORD: Revision = Revision(u64::MAX);

/// One node's view of one volume's configurations.
#[derive(Debug)]
pub struct Membership {
    slot: Slot,
    incarnation: Incarnation,
    /// From the one in which the node acts to the newest that it knows.
    configs: Vec<Config>,
    /// Whether the node acts in the first of them; if not, it acts in none yet.
    active: bool,
    /// Whether a configuration between them is unknown.
    gap: bool,
    /// The copies that were removed from the in-sync set since this process was last a member, by node: they
    /// may hold leases of this node.
    removed: BTreeMap<NodeId, Removed>,
    /// A configuration between known ones was missed: any node that got a lease at an earlier revision than
    /// this one may have been removed there.
    missed_before: Option<Revision>,
}

/// The last removal of a node's copy.
#[derive(Clone, Copy, Debug)]
struct Removed {
    slot: Slot,
    life: Incarnation,
    /// Leases that the node got at an earlier revision are binding.
    revision: Revision,
}

/// A configuration to act in from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activation {
    /// The configuration.
    pub config: Config,
    /// Whether this process has been a member all the time since its last configuration, so that what it
    /// knows still holds.
    pub kept: bool,
}

impl Membership {
    /// The view of a process that has the slot's copy and has just started.
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

    /// Takes the next configuration of the volume. A known one changes nothing.
    pub fn learn(&mut self, config: Config) {
        match self.configs.last() {
            Some(newest) if config.epoch <= newest.epoch => {}
            Some(newest) => {
                if config.epoch.0 != newest.epoch.0 + 1 {
                    self.gap = true;
                    // The configuration of a node that continued alone is in no record, and nothing lies
                    // between the two: what was missed before stays missed.
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
                // A node that continues by the record after all waits only for promises up to that revision:
                // none is made against what is known.
                self.removed
                    .values_mut()
                    .for_each(|removed| removed.revision = removed.revision.min(config.revision));
                self.configs.push(config);
            }
            None => {
                // A copy that was dropped and added again in one life does not know what went before.
                let is_first = config.epoch == Epoch::FIRST || config.revision == BEYOND_RECORD;
                self.missed_before = (!is_first).then_some(config.revision);
                self.configs.push(config);
            }
        }
    }

    /// This process has forgotten what it knew of the volume's blocks: it acts in no configuration, and
    /// continues like one that has just started.
    ///
    /// The leases that it granted under configurations before the newest still count.
    pub fn forget(&mut self) {
        self.active = false;
    }

    /// The newest configuration that the node knows.
    pub fn newest(&self) -> Option<&Config> {
        self.configs.last()
    }

    /// The configuration in which the node acts.
    pub fn active(&self) -> Option<&Config> {
        self.configs.first().filter(|_| self.active)
    }

    /// When the newest configuration takes effect; `None` if it already has.
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

    /// The newest configuration, once it takes effect.
    pub fn poll(&mut self, now: Instant, leases: &Leases) -> Option<Activation> {
        if now < self.due(leases)? {
            return None;
        }
        let me = |config: &Config| config.standing(self.slot, self.incarnation);
        let newest = self.configs.last().expect("something is due");
        let before = &self.configs[..self.configs.len() - 1];
        let in_sync = |config: &Config| matches!(me(config), Standing::InSync(_));
        // A removed copy is promoted only after it has said, acting in an epoch in which it joins, that it
        // has everything. A copy that has not heard of such an epoch has not said so.
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
    fn a_restarted_node_still_waits_for_leases_of_removed_members() {
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

    /// Lives are counted per node: another node's copy in the same slot may be in the life with the same
    /// number.
    #[test]
    fn a_member_whose_slot_was_reassigned_is_waited_for() {
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

    /// Found by the simulator: a restarted node, which had not heard of a removal yet, granted the removed
    /// node a lease. It made itself a member by what it heard in between, while it was outside, and acted
    /// while the other node could still answer reads.
    #[test]
    fn members_removed_while_this_process_was_out_are_waited_for() {
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
    fn members_removed_in_missed_configurations_are_waited_for() {
        let mut leases = Leases::new(at(0), Incarnation(2), Terms::default());
        leases.set_applied(Revision(1));
        let mut me = Membership::new(slot(0), Incarnation(2));
        let pair = config().remove(slot(2)).unwrap();
        me.learn(later(pair.clone(), 1));
        assert!(me.poll(at(0), &leases).is_some(), "outside: it names its last life");
        // In between the third copy was resynced, and removed.
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
    fn continuing_alone_does_not_forget_missed_configurations() {
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
    fn leases_granted_before_the_copy_was_readded_stay_valid() {
        let mut leases = Leases::new(at(0), Incarnation(1), Terms::default());
        leases.set_applied(Revision(1));
        let third = Leases::new(at(0), Incarnation(1), Terms::default());
        leases.handle_request(at(4000), NodeId(3), third.request(at(4000)));
        // Since then this node's copy was dropped, the third one removed, and this node's copy added again.
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

    /// The record lets a node in again that continued alone in a configuration of no record.
    #[test]
    fn a_member_removed_outside_the_record_is_waited_for_up_to_the_records_end() {
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
    fn a_member_that_is_removed_stops_at_once() {
        let leases = Leases::new(at(0), Incarnation(1), Terms::default());
        let mut me = Membership::new(slot(1), Incarnation(1));
        me.learn(later(config().remove(slot(1)).unwrap(), 2));
        let activation = me.poll(at(0), &leases).unwrap();
        assert!(!activation.kept);
    }

    /// Found by the simulator: a copy that was in sync all the time learned of a configuration long after the
    /// last one it knew. It forgot what was not done yet, and was read at once, while another copy still had
    /// to do it.
    #[test]
    fn a_member_in_sync_before_and_after_was_so_in_between() {
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
    fn a_joiner_may_have_been_out_in_between() {
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
        // A copy that is in sync as another life of its node was removed in between.
        let mut other = Membership::new(slot(2), Incarnation(2));
        other.learn(later(in_sync.clone(), 5));
        other.poll(at(2000), &leases).unwrap();
        let back = in_sync.remove(slot(2)).unwrap().admit(slot(2), Incarnation(2)).unwrap();
        other.learn(later(back.promote(slot(2)).unwrap(), 8));
        leases.set_applied(Revision(8));
        assert!(!other.poll(at(2000), &leases).unwrap().kept);
    }

    #[test]
    fn a_member_that_was_out_in_between_keeps_nothing() {
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
