//! Growing, renaming and changing a volume.

use std::collections::BTreeMap;
use std::rc::Rc;

use ::node::Control;
use ::node::control::{ControlError, SpaceChange, VolumeStatus};
use api::{Candidate, ClusterNode, Compression, DryRun, Missing, Pool, Volume, VolumeChange, VolumeKind};
use axum::http::StatusCode;
use base::ByteLen;

use super::creation::is_for_want_of_a_place;
use super::elsewhere::CopyReport;
use super::{asked_compression, asked_when_full, candidates, named, nodes, whole};
use crate::http::dry_run::{Answer, DryRunParam};
use crate::http::input::{Json, Parameters, Segments};
use crate::http::peers::{self, PeerQuery};
use crate::http::pools::{self, PoolReport};
use crate::http::refusal::{Refusal, Reply};
use crate::http::state::State;

/// Grows or renames a volume, or changes its compression or how it shares the space of its pool, while it is
/// in use.
///
/// If there is no space to grow, `candidates` of the problem lists every node that has the volume and lacks
/// space.
#[utoipa::path(
    patch, path = "/v1/volumes/{name}", tag = "volumes", operation_id = "change_volume",
    params(("name" = String, Path, description = "Volume name or ID"), DryRunParam),
    request_body = VolumeChange,
    responses(
        (status = OK, description = "The volume; with `dry_run`: what would be done", body = Answer<Volume>),
        (status = NOT_FOUND, description = "`volume_not_found`"),
        (status = CONFLICT, description = "`volume_exists`, `volume_in_several_pools`, `forked`, `snapshot_preparing`"),
        (status = UNPROCESSABLE_ENTITY, description = "`would_shrink`, `too_small_to_grow`, `name_invalid`, `field_invalid`"),
        (status = INSUFFICIENT_STORAGE, description = "`no_space`, `no_memory`"),
    ),
)]
pub(in crate::http) async fn change(
    state: State,
    Segments(name): Segments<String>,
    Parameters(DryRunParam { dry_run }): Parameters<DryRunParam>,
    Json(change): Json<VolumeChange>,
) -> Reply<Answer<Volume>> {
    if dry_run {
        return Ok(axum::Json(Answer::Would(would_change(&state, name, change).await?)));
    }
    let (of_volume, to) = (name.clone(), change.size);
    let change = move |control: Rc<Control>| async move {
        let changed = changed(Rc::clone(&control), of_volume, change).await?;
        Ok(whole(&control, changed).await)
    };
    match state.call(change).await {
        Ok(volume) => Ok(axum::Json(Answer::Done(volume))),
        Err(refusal) => Err(with_room(&state, name, to, refusal).await),
    }
}

/// If the refusal is about space, adds the nodes on which the volume cannot grow.
async fn with_room(state: &State, name: String, to: Option<u64>, refusal: Refusal) -> Refusal {
    let Some(to) = to.filter(|_| is_for_want_of_a_place(&refusal)) else { return refusal };
    let look = move |control: Rc<Control>| async move { Ok(named(&control, control.volume(&name)?)) };
    let Ok(volume) = state.call(look).await else { return refusal };
    match room_for(state, &volume, volume.kind, |reserved| to.saturating_sub(reserved)).await {
        Ok(found) => refusal.candidates(found.into_iter().filter(|found| found.rule.is_some()).collect()),
        Err(_) => refusal,
    }
}

/// What to change in how the volume shares the space of its pool.
fn space_change(change: &VolumeChange) -> SpaceChange {
    SpaceChange { when_full: change.when_full.map(asked_when_full), reserve: change.reserve.map(ByteLen) }
}

/// Renames and grows the volume, both or neither. Then changes its compression and its space policy, which
/// can be repeated.
async fn changed(
    control: Rc<Control>,
    name: String,
    change: VolumeChange,
) -> Result<VolumeStatus, ControlError> {
    let space = space_change(&change);
    let VolumeChange { name: new_name, size, compression, .. } = change;
    let before = control.volume(&name)?;
    let id = before.info.id.to_string();
    let size = size.map(ByteLen);
    let size_after = size.map_or(before.info.capacity, |size| size.max(before.info.capacity));
    control.check_set_space(&id, space, size_after)?;
    let compression = compression.map(asked_compression).filter(|set| *set != before.info.compression);
    if compression.is_some() {
        control.check_compression(&id)?;
    }
    let mut changed = resized(&control, &before, new_name, size).await?;
    if let Some(compression) = compression {
        changed = control.set_compression(&id, compression).await?;
    }
    match space == SpaceChange::default() {
        true => Ok(changed),
        false => control.set_space(&id, space).await,
    }
}

/// Renames and grows the volume, both or neither.
async fn resized(
    control: &Rc<Control>,
    before: &VolumeStatus,
    new_name: Option<String>,
    size: Option<ByteLen>,
) -> Result<VolumeStatus, ControlError> {
    let id = before.info.id.to_string();
    // The rename comes first, since it can be undone; growing cannot.
    let new_name = new_name.filter(|name| *name != before.info.name);
    if let Some(new_name) = &new_name {
        control.rename_volume(&id, new_name).await?;
    }
    if let Some(size) = size {
        grow(control, before, new_name.is_some(), size).await?;
    }
    control.volume(&id)
}

/// Grows the volume. If that fails, it gets its name back if it was `renamed`.
async fn grow(
    control: &Rc<Control>,
    before: &VolumeStatus,
    renamed: bool,
    size: ByteLen,
) -> Result<(), ControlError> {
    let id = before.info.id.to_string();
    let grown = control.grow_volume(&id, size).await;
    if grown.is_err()
        && renamed
        && let Err(undo) = control.rename_volume(&id, &before.info.name).await
    {
        tracing::error!(volume = id, error = %undo, "a volume that could not be resized kept its new name");
    }
    grown.map(drop)
}

async fn would_change(state: &State, name: String, change: VolumeChange) -> Result<DryRun, Refusal> {
    let space = space_change(&change);
    let VolumeChange { name: new_name, size, compression, .. } = change;
    let wanted = new_name.clone();
    let check = move |control: Rc<Control>| async move {
        let to = control.check_change(&name, wanted.as_deref(), size.map(ByteLen))?;
        let (before, after) = control.check_set_space(&name, space, to)?;
        if compression.is_some() {
            control.check_compression(&name)?;
        }
        Ok((named(&control, control.volume(&name)?), to.0, before, after))
    };
    let (volume, to, before, after) = state.call(check).await?;
    let (mut steps, mut found) = (Vec::new(), Vec::new());
    if let Some(new_name) = new_name.filter(|new_name| *new_name != volume.name) {
        steps.push(format!("volume {} is renamed to {new_name}; hosts are not affected", volume.name));
    }
    if let Some(compression) = compression.filter(|compression| Some(*compression) != volume.compression) {
        let what = match compression {
            Compression::Lz4 => "compressed with LZ4 if that at least halves them",
            Compression::Off => "stored uncompressed",
        };
        steps.push(format!("blocks written to volume {} from then on are {what}", volume.name));
    }
    if to > volume.size {
        found = room_for(state, &volume, volume.kind, |reserved| to.saturating_sub(reserved)).await?;
        if let Some(bad) = found.iter().find(|found| found.rule.is_some()) {
            let code = bad.rule.clone().unwrap_or_default();
            let status =
                if code == "no_space" { StatusCode::INSUFFICIENT_STORAGE } else { StatusCode::CONFLICT };
            let detail = format!("cannot resize volume {} on {}: {}", volume.name, bad.node_name, bad.text);
            return Err(Refusal::new(status, code, detail).candidates(found));
        }
        steps.push(format!(
            "volume {} is resized from {} to {}",
            volume.name,
            ByteLen(volume.size),
            ByteLen(to)
        ));
    }
    if after.when_full != before.when_full {
        let what = match after.when_full {
            store::WhenFull::Fail => "fail at once",
            store::WhenFull::Pause => "wait for space, and fail after 15 seconds",
        };
        steps.push(format!("writes to volume {} {what} when its pool is full", volume.name));
    }
    if after.reserve != before.reserve {
        steps.push(format!(
            "the reserve of volume {} changes from {} to {}",
            volume.name, before.reserve, after.reserve
        ));
    }
    if steps.is_empty() {
        steps.push(format!("no change: volume {} already has these settings", volume.name));
    }
    Ok(DryRun { would: steps, candidates: found })
}

/// The nodes with a copy, and whether each of them is up and has the space for a volume of this kind that
/// `needs` this many bytes beyond what it has reserved there.
pub(super) async fn room_for(
    state: &State,
    volume: &Volume,
    kind: VolumeKind,
    needs: impl Fn(u64) -> u64,
) -> Result<Vec<Candidate>, Refusal> {
    let of_copies: Vec<u16> = volume.copies.iter().map(|copy| copy.node).collect();
    let (one, id) = (volume.clone(), volume.id.clone());
    let look = move |control: Rc<Control>| async move {
        let here = control.number_and_name();
        let others = || of_copies.iter().copied().filter(|node| *node != here.0);
        let nodes = nodes(&control).await;
        // Each node reports the pool of its copy, and the space it takes there.
        let queries = others().map(|node| (node, PeerQuery::Volumes(vec![id.clone()]))).collect();
        let (mut there, _) = peers::ask(&control, queries).await?.read::<CopyReport>();
        there.push(CopyReport::of(&one, here.0));
        let queries = others().map(|node| (node, PeerQuery::Pools)).collect();
        let (theirs, missing) = peers::ask(&control, queries).await?.read::<PoolReport>();
        let mut pools: Vec<Pool> = theirs.into_iter().map(PoolReport::shown).collect();
        pools.extend(pools::own(&control));
        Ok((there, Room { nodes, pools, missing, here }))
    };
    let (there, room) = state.call(look).await?;
    Ok(room.of_each(volume, there, (kind, needs)))
}

/// What is known about the nodes with a copy.
struct Room {
    nodes: Vec<ClusterNode>,
    pools: Vec<Pool>,
    missing: Vec<Missing>,
    /// The number and name of this node.
    here: (u16, String),
}

impl Room {
    /// Whether each node has space; `there` is what the nodes report about their copies.
    fn of_each(
        self,
        volume: &Volume,
        there: Vec<CopyReport>,
        (kind, needs): (VolumeKind, impl Fn(u64) -> u64),
    ) -> Vec<Candidate> {
        // A node in maintenance grows its copy as well.
        let nodes = self.nodes.into_iter().map(|node| ClusterNode { maintenance: false, ..node }).collect();
        let here = self.here.0;
        let known = candidates::Known { nodes, pools: self.pools, missing: self.missing, here: self.here };
        let by_node: BTreeMap<u16, &CopyReport> = there.iter().map(|report| (report.node, report)).collect();
        let room = |node: u16| {
            let told = by_node.get(&node);
            let reserved = told.map_or(0, |told| told.reserved);
            candidates::all(
                &candidates::CopyRequirements {
                    pool: told.map(|told| told.pool.as_str()),
                    kind,
                    // The last piece of what is reserved may be half empty.
                    size: needs(reserved),
                    nodes: &[node],
                },
                &known,
            )
        };
        match volume.copies.as_slice() {
            // The record does not list it.
            [] => room(here),
            copies => copies.iter().flat_map(|copy| room(copy.node)).collect(),
        }
    }
}
