//! Forecasts of when pools will be full, from the history that nodes keep.

use std::time::Duration;

use api::{Forecast, HistorySeries, List, Missing};
use axum::Json;
use terms::clock::unix_now;

use super::history;
use super::input::Parameters;
use super::peers::{QueriedNodes, Whose};
use super::refusal::{Refusal, Reply};
use super::state::State;
use crate::history::{self as kept, Filling, Outlook, Window};

/// The whole history.
const SECONDS: u64 = 7 * 86_400;
/// One point per hour.
const POINTS: u32 = 7 * 24 + 1;
/// How often a node looks whether its own pools will be full soon. That reads all of its history, some 10 MB,
/// in the thread of the history; growth over days hardly changes meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(300);
/// The series that nodes are asked for.
const USED: &str = "pool_used_bytes";
const SIZE: &str = "pool_size_bytes";

/// When pools of the queried node, or of others, will be full if they keep filling as in the last seven days.
///
/// The forecast is a straight line through the data of the last seven days, at least four hours of them; how
/// uneven the growth was determines the uncertainty. It covers the first 16 pools of each node that were open
/// at some time in these days.
#[utoipa::path(
    get, path = "/v1/forecasts", tag = "pools", operation_id = "list_forecasts",
    params(Whose),
    responses(
        (status = OK, description = "One per pool", body = List<Forecast>),
        (status = SERVICE_UNAVAILABLE, description = "`history_unavailable`"),
    ),
)]
pub(super) async fn list(state: State, Parameters(whose): Parameters<Whose>) -> Reply<List<Forecast>> {
    let (pools, missing) = of(&state, whose.asked()?).await?;
    Ok(Json(List { items: pools.into_iter().map(OfPool::shown).collect(), missing }))
}

/// The forecasts of the nodes that are asked, and the nodes that do not answer.
async fn of(state: &State, asked: QueriedNodes) -> Result<(Vec<OfPool>, Vec<Missing>), Refusal> {
    let now = unix_now();
    let window = Window::of(now, now.saturating_sub(SECONDS), now, POINTS);
    let wanted = [USED, SIZE].map(str::to_owned).into();
    let (series, missing) = history::gather(state, asked, window, wanted).await?;
    Ok((forecasts(&series, window.step), missing))
}

/// Looks again and again for pools of this node that will be full soon, for its findings.
pub(super) async fn watch(state: State) {
    loop {
        look(&state).await;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Looks for pools of this node that will be full soon. If the history cannot be read, what was known stays.
pub(super) async fn look(state: &State) {
    match of(state, QueriedNodes::This).await {
        Ok((pools, _)) => {
            let soon = pools.into_iter().filter(|of| of.forecast.is_soon());
            state.opened.note_full_soon(soon.map(|of| (of.pool, of.forecast)).collect());
        }
        Err(refusal) => tracing::debug!(code = refusal.code(), "no forecast of this node's pools"),
    }
}

/// The forecast of a pool.
struct OfPool {
    pool: String,
    node: u16,
    node_name: String,
    forecast: kept::Forecast,
}

impl OfPool {
    fn shown(self) -> Forecast {
        let OfPool { pool, node, node_name, forecast } = self;
        let (growth_per_day, times) = match forecast.outlook {
            Outlook::Unknown => (None, None),
            Outlook::Still | Outlook::NotFuller => (Some(0), None),
            Outlook::Fuller { growth, likely, soonest, latest } => {
                (Some(growth), Some((likely, soonest, latest)))
            }
        };
        Forecast {
            pool,
            node,
            node_name,
            known_s: forecast.known,
            growth_per_day,
            full_in_s: times.map(|(likely, ..)| likely),
            soonest_s: times.map(|(_, soonest, _)| soonest),
            latest_s: times.and_then(|(.., latest)| latest),
            soon: forecast.is_soon(),
            text: forecast.text(),
        }
    }
}

fn forecasts(series: &[HistorySeries], step: u32) -> Vec<OfPool> {
    let of = |name: &'static str| series.iter().filter(move |one| one.series == name);
    let of_pool = |used: &HistorySeries| {
        let pool = used.pool.clone()?;
        let size = of(SIZE).find(|size| size.node == used.node && size.pool == used.pool)?;
        let size = size.points.iter().copied().flatten().next_back()?;
        let forecast = Filling { step: step.into(), used: &used.points, size }.forecast();
        Some(OfPool { pool, node: used.node, node_name: used.node_name.clone(), forecast })
    };
    of(USED).filter_map(of_pool).collect()
}

#[cfg(test)]
mod tests {
    use api::HistoryUnit;

    use super::*;

    const GIB: u64 = 1 << 30;
    /// Four days, which divide into parts of equal length.
    const HOURS: u64 = 97;

    fn series(series: &str, node: u16, points: impl Fn(u64) -> u64) -> HistorySeries {
        HistorySeries {
            node,
            node_name: format!("san{node}"),
            series: series.into(),
            pool: Some("fast".into()),
            unit: HistoryUnit::Bytes,
            points: (0..HOURS).map(|hour| Some(points(hour) as f64)).collect(),
        }
    }

    #[test]
    fn each_pool_is_forecast_from_its_own_figures() {
        let all = [
            series(USED, 1, |hour| hour * GIB),
            series(SIZE, 1, |_| 200 * GIB),
            series(USED, 2, |_| 5 * GIB),
            series(SIZE, 2, |hour| (10 + hour) * GIB),
            // The size of this pool is unknown.
            series(USED, 3, |hour| hour * GIB),
        ];
        let shown: Vec<Forecast> = forecasts(&all, 3600).into_iter().map(OfPool::shown).collect();
        let [first, second]: [Forecast; 2] = shown.try_into().unwrap();
        let whose = (first.pool.as_str(), first.node, first.node_name.as_str());
        assert_eq!(whose, ("fast", 1, "san1"));
        assert_eq!((first.known_s, first.soon), ((HOURS - 1) * 3600, true));
        let about = |is: Option<u64>, wanted: u64| is.unwrap().abs_diff(wanted) <= wanted / 50;
        assert!(about(first.growth_per_day, 24 * GIB), "{first:?}");
        // 104 GiB are left, and each hour takes one GiB.
        for time in [first.full_in_s, first.soonest_s, first.latest_s] {
            assert!(about(time, 104 * 3600), "{first:?}");
        }
        assert_eq!((second.node, second.growth_per_day, second.full_in_s), (2, Some(0), None));
        assert!(!second.soon && second.text.contains("nothing was added"), "{second:?}");
    }
}
