//! What clones are read through, and what must stay for that. (How they are created: [`super::cloning`].)
//!
//! What must never happen: the record has a clone, and a snapshot is deleted through which it is read, or the
//! copy that has it is removed. So the transactions that do so depend on the number of the next volume, which
//! each new clone draws (`docs/why/snapshots.md`, *Clones*).

use std::collections::BTreeSet;

use link::ClusterId;
use serde::Deserialize;

use super::super::{Control, ControlError, NEXT_NUMBER, Result};
use crate::copies::entry::VOLUMES;
use crate::copies::{
    CloneOfEntry, CopyEntry, NEW_CLONES, NewClones, NodeId, Origin, VolumeEntry, pool_number,
};
use crate::data::VolumeId;
use crate::member::Reconciler;

/// What counts of a volume's entry for what it is read through.
#[derive(Deserialize)]
struct Volume {
    name: String,
    #[serde(default)]
    clone_of: Option<CloneOfEntry>,
    copies: Vec<CopyEntry>,
}

/// A clone that the record has, or is about to have.
struct Reader {
    name: String,
    of: Origin,
    /// The nodes with copies that are read through the snapshot.
    nodes: Vec<u16>,
}

/// The clones that are read through snapshots.
pub(super) struct Clones(Vec<Reader>);

impl Clones {
    /// Those of the record, and those that are being created.
    pub fn now(reconciler: &Reconciler) -> Clones {
        let volumes = reconciler.list::<Volume>(VOLUMES).into_iter().filter_map(Volume::read_through);
        let new = reconciler.list::<NewClones>(NEW_CLONES).into_iter().flat_map(|new| {
            let NewClones { of, clones, nodes, .. } = new;
            clones.into_iter().map(move |clone| Reader {
                name: clone.name,
                of: of.clone(),
                nodes: nodes.clone(),
            })
        });
        Clones(volumes.chain(new).collect())
    }

    /// The numbers of the cluster's snapshots that have clones.
    pub fn snapshots(&self, cluster: ClusterId) -> BTreeSet<u32> {
        let first = pool_number(cluster, 0);
        let number = |clone: &Reader| u32::try_from(clone.of.snapshot.checked_sub(first)?).ok();
        self.0.iter().filter_map(number).collect()
    }

    /// How many clones the snapshot has that pools know by this number.
    fn of_snapshot(&self, number: u64) -> usize {
        self.0.iter().filter(|clone| clone.of.snapshot == number).count()
    }

    /// A clone of a snapshot of this volume, of whose copies one is on this node; `None`: on any.
    fn of_volume(&self, id: &str, node: Option<u16>) -> Option<&Reader> {
        let is_there = |clone: &&Reader| node.is_none_or(|node| clone.nodes.contains(&node));
        self.0.iter().filter(|clone| clone.of.volume == id).find(is_there)
    }
}

impl Volume {
    fn read_through(self) -> Option<Reader> {
        let CloneOfEntry { of, copies } = self.clone_of?;
        let is_there =
            |node: u16, made: u64| self.copies.iter().any(|copy| (copy.node, copy.made) == (node, made));
        let nodes: Vec<u16> =
            copies.iter().filter(|copy| is_there(copy.node, copy.made)).map(|copy| copy.node).collect();
        (!nodes.is_empty()).then_some(Reader { name: self.name, of, nodes })
    }
}

/// Checks that a snapshot has no clones.
///
/// # Errors
/// [`ControlError::SnapshotHasClones`].
pub(super) fn check_no_clones(reconciler: &Reconciler, number: u32, name: &str) -> Result<()> {
    match Clones::now(reconciler).of_snapshot(pool_number(reconciler.cluster(), number)) {
        0 => Ok(()),
        count => Err(ControlError::SnapshotHasClones { snapshot: name.to_owned(), count }),
    }
}

/// Checks that no clone is read through a snapshot of a volume.
///
/// # Errors
/// [`ControlError::HasClones`].
pub(super) fn check_volume_not_cloned(reconciler: &Reconciler, id: &str, name: &str) -> Result<()> {
    match Clones::now(reconciler).of_volume(id, None) {
        None => Ok(()),
        Some(Reader { name: clone, .. }) => {
            Err(ControlError::HasClones { volume: name.to_owned(), clone: clone.clone() })
        }
    }
}

/// Checks that no copy of a clone is read through what a volume's copy on a node has.
///
/// # Errors
/// [`ControlError::ReadByClone`].
pub(super) fn check_not_read(reconciler: &Reconciler, volume: &VolumeEntry, node: u16) -> Result<()> {
    match Clones::now(reconciler).of_volume(&volume.id, Some(node)) {
        None => Ok(()),
        Some(Reader { name: clone, .. }) => {
            Err(ControlError::ReadByClone { volume: volume.name.clone(), node, clone: clone.clone() })
        }
    }
}

/// For a transaction that no clone must have been begun since now: which key must have which revision.
pub(super) fn no_new_clone(reconciler: &Reconciler) -> (String, Option<cluster::Revision>) {
    (NEXT_NUMBER.to_owned(), reconciler.revision_of(NEXT_NUMBER))
}

/// Whether a volume is a clone that is being created.
pub(in crate::control) fn is_being_cloned(reconciler: &Reconciler, id: VolumeId) -> bool {
    let id = id.to_string();
    let new: Vec<NewClones> = reconciler.list(NEW_CLONES);
    new.iter().any(|new| new.clones.iter().any(|clone| clone.id == id))
}

impl Control {
    /// The snapshot of which this node's copy of a volume is a clone, as its pool has it.
    pub(in crate::control) fn origin_in_pool(&self, id: VolumeId) -> Option<Origin> {
        let of = self.pool_of(id).ok()?.clone_of(id)?;
        Some(Origin { volume: of.volume.to_string(), snapshot: of.snapshot })
    }

    /// Whether the record says that this node's copy of a volume is read through a snapshot of another
    /// volume, and its pool does not: it was converted to thick, and has everything itself.
    pub(in crate::control) fn is_clone_no_more(&self, reconciler: &Reconciler, id: VolumeId) -> bool {
        let entry = reconciler.volume(id).map(|volume| volume.entry);
        let reads = |entry: &VolumeEntry| entry.without_origin_on(reconciler.me().0).is_some();
        entry.as_ref().is_some_and(reads) && self.origin_in_pool(id).is_none()
    }

    /// Notes in the record that this node's copy of a volume is not read through a snapshot of another volume
    /// any more.
    ///
    /// # Errors
    /// Those of the record.
    pub(in crate::control) async fn note_clone_no_more(
        &self,
        reconciler: &Reconciler,
        id: VolumeId,
    ) -> Result<()> {
        let NodeId(me) = reconciler.me();
        let noted = self.change_entry(reconciler, id, None, |entry| {
            Ok((entry.without_origin_on(me).unwrap_or_else(|| entry.clone()), Vec::new()))
        });
        noted.await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clone(name: &str, snapshot: u64, nodes: &[u16]) -> Reader {
        let of = Origin { volume: "db".into(), snapshot };
        Reader { name: name.into(), of, nodes: nodes.to_vec() }
    }

    #[test]
    fn what_clones_read_is_known_by_snapshot_and_by_node() {
        let cluster = ClusterId([1; 16]);
        let seven = pool_number(cluster, 7);
        let clones = Clones(vec![clone("a", seven, &[1]), clone("b", seven, &[1, 2]), clone("c", 5, &[3])]);
        assert_eq!(clones.snapshots(cluster), BTreeSet::from([7]), "the last one is another cluster's");
        assert_eq!((clones.of_snapshot(seven), clones.of_snapshot(seven + 1)), (2, 0));
        let on = |node| clones.of_volume("db", node).map(|clone| clone.name.as_str());
        assert_eq!(
            [Some(1), Some(2), Some(3), Some(4), None].map(on),
            [Some("a"), Some("b"), Some("c"), None, Some("a")]
        );
        assert!(clones.of_volume("logs", None).is_none());
    }

    #[test]
    fn a_copy_that_was_added_later_reads_nothing_of_the_origin() {
        let value = serde_json::json!({
            "name": "test", "size": 1,
            "copies": [
                {"slot": 0, "node": 1, "standing": "in-sync", "incarnation": 3, "made": 1},
                {"slot": 1, "node": 2, "standing": "in-sync", "incarnation": 1, "made": 4},
            ],
            "clone_of": {
                "of": {"volume": "db", "snapshot": 7},
                "copies": [{"node": 1, "made": 1}, {"node": 2, "made": 1}],
            },
        });
        let volume: Volume = serde_json::from_value(value).unwrap();
        assert_eq!(volume.read_through().map(|clone| clone.nodes), Some(vec![1]));
    }
}
