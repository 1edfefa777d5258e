//! Latencies of one interval of a series, in so few bytes that there may be thousands of intervals.

use std::time::Duration;

/// Steps between two powers of two: a percentile is rounded up by a sixteenth at most.
const STEPS: usize = 1 << STEP_BITS;
const STEP_BITS: u32 = 4;

/// Counts latencies by steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Coarse(Vec<u32>);

impl Coarse {
    /// Counts one request.
    pub(crate) fn note(&mut self, latency: Duration) {
        let step = step_of(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        if self.0.len() <= step {
            self.0.resize(step + 1, 0);
        }
        self.0[step] = self.0[step].saturating_add(1);
    }

    /// Adds the counts of another thread.
    pub(crate) fn merge(&mut self, other: &Coarse) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (ours, theirs) in self.0.iter_mut().zip(&other.0) {
            *ours = ours.saturating_add(*theirs);
        }
    }

    /// The latency that `percent` of the requests did not exceed, rounded up to a step; `None` without
    /// requests.
    pub(crate) fn percentile(&self, percent: f64) -> Option<Duration> {
        let all: u64 = self.0.iter().map(|count| u64::from(*count)).sum();
        let wanted = ((all as f64 * percent / 100.0).ceil() as u64).max(1);
        let mut seen = 0;
        let step = self.0.iter().position(|count| {
            seen += u64::from(*count);
            seen >= wanted
        })?;
        Some(Duration::from_nanos(end_of(step)))
    }
}

/// The step of a latency: each nanosecond below [`STEPS`] is one.
fn step_of(nanos: u64) -> usize {
    if nanos < STEPS as u64 {
        return nanos as usize;
    }
    let shift = nanos.ilog2() - STEP_BITS;
    shift as usize * STEPS + (nanos >> shift) as usize
}

/// The highest latency of a step.
fn end_of(step: usize) -> u64 {
    if step < STEPS {
        return step as u64;
    }
    let shift = step / STEPS - 1;
    let first = ((step % STEPS + STEPS) as u64) << shift;
    first + ((1u64 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_follow_each_other() {
        let nanos = [0, 15, 16, 17, 31, 32, 33, 34, 1000, 123_456_789, u64::MAX / 3, u64::MAX];
        for latency in nanos {
            let step = step_of(latency);
            assert!(end_of(step) >= latency, "{latency}");
            assert!(step == 0 || end_of(step - 1) < latency, "{latency}");
        }
        assert_eq!([16, 31, 32, 33, 34].map(step_of), [16, 31, 32, 32, 33]);
    }

    #[test]
    fn percentiles_are_rounded_up() {
        let mut one = Coarse::default();
        assert_eq!(one.percentile(99.0), None);
        (1..=990).for_each(|_| one.note(Duration::from_micros(100)));
        let mut other = Coarse::default();
        (1..=10).for_each(|_| other.note(Duration::from_millis(50)));
        one.merge(&other);
        let micros = |percent| one.percentile(percent).unwrap().as_secs_f64() * 1e6;
        assert!((100.0..107.0).contains(&micros(99.0)), "{}", micros(99.0));
        assert!((50_000.0..53_200.0).contains(&micros(99.1)), "{}", micros(99.1));
    }
}
