//! Which nodes are up, and are not reached from here: the network between the two is cut, while each of them
//! works with others.
//!
//! A node that is not heard of may be down. It is up if another node, which is heard, says that it reaches
//! it: heartbeats carry that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::Instant;
use replica::NodeId;

use super::Keeper;

/// For how long a node must not have been reached before it is said. To make all links anew, by another
/// network if one is silent, takes some seconds; so does the start of a node, and until its loss has got
/// round.
const CUT_MIN: Duration = Duration::from_secs(10);

/// For how long it must be reached without a break until that is over: a network that loses large packets
/// alone lets links be made again and again, and dead after a second.
const MENDED_MIN: Duration = Duration::from_secs(5);

/// The nodes that are up and not reached, or not for long.
#[derive(Debug, Default)]
pub(super) struct Cuts(BTreeMap<NodeId, Cut>);

#[derive(Debug)]
struct Cut {
    since: Instant,
    /// Since when it is reached.
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

impl Keeper {
    /// Notes who is up and not reached, with every heartbeat.
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

    /// Which nodes that are heard say that they reach this one.
    pub fn reached_by(&self, node: NodeId) -> Vec<NodeId> {
        let (now, peers) = (rt::now(), self.peers.borrow());
        let reach = peers.iter().filter(|(other, peer)| {
            let reached = peer.reached.as_ref().is_some_and(|reached| reached.contains(&node));
            reached && **other != node && self.is_heard(now, **other)
        });
        reach.map(|(other, _)| *other).collect()
    }

    /// Which nodes have been up for a while, and in all of that time some of the links with them, or all,
    /// were not, or never for long; and for how long.
    pub fn cuts(&self) -> Vec<(NodeId, Duration)> {
        self.cuts.borrow().lasting(rt::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_up_and_not_reached_for_a_while_is_said() {
        let at = |seconds: u64| Instant(seconds * 1_000_000_000);
        let set = |nodes: &[u16]| nodes.iter().map(|node| NodeId(*node)).collect::<BTreeSet<_>>();
        let mut cuts = Cuts::default();
        cuts.note(at(0), &set(&[1, 2, 3]), &set(&[1, 2]));
        cuts.note(at(9), &set(&[1, 2, 3]), &set(&[1, 2]));
        assert!(cuts.lasting(at(9)).is_empty());
        assert_eq!(cuts.lasting(at(10)), [(NodeId(3), Duration::from_secs(10))]);
        // It is down, and when it is back it may take its time.
        cuts.note(at(11), &set(&[1, 2]), &set(&[1, 2]));
        cuts.note(at(12), &set(&[1, 2, 3]), &set(&[1, 2]));
        assert!(cuts.lasting(at(21)).is_empty());
        assert_eq!(cuts.lasting(at(22)).len(), 1);
        // It is reached for some moments now and then.
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
