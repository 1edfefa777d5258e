//! Nodes whose copy of the cluster's record accepts no changes: their disk is full or fails, or they run an
//! older version of Ursa than the changes need.
//!
//! The vote of such a node is missing, and it does not learn of changes, such as host groups that may no
//! longer log in. So it reports the stall to the others over each control link ([`message::RECORD_STATE`]),
//! and every node shows it. After [`LOGINS_WITHIN`] it refuses logins of hosts that are not logged in
//! already. It serves hosts until the others have applied a change that it lacks: their leases count only
//! from that revision on (R10), and hosts use their other paths. It takes part again automatically when its
//! disk can be written; an older version has to be updated.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use base::Instant;
use cluster::Stall;
use link::{Frame, Link};
use replica::NodeId;

use super::{Engine, Reconciler};
use crate::copies::message;
use crate::events::code::{LOGINS_ALLOWED, LOGINS_REFUSED, RECORD_RESUMED, RECORD_STALLED};
use crate::events::{Event, tell};

/// How long a node that does not learn of changes of the access rules lets hosts log in, while others can
/// make some.
///
/// An administrator who revokes access sees it take effect within this time. It is longer than a restart of
/// whatever fills a disk takes, so that a short shortage keeps no host out.
pub const LOGINS_WITHIN: Duration = Duration::from_secs(180);

/// Which copies of the record accept no changes.
#[derive(Default)]
pub(super) struct Stalls {
    /// The stall of this node's copy, and since when.
    own: Cell<Option<(Stall, Instant)>>,
    /// The stalls that were reported as events, by node; this node's own is among them.
    others: RefCell<BTreeMap<NodeId, Stall>>,
    refuses_logins: Cell<bool>,
}

impl Reconciler {
    /// Why the copy of the record on `node` takes no changes, if so.
    pub fn stall_of(&self, node: NodeId) -> Option<Stall> {
        match node == self.me() {
            true => self.with_engine(Engine::stalled),
            false => self.peers.borrow().get(&node).and_then(|peer| peer.stalled),
        }
    }

    /// Why this node's copy of the record takes no changes, and for how long.
    pub fn stalled(&self) -> Option<(Stall, Duration)> {
        self.stalls.own.get().map(|(stall, since)| (stall, rt::now().since(since)))
    }

    /// Whether hosts that are not logged in are refused, because the rules that this node knows may be
    /// outdated.
    pub fn refuses_logins(&self) -> bool {
        self.stalls.refuses_logins.get()
    }

    /// Reports the state of this node's copy of the record over a link.
    pub(super) fn say_record_state(&self, link: &Link) {
        let code = self.stalls.own.get().map_or(0, |(stall, _)| stall.code());
        link.send(message::frame(message::RECORD_STATE, 0, vec![code]));
    }

    /// Takes another node's report on its copy of the record.
    pub(super) fn handle_record_state(&self, from: NodeId, frame: &Frame) {
        let Some(code) = frame.head.first() else { return };
        let stalled = Stall::of_code(*code);
        self.peers.borrow_mut().entry(from).or_default().stalled = stalled;
        self.tell_stall(from, stalled);
    }

    /// Checks this node's own copy of the record.
    pub(super) fn look_at_stall(&self, now: Instant) {
        let before = self.stalls.own.get();
        let stalled = self.with_engine(Engine::stalled);
        let since = before.map_or(now, |(_, since)| since);
        self.stalls.own.set(stalled.map(|stall| (stall, since)));
        if before.map(|(stall, _)| stall) != stalled {
            self.control_links().iter().for_each(|link| self.say_record_state(link));
            self.tell_stall(self.me(), stalled);
        }
        // If no other node is reached, none can make a change that this node would have to know, either.
        let is_linked = !self.control_links().is_empty();
        let refuses = stalled.is_some() && now.since(since) >= LOGINS_WITHIN && is_linked;
        if self.stalls.refuses_logins.replace(refuses) != refuses {
            let node = self.named(self.me().0);
            let (code, text) = match refuses {
                true => (
                    LOGINS_REFUSED,
                    format!(
                        "{node} refuses new logins: it has not followed the cluster's record for {} minutes, so its access rules may be outdated",
                        LOGINS_WITHIN.as_secs() / 60
                    ),
                ),
                false => (LOGINS_ALLOWED, format!("{node} accepts logins again")),
            };
            tell(Event::about_node(code, (&node, self.me().0), text));
        }
    }

    fn tell_stall(&self, node: NodeId, stalled: Option<Stall>) {
        let known = match stalled {
            Some(stall) => self.stalls.others.borrow_mut().insert(node, stall),
            None => self.stalls.others.borrow_mut().remove(&node),
        };
        if known == stalled {
            return;
        }
        let name = self.named(node.0);
        let event = match stalled {
            Some(stall) => Event::about_node(
                RECORD_STALLED,
                (&name, node.0),
                format!("the copy of the cluster's record on {name} accepts no changes: {stall}"),
            )
            .because(match stall {
                Stall::NoSpace => "no_space",
                Stall::Disk => "disk",
                Stall::Defect => "defect",
                Stall::Unreadable => "needs_update",
                Stall::Later(_) => "other",
            }),
            None => Event::about_node(
                RECORD_RESUMED,
                (&name, node.0),
                format!("the copy of the cluster's record on {name} accepts changes again"),
            ),
        };
        tell(event);
    }
}

impl Engine {
    /// Why this node's copy takes no changes.
    pub(super) fn stalled(&self) -> Option<Stall> {
        match self {
            Engine::Embedded(embedded) => embedded.stalled(),
            Engine::Simulated(simulated) => simulated.stalled(),
            // With etcd no node has a copy.
            Engine::Etcd(_) | Engine::Shared => None,
        }
    }
}
