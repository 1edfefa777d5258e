//! The description of the API (OpenAPI 3.1), from the code. `docs/openapi.json` is a copy of it to read and to
//! generate clients from.

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
        description = "A node of Ursa: clusters, pools, volumes, targets, LUN maps, host groups and sessions.\n\nSizes are bytes, times are seconds. Fields that do not exist are refused in requests; answers may grow fields. Errors are problem documents (RFC 9457) whose `code` does not change.\n\nChanges of different things go on side by side. One that has not ended within 45 seconds (a disk does not answer) is answered with 504 and `unfinished`, and goes on; one that waits longer than 15 seconds for another change of the same thing with 503 and `busy`, and nothing was done. Both say what is waited for; `GET /v1/node` lists the changes under way.\n\nWhat goes on when it was answered with 202, or with 504 and `unfinished`, is a job where the header `Location` names one: `GET` there says how far it is, and for a day (or until the node is restarted) how it has ended. No other change comes to be found there.\n\nA `POST` with a header `Idempotency-Key` (1 to 128 characters) is carried out once: sent again it gets the same answer, with `Idempotency-Replayed: true`, for a day or until the node is restarted; with another body it is refused (422 `idempotency_key_reused`), and while the first is under way, too (409 `idempotency_under_way`). What was answered with 5xx is not remembered. Answers with secrets are not kept (409 `already_done`). With `dry_run=true` changes of volumes, their copies and their strategy, deletions of targets, LUN maps, floating addresses and tokens, changes of targets, changes and deletions of host groups and users, the end of a session, taking a job back, all that is done with pools, a node's maintenance, taking a node out of the cluster, making a new cluster by force, and deciding whose data of a split volume is kept say what they would do; other calls refuse that (422 `dry_run_not_possible`).\n\nAny node of a cluster takes changes of all of its volumes. One that has no copy of a volume passes them on to a node that has one, and gives its answer, with the role and under the name of who asked. If no such node can be asked the answer is 503 `copy_unreachable`, with each of them and why (`candidates`): nothing was done. If one was asked and it is not known what has become of it, 504 `node_unanswered`: look before you repeat it. Pools, sessions, comparisons of copies and changes under way are a node's own: `node=2` asks for those of another one, which carries it out. If that one is not reached the answer is 503 `node_unreachable`: nothing was done.\n\nA volume that was made without copies is one node's alone, and its name is that node's own: if several nodes have one of a name, and the node that is asked has none, the answer is 409 `volume_ambiguous`, and `node=2` or the volume's identity says which is meant. A change of a name that a node may have which does not answer is 503 `node_unreachable`: nothing was done.\n\nWho asks proves itself by `Authorization: Bearer TOKEN`, or by the cookie that `POST /v1/login` gives; by cookie, changes need the header `X-Ursa-Request: 1`, too. `x-role` says which role a call needs: `viewer`, `operator` or `admin`, each of which may what those before it may; without it, none. Without a proof the answer is 401 (`login_needed`, `token_invalid`, `token_expired`), with too low a role 403 (`role_too_low`).",
    ),
    tags(
        (name = "access", description = "Users, their sessions, tokens for scripts, and who has done what"),
        (name = "node", description = "The node as a whole"),
        (name = "cluster", description = "Nodes that know each other: volumes have copies on several of them, targets and hosts are the same on all"),
        (name = "pools", description = "Disks that hold volumes together"),
        (name = "volumes", description = "What initiators use as disks"),
        (name = "targets", description = "What initiators log in to, and the volumes that they find there as LUNs"),
        (name = "hosts", description = "Initiators that are treated alike"),
        (name = "sessions", description = "Initiators that are logged in"),
        (name = "jobs", description = "What is under way, and what has ended lately"),
        (name = "events", description = "What happens"),
    ),
)]
struct Document;

/// Says of each call which role it needs, how that is proved, and what any call may be refused with.
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

    /// Set, it makes the test write the file instead of comparing it.
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
            "docs/openapi.json is out of date: write it with `{UPDATE}=1 cargo test -p ursa openapi`"
        );
    }
}
