//! The report as text, on one screen.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use api::{Change, ClusterNode, Finding, Pool, PoolState, Severity};

use super::{Observed, Report, Sync, health};
use crate::node::others_join;
use crate::sync::sync_line;
use crate::table::{age, fields, lasting, list, size};

/// The most causes, resyncs, losses, actions and pools that are shown, so that all fit on one screen.
const LINES_MAX: usize = 6;

/// The status in one line, for `--check`.
pub(super) fn line(observed: &Observed) -> String {
    let mut bad = bad(&observed.findings);
    let word = word(observed.worst());
    let Some(worst) = bad.next() else { return format!("{word}\n") };
    let more = match bad.count() {
        0 => String::new(),
        more => format!(" ({more} more: `ursa status`)"),
    };
    format!("{word}: {}{more}\n", worst.cause)
}

/// All findings but advice.
fn bad(findings: &[Finding]) -> impl Iterator<Item = &Finding> {
    findings.iter().filter(|finding| finding.severity > Severity::Info)
}

fn word(worst: Severity) -> String {
    match worst {
        Severity::Info => health(worst).to_owned(),
        Severity::Warning | Severity::Critical => health(worst).to_ascii_uppercase(),
    }
}

/// The whole report.
pub(super) fn text(observed: &Observed, report: &Report<'_>) -> String {
    let node = report.node;
    let what = format!(
        "{}, ursa {}, up {}; {}, iSCSI {}",
        node.name,
        node.version,
        age(node.uptime),
        counted(node.cores, "core"),
        list(&node.portals, "-")
    );
    let silent = list(report.missing.iter().map(|one| node_words(one.node, &one.node_name)), "");
    let has = format!(
        "{}, {}, {}{}",
        counted(report.volumes, "volume"),
        counted(report.targets, "target"),
        counted(report.sessions, "session"),
        if silent.is_empty() { String::new() } else { format!("; INCOMPLETE: without {silent}") }
    );
    let change = |change: &Change| {
        format!("{} for {}, waiting for {}", change.what, age(change.age), change.waits_for)
    };
    let advice: Vec<&Finding> =
        report.findings.iter().filter(|finding| finding.severity == Severity::Info).collect();
    fields([
        ("Node", what),
        ("Cluster", cluster(report.cluster)),
        ("State", state(observed)),
        ("Resync", scan(observed, &report.syncs)),
        ("Tolerance", shortened(report.losses.clone(), "no volumes")),
        ("Action", action(report.findings)),
        ("Advice", shortened(advice.iter().map(|finding| finding.cause.clone()).collect(), "none")),
        ("Pools", shortened(pools(report), "none")),
        ("Objects", has),
        ("Changes", shortened(node.changes.iter().map(change).collect(), "none in progress")),
    ])
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The first lines, and the number of further ones.
fn shortened(mut lines: Vec<String>, none: &str) -> String {
    if lines.is_empty() {
        return none.to_owned();
    }
    if lines.len() > LINES_MAX {
        let more = lines.len() - (LINES_MAX - 1);
        lines.truncate(LINES_MAX - 1);
        lines.push(format!("and {more} more (ursa status -o json)"));
    }
    lines.join("\n")
}

fn cluster(nodes: &[ClusterNode]) -> String {
    match nodes {
        [] => return "this node does not take part in it".into(),
        [only] => return format!("this node only; {}", others_join(only)),
        _ => {}
    }
    let up = nodes.iter().filter(|node| node.up).count();
    let (copies, in_sync) =
        nodes.iter().fold((0, 0), |(copies, in_sync), node| (copies + node.copies, in_sync + node.in_sync));
    format!(
        "{up} of {} up, {in_sync} of {} in sync",
        counted(nodes.len(), "node"),
        match copies {
            1 => "1 copy".to_owned(),
            copies => format!("{copies} copies"),
        }
    )
}

fn state(observed: &Observed) -> String {
    let cause = |finding: &Finding| match finding.since {
        Some(since) => format!("{} ({})", finding.cause, lasting(observed.asked_at, since)),
        None => finding.cause.clone(),
    };
    let causes: Vec<String> = bad(&observed.findings).map(cause).collect();
    let word = word(observed.worst());
    if causes.is_empty() { word } else { format!("{word}: {}", shortened(causes, "")) }
}

/// The progress of copies that are not in sync: the total, then each copy.
fn scan(observed: &Observed, syncs: &[Sync<'_>]) -> String {
    if syncs.is_empty() {
        let several = observed.volumes.iter().any(|volume| volume.copies.len() > 1);
        let outside = observed.volumes.iter().flat_map(|volume| &volume.copies);
        let outside = outside.filter(|copy| copy.state != api::CopyState::InSync).count();
        return match (several, outside) {
            (false, 0) => "none needed: no volume has copies on several nodes".into(),
            (true, 0) => "none needed: all copies are in sync".into(),
            (_, 1) => "1 copy is out of sync, progress unknown".into(),
            (_, outside) => format!("{outside} copies are out of sync, progress unknown"),
        };
    }
    let sum = |of: fn(&api::CopySync) -> u64| syncs.iter().map(|sync| of(sync.sync)).sum::<u64>();
    let (total, left, rate) =
        (sum(|sync| sync.total_bytes), sum(|sync| sync.left_bytes), sum(|sync| sync.bytes_per_second));
    let done = total.saturating_sub(left);
    let percent = u128::from(done) * 100 / u128::from(total.max(1));
    // Resyncs share the bandwidth of nodes and links. So the total takes its bytes at the sum of the rates,
    // but at least as long as the last resync.
    let last = syncs.iter().map(|sync| sync.sync.seconds_left).collect::<Option<Vec<_>>>();
    let eta = match last.and_then(|all| all.into_iter().max()) {
        Some(seconds) if rate > 0 => format!("{} to go", age(seconds.max(left / rate))),
        _ => "time left unknown".into(),
    };
    let copies = if syncs.len() == 1 { "1 copy".to_owned() } else { format!("{} copies", syncs.len()) };
    let whole = match total {
        // The copy is new, or its node is down: the amount is unknown.
        0 => format!("{copies}: amount to copy not known yet"),
        _ => format!(
            "{copies}: {} of {} copied ({percent} %), {}/s, {eta}",
            size(done),
            size(total),
            size(rate)
        ),
    };
    let each = |sync: &Sync<'_>| format!("{} on node {}: {}", sync.volume, sync.node, sync_line(sync.sync));
    format!("{whole}\n{}", shortened(syncs.iter().map(each).collect(), ""))
}

/// What to do, with each command once.
fn action(findings: &[Finding]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for Finding { action, command, .. } in findings {
        let action = action.as_deref().unwrap_or("No action needed; details");
        let line = format!("{action}: {command}");
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    shortened(lines, "none needed")
}

/// A line for each node with its pools, and for each whose pools are missing.
fn pools(report: &Report<'_>) -> Vec<String> {
    let mut lines: BTreeMap<u16, String> = BTreeMap::new();
    for one in report.pools {
        match lines.entry(one.node) {
            Entry::Occupied(mut line) => *line.get_mut() += &format!("; {}", pool(one)),
            Entry::Vacant(place) => {
                let name = node_words(one.node, &one.node_name);
                place.insert(format!("{name}: {}", pool(one)));
            }
        }
    }
    for one in report.missing {
        let name = node_words(one.node, &one.node_name);
        lines.entry(one.node).or_insert_with(|| format!("{name}: MISSING: {}", one.reason));
    }
    lines.into_values().collect()
}

fn pool(pool: &Pool) -> String {
    match pool.state {
        PoolState::Online => format!("{}: {} free of {}", pool.name, size(pool.free), size(pool.total)),
        _ => format!("{}: see `ursa pool show {} --node {}`", pool.name, pool.name, pool.node),
    }
}

fn node_words(id: u16, name: &str) -> String {
    format!("node {id} ({name})")
}
