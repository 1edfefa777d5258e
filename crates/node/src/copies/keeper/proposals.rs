//! What is to become of volumes when nodes are lost and return: thought over, and committed if nobody was quicker.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use cluster::Outcome;
use replica::{NodeId, Proposal, Reason, Slot, Slots};
use store::VolumeId;

use super::super::core::Copies;
use super::super::entry::{CopyEntry, DROPPED_MAX, DroppedCopy, StandingEntry, VolumeEntry, volume_key};
use super::super::progress::KeptOut;
use super::super::view::SliceView;
use super::budget::Giving;
use super::{Keeper, RECORD_DEADLINE, json};
use crate::shard::on_all_cores;

impl Keeper {
    /// Proposes what stewards think of.
    pub(super) async fn propose(self: &Rc<Self>) {
        let views = self.views().await;
        let now = rt::now();
        self.tell_syncs(now);
        let proposals: Vec<(VolumeId, Proposal)> = {
            let leases = self.copies.leases();
            let mut volumes = self.volumes.borrow_mut();
            let here = volumes.iter_mut().filter(|(id, kept)| {
                (kept.open || kept.reopens) && !kept.proposing && !self.waits_for_word(now, **id, &kept.entry)
            });
            here.filter_map(|(id, kept)| {
                let view = if kept.open { *views.get(&kept.entry.number)? } else { SliceView::CLOSED };
                kept.failed = view.failed;
                // Who cannot be let in yet need not be looked at: this is done for every volume, twenty times a second.
                let unready = match view.caught_up.is_empty() {
                    true => Slots::NONE,
                    false => self.unready(now, &kept.entry),
                };
                let view = view.with(self.leaving(&kept.entry), unready);
                let proposal = kept.steward.propose(now, &kept.membership, &leases, view)?;
                let lost = proposal.reason == Reason::Alone && kept.blank;
                (!lost).then_some((*id, proposal))
            })
            .collect()
        };
        for (id, proposal) in proposals.into_iter().chain(self.drop_copies()) {
            self.commit_proposal(id, proposal);
        }
    }

    /// What the slices of each volume know together.
    async fn views(&self) -> BTreeMap<u32, SliceView> {
        let mut all: BTreeMap<u32, SliceView> = BTreeMap::new();
        let mut syncs = Vec::new();
        let mut giving = Giving::default();
        if !self.volumes.borrow().is_empty() {
            let by_core = on_all_cores(|| async {
                let copies = Copies::current().slices();
                copies
                    .iter()
                    .map(|copy| (rt::core(), copy.address().volume, copy.view(), copy.syncs()))
                    .collect::<Vec<_>>()
            });
            for (core, volume, view, of_slice) in by_core.await.into_iter().flatten() {
                all.entry(volume).and_modify(|known| *known = known.and(view)).or_insert(view);
                giving.add(core.0, &of_slice);
                syncs.extend(of_slice);
            }
        }
        self.note_syncs(rt::now(), &syncs);
        self.deal(rt::now(), giving).await;
        all
    }

    /// Proposes that copies which have left be no copies any more.
    fn drop_copies(&self) -> Vec<(VolumeId, Proposal)> {
        let (volumes, now) = (self.volumes.borrow(), rt::now());
        let acting = volumes.iter().filter(|(id, kept)| {
            let newest = kept.membership.newest();
            !kept.proposing
                && !self.waits_for_word(now, **id, &kept.entry)
                && kept.membership.active() == newest
                && newest.is_some_and(|config| self.is_in_sync(kept, config))
        });
        acting
            .filter_map(|(id, kept)| {
                let config = kept.membership.newest()?;
                let left =
                    kept.entry.copies.iter().find(|copy| {
                        copy.standing == StandingEntry::Outside && kept.entry.is_to_leave(copy)
                    })?;
                let slot = left.slot()?;
                Some((*id, Proposal { config: config.drop_copy(slot).ok()?, slot, reason: Reason::Leaves }))
            })
            .collect()
    }

    fn leaving(&self, entry: &VolumeEntry) -> Slots {
        let peers = self.peers.borrow();
        let leaves = |copy: &&CopyEntry| {
            let said = peers.get(&NodeId(copy.node)).and_then(|peer| peer.leaving);
            said.is_some_and(|life| life.0 == copy.incarnation)
                || entry.is_to_leave(copy)
                || self.is_in_maintenance(NodeId(copy.node))
        };
        entry.copies.iter().filter(leaves).filter_map(CopyEntry::slot).collect()
    }

    /// Copies outside for which writes would wait if they were let in now.
    fn unready(&self, now: Instant, entry: &VolumeEntry) -> Slots {
        let outside = entry.copies.iter().filter(|copy| copy.standing == StandingEntry::Outside);
        // One whose sync was paused in the last moment stays outside, too.
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
        self.apart_from(now, entry, copy).map(|member| KeptOut::Apart(node, member))
    }

    /// How long the node's process acts in nothing yet. It has begun before it was met, so that this is rather too long.
    fn quiet_left(&self, now: Instant, node: NodeId) -> Option<Duration> {
        let until = self.peers.borrow().get(&node)?.met? + self.copies.leases().terms().quiet();
        (now < until).then(|| until.since(now))
    }

    /// A node whose copy is in sync that the copy's node does not reach, or is not reached by.
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

    /// What keeps a copy outside from being let in, by what this node knows.
    pub(super) fn kept_out(&self, now: Instant, entry: &VolumeEntry, slot: Slot) -> Option<KeptOut> {
        let copy = entry.copy_in(slot)?;
        if let Some(unready) = self.why_unready(now, entry, copy) {
            return Some(unready);
        }
        let volumes = self.volumes.borrow();
        let kept = volumes.get(&VolumeId::parse(&entry.id)?)?;
        kept.steward.penalty_left(now, slot).map(KeptOut::Penalty)
    }

    fn commit_proposal(self: &Rc<Self>, id: VolumeId, proposal: Proposal) {
        let mut volumes = self.volumes.borrow_mut();
        let Some(kept) = volumes.get_mut(&id).filter(|kept| !kept.proposing) else { return };
        kept.proposing = true;
        let before = kept.entry.copy_in(proposal.slot);
        let taken = before.filter(|copy| proposal.reason == Reason::Leaves && kept.entry.is_to_leave(copy));
        let maintained = before.is_some_and(|copy| self.is_in_maintenance(NodeId(copy.node)));
        let reason = match (taken, proposal.reason) {
            (Some(_), _) => TAKEN_OFF,
            (None, Reason::Leaves) if maintained => IN_MAINTENANCE,
            (None, reason) => describe(reason),
        };
        tracing::info!(volume = kept.entry.name, copy = %proposal.slot, reason, "a change of who is in sync is proposed");
        let (key, revision) = (volume_key(id), kept.revision);
        let mut entry = kept.entry.with_config(&proposal.config, reason);
        if let Some(gone) = before.filter(|_| proposal.config.copy(proposal.slot).is_none()) {
            entry.dropped.push(DroppedCopy { node: gone.node, made: gone.made });
            let oldest = entry.dropped.len().saturating_sub(DROPPED_MAX);
            entry.dropped.drain(..oldest);
        }
        if proposal.reason == Reason::Alone {
            // The reason is that of the one that goes on, not of those that it leaves behind.
            let behind = entry.missed.values_mut().filter(|cause| *cause == reason);
            behind.for_each(|cause| *cause = LEFT_BEHIND.into());
        }
        let transaction = Keeper::transaction().expect(&key, Some(revision)).put(&key, json(&entry));
        drop(volumes);
        let keeper = Rc::clone(self);
        let told = proposal.reason == Reason::Complete;
        rt::spawn(async move {
            if told && !keeper.is_told(id, proposal.slot).await {
                return keeper.propose_again(id);
            }
            let result = keeper.store.cas(transaction, RECORD_DEADLINE).await;
            match result {
                // The watch brings it.
                Ok(Outcome::Committed(_)) => return,
                Ok(Outcome::Conflict { .. }) => {}
                Err(error) => {
                    tracing::warn!(volume = entry.name, %error, "who is in sync could not be changed")
                }
            }
            keeper.propose_again(id);
        })
        .detach();
    }

    fn propose_again(&self, id: VolumeId) {
        if let Some(kept) = self.volumes.borrow_mut().get_mut(&id) {
            kept.proposing = false;
        }
    }
}

/// Why a copy misses writes that was in sync when all were lost, and was not the first to return.
pub(super) const LEFT_BEHIND: &str = "all copies were lost, and another one was back first";

/// Why copies are not in sync that somebody wanted so.
pub(super) const TAKEN_OFF: &str = "it was taken off its node";
pub(super) const IN_MAINTENANCE: &str = "its node is in maintenance";

pub(super) fn describe(reason: Reason) -> &'static str {
    match reason {
        Reason::Restarted => "its node was restarted",
        Reason::Died => "its process died",
        Reason::Silent => "nothing was heard of its node",
        Reason::Overdue => "it did not finish writes",
        Reason::Leaves => "its node was stopped",
        Reason::Unreadable => "the only copy in sync cannot read all that it misses",
        Reason::DiskFailed => "a disk of it failed",
        Reason::SourceFailed => "a disk failed of the only copy that could bring it up to date",
        Reason::Complete => "it has all that it missed",
        Reason::CaughtUp => "it has nearly all that it missed and takes new writes",
        Reason::Alone => "it was in sync when it was lost, and nobody else that was is there",
    }
}
