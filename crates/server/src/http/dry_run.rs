//! `?dry_run=true`: a call reports what it would change, or why it is refused, and changes nothing.
//!
//! A call that has no dry run refuses the parameter: a caller that only asks must not cause the change.
//!
//! The functions `would_…` and those of the modules `would` find out what a call would do: they return steps
//! for people, or the whole answer.

use api::DryRun;
use axum::Json;
use axum::extract::Request;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::refusal::Refusal;

const CALLS: [(&str, &str); 36] = [
    ("POST", "/v1/volumes"),
    ("PATCH", "/v1/volumes/{name}"),
    ("DELETE", "/v1/volumes/{name}"),
    ("POST", "/v1/volumes/{name}/convert"),
    ("POST", "/v1/volumes/{name}/copies"),
    ("DELETE", "/v1/volumes/{name}/copies/{node}"),
    ("PUT", "/v1/volumes/{name}/split-brain-policy"),
    ("PUT", "/v1/volumes/{name}/split-brain"),
    ("DELETE", "/v1/snapshots/{snapshot}"),
    ("POST", "/v1/snapshots/{snapshot}/restore"),
    ("POST", "/v1/snapshots/{snapshot}/clones"),
    ("DELETE", "/v1/snapshot-schedules/{schedule}"),
    ("PATCH", "/v1/targets/{name}"),
    ("DELETE", "/v1/targets/{name}"),
    ("DELETE", "/v1/targets/{name}/maps/{lun}"),
    ("PUT", "/v1/hosts/{name}"),
    ("DELETE", "/v1/hosts/{name}"),
    ("DELETE", "/v1/sessions/{tsih}"),
    ("POST", "/v1/pools"),
    ("POST", "/v1/pools/import"),
    ("POST", "/v1/pools/{name}/disks"),
    ("POST", "/v1/pools/{name}/remove-disk"),
    ("POST", "/v1/pools/{name}/grow"),
    ("POST", "/v1/pools/{name}/export"),
    ("POST", "/v1/pools/{name}/reopen"),
    ("POST", "/v1/pools/{name}/accept-older"),
    ("POST", "/v1/pools/{name}/forget"),
    ("DELETE", "/v1/jobs/{id}"),
    ("PATCH", "/v1/users/{name}"),
    ("DELETE", "/v1/users/{name}"),
    ("DELETE", "/v1/tokens/{id}"),
    ("PUT", "/v1/nodes/{id}/maintenance"),
    ("DELETE", "/v1/nodes/{id}"),
    ("DELETE", "/v1/floating-ips/{address}"),
    ("POST", "/v1/cluster/force-new"),
    ("POST", "/v1/cluster/leave"),
];

/// The result of a call, or of its dry run.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Answer<T> {
    /// Result of the call.
    Done(T),
    /// With `dry_run`: what would be done.
    Would(DryRun),
}

/// Whether it is done.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DryRunParam {
    /// Dry run: show what would be done, and change nothing.
    #[serde(default)]
    pub(super) dry_run: bool,
}

/// Refuses a dry run of a call that has none.
///
/// # Errors
/// 422 `dry_run_not_possible`. 400 for a value other than true or false, and for a parameter whose name
/// contains `%`: it might be `dry_run`.
pub(super) fn check(request: &Request, route: &str) -> Result<(), Refusal> {
    let pairs = request.uri().query().unwrap_or_default().split('&');
    if let Some(name) = pairs.filter_map(|pair| pair.split('=').next()).find(|name| name.contains('%')) {
        let detail = format!("parameter names must not contain `%`: {name:?}; nothing was done");
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "query_invalid", detail));
    }
    let Some(value) = value(request.uri()) else { return Ok(()) };
    match value {
        "=false" => Ok(()),
        "=true" if CALLS.contains(&(request.method().as_str(), route)) => Ok(()),
        "=true" => {
            let calls = CALLS.map(|(method, path)| format!("{method} {path}")).join(", ");
            let detail = "this call does not support a dry run; nothing was done";
            Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "dry_run_not_possible", detail)
                .hint(format!("these calls do: {calls}")))
        }
        _ => {
            let detail = "`dry_run` must be true or false; nothing was done";
            Err(Refusal::new(StatusCode::BAD_REQUEST, "query_invalid", detail))
        }
    }
}

/// Whether the request is a dry run.
pub(super) fn is_asked(uri: &Uri) -> bool {
    value(uri) == Some("=true")
}

/// What follows `dry_run` in the query.
fn value(uri: &Uri) -> Option<&str> {
    let values = uri.query()?.split('&').filter_map(|pair| pair.strip_prefix("dry_run"));
    values.into_iter().find(|rest| rest.is_empty() || rest.starts_with('='))
}

/// The response to a dry run that is not refused.
pub(super) fn would(steps: Vec<String>, candidates: Vec<api::Candidate>) -> Response {
    Json(DryRun { would: steps, candidates }).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use axum::body::Body;

    use super::*;

    fn checked(method: &str, uri: &str, route: &str) -> Option<String> {
        let request = Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
        check(&request, route).err().map(|refusal| refusal.code().to_owned())
    }

    /// A call of the list whose handler does not take the parameter would be carried out.
    #[test]
    fn the_handlers_of_these_calls_take_the_parameter_and_no_others_do() {
        let document = serde_json::to_value(crate::http::api().into_openapi()).unwrap();
        let mut taken = BTreeSet::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let mut parameters = operation["parameters"].as_array().into_iter().flatten();
                if parameters.any(|parameter| parameter["name"] == "dry_run") {
                    taken.insert((method.to_uppercase(), path.clone()));
                }
            }
        }
        let calls = CALLS.map(|(method, path)| (method.to_owned(), path.to_owned()));
        assert_eq!(taken, BTreeSet::from(calls));
    }

    #[test]
    fn calls_without_a_dry_run_refuse_it() {
        assert_eq!(checked("POST", "/v1/volumes?dry_run=true", "/v1/volumes"), None);
        assert_eq!(checked("POST", "/v1/volumes?x=dry_run=true", "/v1/volumes"), None);
        let refused = Some("dry_run_not_possible".to_owned());
        assert_eq!(checked("POST", "/v1/hosts?a=b&dry_run=true", "/v1/hosts"), refused);
        assert_eq!(checked("POST", "/v1/hosts?dry_run=false", "/v1/hosts"), None);
        for value in ["", "=", "=1", "=TRUE", "=yes"] {
            let uri = format!("/v1/volumes?dry_run{value}");
            assert_eq!(checked("POST", &uri, "/v1/volumes").as_deref(), Some("query_invalid"), "{value}");
        }
        for query in ["dry%5Frun=true", "a=%20&%64ry_run=true"] {
            let uri = format!("/v1/hosts?{query}");
            assert_eq!(checked("POST", &uri, "/v1/hosts").as_deref(), Some("query_invalid"), "{query}");
        }
        assert_eq!(checked("POST", "/v1/hosts?a=%20", "/v1/hosts"), None);
    }
}
