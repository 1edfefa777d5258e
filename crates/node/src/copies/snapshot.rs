//! Snapshots of sets of volumes: what the cluster's record has of them, and what nodes ask each other to take
//! one. Why it is so: `docs/why/snapshots.md`.

use std::collections::BTreeMap;

use link::ClusterId;
use replica::NodeId;
use serde::{Deserialize, Serialize};
use store::SnapshotError;

use super::entry::VolumeEntry;
use super::schedule::OfSchedule;

/// The prefix of the keys of snapshots that exist.
pub const SNAPSHOTS: &str = "snapshot/";
/// The prefix of the keys of snapshots that are being taken or deleted.
pub const SNAPSHOT_CHANGES: &str = "snapshot-change/";
/// The key of the number of the last snapshot that was begun.
pub const LAST_SNAPSHOT: &str = "last-snapshot";
/// The prefix of the keys of snapshots that are gone from all copies that the record named.
pub const DELETED_SNAPSHOTS: &str = "deleted-snapshot/";

/// How many snapshots a cluster has at most. With two copies each, their entries take 2 MiB of the record.
pub const SNAPSHOTS_MAX: usize = 4096;
/// How many volumes they have at most, each counted with each of its snapshots. Snapshots of the most volumes
/// would fill the record, and with a full record no copy could be lost any more. With four copies and the
/// longest names, these take 6 MiB of its 64.
pub const SNAPSHOT_PARTS_MAX: usize = 16_384;
/// How many volumes a snapshot has at most.
pub const SNAPSHOT_VOLUMES_MAX: usize = 128;
/// How many deleted snapshots the record remembers. They take 0.4 MiB of it.
pub const DELETED_SNAPSHOTS_MAX: usize = 4096;
/// How many of them one change forgets at most. Several nodes may add some at the same time, so there may be
/// a few too many.
const FORGOTTEN_MAX: usize = 8;

/// A snapshot of a set of volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotEntry {
    /// Its number, which no other snapshot of the cluster ever gets.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// When it was begun, in seconds since 1970, by the clock of the node that takes it.
    pub at: u64,
    /// The node that takes it.
    pub node: u16,
    /// The life of that node.
    pub incarnation: u64,
    /// How far it is.
    pub state: SnapshotState,
    /// The volumes of the set.
    pub volumes: Vec<SnapshotOf>,
    /// For how long hosts were held, in microseconds.
    #[serde(default)]
    pub pause_us: u64,
    /// Whether it must not be deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// From when on it is to be deleted, unless it is on hold, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// Its labels, by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The restore before which it is taken, as long as that is not complete. Hosts are stopped for it on the
    /// volumes whose entries have this snapshot's number ([`VolumeEntry::restoring`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restores: Option<Restores>,
    /// The schedule that has taken it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<OfSchedule>,
}

/// A restore. Its number is that of the snapshot that keeps what the volumes were before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restores {
    /// The number of the snapshot that the volumes get the content of.
    pub snapshot: u32,
    /// What they were before is not kept: the snapshot with the restore's number is not taken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub discards: bool,
    /// Hosts were stopped. Before that, no copy has been asked for anything that must be undone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
}

/// How far a snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotState {
    /// It is being taken: nobody may rely on it.
    Preparing,
    /// It exists on all copies that it names, unless the restore discards it. The volumes are being restored:
    /// that cannot be undone any more.
    Restoring,
    /// It exists.
    Complete,
    /// It was deleted, or not taken. Copies that may have it have not confirmed yet that they do not.
    Deleting,
}

/// What a snapshot has of one volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotOf {
    /// The volume's identity.
    pub id: String,
    /// Its name when the snapshot was taken.
    pub name: String,
    /// Its capacity then, in bytes.
    pub size: u64,
    /// The copies that have it; while it is being taken or deleted, those that may have it.
    pub copies: Vec<SnapshotCopy>,
}

/// A copy that has a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotCopy {
    /// Its node.
    pub node: u16,
    /// Which copy there: [`super::CopyEntry::made`].
    pub made: u64,
}

impl SnapshotCopy {
    /// Whether this copy of the volume is still there.
    pub fn is_of(self, volume: &VolumeEntry) -> bool {
        volume.copy_on(NodeId(self.node)).is_some_and(|(_, copy)| copy.made == self.made)
    }

    /// Whether it is still there, and is not to be removed.
    fn stays(self, volume: &VolumeEntry) -> bool {
        let copy = volume.copy_on(NodeId(self.node));
        copy.is_some_and(|(_, copy)| copy.made == self.made && copy.leaves.is_none())
    }
}

impl SnapshotOf {
    /// Whether all copies that took it are those that were to take it, and one of them stays. A node may have
    /// got another copy since, and nobody would delete it there.
    pub fn has_it(&self, volume: &VolumeEntry) -> bool {
        self.copies.iter().all(|copy| copy.is_of(volume)) && self.copies.iter().any(|copy| copy.stays(volume))
    }
}

impl SnapshotEntry {
    /// Its key in its present state.
    pub fn key(&self) -> String {
        let prefix = if self.state == SnapshotState::Complete { SNAPSHOTS } else { SNAPSHOT_CHANGES };
        format!("{prefix}{:010}", self.number)
    }

    /// The keys of the snapshot with a number, in each state.
    pub fn keys(number: u32) -> [String; 2] {
        [SNAPSHOTS, SNAPSHOT_CHANGES].map(|prefix| format!("{prefix}{number:010}"))
    }

    /// What it has of a volume.
    pub fn of(&self, id: &str) -> Option<&SnapshotOf> {
        self.volumes.iter().find(|of| of.id == id)
    }

    /// Whether a volume has it, or is about to get it.
    pub fn counts_for(&self, id: &str) -> bool {
        self.state != SnapshotState::Deleting && self.of(id).is_some()
    }

    /// The nodes of its copies, in order.
    pub fn nodes(&self) -> Vec<NodeId> {
        let copies = self.volumes.iter().flat_map(|of| &of.copies);
        let mut nodes: Vec<NodeId> = copies.map(|copy| NodeId(copy.node)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// This entry without the copies for which `is_gone` says so, and without volumes of which none is left.
    #[must_use]
    pub fn without(&self, is_gone: impl Fn(&SnapshotOf, SnapshotCopy) -> bool) -> SnapshotEntry {
        let mut next = self.clone();
        for of in &mut next.volumes {
            let before = of.clone();
            of.copies.retain(|copy| !is_gone(&before, *copy));
        }
        next.volumes.retain(|of| !of.copies.is_empty());
        next
    }

    /// This entry with a copy that is the volume's only one, if it exists and none of its copies is there any
    /// more.
    ///
    /// Whatever pool has the number of a snapshot that exists has that snapshot: the number is not used
    /// again, and all copies that were asked for it were held.
    pub fn adopted(&self, volume: &VolumeEntry, copy: SnapshotCopy) -> Option<SnapshotEntry> {
        let is_lost = |of: &SnapshotOf| of.id == volume.id && !of.copies.iter().any(|it| it.is_of(volume));
        let mut next = self.clone();
        let mut lost = next.volumes.iter_mut().filter(|of| is_lost(of));
        lost.next().filter(|_| self.state == SnapshotState::Complete)?.copies = vec![copy];
        Some(next)
    }

    /// This entry without a copy of a volume that lacks it, if it exists and another copy has it.
    pub fn lacking(&self, volume: &VolumeEntry, copy: SnapshotCopy) -> Option<SnapshotEntry> {
        let mut next = self.clone();
        let of = next.volumes.iter_mut().find(|of| of.id == volume.id);
        let of = of.filter(|of| self.state == SnapshotState::Complete && of.copies.contains(&copy))?;
        of.copies.retain(|other| *other != copy);
        of.copies.iter().any(|other| other.is_of(volume)).then_some(next)
    }

    /// Whether it is being taken, or its volumes are being restored.
    pub fn is_under_way(&self) -> bool {
        matches!(self.state, SnapshotState::Preparing | SnapshotState::Restoring)
    }

    /// Whether it exists, and is to be deleted by now. `now`: in seconds since 1970.
    pub fn has_expired(&self, now: u64) -> bool {
        self.state == SnapshotState::Complete && !self.held && self.expires.is_some_and(|at| at <= now)
    }

    /// Whether volumes are being restored to the snapshot with this number, or are about to be.
    pub fn is_restore_to(&self, number: u32) -> bool {
        self.is_under_way() && self.restores.is_some_and(|restores| restores.snapshot == number)
    }

    /// Whether the copy on a node is the only one that has it of a volume, among those that stay.
    pub fn is_only_on(&self, node: u16, volume: &VolumeEntry) -> bool {
        let Some(of) = self.of(&volume.id).filter(|_| self.state != SnapshotState::Deleting) else {
            return false;
        };
        let mut there = of.copies.iter().filter(|copy| copy.is_of(volume));
        let mut stay = of.copies.iter().filter(|copy| copy.stays(volume));
        there.any(|copy| copy.node == node) && stay.all(|copy| copy.node == node)
    }
}

/// A snapshot that was deleted or undone, and that no copy has any more. A pool that was set back, or was
/// nowhere at that time, may still have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletedSnapshot {
    /// Its number.
    pub number: u32,
    /// When it was begun, as in the entry that it had. If the record is set back, its number may be given to
    /// another one.
    pub at: u64,
    /// When the last copy confirmed that it is gone, in seconds since 1970, by the clock of its node.
    pub since: u64,
}

impl DeletedSnapshot {
    /// Its key.
    pub fn key(&self) -> String {
        format!("{DELETED_SNAPSHOTS}{:010}", self.number)
    }

    /// Those of `known` that the record forgets when it remembers this one: those that were deleted first.
    pub fn instead_of(&self, mut known: Vec<DeletedSnapshot>) -> Vec<DeletedSnapshot> {
        // Their keys differ.
        known.retain(|other| other.number != self.number);
        let too_many = (known.len() + 1).saturating_sub(DELETED_SNAPSHOTS_MAX);
        if too_many > 0 {
            known.sort_unstable_by_key(|deleted| (deleted.since, deleted.number));
        }
        known.truncate(too_many.min(FORGOTTEN_MAX));
        known
    }
}

/// The number by which pools know a snapshot. It has a part of the cluster's identity: a pool may move to
/// another cluster.
pub fn pool_number(cluster: ClusterId, number: u32) -> u64 {
    let [first, second, third, fourth, ..] = cluster.0;
    u64::from(u32::from_le_bytes([first, second, third, fourth])) << 32 | u64::from(number)
}

/// One step of taking a snapshot, which the node that coordinates asks another one for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotStep {
    /// Check that the copies here can take it, and do what hosts would have to wait for later.
    Prepare,
    /// Hold all commands of hosts on these volumes, on all members.
    Hold {
        /// Their identities.
        ids: Vec<String>,
    },
    /// Take the snapshot on the copies here of these volumes.
    Mark {
        /// The volumes, each with the epoch that its copy must act in.
        volumes: Vec<(String, Option<u64>)>,
    },
    /// Let commands of hosts continue.
    Release,
    /// Wait until nothing is under way on the copies here of these volumes, which the record says are being
    /// restored.
    Settle {
        /// The volumes, each with the epoch that its copy must act in.
        volumes: Vec<(String, u64)>,
    },
    /// Restore the copies here of these volumes, if they are not yet.
    Restore {
        /// The volumes, each with the epoch that its copy must act in.
        volumes: Vec<(String, u64)>,
    },
}

/// A volume that is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldVolume {
    /// Its identity.
    pub id: String,
    /// The epoch in which it is held; `None`: no other node has ever had a copy.
    pub epoch: Option<u64>,
    /// The nodes with a copy in sync in that epoch.
    pub nodes: Vec<u16>,
}

/// The answer to a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotAnswer {
    /// It is done.
    Done,
    /// All of these are held.
    Held(Vec<HeldVolume>),
    /// Commands continue.
    Released {
        /// Whether they were held until now.
        was_held: bool,
        /// For how long they were held here, in microseconds.
        pause_us: u64,
    },
}

/// Why a copy of a volume cannot have a snapshot now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // The messages say it.
pub enum SnapshotObstacle {
    #[error("it is being converted: try again when that is complete")]
    Converting,
    #[error("it is being restored: try again when that is complete")]
    Restoring,
    #[error("its copy is not open or not in sync: see `ursa volume show`")]
    NotServed,
    #[error("a copy is about to be in sync: try again in a moment")]
    Joining,
    #[error("its size or its copies in sync have changed in the meantime: try again")]
    Changed,
    #[error("blocks of it are lost: restore them first (`ursa volume show`)")]
    Lost,
    #[error("it has as many snapshots as a volume can have: delete some first")]
    TooMany,
    #[error("another snapshot of it is being taken: try again in a moment")]
    UnderWay,
    #[error("its copy lacks the snapshot, or a part of it: see `ursa snapshot show`")]
    Absent,
    #[error("its only copy in sync is being moved: try again when that is complete")]
    Moving,
    #[error("another node cancelled it, because it did not reach the node that was taking it: try again")]
    Undone,
    #[error("a disk failed")]
    Failed,
    #[error("its disks did not respond in time: try again")]
    Slow,
    #[error("it is too small to use all of its slices: copy its data to a larger volume")]
    TooSmall,
    #[error(
        "it is a clone at the end of the longest chain of clones: convert it to a thick volume and back, and clone a new snapshot of it"
    )]
    TooDeep,
}

impl From<SnapshotError> for SnapshotObstacle {
    fn from(error: SnapshotError) -> SnapshotObstacle {
        match error {
            // The kind was checked before.
            SnapshotError::NotLog | SnapshotError::Converting => SnapshotObstacle::Converting,
            SnapshotError::Restoring => SnapshotObstacle::Restoring,
            SnapshotError::Lost => SnapshotObstacle::Lost,
            SnapshotError::TooMany => SnapshotObstacle::TooMany,
            // The record says that the copy has it.
            SnapshotError::Unknown => SnapshotObstacle::Absent,
            // The last of these is of deletions only.
            SnapshotError::Exists | SnapshotError::Cloned => SnapshotObstacle::Changed,
            SnapshotError::Slice(_) => SnapshotObstacle::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::{Leaves, StandingEntry};
    use super::*;

    fn of(id: &str, copies: &[(u16, u64)]) -> SnapshotOf {
        let copies = copies.iter().map(|(node, made)| SnapshotCopy { node: *node, made: *made }).collect();
        SnapshotOf { id: id.into(), name: "db".into(), size: 1 << 20, copies }
    }

    fn snapshot(state: SnapshotState, volumes: Vec<SnapshotOf>) -> SnapshotEntry {
        SnapshotEntry {
            number: 7,
            name: "before-upgrade".into(),
            at: 0,
            node: 1,
            incarnation: 1,
            state,
            volumes,
            pause_us: 0,
            held: false,
            expires: None,
            labels: BTreeMap::new(),
            restores: None,
            schedule: None,
        }
    }

    #[test]
    fn only_snapshots_that_exist_are_under_the_key_that_lists_read() {
        let [there, changes] = SnapshotEntry::keys(7);
        assert_eq!((there.as_str(), changes.as_str()), ("snapshot/0000000007", "snapshot-change/0000000007"));
        assert_eq!(snapshot(SnapshotState::Complete, Vec::new()).key(), there);
        for state in [SnapshotState::Preparing, SnapshotState::Restoring, SnapshotState::Deleting] {
            assert_eq!(snapshot(state, Vec::new()).key(), changes);
        }
        assert!(!changes.starts_with(SNAPSHOTS));
    }

    #[test]
    fn the_last_copy_that_has_a_snapshot_is_known() {
        let mut volume = VolumeEntry::with_copies(&[(1, StandingEntry::InSync), (2, StandingEntry::InSync)]);
        let complete =
            |copies: &[(u16, u64)]| snapshot(SnapshotState::Complete, vec![of(&volume.id, copies)]);
        let (both, second, former) = (complete(&[(1, 1), (2, 1)]), complete(&[(2, 1)]), complete(&[(2, 3)]));
        assert!(!both.is_only_on(1, &volume) && !both.is_only_on(2, &volume));
        assert!(second.is_only_on(2, &volume) && !second.is_only_on(1, &volume));
        assert!(!former.is_only_on(2, &volume), "that was an earlier copy on the node");
        let deleted = SnapshotEntry { state: SnapshotState::Deleting, ..second.clone() };
        assert!(!deleted.is_only_on(2, &volume));
        // The other copy is about to be removed.
        volume.copies[0].leaves = Some(Leaves::Now);
        assert!(both.is_only_on(2, &volume));
        volume.copies.remove(0);
        assert!(both.is_only_on(2, &volume), "it has been removed");
    }

    #[test]
    fn a_snapshot_counts_only_on_the_copies_that_were_to_take_it() {
        let in_sync = |node| (node, StandingEntry::InSync);
        let mut volume = VolumeEntry::with_copies(&[in_sync(1), in_sync(2)]);
        let both = of(&volume.id, &[(1, 1), (2, 1)]);
        assert!(both.has_it(&volume));
        volume.copies[0].leaves = Some(Leaves::Now);
        assert!(both.has_it(&volume));
        volume.copies[1].leaves = Some(Leaves::Now);
        assert!(!both.has_it(&volume), "none stays");
        volume.copies.iter_mut().for_each(|copy| copy.leaves = None);
        volume.copies[1].made = 7;
        assert!(!both.has_it(&volume), "another copy on the same node");
        assert!(!of(&volume.id, &[]).has_it(&volume));
    }

    #[test]
    fn a_pool_that_moves_to_another_node_takes_its_snapshots_with_it() {
        let volume = VolumeEntry::with_copies(&[(2, StandingEntry::InSync)]);
        let mine = SnapshotCopy { node: 2, made: 1 };
        let moved =
            snapshot(SnapshotState::Complete, vec![of("other", &[(1, 1)]), of(&volume.id, &[(1, 1)])]);
        let adopted = moved.adopted(&volume, mine).expect("no copy has it");
        assert_eq!(adopted.volumes, [of("other", &[(1, 1)]), of(&volume.id, &[(2, 1)])]);
        assert_eq!(adopted.adopted(&volume, mine), None, "a copy has it");
        let deleted = SnapshotEntry { state: SnapshotState::Deleting, ..moved };
        assert_eq!(deleted.adopted(&volume, mine), None);
    }

    #[test]
    fn a_copy_that_lacks_a_snapshot_does_not_count_beside_one_that_has_it() {
        let volume = VolumeEntry::with_copies(&[(1, StandingEntry::InSync), (2, StandingEntry::InSync)]);
        let second = SnapshotCopy { node: 2, made: 1 };
        let complete =
            |copies: &[(u16, u64)]| snapshot(SnapshotState::Complete, vec![of(&volume.id, copies)]);
        let both = complete(&[(1, 1), (2, 1)]);
        assert_eq!(both.lacking(&volume, second), Some(complete(&[(1, 1)])));
        assert_eq!(complete(&[(1, 1)]).lacking(&volume, second), None);
        assert_eq!(complete(&[(2, 1)]).lacking(&volume, second), None, "it is shown as missing");
        assert_eq!(complete(&[(1, 3), (2, 1)]).lacking(&volume, second), None, "a former copy");
        assert_eq!(SnapshotEntry { state: SnapshotState::Deleting, ..both }.lacking(&volume, second), None);
    }

    #[test]
    fn a_snapshot_is_in_use_until_all_volumes_are_restored_to_it() {
        let restores = Some(Restores { snapshot: 3, discards: false, stopped: false });
        let of = |state| SnapshotEntry { restores, ..snapshot(state, Vec::new()) };
        for state in [SnapshotState::Preparing, SnapshotState::Restoring] {
            assert!(of(state).is_restore_to(3) && !of(state).is_restore_to(7), "{state:?}");
        }
        assert!(!of(SnapshotState::Deleting).is_restore_to(3), "it was undone");
        assert!(!snapshot(SnapshotState::Preparing, Vec::new()).is_restore_to(3));
    }

    #[test]
    fn a_snapshot_expires_unless_it_is_on_hold() {
        let expires = SnapshotEntry { expires: Some(500), ..snapshot(SnapshotState::Complete, Vec::new()) };
        assert!(!expires.has_expired(499) && expires.has_expired(500));
        assert!(!SnapshotEntry { held: true, ..expires.clone() }.has_expired(500));
        assert!(!SnapshotEntry { expires: None, ..expires.clone() }.has_expired(u64::MAX));
        for state in [SnapshotState::Preparing, SnapshotState::Restoring, SnapshotState::Deleting] {
            assert!(!SnapshotEntry { state, ..expires.clone() }.has_expired(500), "{state:?}");
        }
    }

    #[test]
    fn a_deletion_has_ended_when_no_copy_is_left() {
        let both = snapshot(SnapshotState::Deleting, vec![of("a", &[(1, 1), (2, 1)]), of("b", &[(2, 4)])]);
        assert_eq!(both.nodes(), [NodeId(1), NodeId(2)]);
        let rest = both.without(|of, copy| of.id == "a" && copy.node == 1);
        assert_eq!(rest.volumes, [of("a", &[(2, 1)]), of("b", &[(2, 4)])]);
        let rest = rest.without(|_, copy| copy.made == 4);
        assert_eq!(rest.volumes, [of("a", &[(2, 1)])]);
        assert!(rest.without(|_, copy| copy.node == 2).volumes.is_empty());
    }

    /// Not those with the lowest numbers: some snapshots are kept for long.
    #[test]
    fn the_snapshots_that_were_deleted_first_are_forgotten() {
        let deleted = |number: u32, since: u64| DeletedSnapshot { number, at: 0, since };
        let mut known: Vec<DeletedSnapshot> =
            (2..=DELETED_SNAPSHOTS_MAX as u32).map(|number| deleted(number, u64::from(number))).collect();
        let last = deleted(1, 9000);
        assert_eq!(last.key(), "deleted-snapshot/0000000001");
        assert!(!last.key().starts_with(SNAPSHOTS) && !last.key().starts_with(SNAPSHOT_CHANGES));
        assert!(last.instead_of(known.clone()).is_empty());
        known.push(last);
        let one_more = deleted(5000, 9001);
        assert_eq!(one_more.instead_of(known.clone()), [deleted(2, 2)]);
        // Its number was used before.
        assert!(deleted(2, 9001).instead_of(known.clone()).is_empty());
        known.extend((6000..6100).map(|number| deleted(number, 8000)));
        assert_eq!(one_more.instead_of(known).len(), FORGOTTEN_MAX);
    }

    #[test]
    fn pools_know_a_snapshot_by_its_cluster_and_number() {
        let (one, other) = (ClusterId([1; 16]), ClusterId([2; 16]));
        assert_eq!(pool_number(one, 7), 0x0101_0101_0000_0007);
        assert_ne!(pool_number(one, 7), pool_number(other, 7));
    }
}
