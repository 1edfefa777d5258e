//! Volumes of the cluster that have no copy on the node that is asked.
//!
//! The cluster's record says what they are called, how large they are and where their copies are. The rest (blocks, slices, kind) only a node with a copy knows: it is asked once, and what it
//! says is remembered, since none of it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::node::Control;
use ::node::control::ControlError;
use ::node::copies::{CopiesStatus, CopyEntry, Keeper, NodeId, StandingEntry};
use api::{Missing, Volume, VolumeMap};
use axum::http::StatusCode;

use super::{copies, named, strategy};
use crate::http::peers::{self, VOLUMES};
use crate::http::refusal::Refusal;

/// What other nodes have said of their volumes, by identity: at most those that the record has.
#[derive(Clone, Default)]
pub struct Elsewhere(Arc<Mutex<BTreeMap<String, Volume>>>);

/// The volumes with these identities that have a copy on this node, for another one that asks.
pub(in crate::http) fn of_ids(control: &Control, ids: &str) -> Vec<Volume> {
    let volumes = ids.split_whitespace().filter_map(|id| control.volume(id).ok());
    volumes.map(|volume| named(control, volume)).collect()
}

/// A volume of the record of which no node tells.
pub(super) struct Untold {
    pub(super) status: Box<CopiesStatus>,
    /// Why, node by node.
    pub(super) reasons: String,
}

impl Untold {
    /// It is there, but cannot be shown.
    pub(super) fn refusal(self) -> Refusal {
        let (name, reasons) = (&self.status.entry.name, self.reasons);
        let detail = format!("volume {name:?} is there, and no node that has a copy tells of it: {reasons}");
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "copy_unreachable", detail)
            .hint("see `ursa node list`, and bring one of these nodes back or mend its links")
    }
}

/// The volumes of the record that are not among these, and nodes that have not answered.
///
/// # Errors
/// What the node's control says.
pub(super) async fn all(
    control: &Rc<Control>,
    known: Elsewhere,
    here: &BTreeSet<String>,
) -> Result<(Vec<Volume>, Vec<Missing>), ControlError> {
    let Some(keeper) = control.keeper() else { return Ok(Default::default()) };
    let all = keeper.volumes();
    let others: Vec<CopiesStatus> =
        all.into_iter().filter(|volume| !here.contains(&volume.entry.id)).collect();
    let mut questions: BTreeMap<u16, String> = BTreeMap::new();
    {
        let mut known = known.lock();
        let there: BTreeSet<&str> = others.iter().map(|volume| volume.entry.id.as_str()).collect();
        known.retain(|id, _| there.contains(id.as_str()));
        for volume in others.iter().filter(|volume| !known.contains_key(&volume.entry.id)) {
            // Who is in sync has it open; of these one that is heard of.
            let best = other_copies(&keeper, volume)
                .max_by_key(|copy| (keeper.hears(NodeId(copy.node)), copy.standing == StandingEntry::InSync));
            if let Some(copy) = best {
                let question = questions.entry(copy.node).or_insert_with(|| VOLUMES.to_owned());
                question.push(' ');
                question.push_str(&volume.entry.id);
            }
        }
    }
    let missing = ask(control, &known, questions).await?;
    let known = known.lock();
    let volume = |status: &CopiesStatus| Some(seen(control, status, known.get(&status.entry.id)?));
    Ok((others.iter().filter_map(volume).collect(), missing))
}

/// The volume of the record of this name or identity; `None`: it has none.
///
/// # Errors
/// What the node's control says.
pub(super) async fn one(
    control: &Rc<Control>,
    known: Elsewhere,
    name: &str,
) -> Result<Option<Result<Volume, Untold>>, ControlError> {
    let Some(keeper) = control.keeper() else { return Ok(None) };
    let is_meant = |volume: &CopiesStatus| volume.entry.name == name || volume.entry.id == name;
    let Some(status) = keeper.volumes().into_iter().find(is_meant) else { return Ok(None) };
    let told = || known.lock().get(&status.entry.id).cloned();
    if let Some(told) = told() {
        return Ok(Some(Ok(seen(control, &status, &told))));
    }
    let question = || format!("{VOLUMES} {}", status.entry.id);
    let questions: BTreeMap<u16, String> =
        other_copies(&keeper, &status).map(|copy| (copy.node, question())).collect();
    let none = questions.is_empty();
    let asked: Vec<u16> = questions.keys().copied().collect();
    let missing = ask(control, &known, questions).await?;
    if let Some(told) = told() {
        return Ok(Some(Ok(seen(control, &status, &told))));
    }
    let reason = |node: u16| {
        let missing = missing.iter().find(|missing| missing.node == node);
        let reason = missing.map_or("its copy's pool is not open", |missing| missing.reason.as_str());
        format!("node {node}: {reason}")
    };
    let mut reasons: Vec<String> = asked.into_iter().map(reason).collect();
    if none {
        reasons.push("the pool of the copy here is not open".into());
    }
    Ok(Some(Err(Untold { status: Box::new(status), reasons: reasons.join("; ") })))
}

/// The copies on other nodes.
fn other_copies<'a>(keeper: &Keeper, volume: &'a CopiesStatus) -> impl Iterator<Item = &'a CopyEntry> {
    let me = keeper.me().0;
    volume.entry.copies.iter().filter(move |copy| copy.node != me)
}

/// Asks other nodes for volumes, and remembers what they say; who has not answered.
async fn ask(
    control: &Rc<Control>,
    known: &Elsewhere,
    questions: BTreeMap<u16, String>,
) -> Result<Vec<Missing>, ControlError> {
    let (told, missing) = peers::ask::<Volume>(control, questions).await?;
    known.lock().extend(told.into_iter().map(|volume| (volume.id.clone(), volume)));
    Ok(missing)
}

/// The volume as this node knows it now, with what another one has told of it.
pub(super) fn seen(control: &Control, status: &CopiesStatus, told: &Volume) -> Volume {
    let maps = control.maps_of(&status.entry.id).into_iter();
    Volume {
        name: status.entry.name.clone(),
        size: status.entry.size,
        maps: maps.map(|(target, lun, host)| VolumeMap { target, lun, host }).collect(),
        problem: None,
        serving: false,
        copies: copies::shown(status, &control.node_names()),
        epoch: Some(status.entry.epoch),
        reason: Some(status.entry.reason.clone()),
        strategy: strategy::chosen(status),
        fork: strategy::fork(status),
        losses: Vec::new(),
        ..told.clone()
    }
}

impl Elsewhere {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Volume>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
