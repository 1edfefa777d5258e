//! Volumes of the cluster that have no copy on the node that is asked.
//!
//! The cluster's record says what they are called, how large they are and where their copies are. The rest (blocks, slices, kind) only a node with a copy knows: it is asked once, and what it
//! says is remembered, since none of it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use ::node::Control;
use ::node::control::ControlError;
use ::node::copies::{CopiesStatus, NodeId, StandingEntry};
use api::{Missing, Volume, VolumeMap};

use super::{copies, named, strategy};
use crate::http::peers::{self, VOLUMES};

/// What other nodes have said of their volumes, by identity: at most those that the record has.
#[derive(Clone, Default)]
pub struct Elsewhere(Arc<Mutex<BTreeMap<String, Volume>>>);

/// The volumes with these identities that have a copy on this node, for another one that asks.
pub(in crate::http) fn of_ids(control: &Control, ids: &str) -> Vec<Volume> {
    let volumes = ids.split_whitespace().filter_map(|id| control.volume(id).ok());
    volumes.map(|volume| named(control, volume)).collect()
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
        let mut known = known.0.lock().unwrap_or_else(PoisonError::into_inner);
        let there: BTreeSet<&str> = others.iter().map(|volume| volume.entry.id.as_str()).collect();
        known.retain(|id, _| there.contains(id.as_str()));
        for volume in others.iter().filter(|volume| !known.contains_key(&volume.entry.id)) {
            // Who is in sync has it open; of these one that is heard of.
            let of_copies = volume.entry.copies.iter();
            let best = of_copies
                .filter(|copy| copy.node != keeper.me().0)
                .max_by_key(|copy| (keeper.hears(NodeId(copy.node)), copy.standing == StandingEntry::InSync));
            if let Some(copy) = best {
                let question = questions.entry(copy.node).or_insert_with(|| VOLUMES.to_owned());
                question.push(' ');
                question.push_str(&volume.entry.id);
            }
        }
    }
    let (told, missing) = peers::ask::<Volume>(control, questions).await?;
    let mut known = known.0.lock().unwrap_or_else(PoisonError::into_inner);
    known.extend(told.into_iter().map(|volume| (volume.id.clone(), volume)));
    let names = control.node_names();
    let volume = |status: &CopiesStatus| {
        let told = known.get(&status.entry.id)?;
        Some(Volume {
            name: status.entry.name.clone(),
            size: status.entry.size,
            maps: control
                .maps_of(&status.entry.id)
                .into_iter()
                .map(|(target, lun, host)| VolumeMap { target, lun, host })
                .collect(),
            problem: None,
            serving: false,
            copies: copies::shown(status, &names),
            epoch: Some(status.entry.epoch),
            reason: Some(status.entry.reason.clone()),
            strategy: strategy::chosen(status),
            fork: strategy::fork(status),
            losses: Vec::new(),
            ..told.clone()
        })
    };
    Ok((others.iter().filter_map(volume).collect(), missing))
}
