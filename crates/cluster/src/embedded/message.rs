//! The messages between engines, byte by byte; see `docs/formats/cluster.md`.

use raft::eraftpb::{Message, MessageType};

use super::entry;
use super::log::snapshot;
use super::promise::Promise;
use super::saved::{Identity, Position, Saved, decode_state};
use crate::codec::{Malformed, Reader, Writer};
use crate::limits::MESSAGE_BYTES_MAX;
use crate::node_id::NodeId;

const VERSION: u8 = 1;

/// The number of each kind. They are raft-rs's; kinds that a node only sends to itself are left out.
const KINDS: &[(u8, MessageType)] = &[
    (2, MessageType::MsgPropose),
    (APPEND, MessageType::MsgAppend),
    (4, MessageType::MsgAppendResponse),
    (5, MessageType::MsgRequestVote),
    (6, MessageType::MsgRequestVoteResponse),
    (SNAPSHOT, MessageType::MsgSnapshot),
    (HEARTBEAT, MessageType::MsgHeartbeat),
    (HEARTBEAT_ANSWER, MessageType::MsgHeartbeatResponse),
    (14, MessageType::MsgTimeoutNow),
    (15, MessageType::MsgReadIndex),
    (16, MessageType::MsgReadIndexResp),
    (17, MessageType::MsgRequestPreVote),
    (18, MessageType::MsgRequestPreVoteResponse),
];

const APPEND: u8 = 3;
const SNAPSHOT: u8 = 7;
const HEARTBEAT: u8 = 8;
const HEARTBEAT_ANSWER: u8 = 9;
/// Asks which of the sender's promises the receiver remembers; see [`Content::Question`].
const QUESTION: u8 = 20;
const ANSWER: u8 = 21;

/// Sender and receiver of a message.
pub(super) struct Envelope {
    pub(super) cluster: u128,
    pub(super) generation: u64,
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    /// What the sender remembers of the receiver's promises.
    pub(super) promised: Promise,
}

/// The content of a message.
#[derive(Debug, PartialEq)]
pub(super) enum Content {
    /// A message of raft-rs.
    Raft(Message),
    /// Asks which of the sender's promises the receiver remembers. An answer with the same ID was sent after
    /// the question; other messages under way may be older.
    Question(u64),
    /// The answer to the question with this ID.
    Answer(u64),
}

/// The bytes of a message from the node `identity` to `to`, whose remembered promises are `promised`; `None`:
/// the message is not for another node.
pub(super) fn encode(
    identity: &Identity,
    to: NodeId,
    promised: &Promise,
    content: &Content,
) -> Option<Vec<u8>> {
    let (kind, reject, snapshot) = match content {
        Content::Raft(message) => {
            let (kind, _) = KINDS.iter().find(|(_, kind)| *kind == message.get_msg_type())?;
            (*kind, message.reject, message.has_snapshot())
        }
        Content::Question(_) => (QUESTION, false, false),
        Content::Answer(_) => (ANSWER, false, false),
    };
    let mut out = Writer::default();
    out.u8(VERSION);
    out.u8(kind);
    out.u8(reject.into());
    out.u8(snapshot.into());
    out.u16(identity.node.get());
    out.u16(to.get());
    out.u128(identity.cluster);
    out.u64(identity.generation);
    promised.encode(&mut out);
    match content {
        Content::Raft(message) => encode_raft(message, &mut out),
        Content::Question(name) | Content::Answer(name) => out.u64(*name),
    }
    Some(out.seal())
}

fn encode_raft(message: &Message, out: &mut Writer) {
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
        // In these messages the entry is the ID of a read.
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
}

/// What each message begins with.
struct Head {
    kind: u8,
    reject: bool,
    has_snapshot: bool,
    envelope: Envelope,
}

impl Head {
    fn decode(from: &mut Reader<'_>) -> Result<Head, Malformed> {
        if from.u8()? != VERSION {
            return Err(Malformed);
        }
        let (kind, reject, has_snapshot) = (from.u8()?, from.flag()?, from.flag()?);
        let mut node = || NodeId::new(from.u16()?).ok_or(Malformed);
        let (sender, to) = (node()?, node()?);
        let (cluster, generation) = (from.u128()?, from.u64()?);
        let promised = Promise::decode(from)?;
        let envelope = Envelope { cluster, generation, from: sender, to, promised };
        Ok(Head { kind, reject, has_snapshot, envelope })
    }
}

/// Whether the log of the node `identity` cannot grow without this message, which [`decode`] could not read.
///
/// It arrived undamaged, and has entries or a snapshot, or is in a later version of the whole format.
pub(super) fn is_for_the_log(identity: &Identity, bytes: &[u8]) -> bool {
    let Ok(mut from) = Reader::sealed(bytes) else { return false };
    match Head::decode(&mut from) {
        Ok(Head { kind, envelope, .. }) => {
            let is_ours = envelope.cluster == identity.cluster && envelope.generation == identity.generation;
            is_ours && envelope.to == identity.node && matches!(kind, APPEND | SNAPSHOT)
        }
        Err(Malformed) => bytes.first().is_some_and(|version| *version > VERSION),
    }
}

/// The content of `bytes`, and the sender and receiver that they name.
///
/// Malformed content is an error, so all of the result can be interpreted.
pub(super) fn decode(bytes: &[u8]) -> Result<(Envelope, Content), Malformed> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(Malformed);
    }
    let mut from = Reader::sealed(bytes)?;
    let Head { kind, reject, has_snapshot, envelope } = Head::decode(&mut from)?;
    if matches!(kind, QUESTION | ANSWER) {
        let name = from.u64()?;
        from.end()?;
        let content = if kind == QUESTION { Content::Question(name) } else { Content::Answer(name) };
        return if reject || has_snapshot { Err(Malformed) } else { Ok((envelope, content)) };
    }
    let mut message = Message::default();
    let kind = KINDS.iter().find(|(it, _)| *it == kind).ok_or(Malformed)?.1;
    message.set_msg_type(kind);
    (message.from, message.to, message.reject) = (envelope.from.raft(), envelope.to.raft(), reject);
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
    Ok((envelope, Content::Raft(message)))
}

/// Whether a message may reach its receiver some tenths of a second later, so that neither node wakes for it.
///
/// That is a heartbeat of the leader, or the answer to one, unless a read waits for it.
pub fn may_wait(bytes: &[u8]) -> bool {
    let is_heartbeat = matches!(bytes.get(1), Some(&(HEARTBEAT | HEARTBEAT_ANSWER)));
    let Some((_, Content::Raft(message))) = is_heartbeat.then(|| decode(bytes)).and_then(Result::ok) else {
        return false;
    };
    message.context.is_empty()
}

/// Whether `saved`, the present content of the sender's disk, has what a message promises.
///
/// For simulations, which check each message that leaves a node.
pub fn is_promise_kept(saved: &Saved, bytes: &[u8]) -> bool {
    match decode(bytes) {
        Ok((_, Content::Raft(message))) => Promise::of(&message).is_kept_by(saved),
        decoded => decoded.is_ok(),
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
            &[9, 0, 0, 0, 0, 0, 0, 0],                         // what is remembered: term,
            &[4, 0, 0, 0, 0, 0, 0, 0],                         // vote,
            &[8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], // acknowledged: index, term,
            &[7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], // committed,
            &[2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], // and sent
            &[6, 0, 0, 0, 0, 0, 0, 0],                         // term
            &[0; 16],                                          // log term, index
            &[7, 0, 0, 0, 0, 0, 0, 0],                         // commit
            &[0; 32],            // commit term, requested snapshot, hint, priority
            &[1, 0, 0, 0, b'r'], // context
            &[0, 0, 0, 0],       // entries
        ]
        .concat();
        let [acknowledged, committed, sent] = [8, 7, 2].map(|index| Position { index, term: 1 });
        let promised = Promise { term: 9, vote: 4, acknowledged, committed, sent };
        let content = Content::Raft(message);
        let bytes = encode(&identity, node(5), &promised, &content).unwrap();
        assert_eq!(bytes[..bytes.len() - 4], expected);
        let (envelope, back) = decode(&bytes).unwrap();
        assert_eq!((envelope.from, envelope.to, envelope.promised), (node(4), node(5), promised));
        assert_eq!(back, content);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(decode(&damaged).is_err(), "byte {at}");
        }
    }

    /// Puts a byte at an offset, and the right checksum after it.
    fn with(bytes: &[u8], at: usize, value: u8) -> Vec<u8> {
        let mut changed = bytes[..bytes.len() - 4].to_vec();
        changed[at] = value;
        changed.extend(base::crc32c(&changed).to_le_bytes());
        changed
    }

    #[test]
    fn entries_of_a_later_version_are_for_the_log() {
        let sender = Identity { cluster: 9, generation: 3, node: node(4) };
        let receiver = Identity { node: node(5), ..sender };
        let bytes = |kind| {
            let mut message = Message::default();
            message.set_msg_type(kind);
            (message.from, message.to) = (4, 5);
            message.entries = vec![raft::eraftpb::Entry::default()].into();
            let content = Content::Raft(message);
            encode(&sender, node(5), &Promise::default(), &content).unwrap()
        };
        let append = bytes(MessageType::MsgAppend);
        // Before the length of the only entry, which is empty, and the checksum.
        let kind = append.len() - 9;
        let later = with(&append, kind, 3);
        assert!(decode(&append).is_ok() && decode(&later).is_err());
        assert!(is_for_the_log(&receiver, &later));
        let other = Identity { generation: 4, ..receiver };
        assert!(!is_for_the_log(&other, &later), "of another generation");
        assert!(!is_for_the_log(&sender, &later), "for another node");
        assert!(!is_for_the_log(&receiver, &later[..later.len() - 1]), "damaged");
        let other = with(&bytes(MessageType::MsgHeartbeat), kind, 3);
        assert!(decode(&other).is_err() && !is_for_the_log(&receiver, &other));
        assert!(is_for_the_log(&receiver, &with(&append, 0, 2)), "another version of messages");
        assert!(!is_for_the_log(&receiver, &with(&append, 1, 22)), "another kind of message");
    }

    #[test]
    fn heartbeats_for_which_no_read_waits_may_wait() {
        let identity = Identity { cluster: 9, generation: 3, node: node(4) };
        let may = |kind, context: &[u8]| {
            let mut message = Message::default();
            message.set_msg_type(kind);
            (message.from, message.to, message.context) = (4, 5, context.to_vec().into());
            let bytes = encode(&identity, node(5), &Promise::default(), &Content::Raft(message));
            may_wait(&bytes.unwrap())
        };
        assert!(may(MessageType::MsgHeartbeat, b"") && may(MessageType::MsgHeartbeatResponse, b""));
        assert!(!may(MessageType::MsgHeartbeat, b"r") && !may(MessageType::MsgHeartbeatResponse, b"r"));
        assert!(!may(MessageType::MsgAppend, b"") && !may(MessageType::MsgAppendResponse, b""));
        assert!(!may_wait(&[]) && !may_wait(&[1, HEARTBEAT, 0]));
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

        let raft = [append, restore, vote].map(Content::Raft);
        for content in raft.into_iter().chain([Content::Question(7), Content::Answer(8)]) {
            let bytes = encode(&identity, node(5), &Promise::default(), &content).unwrap();
            let (envelope, back) = decode(&bytes).unwrap();
            assert_eq!((envelope.cluster, envelope.generation), (9, 3));
            assert_eq!(back, content);
            whatever_it_says_it_means_something_or_is_malformed(&bytes);
        }
    }

    fn whatever_it_says_it_means_something_or_is_malformed(bytes: &[u8]) {
        let (mut malformed, len) = (0, bytes.len() - 4);
        for at in 0..len {
            for value in [0, 1, 2, 0x7f, 0x80, 0xff] {
                match decode(&with(bytes, at, value)) {
                    Ok((_, Content::Question(_) | Content::Answer(_))) => {}
                    Ok((_, Content::Raft(message))) => {
                        message.entries.iter().for_each(|it| drop(entry::content(it).unwrap()))
                    }
                    Err(Malformed) => malformed += 1,
                }
            }
        }
        assert!(malformed > 0 && malformed < len * 6);
    }
}
