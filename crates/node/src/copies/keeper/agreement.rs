//! What all nodes that serve a volume agree on of its unit: mode pages and reservations.
//!
//! A change is decided by the node that was asked for it, in rounds of questions to all members of an epoch,
//! itself included. First what each knows; the newest of that is brought to those that lack it. Then the
//! change is decided against it, and the outcome brought to the member with the lowest slot in sync, which
//! takes it only if what it has is what the change was decided against, so that of two changes at once one is
//! decided again; then to all others. Only then is it answered. A member takes nothing of an epoch that it
//! does not act in: who is asked in the middle of a change of members asks again. Nor does it take what is
//! older than what it has: in the next epoch another change may have been decided while this one was on its
//! way, and without it. Who decided this one sees by [`Agreed::contains`] whether it is to be decided again.
//!
//! So what was answered is known to all members of an epoch, and to every later one: a copy that joins asks
//! the members, and serves nothing and is not promoted before it knows, and before what was admitted earlier
//! has come to its end. What was not answered, because its node was lost, is either brought to all by the
//! next question, or forgotten with the members that had it. No change waits for the cluster's record.

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

/// Until when a change may be decided. Longer than a lost node is waited for; and shorter than initiators
/// wait before they give a path up and ask through another: what they asked for here must not come after
/// that.
const DECIDE_MAX: Duration = HOLD_MAX;

/// How long a change that was decided is tried to be brought to all.
const AGREE_MAX: Duration = Duration::from_secs(10);

/// How long another node may take to say what it knows.
const TELL_MAX: Duration = Duration::from_secs(2);

/// How long it may take to carry a change out: it waits until what it aborts is over.
const INSTALL_MAX: Duration = Duration::from_secs(15);

/// How long to wait before a round that failed is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// The place of a change among all changes of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version {
    /// In which epoch it was decided.
    epoch: u64,
    /// Its number in it.
    number: u64,
    /// Who decided it: of two that are decided at once one is taken.
    by: u16,
}

/// What a node knows of a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreed {
    version: Version,
    /// As the last change left it.
    state: LuState,
    /// Whom the last change has to tell what.
    notices: Vec<Notice>,
    /// Whose commands it aborts.
    abort: Abort,
    /// The last change of each node that this is the outcome of, itself among them: who decided one and finds
    /// a later one finds out here whether that was decided on top of it.
    contains: Vec<Version>,
}

impl Agreed {
    /// With a change of that version on top.
    fn contains_with(&self, version: Version) -> Vec<Version> {
        let others = self.contains.iter().filter(|other| other.by != version.by);
        others.copied().chain([version]).collect()
    }
}

/// A change that was decided here, and may have been brought to some.
#[derive(Clone)]
struct Decided {
    version: Version,
    outcome: Outcome,
    abort: Abort,
    /// Who was asked first to take it has answered: what it did with it is known, and the others were not
    /// asked before.
    answered: bool,
}

/// What another node said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    agreed: Agreed,
    /// It has heard it from members since it is one.
    known: bool,
    /// Its pool has stored what must survive of it, as far as it is in one.
    stored: bool,
}

/// This node's part in the agreement on one unit.
pub(super) struct Agreement {
    version: Version,
    notices: Vec<Notice>,
    abort: Abort,
    /// See [`Agreed`].
    contains: Vec<Version>,
    /// Whether what is here is what the members agreed on: not before a copy has asked them.
    pub known: bool,
    /// It is being asked for.
    pub asking: bool,
    /// The pool of the only copy in sync, which is here, did not store the last change.
    unstored: bool,
    /// One change is carried out at a time.
    installing: Rc<Semaphore>,
    /// What was here before the change that is being carried out. This is what others are told until that is
    /// done: some of it is installed already.
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

    /// In which epoch the last change was decided.
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
    /// Who is asked first to take a change: the lowest slot in sync.
    first: NodeId,
}

/// Members have changed, or somebody else was quicker: try again.
struct TryAgain;

impl Keeper {
    /// Decides a change of a unit together with all other nodes that serve it, and carries it out on all of
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

    /// `decided` is what an earlier try brought to some members.
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
                // A member that was lost may have left what it aborts with others, who bring it to its end in
                // this epoch.
                let again = Agreed { abort: abort.clone(), ..newest };
                let waited = members.nodes.iter().map(|(_, node)| self.bring(id, &members, *node, &again));
                rt::join_all(waited).await.into_iter().collect::<Result<Vec<()>, TryAgain>>()?;
            }
            return Ok(outcome.clone());
        }
        // No member of this epoch has it. None takes anything of an earlier epoch, nor what the first of them
        // has refused: nothing is left to wait for.
        if decided
            .as_ref()
            .is_some_and(|decided| decided.answered || decided.version.epoch != members.epoch.0)
        {
            *decided = None;
        }
        // Of what is being installed here some is there already, and is not agreed on yet.
        if rt::now() > until || self.is_installing(id) && !makes(Canary::DecideBeside) {
            return Err(TryAgain);
        }
        // What is installed here is the newest.
        let decision = unit.brain().borrow().decide(change);
        // It may be found in a pool that has failed a change, after a restart: then what changes nothing is
        // stored as a change is.
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

    /// Asks the members what they know, and brings the newest of it to all of them. Says also whether all
    /// that had it have stored it.
    async fn settle(self: &Rc<Self>, id: VolumeId, members: &Members) -> Result<(Agreed, bool), TryAgain> {
        let told = rt::join_all(members.nodes.iter().map(|(_, node)| self.told_by(id, members, *node))).await;
        let told: Vec<(NodeId, Told)> = told.into_iter().collect::<Result<_, TryAgain>>()?;
        let newest_of = |known: bool| {
            let those = told.iter().filter(|(_, told)| told.known == known);
            those.max_by_key(|(_, told)| told.agreed.version).map(|(_, told)| told.agreed.clone())
        };
        // If nobody knows all have been away: what was made to survive that is on everyone's disk who was in
        // sync, and only they serve.
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

    /// Asks a member, or this node, to take a change; says whether it did. Without an answer nobody knows.
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

    /// Asks a member for as long as these are the members: one whose disk hangs answers nothing until it
    /// hangs no more, and the others go on without it.
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

    /// Carries out here what was decided. `false`: this node does not act in that epoch, it has something
    /// else than expected, or its disk does not take it.
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
                // It was decided without this one, or this one on top of it: who brings it finds out.
                return makes(Canary::TakeOlder);
            }
            if agreed.abort != Abort::NONE && !makes(Canary::OrphansOnce) {
                until_orphans_ended(id).await;
                // A copy that is no member any more has forgotten what it waited for: others may still bring
                // that to its end.
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
        // Who only learns what has been agreed on long since has no news for anybody.
        let (told_now, aborted_now) =
            if told.known { (notices.clone(), abort.clone()) } else { (Vec::new(), Abort::NONE) };
        if let Some(kept) = self.volumes.borrow_mut().get_mut(&id) {
            kept.agreement.before = Some(here);
        }
        if agreed_here || !makes(Canary::InstallElsewhere) {
            install_on_all_cores(id, Some(state), told_now, aborted_now).await;
        }
        if !told.known && !makes(Canary::GoOnAfterLoss) {
            // What was admitted under older reservations, before the others went on without this node or in
            // the moment when it heard of that.
            until_written(id).await;
        }
        let mut volumes = self.volumes.borrow_mut();
        let Some(kept) = volumes.get_mut(&id) else { return false };
        let is_member = self.is_member_in(kept, epoch);
        let agreement = &mut kept.agreement;
        if !is_member && makes(Canary::InstallUnnamed) {
            agreement.before = None;
            return false;
        }
        // It is here now, also when another epoch is acted in meanwhile: to be told of it, and brought to all
        // or forgotten, it must have its name.
        (agreement.version, agreement.contains) = (version, contains);
        (agreement.notices, agreement.abort) = (notices, abort);
        agreement.before = None;
        agreement.known |= is_member;
        is_member
    }

    /// Stores what must survive of a change in the pool here; says whether it has. Where others are in sync
    /// it is not waited for a disk that hangs: they would wait, too.
    async fn keep(&self, id: VolumeId, durable: Vec<u8>) -> bool {
        let control = Control::current();
        let mut storing = pin!(control.store_lu_state(id, durable));
        // Not all at once: what keeps every disk waiting must leave somebody in sync.
        let slot = self.volumes.borrow().get(&id).map_or(0, |kept| kept.slot.index());
        let mut stored = None;
        // Second by second: of a process that stood still one counts.
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
            if let Some(kept) = self.volumes.borrow_mut().get_mut(&id) {
                kept.agreement.unstored = kept
                    .membership
                    .active()
                    .is_some_and(|config| self.is_in_sync(kept, config) && config.in_sync().len() == 1);
            }
            self.give_up_disk(id, DiskFault::Write).await;
        }
        false
    }

    /// The pool here does not store changes. While this copy is a member nobody could reserve, or give a
    /// reservation up: it leaves if others are in sync.
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

    /// Whether a change was not stored that no other copy in sync could store; it is forgotten then.
    fn take_unstored(&self, id: VolumeId) -> bool {
        let mut volumes = self.volumes.borrow_mut();
        volumes.get_mut(&id).is_some_and(|kept| std::mem::take(&mut kept.agreement.unstored))
    }

    fn is_installing(&self, id: VolumeId) -> bool {
        self.volumes.borrow().get(&id).is_some_and(|kept| kept.agreement.before.is_some())
    }

    /// Copies that have become members ask what the others agreed on.
    pub(super) fn learn_agreements(self: &Rc<Self>) {
        let mut volumes = self.volumes.borrow_mut();
        for (id, kept) in volumes.iter_mut().filter(|(_, kept)| kept.open) {
            let Some(config) = kept.membership.active() else { continue };
            let member = self.is_member(kept, config);
            // What it knew when it was one before is of then.
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
        if let Some(kept) = self.volumes.borrow_mut().get_mut(&id) {
            kept.agreement.asking = false;
        }
        self.show_paths().await;
        self.work.notify();
    }

    fn knows_agreement(&self, id: VolumeId) -> bool {
        self.volumes.borrow().get(&id).is_none_or(|kept| kept.agreement.known)
    }

    /// Whether the node of a copy knows what the members agreed on: before that it is not promoted.
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
