//! The measurements of one thread of a run.

use std::time::Duration;

use base::Instant;

use crate::Latency;
use crate::coarse::Coarse;

/// The most intervals of a series, for runs below 20 hours: a chart cannot resolve more.
const SLOTS_MAX: u32 = 120;

/// The phases of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// When the first requests are sent.
    pub(crate) start: Instant,
    /// When the measurement begins: after the warm-up.
    pub(crate) from: Instant,
    /// From here on no request starts.
    pub(crate) until: Instant,
    /// The length of an interval of the series.
    pub(crate) interval: Duration,
}

impl Window {
    pub(crate) fn new(start: Instant, warm_up: Duration, duration: Duration) -> Window {
        let interval = interval_of(warm_up + duration);
        Window { start, from: start + warm_up, until: start + warm_up + duration, interval }
    }

    /// The same, with intervals of this length, if one is given.
    pub(crate) fn with_interval(self, interval: Option<Duration>) -> Window {
        Window { interval: interval.unwrap_or(self.interval), ..self }
    }
}

/// The interval of the series of a run of this length: a short, round time.
pub(crate) fn interval_of(whole: Duration) -> Duration {
    let round = [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000];
    let fits = |millis: &u64| whole <= Duration::from_millis(*millis) * SLOTS_MAX;
    Duration::from_millis(round.into_iter().find(fits).unwrap_or(3_600_000))
}

/// Reads, or writes.
#[derive(Clone, Default)]
pub(crate) struct Direction {
    /// Requests answered during the measurement.
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    /// The latency of these, and of those that were under way at the end.
    pub(crate) latency: Latency,
}

impl Direction {
    pub(crate) fn merge(&mut self, other: &Direction) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.latency.merge(&other.latency);
    }
}

/// One interval of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Slot {
    /// Answered reads and writes.
    pub(crate) requests: [u64; 2],
    pub(crate) bytes: [u64; 2],
    pub(crate) latency_sum: Duration,
    pub(crate) latency_max: Duration,
    pub(crate) latencies: Coarse,
}

/// Reads and writes.
pub(crate) type Directions = [Direction; 2];

/// The measurements.
pub(crate) struct Recorder {
    window: Window,
    pub(crate) directions: Directions,
    /// By the time of the answer, from the start of the run.
    pub(crate) series: Vec<Slot>,
}

/// An answered request.
pub(crate) struct Answered {
    pub(crate) read: bool,
    pub(crate) bytes: u64,
    /// When it was sent, or was due.
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

impl Recorder {
    pub(crate) fn new(window: Window) -> Recorder {
        Recorder { window, directions: Directions::default(), series: Vec::new() }
    }

    /// Records a request. `until` is when the measurement ended, if it ended early.
    pub(crate) fn note(&mut self, request: &Answered, until: Instant) {
        let Answered { read, bytes, began, ended } = *request;
        let (at, latency) = (usize::from(!read), ended - began);
        if ended >= self.window.from {
            let direction = &mut self.directions[at];
            direction.latency.note(latency);
            if ended < self.window.until.min(until) {
                direction.requests += 1;
                direction.bytes += bytes;
            }
        }
        if ended < self.window.until {
            let number = (ended - self.window.start).as_nanos() / self.window.interval.as_nanos();
            let slot = self.slot(number as usize);
            slot.requests[at] += 1;
            slot.bytes[at] += bytes;
            slot.latency_sum += latency;
            slot.latency_max = slot.latency_max.max(latency);
            slot.latencies.note(latency);
        }
    }

    /// Records a request that was due during the measurement and was never sent: it would have taken longer
    /// than it has waited.
    pub(crate) fn note_never_begun(&mut self, read: bool, waited: Duration) {
        self.directions[usize::from(!read)].latency.note(waited);
    }

    fn slot(&mut self, number: usize) -> &mut Slot {
        if self.series.len() <= number {
            self.series.resize(number + 1, Slot::default());
        }
        &mut self.series[number]
    }

    /// Adds the measurements of another thread in the same window.
    pub(crate) fn merge(&mut self, other: &Recorder) {
        for (ours, theirs) in self.directions.iter_mut().zip(&other.directions) {
            ours.merge(theirs);
        }
        for (number, theirs) in other.series.iter().enumerate() {
            let ours = self.slot(number);
            for at in 0..2 {
                ours.requests[at] += theirs.requests[at];
                ours.bytes[at] += theirs.bytes[at];
            }
            ours.latency_sum += theirs.latency_sum;
            ours.latency_max = ours.latency_max.max(theirs.latency_max);
            ours.latencies.merge(&theirs.latencies);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn request(began: u64, ended: u64) -> Answered {
        Answered { read: true, bytes: 512, began: Instant(began), ended: Instant(ended) }
    }

    #[test]
    fn only_what_is_answered_in_time_counts_for_the_rate() {
        let window = Window::new(Instant(SECOND), Duration::from_secs(1), Duration::from_secs(2));
        let mut recorder = Recorder::new(window);
        let open = Instant(u64::MAX);
        recorder.note(&request(SECOND, SECOND + 1), open);
        recorder.note(&request(2 * SECOND - 1, 2 * SECOND), open);
        recorder.note(&request(4 * SECOND - 1, 4 * SECOND + 7), open);
        let reads = &recorder.directions[0];
        assert_eq!((reads.requests, reads.bytes, reads.latency.count()), (1, 512, 2));
        assert_eq!(
            recorder.series.iter().map(|slot| slot.requests[0]).sum::<u64>(),
            2,
            "the warm-up is shown"
        );
        recorder.note(&request(3 * SECOND, 3 * SECOND + 1), Instant(3 * SECOND));
        assert_eq!(recorder.directions[0].requests, 1, "it ended early");
    }

    #[test]
    fn threads_add_up() {
        let window = Window::new(Instant(0), Duration::ZERO, Duration::from_secs(10));
        let [mut one, mut two] = [Recorder::new(window), Recorder::new(window)];
        one.note(&request(0, 5), Instant(u64::MAX));
        two.note(&request(0, 9 * SECOND), Instant(u64::MAX));
        one.merge(&two);
        assert_eq!(one.directions[0].requests, 2);
        assert_eq!(one.series.len(), 91);
        assert_eq!(one.series[90].latency_max, Duration::from_secs(9));
        assert!(one.series[90].latencies.percentile(99.0) >= Some(Duration::from_secs(9)));
    }

    #[test]
    fn intervals_are_round() {
        let interval = |seconds| interval_of(Duration::from_secs(seconds)).as_millis();
        assert_eq!([2, 15, 65, 125, 3600].map(interval), [100, 200, 1000, 2000, 30000]);
        let hour = Window::new(Instant(0), Duration::ZERO, Duration::from_secs(3600));
        let second = Duration::from_secs(1);
        assert_eq!(hour.with_interval(Some(second)).interval, second);
        assert_eq!(hour.with_interval(None).interval, Duration::from_secs(30));
    }
}
