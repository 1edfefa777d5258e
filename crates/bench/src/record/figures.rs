//! Rates and latencies.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Latency;
use crate::recorder;

/// Reads, or writes, or both.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Direction {
    /// Requests answered during the measurement.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests per second.
    pub iops: f64,
    /// Millions of bytes per second.
    pub mb_per_s: f64,
    /// Their latency; `None` without requests.
    pub latency: Option<LatencyFigures>,
}

/// Latencies in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyFigures {
    /// The average.
    pub mean_us: f64,
    /// The standard deviation.
    pub deviation_us: f64,
    /// The lowest.
    pub min_us: f64,
    /// The median.
    pub p50_us: f64,
    /// Not exceeded by 90 %.
    pub p90_us: f64,
    /// Not exceeded by 95 %.
    pub p95_us: f64,
    /// Not exceeded by 99 %.
    pub p99_us: f64,
    /// Not exceeded by 99.9 %.
    pub p99_9_us: f64,
    /// Not exceeded by 99.99 %.
    pub p99_99_us: f64,
    /// The highest.
    pub max_us: f64,
    /// Percentiles and their latencies, ten for each nine.
    pub curve: Vec<(f64, f64)>,
}

impl Direction {
    pub(crate) fn new(direction: &recorder::Direction, measured: Duration) -> Direction {
        let seconds = measured.as_secs_f64().max(1e-9);
        Direction {
            requests: direction.requests,
            bytes: direction.bytes,
            iops: direction.requests as f64 / seconds,
            mb_per_s: direction.bytes as f64 / 1e6 / seconds,
            latency: LatencyFigures::new(&direction.latency),
        }
    }
}

impl LatencyFigures {
    pub(crate) fn new(latency: &Latency) -> Option<LatencyFigures> {
        (latency.count() > 0).then(|| LatencyFigures {
            mean_us: latency.mean_us(),
            deviation_us: latency.deviation_us(),
            min_us: latency.min_us(),
            p50_us: latency.percentile_us(50.0),
            p90_us: latency.percentile_us(90.0),
            p95_us: latency.percentile_us(95.0),
            p99_us: latency.percentile_us(99.0),
            p99_9_us: latency.percentile_us(99.9),
            p99_99_us: latency.percentile_us(99.99),
            max_us: latency.max_us(),
            curve: latency.curve(),
        })
    }

    /// The figures that tables show, with their names.
    pub fn shown(&self) -> [(&'static str, f64); 7] {
        [
            ("p50", self.p50_us),
            ("p90", self.p90_us),
            ("p95", self.p95_us),
            ("p99", self.p99_us),
            ("p99.9", self.p99_9_us),
            ("p99.99", self.p99_99_us),
            ("max", self.max_us),
        ]
    }
}

/// One interval of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Reads per second.
    pub reads: f64,
    /// Writes per second.
    pub writes: f64,
    /// Millions of bytes per second, reads and writes together.
    pub mb_per_s: f64,
    /// The average latency of the answered requests, in microseconds.
    pub mean_us: f64,
    /// The latency that 99 % did not exceed, in microseconds; rounded up by a sixteenth at most.
    #[serde(default)]
    pub p99_us: f64,
    /// The highest latency, in microseconds.
    pub max_us: f64,
}

impl Sample {
    pub(crate) fn new(slot: &recorder::Slot, interval: Duration) -> Sample {
        let seconds = interval.as_secs_f64();
        let requests = slot.requests[0] + slot.requests[1];
        let p99 = slot.latencies.percentile(99.0).unwrap_or_default().min(slot.latency_max);
        Sample {
            reads: slot.requests[0] as f64 / seconds,
            writes: slot.requests[1] as f64 / seconds,
            mb_per_s: (slot.bytes[0] + slot.bytes[1]) as f64 / 1e6 / seconds,
            mean_us: slot.latency_sum.as_secs_f64() * 1e6 / requests.max(1) as f64,
            p99_us: p99.as_secs_f64() * 1e6,
            max_us: slot.latency_max.as_secs_f64() * 1e6,
        }
    }
}
