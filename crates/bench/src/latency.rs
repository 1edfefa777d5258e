//! Latencies of many requests: an HDR histogram.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The histogram covers 100 ns to ten minutes, with three digits; values outside count as the nearest bound.
const MIN_NS: u64 = 100;
const MAX_NS: u64 = 600_000_000_000;

/// The latencies of many requests.
#[derive(Clone)]
pub struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Latency {
        let histogram = Histogram::new_with_bounds(MIN_NS, MAX_NS, 3);
        Latency(histogram.expect("bounds and digits are such as histograms have"))
    }
}

impl Latency {
    /// Counts one request.
    pub(crate) fn note(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds the counts of another thread.
    pub(crate) fn merge(&mut self, other: &Latency) {
        self.0.add(&other.0).expect("all histograms have the same bounds");
    }

    /// The number of requests counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency that `percent` of the requests did not exceed, in microseconds.
    pub fn percentile_us(&self, percent: f64) -> f64 {
        self.0.value_at_percentile(percent) as f64 / 1000.0
    }

    /// The average, in microseconds.
    pub fn mean_us(&self) -> f64 {
        self.0.mean() / 1000.0
    }

    /// The standard deviation, in microseconds.
    pub fn deviation_us(&self) -> f64 {
        self.0.stdev() / 1000.0
    }

    /// The lowest latency, in microseconds.
    pub fn min_us(&self) -> f64 {
        self.0.min() as f64 / 1000.0
    }

    /// The highest latency, in microseconds.
    pub fn max_us(&self) -> f64 {
        self.0.max() as f64 / 1000.0
    }

    /// The number of requests that took longer than `limit`.
    pub fn count_above(&self, limit: Duration) -> u64 {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self.0.len() - self.0.count_between(0, limit)
    }

    /// Percentiles with their latencies in microseconds, ten for each nine: from the lowest latency up to the
    /// last percentile that still separates single requests, and the highest.
    pub fn curve(&self) -> Vec<(f64, f64)> {
        let count = self.count();
        let mut points = Vec::new();
        for step in 0.. {
            // 0, 20.6, 36.9, … 90, … 99, … 99.9
            let above = 10f64.powf(-f64::from(step) / 10.0);
            // A little less than one: powers are not exact.
            if count == 0 || above * (count as f64) < 0.999 {
                break;
            }
            let percent = 100.0 * (1.0 - above);
            points.push((percent, self.percentile_us(percent)));
        }
        if count > 0 {
            points.push((100.0, self.max_us()));
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thousand() -> Latency {
        let mut latency = Latency::default();
        (1..=1000).for_each(|micros| latency.note(Duration::from_micros(micros)));
        latency
    }

    #[test]
    fn percentiles_are_what_the_requests_were() {
        let latency = thousand();
        assert_eq!(latency.count(), 1000);
        for (percent, micros) in [(50.0, 500.0), (95.0, 950.0), (99.9, 999.0), (100.0, 1000.0)] {
            let found = latency.percentile_us(percent);
            assert!((found / micros - 1.0).abs() < 0.002, "{percent}: {found}");
        }
        assert!((latency.mean_us() - 500.5).abs() < 0.5);
        assert_eq!(latency.count_above(Duration::from_micros(900)), 100);
        let mut twice = thousand();
        twice.merge(&latency);
        assert_eq!(twice.count(), 2000);
    }

    #[test]
    fn the_curve_ends_where_the_requests_do() {
        let curve = thousand().curve();
        assert_eq!(curve.len(), 32, "three nines of ten steps, the start and the end: {curve:?}");
        assert!(curve.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
        assert!(Latency::default().curve().is_empty());
    }

    #[test]
    fn values_out_of_range_count_as_the_nearest() {
        let mut latency = Latency::default();
        latency.note(Duration::ZERO);
        latency.note(Duration::from_secs(3600));
        assert_eq!(latency.count(), 2);
        assert!(latency.max_us() >= 599e6);
    }
}
