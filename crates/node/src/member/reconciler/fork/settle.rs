//! How a fork is settled when the record answers again.

use std::rc::Rc;

use cluster::{Outcome, Status, Transaction};
use replica::{Epoch, Membership, NodeId, Revision};
use store::VolumeId;

use super::super::{Kept, RECORD_DEADLINE, Reconciler, json};
use super::begin::is_well;
use super::decision::{Fork, Judgement, Look, Newest, Phase, RecordedSplit, Step, Verdict};
use super::{ASK_RECORD, attach};
use crate::control::Control;
use crate::copies::cause::Cause;
use crate::copies::core::Copies;
use crate::copies::entry::{StandingEntry, VolumeEntry, volume_key};
use crate::copies::split_brain::{ForkRecord, SplitEntry, VoidEntry, alone, split_key, void_key};
use crate::shard::on_all_cores;

impl Reconciler {
    pub(super) async fn look_at_fork(self: &Rc<Self>, id: VolumeId, status: &Status) {
        let Some(fork) = self.forks.get(id) else { return };
        let record = fork.record();
        let (void, said) = (self.is_void(id, record), self.said_of_split(id, record));
        match fork.look(Look { quorum: status.quorum, void, said }) {
            Step::Wait => {}
            Step::ForgetVoid => self.forget_void(id).await,
            Step::SayVoid => self.say_void(id, record).await,
            Step::Resume => self.resume_fork(id, record, status).await,
            Step::Settle => {
                if self.settle_fork(id).await.is_none() {
                    tracing::debug!(volume = %id, "a split-brain check is not settled yet");
                }
            }
        }
    }

    /// Settles the fork by the newest entry of the record; `None`: not yet.
    async fn settle_fork(self: &Rc<Self>, id: VolumeId) -> Option<()> {
        // The newest entry decides, which this node may not have followed yet.
        let key = volume_key(id);
        let found = self.store.get(&key, ASK_RECORD).await.ok()?;
        let revision = found.as_ref().map(|found| found.revision);
        let (applied, followed) = (self.copies.leases().applied(), self.followed());
        if self.revision_of(&key) != revision || applied < followed || followed == Revision(0) {
            return None;
        }
        let fork = self.forks.get(id)?;
        let record = fork.record();
        let said = self.said_of_split(id, record);
        let Some((value, revision)) = found.map(|found| (found.value, found.revision)) else {
            let control = Control::try_current()?;
            let gone = control.slices_of_copy(id) == 0 && control.all_pools_are_open();
            return match fork.settle(Newest::Deleted { gone }, said) {
                Verdict::Drop => self.drop_fork(id).await,
                _ => self.outlive(id),
            };
        };
        let entry = serde_json::from_slice::<VolumeEntry>(&value).ok()?;
        match fork.settle(newest(&entry, self.me(), record.made), said) {
            Verdict::End => self.end_fork(id).await,
            Verdict::Win => self.win(id, &fork, &entry, revision).await,
            Verdict::GiveUp => {
                tracing::warn!(volume = %id, "the data that this node wrote alone is discarded, as an administrator decided; its copy resyncs");
                self.give_up(id).await
            }
            Verdict::Freeze => self.lose(id, said, revision).await,
            Verdict::Drop => {
                tracing::warn!(volume = entry.name, "leftovers of a removed copy on this node are discarded");
                self.drop_fork(id).await?;
                self.go_on_serving(id).await;
                Some(())
            }
            Verdict::Leave => self.keep_removed(id, revision).await,
            Verdict::Outlive => self.outlive(id),
        }
    }

    /// Whether the record says that this node has not acted in the fork, as far as this node follows the
    /// record.
    fn is_void(&self, id: VolumeId, fork: &ForkRecord) -> bool {
        let void = self.get::<VoidEntry>(&void_key(id));
        void.is_some_and(|(void, _)| void == void_of(self.me(), fork))
    }

    /// Writes to the record that the fork is void.
    ///
    /// This node's own record may have the fork: a later life that found it would take it for one that was
    /// acted in.
    async fn say_void(&self, id: VolumeId, fork: &ForkRecord) {
        let key = void_key(id);
        let void = json(&void_of(self.me(), fork));
        let transaction = Reconciler::transaction().expect(&key, self.revision_of(&key)).put(&key, void);
        if self.change_record(transaction).await.is_none() {
            tracing::debug!(volume = %id, "the record does not say yet that this node has not continued alone");
        }
    }

    /// Forgets a void fork: the copy continues as what the record says it is.
    async fn forget_void(self: &Rc<Self>, id: VolumeId) {
        // If this fails, the record still says that what is left of the fork is void.
        let _ = self.drop_record(id).await;
        self.forget_fork(id);
        let number = self.volumes_mut().get_mut(&id).map(|kept| {
            if let Some(config) = kept.entry.config(Revision(kept.revision.0)) {
                kept.membership.learn(config);
            }
            kept.entry.number
        });
        if let Some(number) = number {
            self.activate().await;
            attach(number).await;
            self.work.notify();
        }
    }

    /// What the record says about the fork as a split, as far as this node follows the record.
    fn said_of_split(&self, id: VolumeId, fork: &ForkRecord) -> RecordedSplit {
        match self.get::<SplitEntry>(&split_key(id)) {
            Some((split, _)) if split.epoch == fork.epoch => {
                split.keep.map_or(RecordedSplit::Undecided, RecordedSplit::Keep)
            }
            _ => RecordedSplit::Nothing,
        }
    }

    /// Changes the record, unless something that the transaction expects has changed.
    async fn change_record(&self, transaction: Transaction) -> Option<()> {
        self.check_readable(&transaction).ok()?;
        let outcome = self.store.cas(transaction, RECORD_DEADLINE).await;
        matches!(outcome, Ok(Outcome::Committed(_))).then_some(())
    }

    /// Makes this copy the only one in sync: the record has it in sync, so the other node has not continued.
    async fn win(
        self: &Rc<Self>,
        id: VolumeId,
        fork: &Fork,
        entry: &VolumeEntry,
        revision: cluster::Revision,
    ) -> Option<()> {
        let next = {
            let volumes = self.volumes.borrow();
            // A copy that may have lost data does not become the only one in sync.
            let lost = |kept: &&Kept| kept.blank && fork.is_inherited();
            let kept = volumes.get(&id).filter(|kept| kept.open && !lost(kept))?;
            let config = entry.config(Revision(revision.0))?;
            let epoch = Epoch(fork.record().epoch + 1);
            let alone = alone(&config, kept.slot, self.copies.incarnation(), epoch, Revision(0));
            entry.with_config(&alone, Cause::ContinuedAlone)
        };
        if !is_well(id, next.number).await {
            return None;
        }
        tracing::warn!(
            volume = entry.name,
            epoch = next.epoch,
            "no split brain: the other node had not continued alone; this node's data is kept, and the other node resyncs from it"
        );
        let key = volume_key(id);
        let transaction = Reconciler::transaction().expect(&key, Some(revision)).put(&key, json(&next));
        self.change_record(transaction).await
    }

    /// Ends the fork once this node acts by the record, which has this copy in sync in a later epoch than the
    /// fork's.
    async fn end_fork(self: &Rc<Self>, id: VolumeId) -> Option<()> {
        {
            let volumes = self.volumes.borrow();
            let kept = volumes.get(&id)?;
            let acts = kept.membership.active().is_some_and(|active| {
                kept.membership.newest() == Some(active) && active.epoch.0 == kept.entry.epoch
            });
            let applied = self.copies.leases().applied() >= Revision(kept.revision.0);
            (acts && applied).then_some(())?;
        }
        self.drop_fork(id).await?;
        self.go_on_serving(id).await;
        self.work.notify();
        Some(())
    }

    /// Stops serving hosts, because the other node has continued. Then ends the fork, or turns it into a
    /// split.
    async fn lose(
        self: &Rc<Self>,
        id: VolumeId,
        said: RecordedSplit,
        revision: cluster::Revision,
    ) -> Option<()> {
        self.forks.change(id, Fork::freeze);
        let served = self.stop_serving(id).await?;
        let decided_in = self.volumes.borrow().get(&id)?.agreement.decided_in();
        let fork = self.forks.get(id)?;
        match fork.judge(served, decided_in, said) {
            Judgement::Unused => {
                tracing::warn!(volume = %id, "no split brain: the other node continued alone, and no host was served here meanwhile; this copy resyncs");
                self.give_up(id).await
            }
            // From here on a decision covers everything that was written here.
            Judgement::WriteSplit => self.write_split(id, fork.record()).await,
            Judgement::SaySplit => self.say_split(id, fork.record(), revision).await,
        }
    }

    /// Writes the split to the record, if the volume's entry is still that of `revision`.
    async fn say_split(&self, id: VolumeId, fork: &ForkRecord, revision: cluster::Revision) -> Option<()> {
        tracing::error!(
            volume = %id, parent = fork.parent,
            "split brain: both nodes continued alone with this volume, and each has data that the other lacks. The other node serves it; the data here is kept unchanged until an administrator decides: `ursa volume resolve-split-brain`"
        );
        let key = split_key(id);
        let entry =
            SplitEntry { node: self.me().0, parent: fork.parent, epoch: fork.epoch, at: fork.at, keep: None };
        let transaction = Reconciler::transaction()
            .expect(&volume_key(id), Some(revision))
            .expect(&key, self.revision_of(&key))
            .put(&key, json(&entry));
        self.change_record(transaction).await
    }

    /// Keeps what was written here when someone who did not know of it has removed this copy.
    async fn keep_removed(self: &Rc<Self>, id: VolumeId, revision: cluster::Revision) -> Option<()> {
        self.forks.change(id, Fork::leave);
        let fork = self.forks.get(id)?;
        // From here on a decision covers everything that was written here, in a later life, too.
        if !fork.record().split {
            self.write_split(id, fork.record()).await?;
        }
        self.say_split(id, fork.record(), revision).await
    }

    /// Writes to this node's own record that hosts are no longer served in the fork.
    async fn write_split(&self, id: VolumeId, fork: &ForkRecord) -> Option<()> {
        Control::try_current()?.keep_fork(&ForkRecord { split: true, ..fork.clone() }).await.ok()?;
        self.forks.change(id, Fork::handle_split_written)
    }

    /// Keeps what was written here when someone who did not know of it has deleted the volume.
    ///
    /// The data is kept until the volume is deleted on this node, too.
    fn outlive(&self, id: VolumeId) -> Option<()> {
        if self.forks.get(id)?.phase() != Phase::Left {
            tracing::error!(
                volume = %id,
                "a volume was deleted while this node continued alone with it: the data written here is kept, but not served, until it is deleted on this node, too: `ursa volume delete`"
            );
            self.forks.change(id, Fork::leave);
        }
        Some(())
    }

    /// Stops serving hosts through this copy, before it is decided that the other node serves them. Returns
    /// whether one was served in the active configuration.
    pub async fn stop_serving(self: &Rc<Self>, id: VolumeId) -> Option<bool> {
        let (number, before) = {
            let mut volumes = self.volumes_mut();
            let kept = volumes.get_mut(&id)?;
            (kept.entry.number, std::mem::replace(&mut kept.held, true))
        };
        let frozen = on_all_cores(move || async move {
            Copies::current().slices_of(number).iter().fold(false, |used, copy| used | copy.freeze())
        });
        let used = frozen.await.contains(&true);
        if !before {
            self.show_paths().await;
        }
        Some(used)
    }

    /// Serves hosts again, unless something else forbids it.
    pub async fn go_on_serving(self: &Rc<Self>, id: VolumeId) {
        let number = self.volumes_mut().get_mut(&id).and_then(|kept| {
            kept.held = false;
            (!kept.is_held()).then_some(kept.entry.number)
        });
        if let Some(number) = number {
            attach(number).await;
            // While it was held, the copy did not ask what the members have agreed on. If it is the only
            // copy, nothing else makes it ask.
            self.learn_agreements();
            self.show_paths().await;
        }
    }

    /// Gives up the data of the fork: this copy becomes what the record says, one that is out of sync.
    async fn give_up(self: &Rc<Self>, id: VolumeId) -> Option<()> {
        self.stop_serving(id).await?;
        let takes_part = |kept: &&Kept| kept.open && kept.whole;
        let number = self.volumes.borrow().get(&id).filter(takes_part).map(|kept| kept.entry.number)?;
        // The blocks that this copy has written alone must not pass for those that others have lost (R27).
        let forgotten = on_all_cores(move || async move {
            let slices = Copies::current().slices_of(number);
            rt::join_all(slices.iter().map(|copy| copy.hold_nothing())).await.iter().all(Result::is_ok)
        });
        if self.forks.without_turn(forgotten).await.contains(&false) {
            return None;
        }
        self.drop_record(id).await?;
        {
            let mut volumes = self.volumes_mut();
            let kept = volumes.get_mut(&id)?;
            let config = kept.entry.config(Revision(kept.revision.0))?;
            self.forget_fork(id);
            kept.membership = Membership::new(kept.slot, self.copies.incarnation());
            kept.membership.learn(config);
        }
        self.activate().await;
        self.go_on_serving(id).await;
        self.work.notify();
        Some(())
    }

    /// Whether all that this node has written alone is here, and the node could serve it.
    ///
    /// Only if it has served no host since it wrote down that this is a split.
    pub async fn can_serve_fork(&self, id: VolumeId, epoch: u64) -> bool {
        let rests = self.forks.get(id).is_some_and(|fork| fork.rests(epoch));
        let number = {
            let volumes = self.volumes.borrow();
            volumes.get(&id).filter(|kept| kept.open && !kept.blank).map(|kept| kept.entry.number)
        };
        match number.filter(|_| rests) {
            Some(number) => is_well(id, number).await,
            None => false,
        }
    }

    /// Removes the fork from this node's own record, and forgets it.
    async fn drop_fork(&self, id: VolumeId) -> Option<()> {
        self.drop_record(id).await?;
        self.forget_fork(id);
        Some(())
    }

    async fn drop_record(&self, id: VolumeId) -> Option<()> {
        let control = Control::try_current()?;
        let dropped = control.drop_fork(id).await;
        dropped
            .inspect_err(|error| {
                let error = error as &dyn std::error::Error;
                tracing::error!(volume = %id, error, "cannot write to the node's record that it no longer continues alone: the copy waits until it can");
            })
            .ok()
    }
}

/// What the entry says about the copy of this node that was made then.
fn newest(entry: &VolumeEntry, node: NodeId, made: u64) -> Newest {
    let copy = entry.copy_on(node).map(|(_, copy)| copy).filter(|copy| copy.made == made);
    match copy.map(|copy| copy.standing) {
        None => Newest::Removed,
        Some(StandingEntry::InSync) => Newest::InSync(Epoch(entry.epoch)),
        Some(_) => Newest::Outside,
    }
}

fn void_of(node: NodeId, fork: &ForkRecord) -> VoidEntry {
    VoidEntry { node: node.0, epoch: fork.epoch, at: fork.at }
}
