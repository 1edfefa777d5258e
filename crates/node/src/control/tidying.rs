//! Clean-up in the background: this node deletes its removed copies, what is left of deleted volumes, copies
//! that nobody has added to the record, and deleted snapshots, and gives up clones whose node was lost. And
//! its pools follow what the record says about each copy: name, space policy, compression and kind. At the
//! same beat it looks for snapshots that are due by schedule, and for those that have expired.
//!
//! In open pools this happens at once, in others when they come back. Each pool has a task of its own, since
//! its disks may hang.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use replica::Revision;
use store::{Pool, PoolId, VolumeInfo};

use super::leftovers::forget_deleted;
use super::volumes::compression_in_logs;
use super::{Beat, Control};
use crate::copies::{DeletedVolume, DroppedCopy, VolumeEntry, WantedCopy};
use crate::data::VolumeId;
use crate::member::Reconciler;
use crate::under_way::UnderWay;
use crate::yielding;

/// How often a node looks for what there is to clean up.
pub(super) const TIDY_EVERY: Duration = Duration::from_secs(1);

/// How often what pools have of volumes is compared with the record although nothing seems to have changed.
const COMPARED_ANYWAY: Duration = Duration::from_secs(10);

/// A piece of the clean-up of what this node has of a volume.
enum Chore {
    /// The pool calls its copy by a former name of the volume.
    Rename,
    /// The pool has a former space policy of the volume.
    Space,
    /// The pool has a former setting for the compression of the volume.
    Compression,
    /// The pool's copy is of another kind than the volume, and not on its way there.
    Kind,
    /// The record says that the pool's copy is read through a snapshot of another volume, and it is not.
    Origin,
    /// The copy was removed from this node.
    Removed(Box<VolumeEntry>, DroppedCopy),
    /// The volume was deleted.
    Deleted(DeletedVolume),
    /// The pool of this name has a blank copy that nobody has added to the record.
    Blank(String),
    /// The copy is in a log that lacks records, and the volumes in such logs of this pool can do without the
    /// copies here.
    Lacking(PoolId),
}

/// When what pools have of volumes was last compared with the record and was found equal, and what that
/// depends on.
struct Compared {
    at: Instant,
    /// The revision by which this node acts.
    record: Revision,
    /// [`Reconciler::activations`]: it grows when copies are opened again.
    activations: u64,
    pools: Vec<PoolId>,
}

impl Compared {
    /// Whether they must be compared again, since something has changed or may have changed.
    fn must_follow(&self, before: &Compared) -> bool {
        let on = |of: &Compared| (of.record, of.activations);
        on(self) != on(before) || self.pools != before.pools || self.at.since(before.at) >= COMPARED_ANYWAY
    }
}

/// Chores by the pool that they are about; `None`: no open pool has anything of the volume.
type Chores = BTreeMap<Option<PoolId>, Vec<(VolumeId, Chore)>>;

impl Control {
    /// Cleans up again and again, until the node stops.
    pub(super) async fn tidy_copies(self: Rc<Control>, reconciler: Rc<Reconciler>) {
        let under_way = UnderWay::default();
        let mut compared: Option<Compared> = None;
        while !reconciler.is_stopping() {
            Beat::Tidying.wait(TIDY_EVERY).await;
            let now = Compared {
                at: rt::now(),
                record: reconciler.acts_by(),
                activations: reconciler.activations(),
                pools: self.open_pools().iter().map(Pool::id).collect(),
            };
            let mut all = Vec::new();
            if compared.as_ref().is_none_or(|before| now.must_follow(before)) {
                all = self.outdated(&reconciler).await;
                compared = all.is_empty().then_some(now);
            }
            for (pool, chores) in self.chores(&reconciler, all).await {
                let (control, reconciler) = (Rc::clone(&self), Rc::clone(&reconciler));
                under_way.start(pool, async move {
                    for (id, chore) in chores {
                        control.do_chore(&reconciler, id, chore).await;
                    }
                });
            }
            forget_deleted(&reconciler).await;
            self.tidy_snapshots(&reconciler);
            self.tidy_clones(&reconciler);
            self.follow_schedules(&reconciler);
            self.follow_ages(&reconciler);
            self.follow_freeing();
        }
    }

    /// The name of a volume about which the record says something that no open pool says yet: its pool is
    /// closed, or has not followed; or of one that the record is about to get. A node that leaves its cluster
    /// would lose that.
    pub(super) async fn not_in_pool(&self, reconciler: &Rc<Reconciler>) -> Option<String> {
        let outdated = self.outdated(reconciler).await;
        let is_outdated = |id: &VolumeId| outdated.iter().any(|(other, _)| other == id);
        let mut wanted = reconciler.wanted_here().into_iter();
        let behind =
            wanted.find(|(id, _)| !self.has_sole(*id) || is_outdated(id)).map(|(_, wanted)| wanted.name);
        // Deleted, and perhaps in a pool that is closed.
        let deleted = || reconciler.deleted_here().into_iter().next().map(|(_, deleted)| deleted.name);
        behind.or_else(deleted).or_else(|| self.being_created())
    }

    /// Copies whose pools have not followed the record yet, and in what.
    async fn outdated(&self, reconciler: &Rc<Reconciler>) -> Vec<(VolumeId, Chore)> {
        let mut all = Vec::new();
        let compare = |(id, wanted): (VolumeId, WantedCopy)| {
            if let Some((_, info)) = self.current_of(self.copies_of(id)) {
                all.extend(lag(&info, &wanted).into_iter().map(|chore| (id, chore)));
                if wanted.is_clone && self.is_clone_no_more(reconciler, id) {
                    all.push((id, Chore::Origin));
                }
            }
        };
        yielding::for_each(reconciler.wanted_here(), compare).await;
        let is_former =
            |id: VolumeId| all.iter().any(|(of, chore)| *of == id && matches!(chore, Chore::Kind));
        self.forget_refused(is_former);
        all
    }

    async fn chores(&self, reconciler: &Rc<Reconciler>, mut all: Vec<(VolumeId, Chore)>) -> Chores {
        for (entry, dropped) in reconciler.dropped_here().await {
            let Some(id) = VolumeId::parse(&entry.id) else { continue };
            all.push((id, Chore::Removed(Box::new(entry), dropped)));
        }
        all.extend(reconciler.deleted_here().into_iter().map(|(id, deleted)| (id, Chore::Deleted(deleted))));
        all.extend(self.left_blank(reconciler).await.into_iter().map(|(pool, id)| (id, Chore::Blank(pool))));
        self.note_lacking_logs();
        let lacking = self.pools_with_lacking_logs(reconciler).into_iter();
        all.extend(lacking.map(|(pool, id)| (id, Chore::Lacking(pool))));
        let mut chores = Chores::new();
        for (id, chore) in all {
            chores.entry(self.pool_of_copy(id)).or_default().push((id, chore));
        }
        chores
    }

    async fn do_chore(self: &Rc<Control>, reconciler: &Rc<Reconciler>, id: VolumeId, chore: Chore) {
        // The chore would have to wait for that change, and while a disk hangs, each round would start one
        // more.
        if self.is_being_changed(id) {
            return;
        }
        match chore {
            Chore::Rename => {
                if let Some(volume) = reconciler.volume(id) {
                    self.rename_copy(id, volume.entry.name).await;
                }
            }
            Chore::Space => {
                let Some(entry) = reconciler.volume(id).map(|volume| volume.entry) else { return };
                if let Err(error) = self.set_space_of_copy(&entry.id, entry.space.into()).await {
                    tracing::debug!(volume = entry.name, %error, "the pool still has a volume's former space policy");
                }
            }
            Chore::Compression => {
                if let Err(error) = self.follow_compression(id).await {
                    tracing::debug!(volume = %id, %error, "the pool still has a volume's former compression");
                }
            }
            Chore::Kind => {
                if let Some(entry) = reconciler.volume(id).map(|volume| volume.entry) {
                    self.follow_recorded_kind(id, &entry).await;
                }
            }
            Chore::Origin => {
                if let Err(error) = self.note_clone_no_more(reconciler, id).await {
                    tracing::debug!(volume = %id, %error, "the record still has a volume as a clone that is none");
                }
            }
            Chore::Removed(entry, dropped) => {
                if let Err(error) = self.drop_left_copy(reconciler, &entry, dropped).await {
                    tracing::warn!(volume = entry.name, %error, "the copy that was removed from this node could not be deleted yet");
                }
            }
            Chore::Deleted(deleted) => {
                if let Err(error) = self.drop_deleted(reconciler, id, &deleted).await {
                    tracing::warn!(volume = deleted.name, %error, "leftovers of a deleted volume on this node could not be deleted yet");
                }
            }
            Chore::Blank(pool) => {
                if let Err(error) = self.delete_left_blank(reconciler, pool, id).await {
                    tracing::debug!(volume = %id, %error, "a blank copy that nobody needs could not be deleted yet");
                }
            }
            Chore::Lacking(pool) => {
                if let Err(error) = self.resync_lacking_logs(reconciler, pool).await {
                    tracing::warn!(%pool, %error, "the copies in a damaged log could not be marked for a full resync yet");
                }
            }
        }
    }
}

/// In what a pool's copy lags behind the record.
fn lag(info: &VolumeInfo, wanted: &WantedCopy) -> Vec<Chore> {
    let compressed = compression_in_logs(info).zip(wanted.compression);
    let chores = [
        (info.name != wanted.name, Chore::Rename),
        (info.space != wanted.space, Chore::Space),
        (compressed.is_some_and(|(has, wants)| has != wants), Chore::Compression),
        (info.converting.unwrap_or(info.kind) != wanted.kind, Chore::Kind),
    ];
    chores.into_iter().filter_map(|(is_due, chore)| is_due.then_some(chore)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_when_the_record_copies_or_pools_change_and_sometimes_anyway() {
        let at = |seconds: u64| Instant(seconds * 1_000_000_000);
        let pool = |number: u8| PoolId([number; 16]);
        let compared = |seconds: u64, record: u64, activations: u64, pools: &[u8]| Compared {
            at: at(seconds),
            record: Revision(record),
            activations,
            pools: pools.iter().copied().map(pool).collect(),
        };
        let before = compared(100, 7, 3, &[1, 2]);
        assert!(!compared(109, 7, 3, &[1, 2]).must_follow(&before));
        for now in [
            compared(101, 8, 3, &[1, 2]),
            compared(101, 7, 4, &[1, 2]),
            compared(101, 7, 3, &[2]),
            compared(110, 7, 3, &[1, 2]),
        ] {
            assert!(now.must_follow(&before));
        }
    }
}
