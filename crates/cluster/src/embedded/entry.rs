//! The content of a log entry. raft-rs writes its entries as protobuf, but we never read protobuf from a wire
//! or a disk (because of RUSTSEC-2024-0437). So entries are sent and stored in an encoding of our own, from
//! which raft-rs's entries are built.

use raft::eraftpb::{ConfChange, ConfChangeType, Entry, EntryType};

use crate::codec::{Malformed, Reader, Writer};
use crate::members::MemberChange;
use crate::node_id::NodeId;
use crate::transaction::Transaction;

/// The content of an entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A new leader's first entry, or a proposal that raft-rs did not admit.
    Nothing,
    Transaction(Command),
    Members(Proposal),
}

/// A transaction, and how many transactions its proposer had seen executed; see `record`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) seen: u64,
    pub(crate) transaction: Transaction,
}

/// A change of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proposal {
    /// The proposer's ID for it.
    pub(crate) op_id: u128,
    /// The cluster's generation when it was proposed: after `force_new_cluster` the change has no effect.
    pub(crate) generation: u64,
    pub(crate) change: MemberChange,
}

/// The kinds of content on disks and wires.
const NOTHING: u8 = 0;
const TRANSACTION: u8 = 1;
const MEMBERS: u8 = 2;

impl Command {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.u64(self.seen);
        self.transaction.encode(&mut to);
        to.0
    }

    fn decode(bytes: &[u8]) -> Result<Command, Malformed> {
        let mut from = Reader::new(bytes);
        let seen = from.u64()?;
        let transaction = Transaction::decode(&mut from)?;
        from.end()?;
        Ok(Command { seen, transaction })
    }
}

impl Proposal {
    /// The entry that raft-rs interprets as a change of its configuration.
    pub(crate) fn entry(&self) -> Entry {
        let mut entry = Entry::default();
        entry.set_entry_type(EntryType::EntryConfChange);
        entry.data = self.protobuf().into();
        entry.context = self.encode().into();
        entry
    }

    /// The change as raft-rs decodes it.
    pub(crate) fn conf_change(&self) -> ConfChange {
        let mut change = ConfChange::default();
        change.set_change_type(self.kind());
        change.node_id = self.change.node().raft();
        change
    }

    fn kind(&self) -> ConfChangeType {
        match self.change {
            MemberChange::Promote(_) => ConfChangeType::AddNode,
            MemberChange::Remove(_) => ConfChangeType::RemoveNode,
            MemberChange::Add(_) | MemberChange::Demote(_) => ConfChangeType::AddLearnerNode,
        }
    }

    /// `ConfChange` of `eraftpb.proto`: field 2, the kind; field 3, the node; both variable-length integers.
    fn protobuf(&self) -> Vec<u8> {
        let mut bytes = vec![2 << 3, self.kind() as u8, 3 << 3];
        let mut left = self.change.node().get();
        while left >= 0x80 {
            bytes.push(left as u8 | 0x80);
            left >>= 7;
        }
        bytes.push(left as u8);
        bytes
    }

    fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.u128(self.op_id);
        to.u64(self.generation);
        to.u8(match self.change {
            MemberChange::Add(_) => 1,
            MemberChange::Promote(_) => 2,
            MemberChange::Demote(_) => 3,
            MemberChange::Remove(_) => 4,
        });
        to.u16(self.change.node().get());
        to.0
    }

    fn decode(bytes: &[u8]) -> Result<Proposal, Malformed> {
        let mut from = Reader::new(bytes);
        let (op_id, generation, kind) = (from.u128()?, from.u64()?, from.u8()?);
        let node = NodeId::new(from.u16()?).ok_or(Malformed)?;
        from.end()?;
        let change = match kind {
            1 => MemberChange::Add(node),
            2 => MemberChange::Promote(node),
            3 => MemberChange::Demote(node),
            4 => MemberChange::Remove(node),
            _ => return Err(Malformed),
        };
        Ok(Proposal { op_id, generation, change })
    }
}

/// The content of `entry`. Entries from outside were created by [`from_parts`], which has checked that they
/// have one.
pub(crate) fn content(entry: &Entry) -> Result<Content, Malformed> {
    match entry.get_entry_type() {
        EntryType::EntryNormal if entry.data.is_empty() => Ok(Content::Nothing),
        EntryType::EntryNormal => Command::decode(&entry.data).map(Content::Transaction),
        EntryType::EntryConfChange => Proposal::decode(&entry.context).map(Content::Members),
        EntryType::EntryConfChangeV2 => Err(Malformed),
    }
}

/// Kind and bytes of `entry` for a disk or a wire.
pub(crate) fn to_parts(entry: &Entry) -> (u8, &[u8]) {
    match entry.get_entry_type() {
        EntryType::EntryNormal if entry.data.is_empty() => (NOTHING, &[]),
        EntryType::EntryNormal => (TRANSACTION, &entry.data),
        EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => (MEMBERS, &entry.context),
    }
}

/// The entry of the parts that [`to_parts`] returned.
pub(crate) fn from_parts(index: u64, term: u64, kind: u8, bytes: &[u8]) -> Result<Entry, Malformed> {
    let mut entry = match kind {
        NOTHING if bytes.is_empty() => Entry::default(),
        TRANSACTION => {
            Command::decode(bytes)?;
            Entry { data: bytes.to_vec().into(), ..Entry::default() }
        }
        MEMBERS => Proposal::decode(bytes)?.entry(),
        _ => return Err(Malformed),
    };
    (entry.index, entry.term) = (index, term);
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raft_reads_what_we_write_by_hand() {
        for (number, protobuf) in [(5, &[0x10, 1, 0x18, 5][..]), (300, &[0x10, 1, 0x18, 0xac, 2])] {
            let change = MemberChange::Remove(NodeId::new(number).unwrap());
            let proposal = Proposal { op_id: 9, generation: 3, change };
            assert_eq!(proposal.entry().data, protobuf);
            assert_eq!(content(&proposal.entry()), Ok(Content::Members(proposal)));
        }
    }

    #[test]
    fn entries_survive_disks_and_wires() {
        let command = Command { seen: 4, transaction: Transaction::new(1).put("a", "b") };
        let change = MemberChange::Add(NodeId::new(7).unwrap());
        let mut entries =
            [Entry::default(), Proposal { op_id: 1, generation: 2, change }.entry(), Entry::default()];
        entries[2].data = command.encode().into();
        for mut entry in entries {
            (entry.index, entry.term) = (8, 9);
            let (kind, bytes) = to_parts(&entry);
            assert_eq!(from_parts(8, 9, kind, bytes), Ok(entry.clone()));
            assert_eq!(from_parts(8, 9, 3, bytes), Err(Malformed));
            assert_eq!(from_parts(8, 9, kind, &[bytes, &[0]].concat()), Err(Malformed));
        }
    }
}
