//! The history of rates and latencies: measured every ten seconds, kept by [`crate::history`], and shown.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ::node::control::ControlError;
use ::node::{Control, Operation, UnitStats};
use api::{History as Answer, HistorySeries, HistoryUnit, Missing};
use axum::Json;
use axum::http::StatusCode;
use rt::uring::CoreStats;
use serde::{Deserialize, Serialize};
use terms::clock::unix_now;
use utoipa::IntoParams;

use super::input::Parameters;
use super::peers::{self, PeerQuery, QueriedNodes, Whose};
use super::refusal::{Refusal, Reply};
use super::state::State;
use crate::flow::Done;
use crate::history::{
    EVERY, History, POINTS_MAX, POINTS_MIN, POOLS_MAX, PoolUse, Row, Unavailable, Value, Window,
};

/// The shortest time between two measurements: after the clock was set, the next one may be due too soon.
const APART_MIN: Duration = Duration::from_secs(EVERY as u64 / 2);
/// The default number of points of a response.
const POINTS: u32 = 361;
/// The default length of the time that a response covers, in seconds.
const SECONDS: u64 = 3600;
/// Stands for a 99th percentile above the highest latency that is distinguished: the next power of two.
const ENDLESS_US: f64 = (4u64 << 21) as f64;

/// The series of a node: name, unit, and where the value is kept.
const OF_NODE: [(&str, HistoryUnit, Value); Value::ALL.len()] = [
    ("read_operations", HistoryUnit::OperationsPerSecond, Value::ReadOperations),
    ("write_operations", HistoryUnit::OperationsPerSecond, Value::WriteOperations),
    ("read_bytes", HistoryUnit::BytesPerSecond, Value::ReadBytes),
    ("write_bytes", HistoryUnit::BytesPerSecond, Value::WriteBytes),
    ("read_mean_us", HistoryUnit::Microseconds, Value::ReadMean),
    ("write_mean_us", HistoryUnit::Microseconds, Value::WriteMean),
    ("read_p99_us", HistoryUnit::Microseconds, Value::ReadP99),
    ("write_p99_us", HistoryUnit::Microseconds, Value::WriteP99),
    ("cpu", HistoryUnit::Ratio, Value::Cpu),
    ("cpu_polling", HistoryUnit::Ratio, Value::CpuPolling),
    ("out_of_sync_bytes", HistoryUnit::Bytes, Value::OutOfSync),
];
/// The series of each pool.
const OF_POOL: [(&str, Bytes); 2] =
    [("pool_used_bytes", |pool| pool.used), ("pool_size_bytes", |pool| pool.size)];
type Bytes = fn(&PoolUse) -> u64;

/// What is asked for.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryParams {
    /// Names of series, separated by commas; absent: all.
    #[serde(default)]
    series: Option<String>,
    /// Start, in seconds since 1970; absent: an hour before `to`.
    #[serde(default)]
    from: Option<u64>,
    /// End, in seconds since 1970; absent: now.
    #[serde(default)]
    to: Option<u64>,
    /// Maximum number of points: 2 to 1000; default 361.
    #[serde(default)]
    #[param(minimum = 2, maximum = 1000)]
    points: Option<u32>,
    /// A node number, or `all`; absent: the queried node.
    #[serde(default)]
    node: Option<String>,
}

/// A question to another node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Question {
    window: Window,
    series: BTreeSet<String>,
}

/// Performance history of the last seven days, of the queried node or others.
///
/// Each node keeps ten-second values for six hours, and one-minute values for seven days. Steps are as short
/// as `points` allows, and begin at multiples of their length. Series: `read_operations`, `write_operations`,
/// `read_bytes`, `write_bytes` (all volumes, per second), `read_mean_us`, `write_mean_us`, `read_p99_us`,
/// `write_p99_us` (the highest within ten seconds; 8388608: more than 4.2 s), `cpu`, `cpu_polling` (the mean
/// of the node's cores), `out_of_sync_bytes` (of all copies of the cluster known to the node: of several
/// nodes, use the largest value), and for each of a node's first 16 pools `pool_used_bytes` and
/// `pool_size_bytes`.
#[utoipa::path(
    get, path = "/v1/history", tag = "node", operation_id = "show_history",
    params(HistoryParams),
    responses(
        (status = OK, description = "The recorded values", body = Answer),
        (status = SERVICE_UNAVAILABLE, description = "`history_unavailable`"),
    ),
)]
pub(super) async fn show(state: State, Parameters(wanted): Parameters<HistoryParams>) -> Reply<Answer> {
    let now = unix_now();
    let to = wanted.to.unwrap_or(now);
    let from = wanted.from.unwrap_or(to.saturating_sub(SECONDS));
    if from >= to {
        return Err(invalid(format!("`from` ({from}) must be before `to` ({to})")));
    }
    let points = wanted.points.unwrap_or(POINTS);
    if !(POINTS_MIN..=POINTS_MAX).contains(&points) {
        return Err(invalid(format!("`points` must be {POINTS_MIN} to {POINTS_MAX}, not {points}")));
    }
    let series = names(wanted.series.as_deref())?;
    let asked = Whose { node: wanted.node }.asked()?;
    let window = Window::of(now, from, to, points);
    let (series, missing) = gather(&state, asked, window, series).await?;
    Ok(Json(Answer { from: window.from, step_s: window.step, series, missing }))
}

/// These series of the nodes that are asked, and the nodes that do not answer.
///
/// # Errors
/// A node does not exist, or this node's history cannot be read now.
pub(super) async fn gather(
    state: &State,
    asked: QueriedNodes,
    window: Window,
    series: BTreeSet<String>,
) -> Result<(Vec<HistorySeries>, Vec<Missing>), Refusal> {
    let question = Question { window, series };
    let history = state.history.clone();
    let query = PeerQuery::History(question.clone());
    let own = move |control: Rc<Control>, is_asked: bool| async move {
        Ok(if is_asked { of_node(&control, &history, &question).await } else { Ok(Vec::new()) })
    };
    let (own, answers) = peers::gather(state, asked, move |_| query.clone(), own).await?;
    let mut series = own.map_err(|error: Unavailable| {
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "history_unavailable", error.to_string())
            .retry_after(EVERY.into())
    })?;
    let (theirs, missing) = answers.read::<HistorySeries>();
    series.extend(theirs);
    Ok((series, missing))
}

/// Answers a question of another node.
pub(super) async fn shown(control: &Control, history: &History, question: &Question) -> Option<String> {
    serde_json::to_string(&of_node(control, history, question).await.ok()?).ok()
}

fn names(wanted: Option<&str>) -> Result<BTreeSet<String>, Refusal> {
    let known = || OF_NODE.iter().map(|(name, ..)| *name).chain(OF_POOL.iter().map(|(name, _)| *name));
    let Some(wanted) = wanted else { return Ok(known().map(str::to_owned).collect()) };
    let name = |name: &str| match known().find(|known| *known == name) {
        Some(known) => Ok(known.to_owned()),
        None => {
            let all: Vec<&str> = known().collect();
            Err(invalid(format!("unknown series {name:?}: known series are {}", all.join(", "))))
        }
    };
    wanted.split(',').map(name).collect()
}

fn invalid(detail: String) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "query_invalid", detail)
}

async fn of_node(
    control: &Control,
    history: &History,
    question: &Question,
) -> Result<Vec<HistorySeries>, Unavailable> {
    let rows = history.rows(question.window).await?;
    let pools: BTreeMap<u128, String> = pools(control).map(|(name, pool)| (pool.id, name)).collect();
    let (node, node_name) = control.number_and_name();
    Ok(series((node, &node_name), &rows, &question.series, &pools))
}

/// The series in these rows of a node. Pools that no longer exist have no name, and are left out.
fn series(
    (node, node_name): (u16, &str),
    rows: &[Option<Row>],
    wanted: &BTreeSet<String>,
    pools: &BTreeMap<u128, String>,
) -> Vec<HistorySeries> {
    let one = |name: &str, unit, pool: Option<&String>, point: &dyn Fn(&Row) -> Option<f64>| HistorySeries {
        node,
        node_name: node_name.to_owned(),
        series: name.to_owned(),
        pool: pool.cloned(),
        unit,
        points: rows.iter().map(|row| row.as_ref().and_then(point).map(short)).collect(),
    };
    let mut all = Vec::new();
    for (name, unit, value) in OF_NODE.iter().filter(|(name, ..)| wanted.contains(*name)) {
        all.push(one(name, *unit, None, &|row| row.value(*value)));
    }
    let kept: BTreeSet<u128> = rows.iter().flatten().flat_map(|row| &row.pools).map(|pool| pool.id).collect();
    for (id, pool) in pools.iter().filter(|(id, _)| kept.contains(id)) {
        for (name, bytes) in OF_POOL.iter().filter(|(name, _)| wanted.contains(*name)) {
            let point =
                |row: &Row| row.pools.iter().find(|pool| pool.id == *id).map(|pool| bytes(pool) as f64);
            all.push(one(name, HistoryUnit::Bytes, Some(pool), &point));
        }
    }
    all
}

/// Rounds away meaningless digits.
fn short(value: f64) -> f64 {
    match value {
        // An idle core uses some ten-thousandths of a processor.
        ..1.0 => (value * 1e6).round() / 1e6,
        ..1e6 => (value * 1e3).round() / 1e3,
        _ => value.round(),
    }
}

/// Takes measurements for as long as the node runs.
pub(super) async fn keep(state: State) {
    let mut before: Option<Moment> = None;
    loop {
        let Ok(now) = Moment::of(&state).await else { return };
        if let Some(before) = &before {
            state.history.keep(between(before, &now));
        }
        before = Some(now);
        let mut pause = until_next(SystemTime::now());
        if pause < APART_MIN {
            pause += Duration::from_secs(EVERY.into());
        }
        tokio::time::sleep(pause).await;
    }
}

/// The time until the next multiple of ten seconds.
fn until_next(now: SystemTime) -> Duration {
    let every = u128::from(EVERY) * 1000;
    let millis = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    Duration::from_millis((every - millis % every) as u64)
}

/// The state of the node at one moment.
struct Moment {
    at: Instant,
    unix: u64,
    done: UnitStats,
    cores: Vec<CoreStats>,
    out_of_sync: u64,
    pools: Vec<PoolUse>,
}

impl Moment {
    async fn of(state: &State) -> Result<Moment, Refusal> {
        let read = |control: Rc<Control>| async move {
            let missed = control.reconciler().map_or(0, |reconciler| reconciler.missed_bytes());
            let pools = pools(&control).map(|(_, pool)| pool).take(POOLS_MAX).collect();
            Ok::<_, ControlError>((control.total_stats().await?, missed, pools))
        };
        let (done, out_of_sync, pools) = state.call(read).await?;
        let cores = (state.core_stats)();
        Ok(Moment { at: Instant::now(), unix: unix_now(), done, cores, out_of_sync, pools })
    }
}

/// The open pools with their names, ordered by name.
fn pools(control: &Control) -> impl Iterator<Item = (String, PoolUse)> {
    control.pools().into_iter().filter_map(|pool| {
        let open = pool.state.ok()?;
        let id = u128::from_str_radix(&open.id, 16).ok()?;
        let size = open.usage.total.0;
        Some((pool.name, PoolUse { id, used: open.used(), size }))
    })
}

/// The row of the time between two moments.
fn between(before: &Moment, now: &Moment) -> Row {
    let seconds = now.at.duration_since(before.at).as_secs_f64().max(f64::EPSILON);
    let step = u64::from(EVERY);
    let mut row =
        Row { at: now.unix / step * step, step: EVERY, values: Default::default(), pools: now.pools.clone() };
    let mut put = |value: Value, is: Option<f64>| row.values[value as usize] = is;
    for (operation, [operations, bytes, mean, p99]) in [
        (Operation::Read, [Value::ReadOperations, Value::ReadBytes, Value::ReadMean, Value::ReadP99]),
        (Operation::Write, [Value::WriteOperations, Value::WriteBytes, Value::WriteMean, Value::WriteP99]),
    ] {
        // A volume was deleted, and its counters with it: the rest cannot be determined.
        let Some(done) = Done::since(operation, &before.done, &now.done) else { continue };
        let flow = done.flow(seconds);
        put(operations, Some(flow.operations));
        put(bytes, Some(flow.bytes));
        put(mean, flow.mean_us);
        put(p99, flow.mean_us.map(|_| flow.p99_us.unwrap_or(ENDLESS_US)));
    }
    let cores = || before.cores.iter().zip(&now.cores);
    let share = |of: fn(&CoreStats) -> Duration| {
        let used: f64 = cores().map(|(before, now)| of(now).saturating_sub(of(before)).as_secs_f64()).sum();
        Some(used / seconds / cores().count() as f64).filter(|share| share.is_finite())
    };
    put(Value::Cpu, share(|core| core.cpu));
    put(Value::CpuPolling, share(|core| core.polling));
    put(Value::OutOfSync, Some(now.out_of_sync as f64));
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(at: Instant, writes: &[u64]) -> Moment {
        let mut done = UnitStats::default();
        for micros in writes {
            done.latency[Operation::Write as usize].record(Duration::from_micros(*micros));
            done.bytes[Operation::Write as usize] += 4096;
        }
        let core = |millis| CoreStats { cpu: Duration::from_millis(millis), ..CoreStats::default() };
        let cores = vec![core(1000 * writes.len() as u64), core(0)];
        let pools = vec![PoolUse { id: 7, used: 30, size: 100 }];
        Moment { at, unix: 1_800_000_019, done, cores, out_of_sync: 5, pools }
    }

    #[test]
    fn a_row_is_what_has_happened_between_two_moments() {
        let now = Instant::now();
        let first = moment(now, &[10]);
        let second = moment(now + Duration::from_secs(10), &[10, 100, 300, 60_000_000]);
        let row = between(&first, &second);
        assert_eq!((row.at, row.step), (1_800_000_010, 10));
        assert_eq!(
            (row.value(Value::WriteOperations), row.value(Value::WriteBytes)),
            (Some(0.3), Some(1228.8))
        );
        assert_eq!(row.value(Value::WriteP99), Some(8_388_608.0), "more than 4.2 s is not nothing");
        assert_eq!((row.value(Value::ReadOperations), row.value(Value::ReadMean)), (Some(0.0), None));
        assert_eq!((row.value(Value::Cpu), row.value(Value::OutOfSync)), (Some(0.15), Some(5.0)));
        // A volume was deleted meanwhile.
        let fewer = between(&second, &moment(now + Duration::from_secs(20), &[10]));
        assert_eq!((fewer.value(Value::WriteOperations), fewer.value(Value::WriteBytes)), (None, None));
        assert_eq!(fewer.value(Value::ReadOperations), Some(0.0));
    }

    #[test]
    fn series_have_a_point_for_each_step_and_pools_their_names() {
        let now = Instant::now();
        let row = between(&moment(now, &[]), &moment(now + Duration::from_secs(10), &[10, 10, 10]));
        let rows = [None, Some(row)];
        let pools = [(7, "fast".to_owned()), (8, "new".to_owned())].into_iter().collect();
        let san1 = (1, "san1");
        let all = series(san1, &rows, &names(None).ok().unwrap(), &pools);
        assert_eq!(all.len(), OF_NODE.len() + OF_POOL.len());
        let wanted = names(Some("write_operations,pool_used_bytes")).ok().unwrap();
        let some = series(san1, &rows, &wanted, &pools);
        assert_eq!((some.len(), &some[0].points), (2, &vec![None, Some(0.3)]));
        assert_eq!((some[1].pool.as_deref(), &some[1].points), (Some("fast"), &vec![None, Some(30.0)]));
        assert!(series(san1, &rows, &wanted, &BTreeMap::new()).iter().all(|series| series.pool.is_none()));
        for strange in ["", "cpu,", "CPU"] {
            assert_eq!(names(Some(strange)).err().unwrap().code(), "query_invalid", "{strange}");
        }
    }

    #[test]
    fn digits_that_mean_something_stay() {
        assert_eq!([0.000_123_4, 12.345_67, 1e9 + 0.4].map(short), [0.000_123, 12.346, 1e9]);
    }

    #[test]
    fn history_is_sampled_at_multiples_of_ten_seconds() {
        let at = |millis| until_next(UNIX_EPOCH + Duration::from_millis(millis)).as_millis();
        assert_eq!((at(1_800_000_000_000), at(1_800_000_003_250), at(1_800_000_009_999)), (10_000, 6_750, 1));
    }
}
