//! Floating portal addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ::node::access::AddressRange;
use ::node::control::{AddressSpec, AddressStatus, ControlError};
use api::{DryRun, FloatingAddress, FloatingAddressAdd, List, Problem};
use axum::extract::State as Extracted;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::dry_run::{self, Asked};
use super::input::{Json, Parameters, Segments};
use super::refusal::Refusal;
use super::state::State;

/// All floating portal addresses of the cluster, and who has each.
#[utoipa::path(
    get, path = "/v1/addresses", tag = "cluster", operation_id = "list_addresses",
    responses(
        (status = OK, description = "All of them", body = List<FloatingAddress>),
        (status = CONFLICT, description = "`no_cluster`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn list(
    Extracted(state): Extracted<State>,
) -> Result<axum::Json<List<FloatingAddress>>, Refusal> {
    let all = state.call(|control| async move {
        let names = control.node_names();
        Ok(control.addresses()?.into_iter().map(|status| shown(status, &names)).collect())
    });
    Ok(axum::Json(List::of(all.await?)))
}

/// Declares a floating portal address: one node has it at a time, and another one takes it when that is lost or stops.
///
/// It is put on a network device of the node that has it, which needs the right to do that there (CAP_NET_ADMIN). `trouble` says why it could not.
#[utoipa::path(
    post, path = "/v1/addresses", tag = "cluster", operation_id = "add_address",
    request_body = FloatingAddressAdd,
    responses(
        (status = CREATED, description = "The address; a node takes it in a moment", body = FloatingAddress),
        (status = NOT_FOUND, description = "`node_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`no_cluster`, `address_exists`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = UNPROCESSABLE_ENTITY, description = "`field_invalid`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = SERVICE_UNAVAILABLE, description = "`record_unavailable`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn add(
    Extracted(state): Extracted<State>,
    Json(new): Json<FloatingAddressAdd>,
) -> Result<(StatusCode, axum::Json<FloatingAddress>), Refusal> {
    let FloatingAddressAdd { address, device, nodes, prefer } = new;
    let address = parse(&address)?;
    let (address, prefix) = (address.address(), address.prefix());
    let spec = AddressSpec { address, prefix, device, nodes, prefer };
    let added = state.call(|control| async move {
        let names = control.node_names();
        Ok(shown(control.add_address(spec).await?, &names))
    });
    Ok((StatusCode::CREATED, axum::Json(added.await?)))
}

/// Removes a floating portal address: the node that has it takes it off, and sessions through it end.
#[utoipa::path(
    delete, path = "/v1/addresses/{address}", tag = "cluster", operation_id = "remove_address",
    params(("address" = String, Path, description = "The address, without the length of its network"), Asked),
    responses(
        (status = NO_CONTENT, description = "Done"),
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = NOT_FOUND, description = "`address_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`no_cluster`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = SERVICE_UNAVAILABLE, description = "`record_unavailable`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn remove(
    Extracted(state): Extracted<State>,
    Segments(address): Segments<String>,
    Parameters(Asked { dry_run }): Parameters<Asked>,
) -> Result<Response, Refusal> {
    let known: IpAddr = address.parse().map_err(|_| ControlError::not_found("address", &address))?;
    if dry_run {
        let would = state.call(move |control| async move {
            let names = control.node_names();
            Ok(would_remove(&shown(control.address(known)?, &names)))
        });
        return Ok(dry_run::would(would.await?, Vec::new()));
    }
    state.call(move |control| async move { control.remove_address(known).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn would_remove(address: &FloatingAddress) -> Vec<String> {
    let text = &address.address;
    match &address.holder_name {
        Some(name) => {
            vec![format!(
                "{name} takes {text} off: sessions through it end, and nobody is reached there any more"
            )]
        }
        None => vec![format!("{text} is no floating address any more; no node has it now")],
    }
}

/// An address with the length of its network, or of one address alone.
fn parse(text: &str) -> Result<AddressRange, Refusal> {
    let reason = "write an address and the length of its network, as in 192.0.2.10/24 or fd00::10/64";
    text.parse().map_err(|_| ControlError::Invalid { field: "address", reason }.into())
}

fn shown(status: AddressStatus, names: &BTreeMap<u16, String>) -> FloatingAddress {
    let AddressStatus { spec, group, holder, waits, trouble } = status;
    let AddressSpec { address, prefix, device, nodes, prefer } = spec;
    FloatingAddress {
        address: format!("{address}/{prefix}"),
        device,
        nodes,
        prefer,
        portal_group: group,
        holder: holder.map(|(node, _)| node),
        holder_name: holder.and_then(|(node, _)| names.get(&node).cloned()),
        since: holder.map(|(_, since)| since),
        waits,
        trouble,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_come_without_its_network() {
        let parsed = |text| parse(text).ok().map(|one| (one.address().to_string(), one.prefix()));
        assert_eq!(parsed("192.0.2.10/24"), Some(("192.0.2.10".into(), 24)));
        assert_eq!(parsed("192.0.2.10"), Some(("192.0.2.10".into(), 32)));
        assert_eq!(parsed("fd00::10"), Some(("fd00::10".into(), 128)));
        for text in ["", "192.0.2.10/", "192.0.2.10/x", "192.0.2/24", "192.0.2.10:3260", "192.0.2.10/300"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
