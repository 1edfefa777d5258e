//! A node of two continues alone with a volume, without the cluster's record, because an administrator has
//! agreed to the risk. `docs/why/forks.md` has the rules F1 to F13, and why a crash between two steps is
//! harmless.
//!
//! What the node does then is a *fork*: it acts in an epoch of its own, so far from the record's epochs that
//! neither is ever mistaken for the other. Until the fork is *settled*, its data is neither mixed with the
//! other node's data nor overwritten by it:
//!
//! 1. *Begin*: detach from the other copy; write the fork to this node's own record; act in it.
//! 2. *Settle*, when the record answers again. If it has this copy in sync, the other node has not continued.
//!    This copy becomes the only one in sync in the record, then the fork is removed here, and only then does
//!    this node talk to the other copy.
//! 3. Otherwise this node stops serving hosts. If it has served none since the fork began, the fork is
//!    removed. Else it is a *split*: that is written here, then to the cluster's record, and an administrator
//!    decides which data is kept.

mod begin;
mod decision;
mod settle;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use cluster::Status;
use link::{Frame, Link};
use replica::{Config, Incarnation, NodeId, Revision, Slot};
use rt::sync::Semaphore;
use serde::{Deserialize, Serialize};
use store::VolumeId;

use self::decision::{Fork, Phase};
use super::{Kept, Reconciler, json};
use crate::canary::{Canary, makes};
use crate::copies::core::Copies;
use crate::copies::entry::{StandingEntry, VolumeEntry};
use crate::copies::message;
use crate::copies::slice::SliceCopy;
use crate::copies::split_brain::{
    ForkRecord, ForkSaid, POLICIES, PolicyEntry, SPLITS, SplitEntry, policy_key, split_key,
};
use crate::shard::on_all_cores;
use crate::under_way::{Begun, UnderWay};

/// How long nothing at all must come from the other node before this one continues alone.
///
/// Five times the length of a lease, and longer than a node that starts may take until it is heard.
pub(super) const FORK_SILENCE: Duration = Duration::from_secs(5);

/// How long the record may take to report its status, or to return an entry.
const ASK_RECORD: Duration = Duration::from_secs(2);

/// How many forks are settled at the same time, apart from those that wait for the disk of their copy
/// ([`Forks::without_turn`]).
///
/// Each waits for the cluster's record, and then for this node's record, which takes one change at a time:
/// the last of them waits for 15 others. On a slow disk that takes a second or two, and a change gives up
/// after 15.
const SETTLED_AT_ONCE_MAX: usize = 16;

/// Forks of this node, by volume.
pub(super) struct Forks {
    /// When this life began: silence before that does not count.
    began: Instant,
    all: RefCell<BTreeMap<VolumeId, Fork>>,
    /// Volumes whose fork a task is beginning or settling.
    busy: UnderWay<VolumeId>,
    /// Each task that settles a fork holds one, except while it waits for the disk of its copy.
    turns: Semaphore,
    /// The last one that a task began to settle. The next look continues after it.
    last: Cell<Option<VolumeId>>,
    /// A task is asking the record for its status.
    asks: Cell<bool>,
    /// A task is beginning forks.
    begins: Cell<bool>,
}

/// What another node has reported about its forks.
pub(super) type Word = Vec<ForkSaid>;

/// What users see of a volume with which a node has continued alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkShown {
    /// The node.
    pub node: u16,
    /// Since when, in seconds since 1970, by its clock.
    pub since: u64,
    /// Whether it can still be settled without an administrator.
    pub state: ForkState,
}

/// The state of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForkState {
    /// The node continues alone; or the other node is back, and the fork is about to be settled.
    Alone,
    /// Both nodes have continued: an administrator has to decide whose data is kept.
    Split,
}

impl Forks {
    pub fn new(now: Instant, records: Vec<ForkRecord>) -> Forks {
        let fork = |record: ForkRecord| {
            let id = VolumeId::parse(&record.volume)?;
            Some((id, Fork::found(record)))
        };
        Forks {
            began: now,
            all: RefCell::new(records.into_iter().filter_map(fork).collect()),
            busy: UnderWay::default(),
            turns: Semaphore::new(SETTLED_AT_ONCE_MAX),
            last: Cell::new(None),
            asks: Cell::new(false),
            begins: Cell::new(false),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.all.borrow().is_empty()
    }

    pub fn has(&self, id: VolumeId) -> bool {
        self.all.borrow().contains_key(&id)
    }

    /// Notes that a copy is closed: its slices know whether they have served hosts, and the next ones do not.
    pub fn note_closed(&self, id: VolumeId) {
        self.change(id, Fork::handle_closed);
    }

    /// Whether the copy in `slot` may act in this configuration of the record.
    ///
    /// During a fork it may only if the configuration has it in sync in a later epoch than the fork's.
    pub fn allow(&self, id: VolumeId, slot: Slot, config: &Config) -> bool {
        let all = self.all.borrow();
        all.get(&id).is_none_or(|fork| fork.allows(config.epoch, config.in_sync().contains(slot)))
    }

    fn get(&self, id: VolumeId) -> Option<Fork> {
        self.all.borrow().get(&id).cloned()
    }

    /// Reports to the fork of the volume, if there is one.
    fn change<T>(&self, id: VolumeId, change: impl FnOnce(&mut Fork) -> T) -> Option<T> {
        self.all.borrow_mut().get_mut(&id).map(change)
    }

    /// The forks to settle next. Each holds a turn, and its volume is busy, from now on.
    fn take_turns(&self) -> Vec<(VolumeId, Begun<VolumeId>)> {
        let (all, last) = (self.all.borrow(), self.last.get());
        let later = all.keys().filter(|id| Some(**id) > last);
        let in_turn = later.chain(all.keys().filter(|id| Some(**id) <= last)).copied();
        let mut next = Vec::new();
        for id in in_turn {
            let Some(begun) = self.busy.begin(id) else { continue };
            if !self.turns.try_acquire(1) {
                break;
            }
            self.last.set(Some(id));
            next.push((id, begun));
        }
        next
    }

    /// Waits for the disk of a copy, for a task that holds a turn. The disk may hang: others use the turn
    /// meanwhile.
    async fn without_turn<T>(&self, wait: impl Future<Output = T>) -> T {
        self.turns.release(1);
        let ended = wait.await;
        self.turns.acquire(1).await;
        ended
    }
}

/// Detaches the slices of a volume from the other copies.
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

impl Reconciler {
    /// Reports this node's forks to the other node.
    ///
    /// Sends nothing if there are none and no volume of the cluster has a split-brain policy: its nodes may
    /// not know the message.
    pub(super) fn say_forks(&self, link: &Rc<Link>) {
        let all = self.forks.all.borrow();
        if !self.has_policies() && all.is_empty() {
            return;
        }
        let said = |fork: &ForkRecord| ForkSaid {
            volume: fork.volume.clone(),
            parent: fork.parent,
            epoch: fork.epoch,
            at: fork.at,
        };
        let word: Word = all.values().map(|fork| said(fork.record())).collect();
        link.send(message::frame(message::FORKS, 0, json(&word)));
    }

    /// Whether any volume has a split-brain policy.
    fn has_policies(&self) -> bool {
        let record = self.record.borrow();
        let mut from = record.entries.range::<str, _>((Bound::Included(POLICIES), Bound::Unbounded));
        from.next().is_some_and(|(key, _)| key.starts_with(POLICIES))
    }

    /// Takes the other node's report on its forks.
    ///
    /// It holds for the life at the other end of the link, until another link comes up.
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

    /// Whether this node refuses leases to a life of another node because of a fork.
    ///
    /// That life may still believe that it is a member together with this node, which has continued without
    /// it. Once the record says what has become of the fork and this node acts by that, it grants leases
    /// again: they count only for a holder that acts by that revision, too.
    pub(super) fn denies_leases(&self, to: NodeId, life: Incarnation) -> bool {
        let settled = |id: &VolumeId, fork: &Fork| {
            let Some((split, revision)) = self.get::<SplitEntry>(&split_key(*id)) else {
                return fork.phase() == Phase::Left;
            };
            matches!(fork.phase(), Phase::Frozen | Phase::Left)
                && split.epoch == fork.record().epoch
                && self.copies.leases().applied() >= Revision(revision.0)
        };
        let all = self.forks.all.borrow();
        let is_of_it = |fork: &ForkRecord| (fork.without, fork.life) == (to.0, life.0);
        let mut of_it = all.iter().filter(|(_, fork)| is_of_it(fork.record()));
        of_it.any(|(id, fork)| !settled(id, fork)) && !makes(Canary::ForkLends)
    }

    /// Whether [`Reconciler::waits_for_word`] can hold for any volume; if not, no volume needs to be checked.
    pub(super) fn may_wait_for_word(&self) -> bool {
        self.has_policies() || !self.forks.all.borrow().is_empty()
    }

    /// Whether this node must propose nothing for the volume now.
    ///
    /// This holds while this node has a fork of the volume, or the other node has one or may have one. A copy
    /// that the record has out of sync cannot have continued alone.
    pub(super) fn waits_for_word(&self, now: Instant, id: VolumeId, kept: &Kept) -> bool {
        if self.forks.has(id) {
            return true;
        }
        if self.revision_of(&kept.policy_key).is_none() || makes(Canary::GoOnUnheard) {
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

    /// The volume's split-brain policy, if it was agreed to for the nodes that have its copies now.
    pub fn policy_of(&self, entry: &VolumeEntry) -> Option<PolicyEntry> {
        let id = VolumeId::parse(&entry.id)?;
        let (policy, _) = self.get::<PolicyEntry>(&policy_key(id))?;
        policy.is_about(entry).then_some(policy)
    }

    /// The unsettled fork of the volume, as far as this node knows.
    pub fn fork_of(&self, entry: &VolumeEntry) -> Option<ForkShown> {
        let id = VolumeId::parse(&entry.id)?;
        if let Some((split, _)) = self.get::<SplitEntry>(&split_key(id))
            && split.keep.is_none()
        {
            return Some(ForkShown { node: split.node, since: split.at, state: ForkState::Split });
        }
        if let Some(fork) = self.forks.all.borrow().get(&id) {
            let fork = fork.record();
            let state = if fork.split { ForkState::Split } else { ForkState::Alone };
            return Some(ForkShown { node: self.me().0, since: fork.at, state });
        }
        let peers = self.peers.borrow();
        peers.iter().find_map(|(node, peer)| {
            let said = peer.word.as_ref()?.iter();
            let mut said = said.filter(|said| said.volume == entry.id && said.epoch >= entry.epoch);
            said.next().map(|said| ForkShown { node: node.0, since: said.at, state: ForkState::Alone })
        })
    }

    /// The fork of the volume that the node has reported, in the form of the record's entry.
    pub fn said_of(&self, entry: &VolumeEntry, node: u16) -> Option<SplitEntry> {
        let peers = self.peers.borrow();
        let mut said = peers.get(&NodeId(node))?.word.as_ref()?.iter();
        let said = said.find(|said| said.volume == entry.id && said.epoch >= entry.epoch)?;
        Some(SplitEntry { node, parent: said.parent, epoch: said.epoch, at: said.at, keep: None })
    }

    /// Acts by what the record says about splits at these keys.
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
                // This node had stopped serving so that the other one could; the administrator has changed
                // the decision.
                Some(keep) if keep == self.me().0 && !self.forks.has(id) => self.go_on_serving(id).await,
                _ => {}
            }
        }
    }

    /// Takes a fork from the cluster's record, so that the data here is kept.
    ///
    /// This node's own record was set back and no longer knows of it.
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
            self.forks.all.borrow_mut().insert(id, Fork::found(record));
            kept.entry.number
        };
        detach(number).await;
    }

    /// Begins forks, and settles them.
    pub(super) fn look_at_forks(self: &Rc<Self>) {
        let idle = self.forks.is_empty() && self.candidates(rt::now()).is_empty();
        if idle || self.forks.asks.replace(true) {
            return;
        }
        let reconciler = Rc::clone(self);
        rt::spawn(async move {
            let status = reconciler.store.status(ASK_RECORD).await;
            reconciler.forks.asks.set(false);
            if let Ok(status) = status {
                let status = Rc::new(status);
                reconciler.settle_forks(&status);
                reconciler.begin_forks(&status).await;
            }
        })
        .detach();
    }

    /// Settles forks, each in a task of its own.
    ///
    /// One may wait seconds for an answer of the record, or without end for a disk that hangs: the others
    /// must not wait with it, however many there are on that disk.
    fn settle_forks(self: &Rc<Self>, status: &Rc<Status>) {
        for (id, begun) in self.forks.take_turns() {
            let (reconciler, status) = (Rc::clone(self), Rc::clone(status));
            rt::spawn(async move {
                reconciler.look_at_fork(id, &status).await;
                reconciler.forks.turns.release(1);
                drop(begun);
            })
            .detach();
        }
    }

    /// Begins forks one after the other: each waits only for this node's own record, which takes one change
    /// at a time.
    async fn begin_forks(self: &Rc<Self>, status: &Status) {
        if self.forks.begins.replace(true) {
            return;
        }
        for id in self.candidates(rt::now()) {
            // The task that has settled the last fork of the volume may still be attaching its copy.
            let Some(_begun) = self.forks.busy.begin(id) else { continue };
            self.begin_fork(id, status).await;
        }
        self.forks.begins.set(false);
    }

    fn forget_fork(&self, id: VolumeId) {
        self.forks.all.borrow_mut().remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn forks(volumes: u8) -> Forks {
        let record = |number: u8| ForkRecord {
            volume: VolumeId([number; 16]).to_string(),
            made: 1,
            parent: 1,
            epoch: 2,
            without: 1,
            life: 1,
            at: 0,
            split: false,
        };
        Forks::new(Instant(0), (0..volumes).map(record).collect())
    }

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn forks_on_a_disk_that_hangs_use_up_no_turns() {
        let forks = forks(40);
        let mut hanging = Vec::new();
        for _ in 0..2 {
            let taken = forks.take_turns();
            assert_eq!(taken.len(), SETTLED_AT_ONCE_MAX);
            assert!(forks.take_turns().is_empty(), "no more at the same time");
            hanging.extend(taken.into_iter().map(|(id, begun)| {
                let mut wait = Box::pin(forks.without_turn(std::future::pending::<()>()));
                assert!(poll(wait.as_mut()).is_pending());
                (id, begun, wait)
            }));
        }
        let others: Vec<VolumeId> = forks.take_turns().into_iter().map(|(id, _)| id).collect();
        assert_eq!(others.len(), 8);
        assert!(hanging.iter().all(|(id, ..)| !others.contains(id)), "one task at a time handles a fork");
    }

    #[test]
    fn a_fork_whose_disk_has_answered_waits_for_a_turn() {
        let forks = forks(40);
        let first = forks.take_turns();
        let mut wait = pin!(forks.without_turn(async { 7 }));
        assert_eq!(poll(wait.as_mut()), Poll::Ready(7), "its turn is still free");
        let disk = rt::sync::Notify::new();
        let mut wait = pin!(forks.without_turn(disk.notified()));
        assert!(poll(wait.as_mut()).is_pending());
        assert_eq!(forks.take_turns().len(), 1);
        disk.notify();
        assert!(poll(wait.as_mut()).is_pending(), "all turns are taken");
        forks.turns.release(1);
        assert!(forks.take_turns().is_empty(), "it comes before those that begin");
        assert!(poll(wait.as_mut()).is_ready());
        drop(first);
    }
}
