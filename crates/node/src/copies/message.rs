//! Messages between nodes over their control links, and the kinds of frames on all links
//! (`docs/formats/replication-link.md`).

use std::collections::BTreeSet;

use base::{Chain, Instant};
use link::{Frame, Link};
use replica::{Incarnation, LeaseGrant, LeaseRequest, NodeId, Revision};

/// Frame kind: a request for a lease, or the answer to it.
pub const HEARTBEAT: u8 = 2;
/// Frame kind: a message of the cluster's record.
pub const RECORD: u8 = 3;
/// Frame kind: a numbered question.
pub const ASK: u8 = 4;
/// Frame kind: the answer to a question.
pub const ANSWER: u8 = 5;
/// Frame kind: the sender is about to stop.
pub const LEAVING: u8 = 6;
/// Frame kind: what the sender knows of copies that are not in sync.
pub const SYNCS: u8 = 7;

/// Frame kind: the complete list of volumes with which the sender continues alone.
pub const FORKS: u8 = 8;

/// Frame kind: whether the sender's copy of the cluster's record takes changes.
///
/// One byte: 0 if it does, else the code of [`cluster::Stall`].
pub const RECORD_STATE: u8 = 9;
/// Frame kind: the receiver does not know the kind of a frame.
///
/// Also sent on replication links.
pub const UNKNOWN: u8 = 255;

/// Frame kinds of replication links, whose channel is a slice.
pub mod replication {
    /// The protocol's own messages.
    pub const SLICE: u8 = 1;
    /// Messages about ranges that commands lock.
    pub const LOCK: u8 = 7;
    /// Messages about blocks that a copy cannot read.
    pub const FETCH: u8 = 8;
}

const _: () = assert!(
    are_distinct(&[HEARTBEAT, RECORD, ASK, ANSWER, LEAVING, SYNCS, FORKS, RECORD_STATE, UNKNOWN]),
    "a kind of frame of a control link has only one meaning"
);
const _: () = assert!(
    are_distinct(&[replication::SLICE, replication::LOCK, replication::FETCH, UNKNOWN]),
    "a kind of frame of a replication link has only one meaning"
);

const fn are_distinct(kinds: &[u8]) -> bool {
    let mut at = 0;
    while at < kinds.len() {
        let mut other = at + 1;
        while other < kinds.len() {
            if kinds[at] == kinds[other] {
                return false;
            }
            other += 1;
        }
        at += 1;
    }
    true
}

/// Answers a frame of a kind that this version does not know.
///
/// Such an answer is never answered itself.
pub fn answer_unknown(link: &Link, unknown: &Frame) {
    tracing::debug!(
        kind = unknown.kind,
        "{} sent a kind of frame that this version does not know",
        link.name()
    );
    link.send(frame(UNKNOWN, unknown.channel, vec![unknown.kind]));
}

/// The kind that the other node does not know; `None` if the answer does not name it.
pub fn unknown_in(answer: &Frame) -> Option<u8> {
    answer.head.first().copied()
}

/// A frame without payload.
pub fn frame(kind: u8, channel: u64, head: Vec<u8>) -> Frame {
    Frame { channel, kind, head, payload: Chain::new() }
}

/// A request for a lease, or the answer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heartbeat {
    /// A request.
    Request {
        /// The lease that is requested.
        lease: LeaseRequest,
        /// The sender's clock ([`super::Copies::clock`]).
        clock: u64,
        /// The sender itself, and the nodes that it hears and has all replication links with.
        reached: BTreeSet<NodeId>,
        /// The answer may wait until something else is sent: the sender has a lease that lasts.
        may_wait: bool,
    },
    /// The answer: the lease that is granted.
    Grant(LeaseGrant),
}

impl Heartbeat {
    /// The frame that carries it.
    pub fn frame(&self) -> Frame {
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let head = match self {
            Heartbeat::Request { lease, clock, reached, may_wait } => {
                let kind = if *may_wait { 2 } else { 0 };
                let mut head = words(&[kind, lease.incarnation.0, lease.sent_at.0, lease.applied.0, *clock]);
                head.extend(reached.iter().flat_map(|node| node.0.to_le_bytes()));
                head
            }
            Heartbeat::Grant(grant) => words(&[1, grant.incarnation.0, grant.sent_at.0, grant.revision.0]),
        };
        frame(HEARTBEAT, 0, head)
    }

    /// Parses the head of such a frame; `None`: it is malformed.
    pub fn parse(head: &[u8]) -> Option<Heartbeat> {
        let (words, rest) = head.split_first_chunk::<32>()?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| words[at * 8 + byte]));
        let (incarnation, sent_at) = (Incarnation(word(1)), Instant(word(2)));
        match word(0) {
            kind @ (0 | 2) => {
                let (clock, rest) = rest.split_first_chunk::<8>()?;
                let (reached, []) = rest.as_chunks::<2>() else { return None };
                let reached = reached.iter().map(|node| NodeId(u16::from_le_bytes(*node))).collect();
                let lease = LeaseRequest { incarnation, sent_at, applied: Revision(word(3)) };
                let clock = u64::from_le_bytes(*clock);
                Some(Heartbeat::Request { lease, clock, reached, may_wait: kind == 2 })
            }
            1 if rest.is_empty() => {
                Some(Heartbeat::Grant(LeaseGrant { incarnation, sent_at, revision: Revision(word(3)) }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_the_clock_and_whom_its_sender_reaches() {
        let lease =
            LeaseRequest { incarnation: Incarnation(2), sent_at: Instant(3), applied: Revision(0x0405) };
        let reached = [NodeId(1), NodeId(0x0203)].into();
        let request = Heartbeat::Request { lease, clock: 7, reached, may_wait: false };
        let head = request.frame().head;
        assert_eq!(
            head[..],
            [
                0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 5, 4, 0, 0, 0, 0, 0,
                0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 3, 2
            ]
        );
        assert_eq!(Heartbeat::parse(&head), Some(request));
        for cut in [43, 41, 39, 31, 0] {
            assert_eq!(Heartbeat::parse(&head[..cut]), None, "{cut}");
        }
        let mut other = head;
        other[0] = 3;
        assert_eq!(Heartbeat::parse(&other), None);
        other[0] = 2;
        let patient = Heartbeat::parse(&other).unwrap();
        assert!(matches!(patient, Heartbeat::Request { clock: 7, may_wait: true, .. }));
        assert_eq!(patient.frame().head, other);
    }

    #[test]
    fn a_grant_is_four_words() {
        let grant = LeaseGrant { incarnation: Incarnation(2), sent_at: Instant(3), revision: Revision(4) };
        let head = Heartbeat::Grant(grant).frame().head;
        assert_eq!(
            head[..],
            [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(Heartbeat::parse(&head), Some(Heartbeat::Grant(grant)));
        assert_eq!(Heartbeat::parse(&[&head[..], &[0]].concat()), None);
    }
}
