//! Floating IPs.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ::node::Control;
use ::node::access::AddressRange;
use ::node::control::{AddressHere, AddressSpec, AddressStatus, ControlError};
use api::{AddressState, AddressTrouble, DryRun, FloatingAddress, FloatingAddressAdd, List};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::dry_run::{self, DryRunParam};
use super::input::{Json, Parameters, Segments};
use super::peers::{self, Answers, PeerQuery};
use super::refusal::{Refusal, Reply};
use super::state::State;

/// All floating IPs of the cluster, and the node that holds each.
///
/// Each node reports what is configured on its devices. If a holder does not answer within two seconds, this
/// is unknown (`state`).
#[utoipa::path(
    get, path = "/v1/floating-ips", tag = "cluster", operation_id = "list_addresses",
    responses(
        (status = OK, description = "All of them", body = List<FloatingAddress>),
    ),
)]
pub(super) async fn list(state: State) -> Reply<List<FloatingAddress>> {
    let all = state.call(|control| async move {
        let (statuses, unreadable) = (control.addresses()?, control.unreadable_addresses()?);
        let (_, others) = peers::QueriedNodes::All.of(&control);
        let others = others.into_iter().filter(|_| !statuses.is_empty());
        let queries = others.map(|node| (node, PeerQuery::Addresses)).collect();
        let answers = peers::ask(&control, queries).await?;
        let said = NodeReports::new(&control, answers);
        let readable = statuses.into_iter().map(|status| shown(status, &said));
        Ok(readable.chain(unreadable.into_iter().map(shown_unreadable)).collect())
    });
    Ok(axum::Json(List::of(all.await?)))
}

/// The floating IPs as this node itself sees them.
pub(super) fn here(control: &Control) -> Vec<AddressHere> {
    control.addresses_here()
}

/// Adds a floating IP: held by one node at a time, taken over by another when that node fails or stops.
///
/// It is configured on a network device of the holder, which needs permission to do so (CAP_NET_ADMIN).
/// `troubles` says why this failed.
#[utoipa::path(
    post, path = "/v1/floating-ips", tag = "cluster", operation_id = "add_address",
    request_body = FloatingAddressAdd,
    responses(
        (status = CREATED, description = "The address; a node takes it over shortly", body = FloatingAddress),
        (status = NOT_FOUND, description = "`node_not_found`"),
        (status = CONFLICT, description = "`address_exists`; `address_unreadable`: a later version wrote an address whose portal group this node cannot read"),
    ),
)]
pub(super) async fn add(
    state: State,
    Json(new): Json<FloatingAddressAdd>,
) -> Result<(StatusCode, axum::Json<FloatingAddress>), Refusal> {
    let FloatingAddressAdd { address, device, nodes, prefer } = new;
    let address = parse(&address)?;
    let (address, prefix) = (address.address(), address.prefix());
    let spec = AddressSpec { address, prefix, device, nodes, prefer };
    let added = state.call(|control| async move {
        let added = control.add_address(spec).await?;
        Ok(shown(added, &NodeReports::new(&control, Answers::default())))
    });
    Ok((StatusCode::CREATED, axum::Json(added.await?)))
}

/// Removes a floating IP: its holder releases it, and sessions through it end.
#[utoipa::path(
    delete, path = "/v1/floating-ips/{address}", tag = "cluster", operation_id = "remove_address",
    params(("address" = String, Path, description = "The address, without prefix length"), DryRunParam),
    responses(
        (status = NO_CONTENT, description = "Done"),
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = NOT_FOUND, description = "`address_not_found`"),
        (status = CONFLICT, description = "`address_unreadable`: a later version wrote it"),
    ),
)]
pub(super) async fn remove(
    state: State,
    Segments(address): Segments<String>,
    Parameters(DryRunParam { dry_run }): Parameters<DryRunParam>,
) -> Result<Response, Refusal> {
    let known: IpAddr = address.parse().map_err(|_| ControlError::not_found("address", &address))?;
    if dry_run {
        let would = state.call(move |control| async move {
            let said = NodeReports::new(&control, Answers::default());
            Ok(would_remove(&shown(control.address(known)?, &said)))
        });
        return Ok(dry_run::would(would.await?, Vec::new()));
    }
    state.call(move |control| async move { control.remove_address(known).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn would_remove(address: &FloatingAddress) -> Vec<String> {
    let text = &address.address;
    vec![match &address.holder_name {
        Some(name) => {
            format!("{name} releases {text}: sessions through it end, and hosts can no longer connect to it")
        }
        None if address.state == AddressState::Unreadable => format!(
            "{text} is no longer a floating IP; this node cannot read which node holds it: sessions through it end there"
        ),
        None => format!("{text} is no longer a floating IP; no node holds it now"),
    }]
}

/// An address with a prefix length, or a single address.
fn parse(text: &str) -> Result<AddressRange, Refusal> {
    let reason = "write an address with prefix length, such as 192.0.2.10/24 or fd00::10/64";
    text.parse().map_err(|_| ControlError::Invalid { field: "address", reason }.into())
}

/// What nodes report about floating IPs on themselves.
struct NodeReports {
    /// By node; without nodes that did not answer.
    here: BTreeMap<u16, Vec<AddressHere>>,
    names: BTreeMap<u16, String>,
}

impl NodeReports {
    fn new(control: &Control, answers: Answers) -> NodeReports {
        let (theirs, _) = answers.each(|text| serde_json::from_str::<Vec<AddressHere>>(text));
        let mut here: BTreeMap<u16, Vec<AddressHere>> =
            theirs.into_iter().map(|theirs| (theirs.node, theirs.has)).collect();
        here.insert(control.number(), control.addresses_here());
        NodeReports { here, names: control.node_names() }
    }

    fn name(&self, node: u16) -> String {
        self.names.get(&node).cloned().unwrap_or_default()
    }

    /// Whether the holder has the address.
    fn state_of(&self, status: &AddressStatus) -> AddressState {
        if status.is_unreadable {
            return AddressState::Unreadable;
        }
        let Some((holder, _)) = status.holder else { return AddressState::Nobody };
        let of_holder = self.here.get(&holder);
        let reached = |here: &AddressHere| here.address == status.spec.address && here.is_reached;
        match of_holder.map(|all| all.iter().any(reached)) {
            Some(true) => AddressState::Held,
            Some(false) => AddressState::Taking,
            None => AddressState::Unknown,
        }
    }

    /// Why nodes cannot configure the address, or cannot release it.
    fn troubles_of(&self, address: IpAddr) -> Vec<AddressTrouble> {
        let of_node = |(node, all): (&u16, &Vec<AddressHere>)| {
            let here = all.iter().find(|here| here.address == address)?;
            let text = here.trouble.as_ref()?.to_string();
            Some(AddressTrouble { node: *node, node_name: self.name(*node), text })
        };
        self.here.iter().filter_map(of_node).collect()
    }
}

fn shown(status: AddressStatus, said: &NodeReports) -> FloatingAddress {
    let (state, troubles) = (said.state_of(&status), said.troubles_of(status.spec.address));
    let AddressStatus { spec, group, holder, waits, is_unreadable: _ } = status;
    let AddressSpec { address, prefix, device, nodes, prefer } = spec;
    FloatingAddress {
        address: format!("{address}/{prefix}"),
        device,
        nodes,
        prefer,
        portal_group: Some(group),
        holder: holder.map(|(node, _)| node),
        holder_name: holder.and_then(|(node, _)| said.names.get(&node).cloned()),
        since: holder.map(|(_, since)| since),
        waits,
        state,
        troubles,
    }
}

/// A floating IP whose entry this version can read only in part: the address.
fn shown_unreadable(address: String) -> FloatingAddress {
    FloatingAddress {
        address,
        device: None,
        nodes: Vec::new(),
        prefer: None,
        portal_group: None,
        holder: None,
        holder_name: None,
        since: None,
        waits: false,
        state: AddressState::Unreadable,
        troubles: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use ::node::floating::DeviceTrouble;

    use super::*;

    #[test]
    fn the_holder_says_whether_it_has_it() {
        let address: IpAddr = "192.0.2.10".parse().unwrap();
        let here = |is_reached, trouble| AddressHere { address, is_reached, trouble };
        let said = NodeReports {
            here: BTreeMap::from([
                (1, vec![here(true, None)]),
                (2, vec![here(false, Some(DeviceTrouble::ThreadGone))]),
                (3, Vec::new()),
            ]),
            names: BTreeMap::from([(2, "san2".to_owned())]),
        };
        let state = |holder: Option<u16>| {
            let spec = AddressSpec { address, prefix: 24, device: None, nodes: Vec::new(), prefer: None };
            let holder = holder.map(|node| (node, 0));
            let status = AddressStatus { spec, group: 65280, holder, waits: false, is_unreadable: false };
            let unreadable = AddressStatus { is_unreadable: true, ..status.clone() };
            assert_eq!(said.state_of(&unreadable), AddressState::Unreadable);
            said.state_of(&status)
        };
        assert_eq!(state(None), AddressState::Nobody);
        assert_eq!(
            [1, 2, 3, 4].map(|node| state(Some(node))),
            [AddressState::Held, AddressState::Taking, AddressState::Taking, AddressState::Unknown,]
        );
        let trouble =
            AddressTrouble { node: 2, node_name: "san2".into(), text: DeviceTrouble::ThreadGone.to_string() };
        assert_eq!(said.troubles_of(address), [trouble]);
        assert_eq!(said.troubles_of("192.0.2.11".parse().unwrap()), []);
    }

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
