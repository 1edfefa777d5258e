//! What differs between two snapshots of a volume, or what one has.

use std::rc::Rc;

use ::node::Control;
use ::node::control::{DIFF_RANGES_MAX, DiffSpec};
use api::{ChangedRange, SnapshotDiff};
use axum::extract::Query;
use axum::http::Uri;
use serde::Deserialize;
use utoipa::IntoParams;

use super::super::input::{Parameters, Segments, limit_of};
use super::super::refusal::Reply;
use super::super::state::State;

/// How many ranges a page has at most if the caller does not say it.
const RANGES: usize = 1000;

/// Which ranges of which volume, compared with which snapshot.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct DiffParams {
    /// Volume name or ID.
    volume: String,
    /// Name or number of the snapshot to compare with, usually an earlier one; absent: a volume of zeros.
    #[serde(default)]
    since: Option<String>,
    /// Only ranges from here on, in bytes: `next` of the previous page; absent: from the beginning.
    #[serde(default)]
    offset: Option<u64>,
    /// Maximum number of ranges: 1 to 4096; default 1000.
    #[serde(default)]
    #[param(minimum = 1, maximum = 4096)]
    limit: Option<usize>,
}

const _: () = assert!(DIFF_RANGES_MAX == 4096, "as the parameter says");

/// What differs between two snapshots of a volume, in pages. Without `since`: where it is not zeros.
///
/// Exactly the blocks of 4 KiB that read differently are named: neither what was overwritten with the same
/// data, nor what is the same again after a restore. It takes time in proportion to what was changed in
/// between. A node compares for half a second for one page; so a page may have fewer ranges than `limit`, or
/// none, although there is a `next` one. The snapshots may be named in either order. What the volume holds
/// now is not compared, because it changes meanwhile: take a snapshot.
///
/// A node whose copy does not have the snapshots forwards the request to one whose copy has.
#[utoipa::path(
    get, path = "/v1/snapshots/{snapshot}/diff", tag = "snapshots", operation_id = "diff_snapshots",
    params(("snapshot" = String, Path, description = "Snapshot name or number"), DiffParams),
    responses(
        (status = OK, description = "The ranges in which the volume differs in this snapshot from what it is in `since`", body = SnapshotDiff),
        (status = NOT_FOUND, description = "`snapshot_not_found`; `volume_not_found`"),
        (status = CONFLICT, description = "`not_in_snapshot`; `no_copy_has_both`: no copy has both snapshots; `no_copy_has_snapshot`; `not_compared`: the copy cannot be read now; `snapshot_preparing`"),
        (status = UNPROCESSABLE_ENTITY, description = "`field_invalid`: `offset` is behind the end of the volume"),
    ),
)]
pub(in crate::http) async fn diff(
    state: State,
    Segments(snapshot): Segments<String>,
    Parameters(DiffParams { volume, since, offset, limit }): Parameters<DiffParams>,
) -> Reply<SnapshotDiff> {
    let limit = limit_of(limit, RANGES, DIFF_RANGES_MAX)?;
    let spec = DiffSpec { volume, since, snapshot };
    let offset = offset.unwrap_or(0);
    let compare =
        move |control: Rc<Control>| async move { control.snapshot_diff(&spec, offset, limit).await };
    let page = state.call(compare).await?;
    let shown = |range: &store::ChangedRange| ChangedRange {
        offset: range.offset.0,
        len: range.len.0,
        zeroed: range.is_zeroed,
    };
    Ok(axum::Json(SnapshotDiff {
        volume: page.volume,
        since: page.since,
        snapshot: page.snapshot,
        size: page.size,
        ranges: page.ranges.iter().map(shown).collect(),
        next: page.next,
    }))
}

/// What a call compares, parsed as its handler does; `None`: the handler refuses it.
pub(in crate::http) fn compared(snapshot: String, uri: &Uri) -> Option<DiffSpec> {
    let Query(DiffParams { volume, since, .. }) = Query::try_from_uri(uri).ok()?;
    Some(DiffSpec { volume, since, snapshot })
}
