//! Reports events of the cluster as this node learns of them: nodes that go silent or are back, and changes
//! of the record. So every node reports them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::{ByteLen, Instant};
use cluster::Versioned;
use replica::NodeId;
use serde::de::DeserializeOwned;
use store::VolumeId;

use super::{Reconciler, parse};
use crate::attach::access::{HostGroup, LunMap, Target};
use crate::control::{HOSTS, TARGETS, note_ended_work, to_be_converted};
use crate::copies::cause::Cause;
use crate::copies::entry::{MAINTENANCE, NODES, NodeEntry, StandingEntry, VOLUMES, VolumeEntry};
use crate::copies::split_brain::{POLICIES, PolicyEntry, SPLITS, SplitBrainPolicy, SplitEntry};
use crate::events::code::{
    CONVERSION_STARTED, COPY_ADDED, COPY_OUT_OF_SYNC, COPY_REMOVED, HOST_CHANGED, HOST_CREATED, HOST_DELETED,
    MAINTENANCE_ENDED, MAINTENANCE_STARTED, MAPS_CHANGED, NODE_JOINED, NODE_LOST, NODE_REMOVED,
    NODE_RETURNED, NODE_STOPPED, RECORD_LOST, RECORD_RETURNED, RESYNC_COMPLETED, RESYNC_PAUSED,
    RESYNC_RESUMED, RESYNC_STARTED, SPLIT_BRAIN_DETECTED, SPLIT_BRAIN_ENDED, SPLIT_BRAIN_POLICY_CHANGED,
    SPLIT_BRAIN_RESOLVED, TARGET_CHANGED, TARGET_CREATED, TARGET_DELETED, VOLUME_CREATED, VOLUME_DELETED,
    VOLUME_RENAMED, VOLUME_RESIZED, VOLUME_SPACE_CHANGED,
};
use crate::events::{Code, Event, MapChange, tell};
use crate::member::floating::{ADDRESSES, HOLDERS, tell_address, tell_holder};

/// The previous values of keys that have changed in the record.
pub(super) type Before = BTreeMap<String, Option<Versioned>>;

/// Reports an event about a change of the record.
type Teller<'a> = &'a dyn Fn(Event);

/// Nodes that are first heard this early in this node's life were up before: that is no news.
const EARLY: Duration = Duration::from_secs(5);

/// The subject of events about a record in etcd.
const ETCD: &str = "etcd";

/// What was reported about nodes and resyncs.
pub(super) struct ReportedState {
    /// When this node began to look.
    began: Instant,
    /// Other nodes that were heard at the last look.
    heard: BTreeSet<NodeId>,
    /// Nodes that were lost because their process died.
    died: BTreeSet<NodeId>,
    /// Volumes, by number, whose resync was reported as started.
    syncs: BTreeSet<u32>,
    /// etcd cannot be used.
    record_lost: bool,
}

impl ReportedState {
    /// Nothing reported yet.
    pub(super) fn new(now: Instant) -> ReportedState {
        ReportedState {
            began: now,
            heard: BTreeSet::new(),
            died: BTreeSet::new(),
            syncs: BTreeSet::new(),
            record_lost: false,
        }
    }
}

impl Reconciler {
    /// The present values of these keys in the record.
    pub(super) fn values_at<'a>(&self, keys: impl Iterator<Item = &'a String>) -> Before {
        let record = self.record.borrow();
        keys.map(|key| (key.clone(), record.entries.get(key).cloned())).collect()
    }

    /// Notes that the process of a node is known to be dead.
    pub(super) fn note_death(&self, node: NodeId) {
        self.told.borrow_mut().died.insert(node);
    }

    /// Reports nodes that are back since the last look, and nodes that have gone silent.
    pub(super) fn tell_nodes(&self, now: Instant) {
        let known: BTreeSet<NodeId> = self.peers.borrow().keys().copied().collect();
        let heard: BTreeSet<NodeId> = known.into_iter().filter(|node| self.is_heard(now, *node)).collect();
        if heard == self.told.borrow().heard {
            return;
        }
        let before = std::mem::replace(&mut self.told.borrow_mut().heard, heard.clone());
        for node in before.difference(&heard) {
            // A node that was removed is not missed.
            let Some(name) = self.name_of(node.0) else { continue };
            let died = self.told.borrow_mut().died.remove(node);
            let leaves = self
                .peers
                .borrow()
                .get(node)
                .is_some_and(|peer| peer.leaving == peer.life && peer.life.is_some());
            let event = match (died, leaves) {
                (_, true) => {
                    Event::about_node(NODE_STOPPED, (&name, node.0), format!("node {name} was stopped"))
                        .because("stopped")
                }
                (true, _) => {
                    let text = format!("node {name} is down: its process died");
                    Event::about_node(NODE_LOST, (&name, node.0), text).because("died")
                }
                (false, _) => {
                    let text = format!("node {name} is down: heartbeat timeout");
                    Event::about_node(NODE_LOST, (&name, node.0), text).because("silent")
                }
            };
            tell(event);
        }
        for node in heard.difference(&before) {
            let mut told = self.told.borrow_mut();
            told.died.remove(node);
            if now.since(told.began) < EARLY {
                continue;
            }
            drop(told);
            let name = self.named(node.0);
            tell(Event::about_node(NODE_RETURNED, (&name, node.0), format!("node {name} is back")));
        }
    }

    /// Reports that etcd cannot be used, and that it can be used again.
    pub(super) fn tell_record(&self, now: Instant) {
        let trouble = self.record_trouble();
        let mut told = self.told.borrow_mut();
        // etcd gets a moment for its first answer.
        if trouble.is_some() == told.record_lost || now.since(told.began) < EARLY {
            return;
        }
        told.record_lost = trouble.is_some();
        tell(match trouble {
            Some(why) => {
                let text = format!("etcd, which holds the cluster's record, cannot be used: {why}");
                Event::new(RECORD_LOST, ETCD, text).of_node(self.me().0)
            }
            None => {
                let text = "etcd, which holds the cluster's record, can be used again";
                Event::new(RECORD_RETURNED, ETCD, text).of_node(self.me().0)
            }
        });
    }

    /// Reports resyncs that have started; `sources`: volume number and source node of those under way.
    pub(super) fn tell_syncs_begun(&self, sources: &BTreeSet<(u32, NodeId)>) {
        if sources.iter().all(|(volume, _)| self.told.borrow().syncs.contains(volume)) {
            return;
        }
        let volumes: Vec<VolumeEntry> = self.list(VOLUMES);
        for (number, source) in sources {
            if !self.told.borrow_mut().syncs.insert(*number) {
                continue;
            }
            let Some(entry) = volumes.iter().find(|entry| entry.number == *number) else { continue };
            let Some(copy) = entry.copies.iter().find(|copy| copy.standing != StandingEntry::InSync) else {
                continue;
            };
            let (why, from, to) = (entry.cause(copy.slot), self.named(source.0), self.named(copy.node));
            let text =
                format!("resync of volume {} on {to} from {from} started (out of sync: {why})", entry.name);
            let event = about(&entry.id, Event::new(RESYNC_STARTED, &entry.name, text));
            tell(event.because(why.code()).of_node(copy.node));
        }
    }

    /// Reports what has changed in the record since `before`.
    pub(super) fn tell_changes(&self, before: Before) {
        for (key, before) in before {
            // A key that was deleted has no revision: its last value's was the same on all nodes.
            let revision = self.revision_of(&key).or(before.as_ref().map(|value| value.revision));
            let tell = |event: Event| tell(event.of_revision(revision.map(|revision| revision.0)));
            let before = before.as_ref().map(|value| &*value.value);
            if key.starts_with(VOLUMES) {
                self.tell_volume(self.pair(&key, before), &tell);
            } else if key.starts_with(NODES) {
                tell_node(self.pair(&key, before), &tell);
            } else if let Some(number) = key.strip_prefix(MAINTENANCE) {
                self.tell_maintenance(number, (before.is_some(), self.revision_of(&key).is_some()), &tell);
            } else if let Some(id) = key.strip_prefix(POLICIES) {
                self.tell_policy(id, self.pair(&key, before), &tell);
            } else if let Some(id) = key.strip_prefix(SPLITS) {
                self.tell_split(id, self.pair(&key, before), &tell);
            } else if key.starts_with(TARGETS) {
                tell_target(self.pair(&key, before), &tell);
            } else if key.starts_with(HOSTS) {
                tell_host(self.pair(&key, before), &tell);
            } else if key.starts_with(ADDRESSES) {
                tell_address(self.readable_pair(&key, before), &tell);
            } else if key.starts_with(HOLDERS) {
                tell_holder(self.readable_pair(&key, before), &|node| self.named(node), &tell);
            }
        }
    }

    /// The previous and the present value of the key.
    fn pair<T: DeserializeOwned>(&self, key: &str, before: Option<&[u8]>) -> (Option<T>, Option<T>) {
        (before.and_then(|value| parse(key, value)), self.get(key).map(|(value, _)| value))
    }

    /// Like [`Reconciler::pair`], but twice `None` if this version cannot read one of the two values.
    ///
    /// A later version has written that value: it was neither created nor deleted.
    fn readable_pair<T: DeserializeOwned>(&self, key: &str, before: Option<&[u8]>) -> (Option<T>, Option<T>) {
        let pair = self.pair(key, before);
        let is_whole =
            (pair.0.is_some(), pair.1.is_some()) == (before.is_some(), self.revision_of(key).is_some());
        if is_whole { pair } else { (None, None) }
    }

    fn name_of(&self, node: u16) -> Option<String> {
        self.get::<NodeEntry>(&crate::copies::entry::node_key(NodeId(node))).map(|(entry, _)| entry.name)
    }

    /// The name of a node, or its number.
    pub(super) fn named(&self, node: u16) -> String {
        self.name_of(node).unwrap_or_else(|| NodeId(node).to_string())
    }

    fn volume_name(&self, id: &str) -> String {
        let id =
            VolumeId::parse(id).and_then(|id| self.get::<VolumeEntry>(&crate::copies::entry::volume_key(id)));
        id.map(|(entry, _)| entry.name).unwrap_or_default()
    }

    fn tell_volume(&self, pair: (Option<VolumeEntry>, Option<VolumeEntry>), tell: Teller<'_>) {
        self.out_of_sync_since.borrow_mut().note(rt::now(), pair.0.as_ref(), pair.1.as_ref());
        if let (Some(before), now) = &pair {
            note_ended_work(before, now.as_ref());
        }
        let (before, now) = match pair {
            (None, None) => return,
            // The volume existed before. The event about the copy that it gets says why it is in the record
            // now.
            (None, Some(now)) if now.reason == Cause::VolumeAdopted => return,
            (None, Some(now)) => {
                let copies = now.copies.len();
                let word = if copies == 1 { "copy" } else { "copies" };
                let text = format!("volume {} created with {copies} {word}", now.name);
                return tell(about(&now.id, Event::new(VOLUME_CREATED, &now.name, text)));
            }
            (Some(before), None) => {
                self.told.borrow_mut().syncs.remove(&before.number);
                let text = format!("volume {} deleted", before.name);
                return tell(about(&before.id, Event::new(VOLUME_DELETED, &before.name, text)));
            }
            (Some(before), Some(now)) => (before, now),
        };
        if before.name != now.name {
            let text = format!("volume {} renamed to {}", before.name, now.name);
            tell(about(&now.id, Event::new(VOLUME_RENAMED, &now.name, text)));
        }
        if before.size < now.size {
            let text =
                format!("volume {} resized from {} to {}", now.name, ByteLen(before.size), ByteLen(now.size));
            tell(about(&now.id, Event::new(VOLUME_RESIZED, &now.name, text)));
        }
        if before.shape.kind != now.shape.kind {
            let text = to_be_converted(&now.name, now.shape.kind);
            tell(about(&now.id, Event::new(CONVERSION_STARTED, &now.name, text)));
        }
        if before.space != now.space {
            let text = format!("space policy of volume {} changed", now.name);
            tell(about(&now.id, Event::new(VOLUME_SPACE_CHANGED, &now.name, text)));
        }
        let event = |code: Code, node: u16, text: String, why: &Cause| {
            about(&now.id, Event::new(code, &now.name, text)).because(why.code()).of_node(node)
        };
        for copy in &now.copies {
            let node = self.named(copy.node);
            let was = before.copies.iter().find(|was| (was.slot, was.node) == (copy.slot, copy.node));
            let is_in_sync = copy.standing == StandingEntry::InSync;
            let Some(was) = was else {
                let text = format!("copy of volume {} added on {node}", now.name);
                tell(event(COPY_ADDED, copy.node, text, &now.reason));
                continue;
            };
            match (was.standing == StandingEntry::InSync, is_in_sync) {
                (true, false) => {
                    self.told.borrow_mut().syncs.remove(&now.number);
                    let why = now.cause(copy.slot);
                    let text = format!("copy of volume {} on {node} is out of sync: {why}", now.name);
                    let range = now.unread.get(&copy.slot).cloned();
                    tell(event(COPY_OUT_OF_SYNC, copy.node, text, &why).where_unread(range));
                }
                (false, true) => {
                    let why = before.cause(copy.slot);
                    let text =
                        format!("resync of volume {} on {node} complete (was out of sync: {why})", now.name);
                    tell(event(RESYNC_COMPLETED, copy.node, text, &why));
                }
                _ => {}
            }
        }
        for copy in now.copies.iter().filter(|copy| copy.standing != StandingEntry::InSync) {
            let node = self.named(copy.node);
            let (code, what) = match (before.paused.get(&copy.slot), now.paused.get(&copy.slot)) {
                (None, Some(pause)) => (RESYNC_PAUSED, format!("paused by {}", pause.by)),
                (Some(_), None) => (RESYNC_RESUMED, "resumed".into()),
                _ => continue,
            };
            let text = format!("resync of volume {} on {node} {what}", now.name);
            tell(about(&now.id, Event::new(code, &now.name, text)).of_node(copy.node));
        }
        for copy in &before.copies {
            if !now.copies.iter().any(|now| (now.slot, now.node) == (copy.slot, copy.node)) {
                let text = format!("copy of volume {} on {} removed", now.name, self.named(copy.node));
                tell(event(COPY_REMOVED, copy.node, text, &now.reason));
            }
        }
        if now.copies.iter().all(|copy| copy.standing == StandingEntry::InSync) {
            self.told.borrow_mut().syncs.remove(&now.number);
        }
    }

    /// `change`: whether the node was in maintenance before, and whether it is now.
    fn tell_maintenance(&self, number: &str, change: (bool, bool), tell: Teller<'_>) {
        let Ok(node) = number.parse::<u16>() else { return };
        let name = self.named(node);
        let (code, text) = match change {
            (false, true) => (
                MAINTENANCE_STARTED,
                format!("{name} has entered maintenance: its copies leave the in-sync set"),
            ),
            (true, false) => (MAINTENANCE_ENDED, format!("{name} has left maintenance")),
            _ => return,
        };
        tell(Event::about_node(code, (&name, node), text));
    }

    fn tell_policy(
        &self,
        id: &str,
        (before, now): (Option<PolicyEntry>, Option<PolicyEntry>),
        tell: Teller<'_>,
    ) {
        if before == now {
            return;
        }
        let name = self.volume_name(id);
        let (cause, text) = match now.map(|now| (now.policy, now.by)) {
            None => ("none", format!("split-brain policy of volume {name} removed")),
            Some((SplitBrainPolicy::Prefer, by)) => (
                "prefer",
                format!(
                    "{by} set the split-brain policy of volume {name} to prefer: only the preferred node continues"
                ),
            ),
            Some((SplitBrainPolicy::Heartbeat, by)) => (
                "heartbeat",
                format!(
                    "{by} set the split-brain policy of volume {name} to heartbeat: either node continues alone"
                ),
            ),
        };
        tell(about(id, Event::new(SPLIT_BRAIN_POLICY_CHANGED, name, text)).because(cause));
    }

    fn tell_split(&self, id: &str, pair: (Option<SplitEntry>, Option<SplitEntry>), tell: Teller<'_>) {
        let name = self.volume_name(id);
        let event = match pair {
            (before, Some(SplitEntry { keep: None, node, .. }))
                if before.as_ref().is_none_or(|before| before.keep.is_some()) =>
            {
                let text = format!(
                    "split brain of volume {name}: {} and another node continued alone, and each has data that the other lacks",
                    self.named(node)
                );
                Event::new(SPLIT_BRAIN_DETECTED, name, text).of_node(node)
            }
            (Some(SplitEntry { keep: None, .. }), Some(SplitEntry { keep: Some(keep), .. })) => {
                let text = format!(
                    "the data of {} will be kept to resolve the split brain of volume {name}",
                    self.named(keep)
                );
                Event::new(SPLIT_BRAIN_RESOLVED, name, text).of_node(keep)
            }
            (Some(split), None) => {
                Event::new(SPLIT_BRAIN_ENDED, &name, format!("split brain of volume {name} resolved"))
                    .of_node(split.node)
            }
            _ => return,
        };
        tell(about(id, event));
    }
}

/// The event with its volume, given by the identity that the record has.
fn about(volume: &str, event: Event) -> Event {
    Event { volume: VolumeId::parse(volume), ..event }
}

fn tell_node(pair: (Option<NodeEntry>, Option<NodeEntry>), tell: Teller<'_>) {
    match pair {
        (None, Some(node)) => {
            let text = format!("node {} joined the cluster", node.name);
            tell(Event::about_node(NODE_JOINED, (&node.name, node.id), text));
        }
        (Some(node), None) => {
            let text = format!("node {} removed from the cluster", node.name);
            tell(Event::about_node(NODE_REMOVED, (&node.name, node.id), text));
        }
        _ => {}
    }
}

fn tell_target((before, now): (Option<Target>, Option<Target>), tell: Teller<'_>) {
    match (before, now) {
        (None, None) => {}
        (None, Some(now)) => {
            tell(Event::new(TARGET_CREATED, now.name.as_str(), format!("target {} created", now.name)));
            tell_maps(&now, &[], tell);
        }
        (Some(before), None) => {
            let text = format!("target {} deleted", before.name);
            tell(Event::new(TARGET_DELETED, before.name.as_str(), text));
        }
        (Some(before), Some(now)) => {
            if (&before.alias, &before.chap) != (&now.alias, &now.chap) {
                let text = format!("target {} changed", now.name);
                tell(Event::new(TARGET_CHANGED, now.name.as_str(), text));
            }
            tell_maps(&now, &before.maps, tell);
        }
    }
}

fn tell_maps(target: &Target, before: &[LunMap], tell: Teller<'_>) {
    let name = target.name.as_str();
    for map in target.maps.iter().filter(|map| !before.contains(map)) {
        let text = format!("LUN {} of target {name} mapped to host group {}", map.lun, map.host);
        tell(map_event(target, map, true, text));
    }
    for map in before.iter().filter(|map| !target.maps.contains(map)) {
        let text = format!("LUN {} of target {name} unmapped from host group {}", map.lun, map.host);
        tell(map_event(target, map, false, text));
    }
}

fn map_event(target: &Target, map: &LunMap, added: bool, text: String) -> Event {
    let change = MapChange { target: target.name.clone(), map: map.clone(), added };
    let event = Event::new(MAPS_CHANGED, target.name.as_str(), text).of_volume(map.volume);
    Event { map: Some(change), ..event.because(if added { "mapped" } else { "unmapped" }) }
}

fn tell_host((before, now): (Option<HostGroup>, Option<HostGroup>), tell: Teller<'_>) {
    let (code, name, what) = match (before, now) {
        (None, Some(now)) => (HOST_CREATED, now.name, "created"),
        (Some(before), None) => (HOST_DELETED, before.name, "deleted"),
        (Some(before), Some(now)) if before != now => (HOST_CHANGED, now.name, "changed"),
        _ => return,
    };
    tell(Event::new(code, name.as_str(), format!("host group {name} {what}")));
}
