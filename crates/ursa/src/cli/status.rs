//! `ursa status`.

use api::{Change, Client, Node, Pool, PoolState};
use serde::Serialize;

use super::exit::CliError;
use super::output::Output;
use super::table::{age, fields, list, size};

/// A node on one screen.
#[derive(Serialize)]
struct Status {
    node: Node,
    pools: Vec<Pool>,
    volumes: usize,
    targets: usize,
    sessions: usize,
}

/// Shows what the node is and has.
///
/// # Errors
/// See [`CliError`].
pub fn run(client: &Client, output: &Output) -> Result<(), CliError> {
    let status = Status {
        node: client.node()?,
        pools: client.pools()?,
        volumes: client.volumes()?.len(),
        targets: client.targets()?.len(),
        sessions: client.sessions()?.len(),
    };
    output.show(&status, text)
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
    fields([
        ("Node", format!("{}, ursa {}, up {}", node.name, node.version, age(node.uptime))),
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
