//! What a node has done, for Prometheus.
//!
//! Names follow its conventions: the prefix `ursa_`, base units (seconds, bytes), `_total` on counters. What
//! is in one of several states has one series per state, of which one is 1. The number of series is bounded
//! by what administrators have created: nodes, volumes, targets, pools, cores. Nothing is labeled by
//! initiator or session. A volume has latency series only for kinds of operations that it has seen.
//!
//! A test compares these names with those that alert rules and dashboards in `deploy/` use.

mod cluster;
mod copies;
mod cores;
mod pools;
mod process;
mod record;
mod schedules;
mod scrubs;
mod snapshot;
mod targets;
#[cfg(test)]
mod tests;
mod text;
mod volumes;

use std::time::Duration;

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use self::process::Process;
use self::snapshot::{Members, Snapshot};
use self::text::{Kind, Text};
use crate::http::{Refusal, State};

/// Prometheus' text format.
const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How long a scrape waits for the cluster's record: less than Prometheus' timeout of ten seconds.
const MEMBERS_DEADLINE: Duration = Duration::from_secs(2);

/// `GET /metrics`.
pub async fn scrape(state: State) -> Result<impl IntoResponse, Refusal> {
    let snapshot = Snapshot::take(&state).await?;
    let members = members(&state).await;
    let mut text = Text::default();
    node(&mut text, &state);
    record::write(&mut text, &snapshot);
    record::audit(&mut text, state.access.can_write_down().await);
    cluster::write(&mut text, &members);
    volumes::write(&mut text, &snapshot);
    copies::write(&mut text, &snapshot);
    scrubs::write(&mut text, &snapshot);
    schedules::write(&mut text, &snapshot);
    targets::write(&mut text, &snapshot);
    pools::write(&mut text, &snapshot.pools);
    pools::maps(&mut text, snapshot.map_memory);
    cores::write(&mut text, &(state.core_stats)());
    process::write(&mut text, &Process::current(), state.started);
    Ok(([(CONTENT_TYPE, MEDIA_TYPE)], text.into_string()))
}

async fn members(state: &State) -> Members {
    let asked = state.call(|control| async move {
        let answers = control.cluster_record().await?.is_some_and(|record| record.answers);
        Ok(Members { nodes: control.nodes().await?, answers })
    });
    // If the node does not take part in its cluster, or the record does not answer, nothing is known.
    tokio::time::timeout(MEMBERS_DEADLINE, asked).await.ok().and_then(Result::ok).unwrap_or_default()
}

fn node(text: &mut Text, state: &State) {
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("name", &state.name)];
    text.family("ursa_build_info", Kind::Gauge, "The program and the node; always 1.").sample(&labels, 1);
}
