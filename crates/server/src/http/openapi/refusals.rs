//! Refusals that calls have in common: described once, and added to each call according to its properties. A
//! call describes only the status and the codes of its own refusals; their body is added here.

use api::Problem;
use axum::http::StatusCode as Status;
use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::{Content, OpenApi, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{PartialSchema, ToSchema};

use super::Need;

/// Status, name and description of each.
const COMMON: [(Status, &str, &str); 13] = [
    (
        Status::BAD_REQUEST,
        "BadRequest",
        "`json_syntax`, `body_unreadable`, `path_invalid`, `query_invalid`, `idempotency_key_invalid`",
    ),
    (
        Status::UNAUTHORIZED,
        "Unauthorized",
        "`login_needed`, `token_invalid`, `token_expired`: with WWW-Authenticate",
    ),
    (
        Status::FORBIDDEN,
        "Forbidden",
        "`role_too_low`, `request_header_missing`, `cross_origin`, `peer_not_local`",
    ),
    (Status::NOT_FOUND, "NodeNotFound", "`node_not_found`"),
    (
        Status::CONFLICT,
        "Conflict",
        "`idempotency_under_way`, `already_done`, `changed_meanwhile`, `entry_unreadable`, and limits reached: `too_many_...`",
    ),
    (Status::PAYLOAD_TOO_LARGE, "TooLarge", "`body_too_large`"),
    (Status::UNSUPPORTED_MEDIA_TYPE, "NotJson", "`not_json`"),
    (
        Status::MISDIRECTED_REQUEST,
        "Misdirected",
        "`host_not_local`: the Host header is not an address of this machine",
    ),
    (
        Status::UNPROCESSABLE_ENTITY,
        "Unprocessable",
        "`field_invalid`, `dry_run_not_possible`, `idempotency_key_reused`",
    ),
    (
        Status::INTERNAL_SERVER_ERROR,
        "Failed",
        "`internal`, `listen`, `disk_failed`, `record_failed`, `cluster_failed`: the detail contains the error of the system",
    ),
    (
        Status::SERVICE_UNAVAILABLE,
        "Unavailable",
        "With Retry-After. `not_running`, `busy` (nothing was done), `record_read_only`, `record_unavailable`, `record_behind` (what was not found may exist), `cluster_unavailable`, `pool_read_only`, `pool_unavailable`, `volume_unavailable`, `node_unreachable`, `copy_unreachable` (nothing was done), `too_many_keys`",
    ),
    (
        Status::GATEWAY_TIMEOUT,
        "Late",
        "`unfinished` (it continues as the job that `Location` names), `node_unanswered` and `record_unanswered` (it is unknown whether it was done: check before you repeat it), `core_silent`, `timeout`",
    ),
    (Status::INSUFFICIENT_STORAGE, "Full", "`record_full`, `metadata_full`"),
];

/// The properties of a call that determine its common refusals.
struct Traits {
    changes: bool,
    needs_role: bool,
    has_body: bool,
    in_path: bool,
    in_query: bool,
    names_node: bool,
    is_post: bool,
}

impl Traits {
    fn of(method: &str, operation: &Operation, need: Need) -> Traits {
        let is_any = |wanted: fn(&Parameter) -> bool| {
            operation.parameters.iter().flatten().any(|parameter| match parameter {
                RefOr::T(parameter) => wanted(parameter),
                // Our parameters are never references.
                RefOr::Ref(_) => false,
            })
        };
        Traits {
            changes: method != "GET",
            needs_role: need != Need::Nothing,
            has_body: operation.request_body.is_some(),
            in_path: is_any(|parameter| parameter.parameter_in == ParameterIn::Path),
            in_query: is_any(|parameter| parameter.parameter_in == ParameterIn::Query),
            names_node: is_any(|parameter| {
                parameter.parameter_in == ParameterIn::Query && parameter.name == "node"
            }),
            is_post: method == "POST",
        }
    }

    fn may_be(&self, status: Status) -> bool {
        let deed = self.changes && self.needs_role;
        match status {
            Status::BAD_REQUEST => self.has_body || self.in_path || self.in_query || self.is_post,
            Status::UNAUTHORIZED => self.needs_role,
            // All calls refuse pages of other sites, and other machines without TLS.
            Status::FORBIDDEN | Status::MISDIRECTED_REQUEST => true,
            Status::NOT_FOUND => self.names_node,
            Status::CONFLICT => deed,
            Status::PAYLOAD_TOO_LARGE => self.has_body || self.is_post,
            Status::UNSUPPORTED_MEDIA_TYPE => self.has_body,
            Status::UNPROCESSABLE_ENTITY => self.has_body || deed,
            Status::INTERNAL_SERVER_ERROR | Status::INSUFFICIENT_STORAGE => deed,
            Status::SERVICE_UNAVAILABLE | Status::GATEWAY_TIMEOUT => true,
            _ => false,
        }
    }
}

/// Adds the descriptions to the document.
pub(super) fn describe(document: &mut OpenApi) {
    let components = document.components.get_or_insert_default();
    components.schemas.insert(Problem::name().into_owned(), Problem::schema());
    for (_, name, description) in COMMON {
        components.responses.insert(name.to_owned(), problem(description).into());
    }
}

fn problem(description: &str) -> Response {
    let content = Content::new(Some(Ref::from_schema_name(Problem::name())));
    ResponseBuilder::new().description(description).content(Problem::MEDIA_TYPE, content).build()
}

/// Adds the refusals that a call may have, and the body of those that it describes itself.
pub(super) fn say(method: &str, operation: &mut Operation, need: Need) {
    let traits = Traits::of(method, operation, need);
    for (status, response) in &mut operation.responses.responses {
        if let RefOr::T(response) = response
            && status.starts_with(['4', '5'])
        {
            *response = problem(&response.description);
        }
    }
    for (status, name, _) in COMMON.into_iter().filter(|(status, ..)| traits.may_be(*status)) {
        let responses = &mut operation.responses.responses;
        responses.entry(status.as_str().to_owned()).or_insert_with(|| Ref::from_response_name(name).into());
    }
}
