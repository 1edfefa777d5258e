//! What a volume held when a snapshot was taken: any range of it, read through any node.
//!
//! What it guarantees: a read returns all bytes of the range, as the snapshot has them, or an error. All
//! copies that have a snapshot have the same, so it does not matter which one is read, nor whether it is in
//! sync now: this node's own if it has the snapshot, otherwise another node's. If a copy cannot be read, the
//! next one is. What was never written reads as zeros.
//!
//! Nothing is kept between reads, and snapshots do not change: any read may come from another copy than the
//! one before. If the snapshot is deleted meanwhile, reads fail.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use base::{ByteLen, ByteOffset, Chain, Instant};
use replica::NodeId;
use rt::sync::Semaphore;
use store::SnapshotError;

use super::super::forwarding::follow_to;
use super::super::relocation::entry_named;
use super::super::{Control, ControlError, Result};
use super::{complete, nodes_with, numbered, part_of, volume_entry};
use crate::copies::{
    Answer, Ask, SnapshotData, SnapshotEntry, SnapshotObstacle, SnapshotPart, SnapshotState, StandingEntry,
    VolumeEntry, pool_number,
};
use crate::data::{Slice, VolumeId};
use crate::member::{ClusterError, Reconciler};
use crate::shard::Shard;

/// The most bytes of one read.
pub const SNAPSHOT_READ_BYTES_MAX: u64 = 4 << 20;

/// The most bytes that another node is asked for at a time. They come over the control link, in between its
/// heartbeats.
const PART_BYTES_MAX: u64 = 1 << 20;
/// How many such parts a node waits for at the same time, and how many it reads for others: 4 MiB on a link
/// delay a heartbeat by 34 ms at 1 Gbit/s. Leases last a second.
const PARTS_AT_ONCE: usize = 4;
/// How many reads this node has under way for its own callers: 32 MiB.
const READS_AT_ONCE: usize = 8;

/// How long a read waits for its turn.
const TURN_WITHIN: Duration = Duration::from_secs(10);
/// How long one copy may take: its log may have to be recovered first, and disks may be slow. With four
/// copies and the turn that is less than the two minutes after which HTTP gives up.
const COPY_WITHIN: Duration = Duration::from_secs(20);

/// A volume as a snapshot has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeAt {
    /// The name or identity of the volume.
    pub volume: String,
    /// The name or number of the snapshot.
    pub snapshot: String,
}

/// Why a copy was not read.
#[derive(Clone, Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum CopyUnread {
    #[error("it is unreachable")]
    Unreached,
    #[error("too many reads of snapshots are in progress")]
    Busy,
    #[error(transparent)]
    Copy(#[from] SnapshotObstacle),
    #[error(transparent)]
    Node(#[from] ClusterError),
}

/// A range of a volume that can be read.
struct Readable {
    id: VolumeId,
    volume: VolumeEntry,
    snapshot: SnapshotEntry,
    range: Range<u64>,
    /// The nodes whose copies have the snapshot.
    nodes: Vec<u16>,
}

/// Limits the memory of reads.
pub(super) struct Turns {
    /// Reads of this node's callers.
    own: Semaphore,
    /// Parts that this node asks others for, until they have come: a part that another node has read may
    /// still be on its way.
    asked: Semaphore,
    /// Parts that other nodes ask for.
    of_peers: Semaphore,
}

impl Default for Turns {
    fn default() -> Turns {
        let parts = || Semaphore::new(PARTS_AT_ONCE);
        Turns { own: Semaphore::new(READS_AT_ONCE), asked: parts(), of_peers: parts() }
    }
}

/// A turn, which ends when this is dropped.
struct Turn<'a>(&'a Semaphore);

impl Turn<'_> {
    async fn wait(semaphore: &Semaphore, until: Instant) -> Option<Turn<'_>> {
        rt::timeout_at(until, semaphore.acquire(1)).await.ok()?;
        Some(Turn(semaphore))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.release(1);
    }
}

impl Control {
    /// Reads a range of a volume as a snapshot has it, from any copy that has the snapshot. The range may be
    /// anywhere in the volume, at most [`SNAPSHOT_READ_BYTES_MAX`] long.
    ///
    /// # Errors
    /// The volume or the snapshot is not found; [`ControlError::SnapshotPreparing`],
    /// [`ControlError::NotInSnapshot`], [`ControlError::Invalid`], [`ControlError::NoCopyHasSnapshot`],
    /// [`ControlError::SnapshotUnread`].
    pub async fn read_snapshot(&self, at: &VolumeAt, offset: ByteOffset, len: ByteLen) -> Result<Chain> {
        let reconciler = self.reconciler()?;
        let Readable { id, volume, snapshot, range, nodes } = readable(&reconciler, at, offset, len)?;
        let me = reconciler.me();
        let unread = |nodes| {
            let (volume, snapshot) = (volume.name.clone(), snapshot.name.clone());
            ControlError::SnapshotUnread { volume, snapshot, nodes }
        };
        let turns = &self.snapshots.reading;
        let turn = Turn::wait(&turns.own, rt::now() + TURN_WITHIN).await;
        let Some(_turn) = turn else { return Err(unread(vec![(me.0, CopyUnread::Busy)])) };
        let mut reasons = Vec::new();
        for node in in_order(&reconciler, &volume, nodes) {
            let read = match node == me {
                true => {
                    self.read_own_copy(id, snapshot.number, range.clone()).await.map_err(CopyUnread::Copy)
                }
                false => read_at(&reconciler, &turns.asked, node, id, snapshot.number, range.clone()).await,
            };
            match read {
                Ok(data) => return Ok(data),
                Err(reason) => reasons.push((node.0, reason)),
            }
        }
        // If it was deleted meanwhile, that is why.
        complete(&reconciler, &snapshot.number.to_string())?;
        Err(unread(reasons))
    }

    /// The same, from this node's own copy alone: for checks that compare copies.
    ///
    /// # Errors
    /// As for [`Control::read_snapshot`].
    pub async fn read_snapshot_here(&self, at: &VolumeAt, offset: ByteOffset, len: ByteLen) -> Result<Chain> {
        let reconciler = self.reconciler()?;
        let Readable { id, volume, snapshot, range, nodes } = readable(&reconciler, at, offset, len)?;
        let me = reconciler.me().0;
        // A pool is not asked for what the record does not say that it has.
        let read = match nodes.contains(&me) {
            true => self.read_own_copy(id, snapshot.number, range).await,
            false => Err(SnapshotObstacle::Absent),
        };
        read.map_err(|obstacle| ControlError::SnapshotUnread {
            volume: volume.name,
            snapshot: snapshot.name,
            nodes: vec![(me, obstacle.into())],
        })
    }

    /// Reads a part of this node's copy for another node.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(in crate::control) async fn read_snapshot_for(
        &self,
        reconciler: &Reconciler,
        part: SnapshotPart,
    ) -> Result<SnapshotData, SnapshotObstacle> {
        // What the sender has just taken must be found.
        if !follow_to(reconciler, part.revision).await {
            return Err(SnapshotObstacle::Changed);
        }
        let (entry, _) = numbered(reconciler, part.number).ok_or(SnapshotObstacle::Absent)?;
        let (volume, _) = volume_entry(reconciler, &part.id).ok_or(SnapshotObstacle::Absent)?;
        let of = entry.of(&part.id).filter(|_| entry.state == SnapshotState::Complete);
        let of = of.ok_or(SnapshotObstacle::Absent)?;
        let id = VolumeId::parse(&part.id).ok_or(SnapshotObstacle::Absent)?;
        let end = part.offset.checked_add(part.len).filter(|end| *end <= of.size);
        let end = end.filter(|_| part.len <= PART_BYTES_MAX).ok_or(SnapshotObstacle::Absent)?;
        if !nodes_with(of, &volume).any(|node| node == reconciler.me().0) {
            return Err(SnapshotObstacle::Absent);
        }
        let turn = Turn::wait(&self.snapshots.reading.of_peers, rt::now() + TURN_WITHIN).await;
        let Some(_turn) = turn else { return Err(SnapshotObstacle::Slow) };
        let data = self.read_own_copy(id, part.number, part.offset..end).await?;
        Ok(SnapshotData { len: part.len, data })
    }

    /// Reads a range of this node's copy, which has the snapshot according to the record: all pieces at the
    /// same time.
    async fn read_own_copy(
        &self,
        id: VolumeId,
        number: u32,
        range: Range<u64>,
    ) -> Result<Chain, SnapshotObstacle> {
        let not_served = |_| SnapshotObstacle::NotServed;
        let reconciler = self.reconciler().map_err(not_served)?;
        let (_, info) = self.volume_named(&id.to_string()).map_err(not_served)?;
        let here = Shard::current().volume(id).ok_or(SnapshotObstacle::NotServed)?;
        let number = pool_number(reconciler.cluster(), number);
        let len = ByteLen(range.end - range.start);
        let pieces = info.stripe.pieces(ByteOffset(range.start), len).map(|piece| {
            let here = Rc::clone(&here);
            async move {
                let read = move |slice: Rc<Slice>| async move {
                    let layout = slice.layout();
                    Ok(match layout.len().0 < piece.offset.0 + piece.len.0 {
                        true => Err(SnapshotError::Unknown),
                        false => layout.read_snapshot(number, piece.offset, piece.len).await,
                    })
                };
                let read = here.on_owner(piece.slice, read).await;
                read.unwrap_or_else(|error| Err(error.into()))
            }
        });
        let read = rt::timeout(COPY_WITHIN, rt::join_all(pieces)).await;
        let mut data = Chain::new();
        for piece in read.map_err(|_| SnapshotObstacle::Slow)? {
            data.append(piece?);
        }
        if data.len() as u64 == len.0 { Ok(data) } else { Err(SnapshotObstacle::Failed) }
    }
}

/// Reads a range of another node's copy, part by part.
async fn read_at(
    reconciler: &Rc<Reconciler>,
    turns: &Semaphore,
    node: NodeId,
    id: VolumeId,
    number: u32,
    range: Range<u64>,
) -> Result<Chain, CopyUnread> {
    let until = rt::now() + COPY_WITHIN;
    let mut data = Chain::new();
    for offset in range.clone().step_by(PART_BYTES_MAX as usize) {
        let Some(_turn) = Turn::wait(turns, until).await else { return Err(CopyUnread::Busy) };
        if !reconciler.hears(node) || !reconciler.reaches(node) {
            return Err(CopyUnread::Unreached);
        }
        let len = PART_BYTES_MAX.min(range.end - offset);
        let revision = reconciler.acts_by().0;
        let part = SnapshotPart { id: id.to_string(), number, revision, offset, len };
        let asked = reconciler.ask_within(node, Ask::ReadSnapshot(part), until.since(rt::now()));
        match asked.await? {
            Answer::SnapshotRead(Ok(read)) if read.len == len && read.data.len() as u64 == len => {
                data.append(read.data);
            }
            Answer::SnapshotRead(Err(obstacle)) => return Err(obstacle.into()),
            _ => return Err(ClusterError::Strange(node).into()),
        }
    }
    Ok(data)
}

/// The nodes in the order in which they are tried: this one, then those that this node hears and whose copies
/// are in sync, which are open.
fn in_order(reconciler: &Reconciler, volume: &VolumeEntry, nodes: Vec<u16>) -> Vec<NodeId> {
    let me = reconciler.me();
    let mut nodes: Vec<NodeId> = nodes.into_iter().map(NodeId).collect();
    nodes.sort_by_key(|node| {
        let copy = volume.copies.iter().find(|copy| copy.node == node.0);
        let is_in_sync = copy.is_some_and(|copy| copy.standing == StandingEntry::InSync);
        (*node != me, !reconciler.hears(*node), !is_in_sync, *node)
    });
    nodes
}

/// Looks up what is to be read.
fn readable(reconciler: &Reconciler, at: &VolumeAt, offset: ByteOffset, len: ByteLen) -> Result<Readable> {
    let snapshot = complete(reconciler, &at.snapshot)?;
    let (id, volume) = entry_named(reconciler, &at.volume)?;
    let of = part_of(&snapshot, &volume)?;
    if len.0 > SNAPSHOT_READ_BYTES_MAX {
        return Err(ControlError::Invalid { field: "len", reason: "at most 4 MiB are read at a time" });
    }
    let end = offset.0.checked_add(len.0).filter(|end| *end <= of.size);
    let Some(end) = end else {
        let reason = "the range ends behind the end of the volume in the snapshot";
        return Err(ControlError::Invalid { field: "offset", reason });
    };
    let nodes: Vec<u16> = nodes_with(of, &volume).collect();
    if nodes.is_empty() {
        return Err(ControlError::NoCopyHasSnapshot { volume: volume.name, snapshot: snapshot.name });
    }
    Ok(Readable { id, volume, snapshot, range: offset.0..end, nodes })
}

const _: () = assert!(SNAPSHOT_READ_BYTES_MAX == 4 << 20, "as the error says");
