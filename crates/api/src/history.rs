//! The history of the last seven days.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Missing;

/// A query for the history of the last seven days. The node chooses defaults for absent fields.
#[derive(Clone, Debug, Default)]
pub struct HistoryQuery {
    /// Names of series; empty means all.
    pub series: Vec<String>,
    /// Start, in seconds since 1970.
    pub from: Option<u64>,
    /// End, in seconds since 1970.
    pub to: Option<u64>,
    /// Maximum number of points.
    pub points: Option<u32>,
    /// A node number, or `all`.
    pub node: Option<String>,
}

/// Recorded values of nodes, in steps of equal length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// Start of the first step, in seconds since 1970.
    pub from: u64,
    /// Length of a step, in seconds.
    pub step_s: u32,
    /// The requested series, by node; pools have two series each.
    pub series: Vec<HistorySeries>,
    /// Nodes that did not answer, and why: their part is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
}

/// One value of a node or pool over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HistorySeries {
    /// Node number.
    pub node: u16,
    /// Node name.
    pub node_name: String,
    /// Name of the series.
    #[schema(example = "write_operations")]
    pub series: String,
    /// Pool name, for series of pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Unit of the points.
    pub unit: HistoryUnit,
    /// One point per step: the mean, or for `_p99_us` the maximum. `null`: nothing was recorded, or there was
    /// nothing to measure.
    pub points: Vec<Option<f64>>,
}

/// When a pool will be full if it keeps filling at the recent rate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Forecast {
    /// The pool's name.
    pub pool: String,
    /// Number of the node that has the pool.
    pub node: u16,
    /// Name of that node.
    pub node_name: String,
    /// Seconds of the last seven days for which data exists.
    pub known_s: u64,
    /// Average growth in bytes per day; 0: the pool is not filling up. Absent: not enough data for a
    /// forecast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth_per_day: Option<u64>,
    /// Seconds until it is full; absent: no end in sight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_in_s: Option<u64>,
    /// Earliest time in seconds: with 80% probability it is full between `soonest_s` and `latest_s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soonest_s: Option<u64>,
    /// Latest time in seconds. Absent: growth was so uneven that it may never be full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_s: Option<u64>,
    /// It may be full within a month.
    pub soon: bool,
    /// The forecast as text.
    #[schema(
        example = "Over the last 7 d, it grew by 10GiB per day. At this rate it will be full in about 9 weeks (growth was steady)."
    )]
    pub text: String,
}

/// Unit of the points of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HistoryUnit {
    /// Operations per second.
    OperationsPerSecond,
    /// Bytes per second.
    BytesPerSecond,
    /// Microseconds.
    Microseconds,
    /// A fraction, from 0 to 1.
    Ratio,
    /// Bytes.
    Bytes,
}
