//! Volumes of the cluster that have no copy on the queried node.
//!
//! The cluster's record has their names, sizes and copies. Only nodes with a copy know the rest (block size,
//! slices, kind): one of them is asked once, and its answer is kept, since none of this changes.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::node::control::ControlError;
use ::node::copies::{CopiesStatus, CopyEntry, StandingEntry, VolumeEntry};
use ::node::{Control, VolumeId, parts};
use api::{Missing, Volume};
use axum::http::StatusCode;

use super::{copies, map, shown, split_brain, verification};
use crate::http::peers::{self, VOLUMES};
use crate::http::refusal::Refusal;
use crate::http::state::State;

/// What other nodes have reported about their volumes, by ID; at most the volumes in the record.
///
/// The node's core uses this, too. So the lock is held only for the time of one lookup, except when deleted
/// volumes are dropped.
#[derive(Clone, Default)]
pub struct Elsewhere(Arc<Mutex<BTreeMap<String, Arc<Volume>>>>);

/// The volumes with these IDs that have a copy on this node, for another node that asks.
pub(in crate::http) async fn of_ids(control: &Control, ids: &str) -> Vec<Volume> {
    let names = control.node_names();
    let of_id = |id| Some(shown(control.volume(id).ok()?, &names));
    parts::filter_map(ids.split_whitespace(), of_id).await
}

/// A volume of the record that no node reports.
pub(super) struct Untold {
    pub(super) status: Box<CopiesStatus>,
    /// The reasons, node by node.
    pub(super) reasons: String,
}

impl Untold {
    /// The refusal: the volume exists, but cannot be shown.
    pub(super) fn refusal(self) -> Refusal {
        let (name, reasons) = (&self.status.entry.name, self.reasons);
        let detail = format!("volume {name:?} exists, but no node with a copy reports its state: {reasons}");
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "copy_unreachable", detail)
            .hint("see `ursa node list`, and bring one of these nodes back or repair its links")
    }
}

/// The volumes of the record that have no open copy on this node.
pub(super) struct There {
    /// The volumes, and their maps.
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
        let Some(keeper) = control.keeper() else {
            return There { volumes: Vec::new(), me: 0, heard: BTreeSet::new() };
        };
        let is_there = |entry: &VolumeEntry| VolumeId::parse(&entry.id).is_none_or(|id| !here.contains(&id));
        let others = keeper.volumes_in_parts(is_there).await;
        let mapped = |volume: CopiesStatus| {
            let maps = control.maps_of(&volume.entry.id);
            Some((volume, maps))
        };
        let volumes = parts::filter_map(others, mapped).await;
        let heard = keeper.nodes().into_iter().filter(|(_, heard)| *heard).map(|(node, _)| node.id);
        There { volumes, me: keeper.me().0, heard: heard.collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.volumes.is_empty()
    }

    /// The questions to other nodes about unknown volumes. A copy on a node that is up is preferred, then one
    /// in sync, since its node has the volume open.
    fn questions(&self, known: &Elsewhere) -> BTreeMap<u16, String> {
        let mut questions: BTreeMap<u16, String> = BTreeMap::new();
        let unknown = self.volumes.iter().filter(|(volume, _)| known.of(&volume.entry.id).is_none());
        for (volume, _) in unknown {
            let best = other_copies(self.me, volume)
                .max_by_key(|copy| (self.heard.contains(&copy.node), copy.standing == StandingEntry::InSync));
            if let Some(copy) = best {
                let question = questions.entry(copy.node).or_insert_with(|| VOLUMES.to_owned());
                question.push(' ');
                question.push_str(&volume.entry.id);
            }
        }
        questions
    }

    /// The volumes about which another node has reported.
    pub(super) fn shown(self, known: &Elsewhere, names: &BTreeMap<u16, String>) -> Vec<Volume> {
        let volume = |(status, maps): (CopiesStatus, Maps)| {
            let told = known.of(&status.entry.id)?;
            Some(seen(&status, maps, &told, names))
        };
        self.volumes.into_iter().filter_map(volume).collect()
    }
}

/// Forgets volumes that no longer exist, and asks other nodes about unknown ones. Returns the nodes that did
/// not answer.
///
/// # Errors
/// Those of the node's control.
pub(super) async fn learn(state: &State, there: &There) -> Result<Vec<Missing>, Refusal> {
    let ids = there.volumes.iter().map(|(volume, _)| volume.entry.id.as_str());
    state.elsewhere.keep(&ids.collect());
    let questions = there.questions(&state.elsewhere);
    if questions.is_empty() {
        return Ok(Vec::new());
    }
    let answers = state.call(|control| async move { peers::ask(&control, questions).await }).await?;
    let (told, missing) = answers.read::<Volume>();
    state.elsewhere.remember(told);
    Ok(missing)
}

/// The volume of this name or ID in the record; `None`: there is none.
///
/// # Errors
/// Those of the node's control.
pub(super) async fn one(
    control: &Rc<Control>,
    known: Elsewhere,
    name: &str,
) -> Result<Option<Result<Volume, Untold>>, ControlError> {
    let Some(keeper) = control.keeper() else { return Ok(None) };
    let Some(status) = keeper.volume_named(name) else { return Ok(None) };
    if let Some(told) = known.of(&status.entry.id) {
        return Ok(Some(Ok(seen_by(control, &status, &told))));
    }
    let question = || format!("{VOLUMES} {}", status.entry.id);
    let questions: BTreeMap<u16, String> =
        other_copies(keeper.me().0, &status).map(|copy| (copy.node, question())).collect();
    let none = questions.is_empty();
    let asked: Vec<u16> = questions.keys().copied().collect();
    let (told, missing) = peers::ask(control, questions).await?.read::<Volume>();
    let found = told.first().map(|told| seen_by(control, &status, told));
    known.remember(told);
    if let Some(found) = found {
        return Ok(Some(Ok(found)));
    }
    let reason = |node: u16| {
        let missing = missing.iter().find(|missing| missing.node == node);
        let reason = missing.map_or("the pool of its copy is not open", |missing| missing.reason.as_str());
        format!("node {node}: {reason}")
    };
    let mut reasons: Vec<String> = asked.into_iter().map(reason).collect();
    if none {
        reasons.push("the pool of the copy on this node is not open".into());
    }
    Ok(Some(Err(Untold { status: Box::new(status), reasons: reasons.join("; ") })))
}

/// The copies on other nodes.
fn other_copies(me: u16, volume: &CopiesStatus) -> impl Iterator<Item = &CopyEntry> {
    volume.entry.copies.iter().filter(move |copy| copy.node != me)
}

/// The volume as the node of this control knows it now, completed with another node's report.
pub(super) fn seen_by(control: &Control, status: &CopiesStatus, told: &Volume) -> Volume {
    seen(status, control.maps_of(&status.entry.id), told, &control.node_names())
}

/// The volume as this node knows it now, completed with another node's report.
fn seen(status: &CopiesStatus, maps: Maps, told: &Volume, names: &BTreeMap<u16, String>) -> Volume {
    Volume {
        name: status.entry.name.clone(),
        size: status.entry.size,
        maps: maps.into_iter().map(map).collect(),
        problem: None,
        serving: false,
        copies: copies::shown(status, names),
        epoch: Some(status.entry.epoch),
        reason: Some(status.entry.reason.to_string()),
        split_brain_policy: split_brain::chosen(status),
        fork: split_brain::fork(status),
        comparison: VolumeId::parse(&told.id).map(|id| verification::compared(status, id, told.created)),
        losses: Vec::new(),
        ..told.clone()
    }
}

impl Elsewhere {
    fn of(&self, id: &str) -> Option<Arc<Volume>> {
        self.lock().get(id).cloned()
    }

    fn remember(&self, told: Vec<Volume>) {
        for volume in told {
            self.lock().insert(volume.id.clone(), Arc::new(volume));
        }
    }

    /// Forgets all other volumes.
    fn keep(&self, ids: &BTreeSet<&str>) {
        let mut known = self.lock();
        if known.len() > ids.len() {
            known.retain(|id, _| ids.contains(id.as_str()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Volume>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
