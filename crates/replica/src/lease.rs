//! Leases between two nodes, for all volumes at once (R10 to R12).
//!
//! A lease is a promise of the one who gives it: "until my clock passes this, I will not act in any
//! configuration that removes you and that I did not know of when I promised." Whoever holds a lease of each
//! other member may answer reads alone: nobody can have gone on without it. A heartbeat is a request for a
//! lease.
//!
//! Clocks need not agree; they must run, also while a machine sleeps, and equally fast to within
//! [`Terms::drift_permille`]. The holder counts from when it *asked*, and less than was promised.

use std::collections::BTreeMap;
use std::time::Duration;

use base::Instant;

use crate::canary::{Canary, makes};
use crate::{Incarnation, NodeId, Revision};

/// How long a lease lasts unless told otherwise.
pub const LEASE_LENGTH: Duration = Duration::from_secs(1);

/// What is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long a lease lasts on the giver's clock. It is also the longest that a lost node makes others
    /// wait.
    pub length: Duration,
    /// By how many thousandths the clocks' rates may differ.
    pub drift_permille: u32,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { length: LEASE_LENGTH, drift_permille: 10 }
    }
}

impl Terms {
    fn drift(self) -> Duration {
        self.length * self.drift_permille / 1000
    }

    /// How long a process acts in nothing after its start: promises of the one before may stand (R12).
    pub fn quiet(self) -> Duration {
        self.length + self.drift()
    }
}

/// A request, which is a heartbeat, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The life of the one who asks.
    pub incarnation: Incarnation,
    /// When it asked, by its own clock; comes back in the answer.
    pub sent_at: Instant,
    /// The revision of the cluster's record that it acts by.
    pub applied: Revision,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseGrant {
    /// The life that was asked.
    pub incarnation: Incarnation,
    /// From the request.
    pub sent_at: Instant,
    /// The newest revision that the giver knew of: removals up to there are not promised against.
    pub revision: Revision,
}

/// The leases of one node with all others.
#[derive(Debug)]
pub struct Leases {
    terms: Terms,
    incarnation: Incarnation,
    applied: Revision,
    /// The newest revision that this node knows of; what it promises is not against removals up to there.
    known: Revision,
    /// Until then an earlier life's promises may stand.
    quiet_until: Instant,
    given: BTreeMap<NodeId, Given>,
    /// By giver, oldest first; none of them says less than another.
    held: BTreeMap<NodeId, Vec<Held>>,
    /// What was asked for up to then counts for nothing.
    void_until: Instant,
}

/// How many promises of one giver are remembered: a new one is worth less than the last as long as its
/// revision is not known here.
const HELD_MAX: usize = 8;

#[derive(Debug)]
struct Given {
    incarnation: Incarnation,
    /// This life is known to be over: what still comes of it was sent before.
    dead: bool,
    /// The greatest revision that it said it acts by.
    applied: Revision,
    /// Until when, by the revision they were given at. Both grow; what has run out is dropped.
    until: Vec<(Revision, Instant)>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    until: Instant,
    revision: Revision,
}

impl Leases {
    /// A node that has just started its life: promises of the one before may stand for the whole length
    /// (R12).
    pub fn new(now: Instant, incarnation: Incarnation, terms: Terms) -> Leases {
        let quiet_until = if makes(Canary::NoBootWait) { now } else { now + terms.quiet() };
        Leases {
            terms,
            incarnation,
            applied: Revision(0),
            known: Revision(0),
            quiet_until,
            given: BTreeMap::new(),
            held: BTreeMap::new(),
            void_until: Instant(0),
        }
    }

    /// This node is about to act by this revision. From here on nothing is promised against it, though cores
    /// may need a while: what is decided by the leases that are out when it is looked at must not be
    /// overtaken by another one.
    pub fn set_known(&mut self, revision: Revision) {
        self.known = self.known.max(revision);
    }

    /// Every volume on every core now acts by this revision of the cluster's record, or knows that it may not
    /// act.
    pub fn set_applied(&mut self, revision: Revision) {
        self.applied = self.applied.max(revision);
        self.set_known(revision);
    }

    /// The revision that this node acts by.
    pub fn applied(&self) -> Revision {
        self.applied
    }

    /// Asks.
    pub fn request(&self, now: Instant) -> LeaseRequest {
        // A clock that stopped shows what it showed then: a nanosecond tells what was asked for before from
        // what is asked for now.
        let sent_at = now.max(self.void_until + Duration::from_nanos(1));
        LeaseRequest { incarnation: self.incarnation, sent_at, applied: self.applied }
    }

    /// Gives, once this life has read the record: until then it does not know what an earlier life has acted
    /// by, and so not what it could promise.
    pub fn handle_request(
        &mut self,
        now: Instant,
        from: NodeId,
        request: LeaseRequest,
    ) -> Option<LeaseGrant> {
        if self.applied == Revision(0) && !makes(Canary::GrantBlind) {
            return None;
        }
        let anew = || Given {
            incarnation: request.incarnation,
            dead: false,
            applied: request.applied,
            until: Vec::new(),
        };
        let given = self.given.entry(from).or_insert_with(anew);
        if request.incarnation < given.incarnation || (request.incarnation == given.incarnation && given.dead)
        {
            return None; // A dead process's last words.
        }
        if request.incarnation > given.incarnation {
            // It restarted, and with it went what it held.
            *given = anew();
        }
        given.applied = given.applied.max(request.applied);
        given.until.retain(|(_, until)| *until > now);
        let until = now + self.terms.length;
        match given.until.last_mut() {
            Some((revision, last)) if *revision == self.known => *last = (*last).max(until),
            _ => given.until.push((self.known, until)),
        }
        Some(LeaseGrant { incarnation: self.incarnation, sent_at: request.sent_at, revision: self.known })
    }

    /// This node's clock may have stopped until now, though time went on: leases that were asked for until
    /// then may have run out for their givers.
    pub fn handle_clock_stop(&mut self, now: Instant) {
        self.held.clear();
        self.void_until = now;
    }

    /// Holds.
    pub fn handle_grant(&mut self, from: NodeId, grant: LeaseGrant) {
        if grant.sent_at <= self.void_until {
            return;
        }
        let held = Held {
            until: grant.sent_at + (self.terms.length - self.terms.drift()),
            revision: grant.revision,
        };
        let all = self.held.entry(from).or_default();
        all.retain(|other| other.until > held.until || other.revision < held.revision);
        if all.len() == HELD_MAX {
            all.remove(0);
        }
        all.push(held);
    }

    /// Whether this node holds the other's lease, at what it has applied itself (R9, R10).
    pub fn holds(&self, now: Instant, from: NodeId) -> bool {
        self.held
            .get(&from)
            .into_iter()
            .flatten()
            .any(|held| now < held.until && (held.revision <= self.applied || makes(Canary::NoRevision)))
    }

    /// The other is proven dead in this and all earlier lives: nothing that it was promised binds any more
    /// (R11), and nothing more is promised.
    pub fn handle_death(&mut self, of: NodeId, incarnation: Incarnation) {
        let dead = || Given { incarnation, dead: true, applied: Revision(0), until: Vec::new() };
        let given = self.given.entry(of).or_insert_with(dead);
        if given.incarnation <= incarnation {
            *given = Given { applied: given.applied, ..dead() };
        }
    }

    /// When this node may act in a configuration of `revision` that removes the other: at once (in the past)
    /// if it gave it no lease before (R11), and not before promises of an earlier life have run out (R12).
    pub fn released_at(&self, removed: NodeId, revision: Revision) -> Instant {
        if makes(Canary::NoWait) {
            return Instant(0);
        }
        // Who has applied its own removal answers no reads any more, whatever it was promised.
        let Some(given) = self.given.get(&removed).filter(|given| given.applied < revision) else {
            return self.quiet_until;
        };
        let before = given.until.iter().filter(|(at, _)| *at < revision).map(|(_, until)| *until);
        before.max().unwrap_or(Instant(0)).max(self.quiet_until)
    }

    /// [`Leases::released_at`] for whoever was given a lease.
    pub fn all_released_at(&self, revision: Revision) -> Instant {
        let released = self.given.keys().map(|node| self.released_at(*node, revision));
        released.fold(self.quiet_until, Instant::max)
    }

    /// The revision that another node acts by, as it has said last; 0 if it has said nothing.
    pub fn applied_by(&self, node: NodeId) -> Revision {
        self.given.get(&node).map_or(Revision(0), |given| given.applied)
    }

    /// What is promised.
    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// Until when an earlier life's promises may stand.
    pub fn quiet_until(&self) -> Instant {
        self.quiet_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn leases() -> Leases {
        let mut leases = Leases::new(at(0), Incarnation(1), Terms::default());
        leases.set_applied(Revision(5));
        leases
    }

    #[test]
    fn a_lease_ends_for_its_holder_before_it_ends_for_its_giver() {
        let (mut a, mut b) = (leases(), leases());
        let grant = b.handle_request(at(5010), A, a.request(at(5000))).unwrap();
        a.handle_grant(B, grant);
        assert!(a.holds(at(5989), B) && !a.holds(at(5990), B), "from when it asked, less one hundredth");
        assert_eq!(b.released_at(A, Revision(6)), at(6010));
        assert_eq!(
            b.released_at(A, Revision(5)),
            at(1010),
            "given when the removal was known: only the start counts"
        );
    }

    #[test]
    fn what_was_asked_for_before_the_clock_stopped_counts_for_nothing() {
        let (mut a, mut b) = (leases(), leases());
        let late = b.handle_request(at(5000), A, a.request(at(5000))).unwrap();
        a.handle_grant(B, late);
        assert!(a.holds(at(5001), B));
        let last = b.handle_request(at(5001), A, a.request(at(5001))).unwrap();
        a.handle_clock_stop(at(5001));
        assert!(!a.holds(at(5001), B));
        a.handle_grant(B, late);
        a.handle_grant(B, last);
        assert!(!a.holds(at(5001), B), "the answers were on their way");
        let anew = b.handle_request(at(9000), A, a.request(at(5001))).unwrap();
        a.handle_grant(B, anew);
        assert!(a.holds(at(5990), B));
    }

    #[test]
    fn a_lease_counts_once_its_revision_is_applied() {
        let (mut a, mut b) = (leases(), leases());
        b.set_applied(Revision(6));
        let grant = b.handle_request(at(5000), A, a.request(at(5000))).unwrap();
        a.handle_grant(B, grant);
        assert!(!a.holds(at(5001), B));
        a.set_applied(Revision(6));
        assert!(a.holds(at(5001), B));
    }

    /// Between the look at the leases that are out and the word that all cores act by a removal lies a while.
    #[test]
    fn nothing_is_promised_against_what_is_known() {
        let (mut a, mut b) = (leases(), leases());
        b.set_known(Revision(6));
        assert_eq!(b.released_at(A, Revision(6)), at(1010), "it goes on without a");
        let grant = b.handle_request(at(5000), A, a.request(at(5000))).unwrap();
        a.handle_grant(B, grant);
        assert!(!a.holds(at(5001), B), "it has to know, too");
        assert_eq!((b.released_at(A, Revision(6)), b.applied()), (at(1010), Revision(5)));
        assert_eq!(b.released_at(A, Revision(7)), at(6000));
    }

    #[test]
    fn who_has_applied_its_removal_is_not_waited_for() {
        let (mut a, mut b) = (leases(), leases());
        b.handle_request(at(5000), A, a.request(at(5000)));
        b.set_applied(Revision(6));
        a.set_applied(Revision(6));
        b.handle_request(at(5100), A, a.request(at(5100)));
        assert_eq!(b.released_at(A, Revision(6)), at(1010));
    }

    /// Found by the simulator: the holder had applied a later change than the promise, but not its removal.
    #[test]
    fn a_promise_from_before_another_change_still_binds() {
        let (mut a, mut b) = (leases(), leases());
        b.handle_request(at(5000), A, a.request(at(5000)));
        a.set_applied(Revision(6));
        b.set_applied(Revision(7));
        b.handle_request(at(5100), A, a.request(at(5100)));
        assert_eq!(b.released_at(A, Revision(7)), at(6000));
    }

    #[test]
    fn a_dead_process_is_not_waited_for_and_gets_nothing() {
        let (a, mut b) = (leases(), leases());
        b.handle_request(at(5000), A, a.request(at(5000)));
        b.handle_death(A, Incarnation(1));
        assert_eq!(b.released_at(A, Revision(6)), at(1010));
        // Sent before it died, and late.
        assert_eq!(b.handle_request(at(5010), A, a.request(at(5001))), None);
        assert_eq!(b.released_at(A, Revision(6)), at(1010));
        let reborn = Leases::new(at(5500), Incarnation(2), Terms::default());
        assert!(b.handle_request(at(5500), A, reborn.request(at(5500))).is_some());
        assert_eq!(b.handle_request(at(5600), A, a.request(at(4999))), None);
        b.handle_death(A, Incarnation(1));
        assert_eq!(b.released_at(A, Revision(6)), at(6500), "what its next life was promised stands");
    }

    #[test]
    fn a_life_that_ended_before_it_asked_for_anything_gets_nothing() {
        let (a, mut b) = (leases(), leases());
        b.handle_death(A, Incarnation(1));
        assert_eq!(b.handle_request(at(5000), A, a.request(at(5000))), None);
        assert_eq!(b.released_at(A, Revision(6)), at(1010));
    }

    #[test]
    fn who_does_not_know_the_record_promises_nothing() {
        let (a, mut reborn) = (leases(), Leases::new(at(0), Incarnation(2), Terms::default()));
        assert_eq!(reborn.handle_request(at(10), A, a.request(at(10))), None);
        reborn.set_applied(Revision(7));
        assert_eq!(reborn.handle_request(at(10), A, a.request(at(10))).unwrap().revision, Revision(7));
    }

    #[test]
    fn a_restarted_node_waits_out_what_it_may_have_promised() {
        let leases = leases();
        assert_eq!(leases.released_at(A, Revision(9)), at(1010));
        assert_eq!(leases.quiet_until(), at(1010));
    }
}
