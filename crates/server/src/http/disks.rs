//! The block devices of a node's machine.

use std::path::PathBuf;
use std::rc::Rc;

use ::node::Control;
use api::{BlockDevice, List};
use axum::http::StatusCode;

use super::input::Parameters;
use super::node_param::OfNode;
use super::refusal::{Refusal, Reply};
use super::state::State;
use crate::block_devices;

/// The block devices of a node's machine, by name, and what uses them.
///
/// A pool can use those that are `unused` as they are. A disk without a known user is read at its start;
/// `problem` says so if it does not respond within two seconds.
#[utoipa::path(
    get, path = "/v1/disks", tag = "pools", operation_id = "list_disks",
    params(OfNode),
    responses(
        (status = OK, description = "All of them", body = List<BlockDevice>),
        (status = INTERNAL_SERVER_ERROR, description = "`disks_unknown`: the machine's block devices cannot be listed"),
    ),
)]
pub(super) async fn list(
    state: State,
    Parameters(OfNode { node }): Parameters<OfNode>,
) -> Reply<List<BlockDevice>> {
    let of_pools = |control: Rc<Control>| async move {
        let paths = control.pools().into_iter().flat_map(|pool| {
            let name = pool.name;
            pool.paths.into_iter().map(move |path| (path, name.clone()))
        });
        Ok(paths.collect::<Vec<(PathBuf, String)>>())
    };
    let pools = state.call_on(node, of_pools).await?;
    match block_devices::all(pools).await {
        Ok(disks) => Ok(axum::Json(List::of(disks))),
        Err(error) => {
            let detail = format!("cannot list the block devices of this machine: {error}");
            Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "disks_unknown", detail)
                .hint("give the path of the disk; `lsblk` on the node lists them"))
        }
    }
}
