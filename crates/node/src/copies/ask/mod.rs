//! Requests from one node to another, and the answers.

use std::net::IpAddr;

use base::Chain;
use serde::{Deserialize, Serialize};

use super::agreement::{Agreed, MemberReport, Version};
use super::entry::{NewCopy, SpaceEntry};
use super::refused::Refused;
use super::snapshot::{SnapshotAnswer, SnapshotObstacle, SnapshotStep};

/// A request from one node to another.
///
/// `id` is the volume's identity, `revision` that of the cluster's record by which the sender acts; `offset`
/// and `len` are bytes of the slice, `size` is in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // Fields are explained where their names do not.
pub enum Ask {
    /// Create a copy of a volume. The node does not serve it before the record names it.
    MakeCopy(NewCopy),
    /// Delete a copy that could not be created or added, or whose volume was deleted.
    DropCopy {
        id: String,
        /// The request ([`NewCopy::asker`]) that gives up the copy, which could not be created or added;
        /// `None`: the volume was deleted.
        asker: Option<u64>,
    },
    /// Grow the copy of a volume to the size that the volume is about to have.
    GrowCopy { id: String, size: u64 },
    /// Give the copy of a volume the space policy that the volume is about to have.
    SetSpace { id: String, space: SpaceEntry },
    /// Report what the node knows of the volume's unit, if it acts in this epoch.
    TellUnit { id: String, epoch: u64 },
    /// Take a change of the volume's unit, if the node acts in this epoch.
    InstallUnit {
        id: String,
        epoch: u64,
        /// Take it only if this is the version that the node has.
        expected: Option<Version>,
        agreed: Box<Agreed>,
    },
    /// Stop serving the volume: the data that the other node has written alone is kept.
    YieldToFork {
        id: String,
        /// The volume's epoch when that was decided.
        epoch: u64,
    },
    /// Confirm that the node has everything that it has written alone, and could serve it; if not, the answer
    /// is an error.
    CanServeFork {
        id: String,
        /// The epoch that identifies the fork.
        epoch: u64,
    },
    /// Report whether a device of the node has a floating address, or commands that came through it are under
    /// way. The record says that the node holds the address.
    HasAddress { address: IpAddr },
    /// Report which of these volumes the node has, or may have in a pool that is not open.
    HasVolumes { ids: Vec<String> },
    /// Execute a request of the sender's HTTP interface: see `Config::peer_requests`.
    CarryOut {
        /// The identity of the volume that it is about, of which the receiver must have a copy; `None`: it is
        /// about something else that the receiver has, or knows.
        volume: Option<String>,
        /// The receiver first follows the record up to this revision; 0: it need not.
        revision: u64,
        request: String,
    },
    /// Return digests of a part of a volume's copy ([`super::digests()`]).
    Digests { id: String, slice: u16, offset: u64, len: u64 },
    /// Do a step of taking the snapshot with this number.
    Snapshot { number: u32, step: SnapshotStep },
    /// Return what the copy of a volume has of a snapshot.
    ReadSnapshot(SnapshotPart),
}

/// A part of what a copy has of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotPart {
    /// The volume's identity.
    pub id: String,
    /// The number of the snapshot.
    pub number: u32,
    /// The receiver first follows the record up to this revision.
    pub revision: u64,
    /// Where it begins in the volume, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub len: u64,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // Fields are explained where their names do not.
pub enum Answer {
    /// The request was executed, in this life of the node.
    Done { incarnation: u64 },
    /// What the node knows of a unit; `None`: it does not act in that epoch.
    Unit(Option<Box<MemberReport>>),
    /// Whether the node took the change.
    Taken(bool),
    /// The identities of the volumes that the node has, or may have.
    HasVolumes(Vec<String>),
    /// Whether the node has the address, or commands under way that came through it.
    Has(bool),
    /// The result of the execution, or why it was not begun.
    CarriedOut(Result<CarriedOut, Refused>),
    /// The step of a snapshot is done.
    Snapshot(SnapshotAnswer),
    /// SHA-256 digests, in order.
    Digests(Vec<[u8; 32]>),
    /// The node's copy cannot read a block of the part.
    Unreadable {
        /// Where the block begins in the slice, in bytes.
        offset: u64,
        /// The path of the disk, and where the block begins there, in bytes; `None`: the block is lost.
        disk: Option<(String, u64)>,
    },
    /// What the copy has of a snapshot, or why it cannot be read.
    SnapshotRead(Result<SnapshotData, SnapshotObstacle>),
}

/// What a copy has of a part of a snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapshotData {
    /// How many bytes there are.
    pub len: u64,
    /// The bytes: the payload of the frame with the answer.
    #[serde(skip)]
    pub data: Chain,
}

impl PartialEq for SnapshotData {
    fn eq(&self, other: &SnapshotData) -> bool {
        self.len == other.len && *self.data.contiguous() == *other.data.contiguous()
    }
}

impl Eq for SnapshotData {}

impl Answer {
    /// The payload of the frame with the answer.
    pub fn payload(&self) -> Chain {
        match self {
            Answer::SnapshotRead(Ok(read)) => read.data.clone(),
            _ => Chain::new(),
        }
    }

    /// The answer with the payload of the frame with which it has come.
    #[must_use]
    pub fn with_payload(self, payload: Chain) -> Answer {
        match self {
            Answer::SnapshotRead(Ok(read)) => {
                Answer::SnapshotRead(Ok(SnapshotData { data: payload, ..read }))
            }
            other => other,
        }
    }
}

/// The result of a request that was executed for another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedOut {
    /// The answer for the caller that made the request.
    pub answer: String,
    /// The revision of the cluster's record that the executing node acts by.
    pub revision: u64,
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::version_1::check_all;

    /// What version 1 sends. Later versions must read it: add messages, and change none.
    #[test]
    fn messages_of_version_1_are_read_and_keep_what_they_say() {
        let sent: Value = serde_json::from_str(include_str!("version-1.json")).unwrap();
        check_all::<Ask>(&sent["requests"]);
        check_all::<SnapshotStep>(&sent["snapshot steps"]);
        check_all::<Answer>(&sent["answers"]);
        check_all::<SnapshotAnswer>(&sent["snapshot answers"]);
        check_all::<Refused>(&sent["refusals"]);
        check_all::<SnapshotObstacle>(&sent["snapshot obstacles"]);
    }
}
