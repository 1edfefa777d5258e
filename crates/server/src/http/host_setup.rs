//! What a machine needs to use volumes: the text of `ursa host-setup`.

use api::{HostSetup, HostSystem};
use axum::Json;
use axum::http::StatusCode;
use serde::Deserialize;
use terms::host_setup::{self, Setup, UnfitWord};
use utoipa::IntoParams;

use super::input::Parameters;
use super::refusal::{Refusal, Reply};

/// The number of addresses in a text: enough for each node of a large cluster, on several networks.
const PORTALS_MAX: usize = 64;

/// For which machine.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HostSetupParams {
    /// Operating system of the host.
    #[param(inline)]
    system: HostSystem,
    /// The target's iSCSI name.
    target: String,
    /// Addresses of nodes, with or without port, separated by commas: one for each network that the host is
    /// to use.
    portals: String,
    /// The host's CHAP name, if its host group has a CHAP secret.
    #[serde(default)]
    chap_user: Option<String>,
    /// The volume's NAA name in hexadecimal; used for Proxmox VE only.
    #[serde(default)]
    naa: Option<String>,
}

impl HostSetupParams {
    fn setup(&self) -> Result<Setup, UnfitWord> {
        Ok(Setup {
            target: host_setup::plain(&self.target)?,
            portals: self.portals.split(',').map(host_setup::plain).collect::<Result<_, _>>()?,
            chap_user: self.chap_user.as_deref().map(host_setup::user).transpose()?,
            naa: self.naa.as_deref().map(host_setup::plain).transpose()?,
            volume: None,
        })
    }
}

/// What a host needs to use volumes of a target: initiator, all paths and timeouts, ready to paste.
///
/// Nothing is looked up and nothing is changed: the text is that of `ursa host-setup` with the same names.
#[utoipa::path(
    get, path = "/v1/host-setup", tag = "hosts", operation_id = "show_host_setup",
    params(HostSetupParams),
    responses(
        (status = OK, description = "The text", body = HostSetup),
    ),
)]
pub(super) async fn show(Parameters(wanted): Parameters<HostSetupParams>) -> Reply<HostSetup> {
    let invalid = |detail: String| Refusal::new(StatusCode::BAD_REQUEST, "query_invalid", detail);
    let setup = wanted.setup().map_err(|error| invalid(error.to_string()))?;
    if setup.portals.len() > PORTALS_MAX {
        return Err(invalid(format!("`portals` can have at most {PORTALS_MAX} addresses")));
    }
    Ok(Json(HostSetup { text: host_setup::text(wanted.system, &setup) }))
}
