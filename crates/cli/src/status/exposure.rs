//! What the loss of each node would do to volumes now.

use std::collections::BTreeMap;

use api::{Loss, LossOutcome};

use super::Observed;
use crate::table::list;

/// The most volumes that a line names.
const NAMED_MAX: usize = 3;

/// A line for each node and each outcome of its loss, by node; the outcome with the most volumes comes first.
pub(super) fn lines(observed: &Observed) -> Vec<String> {
    let mut lines = Vec::new();
    for node in observed.nodes.iter().filter(|node| node.up) {
        // Volumes by outcome, in the order in which the outcomes were found.
        let mut outcomes: Vec<(&str, Vec<&str>)> = Vec::new();
        for volume in &observed.volumes {
            let is_of_node = |loss: &&Loss| loss.node == node.id && loss.outcome != LossOutcome::Down;
            let Some(loss) = volume.losses.iter().find(is_of_node) else { continue };
            match outcomes.iter_mut().find(|(known, _)| *known == loss.text) {
                Some((_, volumes)) => volumes.push(&volume.name),
                None => outcomes.push((loss.text.as_str(), vec![&volume.name])),
            }
        }
        outcomes.sort_by_key(|(_, volumes)| std::cmp::Reverse(volumes.len()));
        for (outcome, volumes) in outcomes {
            lines.push(format!("if node {} is lost: {}: {outcome}", node.id, named(&volumes)));
        }
    }
    // Volumes that the record does not list, or of a node that takes no part in its cluster. Those whose data
    // would be lost come first.
    let mut unlisted: BTreeMap<bool, Vec<&str>> = BTreeMap::new();
    for volume in observed.volumes.iter().filter(|volume| volume.copies.is_empty()) {
        unlisted.entry(volume.kind.is_durable()).or_default().push(&volume.name);
    }
    for (outlives_node, volumes) in unlisted {
        let outcome = match outlives_node {
            true => "unavailable until the node returns (no other copy)",
            false => "DATA LOST (in memory, no other copy)",
        };
        lines.push(format!("if this node is lost: {}: {outcome}", named(&volumes)));
    }
    lines
}

fn named(volumes: &[&str]) -> String {
    match volumes.len() {
        0..=NAMED_MAX => list(volumes, "-"),
        more => format!("{} and {} more", list(&volumes[..NAMED_MAX], "-"), more - NAMED_MAX),
    }
}
