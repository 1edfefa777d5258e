//! What one node asks another for.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::entry::NewCopy;
use super::keeper::{Agreed, Told, Version};

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// Make a copy of a volume. It is not served before the record says so.
    MakeCopy(NewCopy),
    /// Delete the copy of a volume that could not be made or added, or is no more.
    DropCopy {
        /// The volume's identity.
        id: String,
        /// Who gives up a copy that could not be made or added ([`NewCopy::asker`]); `None`: the volume is no
        /// more.
        asker: Option<u64>,
    },
    /// Make the copy of a volume as large as the volume is about to be.
    GrowCopy {
        /// The volume's identity.
        id: String,
        /// The capacity in bytes.
        size: u64,
    },
    /// What the node knows of the volume's unit, if it acts in this epoch.
    TellUnit {
        /// The volume's identity.
        id: String,
        /// The epoch.
        epoch: u64,
    },
    /// Carry out a change of the volume's unit, if the node acts in this epoch.
    InstallUnit {
        /// The volume's identity.
        id: String,
        /// The epoch.
        epoch: u64,
        /// Only if this is what it has.
        expected: Option<Version>,
        /// The unit after the change.
        agreed: Box<Agreed>,
    },
    /// Stop serving the volume: what the other node has written alone is kept.
    YieldToFork {
        /// The volume's identity.
        id: String,
        /// The epoch of which that was decided.
        epoch: u64,
    },
    /// Whether the node has all that it has written alone, and could serve it: an error says that it has not.
    CanServeFork {
        /// The volume's identity.
        id: String,
        /// Which fork.
        epoch: u64,
    },
    /// Whether the node has a floating address on a device, or commands under way that came through it: the
    /// record says that it holds it.
    HasAddress {
        /// The address.
        address: IpAddr,
    },
    /// Which of these volumes the node has, or may have in a pool that is not open.
    HasVolumes {
        /// Their identities.
        ids: Vec<String>,
    },
    /// What the node shows of itself to whoever asks another node for it: see `Config::show`.
    Show {
        /// What.
        what: String,
    },
    /// Carry out what the node was asked for that sends it, and cannot itself: see `Config::carry`.
    CarryOut {
        /// The identity of the volume that it is about, of which the receiver has a copy.
        volume: String,
        /// How far the sender acts by the cluster's record.
        revision: u64,
        /// What.
        request: String,
    },
    /// Carry out what the node was asked for that sends it, about what is the receiver's own: a pool, a
    /// session. See `Config::carry`.
    CarryOutHere {
        /// How far the sender acts by the cluster's record.
        revision: u64,
        /// What.
        request: String,
    },
    /// What a part of a volume's copy holds, in short ([`super::digests()`]).
    Digests {
        /// The volume's identity.
        id: String,
        /// Of which slice.
        slice: u16,
        /// From which byte of it on.
        offset: u64,
        /// So many bytes.
        len: u64,
    },
}

/// Its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It is done, in this life of the node.
    Done {
        /// The life.
        incarnation: u64,
    },
    /// What it knows of a unit; `None`: it does not act in that epoch.
    Unit(Option<Box<Told>>),
    /// Whether the change was carried out.
    Taken(bool),
    /// The identities of those that it has, or may have.
    HasVolumes(Vec<String>),
    /// Whether it has the address.
    Has(bool),
    /// What it shows; `None`: it does not know that.
    Shown(Option<String>),
    /// What carrying out came to, or why it was not begun.
    CarriedOut(Result<CarriedOut, String>),
    /// SHA-256 digests, in order.
    Digests(Vec<[u8; 32]>),
    /// The node's copy does not have a block of it.
    Unreadable {
        /// Where the block begins in the slice.
        offset: u64,
        /// The path of the disk, and where the block begins there, in bytes; `None`: the block is lost.
        disk: Option<(String, u64)>,
    },
}

/// What was carried out for another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedOut {
    /// The answer to who asked for it.
    pub answer: String,
    /// How far the node acts by the cluster's record that has carried it out.
    pub revision: u64,
}
