//! When a look at all volumes would find nothing, so that volumes that nobody uses cost nothing.
//!
//! What a look finds depends on the volumes, the other nodes, what the slices know, and the time. A look
//! notes whether each volume is *at rest*: all of its copies are in sync, heard and leased, and nothing is
//! proposed, awaited or due. Time alone ends such a rest only by the silence of a node or the end of a lease.
//! So the next looks are needless until
//!
//! - a volume or the record changes, which [`Rest::stir`] notes;
//! - something about a node changes ([`Seen`]);
//! - a slice to which something has happened has news ([`Copies::has_news`]).
//!
//! The reconciler checks these as often as it would look, so everything is noticed as early as by a look, for
//! the price of one volume.
//!
//! Even these checks are needless while the node is *calm*: volumes rest, no slice needs ticks, so none has
//! news, and no node is about to be missed. Whatever else ends a rest says so ([`Reconciler::hurry`]).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use base::Instant;
use replica::{Incarnation, NodeId, SILENCE_MAX};

use super::Reconciler;
use super::beat::{HEARD_WITHIN, HEARTBEAT};
use crate::copies::core::Copies;
use crate::shard::on_all_cores;

/// How often the node considers whether, and what, to propose for its volumes.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long a node relies on this at most: a change that nobody has noted is found then.
const LOOK_ANYWAY: Duration = Duration::from_secs(10);

/// What the last look at all volumes has found; see the module.
#[derive(Default)]
pub(super) struct Rest {
    /// A volume or the record may have changed since that look began.
    stirred: Cell<bool>,
    /// `None`: a volume was not at rest.
    found: RefCell<Option<Found>>,
    /// No slice may have news: none needed ticks when they were last asked, and none has said since that it
    /// does.
    no_news: Cell<bool>,
    /// Nothing has happened since the last look began that the next one must find early.
    calm: Cell<bool>,
    /// How many looks there were.
    looks: Cell<u64>,
}

struct Found {
    rested: Rested,
    nodes: BTreeMap<NodeId, Seen>,
}

/// The time in which nothing changed since a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rested {
    /// When that look began.
    began: Instant,
    /// When everything was last as that look has found it.
    until: Instant,
}

/// What a look makes of another node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    life: Option<Incarnation>,
    dead: Option<Incarnation>,
    leaving: Option<Incarnation>,
    /// It was heard within [`SILENCE_MAX`].
    is_heard: bool,
    /// This node holds a lease of it.
    is_leased: bool,
}

impl Rest {
    /// Notes that something has changed.
    pub fn stir(&self) {
        self.stirred.set(true);
    }

    /// Whether nothing in this node has changed since a look that found all volumes at rest.
    pub fn is_certain(&self) -> bool {
        !self.stirred.get() && self.found.borrow().is_some()
    }

    /// The reconciler looks now, at what has happened until now.
    pub fn begin_calm(&self) {
        self.calm.set(true);
    }

    /// A look begins. Returns the time since the last one in which nothing changed.
    pub fn begin(&self) -> Option<Rested> {
        self.stirred.set(false);
        self.looks.set(self.looks.get() + 1);
        self.found.take().map(|found| found.rested)
    }

    /// A look that began at this time, when the nodes were like this, has found all volumes at rest.
    pub fn found(&self, began: Instant, nodes: BTreeMap<NodeId, Seen>) {
        let rested = Rested { began, until: began };
        self.found.replace(Some(Found { rested, nodes }));
    }

    /// Whether the look that found all volumes at rest may still be relied on.
    fn may_hold(&self, now: Instant, nodes: &BTreeMap<NodeId, Seen>) -> bool {
        let holds = |found: &Found| now.since(found.rested.began) < LOOK_ANYWAY && found.nodes == *nodes;
        !self.stirred.get() && self.found.borrow().as_ref().is_some_and(holds)
    }

    /// Everything is as that look has found it.
    fn hold(&self, now: Instant) {
        if let Some(found) = &mut *self.found.borrow_mut() {
            found.rested.until = now;
        }
    }
}

impl Rested {
    /// When a copy last had the leases of all others that had them at `led`, as far as looks have noted that.
    pub fn led(self, led: Instant) -> Instant {
        // At the look: so its nodes and their leases are among those that have not changed.
        if led >= self.began { led.max(self.until) } else { led }
    }
}

impl Reconciler {
    /// What a look makes of the other nodes now.
    pub(super) fn nodes_seen(&self, now: Instant) -> BTreeMap<NodeId, Seen> {
        let (leases, peers) = (self.copies.leases(), self.peers.borrow());
        let seen = peers.iter().map(|(node, peer)| {
            let seen = Seen {
                life: peer.life,
                dead: peer.dead,
                leaving: peer.leaving,
                is_heard: peer.heard.is_some_and(|heard| now.since(heard) <= SILENCE_MAX),
                is_leased: leases.holds(now, *node),
            };
            (*node, seen)
        });
        seen.collect()
    }

    /// Whether a look at all volumes would find nothing.
    pub(super) async fn rests(&self, now: Instant) -> bool {
        if !self.rest.may_hold(now, &self.nodes_seen(now)) || !self.forks.is_empty() {
            return false;
        }
        if !self.volumes.borrow().is_empty() && !self.rest.no_news.get() {
            // What is woken from now on says so: after this, if it was not counted here.
            self.rest.no_news.set(true);
            let ask = || async {
                let copies = Copies::current();
                (copies.has_news().await, copies.awake() > 0)
            };
            let found = on_all_cores(ask).await;
            if found.iter().any(|(_, awake)| *awake) {
                self.rest.no_news.set(false);
            }
            if found.iter().any(|(news, _)| *news) || !self.rest.is_certain() {
                return false;
            }
        }
        self.rest.hold(now);
        true
    }

    /// When to look again after a look that began now; `rests`: it found all volumes at rest.
    pub(super) fn next_look(&self, now: Instant, rests: bool) -> Instant {
        let has_no_news = self.rest.no_news.get() || self.volumes.borrow().is_empty();
        if !(rests && has_no_news && self.rest.is_certain() && self.rest.calm.get()) {
            self.rest.calm.set(false);
            return now.beat_after(LOOK_EVERY);
        }
        // In the turn in which the node wakes anyway, or with the look that would find what time alone does.
        let changes = self.changes_by_itself(now).map(|at| at.beat_after(LOOK_EVERY));
        changes.into_iter().fold(now.beat_after(HEARTBEAT), Instant::min)
    }

    /// When a node will be missed, or a lease end, if nothing more is heard.
    fn changes_by_itself(&self, now: Instant) -> Option<Instant> {
        let (leases, peers) = (self.copies.leases(), self.peers.borrow());
        let times = peers.iter().flat_map(|(node, peer)| {
            let missed = [SILENCE_MAX, HEARD_WITHIN].map(|within| Some(peer.heard? + within));
            missed.into_iter().chain([leases.held_until(now, *node)]).flatten()
        });
        times.filter(|at| *at >= now).min()
    }

    /// A volume or the record changes.
    pub(super) fn stir(&self) {
        self.rest.stir();
        self.stirred.notify();
        self.hurry();
    }

    /// Something happens that the next look may find: it comes as early as when the node is not calm.
    pub(super) fn hurry(&self) {
        if self.rest.calm.replace(false) {
            self.work.notify();
        }
    }

    /// A slice needs ticks, after all of its core needed none.
    pub(crate) fn handle_awake(&self) {
        self.rest.no_news.set(false);
        self.hurry();
    }

    /// How often this node has looked at all of its volumes.
    pub fn looks(&self) -> u64 {
        self.rest.looks.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn nodes(is_leased: bool) -> BTreeMap<NodeId, Seen> {
        let life = Some(Incarnation(3));
        [(NodeId(2), Seen { life, dead: None, leaving: None, is_heard: true, is_leased })].into()
    }

    #[test]
    fn a_look_is_relied_on_until_something_changes() {
        let rest = Rest::default();
        assert!(!rest.may_hold(at(1000), &nodes(true)), "nobody has looked");
        assert_eq!(rest.begin(), None);
        assert!(!rest.may_hold(at(1000), &nodes(true)), "not all volumes were at rest");
        rest.found(at(1000), nodes(true));
        assert!(rest.is_certain() && rest.may_hold(at(1050), &nodes(true)));
        assert!(!rest.may_hold(at(1050), &nodes(false)), "a lease has run out");
        assert!(rest.may_hold(at(10_999), &nodes(true)));
        assert!(!rest.may_hold(at(11_000), &nodes(true)), "for long enough");
        rest.stir();
        assert!(!rest.is_certain() && !rest.may_hold(at(1050), &nodes(true)));
        rest.begin();
        assert!(!rest.is_certain(), "the next look is under way");
    }

    #[test]
    fn what_changes_during_a_look_is_looked_at_again() {
        let rest = Rest::default();
        rest.begin();
        rest.stir();
        rest.found(at(1000), nodes(true));
        assert!(!rest.is_certain() && !rest.may_hold(at(1000), &nodes(true)));
    }

    #[test]
    fn copies_have_led_as_long_as_nothing_has_changed_since_they_did() {
        let rest = Rest::default();
        rest.begin();
        rest.found(at(1000), nodes(true));
        rest.hold(at(1050));
        rest.hold(at(1100));
        let rested = rest.begin().unwrap();
        assert_eq!(rested.led(at(1001)), at(1100));
        assert_eq!(rested.led(at(999)), at(999), "it has not led at that look");
        assert_eq!(rest.begin(), None, "that has counted");
    }
}
