//! Clones of snapshots: what the cluster's record has of them. Why it is so: `docs/why/snapshots.md`,
//! *Clones*.

use serde::{Deserialize, Serialize};

use super::entry::VolumeEntry;
use super::snapshot::SnapshotCopy;

/// The prefix of the keys of clones that are being created.
pub const NEW_CLONES: &str = "new-clones/";

/// How many clones one change of the record creates. Each takes two of its preconditions and writes.
pub const CLONES_AT_ONCE: usize = 32;
const _: () = assert!(2 * CLONES_AT_ONCE < cluster::limits::PRECONDITIONS_MAX);
const _: () = assert!(2 * CLONES_AT_ONCE < cluster::limits::WRITES_MAX);

/// A snapshot of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The volume's identity.
    pub volume: String,
    /// The number by which pools know the snapshot ([`super::pool_number`]).
    pub snapshot: u64,
}

/// What a volume is a clone of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloneOfEntry {
    /// The snapshot that it began as.
    pub of: Origin,
    /// Its copies that are read through the snapshot, in the pool of the other volume's copy. One that was
    /// added later has everything itself, and so does one that was converted to thick.
    pub copies: Vec<SnapshotCopy>,
}

impl VolumeEntry {
    /// The copies that are read through a snapshot of another volume, and that snapshot; `None`: there are
    /// none.
    pub fn reads(&self) -> Option<(&Origin, Vec<SnapshotCopy>)> {
        let clone_of = self.clone_of.as_ref()?;
        let copies: Vec<SnapshotCopy> =
            clone_of.copies.iter().copied().filter(|copy| copy.is_of(self)).collect();
        (!copies.is_empty()).then_some((&clone_of.of, copies))
    }

    /// This entry without a copy that is not read through a snapshot any more; `None`: the entry does not say
    /// that it is. A volume without such copies is not a clone.
    pub fn without_origin_on(&self, node: u16) -> Option<VolumeEntry> {
        let (_, copies) = self.reads()?;
        if !copies.iter().any(|copy| copy.node == node) {
            return None;
        }
        let mut next = self.clone();
        if let Some(clone_of) = &mut next.clone_of {
            clone_of.copies.retain(|copy| copies.contains(copy) && copy.node != node);
        }
        next.clone_of = next.clone_of.filter(|clone_of| !clone_of.copies.is_empty());
        Some(next)
    }
}

/// Clones of a snapshot that are being created: their nodes may have copies, and the record does not have the
/// volumes yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewClones {
    /// The snapshot.
    pub of: Origin,
    /// The number that the first of them gets as a volume. The others have those that follow.
    pub first: u32,
    /// The node that creates them.
    pub node: u16,
    /// The life of that node.
    pub incarnation: u64,
    /// The clones.
    pub clones: Vec<NewClone>,
    /// The nodes that get their copies, by slot.
    pub nodes: Vec<u16>,
}

/// A clone that is being created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewClone {
    /// Its identity.
    pub id: String,
    /// Its name.
    pub name: String,
}

impl NewClones {
    /// Their key.
    pub fn key(&self) -> String {
        format!("{NEW_CLONES}{:010}", self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::StandingEntry;
    use super::*;

    fn clone(copies: &[(u16, u64)]) -> VolumeEntry {
        let copies = copies.iter().map(|(node, made)| SnapshotCopy { node: *node, made: *made }).collect();
        let of = Origin { volume: "origin".into(), snapshot: 7 };
        let entry = VolumeEntry::with_copies(&[(1, StandingEntry::InSync), (2, StandingEntry::InSync)]);
        VolumeEntry { clone_of: Some(CloneOfEntry { of, copies }), ..entry }
    }

    fn nodes(entry: &VolumeEntry) -> Vec<u16> {
        entry.reads().map(|(_, copies)| copies.iter().map(|copy| copy.node).collect()).unwrap_or_default()
    }

    #[test]
    fn only_copies_that_were_created_as_clones_read_the_origin() {
        assert_eq!(nodes(&clone(&[(1, 1), (2, 1)])), [1, 2]);
        assert_eq!(nodes(&clone(&[(1, 1), (2, 3)])), [1], "the other one was added later");
        assert!(clone(&[(1, 3), (4, 1)]).reads().is_none());
        assert!(VolumeEntry::with_copies(&[(1, StandingEntry::InSync)]).reads().is_none());
    }

    #[test]
    fn a_volume_whose_last_copy_has_everything_itself_is_not_a_clone() {
        let both = clone(&[(1, 1), (2, 1)]);
        let rest = both.without_origin_on(2).unwrap();
        assert_eq!(nodes(&rest), [1]);
        assert_eq!(rest.without_origin_on(2), None, "that is known");
        assert_eq!(rest.without_origin_on(1).unwrap().clone_of, None);
    }

    #[test]
    fn keys_are_in_the_order_of_numbers() {
        let of = Origin { volume: "origin".into(), snapshot: 7 };
        let new = |first| NewClones {
            of: of.clone(),
            first,
            node: 1,
            incarnation: 1,
            clones: Vec::new(),
            nodes: Vec::new(),
        };
        assert_eq!(new(9).key(), "new-clones/0000000009");
        assert!(new(9).key() < new(10).key());
    }
}
