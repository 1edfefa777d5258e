//! Heartbeats: nodes request leases from each other, and so know which nodes are up.
//!
//! A control link whose network falls silent moves to another network before its node is missed:
//! `docs/why/replication.md`, *When a network falls silent*.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use link::{DOUBT, Link, SILENCE};
use replica::{LEASE_LENGTH, NodeId, SILENCE_MAX};

use super::Reconciler;
use crate::canary::{Canary, makes};
use crate::copies::message::Heartbeat;

/// How often a node requests leases: ten times in the length of a lease.
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(100);

/// For how long a node counts as heard after each heartbeat: five of them.
pub(super) const HEARD_WITHIN: Duration = HEARTBEAT.saturating_mul(5);

/// A node whose lease lasts at least this long does not need the next one at once: it may come with the other
/// node's own request, or its next sign of life. Then neither node wakes for it alone.
///
/// In peace, the next lease comes when the last one was requested two heartbeats ago at most.
const LASTS: Duration = Duration::from_millis(500);

/// How long it takes at most to connect a control link again and send the first heartbeat over it.
///
/// On a network that works, between machines that do: a connection, TLS, three hellos and the heartbeats
/// cross the network eight times; each side signs once; and the connecting side waits 20 ms before it
/// confirms that it wants the link.
const LINK_ANEW: Duration = Duration::from_millis(100);

const _: () = {
    assert!(
        HEARTBEAT.as_millis() + DOUBT.as_millis() + LINK_ANEW.as_millis() < SILENCE_MAX.as_millis(),
        "a control link goes by another network before its node is missed"
    );
    assert!(
        3 * HEARTBEAT.as_millis() + LASTS.as_millis() < LEASE_LENGTH.as_millis(),
        "in peace, no request has to be answered at once, even if one is late"
    );
    assert!(SILENCE_MAX.as_millis() < LEASE_LENGTH.as_millis(), "and so before any lease runs out");
    assert!(
        LEASE_LENGTH.as_millis() <= SILENCE.as_millis(),
        "what was silent for as long as a lease lasts has cost it already: to give the link up costs no more"
    );
};

impl Reconciler {
    /// Requests leases from all others, with each heartbeat: in the same turn in which links send signs of
    /// life, so that they leave together.
    pub(super) async fn beat(self: Rc<Self>) {
        let mut are_void = false;
        while !self.stopping.get() {
            self.look_at_stall(rt::now());
            let links = self.control_links();
            links.iter().for_each(|link| self.say_forks(link));
            if !makes(Canary::RecordNeeded) || self.has_quorum().await {
                self.ask_for_leases(&links, are_void);
            }
            let next = rt::now().beat_after(HEARTBEAT);
            are_void = rt::timeout_at(next, self.copies.leases_void.notified()).await.is_ok();
            if are_void {
                self.hurry();
            }
        }
    }

    /// Requests leases over these links. `at_once`: no answer may wait, although this core has leases that
    /// last: another one may have none.
    pub(super) fn ask_for_leases(&self, links: &[Rc<Link>], at_once: bool) {
        let now = rt::now();
        let reached = self.reached(now);
        self.note_cuts(now, &reached);
        let lease = self.copies.leases().request(now);
        let request = |may_wait| Heartbeat::Request {
            lease,
            clock: self.copies.clock(),
            reached: reached.clone(),
            may_wait,
        };
        for link in links {
            let may_wait = !at_once && self.copies.leases().holds(now + LASTS, link.name().peer);
            link.send(request(may_wait).frame());
        }
    }

    /// This node, and those that it hears and with which all replication links are up.
    fn reached(&self, now: Instant) -> BTreeSet<NodeId> {
        let others: Vec<NodeId> = self.peers.borrow().keys().copied().collect();
        others.into_iter().chain([self.me()]).filter(|node| self.reaches_now(now, *node)).collect()
    }

    /// Whether a node is this one, or is heard and all replication links with it are up.
    pub(super) fn reaches_now(&self, now: Instant, node: NodeId) -> bool {
        node == self.me() || self.is_heard(now, node) && self.copies.reaches_wholly(node)
    }

    pub(super) fn control_links(&self) -> Vec<Rc<Link>> {
        self.peers.borrow().values().filter_map(|peer| peer.link.clone()).collect()
    }

    /// Whether the node was heard within the last five heartbeats; this node always counts as heard.
    pub(super) fn is_heard(&self, now: Instant, node: NodeId) -> bool {
        if node == self.me() {
            return true;
        }
        let heard = self.peers.borrow().get(&node).and_then(|peer| peer.heard);
        heard.is_some_and(|heard| now.since(heard) < HEARD_WITHIN)
    }

    pub(super) fn handle_heartbeat(&self, link: &Rc<Link>, heartbeat: Heartbeat) {
        let (from, now) = (link.name().peer, rt::now());
        match heartbeat {
            Heartbeat::Request { lease: request, clock, reached, may_wait } => {
                self.copies.hear_clock(clock);
                let was_heard = self.is_heard(now, from);
                {
                    let mut peers = self.peers.borrow_mut();
                    let peer = peers.entry(from).or_default();
                    if peer.life != Some(request.incarnation) {
                        peer.met = Some(now);
                    }
                    if !was_heard || peer.life != Some(request.incarnation) {
                        self.hurry();
                    }
                    (peer.heard, peer.life) = (Some(now), Some(request.incarnation));
                    peer.reached = Some(reached);
                }
                if !was_heard {
                    self.applied.notify();
                }
                if self.denies_leases(from, request.incarnation) {
                    return;
                }
                let grant = self.copies.with_leases(|leases| leases.handle_request(now, from, request));
                // What is promised binds this node from now on, whenever the other one learns of it.
                match grant.map(|grant| Heartbeat::Grant(grant).frame()) {
                    Some(frame) if may_wait => link.send_with_next(frame),
                    Some(frame) => link.send(frame),
                    None => {}
                }
            }
            Heartbeat::Grant(grant) => {
                if !self.copies.leases().holds(now, from) {
                    self.hurry();
                }
                self.copies.hand_out(from, grant);
            }
        }
    }
}
