//! The node as a whole.

use std::rc::Rc;
use std::time::Duration;

use ::node::Control;
use ::node::control::{ChangeStatus, ClusterRecordStatus, RecordPlace as Place};
use api::{Change, ClusterRecord, Health, MapMemory, Node, RecordPlace};
use axum::Json;

use super::refusal::Reply;
use super::state::State;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Whether the node serves.
#[utoipa::path(
    get, path = "/v1/health", tag = "node",
    responses((status = OK, description = "It serves", body = Health), (status = SERVICE_UNAVAILABLE, description = "`not_running`")),
)]
pub(super) async fn health(state: State) -> Reply<Health> {
    state.access.health(&state).await?;
    Ok(Json(Health { status: "ok".into(), version: VERSION.into() }))
}

/// Shows the node: what it is, and changes in progress.
#[utoipa::path(get, path = "/v1/node", tag = "node", operation_id = "show_node", responses((status = OK, description = "The node", body = Node)))]
pub(super) async fn show(state: State) -> Reply<Node> {
    let now = |control: Rc<Control>| async move {
        let place = shown_place(control.record_place());
        Ok((control.changes(), control.map_memory(), record(&control).await, place))
    };
    let (changes, memory, record, record_place) = state.call(now).await?;
    Ok(Json(Node {
        name: state.name.clone(),
        version: VERSION.into(),
        cores: state.node.cores(),
        portals: state.portals.iter().map(ToString::to_string).collect(),
        // The uptime is zero if the clock was set back.
        uptime: state.started.elapsed().unwrap_or_default().as_secs(),
        map_memory: MapMemory { used: memory.used.0, limit: memory.limit.0 },
        changes: changes.into_iter().map(shown).collect(),
        record,
        record_place,
        read_confirm: state.read_confirm.clone(),
    }))
}

/// How long to wait for the state of the cluster's record.
const RECORD_DEADLINE: Duration = Duration::from_secs(1);

/// The state of the cluster's record; `None`: it is not known in time.
pub(super) async fn record(control: &Control) -> Option<ClusterRecord> {
    let status = rt::timeout(RECORD_DEADLINE, control.cluster_record()).await;
    let ClusterRecordStatus { place, answers, endpoints } = status.ok()?.ok()??;
    Some(ClusterRecord { place: shown_place(place), answers, endpoints })
}

fn shown_place(place: Place) -> RecordPlace {
    match place {
        Place::Nodes => RecordPlace::Nodes,
        Place::Etcd => RecordPlace::Etcd,
    }
}

fn shown(change: ChangeStatus) -> Change {
    Change {
        what: change.work.to_string(),
        age: change.age.as_secs(),
        waits_for: change.waits_for.to_string(),
    }
}
