//! Nodes and volumes as the cluster's record holds them, as JSON.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use base::{BlockSize, ByteLen};
use replica::{Config, CopyState, Epoch, Incarnation, NodeId, Revision, Slot, Slots, Standing};
use serde::{Deserialize, Serialize};
use store::{Compression, PoolId, PoolMark, SpacePolicy, VolumeId, VolumeInfo, VolumeKind, WhenFull};

use super::cause::Cause;
use super::clone::{CloneOfEntry, Origin};
use super::disk_range::DiskRange;
use crate::shard::Shard;

/// The prefix of the nodes' keys.
pub const NODES: &str = "node/";
/// The prefix of the keys of nodes in maintenance.
pub const MAINTENANCE: &str = "maintenance/";
/// The prefix of the keys with the roles of nodes' addresses.
pub const LINK_ROLES: &str = "link-roles/";
/// The prefix of the volumes' keys.
pub const VOLUMES: &str = "volume/";

/// The prefix of the keys of deleted volumes of which nodes still have to delete their copies.
pub const DELETED: &str = "deleted-volume/";

/// The prefix of the keys that reserve volumes' names.
pub const VOLUME_NAMES: &str = "volume-name/";
/// The prefix of the keys of pools' marks.
pub const POOL_MARKS: &str = "pool-mark/";

/// The key of a pool's mark: see [`PoolMarkEntry`].
pub fn pool_mark_key(id: PoolId) -> String {
    format!("{POOL_MARKS}{id}")
}

/// The key of a node.
pub fn node_key(id: NodeId) -> String {
    format!("{NODES}{:05}", id.0)
}

/// The key that exists while a node is in maintenance.
///
/// Its value is when that began, in seconds since 1970.
pub fn maintenance_key(id: NodeId) -> String {
    format!("{MAINTENANCE}{:05}", id.0)
}

/// The key of the roles of a node's addresses.
pub fn link_roles_key(id: NodeId) -> String {
    format!("{LINK_ROLES}{:05}", id.0)
}

/// The key of a volume.
pub fn volume_key(id: VolumeId) -> String {
    format!("{VOLUMES}{id}")
}

/// The key that reserves a volume's name.
pub fn volume_name_key(name: &str) -> String {
    format!("{VOLUME_NAMES}{name}")
}

/// The key that exists until all nodes have deleted their copies of a deleted volume.
pub fn deleted_key(id: VolumeId) -> String {
    format!("{DELETED}{id}")
}

/// A node as links know it.
///
/// Links reach it at its addresses, each for its role or for everything, or at the addresses that the
/// settings name instead (`Config::link_via`).
pub fn peer(node: u16, addresses: &[SocketAddr], roles: &LinkRoles) -> link::Peer {
    let shard = Shard::current();
    let via = |address| *shard.config().link_via.get(address).unwrap_or(address);
    let role = |address| roles.get(address).map(|role| link::Role::from(*role));
    let addresses = addresses.iter().map(|address| (role(address), via(address))).collect();
    link::Peer { id: NodeId(node), addresses }
}

/// The role of a node's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkRole {
    /// The data of volumes.
    Replication,
    /// Leases, and the cluster's record: little data, which must be in time.
    Heartbeat,
}

impl From<LinkRole> for link::Role {
    fn from(role: LinkRole) -> link::Role {
        match role {
            LinkRole::Replication => link::Role::Replication,
            LinkRole::Heartbeat => link::Role::Control,
        }
    }
}

/// The roles of one node's addresses; an address that is not listed is for everything.
pub type LinkRoles = BTreeMap<SocketAddr, LinkRole>;

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEntry {
    /// Its number.
    pub id: u16,
    /// Its name, for people.
    pub name: String,
    /// The addresses at which its links are reached.
    pub addresses: Vec<SocketAddr>,
    /// The addresses at which it listens for iSCSI.
    pub portals: Vec<SocketAddr>,
    /// Their portal group.
    pub portal_group: u16,
    /// Its identity in its own record, which is the same under each number that it has had.
    pub identity: String,
    /// Whether it is a witness: it has a vote in the record and no volumes.
    pub witness: bool,
    /// Its present life.
    pub incarnation: u64,
    /// The version of Ursa that it runs, or last ran. `None`: the node has joined, and has not started since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether it has the cluster's certificate authority, and so creates tokens for nodes that join.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub authority: bool,
    /// How many cores it runs on, or last ran on. `None`: as for the version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u16>,
    /// When its present or last life began, in seconds since 1970 by its own clock. `None`: as for the
    /// version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<u64>,
    /// A random number that belongs to its present start. It tells apart two starts with the same life, which
    /// occur where a machine was set back or cloned. 0: the node never started.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A pool's mark, as its node has reported it to the record: a pool with a lesser mark was set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolMarkEntry {
    /// The node that has it.
    pub node: u16,
    /// [`PoolMark::count`].
    pub count: u64,
    /// [`PoolMark::at`].
    pub at: u64,
}

impl PoolMarkEntry {
    /// The mark as the pool itself stores it.
    pub fn mark(self) -> PoolMark {
        PoolMark { count: self.count, at: self.at }
    }
}

/// A volume with copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeEntry {
    /// Its identity.
    pub id: String,
    /// The number by which links address it. It is never given to another volume.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Its capacity in bytes.
    pub size: u64,
    /// What all copies have in common.
    pub shape: ShapeEntry,
    /// The epoch of its configuration.
    pub epoch: u64,
    /// Its copies.
    pub copies: Vec<CopyEntry>,
    /// Whether no configuration has ever named another copy than the present one. Its pool knows that, too
    /// ([`store::CopyState::Sole`]), and its node serves it whether the record is reachable or not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sole: bool,
    /// Why the configuration last changed.
    pub reason: Cause,
    /// Copies that were removed and that their nodes have not deleted yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<DroppedCopy>,
    /// Why copies that were once in sync miss writes, by slot: the reason of the change that took each of
    /// them out of sync.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub missed: BTreeMap<u8, Cause>,
    /// What a disk could not read, by the slot of the copy that left for that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unread: BTreeMap<u8, DiskRange>,
    /// Pauses of resyncs, by the copy's slot. A copy that gets in sync is removed from here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub paused: BTreeMap<u8, SyncPause>,
    /// How it shares the space of its pools with other volumes. The pools follow.
    #[serde(default, skip_serializing_if = "SpaceEntry::is_default")]
    pub space: SpaceEntry,
    /// Whether its blocks are compressed where it is log-structured. The pools follow.
    #[serde(default, skip_serializing_if = "CompressionEntry::is_default")]
    pub compression: CompressionEntry,
    /// The number of the restore for which hosts are not served anywhere ([`super::Restores`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restoring: Option<u32>,
    /// The number of the last restore; `None`: it was never restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<u32>,
    /// The number of the cluster's last snapshot when somebody last had it converted to thick. It had no
    /// snapshots then, so whatever a copy has with numbers up to that one is a leftover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots_above: Option<u32>,
    /// What it is a clone of; `None`: it is none, or is not read through the other volume any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone_of: Option<CloneOfEntry>,
}

/// A [`Compression`] in the record, and between nodes: its number in a pool's catalogue.
///
/// A number that only a later version knows is kept: who serves the volume does not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompressionEntry(u8);

impl CompressionEntry {
    fn is_default(&self) -> bool {
        *self == CompressionEntry::default()
    }

    /// The setting; `None`: this version does not know it.
    pub fn known(self) -> Option<Compression> {
        Compression::from_number(self.0)
    }
}

impl Default for CompressionEntry {
    fn default() -> CompressionEntry {
        Compression::default().into()
    }
}

impl From<Compression> for CompressionEntry {
    fn from(compression: Compression) -> CompressionEntry {
        CompressionEntry(compression as u8)
    }
}

/// A [`SpacePolicy`] in the record, and between nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceEntry {
    /// Whether writes wait for room in a full pool before they fail.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pauses: bool,
    /// [`SpacePolicy::reserve`] in bytes: in the pool of each copy.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reserve: u64,
}

impl SpaceEntry {
    fn is_default(&self) -> bool {
        *self == SpaceEntry::default()
    }
}

impl From<SpacePolicy> for SpaceEntry {
    fn from(policy: SpacePolicy) -> SpaceEntry {
        SpaceEntry { pauses: policy.when_full == WhenFull::Pause, reserve: policy.reserve.0 }
    }
}

impl From<SpaceEntry> for SpacePolicy {
    fn from(entry: SpaceEntry) -> SpacePolicy {
        let when_full = if entry.pauses { WhenFull::Pause } else { WhenFull::Fail };
        SpacePolicy { when_full, reserve: ByteLen(entry.reserve) }
    }
}

/// What is the same for all copies of a volume: any node can show it, whether or not the nodes with copies
/// can be reached. Only the kind ever changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShapeEntry {
    /// How its blocks are stored, as the kind's number in a pool's catalogue. A node whose copy is of another
    /// kind converts it.
    #[serde(with = "kind_code")]
    pub kind: VolumeKind,
    /// The size of a logical block in bytes.
    pub block_bytes: u32,
    /// The size of a physical block in logical blocks, as a power of two.
    pub physical_exponent: u8,
    /// The number of slices that it is striped over.
    pub slices: u16,
    /// When it was created, in seconds since 1970.
    pub created: u64,
}

impl ShapeEntry {
    /// The shape of a volume in a pool of this node.
    pub fn of(info: &VolumeInfo) -> ShapeEntry {
        ShapeEntry {
            kind: info.converting.unwrap_or(info.kind),
            block_bytes: info.block_size.bytes(),
            physical_exponent: info.physical_exponent,
            slices: info.stripe.slices(),
            created: info.created,
        }
    }
}

/// Who paused the resync of a copy, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncPause {
    /// The user or token that paused it.
    pub by: String,
    /// When, in seconds since 1970, by the clock of the node that was asked.
    pub at: u64,
}

/// A copy that was removed and that its node has to delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedCopy {
    /// The node that it is on.
    pub node: u16,
    /// Which copy there: [`CopyEntry::made`].
    pub made: u64,
    /// [`CopyEntry::asker`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub asker: u64,
}

/// How many of [`VolumeEntry::dropped`] are remembered.
///
/// Nodes that never return would make the list grow forever. A copy that is forgotten stays on its node,
/// which never takes it for a copy of the volume again.
pub const DROPPED_MAX: usize = 16;

/// A deleted volume of which nodes may still have copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletedVolume {
    /// Its identity; no other volume ever has the same.
    pub id: String,
    /// Its last name.
    pub name: String,
    /// The nodes that had a copy and have not reported yet that they deleted it.
    pub nodes: Vec<u16>,
}

/// How many deleted volumes are remembered.
///
/// Nodes that never return would make them grow forever. With 256 bytes each, the length of the longest
/// names, they take 1 MiB of the record's 64. A copy of a forgotten volume stays on its node, which does not
/// serve it and shows it as not served.
pub const DELETED_MAX: usize = 4096;

/// A copy of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyEntry {
    /// The slot that it takes among the copies.
    pub slot: u8,
    /// The node that it is on.
    pub node: u16,
    /// Its standing.
    pub standing: StandingEntry,
    /// The life of the node for which the standing holds; 0 outside.
    pub incarnation: u64,
    /// The epoch in which it was added; 1 if it was created with the volume. It tells this copy from an older
    /// copy of the volume on a disk that comes back.
    pub made: u64,
    /// The request that added it: [`NewCopy::asker`]. 0: it was created with the volume.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub asker: u64,
    /// When it is to be removed; `None`: it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaves: Option<Leaves>,
}

/// When a copy is to be removed: never before another one is in sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Leaves {
    /// At once.
    Now,
    /// When the copy on that node is in sync: this copy moves there.
    After(u16),
}

/// A copy's standing in its volume's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StandingEntry {
    /// It misses writes.
    Outside,
    /// It takes new writes, and its resync is not complete.
    Joining,
    /// It is in sync, and serves hosts.
    InSync,
}

/// What the record says about how each pool with a copy of a volume stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedCopy {
    /// The volume's name.
    pub name: String,
    /// Its space policy.
    pub space: SpacePolicy,
    /// Whether its blocks are compressed where it is log-structured; `None`: this version does not know the
    /// setting, and leaves the copy as it is.
    pub compression: Option<Compression>,
    /// Its kind.
    pub kind: VolumeKind,
    /// Whether any copy of it is read through a snapshot of another volume.
    pub is_clone: bool,
}

impl VolumeEntry {
    /// How each pool with a copy stores it.
    pub fn wanted(&self) -> WantedCopy {
        WantedCopy {
            name: self.name.clone(),
            space: self.space.into(),
            compression: self.compression.known(),
            kind: self.shape.kind,
            is_clone: self.reads().is_some(),
        }
    }

    /// The configuration that the record has held since `revision`; `None` if the entry is invalid.
    pub fn config(&self, revision: Revision) -> Option<Config> {
        let mut copies = [None; Slot::MAX];
        for copy in &self.copies {
            let slot = copy.slot()?;
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

    /// This entry with another configuration, changed for `reason`.
    #[must_use]
    pub fn with_config(&self, config: &Config, reason: Cause) -> VolumeEntry {
        let copy = |(slot, copy): (Slot, CopyState)| {
            let (standing, incarnation) = match copy.standing {
                Standing::Outside => (StandingEntry::Outside, 0),
                Standing::Joining(life) => (StandingEntry::Joining, life.0),
                Standing::InSync(life) => (StandingEntry::InSync, life.0),
            };
            let known = self.copy_on(copy.node).map(|(_, known)| *known);
            CopyEntry {
                slot: slot.index() as u8,
                node: copy.node.0,
                standing,
                incarnation,
                made: known.map_or(config.epoch.0, |known| known.made),
                asker: known.map_or(0, |known| known.asker),
                leaves: known.and_then(|known| known.leaves),
            }
        };
        let copies: Vec<CopyEntry> = config.copies().map(copy).collect();
        let missed = copies.iter().filter(|copy| copy.standing != StandingEntry::InSync);
        let missed = missed.filter_map(|copy| {
            let before =
                self.copies.iter().find(|before| (before.slot, before.node) == (copy.slot, copy.node))?;
            let now = (before.standing == StandingEntry::InSync).then(|| reason.clone());
            Some((copy.slot, now.or_else(|| self.missed.get(&copy.slot).cloned())?))
        });
        let missed: BTreeMap<u8, Cause> = missed.collect();
        let mut unread = self.unread.clone();
        unread.retain(|slot, _| missed.contains_key(slot));
        let is_behind = |slot: u8| {
            let before = self.copies.iter().find(|before| before.slot == slot);
            copies.iter().any(|copy| {
                copy.slot == slot
                    && copy.standing != StandingEntry::InSync
                    && before.is_some_and(|before| before.node == copy.node)
            })
        };
        let paused = self.paused.iter().filter(|(slot, _)| is_behind(**slot));
        let paused = paused.map(|(slot, pause)| (*slot, pause.clone())).collect();
        let sole = self.sole && copies.len() == 1;
        VolumeEntry { epoch: config.epoch.0, copies, sole, reason, missed, unread, paused, ..self.clone() }
    }

    /// The copies whose resyncs are paused.
    pub fn paused_slots(&self) -> Slots {
        self.paused.keys().filter_map(|slot| Slot::new(usize::from(*slot))).collect()
    }

    /// Why a copy that is not in sync misses writes.
    pub fn cause(&self, slot: u8) -> Cause {
        self.missed.get(&slot).cloned().unwrap_or(Cause::NewCopy)
    }

    /// Whether a copy that is not in sync has never been.
    pub fn is_new(&self, slot: u8) -> bool {
        !self.missed.contains_key(&slot)
    }

    /// The copy on a node.
    pub fn copy_on(&self, node: NodeId) -> Option<(Slot, &CopyEntry)> {
        let copy = self.copies.iter().find(|copy| copy.node == node.0)?;
        Some((copy.slot()?, copy))
    }

    /// The copy in a slot.
    pub fn copy_in(&self, slot: Slot) -> Option<&CopyEntry> {
        self.copies.iter().find(|copy| copy.slot() == Some(slot))
    }

    /// Whether the copy is to be removed now, as far as the other copies allow it.
    pub fn is_to_leave(&self, copy: &CopyEntry) -> bool {
        match copy.leaves {
            None => false,
            Some(Leaves::Now) => true,
            // If that copy is gone, or never came, this one stays.
            Some(Leaves::After(node)) => {
                self.copy_on(NodeId(node)).is_some_and(|(_, other)| other.standing == StandingEntry::InSync)
            }
        }
    }

    /// The lowest slot without a copy.
    pub fn free_slot(&self) -> Option<Slot> {
        Slot::all().find(|slot| self.copy_in(*slot).is_none())
    }

    /// Whether the copy that a pool of node `me` describes is this entry's copy there.
    ///
    /// A blank copy always counts as that, since nothing relies on its content.
    pub fn is_copy_on(&self, me: NodeId, kept: &store::CopyOf) -> bool {
        self.copy_on(me).is_some_and(|(_, copy)| copy.is_kept_as(kept))
    }
}

impl CopyEntry {
    /// Its slot; `None` if the entry is invalid.
    pub fn slot(&self) -> Option<Slot> {
        Slot::new(usize::from(self.slot))
    }

    /// Whether this is the copy that a pool describes.
    ///
    /// A blank copy always counts as that, whichever slot it was created for, since nothing relies on its
    /// content.
    pub fn is_kept_as(&self, kept: &store::CopyOf) -> bool {
        let is_slot = kept.slot == self.slot;
        match kept.state {
            store::CopyState::Blank => true,
            store::CopyState::Sole | store::CopyState::New => is_slot && self.made == 1,
            store::CopyState::Trusted { epoch } | store::CopyState::SetBack { epoch } => {
                is_slot && epoch == self.made
            }
        }
    }
}

/// [`VolumeKind`], serialized as its number.
mod kind_code {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::{Serialize, Serializer};
    use store::VolumeKind;

    pub fn serialize<S: Serializer>(kind: &VolumeKind, serializer: S) -> Result<S::Ok, S::Error> {
        (*kind as u8).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<VolumeKind, D::Error> {
        let code = u8::deserialize(deserializer)?;
        VolumeKind::from_number(code)
            .ok_or_else(|| D::Error::custom(format!("{code} is not a kind of volume")))
    }
}

/// What a node needs to create its copy of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewCopy {
    /// The volume's identity.
    pub id: String,
    /// The slot of this copy.
    pub slot: u8,
    /// The volume's name.
    pub name: String,
    /// The pool; `None`: the node's only or default pool.
    pub pool: Option<String>,
    /// How its blocks are stored, as the kind's number in the pool's catalogue.
    #[serde(with = "kind_code")]
    pub kind: VolumeKind,
    /// Whether its blocks are compressed where it is log-structured.
    pub compression: CompressionEntry,
    /// Whether its blocks have checksums, if it is thick.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub checksums: bool,
    /// Its capacity in bytes, a whole number of blocks.
    pub size: u64,
    /// The size of a logical block in bytes.
    pub block_bytes: u32,
    /// The size of a physical block in logical blocks, as a power of two.
    pub physical_exponent: u8,
    /// The number of slices that it is striped over, the same on all nodes.
    pub slices: u16,
    /// The stripe unit in bytes, the same on all nodes.
    pub stripe_unit: u32,
    /// When it is created, in seconds since 1970.
    pub created: u64,
    /// Whether the volume has data already, so that this copy needs a full resync.
    pub blank: bool,
    /// Whether it is the only copy of a new volume.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sole: bool,
    /// A random number that names the request: two requests may ask for the same copy at the same time, and
    /// one of them may give up.
    pub asker: u64,
    /// How the volume shares the space of its pools with others.
    #[serde(default, skip_serializing_if = "SpaceEntry::is_default")]
    pub space: SpaceEntry,
    /// The snapshot of which the copy is a clone, in the pool of the other volume's copy; `None`: it begins
    /// empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone_of: Option<Origin>,
}

impl NewCopy {
    /// A blank copy of a volume that exists, with the name and the capacity that this node knows.
    pub fn blank(info: &VolumeInfo, slot: Slot, pool: Option<String>) -> NewCopy {
        NewCopy {
            id: info.id.to_string(),
            slot: slot.index() as u8,
            name: info.name.clone(),
            pool,
            kind: info.kind,
            compression: info.compression.into(),
            checksums: info.checksums,
            size: info.capacity.0,
            block_bytes: info.block_size.bytes(),
            physical_exponent: info.physical_exponent,
            slices: info.stripe.slices(),
            stripe_unit: info.stripe.unit().0 as u32,
            created: info.created,
            blank: true,
            sole: false,
            asker: rt::random(),
            space: info.space.into(),
            clone_of: None,
        }
    }

    /// The capacity.
    pub fn capacity(&self) -> ByteLen {
        ByteLen(self.size)
    }

    /// The size of a logical block, if it is valid.
    pub fn block_size(&self) -> Option<BlockSize> {
        [BlockSize::B512, BlockSize::B4096].into_iter().find(|size| size.bytes() == self.block_bytes)
    }
}

#[cfg(test)]
impl VolumeEntry {
    /// A volume for tests with copies on these nodes, in slots 0, 1, ….
    pub(crate) fn with_copies(copies: &[(u16, StandingEntry)]) -> VolumeEntry {
        let copy = |(slot, (node, standing)): (usize, &(u16, StandingEntry))| CopyEntry {
            slot: slot as u8,
            node: *node,
            standing: *standing,
            incarnation: 1,
            made: 1,
            asker: 0,
            leaves: None,
        };
        VolumeEntry {
            id: "0".repeat(32),
            number: 7,
            name: "db".into(),
            size: 1 << 30,
            shape: ShapeEntry {
                kind: VolumeKind::Thick,
                block_bytes: 512,
                physical_exponent: 3,
                slices: 1,
                created: 0,
            },
            epoch: 4,
            copies: copies.iter().enumerate().map(copy).collect(),
            sole: false,
            reason: Cause::VolumeCreated,
            dropped: Vec::new(),
            missed: BTreeMap::new(),
            unread: BTreeMap::new(),
            paused: BTreeMap::new(),
            space: SpaceEntry::default(),
            compression: CompressionEntry::default(),
            restoring: None,
            restored: None,
            snapshots_above: None,
            clone_of: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_copy_misses_writes_is_known_until_it_is_in_sync() {
        let slot = |number| Slot::new(number).unwrap();
        let nodes = [(NodeId(1), Incarnation(1)), (NodeId(2), Incarnation(1))];
        let all = Config::initial(&nodes, Revision(1));
        let entry = VolumeEntry::with_copies(&[]);
        let made = entry.with_config(&all, Cause::VolumeCreated);
        assert!(made.missed.is_empty());
        let alone = all.remove(slot(1)).unwrap();
        let lost = made.with_config(&alone, Cause::Restarted);
        assert_eq!((lost.cause(1), lost.missed.len()), (Cause::Restarted, 1));
        let joining = alone.admit(slot(1), Incarnation(2)).unwrap();
        let joins = lost.with_config(&joining, Cause::CaughtUp);
        assert_eq!((joins.cause(1), &joins.reason), (Cause::Restarted, &Cause::CaughtUp));
        let again = joins.with_config(&joining.promote(slot(1)).unwrap(), Cause::Complete);
        assert!(again.missed.is_empty());
        // What a disk could not read is kept until then.
        let range = DiskRange {
            node: 2,
            pool: "main".into(),
            disk: "/dev/sdb".into(),
            offset: 4096,
            len: 512,
            lba: 8,
            blocks: 1,
        };
        let bad = VolumeEntry { unread: [(1, range.clone())].into(), ..lost.clone() };
        let bad_joins = bad.with_config(&joining, Cause::CaughtUp);
        assert_eq!(bad_joins.unread, [(1, range)].into());
        assert!(bad_joins.with_config(&joining.promote(slot(1)).unwrap(), Cause::Complete).unread.is_empty());
        // A pause is kept until then: it survives a restart, and covers neither the next loss nor another
        // node's copy.
        let pause = SyncPause { by: "eva".into(), at: 7 };
        let paused = VolumeEntry { paused: [(1, pause)].into(), ..lost };
        assert!(made.paused_slots().is_empty() && paused.paused_slots().contains(slot(1)));
        let joins = paused.with_config(&joining, Cause::CaughtUp);
        assert_eq!(joins.paused, paused.paused);
        assert!(joins.with_config(&joining.promote(slot(1)).unwrap(), Cause::Complete).paused.is_empty());
        let elsewhere = alone.drop_copy(slot(1)).unwrap().add(slot(1), NodeId(3)).unwrap();
        assert!(paused.with_config(&elsewhere, Cause::CopyAdded).paused.is_empty());
        assert_eq!(entry.with_config(&alone, Cause::CopyAdded).cause(1), Cause::NewCopy);
    }
}
