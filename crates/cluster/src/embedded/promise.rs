//! What nodes remember of each other's promises, so that a node whose disk was set back finds out. See
//! `docs/why/record.md`.

use raft::eraftpb::{Message, MessageType};

use super::saved::{Position, Saved};
use crate::codec::{Malformed, Reader, Writer};

/// What a node has promised to another one, as far as the other one remembers.
///
/// A node whose disk does not have it was set back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// The term that it had reached.
    pub term: u64,
    /// The node that it voted for in that term; 0: unknown.
    pub vote: u64,
    /// The last entry that it acknowledged in that term. A leader of a later term may replace this entry. The
    /// message itself does not contain the entry's term.
    pub acknowledged: Position,
    /// The last entry that it acknowledged and that is committed. It must never lose this one.
    pub committed: Position,
    /// The last entry that it sent as a leader and that was accepted. It may or may not have counted itself
    /// for this entry, because it sends entries while its disk writes them.
    pub sent: Position,
}

impl Promise {
    /// What `message` promises on behalf of its sender.
    ///
    /// Only kinds whose term is on the sender's disk count: a pre-vote is about a term that may never exist.
    pub(super) fn of(message: &Message) -> Promise {
        let (term, reject) = (message.term, message.reject);
        match message.get_msg_type() {
            MessageType::MsgAppend => {
                let before = Position { index: message.index, term: message.log_term };
                let sent =
                    message.entries.last().map_or(before, |it| Position { index: it.index, term: it.term });
                Promise { term, vote: message.from, sent, ..Promise::default() }
            }
            MessageType::MsgRequestVote | MessageType::MsgHeartbeat | MessageType::MsgSnapshot => {
                Promise { term, vote: message.from, ..Promise::default() }
            }
            MessageType::MsgRequestVoteResponse if !reject => {
                Promise { term, vote: message.to, ..Promise::default() }
            }
            MessageType::MsgAppendResponse if !reject => {
                let acknowledged = Position { index: message.index, term: 0 };
                Promise { term, acknowledged, ..Promise::default() }
            }
            MessageType::MsgRequestVoteResponse
            | MessageType::MsgAppendResponse
            | MessageType::MsgHeartbeatResponse => Promise { term, ..Promise::default() },
            _ => Promise::default(),
        }
    }

    /// Combines two promises of the same node.
    pub(super) fn and(self, other: Promise) -> Promise {
        let (committed, sent) = (self.committed.max(other.committed), self.sent.max(other.sent));
        let (older, newer) = if self.term <= other.term { (self, other) } else { (other, self) };
        if older.term < newer.term {
            return Promise { committed, sent, ..newer };
        }
        Promise {
            term: newer.term,
            vote: newer.vote.max(older.vote),
            acknowledged: newer.acknowledged.max(older.acknowledged),
            committed,
            sent,
        }
    }

    /// Whether `saved`, the content of the promising node's disk, keeps the promise.
    pub(super) fn is_kept_by(&self, saved: &Saved) -> bool {
        let now = saved.vote;
        let has = |entry: Position| {
            let is_same = |term| entry.term == 0 || term == entry.term;
            entry.index <= saved.compacted.index || raft::Storage::term(saved, entry.index).is_ok_and(is_same)
        };
        let in_term = || (self.vote == 0 || self.vote == now.vote) && has(self.acknowledged);
        let term = now.term > self.term || (now.term == self.term && in_term());
        term && has(self.committed)
    }

    pub(super) fn encode(&self, out: &mut Writer) {
        let entries = [self.acknowledged, self.committed, self.sent].map(|it| [it.index, it.term]);
        [[self.term, self.vote]].into_iter().chain(entries).flatten().for_each(|field| out.u64(field));
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Promise, Malformed> {
        let mut next = || from.u64();
        let (term, vote) = (next()?, next()?);
        let mut entry = || Ok(Position { index: next()?, term: next()? });
        Ok(Promise { term, vote, acknowledged: entry()?, committed: entry()?, sent: entry()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::saved::Identity;
    use crate::node_id::NodeId;

    fn message(kind: MessageType, reject: bool) -> Message {
        let mut message = Message::default();
        message.set_msg_type(kind);
        (message.from, message.to, message.term, message.index, message.reject) = (4, 5, 7, 10, reject);
        message
    }

    #[test]
    fn votes_and_acknowledgements_are_promises() {
        let mut saved = Saved::joining(Identity { cluster: 9, generation: 1, node: NodeId::new(4).unwrap() });
        let is_kept = |saved: &Saved, kind, reject| Promise::of(&message(kind, reject)).is_kept_by(saved);
        let (vote, append) = (MessageType::MsgRequestVoteResponse, MessageType::MsgAppendResponse);
        (saved.vote.term, saved.vote.vote) = (7, 0);
        assert!(!is_kept(&saved, vote, false), "the vote is not on the disk");
        assert!(is_kept(&saved, vote, true), "nothing was given");
        saved.vote.vote = 5;
        assert!(is_kept(&saved, vote, false));
        assert!(!is_kept(&saved, MessageType::MsgRequestVote, false), "it is its own candidate");
        saved.vote.vote = 6;
        assert!(!is_kept(&saved, vote, false), "it was given to somebody else");
        assert!(!is_kept(&saved, append, false), "nor are the entries");
        assert!(is_kept(&saved, append, true));
        saved.vote.term = 8;
        assert!(is_kept(&saved, append, false), "of an earlier term");
        saved.vote.term = 6;
        assert!(!is_kept(&saved, append, true), "not even the term is there");
        assert!(is_kept(&saved, MessageType::MsgRequestPreVote, false), "a term that may never be");
    }

    #[test]
    fn commitments_outlast_their_term() {
        let mut saved = Saved::joining(Identity { cluster: 9, generation: 1, node: NodeId::new(4).unwrap() });
        (saved.vote.term, saved.compacted) = (8, Position { index: 10, term: 6 });
        let at = |index| Position { index, term: 6 };
        let of = |term, acknowledged, committed| {
            let (acknowledged, committed) = (at(acknowledged), at(committed));
            Promise { term, vote: 5, acknowledged, committed, ..Promise::default() }
        };
        assert!(of(7, 11, 10).is_kept_by(&saved), "a leader may replace what is not committed");
        assert!(!of(7, 11, 11).is_kept_by(&saved));
        let entry = |index, term| raft::eraftpb::Entry { index, term, ..Default::default() };
        saved.append(&[entry(11, 5)]);
        assert!(!of(7, 11, 11).is_kept_by(&saved), "another entry is in that place");
        saved.append(&[entry(11, 6)]);
        assert!(of(7, 11, 11).is_kept_by(&saved));
        assert_eq!(of(7, 11, 10).and(of(8, 9, 9)), of(8, 9, 10));
        assert_eq!(of(8, 9, 9).and(of(7, 11, 10)), of(8, 9, 10), "in any order");
        let no_vote = Promise { vote: 0, ..of(8, 12, 1) };
        assert_eq!(of(8, 9, 9).and(no_vote), of(8, 12, 9), "both are of that term");
    }
}
