//! What the cluster's record has of nodes and volumes, as JSON.

use std::net::SocketAddr;

use base::{BlockSize, ByteLen};
use replica::{Config, CopyState, Epoch, Incarnation, NodeId, Revision, Slot, Standing};
use serde::{Deserialize, Serialize};
use store::VolumeId;

/// Where nodes are.
pub const NODES: &str = "node/";
/// Where volumes are.
pub const VOLUMES: &str = "volume/";

/// The key of a node.
pub fn node_key(id: NodeId) -> String {
    format!("{NODES}{:05}", id.0)
}

/// The key of a volume.
pub fn volume_key(id: VolumeId) -> String {
    format!("{VOLUMES}{id}")
}

/// The key under which a volume's name is taken.
pub fn volume_name_key(name: &str) -> String {
    format!("volume-name/{name}")
}

/// A node as links know it: reached for everything at any of its addresses.
pub fn peer(node: u16, addresses: &[SocketAddr]) -> link::Peer {
    link::Peer { id: NodeId(node), addresses: addresses.iter().map(|address| (None, *address)).collect() }
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEntry {
    /// Its number.
    pub id: u16,
    /// Its name, for people.
    pub name: String,
    /// Where its links are reached.
    pub addresses: Vec<SocketAddr>,
    /// Where it listens for iSCSI.
    pub portals: Vec<SocketAddr>,
    /// It has a vote in the record and no volumes.
    pub witness: bool,
    /// Its present life.
    pub incarnation: u64,
}

/// A volume with copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeEntry {
    /// Its identity.
    pub id: String,
    /// What links call it. Never given to another volume.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Its capacity in bytes.
    pub size: u64,
    /// The configuration's number.
    pub epoch: u64,
    /// Its copies.
    pub copies: Vec<CopyEntry>,
    /// Why the configuration was changed last.
    pub reason: String,
}

/// A copy of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyEntry {
    /// Its place among the copies.
    pub slot: u8,
    /// The node that it is on.
    pub node: u16,
    /// What it may do.
    pub standing: StandingEntry,
    /// The life of the node in which it may; 0 outside.
    pub incarnation: u64,
}

/// What a copy may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StandingEntry {
    /// It misses writes.
    Outside,
    /// It takes writes and is given what it misses.
    Joining,
    /// It serves.
    InSync,
}

impl VolumeEntry {
    /// The configuration that the record holds since `revision`; `None` if the entry is none of ours.
    pub fn config(&self, revision: Revision) -> Option<Config> {
        let mut copies = [None; Slot::MAX];
        for copy in &self.copies {
            let slot = Slot::new(usize::from(copy.slot))?;
            let life = Incarnation(copy.incarnation);
            let standing = match copy.standing {
                StandingEntry::Outside => Standing::Outside,
                StandingEntry::Joining => Standing::Joining(life),
                StandingEntry::InSync => Standing::InSync(life),
            };
            copies[slot.index()] = Some(CopyState { node: NodeId(copy.node), standing });
        }
        Some(Config::recorded(Epoch(self.epoch), revision, copies))
    }

    /// This entry with another configuration.
    #[must_use]
    pub fn with_config(&self, config: &Config, reason: &str) -> VolumeEntry {
        let copies = config.copies().map(|(slot, copy)| CopyEntry::new(slot, copy)).collect();
        VolumeEntry { epoch: config.epoch.0, copies, reason: reason.to_owned(), ..self.clone() }
    }

    /// The copy on a node.
    pub fn copy_on(&self, node: NodeId) -> Option<(Slot, &CopyEntry)> {
        let copy = self.copies.iter().find(|copy| copy.node == node.0)?;
        Some((Slot::new(usize::from(copy.slot))?, copy))
    }
}

impl CopyEntry {
    fn new(slot: Slot, copy: CopyState) -> CopyEntry {
        let (standing, life) = match copy.standing {
            Standing::Outside => (StandingEntry::Outside, 0),
            Standing::Joining(life) => (StandingEntry::Joining, life.0),
            Standing::InSync(life) => (StandingEntry::InSync, life.0),
        };
        CopyEntry { slot: slot.index() as u8, node: copy.node.0, standing, incarnation: life }
    }
}

/// What a node needs to make its copy of a new volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewCopy {
    /// The volume's identity.
    pub id: String,
    /// Which copy this is.
    pub slot: u8,
    /// The volume's name.
    pub name: String,
    /// The pool; `None`: the only one, or the default one.
    pub pool: Option<String>,
    /// In memory, or on disks.
    pub ram: bool,
    /// Its capacity in bytes, whole blocks.
    pub size: u64,
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// The physical block, as a power of two of logical ones.
    pub physical_exponent: u8,
    /// Over how many slices it is striped: the same on all nodes.
    pub slices: u16,
    /// When it is made, in seconds since 1970.
    pub created: u64,
}

impl NewCopy {
    /// The capacity.
    pub fn capacity(&self) -> ByteLen {
        ByteLen(self.size)
    }

    /// The logical block, if it is one.
    pub fn block_size(&self) -> Option<BlockSize> {
        [BlockSize::B512, BlockSize::B4096].into_iter().find(|size| size.bytes() == self.block_bytes)
    }
}
