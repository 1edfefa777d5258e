//! A node of two that goes on alone with a volume, without the cluster's record, because somebody has agreed to the risk (`docs/why/forks.md`).
//!
//! What it does then is a *fork*: it acts in an epoch of its own that the record does not know, so far from the record's that they are never taken for each other, and
//! what it has is neither mixed with what the other node has nor overwritten by it before that is *settled*. The order of steps is what makes a
//! crash between any two of them harmless:
//!
//! 1. *Begin*: break off from the other copy; write the fork into this node's own record; act in it. A crash before the end of the write: there is no
//!    fork, and nothing was served.
//! 2. *Settle*, when the record answers again. If it has this copy in sync, nobody has gone on without it: the record is told that this copy is the only one in sync; when this
//!    node acts by that, the fork is taken out of its own record, and only then it speaks to the other copy. Until then nobody else can come in sync, so that a fork which is found
//!    after a crash is either still to be settled, or the record has this copy in sync in a later epoch.
//! 3. Otherwise the other node has gone on. Hosts are not served here any more. If none was since the fork began, it is taken out of this node's own record, and this
//!    copy is one that was removed, like any other. If one was, both have what the other has not: that is written into this node's own record (no later life serves),
//!    and then into the cluster's; what becomes of it somebody decides.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use cluster::{Outcome, Status};
use link::{Frame, Link};
use replica::{Config, Epoch, Incarnation, Membership, NodeId, Revision, Slot};
use serde::{Deserialize, Serialize};
use store::VolumeId;

use super::super::core::Copies;
use super::super::entry::{NODES, NodeEntry, StandingEntry, VolumeEntry, volume_key};
use super::super::message;
use super::super::strategy::{
    FORK_EPOCHS, ForkRecord, ForkSaid, STRATEGIES, SplitEntry, Strategy, StrategyEntry, VoidEntry, alone,
    split_key, strategy_key, void_key,
};
use super::{Keeper, Kept, RECORD_DEADLINE, SliceCopy, json};
use crate::canary::{Canary, makes};
use crate::control::Control;
use crate::shard::{Shard, on_all_cores};

/// For how long nothing at all must be heard of the other node before this one goes on alone. Five times a lease's length; and longer than the
/// other one, when it starts, may take to be heard of.
pub(super) const FORK_SILENCE: Duration = Duration::from_secs(5);

/// How long the record may take to say how it is, or what it has.
const ASK_RECORD: Duration = Duration::from_secs(2);

/// Forks of this node, by volume.
pub(super) struct Forks {
    /// When this life began: silence before that is none.
    began: Instant,
    all: RefCell<BTreeMap<VolumeId, Fork>>,
    /// It is being looked after them.
    busy: Cell<bool>,
}

struct Fork {
    record: ForkRecord,
    phase: Phase,
    /// Hosts may have been served in it: by an earlier life, or by this one.
    acted: bool,
    /// Of an earlier life, of which nobody knows what it served.
    inherited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It is being written down.
    Begun,
    /// Nobody knows whether it is written down, and it was never acted in. Nor is it by this life.
    Void,
    /// It is acted in, or about to be.
    Going,
    /// It is there, and not acted in in this life.
    Dormant,
    /// The other node has gone on, too: hosts are not served.
    Frozen,
}

/// What another node has said of its forks.
pub(super) type Word = Vec<ForkSaid>;

/// What is shown of a volume with which a node has gone on alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkShown {
    /// The node.
    pub node: u16,
    /// Since when, in seconds since 1970, by its clock.
    pub since: u64,
    /// How it is.
    pub state: ForkState,
}

/// How it is with a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForkState {
    /// The node goes on alone; or the other one is there, and it is about to be settled.
    Alone,
    /// Both have gone on: somebody has to decide whose data is kept.
    Split,
}

impl Forks {
    pub fn new(now: Instant, records: Vec<ForkRecord>) -> Forks {
        let fork = |record: ForkRecord| {
            let id = VolumeId::parse(&record.volume)?;
            Some((id, Fork { record, phase: Phase::Dormant, acted: true, inherited: true }))
        };
        Forks {
            began: now,
            all: RefCell::new(records.into_iter().filter_map(fork).collect()),
            busy: Cell::new(false),
        }
    }

    pub fn has(&self, id: VolumeId) -> bool {
        self.all.borrow().contains_key(&id)
    }

    /// Whether the copy in `slot` acts by what the record says: of a fork only where that has this copy in sync in a later epoch than the fork's.
    pub fn allow(&self, id: VolumeId, slot: Slot, config: &Config) -> bool {
        let all = self.all.borrow();
        let Some(fork) = all.get(&id) else { return true };
        config.epoch.0 > fork.record.epoch && config.in_sync().contains(slot)
            || makes(Canary::ForkFollowsRecord)
    }

    fn record(&self, id: VolumeId) -> Option<ForkRecord> {
        self.all.borrow().get(&id).map(|fork| fork.record.clone())
    }

    fn phase(&self, id: VolumeId) -> Option<Phase> {
        self.all.borrow().get(&id).map(|fork| fork.phase)
    }

    fn set_phase(&self, id: VolumeId, phase: Phase) {
        if let Some(fork) = self.all.borrow_mut().get_mut(&id) {
            fork.phase = phase;
            fork.acted |= phase == Phase::Going;
        }
    }
}

/// Breaks the slices of a volume off from other copies.
pub(super) async fn detach(number: u32) {
    if makes(Canary::ForkFollowsRecord) {
        return;
    }
    on_all_cores(move || async move {
        Copies::current().slices_of(number).iter().for_each(SliceCopy::detach);
    })
    .await;
}

async fn attach(number: u32) {
    on_all_cores(move || async move {
        Copies::current().slices_of(number).iter().for_each(SliceCopy::attach);
    })
    .await;
}

impl Keeper {
    /// Tells the other node with which volumes this one has gone on alone; nothing in a cluster where nobody has agreed to that: its nodes may not know the word.
    pub(super) fn say_forks(&self, link: &Rc<Link>) {
        let nobody = {
            let record = self.record.borrow();
            let mut from = record.entries.range(STRATEGIES.to_owned()..);
            !from.next().is_some_and(|(key, _)| key.starts_with(STRATEGIES))
        };
        let all = self.forks.all.borrow();
        if nobody && all.is_empty() {
            return;
        }
        let said = |fork: &Fork| ForkSaid {
            volume: fork.record.volume.clone(),
            parent: fork.record.parent,
            epoch: fork.record.epoch,
            at: fork.record.at,
        };
        let word: Word = all.values().map(said).collect();
        link.send(message::frame(message::FORKS, 0, json(&word)));
    }

    /// What the other node says of its forks: of the life that the link leads to, and as long as that is up.
    pub(super) fn handle_forks(&self, from: NodeId, frame: &Frame) {
        match serde_json::from_slice::<Word>(&frame.head) {
            Ok(word) => {
                let before = self.peers.borrow_mut().entry(from).or_default().word.replace(word);
                if before.is_none() {
                    self.work.notify();
                }
            }
            Err(error) => tracing::error!(%from, %error, "what a node says of its forks cannot be read"),
        }
    }

    /// No lease is given to a process that is still a member, as it thinks, of what this node has gone on without. Once the record says what
    /// has become of it, and this node acts by that, a lease that is given counts only for who does so, too.
    pub(super) fn denies_leases(&self, to: NodeId, life: Incarnation) -> bool {
        let settled = |id: &VolumeId, fork: &Fork| {
            let Some((split, revision)) = self.get::<SplitEntry>(&split_key(*id)) else { return false };
            fork.phase == Phase::Frozen
                && split.epoch == fork.record.epoch
                && self.copies.leases().applied() >= Revision(revision.0)
        };
        let all = self.forks.all.borrow();
        let mut of_it =
            all.iter().filter(|(_, fork)| (fork.record.without, fork.record.life) == (to.0, life.0));
        of_it.any(|(id, fork)| !settled(id, fork)) && !makes(Canary::ForkLends)
    }

    /// Whether nothing is to be proposed for the volume now: this node has a fork of it, or the other one has or may have. What the record has out of sync cannot have gone on.
    pub(super) fn waits_for_word(&self, now: Instant, id: VolumeId, entry: &VolumeEntry) -> bool {
        if self.forks.has(id) {
            return true;
        }
        if self.revision_of(&strategy_key(id)).is_none() || makes(Canary::GoOnUnheard) {
            return false;
        }
        let peers = self.peers.borrow();
        let others = entry.copies.iter().filter(|copy| NodeId(copy.node) != self.me());
        others.filter(|copy| copy.standing == StandingEntry::InSync).any(|copy| {
            let peer = peers.get(&NodeId(copy.node));
            match peer.and_then(|peer| peer.word.as_ref()) {
                Some(word) => word.iter().any(|said| said.volume == entry.id && said.epoch >= entry.epoch),
                None => {
                    let heard = peer.and_then(|peer| peer.heard).unwrap_or(self.forks.began);
                    now.since(heard.max(self.forks.began)) < FORK_SILENCE
                }
            }
        })
    }

    /// What somebody has chosen for the volume.
    pub(super) fn strategy_of(&self, entry: &VolumeEntry) -> Option<StrategyEntry> {
        let id = VolumeId::parse(&entry.id)?;
        self.get(&strategy_key(id)).map(|(strategy, _)| strategy)
    }

    /// The fork of the volume that is not settled, as far as this node knows.
    pub fn fork_of(&self, entry: &VolumeEntry) -> Option<ForkShown> {
        let id = VolumeId::parse(&entry.id)?;
        if let Some((split, _)) = self.get::<SplitEntry>(&split_key(id))
            && split.keep.is_none()
        {
            return Some(ForkShown { node: split.node, since: split.at, state: ForkState::Split });
        }
        if let Some(fork) = self.forks.all.borrow().get(&id) {
            let state = if fork.record.split { ForkState::Split } else { ForkState::Alone };
            return Some(ForkShown { node: self.me().0, since: fork.record.at, state });
        }
        let peers = self.peers.borrow();
        peers.iter().find_map(|(node, peer)| {
            let said = peer.word.as_ref()?.iter();
            let mut said = said.filter(|said| said.volume == entry.id && said.epoch >= entry.epoch);
            said.next().map(|said| ForkShown { node: node.0, since: said.at, state: ForkState::Alone })
        })
    }

    /// What the node has said of its fork of the volume, as the record would have it.
    pub fn said_of(&self, entry: &VolumeEntry, node: u16) -> Option<SplitEntry> {
        let peers = self.peers.borrow();
        let mut said = peers.get(&NodeId(node))?.word.as_ref()?.iter();
        let said = said.find(|said| said.volume == entry.id && said.epoch >= entry.epoch)?;
        Some(SplitEntry { node, parent: said.parent, epoch: said.epoch, at: said.at, keep: None })
    }

    /// Begins forks and settles them.
    pub(super) fn look_at_forks(self: &Rc<Self>) {
        let idle = self.forks.all.borrow().is_empty() && self.candidates(rt::now()).is_empty();
        if idle || self.forks.busy.replace(true) {
            return;
        }
        let keeper = Rc::clone(self);
        rt::spawn(async move {
            if let Ok(status) = keeper.store.status(ASK_RECORD).await {
                let ids: Vec<VolumeId> = keeper.forks.all.borrow().keys().copied().collect();
                for id in ids {
                    keeper.look_at_fork(id, &status).await;
                }
                for id in keeper.candidates(rt::now()) {
                    keeper.begin_fork(id, &status).await;
                }
            }
            keeper.forks.busy.set(false);
        })
        .detach();
    }

    /// Volumes with which this node may go on alone, as far as can be told without asking anybody.
    fn candidates(&self, now: Instant) -> Vec<VolumeId> {
        if self.stopping.get() {
            return Vec::new();
        }
        let volumes = self.volumes.borrow();
        let may = |id: VolumeId, kept: &Kept| {
            let config = kept.membership.newest()?;
            let other = self.other_member(kept, config)?;
            let quiet = self.peers.borrow().get(&other).and_then(|peer| peer.heard)?;
            let able = kept.open && !kept.held && kept.membership.active() == Some(config);
            (able
                && now.since(quiet) >= FORK_SILENCE
                && self.is_in_sync(kept, config)
                && self.agrees(id)
                && !self.forks.has(id))
            .then_some(id)
        };
        volumes.iter().filter_map(|(id, kept)| may(*id, kept)).collect()
    }

    /// Whether somebody has agreed that a node goes on alone with the volume, as far as this node acts by the record; of two nodes without a third.
    fn agrees(&self, id: VolumeId) -> bool {
        let strategy = self.get::<StrategyEntry>(&strategy_key(id));
        let nodes: Vec<NodeEntry> = self.list(NODES);
        let agreed = strategy.is_some_and(|(entry, _)| entry.strategy == Strategy::Heartbeat);
        (agreed || makes(Canary::ForkUnasked)) && nodes.len() == 2 && !nodes.iter().any(|node| node.witness)
    }

    /// The other copy's node, where there is exactly one other copy and it is a member.
    fn other_member(&self, kept: &Kept, config: &Config) -> Option<NodeId> {
        let others = config.members().without(kept.slot);
        let other = others.iter().next().and_then(|slot| config.copy(slot))?;
        (config.configured().without(kept.slot) == others && others.iter().count() == 1).then_some(other.node)
    }

    /// When anything at all was last heard of the node, over any link.
    async fn heard_of(&self, node: NodeId) -> Instant {
        let by_core = on_all_cores(move || async move { Copies::current().heard_of(node) }).await;
        let peers = self.peers.borrow();
        let peer = peers.get(&node);
        let control = peer.and_then(|peer| peer.link.as_ref()).map(|link| link.heard());
        let all = by_core.into_iter().flatten().chain(control).chain(peer.and_then(|peer| peer.heard));
        all.max().unwrap_or(self.forks.began).max(self.forks.began)
    }

    async fn begin_fork(self: &Rc<Self>, id: VolumeId, status: &Status) {
        let Some((record, number, led)) = self.fork_from(id) else { return };
        let other = NodeId(record.without);
        if !is_gone(other, status) {
            return;
        }
        let heard = self.heard_of(other).await;
        // It had the other's lease when that fell silent: until then nobody had gone on without this copy.
        let led = led.is_some_and(|led| led >= heard) || makes(Canary::ForkUnled);
        let silent = |heard: Instant| rt::now().since(heard) >= FORK_SILENCE;
        if !led || !silent(heard) || !is_well(number).await {
            return;
        }
        let epoch = record.epoch;
        let fork = Fork { record: record.clone(), phase: Phase::Begun, acted: false, inherited: false };
        self.forks.all.borrow_mut().insert(id, fork);
        detach(number).await;
        let written = match Control::try_current() {
            _ if makes(Canary::ForkUnwritten) => Ok(()),
            Some(control) => control.keep_fork(&record).await,
            None => return self.forget_fork(id),
        };
        if let Err(error) = written {
            let error = &error as &dyn std::error::Error;
            tracing::error!(volume = %id, error, "this node does not go on alone with a volume: it could not write that down");
            if makes(Canary::ForkHalfWritten) {
                self.forget_fork(id);
                return attach(number).await;
            }
            return self.forks.set_phase(id, Phase::Void);
        }
        if !silent(self.heard_of(other).await) || !self.is_named(id) {
            // It is back, or has said before that it goes on. Nothing was served.
            return self.forks.set_phase(id, Phase::Dormant);
        }
        tracing::warn!(
            volume = %id, node = record.without, parent = record.parent, epoch,
            "nothing has been heard of the other node for {} s: this node goes on alone with a volume, as was agreed to; if the other one has done so, too, the volume is split",
            FORK_SILENCE.as_secs()
        );
        self.go_alone(id);
    }

    /// Whether the record has this copy in sync, as far as this node follows it.
    fn is_named(&self, id: VolumeId) -> bool {
        let volumes = self.volumes.borrow();
        let copy = volumes.get(&id).and_then(|kept| kept.entry.copy_on(self.me()));
        copy.is_some_and(|(_, copy)| copy.standing == StandingEntry::InSync)
    }

    /// What is to be written down of a fork from what the volume is acted in; the volume's number; when it was last in sync with all leases.
    fn fork_from(&self, id: VolumeId) -> Option<(ForkRecord, u32, Option<Instant>)> {
        let volumes = self.volumes.borrow();
        let kept = volumes.get(&id)?;
        let config = kept.membership.newest()?;
        let other = self.other_member(kept, config)?;
        let (_, copy) = kept.entry.copy_on(other)?;
        let record = ForkRecord {
            volume: kept.entry.id.clone(),
            made: kept.made,
            parent: config.epoch.0,
            epoch: config.epoch.0 + FORK_EPOCHS,
            without: other.0,
            life: copy.incarnation,
            at: (Shard::current().config().unix_now)(),
            split: false,
        };
        Some((record, kept.entry.number, kept.led))
    }

    /// Acts in the fork, as soon as leases that were given to the other node have run out (R11, R12).
    fn go_alone(&self, id: VolumeId) {
        let Some(fork) = self.forks.record(id) else { return };
        self.forks.set_phase(id, Phase::Going);
        let life = self.copies.incarnation();
        if let Some(kept) = self.volumes.borrow_mut().get_mut(&id) {
            // Whatever the record was when they were given: no lease counts.
            let beyond = Revision(u64::MAX);
            let known =
                kept.membership.newest().cloned().or_else(|| kept.entry.config(Revision(kept.revision.0)));
            if let Some(known) = known {
                kept.membership.learn(alone(&known, kept.slot, life, Epoch(fork.epoch), beyond));
            }
        }
        self.work.notify();
    }

    fn forget_fork(&self, id: VolumeId) {
        self.forks.all.borrow_mut().remove(&id);
    }

    async fn look_at_fork(self: &Rc<Self>, id: VolumeId, status: &Status) {
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
        let here = self.volumes.borrow().get(&id).is_some_and(|kept| kept.made == fork.made);
        if !here || self.waits_for_somebody(id, &fork) {
            return;
        }
        // By what the record has now, which this node may not follow yet.
        let Ok(Some(found)) = self.store.get(&volume_key(id), ASK_RECORD).await else { return };
        let Ok(entry) = serde_json::from_slice::<VolumeEntry>(&found.value) else { return };
        let follows = {
            let volumes = self.volumes.borrow();
            volumes.get(&id).is_some_and(|kept| kept.revision >= found.revision)
        };
        let Some((_, copy)) = entry.copy_on(self.me()).filter(|_| follows) else { return };
        let settled = match (copy.standing, entry.epoch > fork.epoch) {
            (StandingEntry::InSync, true) => self.end_fork(id).await,
            (StandingEntry::InSync, false) => self.win(id, &fork, &entry, found.revision).await,
            _ => self.lose(id, fork, found.revision).await,
        };
        if settled.is_none() {
            tracing::debug!(volume = %id, "a fork is not settled yet");
        }
    }

    /// Whether the record says that this node has not acted in the fork, as far as it follows that.
    fn is_void(&self, id: VolumeId, fork: &ForkRecord) -> bool {
        let void = self.get::<VoidEntry>(&void_key(id));
        void.is_some_and(|(void, _)| void == void_of(self.me(), fork))
    }

    /// Has the record say that what this node may have written down is nothing: a later life, which may find it, would take it for a fork.
    async fn say_void(&self, id: VolumeId, fork: &ForkRecord) {
        let key = void_key(id);
        let void = json(&void_of(self.me(), fork));
        let transaction = Keeper::transaction().expect(&key, self.revision_of(&key)).put(&key, void);
        if !matches!(self.store.cas(transaction, RECORD_DEADLINE).await, Ok(Outcome::Committed(_))) {
            tracing::debug!(volume = %id, "that there is no fork is not in the record yet");
        }
    }

    /// There was no fork: this copy goes on as what the record says it is.
    async fn forget_void(self: &Rc<Self>, id: VolumeId) {
        // Where that fails the record's word stands against what is left.
        let _ = self.drop_record(id).await;
        self.forget_fork(id);
        let number = self.volumes.borrow_mut().get_mut(&id).map(|kept| {
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

    /// Whether it is split, and nobody has decided yet.
    fn waits_for_somebody(&self, id: VolumeId, fork: &ForkRecord) -> bool {
        let split = self.get::<SplitEntry>(&split_key(id));
        self.forks.phase(id) == Some(Phase::Frozen)
            && fork.split
            && split.is_some_and(|(split, _)| split.epoch == fork.epoch && split.keep.is_none())
    }

    /// An earlier life has gone on alone, or this one was about to. It does so where the other node is still silent.
    async fn resume_fork(self: &Rc<Self>, id: VolumeId, fork: &ForkRecord, status: &Status) {
        let found = {
            let volumes = self.volumes.borrow();
            let kept = volumes.get(&id).filter(|kept| kept.open && !kept.blank && kept.made == fork.made);
            kept.map(|kept| (kept.entry.number, kept.led))
        };
        let agreed = self.is_named(id) && self.agrees(id);
        let Some((number, led)) = found.filter(|_| agreed) else { return };
        let other = NodeId(fork.without);
        let heard = self.heard_of(other).await;
        // Who was there in this life may have gone on without this copy: the record says that, when it can be asked.
        let silent = rt::now().since(heard) >= FORK_SILENCE && led.unwrap_or(self.forks.began) >= heard;
        if silent && is_gone(other, status) && is_well(number).await {
            tracing::warn!(volume = %id, epoch = fork.epoch, "nothing is heard of the other node: this node goes on alone with a volume again");
            self.go_alone(id);
        }
    }

    /// The record has this copy in sync: nobody has gone on without it. It is the only one in sync from now on.
    async fn win(
        self: &Rc<Self>,
        id: VolumeId,
        fork: &ForkRecord,
        entry: &VolumeEntry,
        revision: cluster::Revision,
    ) -> Option<()> {
        let next = {
            let volumes = self.volumes.borrow();
            // What may be lost is not made the only one.
            let inherited = self.forks.all.borrow().get(&id)?.inherited;
            let kept = volumes.get(&id).filter(|kept| kept.open && !(kept.blank && inherited))?;
            let config = entry.config(Revision(revision.0))?;
            let epoch = Epoch(fork.epoch + 1);
            let alone = alone(&config, kept.slot, self.copies.incarnation(), epoch, Revision(0));
            entry.with_config(&alone, WON)
        };
        if !is_well(next.number).await {
            return None;
        }
        tracing::warn!(
            volume = entry.name,
            epoch = next.epoch,
            "a fork is settled: the other node had not gone on, what this one has is what counts, and the other is brought up to date"
        );
        let key = volume_key(id);
        let transaction = Keeper::transaction().expect(&key, Some(revision)).put(&key, json(&next));
        matches!(self.store.cas(transaction, RECORD_DEADLINE).await, Ok(Outcome::Committed(_))).then_some(())
    }

    /// The record has this copy in sync in a later epoch than the fork's. When this node acts by that, the fork is over.
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

    /// The other node has gone on.
    async fn lose(
        self: &Rc<Self>,
        id: VolumeId,
        mut fork: ForkRecord,
        revision: cluster::Revision,
    ) -> Option<()> {
        let key = split_key(id);
        let split = self.get::<SplitEntry>(&key).filter(|(split, _)| split.epoch == fork.epoch);
        let word = split.as_ref().and_then(|(split, _)| split.keep);
        // A word that was spoken while hosts may still have been served here says nothing of what they have written since.
        if word == Some(fork.without) && (fork.split || makes(Canary::ForkWordEarly)) {
            tracing::warn!(volume = %id, "what this node has written alone is given up, as was decided: it is brought up to date");
            return self.give_up(id).await;
        }
        let used = self.freeze(id).await?;
        if !used || makes(Canary::ForkUnused) {
            tracing::warn!(volume = %id, "a fork is settled: the other node has gone on, and no host was served here meanwhile: this copy is brought up to date");
            return self.give_up(id).await;
        }
        if split.is_some() && word.is_none() {
            // From here on a word is about all that there is.
            fork.split = true;
            Control::try_current()?.keep_fork(&fork).await.ok()?;
            if let Some(here) = self.forks.all.borrow_mut().get_mut(&id) {
                here.record.split = true;
            }
            return Some(());
        }
        tracing::error!(
            volume = %id, parent = fork.parent,
            "a volume is split: both nodes have gone on alone with it, and both have data that the other has not. The other node serves it; what is here stays as it is until somebody decides: `ursa volume resolve-fork`"
        );
        let entry =
            SplitEntry { node: self.me().0, parent: fork.parent, epoch: fork.epoch, at: fork.at, keep: None };
        let transaction = Keeper::transaction()
            .expect(&volume_key(id), Some(revision))
            .expect(&key, self.revision_of(&key))
            .put(&key, json(&entry));
        matches!(self.store.cas(transaction, RECORD_DEADLINE).await, Ok(Outcome::Committed(_))).then_some(())
    }

    /// Serves no host any more. Says whether one may have been since the fork began.
    async fn freeze(self: &Rc<Self>, id: VolumeId) -> Option<bool> {
        self.forks.set_phase(id, Phase::Frozen);
        let used = self.hold(id).await?;
        let all = self.forks.all.borrow();
        let fork = all.get(&id)?;
        let decided = self.volumes.borrow().get(&id)?.agreement.decided_in();
        Some(fork.inherited || fork.acted && (used || decided.0 >= fork.record.epoch))
    }

    /// Serves no host any more, since it is about to be decided that the other node does.
    pub async fn stop_serving(self: &Rc<Self>, id: VolumeId) {
        self.hold(id).await;
    }

    /// Serves no host any more, by this copy. Says whether one was in the configuration that is acted in.
    async fn hold(self: &Rc<Self>, id: VolumeId) -> Option<bool> {
        let (number, before) = {
            let mut volumes = self.volumes.borrow_mut();
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

    /// Hosts are served again, where they may be.
    pub async fn go_on_serving(self: &Rc<Self>, id: VolumeId) {
        let number = self.volumes.borrow_mut().get_mut(&id).map(|kept| {
            kept.held = false;
            kept.entry.number
        });
        if let Some(number) = number {
            attach(number).await;
            self.show_paths().await;
        }
    }

    /// This copy is what the record says: one that is not in sync.
    async fn give_up(self: &Rc<Self>, id: VolumeId) -> Option<()> {
        self.hold(id).await?;
        self.drop_record(id).await?;
        {
            let mut volumes = self.volumes.borrow_mut();
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

    async fn drop_record(&self, id: VolumeId) -> Option<()> {
        let control = Control::try_current()?;
        let dropped = control.drop_fork(id).await;
        dropped
            .inspect_err(|error| {
                let error = error as &dyn std::error::Error;
                tracing::error!(volume = %id, error, "that a fork is settled cannot be written down: the copy waits until it can");
            })
            .ok()
    }
}

/// Why the other copy misses writes.
const WON: &str = "its node was not there, and the other one went on alone";

/// Whether the node alone has the record, and does not answer.
fn is_gone(node: NodeId, status: &Status) -> bool {
    !status.quorum && status.voters == [u64::from(node.0)]
}

fn void_of(node: NodeId, fork: &ForkRecord) -> VoidEntry {
    VoidEntry { node: node.0, epoch: fork.epoch, at: fork.at }
}

/// Whether the disks of all slices of the volume here work.
async fn is_well(number: u32) -> bool {
    let failed = on_all_cores(move || async move {
        Copies::current().slices_of(number).iter().any(|copy| copy.view().failed)
    });
    !failed.await.contains(&true)
}
