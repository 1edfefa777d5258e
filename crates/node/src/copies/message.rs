//! What nodes say to each other over their control link (`docs/formats/replication-link.md`).

use std::collections::BTreeSet;

use base::{Chain, Instant};
use link::{Frame, Link};
use replica::{Incarnation, LeaseGrant, LeaseRequest, NodeId, Revision};

/// A request for a lease, or the answer.
pub const HEARTBEAT: u8 = 2;
/// A message of the cluster's record.
pub const RECORD: u8 = 3;
/// A question, by its number.
pub const ASK: u8 = 4;
/// The answer to it.
pub const ANSWER: u8 = 5;
/// The sender is about to stop.
pub const LEAVING: u8 = 6;
/// What the sender knows of copies that are not in sync.
pub const SYNCS: u8 = 7;

/// The volumes with which the sender has gone on alone: those of this list, and no others.
pub const FORKS: u8 = 8;

/// Whether the sender's copy of the cluster's record takes changes: one byte, 0 if it does, else the code of [`cluster::Stall`].
pub const RECORD_STATE: u8 = 9;
/// The receiver does not know the kind of a frame: on replication links, too.
pub const UNKNOWN: u8 = 255;

/// Answers a frame of a kind that this version does not know. The answer itself is never answered.
pub fn answer_unknown(link: &Link, unknown: &Frame) {
    tracing::debug!(
        kind = unknown.kind,
        "{} sent a frame of a kind that this version does not know",
        link.name()
    );
    link.send(frame(UNKNOWN, unknown.channel, vec![unknown.kind]));
}

/// The kind that the other node does not know, if it says so in full.
pub fn unknown_in(answer: &Frame) -> Option<u8> {
    answer.head.first().copied()
}

/// A frame without payload.
pub fn frame(kind: u8, channel: u64, head: Vec<u8>) -> Frame {
    Frame { channel, kind, head, payload: Chain::new() }
}

/// What a request for a lease says besides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The sender's clock ([`super::Copies::clock`]).
    pub clock: Option<u64>,
    /// The nodes that it hears and has all replication links with, and itself. Older nodes do not say it.
    pub reached: Option<BTreeSet<NodeId>>,
}

/// A request for a lease, and what it says besides: as its payload, of which older nodes look at a clock alone.
pub fn heartbeat(head: Vec<u8>, clock: u64, reached: impl Iterator<Item = NodeId>) -> Frame {
    let mut payload = clock.to_le_bytes().to_vec();
    // Never none: the sender reaches itself.
    reached.for_each(|node| payload.extend(node.0.to_le_bytes()));
    Frame { payload: Chain::copy_of(&payload), ..frame(HEARTBEAT, 0, head) }
}

/// What a heartbeat's sender says besides; nothing, where it cannot be read.
pub fn said_in(heartbeat: &Frame) -> Said {
    let payload = heartbeat.payload.to_vec();
    let Some((clock, reached)) = payload.split_first_chunk::<8>() else { return Said::default() };
    let (reached, _) = reached.as_chunks::<2>();
    let reached: BTreeSet<NodeId> = reached.iter().map(|node| NodeId(u16::from_le_bytes(*node))).collect();
    Said {
        clock: Some(u64::from_le_bytes(*clock)),
        reached: if reached.is_empty() { None } else { Some(reached) },
    }
}

/// A request for a lease, or the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heartbeat {
    /// Asks.
    Request(LeaseRequest),
    /// Gives.
    Grant(LeaseGrant),
}

impl Heartbeat {
    /// Its bytes.
    pub fn encode(self) -> Vec<u8> {
        let (kind, incarnation, sent_at, revision) = match self {
            Heartbeat::Request(request) => (0u64, request.incarnation, request.sent_at, request.applied),
            Heartbeat::Grant(grant) => (1, grant.incarnation, grant.sent_at, grant.revision),
        };
        [kind, incarnation.0, sent_at.0, revision.0].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Of its bytes.
    pub fn parse(bytes: &[u8]) -> Option<Heartbeat> {
        let (words, rest) = bytes.as_chunks::<8>();
        let &[kind, incarnation, sent_at, revision] = words else { return None };
        let word = u64::from_le_bytes;
        let (incarnation, sent_at) = (Incarnation(word(incarnation)), Instant(word(sent_at)));
        let revision = Revision(word(revision));
        match (word(kind), rest) {
            (0, []) => Some(Heartbeat::Request(LeaseRequest { incarnation, sent_at, applied: revision })),
            (1, []) => Some(Heartbeat::Grant(LeaseGrant { incarnation, sent_at, revision })),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_is_four_words() {
        let request =
            LeaseRequest { incarnation: Incarnation(2), sent_at: Instant(3), applied: Revision(0x0405) };
        let bytes = Heartbeat::Request(request).encode();
        assert_eq!(
            bytes[..],
            [0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 5, 4, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(Heartbeat::parse(&bytes), Some(Heartbeat::Request(request)));
        assert_eq!(Heartbeat::parse(&bytes[..31]), None);
        let mut strange = bytes;
        strange[0] = 2;
        assert_eq!(Heartbeat::parse(&strange), None);
    }

    #[test]
    fn a_heartbeat_says_whom_its_sender_reaches() {
        let nodes = [NodeId(1), NodeId(0x0203)];
        let frame = heartbeat(vec![], 7, nodes.into_iter());
        assert_eq!(said_in(&frame), Said { clock: Some(7), reached: Some(nodes.into()) });
        let of = |bytes: &[u8]| {
            said_in(&Frame { payload: Chain::copy_of(bytes), ..super::frame(HEARTBEAT, 0, vec![]) })
        };
        assert_eq!(of(&7u64.to_le_bytes()), Said { clock: Some(7), reached: None }, "an older node");
        assert_eq!(of(&[7]), Said::default());
    }
}
