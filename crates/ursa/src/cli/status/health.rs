//! What is wrong now: causes, the worst first, each with one thing to do about it. The console judges alike (`console/src/words/health.ts`): both go through the cases of `cases.json`.

use ::node::control::{EXPELLED, NODE_CUT_OFF};
use ::node::events::code;
use api::{
    ClusterNode, CopyState, Missing, NodeProblem, Overcommit, Pool, PoolState, RecordPlace, Since, Volume,
    VolumeCopy,
};
use serde::Serialize;

use super::Observed;
use crate::cli::table::{age, size};
use crate::cli::volume::served::{can_serve, unserved};

/// How it is, from well to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Health {
    /// All is served, and nothing of what was set up against losses is missing.
    Healthy,
    /// All is served, and less can be lost than was set up for; or somebody should look after something.
    Degraded,
    /// Data or service is lost.
    Lost,
}

impl Health {
    /// Of `ursa status --check`. 1 is for a node that could not be asked.
    pub(super) fn exit_code(self) -> u8 {
        match self {
            Health::Healthy => 0,
            Health::Lost => 2,
            Health::Degraded => 3,
        }
    }
}

/// Something to know of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// How bad it is. `healthy`: advice.
    pub(super) health: Health,
    /// What is the matter, as a sentence.
    pub(super) cause: String,
    /// What to do about it, as a sentence without a full stop.
    pub(super) action: String,
    /// The command that does it, or shows more.
    pub(super) command: String,
    /// Since when, where the node says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<Since>,
}

impl Finding {
    fn since(self, since: Option<Since>) -> Finding {
        Finding { since, ..self }
    }
}

/// A change that takes longer does not get what it needs: most take less than a second, none is waited for longer than 45.
const CHANGE_SECONDS_MAX: u64 = 300;
/// Codes of what nodes say of pools.
const DISK_FAILED: &str = code::DISK_FAILED.as_str();
const POOL_CLOSED: &str = code::POOL_CLOSED.as_str();
const POOL_READ_ONLY: &str = code::POOL_READ_ONLY.as_str();
/// Of a pool, below which it is nearly full.
const FREE_PERCENT_MIN: u64 = 5;

/// All findings, the worst first.
pub(super) fn findings(observed: &Observed) -> Vec<Finding> {
    let nodes = observed.nodes.as_deref().unwrap_or_default();
    // The others are not down for a node that they refuse: it says itself what to do.
    let here = nodes.iter().find(|node| node.here).map(|node| node.id);
    let is_expelled =
        |problem: &NodeProblem| problem.node == here && problem.code.as_deref() == Some(EXPELLED);
    let is_expelled = observed.problems.items.iter().any(is_expelled);
    let nodes = if is_expelled { &[] } else { nodes };
    let mut found: Vec<Finding> =
        observed.volumes.iter().flat_map(|volume| of_volume(volume, nodes)).collect();
    found.extend(observed.pools.iter().flat_map(|pool| of_pool(pool, observed)));
    // Of etcd the node says itself what is the matter.
    let in_etcd = observed.node.record.as_ref().is_some_and(|record| record.place == RecordPlace::Etcd);
    found.extend(of_votes(nodes).filter(|_| !in_etcd));
    found.extend(nodes.iter().flat_map(|node| of_node(nodes, node)));
    found.extend(of_copies(observed));
    found.extend(of_changes(observed));
    found.extend(of_problems(observed));
    found.extend(of_missing(observed).into_iter().filter(|_| !is_expelled));
    found.extend(of_two(nodes).filter(|_| !in_etcd));
    found.sort_by_key(|finding| std::cmp::Reverse(finding.health));
    found
}

/// What nodes say themselves, unless it is about a pool, or a node that is cut off from the asked one, of which it is said already; what several say alike (of etcd, say) once.
fn of_problems(observed: &Observed) -> Vec<Finding> {
    let bad: Vec<&Pool> = observed.pools.iter().filter(|pool| !is_well(pool)).collect();
    let nodes = observed.nodes.as_deref().unwrap_or_default();
    let here = nodes.iter().find(|node| node.here).map(|node| node.id);
    let cut_off: Vec<String> =
        nodes.iter().filter(|node| is_cut_off(node)).map(|node| node.id.to_string()).collect();
    let is_of_cut_off = |problem: &NodeProblem| {
        problem.node == here
            && problem.code.as_deref() == Some(NODE_CUT_OFF)
            && problem.subject.as_ref().is_some_and(|subject| cut_off.contains(subject))
    };
    let is_said =
        |problem: &NodeProblem| bad.iter().any(|pool| is_about(problem, pool)) || is_of_cut_off(problem);
    let mut who_says: Vec<(&str, Vec<String>, Vec<Since>)> = Vec::new();
    for problem in observed.problems.items.iter().filter(|problem| !is_said(problem)) {
        let who = problem.node.map(|id| node_words(id, problem.node_name.as_deref().unwrap_or_default()));
        match who_says.iter_mut().find(|(text, ..)| *text == problem.text) {
            Some((_, nodes, since)) => {
                nodes.extend(who);
                since.extend(problem.since);
            }
            None => {
                let (nodes, since) = (who.into_iter().collect(), problem.since.into_iter().collect());
                who_says.push((problem.text.as_str(), nodes, since));
            }
        }
    }
    let finding = |(text, nodes, since): (&str, Vec<String>, Vec<Since>)| {
        let nodes = nodes.join(", ");
        let (cause, action) = match nodes.is_empty() {
            true => (text.to_owned(), "Do what the message says; the log has details".to_owned()),
            false => (
                format!("{}: {text}", capital(&nodes)),
                format!("Do what the message says; the log of {nodes} has details"),
            ),
        };
        degraded(cause, &action, "journalctl -u ursa".into()).since(first(since))
    };
    who_says.into_iter().map(finding).collect()
}

/// Nodes of which nobody knows how they are, though they are heard of. Of one that is down it is said already.
fn of_missing(observed: &Observed) -> Vec<Finding> {
    let nodes = observed.nodes.as_deref().unwrap_or_default();
    let is_down = |id: u16| nodes.iter().any(|node| node.id == id && !node.up);
    let finding = |one: &Missing, what: &str| {
        let name = node_words(one.node, &one.node_name);
        let cause = format!("{} does not report {what}: {}.", capital(&name), one.reason);
        degraded(cause, &format!("Check locally on {}", one.node_name), "ursa status".into())
    };
    let silent = &observed.problems.missing;
    let is_said = |id: u16| silent.iter().any(|one| one.node == id);
    let how = silent.iter().filter(|one| !is_down(one.node)).map(|one| finding(one, "its health"));
    let what = observed.missing.iter().filter(|one| !is_down(one.node) && !is_said(one.node));
    how.chain(what.map(|one| finding(one, "all of its pools, volumes and sessions"))).collect()
}

/// How it is altogether.
pub(super) fn worst(findings: &[Finding]) -> Health {
    findings.iter().map(|finding| finding.health).max().unwrap_or(Health::Healthy)
}

fn finding(health: Health, cause: String, action: &str, command: String) -> Finding {
    Finding { health, cause, action: action.to_owned(), command, since: None }
}

fn lost(cause: String, action: &str, command: String) -> Finding {
    finding(Health::Lost, cause, action, command)
}

fn degraded(cause: String, action: &str, command: String) -> Finding {
    finding(Health::Degraded, cause, action, command)
}

fn of_volume(volume: &Volume, nodes: &[ClusterNode]) -> Option<Finding> {
    let name = &volume.name;
    let show = format!("ursa volume show {name}");
    let in_sync = |copy: &VolumeCopy| copy.state == CopyState::InSync;
    if volume.fork.as_ref().is_some_and(|fork| fork.split) {
        let cause = format!("Split brain on volume {name}: two nodes each have writes that the other lacks.");
        let action = "Back up what you need, then choose which side to keep";
        let command = format!("ursa volume resolve-split-brain {name} --keep NODE --discard-other");
        return Some(lost(cause, action, command).since(fork_since(volume)));
    }
    if let Some(problem) = unserved(volume, nodes) {
        let cause = format!("Volume {name} is unavailable: {problem}");
        return Some(lost(cause, "Show what it waits for", show));
    }
    if !volume.copies.is_empty() && !volume.copies.iter().any(|copy| can_serve(copy, nodes)) {
        if volume.copies.iter().any(in_sync) {
            let cause = format!(
                "Volume {name} is unavailable, as seen from this node: no node with a copy in sync responds."
            );
            let has_one =
                |node: &&ClusterNode| volume.copies.iter().any(|copy| copy.node == node.id && in_sync(copy));
            // Since the last of them is not.
            let down = nodes.iter().filter(has_one).filter_map(|node| node.down_since);
            let since = down.max_by_key(|since| since.at);
            return Some(
                lost(cause, "Bring back a node that has a copy in sync, or restore the network to it", show)
                    .since(since),
            );
        }
        let cause = format!("Volume {name} is unavailable: none of its copies is in sync.");
        // Since the last of them is not.
        let since = volume.copies.iter().filter_map(behind_since).max_by_key(|since| since.at);
        return Some(lost(cause, "Bring back the node that had the last copy in sync", show).since(since));
    }
    let fork = volume.fork.as_ref()?;
    let cause = format!("Node {} continues alone with volume {name}.", fork.node);
    let found =
        degraded(cause, "Bring back the other node, or restore the link to it", "ursa node list".into());
    Some(found.since(fork_since(volume)))
}

fn fork_since(volume: &Volume) -> Option<Since> {
    volume.fork.as_ref().map(|fork| Since::exactly(fork.since))
}

/// Since when a copy is not in sync.
fn behind_since(copy: &VolumeCopy) -> Option<Since> {
    copy.sync.as_ref()?.since
}

/// The earliest.
fn first(all: impl IntoIterator<Item = Since>) -> Option<Since> {
    all.into_iter().min_by_key(|since| since.at)
}

/// Others reach it, and the node that was asked does not.
fn is_cut_off(node: &ClusterNode) -> bool {
    !node.up && !node.reached_by.is_empty()
}

fn of_cut_off(nodes: &[ClusterNode], node: &ClusterNode) -> Finding {
    let named = |id: u16| {
        let name = nodes.iter().find(|node| node.id == id).map(|node| node.name.as_str());
        node_words(id, name.unwrap_or_default())
    };
    let here = nodes.iter().find(|node| node.here);
    let here = here.map_or("this node".into(), |node| named(node.id));
    let by: Vec<String> = node.reached_by.iter().map(|id| named(*id)).collect();
    let reach = if by.len() == 1 { "reaches" } else { "reach" };
    let name = capital(&named(node.id));
    let cause = format!("{name} is cut off from {here} on every link; {} {reach} it.", by.join(", "));
    let action = "Check the network between the two nodes (cables, switches, firewalls, port 3270)";
    degraded(cause, action, "ursa node links".into()).since(node.down_since)
}

fn of_node(nodes: &[ClusterNode], node: &ClusterNode) -> Option<Finding> {
    if is_cut_off(node) {
        return Some(of_cut_off(nodes, node));
    }
    let name = node_words(node.id, &node.name);
    let end = format!("ursa node maintenance {} off", node.id);
    match (node.up, node.maintenance) {
        (true, false) => None,
        (true, true) => {
            let cause = format!("{} is in maintenance: its copies are out of sync.", capital(&name));
            let since = node.maintenance_since.map(Since::exactly);
            Some(degraded(cause, "End maintenance when the work is done", end).since(since))
        }
        (false, true) => {
            let cause = format!("{} is in maintenance and stopped.", capital(&name));
            let action = "Start Ursa there when the work is done, then end maintenance";
            Some(degraded(cause, action, end).since(node.down_since))
        }
        (false, false) => {
            let cause = format!("{} is down: heartbeat timeout.", capital(&name));
            let action = format!("Check that the server runs, and start Ursa there ({})", node.name);
            Some(degraded(cause, &action, "systemctl start ursa".into()).since(node.down_since))
        }
    }
}

pub(super) fn node_words(id: u16, name: &str) -> String {
    format!("node {id} ({name})")
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_ascii_uppercase().to_string() + letters.as_str())
}

fn of_votes(nodes: &[ClusterNode]) -> Option<Finding> {
    let voters = nodes.iter().filter(|node| node.votes);
    let (up, all) = (voters.clone().filter(|node| node.can_vote()).count(), voters.count());
    if nodes.is_empty() || 2 * up > all {
        return None;
    }
    let cause = match all {
        0 => {
            "The cluster's record does not answer: nothing can be changed, and no node can be declared lost."
                .into()
        }
        _ => format!(
            "No quorum ({up} of {all} voters up): nothing can be changed, and no further node can be declared lost."
        ),
    };
    // Since so many are down that the others are no majority.
    let mut down: Vec<Since> =
        nodes.iter().filter(|node| node.votes).filter_map(|node| node.down_since).collect();
    down.sort_by_key(|since| since.at);
    let since = all.div_ceil(2).checked_sub(1).and_then(|at| down.get(at).copied());
    let found = degraded(cause, "Bring back the nodes that are down", "ursa node list".into());
    Some(found.since(since))
}

/// Advice: it is what they were set up for.
fn of_two(nodes: &[ClusterNode]) -> Option<Finding> {
    if nodes.len() != 2 {
        return None;
    }
    let cause = "Two nodes without a witness have no majority: if the preferred node is lost, the other one waits for it.";
    let action = "Add a third node; a small machine as a witness is enough";
    Some(finding(Health::Healthy, cause.into(), action, "ursa node token".into()))
}

/// `default of node 2 (server2)`; without a cluster the name alone.
fn pool_words(pool: &Pool) -> String {
    match pool.node {
        Some(node) => {
            format!("{} on {}", pool.name, node_words(node, pool.node_name.as_deref().unwrap_or("-")))
        }
        None => pool.name.clone(),
    }
}

/// How a command names the node of a pool.
pub(super) fn at_node(pool: &Pool) -> String {
    pool.node.map(|node| format!(" --node {node}")).unwrap_or_default()
}

fn is_well(pool: &Pool) -> bool {
    matches!(pool.state, PoolState::Online | PoolState::Exported)
}

/// Whether that is what a node says of the pool.
fn is_about(problem: &NodeProblem, pool: &Pool) -> bool {
    if problem.node != pool.node {
        return false;
    }
    let subject = problem.subject.as_deref().unwrap_or_default();
    match problem.code.as_deref() {
        Some(DISK_FAILED) => pool.disks.iter().any(|disk| disk.path == subject),
        Some(POOL_CLOSED | POOL_READ_ONLY) => pool.name == subject,
        _ => false,
    }
}

fn of_pool(pool: &Pool, observed: &Observed) -> Option<Finding> {
    let in_cluster = observed.nodes.is_some();
    let said = observed.problems.items.iter().filter(|problem| is_about(problem, pool));
    let since = first(said.filter_map(|problem| problem.since));
    let (name, of) = (pool_words(pool), at_node(pool));
    let reopen = format!("ursa pool reopen {}{of}", pool.name);
    // In a cluster other nodes may have copies of what is on it: what is not served is said of the volume.
    let health = if in_cluster { Health::Degraded } else { Health::Lost };
    let reason = pool.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    // Where another node has a copy of what is on it, a lost pool costs nothing but time.
    let has_other_copies = |volume: &Volume| {
        volume.copies.len() > 1 && volume.copies.iter().any(|copy| Some(copy.node) == pool.node)
    };
    let replace = match (pool.node, observed.volumes.iter().any(has_other_copies)) {
        (Some(node), true) => format!(
            " (if it is lost, rebuild its copies in another pool there: `ursa volume copy rebuild VOLUME --on {node}`)"
        ),
        _ => String::new(),
    };
    match pool.state {
        PoolState::Online => overcommitted(pool).or_else(|| nearly_full(pool)),
        PoolState::Exported => None,
        PoolState::DiskFailed => {
            let cause = format!("A disk of pool {name} has failed{reason}.");
            let action = format!(
                "Check the disk (dmesg){replace}; when it works again or is replaced, reopen the pool"
            );
            Some(finding(health, cause, &action, reopen).since(since))
        }
        PoolState::ReadOnly => {
            let cause = format!("Pool {name} is read-only: a metadata write failed. Volume I/O continues.");
            Some(degraded(cause, "Check its disks (dmesg), then reopen it", reopen).since(since))
        }
        PoolState::Unavailable => {
            let cause = format!("Pool {name} is unavailable{reason}.");
            let action = format!("Bring its disks back{replace}, then reopen it");
            Some(finding(health, cause, &action, reopen).since(since))
        }
    }
}

/// Advice: nothing is wrong before the file system is full.
fn overcommitted(pool: &Pool) -> Option<Finding> {
    let Overcommit { promised, free } = pool.overcommit?;
    let cause = format!(
        "Pool {} is overcommitted: its file system has {} free, and pools on it may still need {}. When it is full, writes that need new space fail.",
        pool_words(pool),
        size(free),
        size(promised)
    );
    let command = format!("ursa pool show {}{}", pool.name, at_node(pool));
    Some(finding(Health::Healthy, cause, "Free space on that file system, or enlarge it", command))
}

/// Advice: volumes that are there have all their space.
fn nearly_full(pool: &Pool) -> Option<Finding> {
    if pool.total == 0 || u128::from(pool.free) * 100 >= u128::from(pool.total) * u128::from(FREE_PERCENT_MIN)
    {
        return None;
    }
    let cause = format!("Pool {} is nearly full: new volumes may not fit.", pool_words(pool));
    let command = format!("ursa pool add-disk {} DISK{}", pool.name, at_node(pool));
    Some(finding(Health::Healthy, cause, "Add a disk to it", command))
}

/// Copies that are not in sync while their node is up: mending themselves, or waiting for something.
fn of_copies(observed: &Observed) -> Vec<Finding> {
    let outside = observed.volumes.iter().flat_map(|volume| {
        let copies = volume.copies.iter().filter(|copy| copy.state != CopyState::InSync);
        copies.filter(|copy| observed.is_in_use(copy.node)).map(move |copy| (volume, copy))
    });
    let is_paused = |copy: &VolumeCopy| copy.sync.as_ref().and_then(|sync| sync.paused.as_ref()).is_some();
    let (paused, outside): (Vec<_>, Vec<_>) = outside.partition(|(_, copy)| is_paused(copy));
    let waits = |copy: &VolumeCopy| copy.sync.as_ref().is_some_and(|sync| sync.waits_for.is_some());
    let (waiting, mending): (Vec<_>, Vec<_>) = outside.into_iter().partition(|(_, copy)| waits(copy));
    let show = |volume: &Volume| format!("ursa volume show {}", volume.name);
    let since =
        |copies: &[(&Volume, &VolumeCopy)]| first(copies.iter().filter_map(|(_, copy)| behind_since(copy)));
    let mut found = Vec::new();
    if let [(volume, copy), more @ ..] = paused.as_slice() {
        let by = copy.sync.as_ref().and_then(|sync| sync.paused.as_ref()).map_or("-", |paused| &paused.by);
        let others =
            if more.is_empty() { String::new() } else { format!(" {} more are paused.", more.len()) };
        let cause = format!(
            "{} has paused the resync of {} on node {}: the volume has reduced redundancy until it completes.{others}",
            by.escape_debug(),
            volume.name,
            copy.node
        );
        let command = format!("ursa job resume copy.{}.{}", volume.id, copy.node);
        let pauses = paused.iter().filter_map(|(_, copy)| copy.sync.as_ref()?.paused.as_ref());
        let since = first(pauses.map(|pause| Since::exactly(pause.since)));
        found.push(degraded(cause, "Resume it as soon as the load allows", command).since(since));
    }
    if let [(volume, copy), more @ ..] = waiting.as_slice() {
        let what = copy.sync.as_ref().and_then(|sync| sync.waits_for.as_deref()).unwrap_or_default();
        let others =
            if more.is_empty() { String::new() } else { format!(" {} more are waiting.", more.len()) };
        let cause = format!(
            "The copy of {} on node {} is out of sync and waits for {what}.{others}",
            volume.name, copy.node
        );
        let action = "If it keeps waiting, check what it waits for";
        found.push(degraded(cause, action, show(volume)).since(since(&waiting)));
    }
    if let [(volume, copy), more @ ..] = mending.as_slice() {
        let cause = match more.len() {
            0 => format!("The copy of {} on node {} is out of sync and resyncing.", volume.name, copy.node),
            more => format!("{} copies are out of sync and resyncing.", more + 1),
        };
        let action = "No action needed; resync in progress";
        found.push(degraded(cause, action, show(volume)).since(since(&mending)));
    }
    found
}

fn of_changes(observed: &Observed) -> Option<Finding> {
    let change = observed.node.changes.iter().find(|change| change.age > CHANGE_SECONDS_MAX)?;
    let cause = format!(
        "{} has not finished after {}: it waits for {}.",
        capital(&change.what),
        age(change.age),
        change.waits_for
    );
    Some(degraded(
        cause,
        "Fix what it waits for; it then continues automatically",
        "journalctl -u ursa".into(),
    ))
}
