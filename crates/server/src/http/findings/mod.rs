//! Findings: what is wrong in the cluster now, as determined by the queried node. The command line and the
//! console only show them.
//!
//! Nodes report codes and facts to each other ([`own`]). [`mod@judge`] derives findings from these reports
//! and from what the queried node knows; [`identity`] determines code and subject of each, [`words`] its
//! text.

mod first_seen;
mod identity;
mod judge;
mod own;
#[cfg(test)]
mod tests;
mod words;

use std::rc::Rc;
use std::sync::Arc;

use ::node::Control;
use api::{ClusterNode, Finding, List, RecordPlace};

pub use self::identity::severity_of;
use self::judge::{Observed, judge};
pub use self::own::Opened;
pub(super) use self::own::reports;
use super::peers::{self, PeerQuery, QueriedNodes};
use super::refusal::{Refusal, Reply};
use super::state::State;
use super::{cluster, node, pools, volumes};

/// What is wrong in the cluster now, as the queried node sees it: the worst first.
///
/// A node that is up but does not report its state is itself a finding.
#[utoipa::path(
    get, path = "/v1/findings", tag = "node", operation_id = "list_findings",
    responses(
        (status = OK, description = "All of them", body = List<Finding>),
    ),
)]
pub(super) async fn list(state: State) -> Reply<List<Finding>> {
    let observed = observe(&state).await?;
    let found = judge(&observed).into_iter();
    Ok(axum::Json(List::of(found.map(|found| words::told(&found, &observed.nodes)).collect())))
}

async fn observe(state: &State) -> Result<Observed, Refusal> {
    let opened = Arc::clone(&state.opened);
    let own = move |control: Rc<Control>| async move { Ok(reports(&control, &opened)) };
    // All at once, since each question may wait for a node that does not answer.
    let (members, volumes, pools, reports) = tokio::join!(
        state.call(members),
        volumes::all(state),
        pools::of_nodes(state, QueriedNodes::All),
        peers::list(state, QueriedNodes::All, PeerQuery::Faults, own),
    );
    let ((nodes, in_etcd), volumes, pools, reports) = (members?, volumes?, pools?, reports?);
    let mut incomplete = [volumes.missing, pools.missing].concat();
    incomplete.sort_by_key(|missing| missing.node);
    incomplete.dedup_by_key(|missing| missing.node);
    Ok(Observed {
        nodes,
        in_etcd,
        volumes: volumes.items,
        pools: pools.items,
        reports: reports.items,
        silent: reports.missing,
        incomplete,
    })
}

/// The nodes of the cluster, and whether its record is in etcd. If this node cannot list them, its own
/// reports give the reason.
async fn members(control: Rc<Control>) -> Result<(Vec<ClusterNode>, bool), ::node::control::ControlError> {
    let nodes = control.nodes().await.unwrap_or_default();
    let nodes = nodes.into_iter().map(cluster::shown).collect();
    let record = node::record(&control).await;
    Ok((nodes, record.is_some_and(|record| record.place == RecordPlace::Etcd)))
}
