//! What goes on now: once a second, for as long as somebody reads it.
//!
//! However many read, the cores are asked once: one task samples, all readers get what it has found. Nobody reads: nobody is asked.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::node::control::VolumeStats;
use ::node::{Control, Operation, UnitStats, VolumeId};
use api::{LiveCore, LiveSample, LiveVolume, Problem};
use axum::Extension;
use axum::extract::State as Extracted;
use axum::http::HeaderMap;
use axum::response::Response;
use rt::uring::CoreStats;
use tokio::sync::watch;

use super::access::Caller;
use super::guard::Peer;
use super::refusal::Refusal;
use super::state::State;
use super::stream::{self, Gone, Messages, Reader};
use crate::clock::unix_now;
use crate::flow::Done;

/// How often the cores are asked.
const EVERY: Duration = Duration::from_secs(1);
/// How often it is asked what volumes are called: that looks at all of them.
const NAMES_EVERY: Duration = Duration::from_secs(10);

/// The last sample, for all who read.
pub struct Live {
    latest: watch::Sender<Option<Arc<LiveSample>>>,
    /// Somebody samples.
    runs: Mutex<bool>,
}

impl Default for Live {
    fn default() -> Live {
        Live { latest: watch::Sender::new(None), runs: Mutex::new(false) }
    }
}

/// What goes on now on the node that is asked, once a second (server-sent events).
///
/// Messages `sample` have a sample. The first one comes after a second.
#[utoipa::path(
    get, path = "/v1/live", tag = "node", operation_id = "stream_live",
    responses(
        (status = OK, description = "Messages; the data of each is as here", body = LiveSample, content_type = "text/event-stream"),
        (status = SERVICE_UNAVAILABLE, description = "`too_many_streams`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn follow(
    Extracted(state): Extracted<State>,
    Extension(caller): Extension<Caller>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let of_state = state.clone();
    stream::answer(&state, Reader { caller, peer, headers }, move |messages| send_all(of_state, messages))
}

async fn send_all(state: State, messages: Messages) -> Result<(), Gone> {
    let mut latest = state.live.latest.subscribe();
    // What was found for somebody before is old.
    latest.mark_unchanged();
    begin(&state);
    loop {
        tokio::select! {
            changed = latest.changed() => changed.map_err(|_| Gone)?,
            () = state.events.closed() => return Ok(()),
        }
        let sample = latest.borrow_and_update().clone();
        // None: the node has stopped.
        let Some(sample) = sample else { return Ok(()) };
        messages.send("sample", None, &*sample).await?;
    }
}

/// Has somebody sample, if nobody does.
fn begin(state: &State) {
    let mut runs = state.live.runs.lock().unwrap_or_else(PoisonError::into_inner);
    if !std::mem::replace(&mut *runs, true) {
        tokio::spawn(sample(state.clone()));
    }
}

/// Counters at one moment.
struct Counters {
    at: Instant,
    volumes: VolumeStats,
    cores: Vec<CoreStats>,
    node: Option<u16>,
}

async fn sample(state: State) {
    let mut before: Option<Counters> = None;
    let mut names: (Option<Instant>, BTreeMap<VolumeId, String>) = (None, BTreeMap::new());
    loop {
        {
            // Held until it is known: who comes after it begins another one.
            let mut runs = state.live.runs.lock().unwrap_or_else(PoisonError::into_inner);
            if state.live.latest.receiver_count() == 0 {
                *runs = false;
                return;
            }
        }
        let wants_names = names.0.is_none_or(|at| at.elapsed() >= NAMES_EVERY);
        let read = move |control: Rc<Control>| async move {
            let stats = control.stats().await?;
            let volumes = if wants_names { control.volumes() } else { Vec::new() };
            let names: Vec<(VolumeId, String)> =
                volumes.into_iter().map(|volume| (volume.info.id, volume.info.name)).collect();
            Ok((stats, names, control.keeper().map(|keeper| keeper.me().0)))
        };
        let Ok((volumes, named, node)) = state.call(read).await else {
            *state.live.runs.lock().unwrap_or_else(PoisonError::into_inner) = false;
            state.live.latest.send_replace(None);
            return;
        };
        if wants_names {
            names = (Some(Instant::now()), named.into_iter().collect());
        }
        let now = Counters { at: Instant::now(), volumes, cores: (state.core_stats)(), node };
        if let Some(before) = before.replace(now).as_ref().zip(before.as_ref()) {
            let (before, now) = before;
            state.live.latest.send_replace(Some(Arc::new(between(before, now, &names.1))));
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// What has happened between two moments.
fn between(before: &Counters, now: &Counters, names: &BTreeMap<VolumeId, String>) -> LiveSample {
    let seconds = now.at.duration_since(before.at).as_secs_f64().max(f64::EPSILON);
    let none = UnitStats::default();
    let mut all = [Done::default(), Done::default()];
    let mut volumes = Vec::new();
    for (id, stats) in &now.volumes {
        let was = before.volumes.get(id).unwrap_or(&none);
        let done = [Operation::Read, Operation::Write].map(|operation| Done::of(operation, was, stats));
        if done.iter().all(|done| done.count() == 0) {
            continue;
        }
        all.iter_mut().zip(&done).for_each(|(sum, more)| sum.add(more));
        volumes.push(LiveVolume {
            id: id.to_string(),
            name: names.get(id).cloned().unwrap_or_default(),
            read: done[0].flow(seconds),
            write: done[1].flow(seconds),
        });
    }
    let core = |(before, now): (&CoreStats, &CoreStats)| LiveCore {
        cpu: now.cpu.saturating_sub(before.cpu).as_secs_f64() / seconds,
        polling: now.polling.saturating_sub(before.polling).as_secs_f64() / seconds,
    };
    LiveSample {
        at: unix_now(),
        seconds,
        node: now.node,
        read: all[0].flow(seconds),
        write: all[1].flow(seconds),
        cores: before.cores.iter().zip(&now.cores).map(core).collect(),
        volumes,
    }
}

#[cfg(test)]
mod tests {
    use api::LiveFlow;

    use super::*;

    fn moment(at: Instant, operations: &[(u64, u64)]) -> Counters {
        let mut stats = UnitStats::default();
        for (micros, bytes) in operations {
            stats.latency[Operation::Read as usize].record(Duration::from_micros(*micros));
            stats.bytes[Operation::Read as usize] += bytes;
        }
        let volumes = [(VolumeId::parse(&"1".repeat(32)).unwrap(), stats)].into_iter().collect();
        let cpu = Duration::from_millis(500 * operations.len() as u64);
        let cores = vec![CoreStats { cpu, ..CoreStats::default() }];
        Counters { at, volumes, cores, node: Some(1) }
    }

    #[test]
    fn a_sample_is_what_has_happened_between_two_moments() {
        let now = Instant::now();
        let first = moment(now, &[(100, 512)]);
        let second = moment(now + Duration::from_secs(2), &[(100, 512), (10, 4096), (30, 4096)]);
        let names = [(VolumeId::parse(&"1".repeat(32)).unwrap(), "db".to_owned())].into_iter().collect();
        let sample = between(&first, &second, &names);
        assert_eq!((sample.seconds, sample.read.operations, sample.read.bytes), (2.0, 1.0, 4096.0));
        // 30 µs is in the bucket up to 32 µs.
        assert_eq!((sample.read.mean_us, sample.read.p99_us), (Some(20.0), Some(32.0)));
        assert_eq!((sample.volumes.len(), sample.volumes[0].name.as_str()), (1, "db"));
        assert_eq!(sample.cores, [LiveCore { cpu: 0.5, polling: 0.0 }]);
        assert_eq!((sample.write.operations, sample.write.mean_us), (0.0, None));
        let idle = between(
            &second,
            &moment(now + Duration::from_secs(3), &[(100, 512), (10, 4096), (30, 4096)]),
            &names,
        );
        assert!(idle.volumes.is_empty() && idle.read == LiveFlow::default(), "{idle:?}");
    }
}
