//! What raft-rs reads: the log and the state in memory. They have everything that is on the disk or on its
//! way there.

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError, util};

use super::saved::{Position, Saved, Vote};
use crate::members::Members;

impl Storage for Saved {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState { hard_state: self.vote.hard_state(), conf_state: conf_state(&self.members) })
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.compacted.index {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        if high > self.last().index + 1 {
            return Err(raft::Error::Store(StorageError::Unavailable));
        }
        let offset = |index: u64| (index - self.compacted.index - 1) as usize;
        let mut entries = self.entries.range(offset(low)..offset(high)).cloned().collect();
        util::limit_size(&mut entries, max_size.into());
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.compacted.index {
            return Ok(self.compacted.term);
        }
        let Some(offset) = index.checked_sub(self.compacted.index + 1) else {
            return Err(raft::Error::Store(StorageError::Compacted));
        };
        let entry = self.entries.get(offset as usize);
        entry.map(|entry| entry.term).ok_or(raft::Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.compacted.index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last().index)
    }

    fn snapshot(&self, request_index: u64, _: u64) -> raft::Result<Snapshot> {
        if request_index > self.applied {
            return Err(raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        }
        let position = Position { index: self.applied, term: self.term(self.applied)? };
        Ok(snapshot(position, &self.members, self.encode_state()))
    }
}

impl Vote {
    pub(super) fn of(state: &HardState) -> Vote {
        Vote { term: state.term, vote: state.vote, commit: state.commit }
    }

    fn hard_state(self) -> HardState {
        HardState { term: self.term, vote: self.vote, commit: self.commit, ..HardState::default() }
    }
}

/// A snapshot for raft-rs with the state `data` at `position`.
pub(super) fn snapshot(position: Position, members: &Members, data: Vec<u8>) -> Snapshot {
    let mut snapshot = Snapshot { data: data.into(), ..Snapshot::default() };
    let metadata = snapshot.mut_metadata();
    (metadata.index, metadata.term) = (position.index, position.term);
    metadata.set_conf_state(conf_state(members));
    snapshot
}

fn conf_state(members: &Members) -> ConfState {
    ConfState {
        voters: members.voters.iter().map(|node| node.raft()).collect(),
        learners: members.learners.iter().map(|node| node.raft()).collect(),
        ..ConfState::default()
    }
}
