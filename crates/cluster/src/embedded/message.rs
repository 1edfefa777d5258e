//! What engines send each other, byte by byte: `docs/formats/cluster.md`.

use raft::eraftpb::{Message, MessageType};

use super::entry;
use super::log::snapshot;
use super::saved::{Identity, Position, Saved, decode_state};
use crate::codec::{Malformed, Reader, Writer};
use crate::limits::MESSAGE_BYTES_MAX;
use crate::node_id::NodeId;

const VERSION: u8 = 1;

/// Of each kind its number; they are raft-rs's, of which those that a node sends itself are left out.
const KINDS: &[(u8, MessageType)] = &[
    (2, MessageType::MsgPropose),
    (3, MessageType::MsgAppend),
    (4, MessageType::MsgAppendResponse),
    (5, MessageType::MsgRequestVote),
    (6, MessageType::MsgRequestVoteResponse),
    (7, MessageType::MsgSnapshot),
    (8, MessageType::MsgHeartbeat),
    (9, MessageType::MsgHeartbeatResponse),
    (14, MessageType::MsgTimeoutNow),
    (15, MessageType::MsgReadIndex),
    (16, MessageType::MsgReadIndexResp),
    (17, MessageType::MsgRequestPreVote),
    (18, MessageType::MsgRequestPreVoteResponse),
];

/// Whose message it is.
pub(super) struct Envelope {
    pub(super) cluster: u128,
    pub(super) generation: u64,
}

/// The bytes of `message` from the node `identity`; `None`: it is not for another node.
pub(super) fn encode(identity: &Identity, message: &Message) -> Option<(NodeId, Vec<u8>)> {
    let to = NodeId::of_raft(message.to)?;
    let (kind, _) = KINDS.iter().find(|(_, kind)| *kind == message.get_msg_type())?;
    let mut out = Writer::default();
    out.u8(VERSION);
    out.u8(*kind);
    out.u8(message.reject.into());
    out.u8(message.has_snapshot().into());
    out.u16(identity.node.get());
    out.u16(to.get());
    out.u128(identity.cluster);
    out.u64(identity.generation);
    for field in [message.term, message.log_term, message.index, message.commit, message.commit_term] {
        out.u64(field);
    }
    out.u64(message.request_snapshot);
    out.u64(message.reject_hint);
    out.u64(message.priority as u64);
    out.bytes(&message.context);
    out.count(message.entries.len());
    for it in &message.entries {
        let read = message.get_msg_type() == MessageType::MsgReadIndex;
        let read = read || message.get_msg_type() == MessageType::MsgReadIndexResp;
        // The entry of these is the name that a read has.
        let (kind, bytes) = if read { (0, &it.data[..]) } else { entry::to_parts(it) };
        out.u64(it.index);
        out.u64(it.term);
        out.u8(kind);
        out.bytes(bytes);
    }
    if message.has_snapshot() {
        let snapshot = message.get_snapshot();
        out.u64(snapshot.get_metadata().index);
        out.u64(snapshot.get_metadata().term);
        out.bytes(&snapshot.data);
    }
    Some((to, out.seal()))
}

/// The message in `bytes`, and whose it says it is. All that is in it means something.
pub(super) fn decode(bytes: &[u8]) -> Result<(Envelope, Message), Malformed> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(Malformed);
    }
    let mut from = Reader::sealed(bytes)?;
    if from.u8()? != VERSION {
        return Err(Malformed);
    }
    let mut message = Message::default();
    let number = from.u8()?;
    let kind = KINDS.iter().find(|(it, _)| *it == number).ok_or(Malformed)?.1;
    message.set_msg_type(kind);
    message.reject = from.flag()?;
    let has_snapshot = from.flag()?;
    message.from = NodeId::new(from.u16()?).ok_or(Malformed)?.raft();
    message.to = NodeId::new(from.u16()?).ok_or(Malformed)?.raft();
    let envelope = Envelope { cluster: from.u128()?, generation: from.u64()? };
    message.term = from.u64()?;
    message.log_term = from.u64()?;
    message.index = from.u64()?;
    message.commit = from.u64()?;
    message.commit_term = from.u64()?;
    message.request_snapshot = from.u64()?;
    message.reject_hint = from.u64()?;
    message.priority = from.u64()? as i64;
    message.context = from.bytes()?.to_vec().into();
    let read = matches!(kind, MessageType::MsgReadIndex | MessageType::MsgReadIndexResp);
    for _ in 0..from.count(21)? {
        let (index, term, kind) = (from.u64()?, from.u64()?, from.u8()?);
        let content = from.bytes()?;
        let entry = if read {
            if (index, term, kind) != (0, 0, 0) {
                return Err(Malformed);
            }
            raft::eraftpb::Entry { data: content.to_vec().into(), ..Default::default() }
        } else {
            entry::from_parts(index, term, kind, content)?
        };
        message.entries.push(entry);
    }
    if has_snapshot != (kind == MessageType::MsgSnapshot) {
        return Err(Malformed);
    }
    // raft-rs relies on these.
    let needs_entries = read || kind == MessageType::MsgPropose;
    if needs_entries && message.entries.is_empty() {
        return Err(Malformed);
    }
    if has_snapshot {
        let position = Position { index: from.u64()?, term: from.u64()? };
        let data = from.bytes()?;
        let (members, _) = decode_state(data)?;
        message.set_snapshot(snapshot(position, &members, data.to_vec()));
    }
    from.end()?;
    Ok((envelope, message))
}

/// What a message promises of its sender and `saved`, which is what the sender's disk holds in this moment, does not have: a vote that was given, or entries
/// that were acknowledged. For simulations, which look at each message that leaves a node.
///
/// # Errors
/// What is not on the disk.
pub fn check_promises(saved: &Saved, bytes: &[u8]) -> Result<(), &'static str> {
    let (_, message) = decode(bytes).map_err(|Malformed| "the message can be read")?;
    // Of an earlier term nothing is promised any more.
    if message.term < saved.vote.term {
        return Ok(());
    }
    let on_disk = (saved.vote.term, saved.vote.vote);
    let kept = |condition: bool, what| if condition { Ok(()) } else { Err(what) };
    match message.get_msg_type() {
        MessageType::MsgRequestVote => kept(on_disk == (message.term, message.from), "the vote for itself"),
        MessageType::MsgRequestVoteResponse if !message.reject => {
            kept(on_disk == (message.term, message.to), "the vote for another node")
        }
        MessageType::MsgAppendResponse if !message.reject => {
            kept(on_disk.0 == message.term && saved.last().index >= message.index, "entries")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::entry::{Command, Proposal};
    use crate::members::MemberChange;
    use crate::transaction::Transaction;

    fn node(number: u16) -> NodeId {
        NodeId::new(number).unwrap()
    }

    #[test]
    fn bytes_of_a_heartbeat() {
        let identity = Identity { cluster: 0x0201, generation: 3, node: node(4) };
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgHeartbeat);
        (message.from, message.to, message.term, message.commit) = (4, 5, 6, 7);
        message.context = b"r".to_vec().into();
        let expected: Vec<u8> = [
            &[1, 8, 0, 0][..],                                 // version, kind, reject, snapshot
            &[4, 0, 5, 0],                                     // from, to
            &[1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], // cluster
            &[3, 0, 0, 0, 0, 0, 0, 0],                         // generation
            &[6, 0, 0, 0, 0, 0, 0, 0],                         // term
            &[0; 16],                                          // log term, index
            &[7, 0, 0, 0, 0, 0, 0, 0],                         // commit
            &[0; 32],            // commit term, requested snapshot, hint, priority
            &[1, 0, 0, 0, b'r'], // context
            &[0, 0, 0, 0],       // entries
        ]
        .concat();
        let (to, bytes) = encode(&identity, &message).unwrap();
        assert_eq!(to, node(5));
        assert_eq!(bytes[..bytes.len() - 4], expected);
        assert_eq!(decode(&bytes).unwrap().1, message);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(decode(&damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_vote_that_is_not_on_the_disk_is_no_promise() {
        let mut saved = Saved::joining(Identity { cluster: 9, generation: 1, node: node(4) });
        let mut vote = Message::default();
        vote.set_msg_type(MessageType::MsgRequestVoteResponse);
        (vote.from, vote.to, vote.term) = (4, 5, 7);
        let check = |saved: &Saved, message: &Message| {
            check_promises(saved, &encode(&saved.identity, message).unwrap().1)
        };
        (saved.vote.term, saved.vote.vote) = (7, 0);
        assert_eq!(check(&saved, &vote), Err("the vote for another node"));
        vote.reject = true;
        assert_eq!(check(&saved, &vote), Ok(()), "nothing was given");
        vote.reject = false;
        saved.vote.vote = 5;
        assert_eq!(check(&saved, &vote), Ok(()));
        saved.vote.vote = 6;
        assert!(check(&saved, &vote).is_err(), "it was given to somebody else");
        let mut acknowledged = Message::default();
        acknowledged.set_msg_type(MessageType::MsgAppendResponse);
        (acknowledged.from, acknowledged.to, acknowledged.term, acknowledged.index) = (4, 5, 7, 1);
        assert_eq!(check(&saved, &acknowledged), Err("entries"));
        saved.vote.term = 8;
        assert_eq!(check(&saved, &acknowledged), Ok(()), "of an earlier term");
    }

    #[test]
    fn messages_survive_the_way() {
        let identity = Identity { cluster: 9, generation: 3, node: node(4) };
        let change = MemberChange::Promote(node(200));
        let mut append = Message::default();
        append.set_msg_type(MessageType::MsgAppend);
        (append.from, append.to, append.index, append.log_term) = (4, 5, 6, 7);
        let mut entries = vec![Proposal { op_id: 1, generation: 3, change }.entry(), Default::default()];
        let command = Command { seen: 1, transaction: Transaction::new(3).delete("x") };
        entries[1].data = command.encode().into();
        append.entries = entries.into();

        let mut restore = Message::default();
        restore.set_msg_type(MessageType::MsgSnapshot);
        (restore.from, restore.to) = (4, 5);
        let saved = Saved::founding(9, node(4));
        restore.set_snapshot(snapshot(saved.compacted, &saved.members, saved.encode_state()));

        let mut vote = Message::default();
        vote.set_msg_type(MessageType::MsgRequestPreVote);
        (vote.from, vote.to, vote.priority, vote.reject) = (4, 5, -1, true);

        for message in [append, restore, vote] {
            let (_, bytes) = encode(&identity, &message).unwrap();
            let (envelope, back) = decode(&bytes).unwrap();
            assert_eq!((envelope.cluster, envelope.generation), (9, 3));
            assert_eq!(back, message);
            whatever_it_says_it_means_something_or_is_malformed(&bytes[..bytes.len() - 4]);
        }
    }

    fn whatever_it_says_it_means_something_or_is_malformed(content: &[u8]) {
        let mut malformed = 0;
        for at in 0..content.len() {
            for value in [0, 1, 2, 0x7f, 0x80, 0xff] {
                let mut changed = content.to_vec();
                changed[at] = value;
                changed.extend(base::crc32c(&changed).to_le_bytes());
                match decode(&changed) {
                    Ok((_, message)) => {
                        message.entries.iter().for_each(|it| drop(entry::content(it).unwrap()))
                    }
                    Err(Malformed) => malformed += 1,
                }
            }
        }
        assert!(malformed > 0 && malformed < content.len() * 6);
    }
}
