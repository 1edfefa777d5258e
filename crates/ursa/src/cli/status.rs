//! `ursa status`.

use api::{Change, Client, ClientError, ClusterNode, CopyState, CopySync, Node, Pool, PoolState, Volume};
use serde::Serialize;

use super::exit::CliError;
use super::output::Output;
use super::sync::sync_line;
use super::table::{age, fields, list, size};

/// A node on one screen.
#[derive(Serialize)]
struct Status {
    node: Node,
    /// The nodes of its cluster; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<Vec<ClusterNode>>,
    /// Volumes with copies that are not in sync.
    degraded: Vec<String>,
    /// How far these copies are.
    syncs: Vec<Sync>,
    pools: Vec<Pool>,
    volumes: usize,
    targets: usize,
    sessions: usize,
}

/// A copy that is not in sync.
#[derive(Serialize)]
struct Sync {
    volume: String,
    /// The number of its node.
    node: u16,
    #[serde(flatten)]
    sync: CopySync,
}

/// Shows what the node is and has.
///
/// # Errors
/// See [`CliError`].
pub fn run(client: &Client, output: &Output) -> Result<(), CliError> {
    let volumes = client.volumes()?;
    let status = Status {
        node: client.node()?,
        cluster: cluster(client)?,
        degraded: volumes
            .iter()
            .filter(|volume| is_degraded(volume))
            .map(|volume| volume.name.clone())
            .collect(),
        syncs: volumes.iter().flat_map(syncs).collect(),
        pools: client.pools()?,
        volumes: volumes.len(),
        targets: client.targets()?.len(),
        sessions: client.sessions()?.len(),
    };
    output.show(&status, text)
}

/// The nodes of the cluster that the node is in, if it is in one.
fn cluster(client: &Client) -> Result<Option<Vec<ClusterNode>>, ClientError> {
    match client.cluster_nodes() {
        Ok(nodes) => Ok(Some(nodes)),
        Err(error) if error.problem().is_some_and(|problem| problem.code == "no_cluster") => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_degraded(volume: &Volume) -> bool {
    volume.copies.iter().any(|copy| copy.state != CopyState::InSync)
}

fn syncs(volume: &Volume) -> impl Iterator<Item = Sync> {
    volume.copies.iter().filter_map(|copy| {
        let sync = copy.sync.clone()?;
        Some(Sync { volume: volume.name.clone(), node: copy.node, sync })
    })
}

/// How many nodes are up, and which volumes miss copies.
fn cluster_lines(nodes: &[ClusterNode], degraded: &[String], syncs: &[Sync]) -> String {
    let up = nodes.iter().filter(|node| node.up).count();
    let down: Vec<u16> = nodes.iter().filter(|node| !node.up).map(|node| node.id).collect();
    let (copies, in_sync) =
        nodes.iter().fold((0, 0), |(copies, in_sync), node| (copies + node.copies, in_sync + node.in_sync));
    let mut text = format!("{up} of {} nodes up, {in_sync} of {copies} copies in sync", nodes.len());
    if !down.is_empty() {
        text += &format!("\nDOWN: node {}", list(&down, "-"));
    }
    if !degraded.is_empty() {
        text += &format!("\nNOT IN SYNC: volume {}", list(degraded, "-"));
    }
    for Sync { volume, node, sync } in syncs {
        text += &format!("\n{volume} on node {node}: {}", sync_line(sync));
    }
    text
}

fn text(status: &Status) -> String {
    let node = &status.node;
    let pool = |pool: &Pool| match pool.state {
        PoolState::Online => format!("{}: {} free of {}", pool.name, size(pool.free), size(pool.total)),
        _ => format!("{}: see `ursa pool show {}`", pool.name, pool.name),
    };
    let pools: Vec<String> = status.pools.iter().map(pool).collect();
    let change =
        |change: &Change| format!("{}, for {}: waits for {}", change.what, age(change.age), change.waits_for);
    let changes: Vec<String> = node.changes.iter().map(change).collect();
    let cluster = status
        .cluster
        .as_deref()
        .map_or("none".into(), |nodes| cluster_lines(nodes, &status.degraded, &status.syncs));
    fields([
        ("Node", format!("{}, ursa {}, up {}", node.name, node.version, age(node.uptime))),
        ("Cluster", cluster),
        ("Cores", node.cores.to_string()),
        ("iSCSI", list(&node.portals, "-")),
        ("Pools", if pools.is_empty() { "none".into() } else { pools.join("\n") }),
        ("Volumes", status.volumes.to_string()),
        ("Targets", status.targets.to_string()),
        ("Sessions", status.sessions.to_string()),
        ("Changes", if changes.is_empty() { "none under way".into() } else { changes.join("\n") }),
        ("Problems", if node.problems.is_empty() { "none".into() } else { node.problems.join("\n") }),
    ])
}
