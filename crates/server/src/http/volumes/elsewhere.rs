//! Volumes of the cluster that have no copy on the queried node.
//!
//! The cluster's record has all of their properties. Only a node with a copy knows the pool that the copy is
//! in, and how much it takes there: one of them is asked once, and its answer is kept. A volume that none of
//! them reports is shown without that.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::node::control::ControlError;
use ::node::copies::{CopyEntry, NodeId, StandingEntry, VolumeEntry};
use ::node::member::CopiesStatus;
use ::node::{Control, VolumeId, yielding};
use api::{Missing, Volume, VolumeHealth};
use serde::{Deserialize, Serialize};
use store::SpacePolicy;

use super::{clone_of, compression, copies, kind, map, naa, shown, split_brain, verification, when_full};
use crate::http::peers::{self, PeerQuery};
use crate::http::refusal::Refusal;
use crate::http::state::State;

/// What a node reports about its copy of a volume: what the cluster's record does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::http) struct CopyReport {
    /// The volume.
    id: String,
    /// The number of the node.
    pub(super) node: u16,
    pub(super) pool: String,
    /// Bytes, as in [`Volume`].
    pub(super) reserved: u64,
    used: u64,
    checksums: Option<bool>,
    compression_ratio_percent: Option<u64>,
}

impl CopyReport {
    /// What this node reports about a volume.
    pub(super) fn of(volume: &Volume, node: u16) -> CopyReport {
        CopyReport {
            id: volume.id.clone(),
            node,
            pool: volume.pool.clone(),
            reserved: volume.reserved,
            used: volume.used,
            checksums: volume.checksums,
            compression_ratio_percent: volume.compression_ratio_percent,
        }
    }
}

/// What other nodes have reported about their copies, by volume ID; at most the volumes in the record.
///
/// The node's core uses this, too. So the lock is held only for the time of one lookup, except when deleted
/// volumes are dropped.
#[derive(Clone, Default)]
pub struct Elsewhere(Arc<Mutex<BTreeMap<String, Arc<CopyReport>>>>);

/// This node's copies of the volumes with these IDs, for another node that asks.
pub(in crate::http) async fn of_ids(control: &Control, ids: &[String]) -> Vec<CopyReport> {
    let (names, node) = (control.node_names(), control.number());
    let of_id = |id: &String| Some(CopyReport::of(&shown(control.volume(id).ok()?, &names), node));
    yielding::filter_map(ids, of_id).await
}

/// The volumes of the record that have no open copy on this node.
pub(super) struct There {
    volumes: Vec<(CopiesStatus, Maps)>,
    /// The number of this node.
    me: u16,
    /// The nodes that are up.
    heard: BTreeSet<u16>,
}

/// Target, LUN and host group of each map.
type Maps = Vec<(String, u16, String)>;

impl There {
    /// All volumes of the record except those in `here`.
    pub(super) async fn look(control: &Control, here: BTreeSet<VolumeId>) -> There {
        let Ok(reconciler) = control.reconciler() else {
            return There { volumes: Vec::new(), me: 0, heard: BTreeSet::new() };
        };
        let is_there = |entry: &VolumeEntry| VolumeId::parse(&entry.id).is_none_or(|id| !here.contains(&id));
        let others = reconciler.volumes_in_parts(is_there).await;
        let mapped = |volume: CopiesStatus| {
            let maps = control.maps_of(&volume.entry.id);
            Some((volume, maps))
        };
        let volumes = yielding::filter_map(others, mapped).await;
        let heard = reconciler.nodes().into_iter().filter(|(_, heard)| *heard).map(|(node, _)| node.id);
        There { volumes, me: reconciler.me().0, heard: heard.collect() }
    }

    /// The queries to other nodes about unknown volumes. A copy on a node that is up is preferred, then one
    /// in sync, since its node has the volume open.
    fn queries(&self, known: &Elsewhere) -> BTreeMap<u16, PeerQuery> {
        let mut ids: BTreeMap<u16, Vec<String>> = BTreeMap::new();
        let unknown = self.volumes.iter().filter(|(volume, _)| known.of(&volume.entry.id).is_none());
        for (volume, _) in unknown {
            let best = other_copies(self.me, volume)
                .max_by_key(|copy| (self.heard.contains(&copy.node), copy.standing == StandingEntry::InSync));
            if let Some(copy) = best {
                ids.entry(copy.node).or_default().push(volume.entry.id.clone());
            }
        }
        ids.into_iter().map(|(node, ids)| (node, PeerQuery::Volumes(ids))).collect()
    }

    /// The volumes, with what other nodes have reported about them. `missing`: the nodes that did not answer.
    pub(super) fn shown(
        self,
        known: &Elsewhere,
        missing: &[Missing],
        names: &BTreeMap<u16, String>,
    ) -> Vec<Volume> {
        let There { volumes, me, heard } = self;
        let volume = |(status, maps): (CopiesStatus, Maps)| {
            let told = match known.of(&status.entry.id) {
                Some(told) => Ok(told),
                None => Err(why_untold(me, &status, missing, |node| heard.contains(&node))),
            };
            seen(&status, maps, told, names)
        };
        volumes.into_iter().map(volume).collect()
    }
}

/// Forgets volumes that no longer exist, and asks other nodes about unknown ones. Returns the nodes that did
/// not answer.
pub(super) async fn learn(state: &State, there: &There) -> Result<Vec<Missing>, Refusal> {
    let ids = there.volumes.iter().map(|(volume, _)| volume.entry.id.as_str());
    state.elsewhere.keep(&ids.collect());
    let queries = there.queries(&state.elsewhere);
    if queries.is_empty() {
        return Ok(Vec::new());
    }
    let answers = state.call(|control| async move { peers::ask(&control, queries).await }).await?;
    let (told, missing) = answers.read::<CopyReport>();
    state.elsewhere.remember(told);
    Ok(missing)
}

/// The volume of this name or ID in the record; `None`: there is none.
pub(super) async fn one(
    control: &Rc<Control>,
    known: Elsewhere,
    name: &str,
) -> Result<Option<Volume>, ControlError> {
    let Ok(reconciler) = control.reconciler() else { return Ok(None) };
    let Some(status) = reconciler.volume_named(name) else { return Ok(None) };
    if let Some(told) = known.of(&status.entry.id) {
        return Ok(Some(seen_by(control, &status, Ok(told))));
    }
    let query = || PeerQuery::Volumes(vec![status.entry.id.clone()]);
    let queries = other_copies(reconciler.me().0, &status).map(|copy| (copy.node, query())).collect();
    let (told, missing) = peers::ask(control, queries).await?.read::<CopyReport>();
    known.remember(told);
    let told = match known.of(&status.entry.id) {
        Some(told) => Ok(told),
        None => Err(why_untold(reconciler.me().0, &status, &missing, |node| reconciler.hears(NodeId(node)))),
    };
    Ok(Some(seen_by(control, &status, told)))
}

/// Why no node with a copy reports the volume; `None`: all of them are down, which its copies show.
fn why_untold(
    me: u16,
    status: &CopiesStatus,
    missing: &[Missing],
    is_heard: impl Fn(u16) -> bool,
) -> Option<String> {
    if status.entry.copies.iter().all(|copy| copy.node != me && !is_heard(copy.node)) {
        return None;
    }
    let reason = |copy: &CopyEntry| {
        let missing = missing.iter().find(|missing| missing.node == copy.node);
        let reason = match missing {
            Some(missing) => missing.reason.as_str(),
            None if copy.node != me && !is_heard(copy.node) => "it is unreachable",
            None => "the pool of its copy is not open",
        };
        format!("node {}: {reason}", copy.node)
    };
    let reasons: Vec<String> = status.entry.copies.iter().map(reason).collect();
    Some(format!(
        "no node with a copy reports its pool and the space that it takes there ({})",
        reasons.join("; ")
    ))
}

/// The copies on other nodes.
fn other_copies(me: u16, volume: &CopiesStatus) -> impl Iterator<Item = &CopyEntry> {
    volume.entry.copies.iter().filter(move |copy| copy.node != me)
}

/// What another node has reported about a volume; otherwise why none has ([`why_untold`]).
type PeerReport = Result<Arc<CopyReport>, Option<String>>;

/// The volume as the node of this control knows it now, completed with another node's report.
fn seen_by(control: &Control, status: &CopiesStatus, told: PeerReport) -> Volume {
    seen(status, control.maps_of(&status.entry.id), told, &control.node_names())
}

/// The volume as this node knows it now, completed with another node's report. The caller determines its
/// health.
fn seen(status: &CopiesStatus, maps: Maps, told: PeerReport, names: &BTreeMap<u16, String>) -> Volume {
    let (entry, shape) = (&status.entry, &status.entry.shape);
    let id = VolumeId::parse(&entry.id);
    let kind = kind(shape.kind);
    let space = kind.is_thin().then(|| SpacePolicy::from(entry.space));
    let reserved = space.map_or(entry.size, |space| space.reserve.0);
    let compressed = entry.compression.known().filter(|_| kind.is_compressible());
    // Of the node that has told.
    let (compression_ratio_percent, checksums) = match &told {
        Ok(told) => (told.compression_ratio_percent, told.checksums),
        Err(_) => (None, None),
    };
    let (pool, reserved, used, problem) = match told {
        Ok(told) => (told.pool.clone(), space.map_or(told.reserved, |_| reserved), told.used, None),
        Err(why) => (String::new(), reserved, 0, why),
    };
    let physical = shape.block_bytes.checked_shl(shape.physical_exponent.into());
    Volume {
        id: entry.id.clone(),
        name: entry.name.clone(),
        pool,
        kind,
        size: entry.size,
        block_size: shape.block_bytes,
        physical_block_size: physical.unwrap_or(shape.block_bytes),
        slices: shape.slices,
        reserved,
        used,
        when_full: space.map(|space| when_full(space.when_full)),
        compression: compressed.map(compression),
        checksums,
        compression_ratio_percent,
        created: shape.created,
        clone_of: clone_of(status),
        naa: id.map(naa).unwrap_or_default(),
        maps: maps.into_iter().map(map).collect(),
        problem,
        health: VolumeHealth::Healthy,
        serving: false,
        copies: copies::shown(status, names),
        epoch: Some(entry.epoch),
        reason: Some(entry.reason.to_string()),
        split_brain_policy: split_brain::chosen(status),
        fork: split_brain::fork(status),
        comparison: id.map(|id| verification::compared(status, id, shape.created)),
        losses: Vec::new(),
        // It was so when that node was asked, once.
        scrub: None,
    }
}

impl Elsewhere {
    fn of(&self, id: &str) -> Option<Arc<CopyReport>> {
        self.lock().get(id).cloned()
    }

    fn remember(&self, told: Vec<CopyReport>) {
        for report in told {
            self.lock().insert(report.id.clone(), Arc::new(report));
        }
    }

    /// Forgets all other volumes.
    fn keep(&self, ids: &BTreeSet<&str>) {
        let mut known = self.lock();
        if known.len() > ids.len() {
            known.retain(|id, _| ids.contains(id.as_str()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<CopyReport>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use terms::samples;

    use super::*;

    #[test]
    fn facts_are_sent_and_no_sentences() {
        let problem = Some("its pool is not open".into());
        let volume =
            Volume { pool: "main".into(), problem, reserved: 5, used: 4, ..samples::volume("db", vec![]) };
        let report = CopyReport::of(&volume, 2);
        let sent = serde_json::to_value(&report).unwrap();
        let expected = serde_json::json!({
            "id": volume.id, "node": 2, "pool": "main", "reserved": 5, "used": 4,
            "checksums": volume.checksums, "compression_ratio_percent": volume.compression_ratio_percent,
        });
        assert_eq!(sent, expected);
        assert_eq!(serde_json::from_value::<CopyReport>(sent).unwrap(), report);
    }
}
