//! How a fork is settled when the record answers again.

use std::rc::Rc;

use cluster::{Outcome, Status, Transaction};
use replica::{Epoch, Membership, NodeId, Revision};
use store::VolumeId;

use super::super::super::cause::Cause;
use super::super::super::core::Copies;
use super::super::super::entry::{StandingEntry, VolumeEntry, volume_key};
use super::super::super::split_brain::{ForkRecord, SplitEntry, VoidEntry, alone, split_key, void_key};
use super::super::{Keeper, Kept, RECORD_DEADLINE, json};
use super::begin::is_well;
use super::{ASK_RECORD, Phase, attach};
use crate::canary::{Canary, makes};
use crate::control::Control;
use crate::shard::on_all_cores;

impl Keeper {
    pub(super) async fn look_at_fork(self: &Rc<Self>, id: VolumeId, status: &Status) {
        let (Some(fork), Some(phase)) = (self.forks.record(id), self.forks.phase(id)) else { return };
        if phase == Phase::Begun {
            return;
        }
        if self.is_void(id, &fork) {
            return self.forget_void(id).await;
        }
        if phase == Phase::Void {
            if status.quorum {
                self.say_void(id, &fork).await;
            }
            return;
        }
        if !status.quorum {
            if phase == Phase::Dormant && !fork.split {
                self.resume_fork(id, &fork, status).await;
            }
            return;
        }
        if self.waits_for_somebody(id, &fork) {
            return;
        }
        // The newest entry decides, which this node may not have followed yet.
        let key = volume_key(id);
        let Ok(found) = self.store.get(&key, ASK_RECORD).await else { return };
        let revision = found.as_ref().map(|found| found.revision);
        let (applied, followed) = (self.copies.leases().applied(), self.followed());
        if self.revision_of(&key) != revision || applied < followed || followed == Revision(0) {
            return;
        }
        let Some((entry, revision)) = found.map(|found| (found.value, found.revision)) else {
            return self.outlive(id).await;
        };
        let Ok(entry) = serde_json::from_slice::<VolumeEntry>(&entry) else { return };
        let copy = entry.copy_on(self.me()).map(|(_, copy)| copy).filter(|copy| copy.made == fork.made);
        let settled = match copy.map(|copy| copy.standing) {
            None => self.lose_copy(id, &fork, &entry, revision).await,
            Some(StandingEntry::InSync) if entry.epoch > fork.epoch => self.end_fork(id).await,
            Some(StandingEntry::InSync) => self.win(id, &fork, &entry, revision).await,
            Some(_) => self.lose(id, &fork, revision).await,
        };
        if settled.is_none() {
            tracing::debug!(volume = %id, "a split-brain check is not settled yet");
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
        let transaction = Keeper::transaction().expect(&key, self.revision_of(&key)).put(&key, void);
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

    /// Whether the fork is a split, and no administrator has decided on it yet.
    fn waits_for_somebody(&self, id: VolumeId, fork: &ForkRecord) -> bool {
        let rests = match self.forks.phase(id) {
            Some(Phase::Frozen) => fork.split,
            phase => phase == Some(Phase::Left),
        };
        rests && self.split_of(id, fork).is_some_and(|split| split.keep.is_none())
    }

    /// The record's entry about the fork as a split, as far as this node follows the record.
    fn split_of(&self, id: VolumeId, fork: &ForkRecord) -> Option<SplitEntry> {
        let (split, _) = self.get::<SplitEntry>(&split_key(id))?;
        (split.epoch == fork.epoch).then_some(split)
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
        fork: &ForkRecord,
        entry: &VolumeEntry,
        revision: cluster::Revision,
    ) -> Option<()> {
        let next = {
            let volumes = self.volumes.borrow();
            // A copy that may have lost data does not become the only one in sync.
            let inherited = self.forks.all.borrow().get(&id)?.inherited;
            let kept = volumes.get(&id).filter(|kept| kept.open && !(kept.blank && inherited))?;
            let config = entry.config(Revision(revision.0))?;
            let epoch = Epoch(fork.epoch + 1);
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
        let transaction = Keeper::transaction().expect(&key, Some(revision)).put(&key, json(&next));
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
        self.drop_record(id).await?;
        self.forget_fork(id);
        self.go_on_serving(id).await;
        self.work.notify();
        Some(())
    }

    /// Ends the fork, or turns it into a split, when the other node has continued.
    async fn lose(
        self: &Rc<Self>,
        id: VolumeId,
        fork: &ForkRecord,
        revision: cluster::Revision,
    ) -> Option<()> {
        let split = self.split_of(id, fork);
        let word = split.as_ref().and_then(|split| split.keep);
        // A decision made while hosts may still have been served here does not cover what they have written
        // since.
        if word == Some(fork.without) && (fork.split || makes(Canary::ForkWordEarly)) {
            tracing::warn!(volume = %id, "the data that this node wrote alone is discarded, as an administrator decided; its copy resyncs");
            return self.give_up(id).await;
        }
        let used = self.freeze(id).await?;
        if !used || makes(Canary::ForkUnused) {
            tracing::warn!(volume = %id, "no split brain: the other node continued alone, and no host was served here meanwhile; this copy resyncs");
            return self.give_up(id).await;
        }
        if split.is_some() && word.is_none() {
            // From here on a decision covers everything that was written here.
            return self.write_split(id, fork).await;
        }
        self.say_split(id, fork, revision).await
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
        let transaction = Keeper::transaction()
            .expect(&volume_key(id), Some(revision))
            .expect(&key, self.revision_of(&key))
            .put(&key, json(&entry));
        self.change_record(transaction).await
    }

    /// Handles the removal of this copy by someone who did not know what was written to it.
    async fn lose_copy(
        self: &Rc<Self>,
        id: VolumeId,
        fork: &ForkRecord,
        entry: &VolumeEntry,
        revision: cluster::Revision,
    ) -> Option<()> {
        let decided = self.split_of(id, fork).is_some_and(|split| split.keep.is_some());
        let used = self.forks.all.borrow().get(&id)?.acted;
        if !used || fork.split && decided {
            tracing::warn!(volume = entry.name, "what is left of a removed copy on this node is discarded");
            self.drop_record(id).await?;
            self.forget_fork(id);
            self.go_on_serving(id).await;
            return Some(());
        }
        self.forks.set_phase(id, Phase::Left);
        // From here on a decision covers everything that was written here, in a later life, too.
        if !fork.split {
            self.write_split(id, fork).await?;
        }
        self.say_split(id, fork, revision).await
    }

    /// Writes to this node's own record that hosts are no longer served in the fork.
    async fn write_split(&self, id: VolumeId, fork: &ForkRecord) -> Option<()> {
        Control::try_current()?.keep_fork(&ForkRecord { split: true, ..fork.clone() }).await.ok()?;
        if let Some(here) = self.forks.all.borrow_mut().get_mut(&id) {
            here.record.split = true;
        }
        Some(())
    }

    /// Keeps what was written here when someone who did not know of it has deleted the volume.
    ///
    /// The data is kept until the volume is deleted on this node, too.
    async fn outlive(self: &Rc<Self>, id: VolumeId) {
        let Some(control) = Control::try_current() else { return };
        let used = self.forks.all.borrow().get(&id).is_some_and(|fork| fork.acted);
        if !used || control.slices_of_copy(id) == 0 && control.all_pools_are_open() {
            if self.drop_record(id).await.is_some() {
                self.forget_fork(id);
            }
            return;
        }
        if self.forks.phase(id) != Some(Phase::Left) {
            tracing::error!(
                volume = %id,
                "a volume was deleted while this node continued alone with it: the data written here is kept, but not served, until it is deleted on this node, too: `ursa volume delete`"
            );
            self.forks.set_phase(id, Phase::Left);
        }
    }

    /// Stops serving hosts; returns whether one may have been served since the fork began.
    async fn freeze(self: &Rc<Self>, id: VolumeId) -> Option<bool> {
        self.forks.set_phase(id, Phase::Frozen);
        let used = self.hold(id).await?;
        let all = self.forks.all.borrow();
        let fork = all.get(&id)?;
        let decided = self.volumes.borrow().get(&id)?.agreement.decided_in();
        Some(fork.inherited || fork.acted && (used || decided.0 >= fork.record.epoch))
    }

    /// Stops serving hosts, before it is decided that the other node serves them.
    pub async fn stop_serving(self: &Rc<Self>, id: VolumeId) {
        self.hold(id).await;
    }

    /// Stops serving hosts through this copy; returns whether one was served in the active configuration.
    async fn hold(self: &Rc<Self>, id: VolumeId) -> Option<bool> {
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
        self.hold(id).await?;
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
        let rests = {
            let all = self.forks.all.borrow();
            let fork = all.get(&id).filter(|fork| fork.record.epoch == epoch && fork.record.split);
            fork.is_some_and(|fork| fork.phase == Phase::Frozen)
        };
        let number = {
            let volumes = self.volumes.borrow();
            volumes.get(&id).filter(|kept| kept.open && !kept.blank).map(|kept| kept.entry.number)
        };
        match number.filter(|_| rests) {
            Some(number) => is_well(id, number).await,
            None => false,
        }
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

fn void_of(node: NodeId, fork: &ForkRecord) -> VoidEntry {
    VoidEntry { node: node.0, epoch: fork.epoch, at: fork.at }
}
