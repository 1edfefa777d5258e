//! The HTTP interface: JSON under `/v1`, described by `/v1/openapi.json`, `/metrics`, and the console at `/`.
//!
//! It holds no state of its own. A request becomes a call of the node's control on core 0, the plain types that come
//! back become those of crate `api`. A change, once begun, goes on to its end even if whoever asked for it goes away.
//!
//! There is no login yet, so what may come in is narrow: see [`guard`].

mod cluster;
mod console;
mod deadline;
mod guard;
mod hosts;
mod input;
mod node;
mod openapi;
mod pools;
mod refusal;
mod server;
mod sessions;
mod state;
mod targets;
#[cfg(test)]
mod tests;
mod volumes;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware::from_fn;
use axum::routing::get;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use self::refusal::Refusal;
pub use self::server::serve;
pub use self::state::State;

/// The longest body of a request. The largest that makes sense is a host group with a thousand names of 223 bytes.
const BODY_BYTES_MAX: usize = 1 << 20;

/// All paths of the API.
fn api() -> OpenApiRouter<State> {
    OpenApiRouter::with_openapi(openapi::document())
        .routes(routes!(node::health))
        .routes(routes!(node::show))
        .routes(routes!(cluster::nodes))
        .routes(routes!(cluster::remove))
        .routes(routes!(cluster::maintain))
        .routes(routes!(cluster::prefer))
        .routes(routes!(cluster::sync_limit, cluster::limit_syncs))
        .routes(routes!(cluster::force_new))
        .routes(routes!(cluster::init))
        .routes(routes!(cluster::create_token))
        .routes(routes!(cluster::join))
        .routes(routes!(pools::list, pools::create))
        .routes(routes!(pools::show))
        .routes(routes!(pools::import))
        .routes(routes!(pools::export))
        .routes(routes!(pools::add_disk))
        .routes(routes!(pools::remains))
        .routes(routes!(pools::reopen))
        .routes(routes!(pools::forget))
        .routes(routes!(volumes::list, volumes::create))
        .routes(routes!(volumes::show, volumes::change, volumes::delete))
        .routes(routes!(volumes::verify))
        .routes(routes!(volumes::add_copy))
        .routes(routes!(volumes::remove_copy))
        .routes(routes!(volumes::choose_strategy))
        .routes(routes!(volumes::resolve_fork))
        .routes(routes!(targets::list, targets::create))
        .routes(routes!(targets::show, targets::delete))
        .routes(routes!(targets::create_map))
        .routes(routes!(targets::delete_map))
        .routes(routes!(hosts::list, hosts::create))
        .routes(routes!(hosts::show, hosts::change, hosts::delete))
        .routes(routes!(sessions::list))
        .routes(routes!(sessions::end))
}

/// Everything that a request goes through.
fn router(state: State) -> Router {
    let (api, document) = api().split_for_parts();
    api.merge(console::routes())
        .route("/v1/openapi.json", get(|| async move { axum::Json(document) }))
        .route("/metrics", get(crate::metrics::scrape))
        .fallback(|| async {
            Refusal::new(StatusCode::NOT_FOUND, "no_such_path", "there is nothing at this path")
        })
        .method_not_allowed_fallback(|| async {
            let detail = "this method is not possible at this path";
            Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn(deadline::keep))
        .layer(from_fn(guard::check))
        .with_state(state)
}
