//! What the cluster's record has of nodes and volumes, as JSON.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use base::{BlockSize, ByteLen};
use replica::{Config, CopyState, Epoch, Incarnation, NodeId, Revision, Slot, Slots, Standing};
use serde::{Deserialize, Serialize};
use store::{PoolId, PoolMark, VolumeId, VolumeInfo, VolumeKind};

use super::cause::Cause;
use super::disk_range::DiskRange;
use crate::shard::Shard;

/// Where nodes are.
pub const NODES: &str = "node/";
/// Where it is noted that nodes are in maintenance.
pub const MAINTENANCE: &str = "maintenance/";
/// Where it is noted what nodes' addresses are kept for.
pub const LINK_ROLES: &str = "link-roles/";
/// Where volumes are.
pub const VOLUMES: &str = "volume/";

/// Where it is noted which nodes have still to delete what they have of volumes that are deleted.
pub const DELETED: &str = "deleted-volume/";

/// The key under which it is noted how far a pool with copies has come.
pub fn pool_mark_key(id: PoolId) -> String {
    format!("pool-mark/{id}")
}

/// The key of a node.
pub fn node_key(id: NodeId) -> String {
    format!("{NODES}{:05}", id.0)
}

/// The key that is there while a node is in maintenance; its value is since when, in seconds since 1970
/// (`true`: a version wrote it that did not note that).
pub fn maintenance_key(id: NodeId) -> String {
    format!("{MAINTENANCE}{:05}", id.0)
}

/// What a node's addresses are kept for.
pub fn link_roles_key(id: NodeId) -> String {
    format!("{LINK_ROLES}{:05}", id.0)
}

/// The key of a volume.
pub fn volume_key(id: VolumeId) -> String {
    format!("{VOLUMES}{id}")
}

/// The key under which a volume's name is taken.
pub fn volume_name_key(name: &str) -> String {
    format!("volume-name/{name}")
}

/// The key that is there until all nodes have deleted what they had of a volume.
pub fn deleted_key(id: VolumeId) -> String {
    format!("{DELETED}{id}")
}

/// A node as links know it: reached at its addresses, each for everything or for what it is kept for, or by
/// what the settings name instead.
pub fn peer(node: u16, addresses: &[SocketAddr], roles: &LinkRoles) -> link::Peer {
    let shard = Shard::current();
    let via = |address| *shard.config().link_via.get(address).unwrap_or(address);
    let role = |address| roles.get(address).map(|role| link::Role::from(*role));
    let addresses = addresses.iter().map(|address| (role(address), via(address))).collect();
    link::Peer { id: NodeId(node), addresses }
}

/// What an address of a node is kept for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkRole {
    /// The data of volumes.
    Replication,
    /// Leases, and the cluster's record: little, and in time.
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

/// What addresses of one node are kept for; one that is not here is for everything.
pub type LinkRoles = BTreeMap<SocketAddr, LinkRole>;

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
    /// The version of Ursa that it runs, or ran when it was last there. `None`: it was never there, or is
    /// older than this was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// It has the cluster's authority, and so makes tokens for nodes that join.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub authority: bool,
    /// How many cores it runs on, or ran on when it was last there. `None`: as of the version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u16>,
    /// When its present life, or its last one, began, in seconds since 1970 by its own clock. `None`: as of
    /// the version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<u64>,
    /// A random number of its present start: two starts with one life are told apart by it, where a machine
    /// was set back or cloned. 0: it was never there.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// How far a pool has come, as its node has told the record: a pool that says less was set back.
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
    /// What the pool itself keeps of it.
    pub fn mark(self) -> PoolMark {
        PoolMark { count: self.count, at: self.at }
    }
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
    /// No configuration has ever named another copy than the one that there is. Its pool knows that, too
    /// ([`store::CopyState::Sole`]), and serves it whether the record can be asked or not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sole: bool,
    /// Why the configuration was changed last.
    pub reason: Cause,
    /// Copies that were taken off their nodes, which have not deleted them yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<DroppedCopy>,
    /// Why copies miss writes that did not always, by slot: the reason of the change that took each out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub missed: BTreeMap<u8, Cause>,
    /// What a disk did not read, of copies that left for that, by slot.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unread: BTreeMap<u8, DiskRange>,
    /// Copies that are not given what they miss since somebody has paused that, by slot. One that is in sync
    /// is in here no more.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub paused: BTreeMap<u8, SyncPause>,
}

/// Who has paused the sync of a copy, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncPause {
    /// The user or token.
    pub by: String,
    /// In seconds since 1970, by the clock of the node that was asked.
    pub at: u64,
}

/// A copy that its node is to delete.
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

/// How many of [`VolumeEntry::dropped`] are remembered: nodes that never return would have them grow for
/// ever. What is forgotten stays on its node, and is never taken for a copy.
pub const DROPPED_MAX: usize = 16;

/// A volume that is deleted, and of which nodes may still have copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletedVolume {
    /// Its identity, which no other volume ever has.
    pub id: String,
    /// What it was called.
    pub name: String,
    /// The nodes that had a copy, and have not said that they deleted it.
    pub nodes: Vec<u16>,
}

/// How many deleted volumes are remembered: nodes that never return would have them grow for ever. At
/// 256 bytes, as many as names are long, they take 1 MiB of the record's 64. What is forgotten stays on its
/// node, is served to nobody, and is shown with that.
pub const DELETED_MAX: usize = 4096;

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
    /// The epoch in which it was added, 1 with the volume: a disk that comes back with an older copy of the
    /// volume is told by this.
    pub made: u64,
    /// Which request has added it: [`NewCopy::asker`]. 0: it was made with the volume.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub asker: u64,
    /// It is to be taken off its node, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaves: Option<Leaves>,
}

/// When a copy is to be taken off its node: never before another is in sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Leaves {
    /// At once.
    Now,
    /// When the copy on that node is in sync: it moves there.
    After(u16),
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

    /// This entry with another configuration.
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

    /// The copies whose syncs are paused.
    pub fn paused_slots(&self) -> Slots {
        self.paused.keys().filter_map(|slot| Slot::new(usize::from(*slot))).collect()
    }

    /// Why a copy that is not in sync misses writes.
    pub fn cause(&self, slot: u8) -> Cause {
        self.missed.get(&slot).cloned().unwrap_or(Cause::NewCopy)
    }

    /// Whether a copy that is not in sync never was.
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

    /// Whether the copy is to be taken off its node now, as far as other copies allow it.
    pub fn is_to_leave(&self, copy: &CopyEntry) -> bool {
        match copy.leaves {
            None => false,
            Some(Leaves::Now) => true,
            // One that is gone, or never came, is no reason to go.
            Some(Leaves::After(node)) => {
                self.copy_on(NodeId(node)).is_some_and(|(_, other)| other.standing == StandingEntry::InSync)
            }
        }
    }

    /// The lowest slot without a copy.
    pub fn free_slot(&self) -> Option<Slot> {
        Slot::all().find(|slot| self.copy_in(*slot).is_none())
    }

    /// Whether what a pool of node `me` says of its copy is this entry's copy there. One that is blank is
    /// taken for it: nothing is built on it.
    pub fn is_copy_on(&self, me: NodeId, kept: &store::CopyOf) -> bool {
        self.copy_on(me).is_some_and(|(_, copy)| copy.is_kept_as(kept))
    }
}

impl CopyEntry {
    /// Its place among the copies; `None` if the entry is none of ours.
    pub fn slot(&self) -> Option<Slot> {
        Slot::new(usize::from(self.slot))
    }

    /// Whether this is what a pool says of it. One that is blank is taken for it, whichever slot it was made
    /// for: nothing is built on it.
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

/// [`VolumeKind`] as its number.
mod kind_code {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::{Serialize, Serializer};
    use store::VolumeKind;

    pub fn serialize<S: Serializer>(kind: &VolumeKind, serializer: S) -> Result<S::Ok, S::Error> {
        kind.code().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<VolumeKind, D::Error> {
        let code = u8::deserialize(deserializer)?;
        VolumeKind::from_code(code).ok_or_else(|| D::Error::custom(format!("{code} is no kind of volume")))
    }
}

/// What a node needs to make its copy of a volume.
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
    /// Where its blocks are, by its number in the catalogue.
    #[serde(with = "kind_code")]
    pub kind: VolumeKind,
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
    /// The volume has data already, which this copy is to be given.
    pub blank: bool,
    /// It is the only copy of a new volume.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sole: bool,
    /// Who asks, by a number drawn at random: two may ask for one copy at the same time, and one of them give
    /// up.
    pub asker: u64,
}

impl NewCopy {
    /// A blank one of a volume that exists, with the name and the capacity that this node knows.
    pub fn blank(info: &VolumeInfo, slot: Slot, pool: Option<String>) -> NewCopy {
        NewCopy {
            id: info.id.to_string(),
            slot: slot.index() as u8,
            name: info.name.clone(),
            pool,
            kind: info.kind,
            size: info.capacity.0,
            block_bytes: info.block_size.bytes(),
            physical_exponent: info.physical_exponent,
            slices: info.stripe.slices(),
            created: info.created,
            blank: true,
            sole: false,
            asker: rt::random(),
        }
    }

    /// The capacity.
    pub fn capacity(&self) -> ByteLen {
        ByteLen(self.size)
    }

    /// The logical block, if it is one.
    pub fn block_size(&self) -> Option<BlockSize> {
        [BlockSize::B512, BlockSize::B4096].into_iter().find(|size| size.bytes() == self.block_bytes)
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
        let entry = VolumeEntry {
            id: "0".repeat(32),
            number: 1,
            name: "db".into(),
            size: 1,
            epoch: 0,
            copies: Vec::new(),
            sole: false,
            reason: Cause::VolumeCreated,
            dropped: Vec::new(),
            missed: BTreeMap::new(),
            unread: BTreeMap::new(),
            paused: BTreeMap::new(),
        };
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
        // What a disk did not read is said for as long.
        let range = DiskRange {
            node: Some(2),
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
        // A pause lasts as long: over a restart, not into the next loss, nor to another node's copy.
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
