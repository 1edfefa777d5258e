//! Candidates for a copy of a volume: each node with the pool that would be used, and the rule by which it is
//! not suitable, if any.

use api::{Candidate, ClusterNode, Missing, Pool, PoolState, VolumeKind};
use axum::http::StatusCode;
use base::ByteLen;

/// The requirements for the place.
pub(super) struct CopyRequirements<'a> {
    /// The pool by name; `None`: the only pool, or the one named `default`.
    pub(super) pool: Option<&'a str>,
    pub(super) kind: VolumeKind,
    /// The size in bytes.
    pub(super) size: u64,
    /// The nodes by number; empty: any node.
    pub(super) nodes: &'a [u16],
}

/// What is known about the nodes.
pub(super) struct Known {
    /// The cluster's nodes; empty if the node does not take part in its cluster.
    pub(super) nodes: Vec<ClusterNode>,
    pub(super) pools: Vec<Pool>,
    pub(super) missing: Vec<Missing>,
    /// The number and name of the queried node.
    pub(super) here: (u16, String),
}

/// A candidate for each wanted node, ordered by number.
pub(super) fn all(wanted: &CopyRequirements<'_>, known: &Known) -> Vec<Candidate> {
    if known.nodes.is_empty() {
        let pools: Vec<&Pool> = known.pools.iter().collect();
        let (here, name) = &known.here;
        return vec![in_pools(wanted, *here, name, &pools)];
    }
    let asked = |node: &&ClusterNode| wanted.nodes.is_empty() || wanted.nodes.contains(&node.id);
    let mut all: Vec<Candidate> =
        known.nodes.iter().filter(asked).map(|node| on_node(wanted, node, known)).collect();
    for id in wanted.nodes.iter().filter(|id| !known.nodes.iter().any(|node| node.id == **id)) {
        let text = format!("node {id} is not in the cluster");
        all.push(refused((*id, ""), None, "node_not_found", text));
    }
    all
}

fn on_node(wanted: &CopyRequirements<'_>, node: &ClusterNode, known: &Known) -> Candidate {
    let who = (node.id, node.name.as_str());
    let missing = known.missing.iter().find(|missing| missing.node == node.id);
    match node {
        ClusterNode { witness: true, .. } => {
            refused(who, None, "witness", "witness: it has no volumes".into())
        }
        ClusterNode { up: false, .. } => {
            refused(who, None, "node_down", "unreachable: heartbeat timeout".into())
        }
        ClusterNode { maintenance: true, .. } => refused(who, None, "maintenance", "in maintenance".into()),
        _ if missing.is_some() => {
            let reason = missing.map(|missing| missing.reason.as_str()).unwrap_or_default();
            refused(who, None, "node_unanswered", format!("its pools are unknown: {reason}"))
        }
        _ => {
            let pools: Vec<&Pool> = known.pools.iter().filter(|pool| pool.node == node.id).collect();
            in_pools(wanted, node.id, &node.name, &pools)
        }
    }
}

fn in_pools(wanted: &CopyRequirements<'_>, node: u16, name: &str, pools: &[&Pool]) -> Candidate {
    let who = (node, name);
    let named = |name: &str| pools.iter().find(|pool| pool.name == name);
    let pool = match (wanted.pool, pools) {
        (Some(wanted), _) => match named(wanted) {
            Some(pool) => pool,
            None => {
                return refused(who, Some(wanted), "pool_not_found", format!("no pool {wanted:?}"));
            }
        },
        (None, []) => return refused(who, None, "no_pool", "no pool".into()),
        (None, [only]) => only,
        (None, several) => match named("default") {
            Some(pool) => pool,
            None => {
                let names: Vec<&str> = several.iter().map(|pool| pool.name.as_str()).collect();
                let text = format!("several pools, and none was given: {}", names.join(", "));
                return refused(who, None, "pool_ambiguous", text);
            }
        },
    };
    let of_pool = |rule, text| refused(who, Some(&pool.name), rule, text);
    let reason = pool.reason.as_deref().unwrap_or("see `ursa pool show`");
    match pool.state {
        PoolState::Exported | PoolState::Unavailable => {
            return of_pool("pool_unavailable", format!("pool is not open: {reason}"));
        }
        PoolState::ReadOnly => {
            return of_pool("pool_read_only", format!("pool accepts no changes: {reason}"));
        }
        PoolState::DiskFailed => {
            return of_pool("disk_failed", format!("pool has a failed disk: {reason}"));
        }
        PoolState::Online => {}
    }
    // A RAM volume takes memory, and a thin one what is written.
    let takes = match wanted.kind.is_durable() && !wanted.kind.is_thin() {
        true => wanted.size.div_ceil(pool.extent.max(1)).saturating_mul(pool.extent.max(1)),
        false => 0,
    };
    let room = format!("{} free, {} needed", ByteLen(pool.free), ByteLen(takes));
    if takes > pool.free {
        let text = format!("not enough space in the pool: {}", room);
        return of_pool("no_space", text);
    }
    Candidate { node, node_name: name.to_owned(), pool: Some(pool.name.clone()), rule: None, text: room }
}

/// The status of a call that this rule refuses.
pub(super) fn status_of(rule: &str) -> StatusCode {
    match rule {
        "no_space" => StatusCode::INSUFFICIENT_STORAGE,
        "node_not_found" | "pool_not_found" => StatusCode::NOT_FOUND,
        _ => StatusCode::CONFLICT,
    }
}

fn refused((node, name): (u16, &str), pool: Option<&str>, rule: &str, text: String) -> Candidate {
    Candidate {
        node,
        node_name: name.to_owned(),
        pool: pool.map(str::to_owned),
        rule: Some(rule.to_owned()),
        text,
    }
}

#[cfg(test)]
mod tests {
    use terms::samples;

    use super::*;

    fn node(id: u16, change: impl FnOnce(&mut ClusterNode)) -> ClusterNode {
        let mut node = samples::node(id);
        change(&mut node);
        node
    }

    fn pool(node: u16, name: &str, free: u64, state: PoolState) -> Pool {
        Pool {
            name: name.into(),
            id: None,
            state,
            reason: None,
            total: 1 << 40,
            free,
            extent: 1 << 20,
            volumes: 0,
            disks: Vec::new(),
            promised: 0,
            overcommit: None,
            scrub: None,
            used: 0,
            logs: None,
            node,
            node_name: format!("server{node}"),
        }
    }

    #[test]
    fn every_node_is_named_with_the_rule_by_which_it_does_not_do() {
        use PoolState::{DiskFailed, Online, ReadOnly, Unavailable};
        let known = Known {
            nodes: vec![
                node(1, |_| {}),
                node(2, |node| node.up = false),
                node(3, |node| node.witness = true),
                node(4, |node| node.maintenance = true),
                node(5, |_| {}),
                node(6, |_| {}),
                node(7, |_| {}),
                node(8, |_| {}),
                node(9, |_| {}),
                node(10, |_| {}),
                node(11, |_| {}),
            ],
            pools: vec![
                pool(1, "default", 1 << 30, Online),
                pool(1, "fast", 1 << 20, Online),
                pool(5, "default", 1 << 20, Online),
                pool(6, "a", 1 << 40, Online),
                pool(6, "b", 1 << 40, Online),
                pool(8, "only", 1 << 40, Unavailable),
                pool(9, "only", 1 << 40, ReadOnly),
                pool(10, "only", 1 << 40, DiskFailed),
            ],
            missing: vec![Missing { node: 11, node_name: "server11".into(), reason: "it is old".into() }],
            here: (1, "server1".into()),
        };
        let wanted =
            CopyRequirements { pool: None, kind: VolumeKind::Thick, size: (1 << 20) + 1, nodes: &[] };
        let rules: Vec<Option<String>> = all(&wanted, &known).into_iter().map(|found| found.rule).collect();
        let expected = [
            None,
            Some("node_down"),
            Some("witness"),
            Some("maintenance"),
            Some("no_space"),
            Some("pool_ambiguous"),
            Some("no_pool"),
            Some("pool_unavailable"),
            Some("pool_read_only"),
            Some("disk_failed"),
            Some("node_unanswered"),
        ];
        assert_eq!(rules.iter().map(Option::as_deref).collect::<Vec<_>>(), expected);
        let named =
            CopyRequirements { pool: Some("fast"), kind: VolumeKind::Ram, nodes: &[1, 6, 99], ..wanted };
        let found = all(&named, &known);
        let rules: Vec<Option<&str>> = found.iter().map(|found| found.rule.as_deref()).collect();
        assert_eq!(rules, [None, Some("pool_not_found"), Some("node_not_found")]);
    }
}
