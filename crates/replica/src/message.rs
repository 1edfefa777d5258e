//! What copies of a slice say to each other.
//!
//! The link between two nodes keeps the order of what it carries and never delivers twice; what was on its
//! way when it broke is lost, and nothing of the old link arrives after the new one is up
//! ([`crate::Replica::handle_link_up`]).

use std::collections::BTreeMap;

use crate::{Blocks, Digest, Epoch, Incarnation, Payload, Regions, Slot, Slots, Timestamp};

/// A message with what is said in each.
#[derive(Clone, Debug)]
pub struct Envelope {
    /// The epoch that the sender acts in.
    pub epoch: Epoch,
    /// The sender's life.
    pub incarnation: Incarnation,
    /// The message.
    pub message: Message,
}

/// One coordinator's attempt, in one epoch, to bring a write to all members. Numbers are the sender's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoundId(pub u64);

/// A question whether reads may be answered. Numbers are the asking copy's, and grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProbeId(pub u64);

/// One attempt to bring a copy up to date; the joiner counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SyncId(pub u64);

/// Blocks that no copy in sync reads (R27).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostBlocks {
    /// Which.
    pub blocks: Blocks,
    /// The copies that hold them, and whose disks did not read them: these do not note them as lost.
    pub holders: Slots,
}

/// By region, how many of its units of [`crate::LOST_UNIT`] bytes have lost blocks (R27).
pub type LostUnits = BTreeMap<u64, u32>;

/// See the module.
#[derive(Clone, Debug)]
pub enum Message {
    /// A write: take it where it is newer than what is there.
    Invalidate {
        /// To be named in the acknowledgement.
        round: RoundId,
        /// Its place in the order.
        ts: Timestamp,
        /// Where.
        blocks: Blocks,
        /// What.
        payload: Payload,
    },
    /// All blocks of these rounds' writes hold them, or something newer, on the sender's disk (R3).
    Acknowledge {
        /// From the writes.
        rounds: Vec<RoundId>,
    },
    /// The writes are on the disks of all members (R6).
    Validate {
        /// Where, and which.
        writes: Vec<(Blocks, Timestamp)>,
    },
    /// The sender waits to be told of writes that are on the disks of all members.
    AskValidation,
    /// The sender has reads that it answers only when the receiver has said that it acts in the envelope's
    /// epoch (R24).
    ConfirmReads {
        /// To be named in the answer.
        probe: ProbeId,
    },
    /// The sender acts in the envelope's epoch, and did so after it was asked.
    ReadsConfirmed {
        /// From the question.
        probe: ProbeId,
    },
    /// The sender acts in the envelope's epoch. In-sync copies thereby confirm it (R13a).
    Activated,
    /// The sender has nothing older than this to bring to its end (R15). It may yet be sent something older,
    /// and send that again.
    Floor {
        /// The least timestamp of what it has not finished.
        floor: Timestamp,
    },
    /// The sender wants what it missed.
    SyncOpen {
        /// Its number for what follows.
        sync: SyncId,
        /// The regions in which the sender may hold what the receiver does not (R17).
        dirty: Regions,
        /// What is lost at the sender, who can note [`crate::LOST_UNITS_MAX`] units at most.
        lost: LostUnits,
    },
    /// To a joiner, first: outside of what follows, it holds what the sender does (R18).
    SyncClean {
        /// From the request.
        sync: SyncId,
        /// The writes that are known there, all valid.
        known: Vec<(Blocks, Timestamp)>,
        /// The sender's bits for each third copy, everywhere (R17).
        inherit: Vec<(Slot, Regions)>,
    },
    /// One region as the sender holds it.
    SyncRegion {
        /// From the request.
        sync: SyncId,
        /// Which.
        region: u64,
        /// All of its blocks.
        payload: Payload,
        /// The writes that are known in it, all valid (R18).
        known: Vec<(Blocks, Timestamp)>,
        /// Writes of this epoch that are under way in it: the payload says nothing there, and the receiver
        /// gets them as any member does.
        moving: Vec<(Blocks, Timestamp)>,
        /// Blocks of it that no copy in sync can read, in order: the payload says nothing there,
        /// either (R27).
        lost: Vec<LostBlocks>,
        /// The sender's bits for third copies (R17).
        inherit: Slots,
    },
    /// To a copy outside, of a region that the sender did not write to: the receiver may hold the same. If so
    /// it says that it is done.
    SyncProbe {
        /// From the request.
        sync: SyncId,
        /// Which.
        region: u64,
        /// Of all of its blocks.
        digest: Digest,
        /// The sender's bits for third copies (R17).
        inherit: Slots,
    },
    /// The region does not hold what was asked about.
    SyncWant {
        /// From the request.
        sync: SyncId,
        /// Which.
        region: u64,
    },
    /// The region is on the sender's disk.
    SyncDone {
        /// From the request.
        sync: SyncId,
        /// Which.
        region: u64,
    },
    /// What is left is being written to all the time: the sender has not forgotten it.
    SyncWait {
        /// From the request.
        sync: SyncId,
    },
    /// All regions were sent.
    SyncEnd {
        /// From the request.
        sync: SyncId,
    },
    /// The sender, who joins, has all that it missed on its disk (R13b).
    Synced,
}
