//! Leases between two nodes, for all volumes at once (R10 to R12).
//!
//! A lease is a promise of its giver: "until my clock passes this moment, I will not act in any configuration
//! that removes you, unless I knew of that configuration when I promised." A node that holds a lease of each
//! other member may answer reads on its own: no other node can have continued without it. A heartbeat is a
//! request for a lease.
//!
//! Clocks need not agree, but they must run, even while a machine sleeps, and equally fast to within
//! [`Terms::drift_permille`]. The holder counts from when it *asked*, and uses less than was promised.

use std::collections::BTreeMap;
use std::time::Duration;

use base::Instant;

use crate::canary::{Canary, makes};
use crate::{Incarnation, NodeId, Revision};

/// The default length of a lease.
pub const LEASE_LENGTH: Duration = Duration::from_secs(1);

/// What a lease promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long a lease lasts on the giver's clock. It is also the longest that a lost node makes others
    /// wait.
    pub length: Duration,
    /// By how many thousandths the rates of two clocks may differ.
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

    /// How long a process acts in no configuration after its start: promises of its previous life may still
    /// hold (R12).
    pub fn quiet(self) -> Duration {
        self.length + self.drift()
    }
}

/// A request for a lease, which is also a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The life of the node that asks.
    pub incarnation: Incarnation,
    /// When it asked, by its own clock; the answer returns it.
    pub sent_at: Instant,
    /// The revision of the cluster's record by which the node acts.
    pub applied: Revision,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseGrant {
    /// The life of the node that answers.
    pub incarnation: Incarnation,
    /// From the request.
    pub sent_at: Instant,
    /// The newest revision that the giver knew of: the lease promises nothing against removals up to there.
    pub revision: Revision,
}

/// The leases of one node with all others.
#[derive(Debug)]
pub struct Leases {
    terms: Terms,
    incarnation: Incarnation,
    applied: Revision,
    /// The newest revision that this node knows of; its leases promise nothing against removals up to there.
    known: Revision,
    /// Promises of an earlier life may hold until then.
    quiet_until: Instant,
    given: BTreeMap<NodeId, HeldLeases>,
    /// By giver, oldest first; each is better than the others in its end or its revision.
    held: BTreeMap<NodeId, Vec<Held>>,
    /// Leases requested up to then do not count.
    void_until: Instant,
}

/// How many leases of one giver are remembered. A new lease is worth less than the last one as long as this
/// node has not applied its revision.
const HELD_MAX: usize = 8;

#[derive(Debug)]
struct HeldLeases {
    incarnation: Incarnation,
    /// This life is known to be over: what still arrives was sent before it ended.
    dead: bool,
    /// The greatest revision by which the node has said that it acts.
    applied: Revision,
    /// The ends of its leases, by the revision at which they were granted. Both grow; expired ones are
    /// dropped.
    until: Vec<(Revision, Instant)>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    until: Instant,
    revision: Revision,
}

impl Leases {
    /// The leases of a node that has just started: promises of its previous life may hold for the whole
    /// length (R12).
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

    /// This node is about to act by this revision, and from now on promises nothing against it.
    ///
    /// Its cores may need a while to act. The decision rests on the leases that are outstanding when they are
    /// checked, so no later lease may contradict it.
    pub fn set_known(&mut self, revision: Revision) {
        self.known = self.known.max(revision);
    }

    /// Every volume on every core now acts by this revision of the cluster's record, or knows that it may not
    /// act.
    pub fn set_applied(&mut self, revision: Revision) {
        self.applied = self.applied.max(revision);
        self.set_known(revision);
    }

    /// The revision by which this node acts.
    pub fn applied(&self) -> Revision {
        self.applied
    }

    /// A request for a lease.
    pub fn request(&self, now: Instant) -> LeaseRequest {
        // A clock that stopped may show the same moment again: one nanosecond separates earlier requests from
        // this one.
        let sent_at = now.max(self.void_until + Duration::from_nanos(1));
        LeaseRequest { incarnation: self.incarnation, sent_at, applied: self.applied }
    }

    /// Grants a lease, once this life has read the record.
    ///
    /// Until then it does not know by which revision an earlier life has acted, and so not what it may
    /// promise.
    pub fn handle_request(
        &mut self,
        now: Instant,
        from: NodeId,
        request: LeaseRequest,
    ) -> Option<LeaseGrant> {
        if self.applied == Revision(0) && !makes(Canary::GrantBlind) {
            return None;
        }
        let anew = || HeldLeases {
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
            // The node has restarted, and its leases ended with its previous life.
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

    /// This node's clock may have stopped until now while time passed: leases that were requested before may
    /// have expired for their givers.
    pub fn handle_clock_stop(&mut self, now: Instant) {
        self.held.clear();
        self.void_until = now;
    }

    /// What was requested up to then does not count on another core of this node: the next request comes
    /// later.
    pub fn request_after(&mut self, until: Instant) {
        self.void_until = self.void_until.max(until);
    }

    /// Takes a lease that another node has granted.
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

    /// Whether this node holds a lease of the other one that counts at the revision it has applied (R9, R10).
    pub fn holds(&self, now: Instant, from: NodeId) -> bool {
        self.held
            .get(&from)
            .into_iter()
            .flatten()
            .any(|held| now < held.until && (held.revision <= self.applied || makes(Canary::NoRevision)))
    }

    /// When the last lease ends that this node holds of the other one and that counts now.
    pub fn held_until(&self, now: Instant, from: NodeId) -> Option<Instant> {
        let held = self.held.get(&from).into_iter().flatten();
        let counts = |held: &&Held| now < held.until && held.revision <= self.applied;
        held.filter(counts).map(|held| held.until).max()
    }

    /// The other node is known to be dead in this life and all earlier ones.
    ///
    /// What was promised to it no longer binds (R11), and it gets no more leases.
    pub fn handle_death(&mut self, of: NodeId, incarnation: Incarnation) {
        let dead = || HeldLeases { incarnation, dead: true, applied: Revision(0), until: Vec::new() };
        let given = self.given.entry(of).or_insert_with(dead);
        if given.incarnation <= incarnation {
            *given = HeldLeases { applied: given.applied, ..dead() };
        }
    }

    /// When this node may act in a configuration of `revision` that removes the other one.
    ///
    /// That is at once (a time in the past) if it has granted that node no lease at an older revision (R11),
    /// but never before promises of an earlier life have expired (R12).
    pub fn released_at(&self, removed: NodeId, revision: Revision) -> Instant {
        if makes(Canary::NoWait) {
            return Instant(0);
        }
        // A node that has applied its own removal answers no reads any more, whatever leases it holds.
        let Some(given) = self.given.get(&removed).filter(|given| given.applied < revision) else {
            return self.quiet_until;
        };
        let before = given.until.iter().filter(|(at, _)| *at < revision).map(|(_, until)| *until);
        before.max().unwrap_or(Instant(0)).max(self.quiet_until)
    }

    /// The latest [`Leases::released_at`] of all nodes that got a lease.
    pub fn all_released_at(&self, revision: Revision) -> Instant {
        let released = self.given.keys().map(|node| self.released_at(*node, revision));
        released.fold(self.quiet_until, Instant::max)
    }

    /// The revision by which another node acts, as it last reported; 0 if it has reported none.
    pub fn applied_by(&self, node: NodeId) -> Revision {
        self.given.get(&node).map_or(Revision(0), |given| given.applied)
    }

    /// What leases promise.
    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// Until when promises of an earlier life may hold.
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
        assert_eq!(a.held_until(at(5989), B), Some(at(5990)));
        assert_eq!((a.held_until(at(5990), B), b.held_until(at(5010), A)), (None, None));
        assert_eq!(b.released_at(A, Revision(6)), at(6010));
        assert_eq!(
            b.released_at(A, Revision(5)),
            at(1010),
            "given when the removal was known: only the start counts"
        );
    }

    #[test]
    fn leases_requested_before_the_clock_stopped_do_not_count() {
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
    fn what_is_requested_for_another_core_counts_there() {
        let (mut first, mut other, mut b) = (leases(), leases(), leases());
        let known = b.handle_request(at(5000), A, first.request(at(5000))).unwrap();
        first.handle_grant(B, known);
        other.handle_clock_stop(at(5100));
        first.request_after(at(5100));
        assert!(first.holds(at(5100), B), "its own leases still count");
        let grant = b.handle_request(at(5100), A, first.request(at(5100))).unwrap();
        [&mut first, &mut other].into_iter().for_each(|leases| leases.handle_grant(B, grant));
        assert!(first.holds(at(6000), B) && other.holds(at(6000), B));
    }

    #[test]
    fn a_lease_counts_once_its_revision_is_applied() {
        let (mut a, mut b) = (leases(), leases());
        b.set_applied(Revision(6));
        let grant = b.handle_request(at(5000), A, a.request(at(5000))).unwrap();
        a.handle_grant(B, grant);
        assert!(!a.holds(at(5001), B) && a.held_until(at(5001), B).is_none());
        a.set_applied(Revision(6));
        assert!(a.holds(at(5001), B) && a.held_until(at(5001), B).is_some());
    }

    /// Some time passes between the check of the outstanding leases and the report that all cores act by a
    /// removal.
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
    fn a_node_that_applied_its_removal_is_not_waited_for() {
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
    fn a_dead_incarnation_that_requests_late_gets_no_lease() {
        let (a, mut b) = (leases(), leases());
        b.handle_death(A, Incarnation(1));
        assert_eq!(b.handle_request(at(5000), A, a.request(at(5000))), None);
        assert_eq!(b.released_at(A, Revision(6)), at(1010));
    }

    #[test]
    fn a_node_that_does_not_know_the_record_promises_nothing() {
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
