//! What a snapshot has of a volume, as bytes.

use std::rc::Rc;

use ::node::Control;
use ::node::control::{SNAPSHOT_READ_BYTES_MAX, VolumeAt};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use base::{ByteLen, ByteOffset};
use serde::Deserialize;
use utoipa::IntoParams;

use super::super::input::{Parameters, Segments};
use super::super::refusal::Refusal;
use super::super::state::State;

/// Which bytes of which volume.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct ReadParams {
    /// Volume name or ID.
    volume: String,
    /// Where the bytes begin in the volume.
    offset: u64,
    /// Number of bytes: at most 4 MiB.
    #[param(maximum = 4194304)]
    len: u64,
}

const _: () = assert!(SNAPSHOT_READ_BYTES_MAX == 4_194_304, "as the parameter says");
const _: () = assert!(SNAPSHOT_READ_BYTES_MAX == api::SNAPSHOT_READ_BYTES_MAX, "as clients expect");

/// Reads a range of a volume as a snapshot has it.
///
/// The response has exactly `len` bytes. What was never written is zeros. The node reads its own copy, or
/// that of another node. `GET /v1/snapshots/{snapshot}/diff` without `since` names the ranges that are not
/// zeros.
///
/// It needs an operator, who can map any volume to any host in any case.
#[utoipa::path(
    get, path = "/v1/snapshots/{snapshot}/data", tag = "snapshots", operation_id = "read_snapshot",
    params(("snapshot" = String, Path, description = "Snapshot name or number"), ReadParams),
    responses(
        (status = OK, description = "The bytes", body = String, content_type = "application/octet-stream"),
        (status = NOT_FOUND, description = "`snapshot_not_found`; `volume_not_found`"),
        (status = CONFLICT, description = "`not_in_snapshot`; `no_copy_has_snapshot`: no copy has the snapshot any more; `snapshot_preparing`"),
        (status = UNPROCESSABLE_ENTITY, description = "`field_invalid`: the range ends behind the end of the volume, or is too long"),
        (status = SERVICE_UNAVAILABLE, description = "`snapshot_unread`: no copy that has the snapshot can be read now"),
    ),
)]
pub(in crate::http) async fn read(
    state: State,
    Segments(snapshot): Segments<String>,
    Parameters(ReadParams { volume, offset, len }): Parameters<ReadParams>,
) -> Result<Response, Refusal> {
    let at = VolumeAt { volume, snapshot };
    let read = move |control: Rc<Control>| async move {
        control.read_snapshot(&at, ByteOffset(offset), ByteLen(len)).await
    };
    let data = state.call(read).await?;
    let mut bytes = Vec::with_capacity(data.len());
    data.parts().iter().for_each(|part| bytes.extend_from_slice(part));
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    Ok((headers, bytes).into_response())
}
