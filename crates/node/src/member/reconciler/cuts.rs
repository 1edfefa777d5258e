//! Which nodes are up but unreachable from here: the network between the two is cut, while each of them works
//! with others.
//!
//! A node that is not heard may be down. It is up if another node, which is heard, says in its heartbeats
//! that it reaches it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::Instant;
use replica::NodeId;

use super::Reconciler;

/// How long a node must be unreachable before that is reported.
///
/// It takes some seconds to connect all links again, over another network if one is silent. So does the start
/// of a node, and so does its loss until all nodes have noticed.
const CUT_MIN: Duration = Duration::from_secs(10);

/// How long it must be reachable without a break until the cut is over.
///
/// A network that loses only large packets lets links be connected again and again, and they die after a
/// second.
const MENDED_MIN: Duration = Duration::from_secs(5);

/// The nodes that are up but unreachable, or reachable again for a short time only.
#[derive(Debug, Default)]
pub(super) struct Cuts(BTreeMap<NodeId, Cut>);

#[derive(Debug)]
struct Cut {
    since: Instant,
    /// Since when it is reachable again.
    reached: Option<Instant>,
}

impl Cuts {
    fn note(&mut self, now: Instant, up: &BTreeSet<NodeId>, reached: &BTreeSet<NodeId>) {
        self.0.retain(|node, cut| {
            cut.reached = reached.contains(node).then(|| cut.reached.unwrap_or(now));
            up.contains(node) && cut.reached.is_none_or(|since| now.since(since) < MENDED_MIN)
        });
        for node in up.difference(reached) {
            self.0.entry(*node).or_insert(Cut { since: now, reached: None });
        }
    }

    fn lasting(&self, now: Instant) -> Vec<(NodeId, Duration)> {
        let all = self.0.iter().map(|(node, cut)| (*node, now.since(cut.since)));
        all.filter(|(_, lasts)| *lasts >= CUT_MIN).collect()
    }
}

impl Reconciler {
    /// Notes which nodes are up but unreachable; called with every heartbeat.
    pub(super) fn note_cuts(&self, now: Instant, reached: &BTreeSet<NodeId>) {
        let mut up = reached.clone();
        for (node, peer) in self.peers.borrow().iter() {
            if self.is_heard(now, *node) {
                up.insert(*node);
                up.extend(peer.reached.iter().flatten());
            }
        }
        self.cuts.borrow_mut().note(now, &up, reached);
    }

    /// Which other nodes that are heard say that they reach `node`.
    pub fn reached_by(&self, node: NodeId) -> Vec<NodeId> {
        let (now, peers) = (rt::now(), self.peers.borrow());
        let reach = peers.iter().filter(|(other, peer)| {
            let reached = peer.reached.as_ref().is_some_and(|reached| reached.contains(&node));
            reached && **other != node && self.is_heard(now, **other)
        });
        reach.map(|(other, _)| *other).collect()
    }

    /// The nodes that have been up but not fully reachable for a while, and for how long.
    ///
    /// In all of that time some of the links with them, or all, were down, or up for short times only.
    pub fn cuts(&self) -> Vec<(NodeId, Duration)> {
        self.cuts.borrow().lasting(rt::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nodes_that_are_up_and_unreachable_for_a_while_are_reported() {
        let at = |seconds: u64| Instant(seconds * 1_000_000_000);
        let set = |nodes: &[u16]| nodes.iter().map(|node| NodeId(*node)).collect::<BTreeSet<_>>();
        let mut cuts = Cuts::default();
        cuts.note(at(0), &set(&[1, 2, 3]), &set(&[1, 2]));
        cuts.note(at(9), &set(&[1, 2, 3]), &set(&[1, 2]));
        assert!(cuts.lasting(at(9)).is_empty());
        assert_eq!(cuts.lasting(at(10)), [(NodeId(3), Duration::from_secs(10))]);
        // The node is down. When it is back, it may take its time.
        cuts.note(at(11), &set(&[1, 2]), &set(&[1, 2]));
        cuts.note(at(12), &set(&[1, 2, 3]), &set(&[1, 2]));
        assert!(cuts.lasting(at(21)).is_empty());
        assert_eq!(cuts.lasting(at(22)).len(), 1);
        // The node is reachable for some moments now and then.
        for second in (23..40).step_by(3) {
            cuts.note(at(second), &set(&[1, 2, 3]), &set(&[1, 2, 3]));
            cuts.note(at(second + 2), &set(&[1, 2, 3]), &set(&[1, 2]));
        }
        assert_eq!(cuts.lasting(at(40)), [(NodeId(3), Duration::from_secs(28))]);
        cuts.note(at(41), &set(&[1, 2, 3]), &set(&[1, 2, 3]));
        assert_eq!(cuts.lasting(at(45)).len(), 1);
        cuts.note(at(46), &set(&[1, 2, 3]), &set(&[1, 2, 3]));
        assert!(cuts.lasting(at(60)).is_empty());
    }
}
