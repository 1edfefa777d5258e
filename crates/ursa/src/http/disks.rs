//! The block devices of a node's machine.

use std::path::PathBuf;
use std::rc::Rc;

use ::node::Control;
use api::{BlockDevice, List, Problem};
use axum::extract::State as Extracted;
use axum::http::StatusCode;

use super::input::Parameters;
use super::refusal::Refusal;
use super::state::State;
use super::there::OfNode;
use crate::block_devices;

/// The block devices of a node's machine, by name, and what uses them.
///
/// Those that are `unused` a pool takes as they are. A disk that nothing is known to use is read from, at its start: one that does not answer in two seconds is said to.
#[utoipa::path(
    get, path = "/v1/disks", tag = "pools", operation_id = "list_disks",
    params(OfNode),
    responses(
        (status = OK, description = "All of them", body = List<BlockDevice>),
        (status = BAD_REQUEST, description = "`query_invalid`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = NOT_FOUND, description = "`node_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`no_cluster`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = INTERNAL_SERVER_ERROR, description = "`disks_unknown`: the machine does not say which it has", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn list(
    Extracted(state): Extracted<State>,
    Parameters(OfNode { node }): Parameters<OfNode>,
) -> Result<axum::Json<List<BlockDevice>>, Refusal> {
    let of_pools = move |control: Rc<Control>| async move {
        control.check_is_here(node)?;
        let paths = control.pools().into_iter().flat_map(|pool| {
            let name = pool.name;
            pool.paths.into_iter().map(move |path| (path, name.clone()))
        });
        Ok(paths.collect::<Vec<(PathBuf, String)>>())
    };
    let pools = state.call(of_pools).await?;
    match block_devices::all(pools).await {
        Ok(disks) => Ok(axum::Json(List::of(disks))),
        Err(error) => {
            let detail = format!("this machine does not say which block devices it has: {error}");
            Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "disks_unknown", detail)
                .hint("name the disk by its path; `lsblk` on the node lists them"))
        }
    }
}
