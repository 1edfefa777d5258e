//! The HTTP interface: JSON under `/v1`, described by `/v1/openapi.json`, `/metrics`, and the console at `/`.
//!
//! It holds no state of the node. Handlers translate a request into a call of the node's control on core 0,
//! and the plain types that it returns into those of crate `api`. A change that has begun runs to its end,
//! even if the client disconnects.
//!
//! [`guard`] decides which connections are accepted at all, [`access`] who may do what.

mod access;
mod addresses;
mod audit;
mod certificate;
mod cluster;
mod coalesce;
mod console;
mod deadline;
mod disks;
mod dry_run;
mod events;
mod findings;
mod forecasts;
mod forwarding;
mod guard;
mod history;
mod host_setup;
mod hosts;
mod idempotency;
mod input;
mod inquiries;
mod jobs;
mod links;
mod live;
mod node;
mod node_param;
mod openapi;
mod peers;
mod people;
mod pools;
mod refusal;
mod server;
mod sessions;
mod since;
mod snapshots;
mod state;
mod stream;
mod targets;
#[cfg(test)]
mod tests;
mod volumes;
mod write_timeout;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use self::access::{Access, CredentialLeft, Opening};
pub use self::certificate::{Certificate, CertificateError, CertificateFault, CertificateFiles};
pub use self::events::Ring as EventRing;
pub use self::findings::severity_of;
pub use self::peers::Shared;
pub use self::refusal::{Refusal, with_causes};
pub use self::server::{Listeners, serve};
pub use self::state::State;
pub use self::stream::Streams;
pub use self::volumes::Elsewhere;

/// The longest request body. The largest body that makes sense is a host group with a thousand names of 223
/// bytes.
const BODY_BYTES_MAX: usize = 1 << 20;

/// The longest request body of an unauthenticated caller: a name, a password and the link's secret take less
/// than 1 KiB.
const STRANGERS_BODY_BYTES_MAX: usize = 16 << 10;

/// All paths of the API.
fn api() -> OpenApiRouter<State> {
    OpenApiRouter::with_openapi(openapi::document())
        .routes(routes!(node::health))
        .routes(routes!(node::show))
        .routes(routes!(findings::list))
        .routes(routes!(cluster::nodes))
        .routes(routes!(links::list))
        .routes(routes!(cluster::remove))
        .routes(routes!(cluster::maintain))
        .routes(routes!(cluster::keep_link_for))
        .routes(routes!(cluster::prefer))
        .routes(routes!(cluster::sync_limit, cluster::limit_syncs))
        .routes(routes!(cluster::verify_schedule, cluster::set_verify_schedule))
        .routes(routes!(addresses::list, addresses::add))
        .routes(routes!(addresses::remove))
        .routes(routes!(cluster::force_new))
        .routes(routes!(cluster::leave))
        .routes(routes!(cluster::init))
        .routes(routes!(cluster::create_token))
        .routes(routes!(cluster::join))
        .routes(routes!(disks::list))
        .routes(routes!(pools::list, pools::create))
        .routes(routes!(pools::show))
        .routes(routes!(pools::import))
        .routes(routes!(pools::export))
        .routes(routes!(pools::add_disk))
        .routes(routes!(pools::remove_disk))
        .routes(routes!(pools::grow))
        .routes(routes!(pools::remains))
        .routes(routes!(pools::reopen))
        .routes(routes!(pools::accept_older))
        .routes(routes!(pools::acknowledge))
        .routes(routes!(pools::scrub))
        .routes(routes!(pools::forget))
        .routes(routes!(volumes::list, volumes::creation::create))
        .routes(routes!(volumes::show, volumes::change::change, volumes::deletion::delete))
        .routes(routes!(volumes::counters::show))
        .routes(routes!(volumes::verification::begin, volumes::verification::show))
        .routes(routes!(volumes::scrub::begin, volumes::scrub::show))
        .routes(routes!(volumes::conversion::convert))
        .routes(routes!(volumes::copying::add_copy))
        .routes(routes!(volumes::copying::remove_copy))
        .routes(routes!(volumes::split_brain::set_split_brain_policy))
        .routes(routes!(volumes::split_brain::resolve_fork))
        .routes(routes!(snapshots::list, snapshots::create))
        .routes(routes!(snapshots::show, snapshots::change, snapshots::delete))
        .routes(routes!(snapshots::diff::diff))
        .routes(routes!(snapshots::reading::read))
        .routes(routes!(snapshots::restoring::restore))
        .routes(routes!(snapshots::cloning::create))
        .routes(routes!(snapshots::schedules::list, snapshots::schedules::create))
        .routes(routes!(
            snapshots::schedules::show,
            snapshots::schedules::change,
            snapshots::schedules::delete
        ))
        .routes(routes!(targets::list, targets::create))
        .routes(routes!(targets::show, targets::change, targets::delete))
        .routes(routes!(targets::create_map))
        .routes(routes!(targets::delete_map))
        .routes(routes!(hosts::list, hosts::create))
        .routes(routes!(hosts::show, hosts::change, hosts::delete))
        .routes(routes!(host_setup::show))
        .routes(routes!(sessions::list))
        .routes(routes!(sessions::end))
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::show, jobs::cancel))
        .routes(routes!(jobs::pause))
        .routes(routes!(jobs::resume))
        .routes(routes!(events::list))
        .routes(routes!(events::follow))
        .routes(routes!(live::follow))
        .routes(routes!(live::show))
        .routes(routes!(history::show))
        .routes(routes!(forecasts::list))
        .routes(routes!(people::login::state))
        .merge(unauthenticated_routes())
        .routes(routes!(people::login::log_out))
        .routes(routes!(people::login::who_am_i))
        .routes(routes!(people::login::change_password))
        .routes(routes!(people::users::list, people::users::create))
        .routes(routes!(people::users::change, people::users::delete))
        .routes(routes!(people::tokens::list, people::tokens::create))
        .routes(routes!(people::tokens::delete))
        .routes(routes!(audit::list))
}

/// The calls with a body that unauthenticated callers may make.
fn unauthenticated_routes() -> OpenApiRouter<State> {
    OpenApiRouter::new()
        .routes(routes!(people::login::set_up))
        .routes(routes!(people::login::log_in))
        .layer(DefaultBodyLimit::max(STRANGERS_BODY_BYTES_MAX))
}

/// The router with all layers that a request passes.
fn router(state: State) -> Router {
    let (api, mut document) = api().split_for_parts();
    openapi::say_of_each(&mut document);
    let document = Bytes::from(document.to_json().expect("names and texts alone"));
    let document = move || async move { ([(CONTENT_TYPE, "application/json")], document) };
    api.route("/v1/openapi.json", get(document))
        .route("/metrics", get(crate::metrics::scrape))
        .route_layer(from_fn_with_state(state.clone(), forwarding::forward))
        // This layer covers every route above. The console's files below are the same for everybody.
        .route_layer(from_fn_with_state(state.clone(), access::pass))
        .merge(console::routes())
        .fallback(|| async { Refusal::new(StatusCode::NOT_FOUND, "no_such_path", "path not found") })
        .method_not_allowed_fallback(|| async {
            let detail = "method not allowed for this path";
            Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn(deadline::keep))
        .layer(from_fn(guard::check))
        .with_state(state)
}
