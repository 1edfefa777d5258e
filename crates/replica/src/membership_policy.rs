//! Which change of a volume's configuration a node proposes, and why (R13, R16, R20).
//!
//! Every node with a copy has a membership policy; none is special. Proposals are committed by
//! compare-and-swap against the newest configuration, so of two proposals one wins and the other is
//! reconsidered. Nothing here is needed for safety: a wrong proposal costs a resync, never data.

use std::time::Duration;

use base::Instant;

use crate::lease::Leases;
use crate::{Config, DiskFault, Incarnation, Membership, Slot, Slots, Standing};

/// After this long without a heartbeat a member is proposed for removal.
///
/// This is four heartbeats, and shorter than a lease: the record is changed while the lease expires.
pub const SILENCE_MAX: Duration = Duration::from_millis(400);

/// How long a copy that was removed for owing acknowledgements is not let in again, in units of
/// [`SILENCE_MAX`]: half a minute.
///
/// So a disk that hangs again and again stalls hosts for two seconds of each half minute, not of each three
/// seconds.
const PENALTY_SILENCES: u32 = 75;

/// What the copies on this node know of the others, for all slices together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Copies outside that miss little in every slice ([`crate::Replica::caught_up`]).
    pub caught_up: Slots,
    /// Joiners that have everything in every slice ([`crate::Replica::promotable`]).
    pub promotable: Slots,
    /// Members that have owed acknowledgements for too long.
    pub overdue: Slots,
    /// Joiners for which this copy, the only one in sync, cannot read everything
    /// ([`crate::Replica::starved`]).
    pub starved: Slots,
    /// Members that have said that they leave: the node is being stopped, or the copy removed from it.
    pub leaving: Slots,
    /// Copies outside that would keep writes waiting as joiners: a member and the copy do not reach each
    /// other, or its process acts in nothing yet, because it has just started (R12).
    pub unready: Slots,
    /// A disk of this copy failed: the copy finishes no more writes.
    pub failed: Option<DiskFault>,
    /// This copy has no room for writes: the file system under its pool is full.
    pub no_room: bool,
}

/// A change to be committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The configuration that follows the newest.
    pub config: Config,
    /// The copy that the change concerns.
    pub slot: Slot,
    /// Why it is proposed.
    pub reason: Reason,
}

/// Why a change is proposed; it is logged, counted and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The member's process was restarted, and its present life is not a member.
    Restarted,
    /// The member's process is known to be dead.
    Died,
    /// The heartbeat of the member timed out ([`SILENCE_MAX`]).
    Silent,
    /// The member has owed acknowledgements for too long.
    Overdue,
    /// The only copy in sync cannot read what the joiner misses.
    Unreadable,
    /// The member said that it leaves.
    Leaves,
    /// The member reports that a disk of it failed.
    DiskFailed,
    /// The member reports that its disk cannot read a block, and that rewriting the block did not help.
    Unrepaired,
    /// The member reports that its disk fails reads in too many places.
    DiskFailing,
    /// The member reports that its disk does not answer.
    DiskSilent,
    /// The member reports that the file system under its pool is full.
    NoSpace,
    /// A disk of the only copy in sync failed: it cannot resync the joiner.
    SourceFailed,
    /// The joiner has all that it missed.
    Complete,
    /// The copy misses so little that it may join.
    CaughtUp,
    /// All in-sync copies were lost, and this one is back: it has every acknowledged write.
    Alone,
}

impl Reason {
    fn of_disk(fault: Option<DiskFault>) -> Reason {
        match fault {
            Some(DiskFault::Unrepaired) => Reason::Unrepaired,
            Some(DiskFault::Failing) => Reason::DiskFailing,
            Some(DiskFault::Silent) => Reason::DiskSilent,
            Some(DiskFault::Write) | None => Reason::DiskFailed,
        }
    }
}

/// Decides what one copy's node proposes; see the module.
#[derive(Debug)]
pub struct MembershipPolicy {
    me: Slot,
    incarnation: Incarnation,
    silence_max: Duration,
    /// When this life began: silence before that does not count.
    began: Instant,
    heard: [Option<Heard>; Slot::MAX],
    /// When this node learned which life of each copy is the member: silence before that does not count.
    named: [Option<Heard>; Slot::MAX],
    /// The latest life of each copy that is known to be over.
    died: [Option<Incarnation>; Slot::MAX],
    /// When each member last owed acknowledgements for too long, to this node or, according to the record, to
    /// another one.
    accused: [Option<Instant>; Slot::MAX],
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    incarnation: Incarnation,
    at: Instant,
}

impl MembershipPolicy {
    /// The membership policy of the copy in slot `me`.
    ///
    /// It gives up a member after `silence_max` ([`SILENCE_MAX`]) without a heartbeat.
    pub fn new(now: Instant, me: Slot, incarnation: Incarnation, silence_max: Duration) -> MembershipPolicy {
        MembershipPolicy {
            me,
            incarnation,
            silence_max,
            began: now,
            heard: [None; Slot::MAX],
            named: [None; Slot::MAX],
            died: [None; Slot::MAX],
            accused: [None; Slot::MAX],
        }
    }

    /// The copy in the slot has sent a heartbeat.
    pub fn handle_heartbeat(&mut self, now: Instant, from: Slot, incarnation: Incarnation) {
        let heard = &mut self.heard[from.index()];
        if heard.is_none_or(|heard| heard.incarnation <= incarnation) {
            *heard = Some(Heard { incarnation, at: now });
        }
    }

    /// The slot now belongs to another node's copy: forgets everything about the last one.
    pub fn forget(&mut self, slot: Slot) {
        (self.heard[slot.index()], self.named[slot.index()]) = (None, None);
        (self.died[slot.index()], self.accused[slot.index()]) = (None, None);
    }

    /// The record says that the copy was removed for owing acknowledgements, no matter who found that.
    ///
    /// Hosts may use only other nodes: then this node would see no sign of it, and let the copy in again at
    /// once.
    pub fn handle_overdue(&mut self, now: Instant, slot: Slot) {
        self.accused[slot.index()] = Some(now);
    }

    /// The process of the copy in the slot is known to be dead in this life and all earlier ones.
    pub fn handle_death(&mut self, of: Slot, incarnation: Incarnation) {
        let died = &mut self.died[of.index()];
        *died = (*died).max(Some(incarnation));
    }

    /// What to propose now.
    ///
    /// There is at most one proposal; the next one follows when this one was committed or lost.
    pub fn propose(
        &mut self,
        now: Instant,
        membership: &Membership,
        leases: &Leases,
        view: View,
    ) -> Option<Proposal> {
        let newest = membership.newest()?;
        self.note_members(now, newest);
        view.overdue.iter().for_each(|slot| self.handle_overdue(now, slot));
        match newest.standing(self.me, self.incarnation) {
            Standing::InSync(_) | Standing::Joining(_) if view.failed.is_some() => {
                self.step_back(newest, view.failed)
            }
            Standing::InSync(_) | Standing::Joining(_) if view.no_room && self.may_leave(newest) => {
                Some(Proposal {
                    config: newest.remove(self.me).ok()?,
                    slot: self.me,
                    reason: Reason::NoSpace,
                })
            }
            Standing::InSync(_) if membership.active() == Some(newest) => self
                .remove(now, newest, view)
                .or_else(|| promote(newest, view))
                .or_else(|| self.admit(now, newest, view)),
            Standing::InSync(_) | Standing::Joining(_) => None,
            Standing::Outside => self.recover(now, newest, leases),
        }
    }

    /// A disk of this copy failed: the others continue without it. If no other copy is in sync, no joiner
    /// must wait for it.
    fn step_back(&self, newest: &Config, fault: Option<DiskFault>) -> Option<Proposal> {
        let out =
            |slot: Slot, reason: Reason| Some(Proposal { config: newest.remove(slot).ok()?, slot, reason });
        out(self.me, Reason::of_disk(fault))
            .or_else(|| newest.joining().iter().find_map(|slot| out(slot, Reason::SourceFailed)))
    }

    /// Whether another copy in sync can continue without this one. If not, a copy that has no room stays, and
    /// continues with what needs none.
    fn may_leave(&self, newest: &Config) -> bool {
        !newest.in_sync().without(self.me).is_empty()
    }

    fn note_members(&mut self, now: Instant, newest: &Config) {
        for slot in Slot::all() {
            let life = match newest.copy(slot).map(|copy| copy.standing) {
                Some(Standing::InSync(life) | Standing::Joining(life)) => life,
                Some(Standing::Outside) | None => continue,
            };
            let named = &mut self.named[slot.index()];
            if named.is_none_or(|named| named.incarnation != life) {
                *named = Some(Heard { incarnation: life, at: now });
            }
        }
    }

    fn remove(&self, now: Instant, newest: &Config, view: View) -> Option<Proposal> {
        newest.members().without(self.me).iter().find_map(|slot| {
            let reason = self.fault(now, slot, view)?;
            Some(Proposal { config: newest.remove(slot).ok()?, slot, reason })
        })
    }

    fn fault(&self, now: Instant, slot: Slot, view: View) -> Option<Reason> {
        if view.leaving.contains(slot) {
            return Some(Reason::Leaves);
        }
        // Another node may have heard of a new life before this one, and let it in.
        let named = self.named[slot.index()].map(|named| named.incarnation);
        if self.heard[slot.index()].is_some_and(|heard| Some(heard.incarnation) > named) {
            return Some(Reason::Restarted);
        }
        if named.is_some_and(|life| self.is_dead(slot, life)) {
            return Some(Reason::Died);
        }
        if self.silence(now, slot) > self.silence_max {
            return Some(Reason::Silent);
        }
        if view.starved.contains(slot) {
            return Some(Reason::Unreadable);
        }
        view.overdue.contains(slot).then_some(Reason::Overdue)
    }

    fn is_dead(&self, slot: Slot, life: Incarnation) -> bool {
        self.died[slot.index()].is_some_and(|died| died >= life)
    }

    fn silence(&self, now: Instant, slot: Slot) -> Duration {
        let named = self.named[slot.index()];
        let heard = self.heard[slot.index()];
        // Heartbeats of an earlier life do not count; neither does its silence.
        let heard = heard.filter(|heard| named.is_none_or(|named| named.incarnation == heard.incarnation));
        let since = [heard, named].into_iter().flatten().map(|heard| heard.at).max();
        now.since(since.unwrap_or(self.began).max(self.began))
    }

    /// Whether each other member was heard within [`SILENCE_MAX`], in the life that the configuration names.
    ///
    /// Then nothing is to be proposed about it until another life of it is heard, it dies, or it is silent
    /// for longer. The configuration is the one of the last [`MembershipPolicy::propose`].
    pub fn hears_all(&self, now: Instant, config: &Config) -> bool {
        config.members().without(self.me).iter().all(|slot| {
            let named = self.named[slot.index()].map(|named| named.incarnation);
            let heard = self.heard[slot.index()].filter(|heard| now.since(heard.at) <= self.silence_max);
            let heard = heard.map(|heard| heard.incarnation);
            heard.is_some_and(|life| named == Some(life) && !self.is_dead(slot, life))
        })
    }

    /// Lets in one joiner at a time: each delays writes for a moment.
    fn admit(&self, now: Instant, newest: &Config, view: View) -> Option<Proposal> {
        if !newest.joining().is_empty() {
            return None;
        }
        let outside = newest.configured().minus(newest.members()).and(view.caught_up);
        let outside = outside.minus(view.leaving).minus(view.unready);
        outside.iter().find_map(|slot| {
            let heard = self.heard[slot.index()].filter(|heard| now.since(heard.at) <= self.silence_max)?;
            if self.is_dead(slot, heard.incarnation) {
                return None;
            }
            if self.penalty_left(now, slot).is_some() {
                return None;
            }
            let config = newest.admit(slot, heard.incarnation).ok()?;
            Some(Proposal { config, slot, reason: Reason::CaughtUp })
        })
    }

    /// How much longer the copy is not let in because it owed acknowledgements for too long.
    pub fn penalty_left(&self, now: Instant, slot: Slot) -> Option<Duration> {
        let until = self.accused[slot.index()]? + self.silence_max * PENALTY_SILENCES;
        (now < until).then(|| until.since(now))
    }

    /// Continues alone if this copy was in sync when it was lost, and no copy in sync is alive.
    fn recover(&self, now: Instant, newest: &Config, leases: &Leases) -> Option<Proposal> {
        let alive = newest.in_sync().without(self.me).iter().any(|slot| {
            self.heard[slot.index()].is_some_and(|heard| {
                newest.has_member(slot, heard.incarnation)
                    && now.since(heard.at) <= self.silence_max
                    && !self.is_dead(slot, heard.incarnation)
            })
        });
        // This node's record is behind, and may be wrong about other copies.
        let behind = newest.configured().without(self.me).iter().any(|slot| {
            let is_heard =
                self.heard[slot.index()].is_some_and(|heard| now.since(heard.at) <= self.silence_max);
            is_heard && newest.copy(slot).is_some_and(|copy| leases.applied_by(copy.node) > leases.applied())
        });
        if alive || behind || now < leases.quiet_until() || now.since(self.began) <= self.silence_max {
            return None;
        }
        let config = newest.recover(self.me, self.incarnation).ok()?;
        Some(Proposal { config, slot: self.me, reason: Reason::Alone })
    }
}

fn promote(newest: &Config, view: View) -> Option<Proposal> {
    let slot = view.promotable.and(newest.joining()).iter().next()?;
    Some(Proposal { config: newest.promote(slot).ok()?, slot, reason: Reason::Complete })
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

    struct Case {
        membership_policy: MembershipPolicy,
        membership: Membership,
        leases: Leases,
        view: View,
    }

    impl Case {
        /// Copy 0 of two in sync, in this life.
        fn new(incarnation: u64) -> Case {
            let life = Incarnation(incarnation);
            let mut leases = Leases::new(at(0), life, Terms::default());
            leases.set_applied(Revision(1));
            let mut membership = Membership::new(slot(0), life);
            membership.learn(Config::initial(
                &[(NodeId(1), Incarnation(1)), (NodeId(2), Incarnation(1))],
                Revision(1),
            ));
            membership.poll(at(2000), &leases);
            let mut membership_policy = MembershipPolicy::new(at(0), slot(0), life, SILENCE_MAX);
            membership_policy.handle_heartbeat(at(2000), slot(1), Incarnation(1));
            let mut case = Case { membership_policy, membership, leases, view: View::default() };
            // From now on it knows which life of each member to expect.
            case.proposes(2000);
            case
        }

        fn proposes(&mut self, ms: u64) -> Option<(Slot, Reason)> {
            let proposal =
                self.membership_policy.propose(at(ms), &self.membership, &self.leases, self.view)?;
            Some((proposal.slot, proposal.reason))
        }

        fn goes_on(&mut self, ms: u64) {
            let proposal =
                self.membership_policy.propose(at(ms), &self.membership, &self.leases, self.view).unwrap();
            let revision = Revision(proposal.config.epoch.0);
            self.leases.set_applied(revision);
            self.membership.learn(proposal.config.committed_at(revision));
            self.membership.poll(at(ms), &self.leases).unwrap();
        }
    }

    #[test]
    fn a_member_is_removed_when_it_is_silent_restarted_or_leaves() {
        let mut case = Case::new(1);
        assert_eq!(case.proposes(2400), None);
        assert_eq!(case.proposes(2401), Some((slot(1), Reason::Silent)));
        case.view.leaving = Slots::NONE.with(slot(1));
        assert_eq!(case.proposes(2001), Some((slot(1), Reason::Leaves)));
        case.view.leaving = Slots::NONE;
        case.membership_policy.handle_heartbeat(at(2050), slot(1), Incarnation(2));
        assert_eq!(case.proposes(2051), Some((slot(1), Reason::Restarted)));
    }

    #[test]
    fn a_member_is_at_rest_as_long_as_its_life_is_heard() {
        let mut case = Case::new(1);
        let hears_all = |case: &Case, ms: u64| {
            case.membership_policy.hears_all(at(ms), case.membership.active().unwrap())
        };
        assert!(hears_all(&case, 2400) && case.proposes(2400).is_none());
        assert!(!hears_all(&case, 2401), "there is something to propose from then on");
        case.membership_policy.handle_heartbeat(at(2401), slot(1), Incarnation(1));
        assert!(hears_all(&case, 2402));
        case.membership_policy.handle_death(slot(1), Incarnation(1));
        assert!(!hears_all(&case, 2402));
        let mut case = Case::new(1);
        case.membership_policy.handle_heartbeat(at(2050), slot(1), Incarnation(2));
        assert!(!hears_all(&case, 2051), "another life");
    }

    #[test]
    fn a_copy_without_room_leaves_unless_it_is_the_last_in_sync() {
        let mut case = Case::new(1);
        case.view.no_room = true;
        assert_eq!(case.proposes(2001), Some((slot(0), Reason::NoSpace)));
        // The other copy was lost before: alone, this one continues with reads, and with writes that need no
        // space.
        case.view.no_room = false;
        assert_eq!(case.proposes(2401), Some((slot(1), Reason::Silent)));
        case.goes_on(2401);
        case.view.no_room = true;
        assert_eq!(case.proposes(2402), None);
        // It may still resync another copy, which may have room.
        case.membership_policy.handle_heartbeat(at(2403), slot(1), Incarnation(2));
        case.view.caught_up = Slots::NONE.with(slot(1));
        assert_eq!(case.proposes(2404), Some((slot(1), Reason::CaughtUp)));
    }

    #[test]
    fn a_copy_whose_disk_failed_leaves_and_the_last_one_drops_its_joiners() {
        let mut case = Case::new(1);
        case.view.failed = Some(DiskFault::Write);
        assert_eq!(case.proposes(2001), Some((slot(0), Reason::DiskFailed)));
        case.view.failed = None;
        case.view.leaving = Slots::NONE.with(slot(1));
        case.goes_on(2001);
        case.view = View { caught_up: Slots::NONE.with(slot(1)), ..View::default() };
        assert_eq!(case.proposes(2002), Some((slot(1), Reason::CaughtUp)));
        case.goes_on(2002);
        case.view.failed = Some(DiskFault::Write);
        assert_eq!(case.proposes(2003), Some((slot(1), Reason::SourceFailed)));
        case.goes_on(2003);
        assert_eq!(case.proposes(2004), None, "nobody waits for it");
    }

    #[test]
    fn a_member_that_is_known_to_be_dead_is_removed_at_once() {
        let mut case = Case::new(1);
        case.membership_policy.handle_heartbeat(at(2050), slot(1), Incarnation(1));
        assert_eq!(case.proposes(2051), None);
        case.membership_policy.handle_death(slot(1), Incarnation(1));
        assert_eq!(case.proposes(2052), Some((slot(1), Reason::Died)));
        case.goes_on(2052);
        case.view.caught_up = Slots::NONE.with(slot(1));
        assert_eq!(case.proposes(2053), None, "the dead do not join");
        case.membership_policy.handle_heartbeat(at(2054), slot(1), Incarnation(2));
        assert_eq!(case.proposes(2055), Some((slot(1), Reason::CaughtUp)), "its next life may");
        case.goes_on(2055);
        case.membership_policy.handle_death(slot(1), Incarnation(1));
        assert_eq!(case.proposes(2056), None, "old news");
    }

    #[test]
    fn a_copy_is_admitted_if_all_members_reach_it_and_not_soon_after_it_was_overdue() {
        let mut case = Case::new(1);
        case.view.overdue = Slots::NONE.with(slot(1));
        case.membership_policy.handle_heartbeat(at(2050), slot(1), Incarnation(1));
        assert_eq!(case.proposes(2051), Some((slot(1), Reason::Overdue)));
        case.goes_on(2051);
        case.view = View { caught_up: Slots::NONE.with(slot(1)), ..View::default() };
        let heard_then = |case: &mut Case, ms: u64| {
            case.membership_policy.handle_heartbeat(at(ms), slot(1), Incarnation(1));
            case.proposes(ms)
        };
        assert_eq!(heard_then(&mut case, 32_050), None);
        assert_eq!(case.membership_policy.penalty_left(at(32_050), slot(1)), Some(Duration::from_millis(1)));
        case.view.unready = case.view.caught_up;
        assert_eq!(heard_then(&mut case, 32_051), None, "a member would wait for it");
        case.view.unready = Slots::NONE;
        assert_eq!(heard_then(&mut case, 32_052), Some((slot(1), Reason::CaughtUp)));
        case.membership_policy.handle_overdue(at(32_052), slot(1));
        case.membership_policy.forget(slot(1));
        assert_eq!(case.membership_policy.penalty_left(at(32_053), slot(1)), None, "that was another node's");
    }

    #[test]
    fn the_death_of_one_node_is_not_that_of_the_next_in_its_slot() {
        let mut case = Case::new(1);
        case.membership_policy.handle_death(slot(1), Incarnation(1));
        case.membership_policy.forget(slot(1));
        case.membership_policy.handle_heartbeat(at(2050), slot(1), Incarnation(1));
        assert_eq!(case.proposes(2051), None);
    }

    #[test]
    fn no_copy_waits_for_the_dead_before_it_continues_alone() {
        let mut case = Case::new(2);
        case.membership_policy.handle_heartbeat(at(2390), slot(1), Incarnation(1));
        assert_eq!(case.proposes(2500), None);
        case.membership_policy.handle_death(slot(1), Incarnation(1));
        assert_eq!(case.proposes(2501), Some((slot(0), Reason::Alone)));
    }

    /// Found with real processes: two nodes removed a third and let it in again in turn, until the second one
    /// had heard of it, too.
    #[test]
    fn an_incarnation_that_only_others_know_is_no_reason_to_remove_it() {
        let mut case = Case::new(1);
        let config = case.membership.newest().unwrap().remove(slot(1)).unwrap();
        let config = config.admit(slot(1), Incarnation(2)).unwrap();
        case.leases.set_applied(Revision(3));
        case.membership.learn(config.committed_at(Revision(3)));
        case.membership.poll(at(2100), &case.leases).unwrap();
        assert_eq!(case.proposes(2100), None, "the last that was heard of it is its earlier life");
        assert_eq!(case.proposes(2500), None);
        assert_eq!(case.proposes(2501), Some((slot(1), Reason::Silent)), "it has had its time");
        case.membership_policy.handle_heartbeat(at(2502), slot(1), Incarnation(2));
        assert_eq!(case.proposes(2600), None);
    }

    #[test]
    fn a_slot_that_is_used_again_has_another_node_s_lives() {
        let mut case = Case::new(1);
        case.membership_policy.handle_heartbeat(at(2010), slot(1), Incarnation(7));
        case.goes_on(2011);
        let config = case.membership.newest().unwrap().drop_copy(slot(1)).unwrap();
        let config = config.add(slot(1), NodeId(3)).unwrap();
        case.leases.set_applied(Revision(4));
        case.membership.learn(config.committed_at(Revision(4)));
        case.membership.poll(at(2012), &case.leases).unwrap();
        case.membership_policy.forget(slot(1));
        case.membership_policy.handle_heartbeat(at(2013), slot(1), Incarnation(2));
        case.view.caught_up = Slots::NONE.with(slot(1));
        let proposal =
            case.membership_policy.propose(at(2014), &case.membership, &case.leases, case.view).unwrap();
        let joining = Standing::Joining(Incarnation(2));
        assert_eq!(proposal.config.copy(slot(1)).map(|copy| copy.standing), Some(joining));
    }

    #[test]
    fn a_copy_returns_by_joining() {
        let mut case = Case::new(1);
        case.membership_policy.handle_heartbeat(at(2050), slot(1), Incarnation(2));
        case.goes_on(2051);
        assert_eq!(case.proposes(2052), None, "it misses too much");
        case.view.caught_up = Slots::NONE.with(slot(1));
        assert_eq!(case.proposes(2052), Some((slot(1), Reason::CaughtUp)));
        assert_eq!(case.proposes(2600), None, "it is not there");
        case.goes_on(2053);
        assert_eq!(case.proposes(2054), None);
        case.view.promotable = Slots::NONE.with(slot(1));
        assert_eq!(case.proposes(2054), Some((slot(1), Reason::Complete)));
    }

    #[test]
    fn a_restarted_copy_continues_alone_only_if_no_copy_in_sync_is_alive() {
        let mut case = Case::new(2);
        assert_eq!(case.proposes(2300), None, "the other is alive and will remove this one's last life");
        assert_eq!(case.proposes(2401), Some((slot(0), Reason::Alone)));
        case.membership_policy.handle_heartbeat(at(2402), slot(1), Incarnation(2));
        assert_eq!(case.proposes(2403), Some((slot(0), Reason::Alone)), "the other was restarted, too");
    }

    #[test]
    fn no_copy_continues_alone_that_knows_of_a_newer_record() {
        let mut case = Case::new(2);
        case.membership_policy.handle_heartbeat(at(2402), slot(1), Incarnation(2));
        let request = |applied| crate::LeaseRequest { incarnation: Incarnation(2), sent_at: at(0), applied };
        case.leases.handle_request(at(2402), NodeId(2), request(Revision(9)));
        assert_eq!(case.proposes(2403), None, "in what it has not heard of the other may be the only one");
        case.leases.set_applied(Revision(9));
        assert_eq!(case.proposes(2404), Some((slot(0), Reason::Alone)));
    }

    #[test]
    fn the_last_copy_in_sync_removes_nobody_but_itself_never() {
        let mut case = Case::new(1);
        case.goes_on(2401);
        assert_eq!(case.proposes(5000), None);
    }
}
