//! What a node has done, for Prometheus.
//!
//! Names follow its conventions: `ursa_` before ours, base units (seconds, bytes), `_total` on counters. Every number
//! of series is bounded by what administrators have made: volumes, targets, pools, cores. Nothing is labelled by
//! initiator or session. A volume has latency series only for kinds of operations that it has seen.

mod copies;
mod cores;
mod pools;
mod process;
mod record;
mod snapshot;
mod targets;
#[cfg(test)]
mod tests;
mod text;
mod volumes;

use axum::extract::State as Extracted;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use self::process::Process;
use self::snapshot::Snapshot;
use self::text::{Kind, Text};
use crate::http::{Refusal, State};

/// Prometheus' text format.
const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `GET /metrics`.
pub async fn scrape(Extracted(state): Extracted<State>) -> Result<impl IntoResponse, Refusal> {
    let snapshot = state.call(|control| async move { Snapshot::take(&control).await }).await?;
    let mut text = Text::default();
    node(&mut text, &state);
    record::write(&mut text, &snapshot.record);
    volumes::write(&mut text, &snapshot);
    copies::write(&mut text, &snapshot);
    targets::write(&mut text, &snapshot);
    pools::write(&mut text, &snapshot.pools);
    cores::write(&mut text, &(state.core_stats)());
    process::write(&mut text, &Process::current(), state.started);
    Ok(([(CONTENT_TYPE, MEDIA_TYPE)], text.into_string()))
}

fn node(text: &mut Text, state: &State) {
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("name", &state.name)];
    text.family("ursa_build_info", Kind::Gauge, "The program and the node; always 1.").sample(&labels, 1);
}
