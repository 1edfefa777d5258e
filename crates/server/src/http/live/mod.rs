//! Current rates and latencies, once per second while anybody reads them.
//!
//! The cores are asked only once, however many readers there are: one task takes samples, and all readers on
//! this node get them, as do other nodes that ask. Another task asks the other nodes. Without readers,
//! nothing is asked.

mod others;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::node::control::VolumeStats;
use ::node::{Control, Operation, UnitStats, VolumeId};
use api::{List, LiveCore, LiveSample, LiveVolume};
use axum::Extension;
use axum::http::HeaderMap;
use axum::response::Response;
use rt::uring::CoreStats;
use serde::Deserialize;
use terms::clock::unix_now;
use tokio::sync::{Notify, watch};
use utoipa::IntoParams;

use self::others::{Others, PeerMessage};
use super::access::Caller;
use super::guard::Peer;
use super::input::Parameters;
use super::peers::{self, PeerQuery, QueriedNodes, Whose};
use super::refusal::{Refusal, Reply};
use super::state::State;
use super::stream::{self, Gone, Messages, Reader};
use crate::flow::Done;

pub(super) use self::others::ask_all;

/// The interval of samples, and of questions to other nodes.
const EVERY: Duration = Duration::from_secs(1);
/// The interval at which volume names are read, which looks at all volumes.
const NAMES_EVERY: Duration = Duration::from_secs(10);
/// How long sampling continues after another node has asked. That node asks once per second while it has
/// readers.
const ASKED_AGE_MAX: Duration = Duration::from_secs(5);
/// A sample older than this is not current.
const SAMPLE_AGE_MAX: Duration = Duration::from_secs(3);

/// The latest sample, for all readers.
pub struct Live {
    /// With its time; `None`: there is none, or the node has stopped.
    latest: watch::Sender<Option<(Instant, Arc<LiveSample>)>>,
    /// Notified when a reader arrives.
    wanted: Notify,
    /// When another node last asked.
    asked: Mutex<Option<Instant>>,
    others: Others,
}

impl Default for Live {
    fn default() -> Live {
        Live {
            latest: watch::Sender::new(None),
            wanted: Notify::new(),
            asked: Mutex::default(),
            others: Others::default(),
        }
    }
}

impl Live {
    /// The latest sample, for another node that asks. Empty if sampling has only just begun.
    pub(super) fn shown(&self) -> Vec<LiveSample> {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.wanted.notify_one();
        let latest = self.latest.borrow();
        let fresh = latest.as_ref().filter(|(at, _)| at.elapsed() <= SAMPLE_AGE_MAX);
        fresh.map(|(_, sample)| LiveSample::clone(sample)).into_iter().collect()
    }

    fn is_wanted(&self) -> bool {
        let asked = *self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        self.latest.receiver_count() > 0 || asked.is_some_and(|at| at.elapsed() <= ASKED_AGE_MAX)
    }
}

/// Of which nodes.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// `all`; absent: the queried node.
    #[serde(default)]
    node: Option<String>,
}

/// Streams live I/O figures of the queried node once a second (server-sent events); with `node=all`, of each
/// node of its cluster.
///
/// Messages `sample` contain a sample. The first one comes after a second. With `node=all`, a message
/// `missing` (`{node, node_name, reason}`) says that a node's samples do not arrive from now on, and a
/// message `back` (`{node, node_name}`) that they do again. Samples of other nodes may now and then be
/// missing, or arrive two seconds late.
#[utoipa::path(
    get, path = "/v1/live", tag = "node", operation_id = "stream_live",
    params(Which),
    responses(
        (status = OK, description = "Messages; this is the data of each", body = LiveSample, content_type = "text/event-stream"),
        (status = SERVICE_UNAVAILABLE, description = "`too_many_streams`"),
    ),
)]
pub(super) async fn follow(
    state: State,
    Extension(caller): Extension<Caller>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Parameters(which): Parameters<Which>,
) -> Result<Response, Refusal> {
    let all = match (Whose { node: which.node }).asked()? {
        QueriedNodes::This => false,
        QueriedNodes::All => true,
        QueriedNodes::One(_) => {
            let detail = "`node` must be `all`, or absent for the queried node";
            return Err(Refusal::new(axum::http::StatusCode::BAD_REQUEST, "query_invalid", detail));
        }
    };
    let of_state = state.clone();
    stream::answer(&state, Reader { caller, peer, headers }, move |messages| {
        send_all(of_state, messages, all)
    })
}

/// I/O figures of the last second: of the queried node; with `node`, of another one, or of `all`.
///
/// Nodes sample only while somebody asks. A node that has not been queried within five seconds has no sample
/// yet, and has one a second or two later.
#[utoipa::path(
    get, path = "/v1/live/sample", tag = "node", operation_id = "show_live",
    params(Whose),
    responses(
        (status = OK, description = "One per node that has one", body = List<LiveSample>),
    ),
)]
pub(super) async fn show(state: State, Parameters(whose): Parameters<Whose>) -> Reply<List<LiveSample>> {
    let live = Arc::clone(&state.live);
    let own = move |_: Rc<Control>| async move { Ok(live.shown()) };
    Ok(axum::Json(peers::list(&state, whose.asked()?, PeerQuery::Live, own).await?))
}

async fn send_all(state: State, messages: Messages, all: bool) -> Result<(), Gone> {
    let mut latest = state.live.latest.subscribe();
    // A sample that was taken for an earlier reader is out of date.
    latest.mark_unchanged();
    state.live.wanted.notify_one();
    let (mut others, missing) = match all {
        true => state.live.others.follow(),
        false => (None, Vec::new()),
    };
    for missing in missing {
        messages.send("missing", None, &missing).await?;
    }
    loop {
        tokio::select! {
            changed = latest.changed() => {
                changed.map_err(|_| Gone)?;
                let sample = latest.borrow_and_update().clone();
                // `None`: the node has stopped.
                let Some((_, sample)) = sample else { return Ok(()) };
                messages.send("sample", None, &*sample).await?;
            }
            told = others::next(&mut others) => match &*told? {
                PeerMessage::Sample(sample) => messages.send("sample", None, sample).await?,
                PeerMessage::Missing(missing) => messages.send("missing", None, missing).await?,
                PeerMessage::Back(back) => messages.send("back", None, back).await?,
            },
            () = state.events.closed() => return Ok(()),
        }
    }
}

/// The counters at one moment.
struct Counters {
    at: Instant,
    volumes: VolumeStats,
    cores: Vec<CoreStats>,
    node: u16,
}

/// Takes samples while there are readers, for as long as the node runs.
pub(super) async fn sample(state: State) {
    let mut names: (Option<Instant>, BTreeMap<VolumeId, String>) = (None, BTreeMap::new());
    loop {
        // A reader that arrives after `is_wanted` was evaluated has left a notification.
        state.live.wanted.notified().await;
        let mut before: Option<Counters> = None;
        while state.live.is_wanted() {
            let Ok(now) = count(&state, &mut names).await else {
                state.live.latest.send_replace(None);
                break;
            };
            if let Some(before) = &before {
                let sample = Arc::new(between(before, &now, &names.1));
                state.live.latest.send_replace(Some((Instant::now(), sample)));
            }
            before = Some(now);
            tokio::time::sleep(EVERY).await;
        }
    }
}

async fn count(
    state: &State,
    names: &mut (Option<Instant>, BTreeMap<VolumeId, String>),
) -> Result<Counters, Refusal> {
    let wants_names = names.0.is_none_or(|at| at.elapsed() >= NAMES_EVERY);
    let read = move |control: Rc<Control>| async move {
        let names = if wants_names { control.volume_names().await } else { BTreeMap::new() };
        let node = control.number();
        let stats = control.stats().await?;
        Ok((stats, Instant::now(), names, node))
    };
    let (stats, at, named, node) = state.call(read).await?;
    let cores = (state.core_stats)();
    if wants_names {
        *names = (Some(Instant::now()), named);
    }
    Ok(Counters { at, volumes: stats.sum(), cores, node })
}

/// The sample of the time between two moments.
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
        Counters { at, volumes, cores, node: 1 }
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
