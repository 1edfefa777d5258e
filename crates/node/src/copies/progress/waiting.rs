//! What a resync waits for, as [`Progress`] sees it on either node, and why a copy is not let in.

use std::fmt;
use std::time::Duration;

use base::Instant;
use replica::{NodeId, Slot, SyncFrom, SyncNext};
use serde::{Deserialize, Serialize};

use super::super::budget::Restraint;
use super::super::entry::VolumeEntry;
use super::{Progress, STILL_MIN};

/// What a resync waits for; JSON on the wire.
///
/// The text reads on after "waits for".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncWait {
    /// What it waits for.
    pub awaited: Awaited,
    /// How long nothing has happened, in seconds; `None`: unknown.
    pub seconds: Option<u64>,
}

/// What a resync can wait for.
///
/// `region` is the number of a region in the slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // Fields are explained where their names do not.
pub enum Awaited {
    /// The source has to answer.
    Answer(#[serde(with = "number")] NodeId),
    /// The source has to read a region.
    Read {
        #[serde(with = "number")]
        source: NodeId,
        slice: u16,
        region: u64,
    },
    /// The copy has to write a region to its disks.
    Write {
        #[serde(with = "number")]
        node: NodeId,
        slice: u16,
        region: u64,
    },
    /// Hosts' writes to a region have to end.
    HostWrites { slice: u16, region: u64 },
    /// The source has to be allowed to give more.
    Budget {
        #[serde(with = "number")]
        source: NodeId,
        /// What holds it back; `None`: hosts' writes.
        restraint: Option<Restraint>,
    },
    /// The next pass has to begin.
    Pass,
    /// The cluster's record has to let the copy join.
    Admission,
    /// What keeps the copy out has to end.
    KeptOut(KeptOut),
    /// The cluster's record has to say that the copy is in sync.
    Promotion,
    /// A node whose copy is in sync has to have a link to it.
    Link,
    /// The disks of the copy, which is on this node, have to finish what they were given before.
    EarlierWrites(#[serde(with = "number")] NodeId),
    /// The copy's node has to be heard from.
    Node(#[serde(with = "number")] NodeId),
    /// The copy's node has to open it.
    Opening(#[serde(with = "number")] NodeId),
    /// This node has to open the copy's pool.
    OpeningHere,
    /// An administrator has to resume it.
    Resumption {
        /// The user or token that paused it.
        by: String,
    },
    /// An administrator has to decide whose data is kept after a split brain.
    Decision { volume: String },
}

impl From<Awaited> for SyncWait {
    fn from(awaited: Awaited) -> SyncWait {
        SyncWait { awaited, seconds: None }
    }
}

impl Progress {
    /// What the resync waits for.
    ///
    /// It is shown at once if the copy on this node cannot continue, otherwise when nothing has happened for
    /// [`STILL_MIN`].
    pub(super) fn waits_for(&self, now: Instant, who: Who<'_>) -> Option<SyncWait> {
        let me = who.me;
        if self.has_failed() {
            return Some(Awaited::KeptOut(KeptOut::Failed(me)).into());
        }
        if self.has_no_room() {
            return Some(Awaited::KeptOut(KeptOut::NoRoom(me)).into());
        }
        if let Some(SyncFrom { source, awaits_disk, silent_ticks, .. }) = self.seen.own {
            let silent = replica::TICK * silent_ticks;
            let awaited = match source {
                Some(source) => Awaited::Answer(who.node_of(source)),
                None if awaits_disk => Awaited::EarlierWrites(me),
                None => Awaited::Link,
            };
            let seconds = (awaited != Awaited::Link).then_some(silent.as_secs());
            return (silent >= STILL_MIN).then_some(SyncWait { awaited, seconds });
        }
        let still = now.since(self.moved_at);
        let (slice, next) = self.seen.next?;
        if still < STILL_MIN {
            return None;
        }
        let awaited = match next {
            SyncNext::Read(region) => Awaited::Read { source: me, slice, region },
            SyncNext::Confirmed(region) => Awaited::Write { node: who.node_of(who.copy), slice, region },
            SyncNext::WritesEnd(region) => Awaited::HostWrites { slice, region },
            SyncNext::Room => Awaited::KeptOut(KeptOut::NoRoom(who.node_of(who.copy))),
            SyncNext::Budget => Awaited::Budget { source: me, restraint: self.seen.limited_by },
            SyncNext::Pass => Awaited::Pass,
            SyncNext::Admission => who.kept_out.copied().map_or(Awaited::Admission, Awaited::KeptOut),
            SyncNext::Promotion => Awaited::Promotion,
        };
        Some(SyncWait { awaited, seconds: Some(still.as_secs()) })
    }
}

impl fmt::Display for SyncWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.awaited.fmt(f)?;
        self.seconds.map_or(Ok(()), |seconds| write!(f, ", for {seconds} s"))
    }
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Awaited::Answer(source) => write!(f, "its source, {source}, to respond"),
            Awaited::Read { source, slice, region } => {
                write!(f, "the disks of its source, {source}, to read region {region} of slice {slice}")
            }
            Awaited::Write { node, slice, region } => {
                write!(f, "{node} to write region {region} of slice {slice} to its disks")
            }
            Awaited::HostWrites { slice, region } => {
                write!(f, "host writes to region {region} of slice {slice} to finish")
            }
            Awaited::Budget { source, restraint } => match restraint {
                Some(Restraint::Turn) => {
                    write!(f, "its turn: its source, {source}, resyncs other volumes first")
                }
                Some(Restraint::Paused) => f.write_str("an administrator to resume it"),
                Some(Restraint::NodeLimit) => write!(f, "the resync limit of its source, {source}"),
                Some(Restraint::ClusterLimit) => {
                    write!(f, "a share of the cluster's resync limit for its source, {source}")
                }
                Some(Restraint::Hosts) | None => {
                    write!(f, "its source, {source}, which gives host writes priority")
                }
            },
            Awaited::Pass => f.write_str("the next pass to start"),
            Awaited::Admission => f.write_str("the cluster's record to admit it"),
            Awaited::KeptOut(kept_out) => kept_out.fmt(f),
            Awaited::Promotion => f.write_str("the cluster's record to promote it"),
            Awaited::Link => f.write_str("a link to a node whose copy is in sync"),
            Awaited::EarlierWrites(node) => write!(f, "its disks on {node} to finish earlier writes"),
            Awaited::Node(node) => write!(f, "{node} to be reachable again (heartbeat timeout)"),
            Awaited::Opening(node) => write!(f, "{node} to open it and to request what it missed"),
            Awaited::OpeningHere => f.write_str("its pool on this node to open"),
            Awaited::Resumption { by } => write!(f, "an administrator to resume it (paused by {by})"),
            Awaited::Decision { volume } => write!(
                f,
                "an administrator to choose which data to keep: `ursa volume resolve-split-brain {volume} --keep NODE --discard-other`"
            ),
        }
    }
}

/// The number of a node, on the wire.
mod number {
    use replica::NodeId;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(node: &NodeId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u16(node.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<NodeId, D::Error> {
        u16::deserialize(deserializer).map(NodeId)
    }
}

/// The participants of a resync.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    /// The volume.
    pub volume: &'a VolumeEntry,
    /// This node.
    pub me: NodeId,
    /// The copy that is not in sync.
    pub copy: Slot,
    /// What keeps the copy out when it has nearly everything.
    pub kept_out: Option<&'a KeptOut>,
}

/// Why a copy that has nearly everything that it missed is not let in as a joiner.
///
/// The text reads on after "waits for".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptOut {
    /// Its node and the node of a copy in sync do not reach each other.
    Apart(#[serde(with = "number")] NodeId, #[serde(with = "number")] NodeId),
    /// Its node was started a moment ago, and takes part in nothing for this much longer.
    Quiet(#[serde(with = "number")] NodeId, Duration),
    /// It did not finish writes when it was last in sync, and stays out for this much longer.
    Penalty(Duration),
    /// One of its disks failed, and its node has not reported since that its pool is open again.
    Failed(#[serde(with = "number")] NodeId),
    /// The file system under its pool is full, and its node has not reported since that there is room.
    NoRoom(#[serde(with = "number")] NodeId),
}

impl fmt::Display for KeptOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeptOut::Apart(a, b) => write!(f, "{a} and {b} to reach each other over all links"),
            KeptOut::Quiet(node, left) => write!(
                f,
                "{} ms to pass: leases that {node} granted before its recent start may still be valid",
                left.as_millis()
            ),
            KeptOut::Penalty(left) => {
                let left = left.as_secs() + 1;
                write!(f, "{left} s to pass: it was too slow to finish writes when it was last in sync")
            }
            KeptOut::Failed(node) => {
                write!(f, "its pool on {node} to be reopened there after a disk failure (ursa pool reopen)")
            }
            KeptOut::NoRoom(node) => {
                write!(
                    f,
                    "free space in the file system under its pool on {node}: the resync then resumes automatically"
                )
            }
        }
    }
}

impl Who<'_> {
    fn node_of(&self, slot: Slot) -> NodeId {
        NodeId(self.volume.copy_in(slot).map_or(0, |copy| copy.node))
    }
}
