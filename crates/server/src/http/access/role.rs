//! Which call needs which role, as one table. A call that is not in it is refused. A test compares the table
//! with the API's description.

use api::Role;
use axum::http::Method;

/// What a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Need {
    /// Nothing: the caller is about to prove who it is, or learns only what anybody may know.
    Nothing,
    /// As [`Need::Nothing`] for programs of this machine, if that is configured; the role for others.
    RoleUnlessLocal(Role),
    /// A caller with at least this role.
    Role(Role),
}

use Need::{Nothing, RoleUnlessLocal};
const VIEWER: Need = Need::Role(Role::Viewer);
const OPERATOR: Need = Need::Role(Role::Operator);
const ADMIN: Need = Need::Role(Role::Admin);

/// Method, path, need.
///
/// A viewer sees everything but what volumes contain; an operator changes what hosts use, and so can read
/// that; an administrator changes machines, their disks, the cluster, and who may do what. Only an
/// administrator may name a path on a machine's disks, since a node may write there as root.
#[rustfmt::skip]
const TABLE: &[(&str, &str, Need)] = &[
    ("GET",    "/v1/health", Nothing),
    ("GET",    "/v1/openapi.json", Nothing),
    ("GET",    "/v1/access/state", Nothing),
    ("POST",   "/v1/setup", Nothing),
    ("POST",   "/v1/login", Nothing),
    ("POST",   "/v1/logout", Nothing),
    ("GET",    "/metrics", RoleUnlessLocal(Role::Viewer)),

    ("GET",    "/v1/whoami", VIEWER),
    ("PUT",    "/v1/password", VIEWER),
    ("GET",    "/v1/node", VIEWER),
    ("GET",    "/v1/nodes", VIEWER),
    ("GET",    "/v1/links", VIEWER),
    ("GET",    "/v1/floating-ips", VIEWER),
    ("GET",    "/v1/findings", VIEWER),
    ("GET",    "/v1/cluster/resync-limit", VIEWER),
    ("GET",    "/v1/cluster/verify-schedule", VIEWER),
    ("GET",    "/v1/pools", VIEWER),
    ("GET",    "/v1/pools/{name}", VIEWER),
    ("GET",    "/v1/pools/{name}/remains", VIEWER),
    ("GET",    "/v1/volumes", VIEWER),
    ("GET",    "/v1/volumes/{name}", VIEWER),
    ("GET",    "/v1/volumes/{name}/counters", VIEWER),
    ("GET",    "/v1/snapshots", VIEWER),
    ("GET",    "/v1/snapshots/{snapshot}", VIEWER),
    ("GET",    "/v1/snapshots/{snapshot}/diff", VIEWER),
    ("GET",    "/v1/snapshot-schedules", VIEWER),
    ("GET",    "/v1/snapshot-schedules/{schedule}", VIEWER),
    ("GET",    "/v1/targets", VIEWER),
    ("GET",    "/v1/targets/{name}", VIEWER),
    ("GET",    "/v1/hosts", VIEWER),
    ("GET",    "/v1/hosts/{name}", VIEWER),
    ("GET",    "/v1/sessions", VIEWER),
    ("GET",    "/v1/jobs", VIEWER),
    ("GET",    "/v1/jobs/{id}", VIEWER),
    ("GET",    "/v1/events", VIEWER),
    ("GET",    "/v1/events/stream", VIEWER),
    ("GET",    "/v1/live", VIEWER),
    ("GET",    "/v1/live/sample", VIEWER),
    ("GET",    "/v1/history", VIEWER),
    ("GET",    "/v1/forecasts", VIEWER),
    ("GET",    "/v1/host-setup", VIEWER),

    ("PUT",    "/v1/nodes/{id}/maintenance", OPERATOR),
    ("PUT",    "/v1/nodes/{id}/links", OPERATOR),
    ("PUT",    "/v1/cluster/resync-limit", OPERATOR),
    ("PUT",    "/v1/cluster/verify-schedule", OPERATOR),
    ("POST",   "/v1/pools/{name}/reopen", OPERATOR),
    ("POST",   "/v1/pools/{name}/accept-older", OPERATOR),
    ("POST",   "/v1/pools/{name}/acknowledge", OPERATOR),
    ("POST",   "/v1/pools/{name}/scrub", OPERATOR),
    ("POST",   "/v1/volumes", OPERATOR),
    ("PATCH",  "/v1/volumes/{name}", OPERATOR),
    ("DELETE", "/v1/volumes/{name}", OPERATOR),
    ("GET",    "/v1/volumes/{name}/verify", VIEWER),
    ("POST",   "/v1/volumes/{name}/verify", OPERATOR),
    ("GET",    "/v1/volumes/{name}/scrub", VIEWER),
    ("POST",   "/v1/volumes/{name}/scrub", OPERATOR),
    ("POST",   "/v1/volumes/{name}/convert", OPERATOR),
    ("POST",   "/v1/volumes/{name}/copies", OPERATOR),
    ("DELETE", "/v1/volumes/{name}/copies/{node}", OPERATOR),
    ("PUT",    "/v1/volumes/{name}/split-brain-policy", OPERATOR),
    ("PUT",    "/v1/volumes/{name}/split-brain", OPERATOR),
    ("POST",   "/v1/snapshots", OPERATOR),
    ("GET",    "/v1/snapshots/{snapshot}/data", OPERATOR),
    ("PATCH",  "/v1/snapshots/{snapshot}", OPERATOR),
    ("DELETE", "/v1/snapshots/{snapshot}", OPERATOR),
    ("POST",   "/v1/snapshots/{snapshot}/restore", OPERATOR),
    ("POST",   "/v1/snapshots/{snapshot}/clones", OPERATOR),
    ("POST",   "/v1/snapshot-schedules", OPERATOR),
    ("PATCH",  "/v1/snapshot-schedules/{schedule}", OPERATOR),
    ("DELETE", "/v1/snapshot-schedules/{schedule}", OPERATOR),
    ("POST",   "/v1/targets", OPERATOR),
    ("PATCH",  "/v1/targets/{name}", OPERATOR),
    ("DELETE", "/v1/targets/{name}", OPERATOR),
    ("POST",   "/v1/targets/{name}/maps", OPERATOR),
    ("DELETE", "/v1/targets/{name}/maps/{lun}", OPERATOR),
    ("POST",   "/v1/hosts", OPERATOR),
    ("PUT",    "/v1/hosts/{name}", OPERATOR),
    ("DELETE", "/v1/hosts/{name}", OPERATOR),
    ("DELETE", "/v1/sessions/{tsih}", OPERATOR),
    ("DELETE", "/v1/jobs/{id}", OPERATOR),
    ("POST",   "/v1/jobs/{id}/pause", OPERATOR),
    ("POST",   "/v1/jobs/{id}/resume", OPERATOR),

    ("POST",   "/v1/cluster", ADMIN),
    ("POST",   "/v1/cluster/tokens", ADMIN),
    ("POST",   "/v1/cluster/join", ADMIN),
    ("POST",   "/v1/cluster/force-new", ADMIN),
    ("POST",   "/v1/cluster/leave", ADMIN),
    ("PUT",    "/v1/cluster/preferred", ADMIN),
    ("DELETE", "/v1/nodes/{id}", ADMIN),
    ("POST",   "/v1/floating-ips", ADMIN),
    ("DELETE", "/v1/floating-ips/{address}", ADMIN),
    ("GET",    "/v1/disks", ADMIN),
    ("POST",   "/v1/pools", ADMIN),
    ("POST",   "/v1/pools/import", ADMIN),
    ("POST",   "/v1/pools/{name}/export", ADMIN),
    ("POST",   "/v1/pools/{name}/disks", ADMIN),
    ("POST",   "/v1/pools/{name}/remove-disk", ADMIN),
    ("POST",   "/v1/pools/{name}/grow", ADMIN),
    ("POST",   "/v1/pools/{name}/forget", ADMIN),
    ("GET",    "/v1/users", ADMIN),
    ("POST",   "/v1/users", ADMIN),
    ("PATCH",  "/v1/users/{name}", ADMIN),
    ("DELETE", "/v1/users/{name}", ADMIN),
    ("GET",    "/v1/tokens", ADMIN),
    ("POST",   "/v1/tokens", ADMIN),
    ("DELETE", "/v1/tokens/{id}", ADMIN),
    ("GET",    "/v1/audit", ADMIN),
];

/// What a call of a route needs; `None`: it is not in the table, and is refused.
pub(in crate::http) fn need(method: &Method, route: &str) -> Option<Need> {
    // A HEAD is executed as a GET whose body is not sent.
    let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
    TABLE.iter().find(|(of, path, _)| *of == method && *path == route).map(|(_, _, need)| *need)
}

/// Whether the table has the route, with any method.
pub(in crate::http) fn is_known(route: &str) -> bool {
    TABLE.iter().any(|(_, path, _)| *path == route)
}

/// All calls and what they need.
pub(in crate::http) fn all() -> impl Iterator<Item = (&'static str, &'static str, Need)> {
    TABLE.iter().copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_call_has_one_need_and_every_need_a_call() {
        let declared: Vec<(String, String)> =
            all().map(|(method, path, _)| (method.to_owned(), path.to_owned())).collect();
        let unique: BTreeSet<_> = declared.iter().cloned().collect();
        assert_eq!(unique.len(), declared.len(), "a call is there twice");
        let document = serde_json::to_value(crate::http::api().into_openapi()).unwrap();
        let mut there: BTreeSet<(String, String)> = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in ["get", "put", "post", "delete", "patch", "head", "options", "trace"] {
                if item.get(method).is_some() {
                    there.insert((method.to_uppercase(), path.clone()));
                }
            }
        }
        // These two are not part of the API's description.
        for path in ["/v1/openapi.json", "/metrics"] {
            there.insert(("GET".into(), path.into()));
        }
        assert_eq!(unique, there, "role.rs and the routes differ");
    }

    #[test]
    fn nothing_that_changes_something_is_a_viewers() {
        let own = ["/v1/setup", "/v1/login", "/v1/logout", "/v1/password"];
        for (method, path, need) in all().filter(|(method, path, _)| *method != "GET" && !own.contains(path))
        {
            assert!(need == OPERATOR || need == ADMIN, "{method} {path}");
        }
    }

    #[test]
    fn an_undeclared_call_is_refused_to_every_role() {
        assert_eq!(need(&Method::GET, "/v1/secrets"), None);
        assert_eq!(need(&Method::PUT, "/v1/volumes"), None);
        assert_eq!(need(&Method::HEAD, "/v1/volumes"), Some(VIEWER));
    }
}
