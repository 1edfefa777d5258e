//! What has gone on in the last days.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Missing;

/// What to ask for of the last seven days. What is absent is as the node likes it.
#[derive(Clone, Debug, Default)]
pub struct HistoryQuery {
    /// Names of series; none: all.
    pub series: Vec<String>,
    /// From when on, in seconds since 1970.
    pub from: Option<u64>,
    /// Until when.
    pub to: Option<u64>,
    /// How many points at most.
    pub points: Option<u32>,
    /// The number of a node, or `all`.
    pub node: Option<String>,
}

/// What was kept of nodes, in steps of the same length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// Where the first step begins, in seconds since 1970.
    pub from: u64,
    /// How long a step is, in seconds.
    pub step_s: u32,
    /// By node, each series that was asked for; of each pool of the node two.
    pub series: Vec<HistorySeries>,
    /// Nodes whose part is missing, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
}

/// One value of one node, or of one of its pools, step by step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HistorySeries {
    /// The number of the node; absent without a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
    /// The name of the node; absent without a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Which value.
    #[schema(example = "write_operations")]
    pub series: String,
    /// Of which pool, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// What is counted.
    pub unit: HistoryUnit,
    /// One a step: the mean, and of `_p99_us` the greatest. `null`: nothing was kept then, or there was nothing to measure.
    pub points: Vec<Option<f64>>,
}

/// When a pool is full if it is filled as in the last days.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Forecast {
    /// The pool's name.
    pub pool: String,
    /// The number of the node that has it; absent without a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
    /// The name of that node; absent without a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// How long a time is known of, in seconds: of the last seven days.
    pub known_s: u64,
    /// Bytes that were added a day, on average; 0: it does not get fuller. Absent: too little is known for a forecast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth_per_day: Option<u64>,
    /// Seconds until it is full; absent: no end is in sight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_in_s: Option<u64>,
    /// Seconds: four of five times it is full no sooner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soonest_s: Option<u64>,
    /// Seconds: nor later. Absent: it grew so unevenly that it may never be full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_s: Option<u64>,
    /// It may be full within a month.
    pub soon: bool,
    /// All of this in a sentence or two.
    #[schema(
        example = "Over the last 7 d 10GiB a day were added. If it goes on so, it is full in about 9 weeks (it grew evenly)."
    )]
    pub text: String,
}

/// What the points of a series count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HistoryUnit {
    /// Operations a second.
    OperationsPerSecond,
    /// Bytes a second.
    BytesPerSecond,
    /// Microseconds.
    Microseconds,
    /// A part of one.
    Ratio,
    /// Bytes.
    Bytes,
}
