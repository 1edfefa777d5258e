//! Follows the cluster's record, makes the copies here act by it, and checks regularly whether leases have
//! expired and what to propose for volumes.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use base::{ByteLen, Instant};
use cluster::{Event, Watch};
use replica::{Activation, Membership, MembershipPolicy, NodeId, Revision, SILENCE_MAX, Slot};
use store::VolumeId;

use super::agreement::Agreement;
use super::rest::LOOK_EVERY;
use super::suspect::Suspicion;
use super::unreadable::{Legible, Reading};
use super::{Kept, Reconciler};
use crate::control::{Control, show_capacity};
use crate::copies::cause::Cause;
use crate::copies::core::{Copies, on_every_core};
use crate::copies::entry::{
    LINK_ROLES, LinkRoles, NODES, NodeEntry, StandingEntry, VOLUMES, VolumeEntry, link_roles_key, peer,
};
use crate::copies::split_brain::policy_key;
use crate::shard::on_all_cores;

impl Reconciler {
    pub(super) async fn follow(self: Rc<Self>, mut watch: Watch) {
        loop {
            match watch.next().await {
                Ok(Event::Everything(everything)) => {
                    let before = self.record.replace((*everything).clone());
                    let keys: BTreeSet<String> =
                        before.entries.keys().chain(everything.entries.keys()).cloned().collect();
                    // What was there when this node began to follow is no news.
                    let was = keys.iter().map(|key| (key.clone(), before.entries.get(key).cloned()));
                    let was = self.note_unreadable(was.collect());
                    if !before.entries.is_empty() {
                        self.tell_changes(was);
                    }
                    self.act_by(keys, everything.revision).await;
                }
                Ok(Event::Change(change)) => {
                    let before = self.values_at(change.writes.iter().map(|(key, _)| key));
                    self.record.borrow_mut().change(&change);
                    let before = self.note_unreadable(before);
                    self.tell_changes(before);
                    let keys = change.writes.iter().map(|(key, _)| key.clone()).collect();
                    self.act_by(keys, change.revision).await;
                }
                Err(error) => {
                    if !self.stopping.get() {
                        // Only a defect leads here: the record waits for a disk that fails.
                        tracing::error!(%error, "the cluster's record can no longer be followed: restart the node");
                    }
                    return;
                }
            }
        }
    }

    /// Makes everything on this node act by what the record says at these keys.
    async fn act_by(self: &Rc<Self>, keys: BTreeSet<String>, revision: cluster::Revision) {
        let revision = Revision(revision.0);
        self.stir();
        self.copies.set_known(revision);
        if keys.iter().any(|key| key.starts_with(NODES) || key.starts_with(LINK_ROLES)) {
            self.learn_nodes();
        }
        for key in keys.iter().filter(|key| key.starts_with(VOLUMES)) {
            self.learn_volume(key).await;
        }
        self.learn_splits(&keys).await;
        self.hold_back().await;
        self.open_volumes_soon();
        self.activate().await;
        // A copy that is outside stops at once. A member may continue in the previous epoch: nothing can be
        // completed without it.
        on_every_core(move || Copies::current().set_applied(revision));
        if let Some(control) = Control::try_current() {
            control.act_by_cluster(&keys).await;
        }
        self.show_paths().await;
        // What was looked at meanwhile may have been half the change.
        self.stir();
        self.applied.notify();
        self.work.notify();
    }

    fn learn_nodes(&self) {
        let entries: Vec<NodeEntry> = self.list(NODES);
        if !entries.iter().any(|entry| NodeId(entry.id) == self.me()) {
            // This node has joined and has not read the record yet: it has only the peers that it was given.
            return;
        }
        let peers =
            entries.iter().map(|entry| peer(entry.id, &entry.addresses, &self.link_roles(NodeId(entry.id))));
        self.links.set_peers(peers.collect());
    }

    /// What the addresses of a node are used for.
    pub fn link_roles(&self, node: NodeId) -> LinkRoles {
        self.get::<LinkRoles>(&link_roles_key(node)).map(|(roles, _)| roles).unwrap_or_default()
    }

    async fn learn_volume(self: &Rc<Self>, key: &str) {
        let Some(id) = key.strip_prefix(VOLUMES).and_then(VolumeId::parse) else { return };
        let Some((reading, revision)) = self.read_volume(key) else { return self.forget(id).await };
        let (entry, legible) = match reading {
            Reading::Whole(entry) => (entry, Legible::Whole),
            Reading::Part(entry) => (entry, Legible::Part),
            Reading::Nothing { epoch } => return self.hold_unreadable(id, epoch).await,
        };
        let here = entry.copy_on(self.me()).map(|(slot, copy)| (slot, copy.made));
        let Some((slot, made)) = here else {
            self.forget(id).await;
            if let Some(control) = Control::try_current() {
                // In a task, since its disk may hang.
                rt::spawn(async move { control.note_no_copy(id).await }).detach();
            }
            return;
        };
        if self.volumes.borrow().get(&id).is_some_and(|kept| (kept.slot, kept.made) != (slot, made)) {
            // The copy was removed from this node and added again before this node learned of it.
            self.forget(id).await;
        }
        if self.take_entry(id, (entry, legible), revision, (slot, made)) {
            self.go_on_serving(id).await;
        }
    }

    /// Takes over what the record says about a volume with a copy here.
    ///
    /// Returns whether the copy was held because nothing of its entry could be read, and may serve again.
    fn take_entry(
        &self,
        id: VolumeId,
        (entry, legible): (VolumeEntry, Legible),
        revision: Revision,
        (slot, made): (Slot, u64),
    ) -> bool {
        let config = entry.config(revision).expect("what is read has one");
        let mut volumes = self.volumes_mut();
        let life = self.copies.incarnation();
        let kept = volumes.entry(id).or_insert_with(|| Kept {
            entry: entry.clone(),
            revision: cluster::Revision(revision.0),
            slot,
            made,
            membership: Membership::new(slot, life),
            membership_policy: MembershipPolicy::new(rt::now(), slot, life, SILENCE_MAX),
            blank: false,
            open: false,
            whole: true,
            sole: false,
            opened: rt::now(),
            reopens: false,
            forgets: false,
            failed: false,
            unread: None,
            shown: entry.size,
            proposing: false,
            leaving: None,
            agreement: Agreement::new(slot),
            suspicion: Suspicion::default(),
            led: None,
            held: false,
            legible,
            policy_key: policy_key(id),
        });
        tracing::info!(
            volume = entry.name,
            epoch = entry.epoch,
            reason = %entry.reason,
            "the copies in sync have changed"
        );
        for copy in &entry.copies {
            if let Some(slot) = copy.slot()
                && kept.entry.copy_in(slot).is_none_or(|before| before.node != copy.node)
            {
                kept.membership_policy.forget(slot);
            }
        }
        if entry.reason == Cause::Overdue {
            let is_out = |entry: &VolumeEntry, slot| {
                entry.copy_in(slot).is_some_and(|copy| copy.standing == StandingEntry::Outside)
            };
            let taken_out = Slot::all().filter(|slot| is_out(&entry, *slot) && !is_out(&kept.entry, *slot));
            taken_out.for_each(|slot| kept.membership_policy.handle_overdue(rt::now(), slot));
        }
        self.restores.note(id, &kept.entry, &entry);
        (kept.entry, kept.revision, kept.proposing) = (entry, cluster::Revision(revision.0), false);
        // If the volume has other copies, what is here is older than theirs: it is looked at again.
        kept.sole &= kept.entry.sole;
        let was = std::mem::replace(&mut kept.legible, legible);
        if self.forks.allow(id, slot, &config) {
            // Once the record has the copy out of sync, it need not be held any more.
            kept.held &= self.forks.has(id) || config.in_sync().contains(slot);
            kept.membership.learn(config);
        }
        was == Legible::Nothing && !kept.held
    }

    /// Makes copies act in the configurations that they may act in now.
    pub(super) async fn activate(self: &Rc<Self>) {
        self.acting.acquire(1).await;
        let now = rt::now();
        let mut due: Vec<(u32, ByteLen, Activation)> = Vec::new();
        let mut grown: Vec<(VolumeId, ByteLen)> = Vec::new();
        {
            let leases = self.copies.leases();
            let mut volumes = self.volumes_mut();
            // A sole copy acts in no configuration: what the record says holds at once.
            for (id, kept) in volumes.iter_mut().filter(|(_, kept)| kept.sole) {
                if kept.shown != kept.entry.size {
                    kept.shown = kept.entry.size;
                    grown.push((*id, ByteLen(kept.entry.size)));
                }
            }
            // Also for a copy that is closed for a while: it has no slice to activate.
            for (id, kept) in volumes.iter_mut().filter(|(_, kept)| kept.open || kept.reopens) {
                let acted = kept.membership.active().is_some();
                if let Some(activation) = kept.membership.poll(now, &leases) {
                    if acted {
                        kept.agreement.handle_activation(activation.kept);
                    }
                    let size = ByteLen(kept.entry.size);
                    due.push((kept.entry.number, size, activation));
                    if kept.shown != size.0 {
                        kept.shown = size.0;
                        grown.push((*id, size));
                    }
                }
            }
        }
        if !due.is_empty() {
            self.activations.set(self.activations.get() + 1);
            let due: Arc<[(u32, ByteLen, Activation)]> = due.into();
            on_all_cores(move || async move {
                let copies = Copies::current();
                for (volume, size, activation) in due.iter() {
                    for copy in copies.slices_of(*volume) {
                        copy.grow(*size);
                        copy.activate(activation.clone());
                    }
                }
            })
            .await;
            self.learn_agreements();
        }
        for (id, size) in grown {
            show_capacity(id, size).await;
        }
        self.acting.release(1);
    }

    /// Acts when leases have expired, and makes proposals.
    ///
    /// It wakes twenty times a second, and looks at all volumes unless none of them has changed. As long as
    /// nothing can have changed, it wakes ten times a second, with the node's heartbeats ([`super::rest`]).
    pub(super) async fn guard(self: Rc<Self>) {
        let mut look_at = rt::now();
        while !self.stopping.get() {
            let now = rt::now();
            let due = if self.rest.is_certain() { None } else { self.due() };
            if due.is_some_and(|due| due <= now) {
                self.activate().await;
                self.open_volumes_soon();
                self.show_paths().await;
            }
            if look_at <= now {
                self.rest.begin_calm();
                self.tell_nodes(now);
                self.tell_record(now);
                let rests = self.rests(now).await;
                if !rests {
                    self.look_at_all(now).await;
                }
                if self.look_at_sources(rt::now()) {
                    self.show_paths().await;
                }
                look_at = self.next_look(now, rests);
            }
            let next = due.filter(|due| *due > now).map_or(look_at, |due| due.min(look_at));
            if rt::timeout_at(next, self.work.notified()).await.is_ok() {
                look_at = look_at.min(rt::now().beat_after(LOOK_EVERY));
            }
        }
    }

    /// Looks at all volumes: which copies lack leases, what to propose, and which forks to begin or settle.
    async fn look_at_all(self: &Rc<Self>, now: Instant) {
        let rested = self.rest.begin();
        let nodes = self.nodes_seen(now);
        self.look_at_leases(rested).await;
        let rest = self.propose().await;
        self.look_at_forks();
        if rest {
            self.rest.found(now, nodes);
        }
    }

    fn due(&self) -> Option<Instant> {
        let leases = self.copies.leases();
        self.volumes
            .borrow()
            .values()
            .filter(|kept| kept.open || kept.reopens)
            .filter_map(|kept| kept.membership.due(&leases))
            .min()
    }
}
