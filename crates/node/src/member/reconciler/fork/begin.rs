//! When a node continues alone, and how it begins.

use std::rc::Rc;

use base::Instant;
use cluster::Status;
use replica::{BEYOND_RECORD, Config, Epoch, NodeId};
use store::VolumeId;

use super::super::unreadable::Legible;
use super::super::{Kept, Reconciler};
use super::decision::{Fork, Grounds, is_silent};
use super::{FORK_SILENCE, attach, detach};
use crate::canary::{Canary, makes};
use crate::control::Control;
use crate::copies::core::Copies;
use crate::copies::entry::{NODES, NodeEntry, StandingEntry, VolumeEntry};
use crate::copies::split_brain::{FORK_EPOCHS, ForkRecord, SplitBrainPolicy, alone};
use crate::events::code::CONTINUED_ALONE;
use crate::events::{Event, tell};
use crate::shard::{Shard, on_all_cores};

impl Reconciler {
    /// Volumes with which this node may continue alone, as far as it can tell without asking others.
    pub(super) fn candidates(&self, now: Instant) -> Vec<VolumeId> {
        let silent = |heard: Instant| is_silent(now, heard);
        // This runs twenty times a second, and usually all other nodes are heard.
        let is_any = self.peers.borrow().values().any(|peer| peer.heard.is_some_and(silent));
        if self.stopping.get() || !is_any {
            return Vec::new();
        }
        let volumes = self.volumes.borrow();
        let may = |id: VolumeId, kept: &Kept| {
            let config = kept.membership.newest()?;
            let other = self.other_member(kept, config)?;
            let quiet = self.peers.borrow().get(&other).and_then(|peer| peer.heard)?;
            let able = kept.open
                && !kept.held
                && kept.legible == Legible::Whole
                && kept.membership.active() == Some(config);
            (able
                && silent(quiet)
                && self.is_in_sync(kept, config)
                && self.agrees(&kept.entry)
                && !self.forks.has(id))
            .then_some(id)
        };
        volumes.iter().filter_map(|(id, kept)| may(*id, kept)).collect()
    }

    /// Whether an administrator has agreed that one node continues alone with the volume.
    ///
    /// By the record, as far as this node acts by it; and only in a cluster of two nodes without a witness.
    fn agrees(&self, entry: &VolumeEntry) -> bool {
        let nodes: Vec<NodeEntry> = self.list(NODES);
        let agreed = self.policy_of(entry).is_some_and(|chosen| chosen.policy == SplitBrainPolicy::Heartbeat);
        (agreed || makes(Canary::ForkUnasked)) && nodes.len() == 2 && !nodes.iter().any(|node| node.witness)
    }

    /// The node of the other copy, if there is exactly one other copy and it is a member.
    fn other_member(&self, kept: &Kept, config: &Config) -> Option<NodeId> {
        let others = config.members().without(kept.slot);
        let other = others.iter().next().and_then(|slot| config.copy(slot))?;
        (config.configured().without(kept.slot) == others && others.iter().count() == 1).then_some(other.node)
    }

    /// When anything at all was last heard from the node, over any link; at the earliest, when this life
    /// began.
    async fn heard_of(&self, node: NodeId) -> Instant {
        let by_core = on_all_cores(move || async move { Copies::current().heard_of(node) }).await;
        let peers = self.peers.borrow();
        let peer = peers.get(&node);
        let control = peer.and_then(|peer| peer.link.as_ref()).map(|link| link.heard());
        let all = by_core.into_iter().flatten().chain(control).chain(peer.and_then(|peer| peer.heard));
        all.max().unwrap_or(self.forks.began).max(self.forks.began)
    }

    pub(super) async fn begin_fork(self: &Rc<Self>, id: VolumeId, status: &Status) {
        let Some((record, number, led)) = self.fork_from(id) else { return };
        let other = NodeId(record.without);
        if !self.look_for_grounds(id, number, led, other, status).await.hold(rt::now()) {
            return;
        }
        let epoch = record.epoch;
        self.forks.all.borrow_mut().insert(id, Fork::begun(record.clone()));
        detach(number).await;
        let written = match Control::try_current() {
            _ if makes(Canary::ForkUnwritten) => Ok(()),
            Some(control) => control.keep_fork(&record).await,
            None => return self.forget_fork(id),
        };
        if let Err(error) = written {
            let error = &error as &dyn std::error::Error;
            tracing::error!(volume = %id, error, "this node does not continue alone with a volume: it could not write this to its record");
            if makes(Canary::ForkHalfWritten) {
                self.forget_fork(id);
                return attach(number).await;
            }
            self.forks.change(id, Fork::handle_unwritten);
            return;
        }
        let heard = self.heard_of(other).await;
        let (is_back, named) = (!is_silent(rt::now(), heard), self.is_named(id));
        if self.forks.change(id, |fork| fork.handle_written(is_back, named)) != Some(true) {
            return;
        }
        tracing::warn!(
            volume = %id, node = record.without, parent = record.parent, epoch,
            "no heartbeat from the other node for {} s: this node continues alone with a volume, by its split-brain policy; if the other node does so, too, this is a split brain",
            FORK_SILENCE.as_secs()
        );
        let name = self.volumes.borrow().get(&id).map(|kept| kept.entry.name.clone()).unwrap_or_default();
        let text = format!(
            "node {} has been unreachable for {} seconds: this node continues alone with volume {name}, by its split-brain policy",
            record.without,
            FORK_SILENCE.as_secs()
        );
        let event = Event::new(CONTINUED_ALONE, name, text).of_volume(id);
        tell(event.because("silent").of_node(self.me().0));
        self.go_alone(id);
    }

    /// What this node knows about continuing alone without the other node.
    async fn look_for_grounds(
        &self,
        id: VolumeId,
        number: u32,
        led: Option<Instant>,
        other: NodeId,
        status: &Status,
    ) -> Grounds {
        let well = is_well(id, number).await;
        // Last of all: the other node may be back by now.
        let heard = self.heard_of(other).await;
        let (gone, may_have_left) = (is_gone(other, status), self.may_have_left(id));
        Grounds { gone, heard, led, well, may_have_left }
    }

    /// Whether the record has this copy in sync, as far as this node has followed it.
    fn is_named(&self, id: VolumeId) -> bool {
        let volumes = self.volumes.borrow();
        let copy = volumes.get(&id).and_then(|kept| kept.entry.copy_on(self.me()));
        copy.is_some_and(|(_, copy)| copy.standing == StandingEntry::InSync)
    }

    /// Whether this node has asked the record to take its own copy out of sync, and does not know whether it
    /// has. If it has, the other node serves hosts without this one as soon as it is back.
    fn may_have_left(&self, id: VolumeId) -> bool {
        self.volumes.borrow().get(&id).is_some_and(Kept::may_have_left)
    }

    /// The fork that would begin from the volume's newest configuration, as it is to be written down.
    ///
    /// Also returns the volume's number, and when this copy was last in sync with all leases.
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

    /// Acts in the fork as soon as the leases granted to the other node have expired (R11, R12).
    fn go_alone(&self, id: VolumeId) {
        let Some(fork) = self.forks.get(id) else { return };
        self.forks.change(id, Fork::go);
        let epoch = Epoch(fork.record().epoch);
        let life = self.copies.incarnation();
        if let Some(kept) = self.volumes_mut().get_mut(&id)
            && let Some(known) = kept.newest_config()
        {
            // A revision beyond the record's: all leases have to expire, whatever revision they were granted
            // at.
            kept.membership.learn(alone(&known, kept.slot, life, epoch, BEYOND_RECORD));
        }
        self.work.notify();
    }

    /// Continues alone by a fork of an earlier life, or one that this life was about to begin.
    ///
    /// Only if the other node is still silent.
    pub(super) async fn resume_fork(self: &Rc<Self>, id: VolumeId, fork: &ForkRecord, status: &Status) {
        let found = {
            let volumes = self.volumes.borrow();
            let kept = volumes.get(&id).filter(|kept| kept.open && !kept.blank && kept.made == fork.made);
            kept.filter(|kept| self.agrees(&kept.entry)).map(|kept| (kept.entry.number, kept.led))
        };
        let Some((number, led)) = found.filter(|_| self.is_named(id)) else { return };
        // A node that was heard in this life may have continued without this copy. The record will tell, when
        // it answers.
        let led = led.unwrap_or(self.forks.began);
        let grounds = self.look_for_grounds(id, number, Some(led), NodeId(fork.without), status).await;
        if grounds.hold(rt::now()) {
            tracing::warn!(volume = %id, epoch = fork.epoch, "the other node is unreachable: this node continues alone with a volume again");
            self.go_alone(id);
        }
    }
}

/// Whether the node is the record's only voter and does not answer.
fn is_gone(node: NodeId, status: &Status) -> bool {
    !status.quorum && status.voters == [u64::from(node.0)]
}

/// Whether all slices of the volume are open here, and their disks work.
pub(super) async fn is_well(id: VolumeId, number: u32) -> bool {
    let slices = Control::try_current().map_or(0, |control| control.slices_of_copy(id));
    let well = on_all_cores(move || async move {
        Copies::current().slices_of(number).iter().filter(|copy| !copy.has_failed()).count()
    });
    slices > 0 && well.await.into_iter().sum::<usize>() == slices
}
