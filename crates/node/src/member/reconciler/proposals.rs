//! Proposes changes of volumes when nodes are lost and return, and commits them unless another node was
//! quicker.

use std::ops::Bound;
use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use cluster::{Outcome, Transaction};
use replica::{Config, NodeId, Proposal, Reason, Slot, Slots, SyncFrom};
use store::VolumeId;

use super::budget::Giving;
use super::suspect::Suspicion;
use super::syncs::DiskTrouble;
use super::unreadable::Legible;
use super::{ClusterError, Kept, RECORD_DEADLINE, Reconciler, json};
use crate::canary::{Canary, makes};
use crate::copies::cause::Cause;
use crate::copies::core::Copies;
use crate::copies::disk_range::DiskRange;
use crate::copies::entry::{
    CopyEntry, DROPPED_MAX, DroppedCopy, MAINTENANCE, StandingEntry, VolumeEntry, volume_key,
};
use crate::copies::progress::{KeptOut, Part, SliceSync};
use crate::copies::view::SliceView;
use crate::copies::{Address, SliceCopy};
use crate::shard::on_all_cores;
use crate::yielding::{self, QUICK_ITEMS_PER_TURN};

/// What the slices of a core know.
struct OfCore {
    core: u16,
    /// What all slices of each volume know together, by the volume's number, in order.
    views: Vec<(u32, SliceView)>,
    /// What the slices know of copies that are not in sync.
    syncs: Vec<SliceSync>,
}

impl OfCore {
    async fn look() -> OfCore {
        let mut of_core = OfCore { core: rt::core().0, views: Vec::new(), syncs: Vec::new() };
        Copies::current().for_each_slice(QUICK_ITEMS_PER_TURN, |copy| of_core.add(copy)).await;
        of_core
    }

    fn add(&mut self, copy: &SliceCopy) {
        let (volume, view) = (copy.address().volume, copy.view());
        match self.views.last_mut() {
            Some((last, known)) if *last == volume => *known = known.and(view),
            _ => self.views.push((volume, view)),
        }
        self.syncs.extend(copy.syncs());
    }
}

/// What the slices of each volume know together.
struct Views {
    /// When this look began: slices opened later are not all in it.
    began: Instant,
    /// By core, and per core by the volume's number, in order.
    by_core: Vec<Vec<(u32, SliceView)>>,
}

impl Views {
    fn of(&self, kept: &Kept) -> Option<SliceView> {
        if kept.opened >= self.began {
            return None;
        }
        let volume = kept.entry.number;
        let on_core = |views: &Vec<(u32, SliceView)>| {
            let index = views.binary_search_by_key(&volume, |(number, _)| *number).ok()?;
            views.get(index).map(|(_, view)| *view)
        };
        self.by_core.iter().filter_map(on_core).reduce(SliceView::and)
    }
}

/// What is the same for all volumes that are looked at in one turn.
struct Look {
    now: Instant,
    /// Nodes that are in maintenance.
    maintained: Vec<NodeId>,
    /// Some volume may have to wait for another node's report on its forks.
    may_wait: bool,
}

/// What the slices of a partly open copy would report, so that other nodes do not let it in.
fn not_whole(kept: &Kept) -> Option<SliceSync> {
    let from = SyncFrom { source: None, awaits_disk: false, silent_ticks: 0, failed: true };
    kept.is_partly_open().then_some(SliceSync {
        address: Address { volume: kept.entry.number, slice: u16::MAX },
        slot: kept.slot,
        left_bytes: 0,
        copied_bytes: 0,
        dirtied_bytes: 0,
        part: Part::Own(from),
        limited_by: None,
        no_room: false,
    })
}

impl Reconciler {
    /// Commits what the membership policies of all volumes propose.
    ///
    /// It runs up to twenty times a second, so it looks at some volumes in each turn of this core.
    ///
    /// Returns whether all volumes are at rest ([`super::rest`]).
    pub(super) async fn propose(self: &Rc<Self>) -> bool {
        let views = self.views().await;
        self.tell_syncs(rt::now());
        let mut rest = self.knows_of_no_syncs();
        let mut after: Option<VolumeId> = None;
        loop {
            let look = Look {
                now: rt::now(),
                maintained: self.in_maintenance(),
                may_wait: self.may_wait_for_word(),
            };
            let mut proposals: Vec<(VolumeId, Proposal)> = Vec::new();
            let mut unsettled: Vec<VolumeId> = Vec::new();
            after = yielding::look_at_some(&mut self.volumes.borrow_mut(), after, |id, kept| {
                if kept.legible != Legible::Whole {
                    rest = false;
                    return;
                }
                let proposal = self.proposed_by_policy(&look, &views, id, kept);
                let proposal = proposal.or_else(|| self.dropped(&look, id, kept));
                rest = rest && proposal.is_none() && self.is_at_rest(&look, &views, kept);
                let settles = proposal.is_none() && self.is_to_settle(&look, id, kept);
                unsettled.extend(settles.then_some(id));
                proposals.extend(proposal.map(|proposal| (id, proposal)));
            });
            // In the same turn: a proposal follows the newest configuration that is known now, and has to
            // change the entry of that configuration.
            for (id, proposal) in proposals {
                self.commit_proposal(id, proposal);
            }
            unsettled.into_iter().for_each(|id| self.settle_leaving(id));
            if after.is_none() {
                return rest;
            }
            rt::next_turn().await;
        }
    }

    /// Whether a look at this volume finds nothing to propose as long as neither the volume, nor a node, nor
    /// what a slice of it knows changes.
    fn is_at_rest(&self, look: &Look, views: &Views, kept: &Kept) -> bool {
        let mut standings = kept.entry.copies.iter().map(|copy| copy.standing);
        let is_settled = !kept.proposing && !kept.may_have_left() && kept.suspicion == Suspicion::None;
        if !is_settled || standings.any(|it| it != StandingEntry::InSync) {
            return false;
        }
        if !(kept.open || kept.reopens) {
            // It is served from its pool, or its pool is not open.
            return true;
        }
        let Some(config) = kept.membership.active() else { return false };
        let view = views.of(kept).filter(|_| kept.open && kept.whole);
        view.is_some_and(|view| view.epoch == Some(config.epoch) && view.is_quiet())
            && kept.membership.due(&self.copies.leases()).is_none()
            && config.in_sync() == config.configured()
            && self.is_in_sync(kept, config)
            && self.leaving(look, &kept.entry).is_empty()
            && kept.membership_policy.hears_all(look.now, config)
    }

    /// Tells the membership policy of a volume when the nodes of the other copies were last heard.
    ///
    /// With each heartbeat this would be a thousand times as much work on a node with a thousand volumes.
    fn tell_membership_policy(&self, kept: &mut Kept) {
        let peers = self.peers.borrow();
        for copy in &kept.entry.copies {
            if let Some(peer) = peers.get(&NodeId(copy.node))
                && let (Some(slot), Some(life), Some(at)) = (copy.slot(), peer.life, peer.heard)
            {
                kept.membership_policy.handle_heartbeat(at, slot, life);
            }
        }
    }

    /// What the membership policy of a volume proposes.
    fn proposed_by_policy(
        &self,
        look: &Look,
        views: &Views,
        id: VolumeId,
        kept: &mut Kept,
    ) -> Option<Proposal> {
        if !(kept.open || kept.reopens) || kept.proposing || self.waits(look, id, kept) {
            return None;
        }
        let takes_part = kept.open && (kept.whole || makes(Canary::PartSpeaks));
        let view = if takes_part { views.of(kept)? } else { SliceView::CLOSED };
        let view = view.holds_in(kept.membership.active().map(|config| config.epoch));
        kept.failed = view.failed.is_some();
        // As long as no copy has caught up, none can be let in.
        let unready = match view.caught_up.is_empty() {
            true => Slots::NONE,
            // A copy that is let in now would have caught up with what the volume was.
            false if kept.entry.restoring.is_some() => Slots::ALL,
            false => self.unready(look.now, &kept.entry),
        };
        let view = view.with(self.leaving(look, &kept.entry), unready);
        self.tell_membership_policy(kept);
        let proposal =
            kept.membership_policy.propose(look.now, &kept.membership, &self.copies.leases(), view)?;
        let lost = proposal.reason == Reason::Alone && (kept.blank || !takes_part);
        (!lost).then_some(proposal)
    }

    /// Proposes to drop a copy that is to leave and is outside by now.
    fn dropped(&self, look: &Look, id: VolumeId, kept: &Kept) -> Option<Proposal> {
        let has_left =
            |copy: &&CopyEntry| copy.standing == StandingEntry::Outside && kept.entry.is_to_leave(copy);
        let slot = kept.entry.copies.iter().find(has_left)?.slot()?;
        let config = kept.membership.newest()?;
        let may = !kept.proposing
            && kept.membership.active() == Some(config)
            && self.is_in_sync(kept, config)
            && !self.waits(look, id, kept);
        may.then_some(())?;
        Some(Proposal { config: config.drop_copy(slot).ok()?, slot, reason: Reason::Leaves })
    }

    fn waits(&self, look: &Look, id: VolumeId, kept: &Kept) -> bool {
        look.may_wait && self.waits_for_word(look.now, id, kept)
    }

    /// What the slices of each volume know together.
    async fn views(&self) -> Views {
        let began = rt::now();
        let mut giving = Giving::default();
        let (mut by_core, mut syncs) = (Vec::new(), Vec::new());
        if !self.volumes.borrow().is_empty() {
            for of_core in on_all_cores(OfCore::look).await {
                giving.add(of_core.core, &of_core.syncs);
                by_core.push(of_core.views);
                syncs.extend(of_core.syncs);
            }
        }
        syncs.extend(self.volumes.borrow().values().filter_map(not_whole));
        self.note_syncs(rt::now(), &syncs);
        self.deal(rt::now(), giving).await;
        Views { began, by_core }
    }

    /// The nodes that are in maintenance.
    fn in_maintenance(&self) -> Vec<NodeId> {
        let record = self.record.borrow();
        let from = record.entries.range::<str, _>((Bound::Included(MAINTENANCE), Bound::Unbounded));
        let numbers = from.map_while(|(key, _)| key.strip_prefix(MAINTENANCE));
        numbers.filter_map(|number| number.parse().ok().map(NodeId)).collect()
    }

    fn leaving(&self, look: &Look, entry: &VolumeEntry) -> Slots {
        let peers = self.peers.borrow();
        let leaves = |copy: &&CopyEntry| {
            let said = peers.get(&NodeId(copy.node)).and_then(|peer| peer.leaving);
            said.is_some_and(|life| life.0 == copy.incarnation)
                || entry.is_to_leave(copy)
                || look.maintained.contains(&NodeId(copy.node))
        };
        entry.copies.iter().filter(leaves).filter_map(CopyEntry::slot).collect()
    }

    /// Copies outside for which writes would wait if they were let in now.
    fn unready(&self, now: Instant, entry: &VolumeEntry) -> Slots {
        let outside = entry.copies.iter().filter(|copy| copy.standing == StandingEntry::Outside);
        // A copy whose resync was paused at the last moment stays outside, too.
        let waits = |copy: &&CopyEntry| {
            entry.paused.contains_key(&copy.slot) || self.why_unready(now, entry, copy).is_some()
        };
        let unready = outside.filter(waits);
        unready.filter_map(CopyEntry::slot).collect()
    }

    /// Why writes would wait for the copy if it were let in now.
    fn why_unready(&self, now: Instant, entry: &VolumeEntry, copy: &CopyEntry) -> Option<KeptOut> {
        let node = NodeId(copy.node);
        if let Some(left) = self.quiet_left(now, node) {
            return Some(KeptOut::Quiet(node, left));
        }
        match self.disk_trouble(now, entry, copy) {
            Some(DiskTrouble::Failed) => return Some(KeptOut::Failed(node)),
            Some(DiskTrouble::NoRoom) => return Some(KeptOut::NoRoom(node)),
            None => {}
        }
        self.apart_from(now, entry, copy).map(|member| KeptOut::Apart(node, member))
    }

    /// How long the node's process will still act in nothing (R12).
    ///
    /// The process began before this node first heard it, so this is rather too long.
    fn quiet_left(&self, now: Instant, node: NodeId) -> Option<Duration> {
        let until = self.peers.borrow().get(&node)?.met? + self.copies.leases().terms().quiet();
        (now < until).then(|| until.since(now))
    }

    /// A node with a copy in sync that does not reach the copy's node, or is not reached by it.
    fn apart_from(&self, now: Instant, entry: &VolumeEntry, copy: &CopyEntry) -> Option<NodeId> {
        let reaches = |from: NodeId, to: NodeId| {
            if from == self.me() {
                return self.reaches_now(now, to);
            }
            let peers = self.peers.borrow();
            let said = peers.get(&from).and_then(|peer| peer.reached.as_ref());
            said.is_none_or(|reached| reached.contains(&to))
        };
        let node = NodeId(copy.node);
        let in_sync = entry.copies.iter().filter(|member| member.standing == StandingEntry::InSync);
        in_sync
            .map(|member| NodeId(member.node))
            .find(|member| !reaches(*member, node) || !reaches(node, *member))
    }

    /// What keeps a copy outside from being let in, as far as this node knows.
    pub(super) fn kept_out(&self, now: Instant, entry: &VolumeEntry, slot: Slot) -> Option<KeptOut> {
        let copy = entry.copy_in(slot)?;
        if let Some(unready) = self.why_unready(now, entry, copy) {
            return Some(unready);
        }
        let volumes = self.volumes.borrow();
        let kept = volumes.get(&VolumeId::parse(&entry.id)?)?;
        kept.membership_policy.penalty_left(now, slot).map(KeptOut::Penalty)
    }

    fn commit_proposal(self: &Rc<Self>, id: VolumeId, proposal: Proposal) {
        let mut volumes = self.volumes_mut();
        let Some(kept) = volumes.get_mut(&id).filter(|kept| !kept.proposing) else { return };
        kept.proposing = true;
        let leaves = proposal.slot == kept.slot && !proposal.config.in_sync().contains(kept.slot);
        if leaves {
            kept.note_leaving();
        }
        let before = kept.entry.copy_in(proposal.slot);
        let taken = before.filter(|copy| proposal.reason == Reason::Leaves && kept.entry.is_to_leave(copy));
        let maintained = before.is_some_and(|copy| self.is_in_maintenance(NodeId(copy.node)));
        let reason = match (taken, proposal.reason) {
            (Some(_), _) => Cause::CopyRemoved,
            (None, Reason::Leaves) if maintained => Cause::Maintenance,
            (None, reason) => reason.into(),
        };
        tracing::info!(volume = kept.entry.name, copy = %proposal.slot, %reason, "proposing a change of the copies in sync");
        let (key, revision) = (volume_key(id), kept.revision);
        let mut entry = kept.entry.with_config(&proposal.config, reason.clone());
        if matches!(proposal.reason, Reason::Unrepaired | Reason::DiskFailing | Reason::Unreadable) {
            entry.unread.extend(kept.unread.clone().map(|range| (proposal.slot.index() as u8, range)));
        }
        if let Some(gone) = before.filter(|_| proposal.config.copy(proposal.slot).is_none()) {
            entry.dropped.push(DroppedCopy { node: gone.node, made: gone.made, asker: gone.asker });
            let oldest = entry.dropped.len().saturating_sub(DROPPED_MAX);
            entry.dropped.drain(..oldest);
        }
        if proposal.reason == Reason::Alone {
            // The reason is that of the copy that continues, not of those that it leaves behind.
            let behind = entry.missed.values_mut().filter(|cause| **cause == reason);
            behind.for_each(|cause| *cause = Cause::LeftBehind);
        }
        let transaction = Reconciler::transaction().expect(&key, Some(revision)).put(&key, json(&entry));
        drop(volumes);
        let reconciler = Rc::clone(self);
        let told = proposal.reason == Reason::Complete;
        rt::spawn(async move {
            if told && !reconciler.is_told(id, proposal.slot).await {
                return reconciler.propose_again(id);
            }
            let may_be_committed = reconciler.commit_entry(id, &entry.name, transaction).await;
            if leaves
                && !may_be_committed
                && let Some(kept) = reconciler.volumes_mut().get_mut(&id)
            {
                kept.note_not_left(revision);
            }
        })
        .detach();
    }

    /// Commits a change of a volume's entry, unless another node was quicker. Returns whether it may take
    /// effect.
    async fn commit_entry(&self, id: VolumeId, name: &str, transaction: Transaction) -> bool {
        let may_be_committed = match self.store.cas(transaction, RECORD_DEADLINE).await {
            // The watch delivers the change.
            Ok(Outcome::Committed(_)) => return true,
            Ok(Outcome::Conflict { .. }) => false,
            Err(error) => {
                tracing::warn!(volume = name, %error, "the copies in sync could not be changed");
                ClusterError::from(error).may_be_committed()
            }
        };
        self.propose_again(id);
        may_be_committed
    }

    /// Whether to find out if the record has taken the copy here out of sync: this life has asked it to, does
    /// not know the outcome, and has no reason to ask again.
    ///
    /// Only while all members are heard, so that a decision can be expected.
    fn is_to_settle(&self, look: &Look, id: VolumeId, kept: &Kept) -> bool {
        let hears_all = |config: &Config| {
            self.is_in_sync(kept, config) && kept.membership_policy.hears_all(look.now, config)
        };
        kept.may_have_left()
            && kept.open
            && !kept.proposing
            && kept.membership.active().is_some_and(hears_all)
            && !self.waits(look, id, kept)
    }

    /// Writes the entry of a volume as it is. If that is committed, the record has not taken the copy here
    /// out of sync, and the transaction that would have done so cannot take effect any more.
    fn settle_leaving(self: &Rc<Self>, id: VolumeId) {
        let mut volumes = self.volumes_mut();
        let Some(kept) = volumes.get_mut(&id).filter(|kept| !kept.proposing) else { return };
        kept.proposing = true;
        let key = volume_key(id);
        let transaction =
            Reconciler::transaction().expect(&key, Some(kept.revision)).put(&key, json(&kept.entry));
        let name = kept.entry.name.clone();
        drop(volumes);
        let reconciler = Rc::clone(self);
        rt::spawn(async move {
            reconciler.commit_entry(id, &name, transaction).await;
        })
        .detach();
    }

    /// Notes a range that a disk of this node failed to read, and that could not be repaired.
    pub(crate) fn note_unread(&self, id: VolumeId, range: DiskRange) {
        if let Some(kept) = self.volumes_mut().get_mut(&id) {
            kept.unread = Some(range);
        }
    }

    fn propose_again(&self, id: VolumeId) {
        if let Some(kept) = self.volumes_mut().get_mut(&id) {
            kept.proposing = false;
        }
    }
}
