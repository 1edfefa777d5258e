//! Carries out what [`Decider`] and [`Member`] want: asks other nodes, stores in the pool, installs on all
//! cores. What they decide, and why: [`crate::copies::agreement`].

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use proto::scsi::{ChangeRequest, Outcome, Status};
use replica::{DiskFault, Epoch, Slot};
use rt::sync::Semaphore;
use store::VolumeId;

use super::Reconciler;
use crate::attach::unit::{Unit, install_on_all_cores, until_orphans_ended, until_written};
use crate::canary::{Canary, makes};
use crate::control::Control;
use crate::copies::agreement::{
    Agreed, Decider, Here, Member, MemberReport, Members, News, Next, Offer, Query, Question, Reply, Stored,
    Version, Work,
};
use crate::copies::ask::{Answer, Ask};
use crate::copies::core::Copies;
use crate::shard::{Shard, on_all_cores};

/// How long another node may take to say what it knows.
const TELL_MAX: Duration = Duration::from_secs(2);

/// How long a member may take to install a change: it waits until what the change aborts has ended.
const INSTALL_MAX: Duration = Duration::from_secs(15);

/// How long to wait before trying a failed round again. Only other nodes know why it failed, and those that
/// do not answer soon stop being members.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// This node's part in the agreement on one unit.
pub(super) struct Agreement {
    /// Tasks hold it while they install a change: the copy may be removed meanwhile.
    member: Rc<RefCell<Member>>,
    /// The greatest number that this node has given to a change.
    numbered: u64,
    /// A task is asking what the members agreed on.
    asking: bool,
    /// Allows one change to be installed at a time.
    installing: Rc<Semaphore>,
}

impl Agreement {
    pub fn new(slot: Slot) -> Agreement {
        Agreement {
            member: Rc::new(RefCell::new(Member::new(slot))),
            numbered: 0,
            asking: false,
            installing: Rc::new(Semaphore::new(1)),
        }
    }

    /// Notes that the copy was opened; `is_new`: of a new volume.
    pub fn handle_open(&self, is_new: bool) {
        self.member.borrow_mut().handle_open(is_new);
    }

    /// Notes that the copy acts in a configuration after another one: see [`Member::handle_activation`].
    pub fn handle_activation(&self, kept: bool) {
        self.member.borrow_mut().handle_activation(kept);
    }

    /// Whether this node knows what the members agreed on.
    pub fn is_known(&self) -> bool {
        self.member.borrow().is_known()
    }

    /// The epoch in which the last change was decided.
    pub fn decided_in(&self) -> Epoch {
        self.member.borrow().decided_in()
    }
}

/// Holds [`Agreement::installing`].
struct Installing(Rc<Semaphore>);

impl Drop for Installing {
    fn drop(&mut self) {
        self.0.release(1);
    }
}

impl Reconciler {
    /// Decides a change of a unit together with all other nodes that serve it, and installs it on all of
    /// them.
    pub async fn agree_on(self: &Rc<Self>, unit: &Unit, change: &ChangeRequest) -> Outcome {
        let id = unit.id();
        let numbered = self.volumes.borrow().get(&id).map_or(0, |kept| kept.agreement.numbered);
        let mut decider = Decider::new(self.me(), rt::now(), numbered);
        decider.begin(rt::now(), self.members_of(id));
        loop {
            match self.next_of(id, &mut decider).await {
                Next::Decide => {
                    let decision = unit.brain().borrow().decide(change);
                    decider.handle_decision(rt::now(), self.installed(id), decision);
                    if let Some(kept) = self.volumes_mut().get_mut(&id) {
                        kept.agreement.numbered = decider.numbered();
                    }
                }
                Next::TryAgain if self.take_unstored(id) => return unit.brain().borrow().failed(),
                Next::TryAgain => {
                    rt::sleep(AGAIN_AFTER).await;
                    decider.begin(rt::now(), self.members_of(id));
                }
                Next::Done(outcome) => return outcome,
                Next::Abandoned => break,
                Next::Ask(_) | Next::Settled => unreachable!("`next_of` asks, and there is a change"),
            }
        }
        tracing::error!(volume = %id, "a change of reservations or mode pages was abandoned: the nodes do not agree on which of them serve");
        Outcome::status(Status::Busy)
    }

    /// Asks what the decider wants to ask, until it wants something else.
    async fn next_of(self: &Rc<Self>, id: VolumeId, decider: &mut Decider) -> Next {
        loop {
            match decider.poll().expect("all that was asked is answered") {
                Next::Ask(queries) => {
                    let replies = queries.into_iter().map(|query| self.reply_to(id, query));
                    for (number, reply) in rt::join_all(replies).await {
                        decider.handle_reply(number, reply);
                    }
                }
                next => return next,
            }
        }
    }

    /// Asks a member, which may be this node, and waits as long as the members stay the same.
    ///
    /// A member whose disk hangs answers nothing until the disk works again, and the others continue without
    /// it.
    async fn reply_to(self: &Rc<Self>, id: VolumeId, query: Query) -> (u64, Reply) {
        let Query { number, to, question } = query;
        let epoch = question.epoch();
        let is_here = to == self.me();
        let (ask, deadline) = match question {
            Question::Tell(epoch) if is_here => {
                let told = self.tell(id, epoch).map(Box::new);
                return (number, told.map_or(Reply::Nothing, Reply::MemberReport));
            }
            Question::Take(offer) if is_here => return (number, Reply::Taken(self.take(id, *offer).await)),
            Question::Tell(epoch) => (Ask::TellUnit { id: id.to_string(), epoch: epoch.0 }, TELL_MAX),
            Question::Take(offer) => {
                let Offer { epoch, expected, agreed } = *offer;
                let (id, agreed) = (id.to_string(), Box::new(agreed));
                (Ask::InstallUnit { id, epoch: epoch.0, expected, agreed }, INSTALL_MAX)
            }
        };
        let same = || self.members_of(id).is_some_and(|members| members.epoch == epoch);
        let reply = match self.ask_while(to, ask, deadline, same).await {
            Ok(Answer::Unit(Some(told))) => Reply::MemberReport(told),
            Ok(Answer::Taken(taken)) => Reply::Taken(taken),
            _ => Reply::Nothing,
        };
        (number, reply)
    }

    /// What this node knows of the unit, if it is a member in this epoch.
    pub fn tell(&self, id: VolumeId, epoch: Epoch) -> Option<MemberReport> {
        let here = self.here(id);
        let volumes = self.volumes.borrow();
        volumes.get(&id)?.agreement.member.borrow().tell(&here, epoch)
    }

    /// Installs here what another node has decided; returns whether this node has it now.
    pub async fn install(
        &self,
        id: VolumeId,
        epoch: Epoch,
        expected: Option<Version>,
        agreed: Agreed,
    ) -> bool {
        self.take(id, Offer { epoch, expected, agreed }).await
    }

    /// Does all that taking an offer requires; returns whether this node has it now.
    async fn take(&self, id: VolumeId, offer: Offer) -> bool {
        let (member, installing) = {
            let volumes = self.volumes.borrow();
            let Some(kept) = volumes.get(&id) else { return false };
            (Rc::clone(&kept.agreement.member), Rc::clone(&kept.agreement.installing))
        };
        installing.acquire(1).await;
        let _installing = Installing(installing);
        let installs = offer.agreed.is_by(self.me()) || !makes(Canary::InstallElsewhere);
        member.borrow_mut().handle_offer(&self.here(id), offer);
        loop {
            let work = member.borrow_mut().poll();
            match work.expect("the last piece of work was reported as done") {
                Work::Store(durable) => {
                    self.store_durable(id, &member, durable).await;
                    continue;
                }
                Work::Install(news) => {
                    let News { state, notices, abort } = *news;
                    if installs {
                        install_on_all_cores(id, Some(state), notices, abort).await;
                    }
                }
                Work::AwaitWrites => until_written(id).await,
                Work::AwaitOrphans => until_orphans_ended(id).await,
                Work::GiveUpDisk(fault) => self.give_up_disk(id, fault).await,
                Work::Answer(taken) => {
                    self.stir();
                    return taken;
                }
            }
            member.borrow_mut().handle_done(self.acts_in(id));
        }
    }

    /// Stores in the pool here what must survive of a change.
    async fn store_durable(&self, id: VolumeId, member: &RefCell<Member>, durable: Vec<u8>) {
        let control = Control::current();
        let mut storing = pin!(control.store_lu_state(id, durable));
        // Second by second: if the process was stopped for a while, only one second of it counts.
        while member.borrow().is_storing() {
            let stored = match rt::timeout(Duration::from_secs(1), storing.as_mut()).await {
                Ok(Ok(())) => Stored::Done,
                Ok(Err(error)) => {
                    tracing::error!(volume = %id, error = &error as &dyn std::error::Error, "a change of reservations or mode pages could not be stored");
                    match error.is_of_disk() {
                        true => Stored::DiskFailed { alone: self.is_alone(id) },
                        false => Stored::Refused,
                    }
                }
                Err(rt::Elapsed) => {
                    let last = self.is_last(id);
                    member.borrow_mut().handle_second(last);
                    continue;
                }
            };
            member.borrow_mut().handle_stored(stored);
        }
    }

    /// Takes the copy out if others are in sync, because the pool here does not store changes.
    ///
    /// While this copy is a member, no host could reserve the volume or release a reservation.
    async fn give_up_disk(&self, id: VolumeId, fault: DiskFault) {
        if fault == DiskFault::Silent {
            tracing::error!(volume = %id, "a pool has not stored a change of reservations or mode pages for seconds: other copies continue without this one");
        }
        let number = self.volumes.borrow().get(&id).map(|kept| kept.entry.number);
        let Some(volume) = number else { return };
        on_all_cores(move || async move {
            for copy in Copies::current().slices_of(volume) {
                copy.give_up_disk(fault);
            }
        })
        .await;
    }

    /// Returns, and resets, whether the only copy in sync has failed to store a change.
    fn take_unstored(&self, id: VolumeId) -> bool {
        let volumes = self.volumes.borrow();
        volumes.get(&id).is_some_and(|kept| kept.agreement.member.borrow_mut().take_unstored())
    }

    /// The version that is installed here; `None`: another one is being installed.
    fn installed(&self, id: VolumeId) -> Option<Version> {
        self.volumes.borrow().get(&id)?.agreement.member.borrow().installed()
    }

    /// Makes copies that have become members ask what the others agreed on.
    pub(super) fn learn_agreements(self: &Rc<Self>) {
        let mut volumes = self.volumes_mut();
        for (id, kept) in volumes.iter_mut().filter(|(_, kept)| kept.open) {
            let Some(config) = kept.membership.active() else { continue };
            let member = self.is_member(kept, config);
            kept.agreement.member.borrow_mut().handle_membership(member);
            if member && !kept.agreement.is_known() && !kept.agreement.asking {
                kept.agreement.asking = true;
                rt::spawn(Rc::clone(self).learn_agreement(*id)).detach();
            }
        }
    }

    async fn learn_agreement(self: Rc<Self>, id: VolumeId) {
        while let Some(members) = self.members_of(id)
            && !self.knows_agreement(id)
        {
            let mut learner = Decider::to_learn(self.me());
            learner.begin(rt::now(), Some(members));
            if !matches!(self.next_of(id, &mut learner).await, Next::Settled) {
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
        self.volumes.borrow().get(&id).is_none_or(|kept| kept.agreement.is_known())
    }

    /// Whether the node of a copy knows what the members agreed on; before that the copy is not promoted.
    pub(super) async fn is_told(self: &Rc<Self>, id: VolumeId, slot: Slot) -> bool {
        let Some(members) = self.members_of(id) else { return false };
        let to = {
            let volumes = self.volumes.borrow();
            let active = volumes.get(&id).and_then(|kept| kept.membership.active());
            active.and_then(|config| config.copy(slot)).map(|copy| copy.node)
        };
        let Some(to) = to.filter(|node| members.nodes.contains(node)) else { return false };
        let query = Query { number: 0, to, question: Question::Tell(members.epoch) };
        matches!(self.reply_to(id, query).await, (_, Reply::MemberReport(told)) if told.is_known())
    }

    /// What this node is at the moment, for a member.
    fn here(&self, id: VolumeId) -> Here {
        let unit = Shard::current().unit(id);
        let state = unit.map(|unit| unit.brain().borrow().state().clone());
        Here {
            epoch: self.acts_in(id).filter(|_| state.is_some()),
            state: state.unwrap_or_default(),
            stored: !Control::current().has_unsettled_state(id),
        }
    }

    /// The members of the epoch that this node acts in, if it is one.
    fn members_of(&self, id: VolumeId) -> Option<Members> {
        let volumes = self.volumes.borrow();
        let kept = volumes.get(&id)?;
        let config = kept.membership.active()?;
        (self.is_member(kept, config) && !kept.is_held()).then_some(())?;
        Members::of(config)
    }

    /// The epoch in which the open copy here acts as a member.
    fn acts_in(&self, id: VolumeId) -> Option<Epoch> {
        let volumes = self.volumes.borrow();
        let kept = volumes.get(&id).filter(|kept| kept.open && !kept.is_held())?;
        let config = kept.membership.active().filter(|config| self.is_member(kept, config))?;
        Some(config.epoch)
    }

    /// Whether the copy here is the only one in sync in the configuration that it acts in.
    fn is_alone(&self, id: VolumeId) -> bool {
        let volumes = self.volumes.borrow();
        let active = volumes.get(&id).and_then(|kept| Some((kept, kept.membership.active()?)));
        active.is_some_and(|(kept, config)| self.is_in_sync(kept, config) && config.in_sync().len() == 1)
    }
}
