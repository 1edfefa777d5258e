//! The description of the API (OpenAPI 3.1), generated from the code. `docs/openapi.json` is a copy, for
//! readers and client generators.

mod parameters;
mod refusals;

use utoipa::OpenApi;
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityRequirement, SecurityScheme,
};

use super::access::{Need, needs};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Ursa",
        description = "The API of an Ursa node: clusters, pools, volumes, targets, LUN maps, host groups and sessions.\n\nSizes are bytes, times are seconds. Requests with unknown fields are refused; responses may get additional fields. Errors are problem documents (RFC 9457) whose `code` does not change.\n\nChanges to different objects run in parallel. If a change has not finished within 45 seconds (for example because a disk does not respond), the response is 504 `unfinished`, and the change continues. If it waits longer than 15 seconds for another change to the same object, the response is 503 `busy`, and nothing was done. Both responses say what the change is waiting for; `GET /v1/node` lists the changes in progress.\n\nAfter a 202, or a 504 `unfinished`, the work continues as a job if the response has a `Location` header: `GET` on it shows the progress and, for a day (or until the node is restarted), the result. It never refers to another change.\n\nA `POST` with an `Idempotency-Key` header (1 to 128 characters) is carried out once: if it is repeated within a day, and before the node is restarted, the same response is returned, with `Idempotency-Replayed: true`. With a different body it is refused (422 `idempotency_key_reused`), and while the first request is in progress, too (409 `idempotency_under_way`). Responses with 5xx are not remembered. Responses with secrets are not kept (409 `already_done`).\n\nWith `dry_run=true`, these calls show what they would do, and change nothing: changes of volumes, their copies and their split-brain policy; deletion of snapshots, their schedules, targets, LUN maps, floating IPs and tokens; changes of targets; changes and deletion of host groups and users; ending a session; cancelling a job; all changes of pools; maintenance of a node; removing a node from the cluster; forcing a new cluster; and resolving a split brain. Other calls refuse it (422 `dry_run_not_possible`).\n\nAny node of a cluster accepts changes to all volumes of the cluster. A node that has no copy of a volume forwards the request to a node that has one, under the name and role of the caller, and returns its response. If no such node can be reached, the response is 503 `copy_unreachable`, with the reason for each node (`candidates`): nothing was done. If the request was forwarded and its outcome is unknown, the response is 504 `node_unanswered`: check before you repeat it. Pools, sessions, verify runs and changes in progress belong to a node: `node=2` selects another node, which carries out the call. If that node is unreachable, the response is 503 `node_unreachable`: nothing was done.\n\nCallers authenticate with `Authorization: Bearer TOKEN`, or with the cookie from `POST /v1/login`; with a cookie, changes also require the header `X-Ursa-Request: 1`. `x-role` is the role that a call requires: `viewer`, `operator` or `admin`, each of which includes those before it; calls without `x-role` require none. Without valid authentication the response is 401 (`login_needed`, `token_invalid`, `token_expired`), with insufficient role 403 (`role_too_low`).",
    ),
    tags(
        (name = "access", description = "Users, logins, API tokens and the audit log"),
        (name = "node", description = "The node"),
        (name = "cluster", description = "Clusters of nodes: volumes have copies on several nodes; targets and host groups are the same on all"),
        (name = "pools", description = "Disks of a node, managed together, that volumes take their space from"),
        (name = "volumes", description = "Volumes, which hosts see as disks"),
        (name = "snapshots", description = "Snapshots of volumes: what they held at one point in time; and schedules by which they are taken"),
        (name = "targets", description = "iSCSI targets, and volumes mapped as their LUNs"),
        (name = "hosts", description = "Host groups: initiators that share access rights"),
        (name = "sessions", description = "Logins of initiators"),
        (name = "jobs", description = "Work in progress, and work that ended recently"),
        (name = "events", description = "Events"),
    ),
)]
struct Document;

/// Adds to each call the role that it needs, how callers prove it, and the refusals that any call may have.
pub(super) fn say_of_each(document: &mut utoipa::openapi::OpenApi) {
    let schemes = [
        ("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer))),
        ("session", SecurityScheme::ApiKey(ApiKey::Cookie(ApiKeyValue::new(api::SESSION_COOKIE)))),
    ];
    let components = document.components.get_or_insert_default();
    components.security_schemes.extend(schemes.map(|(name, scheme)| (name.to_owned(), scheme.into())));
    refusals::describe(document);
    for (method, path, need) in needs() {
        let Some(item) = document.paths.paths.get_mut(path) else { continue };
        let operation = match method {
            "GET" => &mut item.get,
            "PUT" => &mut item.put,
            "POST" => &mut item.post,
            "PATCH" => &mut item.patch,
            "DELETE" => &mut item.delete,
            _ => continue,
        };
        let Some(operation) = operation else { continue };
        refusals::say(method, operation, need);
        parameters::say(operation);
        parameters::say_key(method, operation, need);
        if let Need::Role(role) = need {
            let none: [&str; 0] = [];
            operation.security =
                Some(["token", "session"].map(|scheme| SecurityRequirement::new(scheme, none)).to_vec());
            let extension = [("x-role", role.as_str())].into_iter().collect();
            operation.extensions = Some(extension);
        }
    }
}

/// The document without the paths, which the router adds.
pub(super) fn document() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// If this variable is set, the test writes the file instead of comparing it.
    const UPDATE: &str = "URSA_UPDATE_OPENAPI";

    #[test]
    fn the_copy_is_up_to_date() {
        let mut document = crate::http::api().into_openapi();
        super::say_of_each(&mut document);
        let mut current = document.to_pretty_json().unwrap();
        current.push('\n');
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        if std::env::var_os(UPDATE).is_some() {
            std::fs::write(&path, &current).unwrap();
        }
        let copy = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            copy == current,
            "docs/openapi.json is out of date: write it with `{UPDATE}=1 cargo test -p server openapi`"
        );
    }
}
