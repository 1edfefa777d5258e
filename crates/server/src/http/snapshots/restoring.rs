//! Restoring volumes to a snapshot.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use ::node::control::{RestorePlan, RestoreSpec};
use ::node::copies::{StandingEntry, VolumeEntry};
use ::node::{Control, VolumeId};
use api::{DryRun, List, Missing, Session, SnapshotRestore, SnapshotRestored};
use axum::http::StatusCode;
use terms::clock::utc;

use super::super::dry_run::{Answer, DryRunParam};
use super::super::input::{Json, Parameters, Segments};
use super::super::peers::{self, PeerQuery, QueriedNodes};
use super::super::refusal::{Refusal, Reply};
use super::super::sessions;
use super::super::state::State;
use super::one;

/// What a restore would do, and to whom.
struct Plan {
    steps: Vec<String>,
    /// Which hosts use which volumes, and the nodes that do not say.
    users: Vec<String>,
}

/// Restores volumes to a snapshot, all at one point in time, on all copies in sync.
///
/// It takes the same time at any size, and can be repeated. What the volumes are now is kept as a snapshot,
/// unless it is discarded. Hosts wait meanwhile, and get a unit attention afterwards. If hosts are logged in
/// that see one of the volumes, they are named, and `force` is needed: what they have cached does not fit any
/// more. A copy that is out of sync gets a full resync. A volume that has grown since keeps its size.
#[utoipa::path(
    post, path = "/v1/snapshots/{snapshot}/restore", tag = "snapshots", operation_id = "restore_snapshot",
    params(("snapshot" = String, Path, description = "Snapshot name or number"), DryRunParam),
    request_body = SnapshotRestore,
    responses(
        (status = OK, description = "The volumes are restored, durably; with `dry_run`: what would be done", body = Answer<SnapshotRestored>),
        (status = NOT_FOUND, description = "`snapshot_not_found`; `volume_not_found`"),
        (status = CONFLICT, description = "`volumes_in_use`: hosts use them; `not_in_snapshot`; `copy_lacks_snapshot`: a copy in sync does not have it; `not_restored`: a copy cannot be restored now; `snapshot_preparing`; `too_many_snapshots`; `forked`"),
        (status = SERVICE_UNAVAILABLE, description = "`restore_too_slow`; `node_unreachable`"),
        (status = GATEWAY_TIMEOUT, description = "`restore_unfinished`: it is decided, and continues"),
    ),
)]
pub(in crate::http) async fn restore(
    state: State,
    Segments(snapshot): Segments<String>,
    Parameters(DryRunParam { dry_run }): Parameters<DryRunParam>,
    Json(SnapshotRestore { volumes, discard, force }): Json<SnapshotRestore>,
) -> Reply<Answer<SnapshotRestored>> {
    let spec = RestoreSpec { snapshot, volumes, discard };
    // With `force`, it does not matter who uses the volumes: no node needs to be asked.
    if dry_run || !force {
        let Plan { steps, users } = plan(&state, spec.clone()).await?;
        if !force && !users.is_empty() {
            let detail = format!("nothing was restored: {}", users.join("; "));
            return Err(Refusal::new(StatusCode::CONFLICT, "volumes_in_use", detail).hint(
                "log out on these hosts, or unmount there and restore with --force (`force` in the API): what hosts have cached does not fit what is restored",
            ));
        }
        if dry_run {
            return Ok(axum::Json(Answer::Would(DryRun { would: steps, candidates: Vec::new() })));
        }
    }
    let restored = state.call(move |control| async move { control.restore_snapshot(spec).await }).await?;
    let kept = match restored.kept {
        None => None,
        // Another call: each may run twice (see [`State::call`]), and the first one changes something.
        Some(status) => Some(state.call(move |control| async move { one(&control, status).await }).await?),
    };
    Ok(axum::Json(Answer::Done(SnapshotRestored {
        snapshot: restored.snapshot,
        volumes: restored.volumes,
        kept,
        pause_us: restored.pause_us,
    })))
}

async fn plan(state: &State, spec: RestoreSpec) -> Result<Plan, Refusal> {
    let of = spec.clone();
    let own = move |control: Rc<Control>| async move {
        // Refused before any node is asked.
        control.plan_restore(&of)?;
        sessions::all(&control).await
    };
    let List { items, missing } = peers::list(state, QueriedNodes::All, PeerQuery::Sessions, own).await?;
    let judge = move |control: Rc<Control>| async move {
        let plan = control.plan_restore(&spec)?;
        Ok(planned(&control, &plan, spec.discard, (&items, &missing)))
    };
    state.call(judge).await
}

fn planned(
    control: &Control,
    plan: &RestorePlan,
    discards: bool,
    (sessions, missing): (&[Session], &[Missing]),
) -> Plan {
    let RestorePlan { snapshot, volumes } = plan;
    let (mut steps, mut users) = (Vec::new(), Vec::new());
    for volume in volumes {
        let size = snapshot.of(&volume.id).map_or(volume.size, |of| of.size);
        steps.extend(steps_of(volume, size, (snapshot.name.as_str(), snapshot.at)));
        let hosts = hosts_of(control, volume, sessions);
        if !hosts.is_empty() {
            let hosts = hosts.into_iter().collect::<Vec<_>>().join(", ");
            users.push(format!("volume {} is in use by {hosts}", volume.name));
        }
    }
    for Missing { node, .. } in missing {
        users
            .push(format!("node {node} did not answer, and may have sessions of hosts that use the volumes"));
    }
    steps.extend(users.iter().cloned());
    steps.push("hosts wait meanwhile, and get a unit attention: the content has changed".into());
    steps.push(match discards {
        true => "what the volumes are now is lost".into(),
        false => "what the volumes are now is kept as a snapshot".into(),
    });
    Plan { steps, users }
}

fn steps_of(volume: &VolumeEntry, size: u64, (snapshot, at): (&str, u64)) -> Vec<String> {
    let name = &volume.name;
    let mut steps = vec![format!("volume {name} becomes what it was in snapshot {snapshot}, {}", utc(at))];
    if size < volume.size {
        let (now, then) = (base::ByteLen(volume.size), base::ByteLen(size));
        steps.push(format!(
            "volume {name} keeps its size of {now}: what it has had since {then} reads as zeros"
        ));
    }
    if volume.sole {
        steps.push(format!(
            "volume {name} is treated like one with several copies from then on: its node needs the cluster's record to serve it, and cannot join another cluster"
        ));
    }
    let outside = volume.copies.iter().filter(|copy| copy.standing == StandingEntry::Outside);
    steps.extend(outside.map(|copy| {
        format!("the copy of volume {name} on node {} is out of sync: it gets a full resync", copy.node)
    }));
    steps
}

/// The initiators of sessions that see a volume.
fn hosts_of(control: &Control, volume: &VolumeEntry, sessions: &[Session]) -> BTreeSet<String> {
    let Some(id) = VolumeId::parse(&volume.id) else { return BTreeSet::new() };
    let address = |text: &String| text.parse::<SocketAddr>().ok().map(|address| address.ip());
    let sees = |session: &&Session| {
        let addresses: Vec<IpAddr> = session.addresses.iter().filter_map(address).collect();
        let target = session.target.as_deref();
        target.is_some_and(|target| control.is_seen(id, target, &session.initiator, &addresses))
    };
    sessions.iter().filter(sees).map(|session| session.initiator.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_of_a_larger_volume_and_of_a_copy_out_of_sync_is_said() {
        let value = serde_json::json!({
            "id": "0".repeat(32), "number": 1, "name": "db", "size": 2 << 20, "epoch": 7, "reason": "silent",
            "shape": {"kind": 1, "block_bytes": 512, "physical_exponent": 3, "slices": 1, "created": 0},
            "copies": [
                {"slot": 0, "node": 1, "standing": "in-sync", "incarnation": 3, "made": 1},
                {"slot": 1, "node": 2, "standing": "outside", "incarnation": 0, "made": 1},
            ],
        });
        let volume: VolumeEntry = serde_json::from_value(value).unwrap();
        let steps = steps_of(&volume, 1 << 20, ("first", 1_795_348_984));
        assert_eq!(steps.len(), 3, "{steps:?}");
        assert!(steps[0].contains("snapshot first, 2026-11-22 12:03:04Z"), "{steps:?}");
        assert!(steps[1].contains("keeps its size") && steps[2].contains("node 2"), "{steps:?}");
        assert_eq!(steps_of(&volume, 2 << 20, ("first", 0)).len(), 2);
        let sole = VolumeEntry { sole: true, ..volume };
        assert!(steps_of(&sole, 2 << 20, ("first", 0))[1].contains("cannot join"));
    }
}
