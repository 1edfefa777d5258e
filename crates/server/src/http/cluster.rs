//! The cluster: creating, joining, leaving, and its nodes.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use ::node::Control;

use ::node::control::{ControlError, Leaving, NodeStatus, Removal, Stall};
use ::node::copies::{self, NodeId};
use api::{
    ClusterInit, ClusterJoin, ClusterNode, DryRun, JoinToken, LinkFor, LinkRole, List, Maintenance,
    Preference, RecordStall, SyncLimit, TOKEN_SECONDS_MAX, TokenCreate, VerifySchedule, link_address,
};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use terms::clock::unix_now;

use super::dry_run::{self, DryRunParam};
use super::input::{Json, Parameters, Segments};
use super::refusal::{Refusal, Reply};
use super::since::since;
use super::state::State;

/// Lists the nodes of the cluster, by number.
#[utoipa::path(
    get, path = "/v1/nodes", tag = "cluster", operation_id = "list_nodes",
    responses(
        (status = OK, description = "All of them", body = List<ClusterNode>),
    ),
)]
pub(super) async fn nodes(state: State) -> Reply<List<ClusterNode>> {
    let nodes = state.call(|control| async move { control.nodes().await }).await?;
    Ok(axum::Json(List::of(nodes.into_iter().map(shown).collect())))
}

/// Lets other nodes join this one: it listens for them at these addresses.
///
/// They join with tokens that this node creates. If the settings name etcd, the record moves there first.
#[utoipa::path(
    post, path = "/v1/cluster", tag = "cluster", operation_id = "init_cluster",
    request_body = ClusterInit,
    responses(
        (status = CREATED, description = "The nodes of the cluster", body = List<ClusterNode>),
        (status = CONFLICT, description = "`cluster_already`"),
        (status = UNPROCESSABLE_ENTITY, description = "`field_invalid`, `listen`"),
        (status = BAD_GATEWAY, description = "`etcd_unusable`: the record is to be kept in etcd, which cannot be used"),
    ),
)]
pub(super) async fn init(
    state: State,
    Json(init): Json<ClusterInit>,
) -> Result<(StatusCode, axum::Json<List<ClusterNode>>), Refusal> {
    let listen = link_addresses(&init.listen)?;
    let make = |control: Rc<Control>| async move {
        control.init_cluster(listen).await?;
        control.nodes().await
    };
    let nodes = state.call(make).await?;
    Ok((StatusCode::CREATED, axum::Json(List::of(nodes.into_iter().map(shown).collect()))))
}

/// Creates a single-use join token.
///
/// It is valid until it is used or expires, or until the node that created it is restarted. It is a secret.
/// The node that created the cluster creates it, whichever node is queried (`authority` in `list_nodes`).
#[utoipa::path(
    post, path = "/v1/cluster/tokens", tag = "cluster", operation_id = "create_token",
    request_body = TokenCreate,
    responses(
        (status = CREATED, description = "The token", body = JoinToken),
        (status = CONFLICT, description = "`not_listening`, `no_authority`"),
    ),
)]
pub(super) async fn create_token(
    state: State,
    Json(new): Json<TokenCreate>,
) -> Result<(StatusCode, axum::Json<JoinToken>), Refusal> {
    if !(1..=TOKEN_SECONDS_MAX).contains(&new.valid_seconds) {
        let detail = format!("a token is valid for 1 to {TOKEN_SECONDS_MAX} seconds");
        return Err(Refusal::invalid("valid_seconds", detail));
    }
    let validity = Duration::from_secs(new.valid_seconds);
    let token = state.call(move |control| async move { control.make_token(unix_now(), validity) }).await?;
    Ok((StatusCode::CREATED, axum::Json(JoinToken { token })))
}

/// Lets this node join the cluster that issued the token.
///
/// Its targets, LUN maps, host groups, volumes, users, API tokens and floating IPs become part of the
/// cluster. If names, IQNs, LUNs, addresses or secrets collide, all collisions are listed, nothing is
/// changed, and the token stays valid. A node whose cluster has never had another node leaves that cluster. A
/// node whose own cluster has snapshots, or schedules of them, cannot join another one.
#[utoipa::path(
    post, path = "/v1/cluster/join", tag = "cluster", operation_id = "join_cluster",
    request_body = ClusterJoin,
    responses(
        (status = NO_CONTENT, description = "The node has joined"),
        (status = CONFLICT, description = "`cluster_already`: it is in this cluster, or in one that has had other nodes; `join_collision`, `join_refused`, `too_much_to_merge`, `changed_meanwhile`, `cluster_has_snapshots`, `cluster_has_schedules`, `life_unknown`, `entry_unreadable`, `record_in_etcd`: such a cluster has no witnesses"),
        (status = UNPROCESSABLE_ENTITY, description = "`token_invalid`, `field_invalid`, `listen`"),
        (status = BAD_GATEWAY, description = "`member_unreachable`, `member_unanswered`"),
    ),
)]
pub(super) async fn join(state: State, Json(join): Json<ClusterJoin>) -> Result<StatusCode, Refusal> {
    let listen = link_addresses(&join.listen)?;
    let ClusterJoin { token, witness, .. } = join;
    let enter = move |control: Rc<Control>| async move {
        control.join_cluster(&token, listen, witness, unix_now()).await
    };
    state.call(enter).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes another node from the cluster permanently. The node must have no copies of volumes.
#[utoipa::path(
    delete, path = "/v1/nodes/{id}", tag = "cluster", operation_id = "remove_node",
    params(("id" = u16, Path, description = "Node number"), DryRunParam),
    responses(
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = NO_CONTENT, description = "Done"),
        (status = NOT_FOUND, description = "`node_not_found`"),
        (status = CONFLICT, description = "`node_has_copies`, `node_needed`"),
        (status = UNPROCESSABLE_ENTITY, description = "`field_invalid`: it is the queried node"),
    ),
)]
pub(super) async fn remove(
    state: State,
    Segments(id): Segments<u16>,
    Parameters(DryRunParam { dry_run }): Parameters<DryRunParam>,
) -> Result<Response, Refusal> {
    if dry_run {
        let removal = state.call(move |control| async move { control.check_removal(id).await }).await?;
        return Ok(dry_run::would(would_remove(id, &removal), Vec::new()));
    }
    state.call(move |control| async move { control.remove_node(id).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// What is lost with the cluster CA key, and how to keep it.
const KEY_GOES: &str = "the cluster CA key is in the data directory of the node that created the cluster: copy authority-key.pem and authority.pem from cluster/CLUSTER-NODE there to cluster/CLUSTER-NODE of a node that stays, and restart that node";

fn would_remove(id: u16, removal: &Removal) -> Vec<String> {
    let name = &removal.name;
    let mut steps = vec![format!(
        "node {id} ({name}) is removed from the cluster permanently: its number is never reused, and to come back it must join as a new node"
    )];
    if !removal.sole.is_empty() {
        let names: Vec<&str> = removal.sole.iter().map(|(_, name)| name.as_str()).collect();
        steps.push(format!(
            "volume {} leaves the cluster with this node, which has its only copy; it returns when the node joins again, or when another node imports its pool",
            names.join(", ")
        ));
    }
    steps.extend(removal.voters_left.map(|left| {
        let others = match left {
            1 => "1 voter remains".to_owned(),
            _ => format!("{left} voters remain"),
        };
        format!("its vote is lost: {others}")
    }));
    if removal.has_only_authority {
        steps.push(format!("NO NODE CAN JOIN THE CLUSTER ANY MORE: {KEY_GOES}"));
    }
    if removal.has_authority {
        steps.push(
            "it keeps the cluster CA key (authority-key.pem in cluster/CLUSTER-NODE in its data directory), with which anyone can impersonate any node: erase that file there. If the machine was \
             stolen, create a new cluster"
                .to_owned(),
        );
    }
    steps
}

/// Reserves an address of a node for one kind of links.
///
/// Affected links move to another address one by one, within half a minute.
#[utoipa::path(
    put, path = "/v1/nodes/{id}/links", tag = "cluster", operation_id = "keep_link_for",
    params(("id" = u16, Path, description = "Node number")),
    request_body = LinkFor,
    responses(
        (status = NO_CONTENT, description = "Done"),
        (status = NOT_FOUND, description = "`node_not_found`"),
        (status = UNPROCESSABLE_ENTITY, description = "`field_invalid`: it is not an address of the node, or no address would be left for data"),
    ),
)]
pub(super) async fn keep_link_for(
    state: State,
    Segments(id): Segments<u16>,
    Json(LinkFor { address, role }): Json<LinkFor>,
) -> Result<StatusCode, Refusal> {
    let address = link_address_of("address", &address)?;
    let role = role.map(|role| match role {
        LinkRole::Replication => copies::LinkRole::Replication,
        LinkRole::Heartbeat => copies::LinkRole::Heartbeat,
    });
    state.call(move |control| async move { control.keep_link_for(id, address, role).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Puts a node in maintenance, or ends its maintenance.
///
/// A node in maintenance has no copies in sync, so that it can be stopped and no volume waits for it. When
/// maintenance ends, its copies are resynced. Maintenance persists across restarts.
#[utoipa::path(
    put, path = "/v1/nodes/{id}/maintenance", tag = "cluster", operation_id = "maintain_node",
    params(("id" = u16, Path, description = "Node number"), DryRunParam),
    request_body = Maintenance,
    responses(
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = NO_CONTENT, description = "Done: it can be stopped, or is back in use"),
        (status = ACCEPTED, description = "Some of its copies are still in sync: see `list_nodes`"),
        (status = NOT_FOUND, description = "`node_not_found`"),
        (status = CONFLICT, description = "`only_in_sync`"),
    ),
)]
pub(super) async fn maintain(
    state: State,
    Segments(id): Segments<u16>,
    Parameters(DryRunParam { dry_run }): Parameters<DryRunParam>,
    Json(Maintenance { on }): Json<Maintenance>,
) -> Result<Response, Refusal> {
    if dry_run {
        return would_maintain(&state, id, on).await;
    }
    let done = state.call(move |control| async move { control.maintain_node(id, on).await }).await?;
    Ok(if done { StatusCode::NO_CONTENT } else { StatusCode::ACCEPTED }.into_response())
}

async fn would_maintain(state: &State, id: u16, on: bool) -> Result<Response, Refusal> {
    let check = move |control: Rc<Control>| async move {
        let is_on = control.reconciler().is_ok_and(|reconciler| reconciler.is_in_maintenance(NodeId(id)));
        let left = match control.check_maintenance(id) {
            Err(ControlError::OnlyInSync { .. }) if !on || is_on => Vec::new(),
            left => left?,
        };
        Ok((left, is_on))
    };
    let (left, is_on) = state.call(check).await?;
    let steps = match (on, is_on) {
        (true, false) => {
            let lines = left.into_iter().map(|(volume, copies)| match copies {
                0 => format!("volume {volume} has no other copy: it is unavailable while node {id} is down"),
                1 => format!(
                    "volume {volume} continues with one copy in sync: losing it makes the volume unavailable"
                ),
                _ => format!("volume {volume} continues with {copies} copies in sync"),
            });
            lines.chain([format!("node {id} can then be stopped")]).collect()
        }
        (false, true) => {
            vec![format!("node {id} is back in use: its copies are resynced")]
        }
        (true, true) => vec![format!("no change: node {id} is already in maintenance")],
        (false, false) => vec![format!("no change: node {id} is not in maintenance")],
    };
    Ok(dry_run::would(steps, Vec::new()))
}

/// Sets the preferred node of two nodes without a witness.
///
/// If the other node is lost, the preferred node continues. If the preferred node is lost, the other one
/// waits for it.
#[utoipa::path(
    put, path = "/v1/cluster/preferred", tag = "cluster", operation_id = "prefer_node",
    request_body = Preference,
    responses(
        (status = NO_CONTENT, description = "Done"),
        (status = NOT_FOUND, description = "`node_not_found`"),
        (status = CONFLICT, description = "`record_in_etcd`"),
        (status = UNPROCESSABLE_ENTITY, description = "`field_invalid`: the node is a witness"),
    ),
)]
pub(super) async fn prefer(
    state: State,
    Json(Preference { node }): Json<Preference>,
) -> Result<StatusCode, Refusal> {
    state.call(move |control| async move { control.prefer_node(node).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Shows the limit for the resync traffic of all nodes together.
#[utoipa::path(
    get, path = "/v1/cluster/resync-limit", tag = "cluster", operation_id = "sync_limit",
    responses(
        (status = OK, description = "The limit", body = SyncLimit),
    ),
)]
pub(super) async fn sync_limit(state: State) -> Reply<SyncLimit> {
    let bytes_per_second = state.call(|control| async move { control.sync_limit() }).await?;
    Ok(axum::Json(SyncLimit { bytes_per_second }))
}

/// Limits the resync traffic of all nodes together.
///
/// The limit is shared evenly among the nodes that are sources of a resync. The nodes' own limits apply as
/// well.
#[utoipa::path(
    put, path = "/v1/cluster/resync-limit", tag = "cluster", operation_id = "limit_syncs",
    request_body = SyncLimit,
    responses(
        (status = NO_CONTENT, description = "Done"),
        (status = UNPROCESSABLE_ENTITY, description = "`field_invalid`: too little"),
    ),
)]
pub(super) async fn limit_syncs(
    state: State,
    Json(SyncLimit { bytes_per_second }): Json<SyncLimit>,
) -> Result<StatusCode, Refusal> {
    state.call(move |control| async move { control.limit_syncs(bytes_per_second).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Shows the schedule by which copies of volumes are compared automatically.
#[utoipa::path(
    get, path = "/v1/cluster/verify-schedule", tag = "cluster", operation_id = "verify_schedule",
    responses(
        (status = OK, description = "The schedule", body = VerifySchedule),
    ),
)]
pub(super) async fn verify_schedule(state: State) -> Reply<VerifySchedule> {
    let every = state.call(|control| async move { control.verify_every() }).await?;
    Ok(axum::Json(VerifySchedule { seconds: every.map(|every| every.as_secs()) }))
}

/// Sets the schedule by which copies of volumes are compared automatically.
///
/// A volume is verified only while all its copies are in sync, one volume of the cluster at a time.
#[utoipa::path(
    put, path = "/v1/cluster/verify-schedule", tag = "cluster", operation_id = "set_verify_schedule",
    request_body = VerifySchedule,
    responses(
        (status = NO_CONTENT, description = "Done"),
        (status = UNPROCESSABLE_ENTITY, description = "`field_invalid`: too often"),
    ),
)]
pub(super) async fn set_verify_schedule(
    state: State,
    Json(VerifySchedule { seconds }): Json<VerifySchedule>,
) -> Result<StatusCode, Refusal> {
    let every = seconds.map(Duration::from_secs);
    state.call(move |control| async move { control.set_verify_every(every).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Makes this node, the last survivor, a cluster of its own at its next start.
///
/// All other nodes are abandoned: never start them again with their data; they must join as new nodes. Use
/// this only if the voters are permanently lost.
#[utoipa::path(
    post, path = "/v1/cluster/force-new", tag = "cluster", operation_id = "force_new_cluster",
    params(DryRunParam),
    responses(
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = ACCEPTED, description = "Done at the next start of the node"),
        (status = CONFLICT, description = "`cluster_works`, `node_is_up`, `record_in_etcd`"),
    ),
)]
pub(super) async fn force_new(
    state: State,
    Parameters(DryRunParam { dry_run }): Parameters<DryRunParam>,
) -> Result<Response, Refusal> {
    if dry_run {
        let check = |control: Rc<Control>| async move {
            let given_up = control.check_new_cluster().await?;
            Ok((given_up, control.token_maker() == Some(control.number())))
        };
        let (given_up, has_authority) = state.call(check).await?;
        return Ok(dry_run::would(would_force_new(&given_up, has_authority), Vec::new()));
    }
    state.call(|control| async move { control.force_new_cluster().await }).await?;
    Ok(StatusCode::ACCEPTED.into_response())
}

/// Makes this node leave its cluster at its next start.
///
/// For a node that was removed or abandoned, or whose copy of the record is damaged: refused while it is an
/// active member of its cluster. Its pools stay, and volumes that have never had a copy on another node are
/// served; other copies stay in their pools and are no longer served. It can join a cluster again as a new
/// node.
#[utoipa::path(
    post, path = "/v1/cluster/leave", tag = "cluster", operation_id = "leave_cluster",
    params(DryRunParam),
    responses(
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = ACCEPTED, description = "Done at the next start of the node"),
        (status = CONFLICT, description = "`takes_part`"),
    ),
)]
pub(super) async fn leave(
    state: State,
    Parameters(DryRunParam { dry_run }): Parameters<DryRunParam>,
) -> Result<Response, Refusal> {
    if dry_run {
        let leaving = state.call(|control| async move { control.check_leaving().await }).await?;
        return Ok(dry_run::would(would_leave(&leaving), Vec::new()));
    }
    state.call(|control| async move { control.leave_cluster().await }).await?;
    Ok(StatusCode::ACCEPTED.into_response())
}

fn would_leave(leaving: &Leaving) -> Vec<String> {
    let local = leaving
        .local
        .iter()
        .map(|name| format!("volume {name} is served as before: it has never had a copy on another node"));
    let copies = leaving.copies.iter().map(|name| {
        format!("the copy of volume {name} stays in its pool and is no longer served; `ursa volume delete` frees its space")
    });
    let first = "from its next start, this node is the only one of a new cluster: its certificates and its copy of the cluster's record stay in its data directory (cluster/CLUSTER-NODE), unused";
    let people =
        "users, API tokens and settings of the cluster stay behind: the new cluster has none of them";
    let others = "the other nodes are not notified: if this node has not been removed yet, run `ursa node remove` on one of them";
    let others = (!leaving.was_alone).then(|| others.to_owned());
    let kept = local.chain(copies);
    [first.to_owned()].into_iter().chain(kept).chain([people.to_owned()]).chain(others).collect()
}

fn would_force_new(given_up: &[u16], has_authority: bool) -> Vec<String> {
    let mut steps =
        vec!["from its next start, this node is a cluster of its own, with everything on it".to_owned()];
    steps.extend(given_up.iter().map(|node| {
        format!("node {node} is abandoned: data that only it has is lost, and it must never be started again with its old data")
    }));
    steps.push("volumes whose copy on this node is out of sync become unavailable".to_owned());
    if !has_authority {
        steps.push(format!("no node can join this cluster until the key is on this node: {KEY_GOES}"));
    }
    steps
}

/// Addresses to which other nodes can connect.
fn link_addresses(texts: &[String]) -> Result<Vec<SocketAddr>, Refusal> {
    if texts.is_empty() {
        return Err(Refusal::invalid("listen", "give at least one address that other nodes can reach"));
    }
    texts.iter().map(|text| link_address_of("listen", text)).collect()
}

fn link_address_of(field: &'static str, text: &str) -> Result<SocketAddr, Refusal> {
    let address = link_address(text).map_err(|_| {
        Refusal::invalid(field, format!("{text:?} is not an address: write 10.0.0.1 or 10.0.0.1:3270"))
    })?;
    if address.ip().is_unspecified() {
        let detail = format!(
            "other nodes cannot connect to {address}: give an address of this machine that they can reach"
        );
        return Err(Refusal::invalid(field, detail));
    }
    Ok(address)
}

pub(super) fn shown(node: NodeStatus) -> ClusterNode {
    let NodeStatus {
        entry,
        here,
        up,
        reached_by,
        votes,
        stalled,
        leads,
        copies,
        in_sync,
        silent,
        maintenance,
        maintenance_since,
        preferred,
        link_roles,
    } = node;
    let link_roles = link_roles.into_iter().map(|(address, role)| {
        let role = match role {
            copies::LinkRole::Replication => LinkRole::Replication,
            copies::LinkRole::Heartbeat => LinkRole::Heartbeat,
        };
        (address.to_string(), role)
    });
    let texts = |addresses: Vec<SocketAddr>| addresses.iter().map(ToString::to_string).collect();
    ClusterNode {
        id: entry.id,
        name: entry.name,
        here,
        up,
        reached_by,
        down_since: silent.map(since),
        version: entry.version,
        cores: entry.cores,
        // The other node's clock may be ahead.
        uptime: entry.started.filter(|_| up).map(|started| unix_now().saturating_sub(started)),
        authority: entry.authority,
        votes,
        record_stalled: stalled.map(|stall| match stall {
            Stall::NoSpace => RecordStall::NoSpace,
            Stall::Disk => RecordStall::Disk,
            Stall::Defect => RecordStall::Defect,
            Stall::Unreadable => RecordStall::NeedsUpdate,
            Stall::Later(_) => RecordStall::Other,
        }),
        leads,
        witness: entry.witness,
        copies: copies as u64,
        in_sync: in_sync as u64,
        maintenance,
        maintenance_since,
        preferred,
        addresses: texts(entry.addresses),
        link_roles: link_roles.collect(),
        portals: texts(entry.portals),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removing_a_node_mentions_its_vote() {
        let removal = |voters_left, has_only_authority| Removal {
            name: "san3".into(),
            voters_left,
            sole: Vec::new(),
            has_only_authority,
            has_authority: has_only_authority,
        };
        let would = |voters_left| would_remove(3, &removal(voters_left, false));
        assert!(would(None)[0].starts_with("node 3 (san3) is removed from the cluster permanently"));
        assert_eq!(would(None).len(), 1);
        assert_eq!(would(Some(1))[1], "its vote is lost: 1 voter remains");
        assert_eq!(would(Some(2))[1], "its vote is lost: 2 voters remain");
        let with_key = would_remove(3, &removal(None, true));
        assert!(with_key[1].starts_with("NO NODE CAN JOIN THE CLUSTER ANY MORE: "), "{with_key:?}");
        assert!(with_key[2].starts_with("it keeps the cluster CA key"), "{with_key:?}");
    }

    #[test]
    fn a_node_that_leaves_is_told_about_others_only_if_there_may_be_some() {
        let would =
            |was_alone| would_leave(&Leaving { local: vec!["db".into()], copies: Vec::new(), was_alone });
        assert_eq!((would(false).len(), would(true).len()), (4, 3));
        assert!(would(true)[2].starts_with("users, API tokens"), "{:?}", would(true));
        assert!(would(false)[3].starts_with("the other nodes are not notified"), "{:?}", would(false));
    }

    #[test]
    fn forcing_a_new_cluster_names_the_nodes_left_behind() {
        let would = would_force_new(&[2, 3], true);
        assert_eq!(would.len(), 4);
        assert!(would_force_new(&[2], false)[3].starts_with("no node can join this cluster"));
        assert!(would[1].starts_with("node 2 is abandoned") && would[2].starts_with("node 3 is abandoned"));
    }
}
