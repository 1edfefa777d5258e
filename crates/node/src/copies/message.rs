//! What nodes say to each other over their control link (`docs/formats/replication-link.md`).

use base::{Chain, Instant};
use link::Frame;
use replica::{Incarnation, LeaseGrant, LeaseRequest, Revision};

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

/// A frame without payload.
pub fn frame(kind: u8, channel: u64, head: Vec<u8>) -> Frame {
    Frame { channel, kind, head, payload: Chain::new() }
}

/// A request for a lease with the sender's clock ([`super::Copies::clock`]) as its payload, which older nodes do not look at.
pub fn heartbeat(head: Vec<u8>, clock: u64) -> Frame {
    Frame { payload: Chain::copy_of(&clock.to_le_bytes()), ..frame(HEARTBEAT, 0, head) }
}

/// The clock of a heartbeat's sender, if it says one.
pub fn clock_of(heartbeat: &Frame) -> Option<u64> {
    Some(u64::from_le_bytes(heartbeat.payload.to_vec().try_into().ok()?))
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
}
