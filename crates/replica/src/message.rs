//! The messages between copies of a slice.
//!
//! The link between two nodes keeps messages in order and never delivers one twice. When it breaks, the
//! messages on their way are lost, and none of them arrives after the new link is up
//! ([`crate::Replica::handle_link_up`]).

use std::collections::BTreeMap;

use crate::{Blocks, Digest, Epoch, Incarnation, Payload, Regions, Slot, Slots, Timestamp};

/// A message with what every message carries.
#[derive(Clone, Debug)]
pub struct Envelope {
    /// The epoch in which the sender acts.
    pub epoch: Epoch,
    /// The sender's life.
    pub incarnation: Incarnation,
    /// The message.
    pub message: Message,
}

/// One coordinator's attempt, in one epoch, to bring a write to all members. The sender assigns the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoundId(pub u64);

/// A question whether reads may be answered. The asking copy assigns the numbers, in ascending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProbeId(pub u64);

/// One attempt to resync a copy; the copy that receives the data counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SyncId(pub u64);

/// Blocks that no copy in sync can read (R27).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostBlocks {
    /// The blocks.
    pub blocks: Blocks,
    /// The copies that hold these blocks though their disks did not read them: they do not note them as lost.
    pub holders: Slots,
}

/// For each region, how many of its units of [`crate::LOST_UNIT`] bytes have lost blocks (R27).
pub type LostUnits = BTreeMap<u64, u32>;

/// What one copy says to another; see the module.
///
/// A `ts` is the place of a write in the order. What answers a message has its `round`, `probe` or `sync`.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // Fields are explained where their names do not.
pub enum Message {
    /// A write: the receiver takes it wherever it is newer than what the receiver has.
    Invalidate { round: RoundId, ts: Timestamp, blocks: Blocks, payload: Payload },
    /// On the sender's disk, all blocks of these rounds' writes hold them, or something newer (R3).
    Acknowledge { rounds: Vec<RoundId> },
    /// The writes are on the disks of all members (R6).
    Validate { writes: Vec<(Blocks, Timestamp)> },
    /// The sender waits for [`Message::Validate`] of writes that are on the disks of all members.
    AskValidation,
    /// The sender has reads that it answers only after the receiver has said that it acts in the envelope's
    /// epoch (R24).
    ConfirmReads { probe: ProbeId },
    /// The sender acts in the envelope's epoch, and did so after it received the question.
    ReadsConfirmed { probe: ProbeId },
    /// The sender acts in the envelope's epoch. This is how in-sync copies confirm it (R13a).
    Activated,
    /// The sender has finished everything older than this (R15). It may still receive something older, and
    /// send that again.
    Floor {
        /// The least timestamp of what the sender has not finished.
        floor: Timestamp,
    },
    /// The sender asks for what it missed.
    SyncOpen {
        sync: SyncId,
        /// The regions in which the sender may hold what the receiver does not (R17).
        dirty: Regions,
        /// What is lost at the sender, which can note [`crate::LOST_UNITS_MAX`] units at most.
        lost: LostUnits,
    },
    /// First message to a joiner: outside of the regions that follow, the joiner holds what the sender does
    /// (R18).
    SyncClean {
        sync: SyncId,
        /// The writes that the sender knows there, all valid.
        known: Vec<(Blocks, Timestamp)>,
        /// The sender's bits for each third copy, everywhere (R17).
        inherit: Vec<(Slot, Regions)>,
    },
    /// One region as the sender holds it.
    SyncRegion {
        sync: SyncId,
        region: u64,
        payload: Payload,
        /// The writes that the sender knows in it, all valid (R18).
        known: Vec<(Blocks, Timestamp)>,
        /// Writes of this epoch that are under way in it: the payload says nothing there, and the receiver
        /// gets them as any member does.
        moving: Vec<(Blocks, Timestamp)>,
        /// Blocks of the region that no copy in sync can read, in order: the payload says nothing there,
        /// either (R27).
        lost: Vec<LostBlocks>,
        /// The sender's bits for third copies (R17).
        inherit: Slots,
    },
    /// To a copy outside, about a region to which the sender has not written: the receiver may hold the same
    /// data. If it does, it answers [`Message::SyncDone`].
    SyncProbe {
        sync: SyncId,
        region: u64,
        digest: Digest,
        /// The sender's bits for third copies (R17).
        inherit: Slots,
    },
    /// The sender's region differs from what the probe describes.
    SyncWant { sync: SyncId, region: u64 },
    /// The region is on the sender's disk.
    SyncDone { sync: SyncId, region: u64 },
    /// The sender has no room for the region now: it wants the region after all others, which may make room.
    SyncLater { sync: SyncId, region: u64 },
    /// Hosts write to all that is left, or the source is waiting; it has not forgotten the receiver.
    SyncWait { sync: SyncId },
    /// The sender has sent all regions.
    SyncEnd { sync: SyncId },
    /// The sender, a joiner, has all that it missed on its disk (R13b).
    Synced,
}
