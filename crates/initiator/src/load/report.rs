//! What a run measured.

use std::fmt::{self, Write};
use std::time::Duration;

use hdrhistogram::Histogram;

/// The histogram covers 100 ns to a minute, with three digits; values outside count as the nearest bound.
const LATENCY_MIN_NS: u64 = 100;
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// Reads, or writes.
#[derive(Clone, Debug)]
pub struct Direction {
    /// Requests that succeeded.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    latency_ns: Histogram<u64>,
}

impl Default for Direction {
    fn default() -> Direction {
        let latency_ns = Histogram::new_with_bounds(LATENCY_MIN_NS, LATENCY_MAX_NS, 3)
            .expect("bounds and digits are such as histograms have");
        Direction { requests: 0, bytes: 0, latency_ns }
    }
}

impl Direction {
    pub(super) fn note(&mut self, latency: Duration, bytes: u32) {
        self.requests += 1;
        self.bytes += u64::from(bytes);
        self.latency_ns.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The latency that `percent` of the requests did not exceed.
    pub fn latency(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.latency_ns.value_at_percentile(percent))
    }

    fn merge(&mut self, other: &Direction) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.latency_ns.add(&other.latency_ns).expect("all histograms have the same bounds");
    }
}

/// What a run measured.
#[derive(Clone, Debug)]
pub struct Report {
    /// From the first request to the last answer.
    pub elapsed: Duration,
    /// CPU time that the client used during that time.
    pub client_cpu: Option<Duration>,
    /// The reads.
    pub reads: Direction,
    /// The writes.
    pub writes: Direction,
}

/// The percentiles that a report shows.
const SHOWN: [(&str, f64); 5] =
    [("p50", 50.0), ("p95", 95.0), ("p99", 99.0), ("p99.9", 99.9), ("max", 100.0)];

impl Report {
    /// Requests that succeeded.
    pub fn requests(&self) -> u64 {
        self.reads.requests + self.writes.requests
    }

    /// Requests per second.
    pub fn rate(&self) -> f64 {
        self.per_second(self.requests())
    }

    /// CPU time of the client per request.
    pub fn client_cpu_a_request(&self) -> Option<Duration> {
        let nanos = self.client_cpu?.as_nanos().checked_div(u128::from(self.requests()))?;
        u64::try_from(nanos).ok().map(Duration::from_nanos)
    }

    /// Adds the report of another core's concurrent run.
    pub fn merge(&mut self, other: &Report) {
        self.elapsed = self.elapsed.max(other.elapsed);
        self.client_cpu = self.client_cpu.zip(other.client_cpu).map(|(ours, theirs)| ours + theirs);
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
    }

    fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    fn directions(&self) -> [(&'static str, &Direction); 2] {
        [("read", &self.reads), ("write", &self.writes)]
    }

    /// The report as one JSON object; times in microseconds.
    pub fn to_json(&self) -> String {
        let mut json = format!("{{\"seconds\":{:.3}", self.elapsed.as_secs_f64());
        if let (Some(cpu), Some(each)) = (self.client_cpu, self.client_cpu_a_request()) {
            let (cpu, each) = (cpu.as_secs_f64(), micros(each));
            let _ = write!(json, ",\"client_cpu_seconds\":{cpu:.3},\"client_cpu_us_per_request\":{each:.3}");
        }
        for (name, direction) in self.directions() {
            let _ = write!(
                json,
                ",\"{name}\":{{\"requests\":{},\"iops\":{:.1},\"mb_per_s\":{:.3}",
                direction.requests,
                self.per_second(direction.requests),
                self.per_second(direction.bytes) / 1e6
            );
            for (label, percent) in SHOWN {
                let _ = write!(json, ",\"{label}_us\":{:.1}", micros(direction.latency(percent)));
            }
            json.push('}');
        }
        json.push('}');
        json
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<6}{:>12}{:>12}{:>12}", "", "requests", "IOPS", "MB/s")?;
        for (label, _) in SHOWN {
            write!(f, "{:>12}", format!("{label} µs"))?;
        }
        for (name, direction) in self.directions().into_iter().filter(|(_, direction)| direction.requests > 0)
        {
            write!(
                f,
                "\n{name:<6}{:>12}{:>12.0}{:>12.1}",
                direction.requests,
                self.per_second(direction.requests),
                self.per_second(direction.bytes) / 1e6
            )?;
            for (_, percent) in SHOWN {
                write!(f, "{:>12.1}", micros(direction.latency(percent)))?;
            }
        }
        if let (Some(cpu), Some(each)) = (self.client_cpu, self.client_cpu_a_request()) {
            let share = 100.0 * cpu.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9);
            write!(f, "\nclient CPU {share:.0} % of a core, {:.2} µs a request", micros(each))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_adds_up() {
        let mut reads = Direction::default();
        for micros in 1..=1000 {
            reads.note(Duration::from_micros(micros), 4096);
        }
        let mut report = Report {
            elapsed: Duration::from_secs(2),
            client_cpu: Some(Duration::from_millis(3)),
            reads,
            writes: Direction::default(),
        };
        assert_eq!(report.requests(), 1000);
        assert_eq!(report.client_cpu_a_request(), Some(Duration::from_micros(3)));
        assert!((499.0..=502.0).contains(&micros(report.reads.latency(50.0))));
        assert!(report.to_json().starts_with(
            "{\"seconds\":2.000,\"client_cpu_seconds\":0.003,\"client_cpu_us_per_request\":3.000,\"read\":{\"requests\":1000,\"iops\":500.0,\"mb_per_s\":2.048,\"p50_us\":50"
        ));
        assert_eq!(report.to_string().lines().count(), 3);
        report.merge(&report.clone());
        assert_eq!(report.requests(), 2000);
    }
}
