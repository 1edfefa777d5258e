//! A node of two that goes on alone with a volume, without the cluster's record, because somebody has agreed
//! to the risk (`docs/why/forks.md`).
//!
//! What it does then is a *fork*: it acts in an epoch of its own that the record does not know, so far from
//! the record's that they are never taken for each other, and what it has is neither mixed with what the
//! other node has nor overwritten by it before that is *settled*. The order of steps is what makes a crash
//! between any two of them harmless:
//!
//! 1. *Begin*: break off from the other copy; write the fork into this node's own record; act in it. A crash
//!    before the end of the write: there is no fork, and nothing was served.
//! 2. *Settle*, when the record answers again. If it has this copy in sync, nobody has gone on without it:
//!    the record is told that this copy is the only one in sync; when this node acts by that, the fork is
//!    taken out of its own record, and only then it speaks to the other copy. Until then nobody else can come
//!    in sync, so that a fork which is found after a crash is either still to be settled, or the record has
//!    this copy in sync in a later epoch.
//! 3. Otherwise the other node has gone on. Hosts are not served here any more. If none was since the fork
//!    began, it is taken out of this node's own record, and this copy is one that was removed, like any
//!    other. If one was, both have what the other has not: that is written into this node's own record (no
//!    later life serves), and then into the cluster's; what becomes of it somebody decides.

mod begin;
mod settle;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use link::{Frame, Link};
use replica::{Config, Incarnation, NodeId, Revision, Slot};
use serde::{Deserialize, Serialize};
use store::VolumeId;

use super::super::core::Copies;
use super::super::entry::{StandingEntry, VolumeEntry};
use super::super::message;
use super::super::slice::SliceCopy;
use super::super::strategy::{
    ForkRecord, ForkSaid, SPLITS, STRATEGIES, SplitEntry, StrategyEntry, split_key, strategy_key,
};
use super::{Keeper, Kept, json};
use crate::canary::{Canary, makes};
use crate::shard::on_all_cores;

/// For how long nothing at all must be heard of the other node before this one goes on alone. Five times a
/// lease's length; and longer than the other one, when it starts, may take to be heard of.
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
    /// The record has no such copy any more: hosts are not served, and what is here is kept until somebody
    /// decides.
    Left,
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

    /// Whether the copy in `slot` acts by what the record says: of a fork only where that has this copy in
    /// sync in a later epoch than the fork's.
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
    /// Tells the other node with which volumes this one has gone on alone; nothing in a cluster where nobody
    /// has agreed to that: its nodes may not know the word.
    pub(super) fn say_forks(&self, link: &Rc<Link>) {
        let all = self.forks.all.borrow();
        if !self.has_strategies() && all.is_empty() {
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

    /// Whether somebody has chosen a strategy for any volume.
    fn has_strategies(&self) -> bool {
        let record = self.record.borrow();
        let mut from = record.entries.range::<str, _>((Bound::Included(STRATEGIES), Bound::Unbounded));
        from.next().is_some_and(|(key, _)| key.starts_with(STRATEGIES))
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
            Err(error) => tracing::error!(%from, %error, "a node's split-brain report cannot be read"),
        }
    }

    /// No lease is given to a process that is still a member, as it thinks, of what this node has gone on
    /// without. Once the record says what has become of it, and this node acts by that, a lease that is given
    /// counts only for who does so, too.
    pub(super) fn denies_leases(&self, to: NodeId, life: Incarnation) -> bool {
        let settled = |id: &VolumeId, fork: &Fork| {
            let Some((split, revision)) = self.get::<SplitEntry>(&split_key(*id)) else {
                return fork.phase == Phase::Left;
            };
            matches!(fork.phase, Phase::Frozen | Phase::Left)
                && split.epoch == fork.record.epoch
                && self.copies.leases().applied() >= Revision(revision.0)
        };
        let all = self.forks.all.borrow();
        let mut of_it =
            all.iter().filter(|(_, fork)| (fork.record.without, fork.record.life) == (to.0, life.0));
        of_it.any(|(id, fork)| !settled(id, fork)) && !makes(Canary::ForkLends)
    }

    /// Whether [`Keeper::waits_for_word`] may be so of any volume: where it may not it need not be asked of
    /// each.
    pub(super) fn may_wait_for_word(&self) -> bool {
        self.has_strategies() || !self.forks.all.borrow().is_empty()
    }

    /// Whether nothing is to be proposed for the volume now: this node has a fork of it, or the other one has
    /// or may have. What the record has out of sync cannot have gone on.
    pub(super) fn waits_for_word(&self, now: Instant, id: VolumeId, kept: &Kept) -> bool {
        if self.forks.has(id) {
            return true;
        }
        if self.revision_of(&kept.strategy_key).is_none() || makes(Canary::GoOnUnheard) {
            return false;
        }
        let entry = &kept.entry;
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

    /// What somebody has chosen for the volume as it is: other nodes were not agreed to.
    pub fn strategy_of(&self, entry: &VolumeEntry) -> Option<StrategyEntry> {
        let id = VolumeId::parse(&entry.id)?;
        let (strategy, _) = self.get::<StrategyEntry>(&strategy_key(id))?;
        strategy.is_about(entry).then_some(strategy)
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

    /// What the record says of splits at these keys.
    pub(super) async fn learn_splits(self: &Rc<Self>, keys: &BTreeSet<String>) {
        for key in keys.iter().filter(|key| key.starts_with(SPLITS)) {
            let Some(id) = key.strip_prefix(SPLITS).and_then(VolumeId::parse) else { continue };
            if self.is_unreadable(key) {
                continue;
            }
            let Some((split, _)) = self.get::<SplitEntry>(key) else { continue };
            match split.keep {
                None if split.node == self.me().0 && !makes(Canary::ForkForgotten) => {
                    self.adopt_fork(id, &split).await
                }
                // It was to stop for the sake of the other one, and somebody thought better of it.
                Some(keep) if keep == self.me().0 && !self.forks.has(id) => self.go_on_serving(id).await,
                _ => {}
            }
        }
    }

    /// The cluster's record says that what is here is of a fork, and this node's own does not know of it any
    /// more: it was set back. What is here stays.
    async fn adopt_fork(&self, id: VolumeId, split: &SplitEntry) {
        let number = {
            let volumes = self.volumes.borrow();
            let Some(kept) = volumes.get(&id).filter(|_| !self.forks.has(id)) else { return };
            let mut others = kept.entry.copies.iter().filter(|copy| copy.node != split.node);
            let Some(other) = others.next() else { return };
            let record = ForkRecord {
                volume: id.to_string(),
                made: kept.made,
                parent: split.parent,
                epoch: split.epoch,
                without: other.node,
                life: other.incarnation,
                at: split.at,
                split: false,
            };
            tracing::warn!(
                volume = kept.entry.name,
                "this node has lost the information that it continued alone with a volume, and has taken it from the cluster's record"
            );
            let fork = Fork { record, phase: Phase::Dormant, acted: true, inherited: true };
            self.forks.all.borrow_mut().insert(id, fork);
            kept.entry.number
        };
        detach(number).await;
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

    fn forget_fork(&self, id: VolumeId) {
        self.forks.all.borrow_mut().remove(&id);
    }
}
