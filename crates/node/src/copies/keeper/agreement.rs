//! How all nodes that serve a volume agree on the state of its unit: mode pages and reservations.
//!
//! The node that receives a change decides it, in rounds of questions to all members of an epoch, itself
//! included:
//!
//! 1. It asks each member what it knows, and brings the newest state to the members that lack it.
//! 2. It decides the change against that state, and brings the outcome to the member with the lowest slot in
//!    sync. That member takes it only if its own state is the one that the change was decided against. So of
//!    two concurrent changes one is decided again.
//! 3. It brings the outcome to all other members. Only then does it answer.
//!
//! A member takes nothing of an epoch that it does not act in: when the members change, the deciding node
//! asks again. Nor does a member take what is older than its own state: in the next epoch another change may
//! have been decided while this one was on its way, and without it. The node that decided this one sees by
//! [`Agreed::contains`] whether it has to decide it again.
//!
//! So every change that was answered is known to all members of its epoch and of every later one. A copy that
//! joins asks the members. It serves nothing and is not promoted before it knows the state, and before
//! commands that were admitted earlier have ended. A change that was not answered, because its node was lost,
//! is either brought to all members by the next question, or forgotten with the members that had it. No
//! change waits for the cluster's record.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use proto::scsi::{Abort, ChangeRequest, LuState, Notice, Outcome, Status};
use replica::{DiskFault, Epoch, NodeId, Slot};
use rt::sync::Semaphore;
use serde::{Deserialize, Serialize};
use store::VolumeId;

use super::super::HOLD_MAX;
use super::super::SILENT_MAX;
use super::super::ask::{Answer, Ask};
use super::super::core::Copies;
use super::{ClusterError, Keeper, Kept};
use crate::canary::{Canary, makes};
use crate::control::Control;
use crate::shard::{Shard, on_all_cores};
use crate::unit::{Unit, install_on_all_cores, until_orphans_ended, until_written};

/// How long a node may take to decide a change.
///
/// Longer than it takes to give up a lost node. And shorter than initiators wait before they give up a path
/// and use another one: what they requested here must not take effect after what they request there.
const DECIDE_MAX: Duration = HOLD_MAX;

/// How long a node tries to bring a change that it has decided to all members.
const AGREE_MAX: Duration = Duration::from_secs(10);

/// How long another node may take to say what it knows.
const TELL_MAX: Duration = Duration::from_secs(2);

/// How long a member may take to install a change: it waits until what the change aborts has ended.
const INSTALL_MAX: Duration = Duration::from_secs(15);

/// How long to wait before trying a failed round again.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// The place of a change among all changes of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version {
    /// The epoch in which it was decided.
    epoch: u64,
    /// Its number in that epoch.
    number: u64,
    /// The node that decided it; orders two changes that are decided at once.
    by: u16,
}

/// What a node knows of a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreed {
    version: Version,
    /// The state that the last change has left.
    state: LuState,
    /// The unit attentions that the last change raises, and for whom.
    notices: Vec<Notice>,
    /// The commands that the last change aborts.
    abort: Abort,
    /// For each node, the last of its changes that this state includes; the last change is among them. A node
    /// that has decided a change and finds a later one sees here whether that was decided on top of its own.
    contains: Vec<Version>,
}

impl Agreed {
    /// The changes that the state includes with one of that version on top.
    fn contains_with(&self, version: Version) -> Vec<Version> {
        let others = self.contains.iter().filter(|other| other.by != version.by);
        others.copied().chain([version]).collect()
    }
}

/// A change that this node has decided, and that some members may have.
#[derive(Clone)]
struct Decided {
    version: Version,
    outcome: Outcome,
    abort: Abort,
    /// The first member has answered: it is known what it did with the change, and no other member had been
    /// asked before.
    answered: bool,
}

/// What a member says about a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    agreed: Agreed,
    /// It has learned this from other members since it became one.
    known: bool,
    /// Its pool has stored the part that must survive.
    stored: bool,
}

/// This node's part in the agreement on one unit.
pub(super) struct Agreement {
    version: Version,
    notices: Vec<Notice>,
    abort: Abort,
    /// See [`Agreed`].
    contains: Vec<Version>,
    /// Whether the state here is what the members agreed on: a new member has to ask them first.
    pub known: bool,
    /// A task is asking for it.
    pub asking: bool,
    /// The pool here, which has the only copy in sync, did not store the last change.
    unstored: bool,
    /// Allows one change to be installed at a time.
    installing: Rc<Semaphore>,
    /// The state before the change that is being installed. Others get this one until the installation is
    /// complete, since part of the new state is in effect already.
    before: Option<Agreed>,
}

impl Agreement {
    pub fn new(known: bool) -> Agreement {
        let installing = Rc::new(Semaphore::new(1));
        let version = Version::default();
        let (notices, abort, contains) = (Vec::new(), Abort::NONE, Vec::new());
        Agreement {
            version,
            notices,
            abort,
            contains,
            known,
            asking: false,
            unstored: false,
            installing,
            before: None,
        }
    }

    /// The epoch in which the last change was decided.
    pub fn decided_in(&self) -> Epoch {
        Epoch(self.version.epoch)
    }
}

/// Holds [`Agreement::installing`].
struct Installing(Rc<Semaphore>);

impl Drop for Installing {
    fn drop(&mut self) {
        self.0.release(1);
    }
}

/// The members of an epoch.
struct Members {
    epoch: Epoch,
    nodes: Vec<(Slot, NodeId)>,
    /// The member that is asked first to take a change: the lowest slot in sync.
    first: NodeId,
}

/// The members have changed, or another node was quicker: try again.
struct TryAgain;

impl Keeper {
    /// Decides a change of a unit together with all other nodes that serve it, and installs it on all of
    /// them.
    pub async fn agree_on(self: &Rc<Self>, unit: &Unit, change: &ChangeRequest) -> Outcome {
        let began = rt::now();
        let mut decided = None;
        while rt::now() < began + if decided.is_some() { AGREE_MAX } else { DECIDE_MAX } {
            match self.try_to_agree(unit, change, began + DECIDE_MAX, &mut decided).await {
                Ok(outcome) => return outcome,
                Err(TryAgain) if self.take_unstored(unit.id()) => return unit.brain().borrow().failed(),
                Err(TryAgain) => rt::sleep(AGAIN_AFTER).await,
            }
        }
        tracing::error!(volume = %unit.id(), "a change of reservations or mode pages was abandoned: the nodes do not agree on which of them serve");
        Outcome::status(Status::Busy)
    }

    /// Makes one attempt; `decided` is the change that an earlier attempt has brought to some members.
    async fn try_to_agree(
        self: &Rc<Self>,
        unit: &Unit,
        change: &ChangeRequest,
        until: Instant,
        decided: &mut Option<Decided>,
    ) -> Result<Outcome, TryAgain> {
        let id = unit.id();
        let members = self.members_of(id).ok_or(TryAgain)?;
        let (newest, stored) = self.settle(id, &members).await?;
        if let Some(Decided { version, outcome, abort, .. }) = decided
            && newest.contains.contains(version)
        {
            if *abort != Abort::NONE && version.epoch != members.epoch.0 {
                // A lost member may have left writes that the change aborts with other members, which
                // complete them in this epoch: wait until they have.
                let again = Agreed { abort: abort.clone(), ..newest };
                let waited = members.nodes.iter().map(|(_, node)| self.bring(id, &members, *node, &again));
                rt::join_all(waited).await.into_iter().collect::<Result<Vec<()>, TryAgain>>()?;
            }
            return Ok(outcome.clone());
        }
        // No member of this epoch has the change, and none will take it: members take nothing of an earlier
        // epoch, and what the first one has refused goes to no other. There is nothing to wait for.
        if decided
            .as_ref()
            .is_some_and(|decided| decided.answered || decided.version.epoch != members.epoch.0)
        {
            *decided = None;
        }
        // Part of what is being installed here is in effect already, and it is not agreed on yet.
        if rt::now() > until || self.is_installing(id) && !makes(Canary::DecideBeside) {
            return Err(TryAgain);
        }
        // The state that is installed here is the newest.
        let decision = unit.brain().borrow().decide(change);
        // A pool that failed to store a change may turn out to have it after a restart. So while there is
        // such a pool, what changes nothing is stored as a change is.
        let changes =
            decision.state.is_some() || !decision.notices.is_empty() || decision.abort != Abort::NONE;
        if !changes && stored {
            return Ok(decision.outcome);
        }
        let version = Version { epoch: members.epoch.0, number: newest.version.number + 1, by: self.me().0 };
        let agreed = Agreed {
            version,
            contains: newest.contains_with(version),
            state: decision.state.unwrap_or(newest.state),
            notices: decision.notices,
            abort: decision.abort,
        };
        let (outcome, abort) = (decision.outcome.clone(), agreed.abort.clone());
        let taken = self.ask_to_install(id, &members, members.first, Some(newest.version), &agreed);
        *decided = Some(Decided { version, outcome, abort, answered: false });
        let taken = taken.await.ok();
        *decided = decided.take().map(|decided| Decided { answered: taken.is_some(), ..decided });
        if taken != Some(true) {
            return Err(TryAgain);
        }
        let others = members.nodes.iter().filter(|(_, node)| *node != members.first);
        let brought = others.map(|(_, node)| self.bring(id, &members, *node, &agreed));
        rt::join_all(brought).await.into_iter().collect::<Result<Vec<()>, TryAgain>>()?;
        Ok(decision.outcome)
    }

    /// Asks the members what they know, and brings the newest state to all of them.
    ///
    /// Also returns whether all members that answered have stored what they know.
    async fn settle(self: &Rc<Self>, id: VolumeId, members: &Members) -> Result<(Agreed, bool), TryAgain> {
        let told = rt::join_all(members.nodes.iter().map(|(_, node)| self.told_by(id, members, *node))).await;
        let told: Vec<(NodeId, Told)> = told.into_iter().collect::<Result<_, TryAgain>>()?;
        let newest_of = |known: bool| {
            let those = told.iter().filter(|(_, told)| told.known == known);
            those.max_by_key(|(_, told)| told.agreed.version).map(|(_, told)| told.agreed.clone())
        };
        // If no member knows, all have been away. What must survive is on the disk of each copy that was in
        // sync, and only those serve.
        let newest = newest_of(true).or_else(|| newest_of(false)).ok_or(TryAgain)?;
        let lacking = told.iter().filter(|(_, told)| !told.known || told.agreed.version != newest.version);
        let brought = lacking.map(|(node, _)| self.bring(id, members, *node, &newest));
        rt::join_all(brought).await.into_iter().collect::<Result<Vec<()>, TryAgain>>()?;
        Ok((newest, told.iter().all(|(_, told)| told.stored)))
    }

    async fn told_by(
        self: &Rc<Self>,
        id: VolumeId,
        members: &Members,
        node: NodeId,
    ) -> Result<(NodeId, Told), TryAgain> {
        if node == self.me() {
            return self.tell(id, members.epoch).map(|told| (node, told)).ok_or(TryAgain);
        }
        let ask = Ask::TellUnit { id: id.to_string(), epoch: members.epoch.0 };
        match self.ask_of(id, members, node, ask, TELL_MAX).await {
            Ok(Answer::Unit(Some(told))) => Ok((node, *told)),
            _ => Err(TryAgain),
        }
    }

    async fn bring(
        self: &Rc<Self>,
        id: VolumeId,
        members: &Members,
        node: NodeId,
        agreed: &Agreed,
    ) -> Result<(), TryAgain> {
        let taken = self.ask_to_install(id, members, node, None, agreed).await?;
        if taken { Ok(()) } else { Err(TryAgain) }
    }

    /// Asks a member, or this node, to take a change; returns whether it did.
    ///
    /// Without an answer that is unknown.
    async fn ask_to_install(
        self: &Rc<Self>,
        id: VolumeId,
        members: &Members,
        node: NodeId,
        expected: Option<Version>,
        agreed: &Agreed,
    ) -> Result<bool, TryAgain> {
        let epoch = members.epoch;
        if node == self.me() {
            return Ok(self.install(id, epoch, expected, agreed.clone()).await);
        }
        let agreed = Box::new(agreed.clone());
        let ask = Ask::InstallUnit { id: id.to_string(), epoch: epoch.0, expected, agreed };
        match self.ask_of(id, members, node, ask, INSTALL_MAX).await {
            Ok(Answer::Taken(taken)) => Ok(taken),
            _ => Err(TryAgain),
        }
    }

    /// Asks a member, and waits as long as the members stay the same.
    ///
    /// A member whose disk hangs answers nothing until the disk works again, and the others continue without
    /// it.
    async fn ask_of(
        self: &Rc<Self>,
        id: VolumeId,
        members: &Members,
        node: NodeId,
        ask: Ask,
        deadline: Duration,
    ) -> Result<Answer, ClusterError> {
        let same = || self.members_of(id).is_some_and(|now| now.epoch == members.epoch);
        self.ask_while(node, ask, deadline, same).await
    }

    /// What this node knows of the unit, if it is a member in this epoch.
    pub fn tell(&self, id: VolumeId, epoch: Epoch) -> Option<Told> {
        let volumes = self.volumes.borrow();
        let kept = volumes.get(&id).filter(|kept| self.is_member_in(kept, epoch))?;
        let Agreement { version, notices, abort, contains, known, before, .. } = &kept.agreement;
        let (known, stored) = (*known, !Control::current().has_unsettled_state(id));
        if let Some(before) = before {
            return Some(Told { agreed: before.clone(), known, stored });
        }
        let unit = Shard::current().unit(id)?;
        let state = unit.brain().borrow().state().clone();
        let (notices, abort, contains) = (notices.clone(), abort.clone(), contains.clone());
        Some(Told { agreed: Agreed { version: *version, state, notices, abort, contains }, known, stored })
    }

    /// Installs here what was decided; returns whether this node has it now.
    ///
    /// It refuses if it does not act in that epoch, if its state is not the expected one, or if its disk does
    /// not take the change.
    pub async fn install(
        &self,
        id: VolumeId,
        epoch: Epoch,
        expected: Option<Version>,
        agreed: Agreed,
    ) -> bool {
        let installing = {
            let volumes = self.volumes.borrow();
            let Some(kept) = volumes.get(&id) else { return false };
            Rc::clone(&kept.agreement.installing)
        };
        installing.acquire(1).await;
        let _installing = Installing(installing);
        let Some(told) = self.tell(id, epoch) else { return false };
        let here = told.agreed;
        let unexpected = expected.is_some_and(|expected| !told.known || expected != here.version);
        if unexpected && !makes(Canary::InstallUnexpected) {
            return false;
        }
        if told.known && agreed.version <= here.version {
            if agreed.version < here.version {
                // It was decided without the state here, or that one on top of it. The node that brings it
                // will find out.
                return makes(Canary::TakeOlder);
            }
            if agreed.abort != Abort::NONE && !makes(Canary::OrphansOnce) {
                until_orphans_ended(id).await;
                // A copy that is no longer a member has forgotten what it waited for: other members may still
                // complete that.
                return self.is_member_now(id, epoch);
            }
            return true;
        }
        let durable = agreed.state.to_durable();
        let is_stored = durable == here.state.to_durable() && told.stored;
        if !is_stored && !makes(Canary::NotStored) && !self.keep(id, durable).await {
            return false;
        }
        let Agreed { version, state, notices, abort, contains } = agreed;
        let agreed_here = version.by == self.me().0;
        // A node that only learns of an old agreement has no news for initiators.
        let (told_now, aborted_now) =
            if told.known { (notices.clone(), abort.clone()) } else { (Vec::new(), Abort::NONE) };
        if let Some(kept) = self.volumes_mut().get_mut(&id) {
            kept.agreement.before = Some(here);
        }
        if agreed_here || !makes(Canary::InstallElsewhere) {
            install_on_all_cores(id, Some(state), told_now, aborted_now).await;
        }
        if !told.known && !makes(Canary::GoOnAfterLoss) {
            // Wait for what was admitted under older reservations, before the others continued without this
            // node or just when it learned of that.
            until_written(id).await;
        }
        let mut volumes = self.volumes_mut();
        let Some(kept) = volumes.get_mut(&id) else { return false };
        let is_member = self.is_member_in(kept, epoch);
        let agreement = &mut kept.agreement;
        if !is_member && makes(Canary::InstallUnnamed) {
            agreement.before = None;
            return false;
        }
        // The state is installed now, even if the copy acts in another epoch by now. It gets its version, so
        // that this node can report it and the members bring it to all or forget it.
        (agreement.version, agreement.contains) = (version, contains);
        (agreement.notices, agreement.abort) = (notices, abort);
        agreement.before = None;
        agreement.known |= is_member;
        is_member
    }

    /// Stores in the pool here what must survive of a change; returns whether it did.
    ///
    /// If others are in sync, it does not wait for a disk that hangs, because the others would wait, too.
    async fn keep(&self, id: VolumeId, durable: Vec<u8>) -> bool {
        let control = Control::current();
        let mut storing = pin!(control.store_lu_state(id, durable));
        // Slots give up at different times: if something blocks all disks, one copy must stay in sync.
        let slot = self.volumes.borrow().get(&id).map_or(0, |kept| kept.slot.index());
        let mut stored = None;
        // Second by second: if the process was stopped for a while, only one second of it counts.
        for _ in 0..SILENT_MAX.as_secs() + slot as u64 {
            stored = rt::timeout(Duration::from_secs(1), storing.as_mut()).await.ok();
            if stored.is_some() {
                break;
            }
        }
        let stored = match stored {
            Some(stored) => stored,
            None if self.is_last(id) => storing.await,
            None => {
                tracing::error!(volume = %id, "a pool has not stored a change of reservations or mode pages for seconds: other copies continue without this one");
                self.give_up_disk(id, DiskFault::Silent).await;
                return false;
            }
        };
        let Err(error) = stored else { return true };
        tracing::error!(volume = %id, error = &error as &dyn std::error::Error, "a change of reservations or mode pages could not be stored");
        if error.is_of_disk() {
            if let Some(kept) = self.volumes_mut().get_mut(&id) {
                kept.agreement.unstored = kept
                    .membership
                    .active()
                    .is_some_and(|config| self.is_in_sync(kept, config) && config.in_sync().len() == 1);
            }
            self.give_up_disk(id, DiskFault::Write).await;
        }
        false
    }

    /// Takes the copy out if others are in sync, because the pool here does not store changes.
    ///
    /// While this copy is a member, no host could reserve the volume or release a reservation.
    async fn give_up_disk(&self, id: VolumeId, fault: DiskFault) {
        let number = self.volumes.borrow().get(&id).map(|kept| kept.entry.number);
        let Some(volume) = number else { return };
        on_all_cores(move || async move {
            for copy in Copies::current().slices_of(volume) {
                copy.give_up_disk(fault);
            }
        })
        .await;
    }

    fn is_member_now(&self, id: VolumeId, epoch: Epoch) -> bool {
        self.volumes.borrow().get(&id).is_some_and(|kept| self.is_member_in(kept, epoch))
    }

    /// Returns, and resets, whether the only copy in sync has failed to store a change.
    fn take_unstored(&self, id: VolumeId) -> bool {
        let mut volumes = self.volumes_mut();
        volumes.get_mut(&id).is_some_and(|kept| std::mem::take(&mut kept.agreement.unstored))
    }

    fn is_installing(&self, id: VolumeId) -> bool {
        self.volumes.borrow().get(&id).is_some_and(|kept| kept.agreement.before.is_some())
    }

    /// Makes copies that have become members ask what the others agreed on.
    pub(super) fn learn_agreements(self: &Rc<Self>) {
        let mut volumes = self.volumes_mut();
        for (id, kept) in volumes.iter_mut().filter(|(_, kept)| kept.open) {
            let Some(config) = kept.membership.active() else { continue };
            let member = self.is_member(kept, config);
            // What a copy knew as a member earlier is outdated.
            kept.agreement.known &= member;
            if member && !kept.agreement.known && !kept.agreement.asking {
                kept.agreement.asking = true;
                rt::spawn(Rc::clone(self).learn_agreement(*id)).detach();
            }
        }
    }

    async fn learn_agreement(self: Rc<Self>, id: VolumeId) {
        while let Some(members) = self.members_of(id)
            && !self.knows_agreement(id)
        {
            if self.settle(id, &members).await.is_err() {
                rt::sleep(AGAIN_AFTER).await;
            }
        }
        if let Some(kept) = self.volumes_mut().get_mut(&id) {
            kept.agreement.asking = false;
        }
        self.show_paths().await;
        self.work.notify();
    }

    fn knows_agreement(&self, id: VolumeId) -> bool {
        self.volumes.borrow().get(&id).is_none_or(|kept| kept.agreement.known)
    }

    /// Whether the node of a copy knows what the members agreed on; before that the copy is not promoted.
    pub(super) async fn is_told(self: &Rc<Self>, id: VolumeId, slot: Slot) -> bool {
        let Some(members) = self.members_of(id) else { return false };
        let Some((_, node)) = members.nodes.iter().find(|(member, _)| *member == slot) else { return false };
        self.told_by(id, &members, *node).await.is_ok_and(|(_, told)| told.known)
    }

    /// The members of the epoch that this node acts in, if it is one.
    fn members_of(&self, id: VolumeId) -> Option<Members> {
        let volumes = self.volumes.borrow();
        let kept = volumes.get(&id)?;
        let config = kept.membership.active()?;
        (self.is_member(kept, config) && !kept.is_held()).then_some(())?;
        let node_of = |slot: Slot| Some((slot, config.copy(slot)?.node));
        let (_, first) = config.in_sync().iter().next().and_then(node_of)?;
        Some(Members {
            epoch: config.epoch,
            nodes: config.members().iter().filter_map(node_of).collect(),
            first,
        })
    }

    fn is_member_in(&self, kept: &Kept, epoch: Epoch) -> bool {
        kept.open
            && !kept.is_held()
            && kept
                .membership
                .active()
                .is_some_and(|config| config.epoch == epoch && self.is_member(kept, config))
    }
}
