//! The complete state that a node's engine keeps across restarts, and the batches that change it. A batch is
//! one transaction of the disk, so log, vote, members and applied state never contradict each other.

use std::collections::{BTreeMap, VecDeque};

use raft::eraftpb::Entry;
use thiserror::Error;

use super::promise::Promise;
use crate::codec::{Malformed, Reader, Writer};
use crate::members::Members;
use crate::node_id::NodeId;
use crate::record::{Record, Remembered};
use crate::transaction::{Revision, Versioned};
use crate::watch::Everything;

/// The node and the cluster that a record belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster, a random number drawn when it is founded.
    pub cluster: u128,
    /// How often a survivor was made a new cluster. Messages of another generation are refused.
    pub generation: u64,
    /// This node.
    pub node: NodeId,
}

/// The position of an entry in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The term of the leader that wrote it. It comes first for comparisons: of two logs, the one that ends
    /// with the later term is the newer.
    pub term: u64,
    /// From 1.
    pub index: u64,
}

/// What Raft calls the hard state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vote {
    /// The newest term known.
    pub term: u64,
    /// The node that this node voted for in that term; 0: none.
    pub vote: u64,
    /// The last entry known to be committed; never less than what is applied.
    pub commit: u64,
}

/// The state of an engine as it is on the disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    /// The node and its cluster.
    pub identity: Identity,
    /// The hard state.
    pub vote: Vote,
    /// The last entry that is no longer in the log.
    pub compacted: Position,
    /// The log, from the entry after `compacted`.
    pub(crate) entries: VecDeque<Entry>,
    /// The last entry that `members` and `record` include.
    pub applied: u64,
    /// The members of the cluster.
    pub members: Members,
    /// The cluster's record.
    pub record: Record,
    /// What other nodes have promised to this one.
    pub promises: BTreeMap<NodeId, Promise>,
    /// The disk was set back: it lacks promises of this node, so the node no longer takes part.
    pub set_back: bool,
}

/// One transaction of the disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// First empty the log and the record.
    pub(crate) replaced: bool,
    pub(crate) vote: Vote,
    /// The entries that replace all from the first one's index on.
    pub(crate) entries: Vec<Entry>,
    /// Delete entries up to here.
    pub(crate) compacted: Position,
    pub(crate) applied: u64,
    pub(crate) revision: Revision,
    /// Transactions executed so far.
    pub(crate) sequence: u64,
    /// `None`: unchanged.
    pub(crate) members: Option<Members>,
    /// The keys that changed, with their values.
    pub(crate) writes: Vec<(String, Option<Versioned>)>,
    pub(crate) results: Vec<Remembered>,
    /// Delete results up to this sequence number.
    pub(crate) forgotten: u64,
    /// `None`: unchanged.
    pub(crate) promises: Option<BTreeMap<NodeId, Promise>>,
    pub(crate) set_back: bool,
}

/// Why a node cannot be made a new cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this node has never received the record of its cluster: there is nothing to continue with")]
pub struct Unforceable;

impl Saved {
    /// A cluster of one.
    ///
    /// It starts after an entry that is in no log, so that every other node first gets a snapshot with the
    /// members in it: raft-rs cannot replay changes of members onto an empty membership.
    pub fn founding(cluster: u128, node: NodeId) -> Saved {
        let start = Position { index: 1, term: 1 };
        Saved {
            vote: Vote { term: 1, vote: 0, commit: 1 },
            compacted: start,
            applied: 1,
            members: Members::only(node),
            ..Saved::joining(Identity { cluster, generation: 1, node })
        }
    }

    /// A node that is added to a cluster, which sends it everything.
    pub fn joining(identity: Identity) -> Saved {
        Saved {
            identity,
            vote: Vote::default(),
            compacted: Position::default(),
            entries: VecDeque::new(),
            applied: 0,
            members: Members::default(),
            record: Record::default(),
            promises: BTreeMap::new(),
            set_back: false,
        }
    }

    /// Makes this node the only voter of a new generation of the cluster, with everything that it has.
    ///
    /// This includes entries that may never have had a quorum. Changes of members among them have no effect,
    /// because they are of another generation. The other nodes are removed; they can only return as new ones.
    pub fn force_new_cluster(&mut self) -> Result<(), Unforceable> {
        if self.applied == 0 {
            return Err(Unforceable);
        }
        let me = self.identity.node;
        let others = self.members.voters.iter().chain(&self.members.learners).filter(|node| **node != me);
        let gone = self.members.gone.iter().chain(others).copied().filter(|node| *node != me).collect();
        self.members = Members { gone, ..Members::only(me) };
        self.identity.generation += 1;
        // All nodes that could tell what this node has forgotten are gone.
        self.promises.clear();
        self.set_back = false;
        Ok(())
    }

    /// The position of the last entry.
    pub fn last(&self) -> Position {
        let last = self.entries.back().map(|entry| Position { index: entry.index, term: entry.term });
        last.unwrap_or(self.compacted)
    }

    /// Sets the members, and drops the promises of nodes that left.
    pub(crate) fn set_members(&mut self, members: Members) {
        self.promises.retain(|node, _| members.has(*node));
        self.members = members;
    }

    /// Changes the state as the disk does for `batch`.
    pub fn write(&mut self, batch: &Batch) {
        if batch.replaced {
            self.entries.clear();
        }
        self.compacted = batch.compacted;
        self.append(&batch.entries);
        self.compact();
        self.vote = batch.vote;
        self.applied = batch.applied;
        if let Some(members) = &batch.members {
            self.members = members.clone();
        }
        if let Some(promises) = &batch.promises {
            self.promises = promises.clone();
        }
        self.set_back = batch.set_back;
        let mut now = if batch.replaced { Everything::default() } else { self.record.everything().clone() };
        now.revision = batch.revision;
        for (key, value) in &batch.writes {
            match value {
                Some(value) => now.entries.insert(key.clone(), value.clone()),
                None => now.entries.remove(key),
            };
        }
        let known = self.record.remembered().filter(|_| !batch.replaced);
        let results = known.chain(&batch.results).filter(|it| it.sequence > batch.forgotten).copied();
        self.record = Record::from_parts(now, batch.sequence, results);
    }

    /// Replaces all entries from the first one's index on by `entries`.
    pub(crate) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        assert!(first.index <= self.last().index + 1, "the log has no gap");
        let kept = self.entries.partition_point(|entry| entry.index < first.index);
        self.entries.truncate(kept);
        self.entries.extend(entries.iter().cloned());
    }

    /// Drops the entries up to `compacted`.
    pub(crate) fn compact(&mut self) {
        let gone = self.entries.partition_point(|entry| entry.index <= self.compacted.index);
        self.entries.drain(..gone);
    }

    /// Members and record as bytes.
    pub(crate) fn encode_state(&self) -> Vec<u8> {
        let mut to = Writer::default();
        self.members.encode(&mut to);
        to.0.extend(self.record.encode());
        to.0
    }

    /// Checks that the parts are consistent; otherwise says what is wrong with the data from a disk.
    pub(super) fn verify(&self) -> Result<(), &'static str> {
        let indices = self.entries.iter().map(|entry| entry.index);
        let holds = |condition: bool, what| if condition { Ok(()) } else { Err(what) };
        holds(indices.eq(self.compacted.index + 1..=self.last().index), "the log has a gap")?;
        holds(self.compacted.index <= self.applied, "the log lacks what was not applied")?;
        holds(self.applied <= self.vote.commit, "more was applied than committed")?;
        holds(self.vote.commit <= self.last().index, "more was committed than the log has")?;
        holds(self.last().term <= self.vote.term, "the log is newer than the term")?;
        holds(self.members.voters.is_disjoint(&self.members.learners), "a node has two roles")?;
        holds(
            !self.members.gone.iter().any(|node| self.members.has(*node)),
            "a removed node is still listed",
        )?;
        self.record.verify()
    }

    /// Asserts that the parts are consistent.
    pub fn check(&self) {
        assert_eq!(self.verify(), Ok(()));
    }
}

/// Decodes the result of [`Saved::encode_state`].
pub(crate) fn decode_state(bytes: &[u8]) -> Result<(Members, Record), Malformed> {
    let mut from = Reader::new(bytes);
    let members = Members::decode(&mut from)?;
    Ok((members, Record::decode(from.rest())?))
}
