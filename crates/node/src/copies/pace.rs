//! How fast resyncs go from one core: within the node's budget, and not at the cost of hosts.
//!
//! A resync takes disk and network capacity that hosts' writes need. While resyncs run, the latency of hosts'
//! writes is compared with what it is without a resync: if it is more than twice that, the rate is halved;
//! otherwise it grows a little, as TCP does on a network that others use, too. Loads change, so a resync
//! pauses for a moment now and then to measure the latency without it. If no host writes, there is nothing to
//! protect, and the rate doubles. It never falls below a quarter of what hosts write, nor below [`RATE_MIN`],
//! so that a resync always ends: hosts whose writes keep the disk busy must not prevent a volume from
//! surviving the next fault.
//!
//! Time and latencies go in; how much may be given comes out.

use std::time::Duration;

use base::Instant;

use super::budget::{Budget, Restraint};

/// The least rate of one core's resyncs in bytes a second, whatever hosts feel, if the budget allows it: 100
/// GiB in seven hours.
const RATE_MIN: u64 = 4 << 20;
/// The rate at which a resync begins if hosts are writing.
const RATE_FIRST: u64 = 64 << 20;
/// What is added after each period in which hosts felt nothing: it takes ten seconds from the least rate to
/// 400 MiB/s.
const RATE_STEP: u64 = 4 << 20;
/// The highest rate: no disk and no network that we know is faster, so beyond it the number means nothing.
const RATE_MAX: u64 = 16 << 30;
/// How often the rate is adjusted.
const PERIOD: Duration = Duration::from_millis(100);
/// Writes faster than this never count as slow: nobody notices.
const SLOW_MIN: Duration = Duration::from_millis(1);
/// A resync may always give one part in this many of what hosts write.
const HOSTS_PARTS: u64 = 4;
/// How often a resync pauses to measure what hosts feel without it: this costs one part in 25 of its time.
const PROBE_EVERY: Duration = Duration::from_secs(5);
/// For how many periods it pauses: what was given before still has an effect in the first.
const PROBE_PERIODS: u32 = 2;
/// How many writes of a period are measured: the first ones.
const SAMPLES_MAX: usize = 512;
/// How long a resync counts as held back after it had to wait.
const HELD_BACK_AGE_MAX: Duration = Duration::from_secs(1);
/// What may be given at once after a pause: what the rate brings in a fiftieth of a second, and at least four
/// regions.
const BURST_MIN: u64 = 256 << 10;
const BURSTS_PER_SECOND: u64 = 50;

/// The rate of one core's resyncs; see the module.
#[derive(Debug)]
pub struct Pace {
    /// The budget that the administrator allows; `None`: no limit.
    budget: Option<Budget>,
    /// The rate that hosts' latencies allow, in bytes a second.
    rate: u64,
    /// Bytes that may be given now; negative after a region that was begun with fewer.
    tokens: i64,
    filled_at: Instant,
    period_from: Instant,
    /// Bytes given in this period and in the previous one.
    given: [u64; 2],
    /// Hosts' writes under way.
    writing: usize,
    /// How long the writes took that have ended in this period.
    latencies: Vec<Duration>,
    /// Bytes that hosts began to write in this period, and the rate of that in bytes a second in the previous
    /// one.
    written: u64,
    hosts_rate: u64,
    /// The 90th percentile of latencies in periods without a resync.
    undisturbed: Option<Duration>,
    /// When that was last measured, or was to be.
    looked_at: Option<Instant>,
    /// Periods for which nothing is given, to measure it.
    probing: u32,
    /// When a resync last had more to give than it was allowed to.
    held_back_at: Option<Instant>,
}

impl Pace {
    /// A pace that knows nothing of hosts yet.
    pub fn new(now: Instant) -> Pace {
        Pace {
            budget: None,
            rate: RATE_FIRST,
            tokens: 0,
            filled_at: now,
            period_from: now,
            given: [0; 2],
            writing: 0,
            latencies: Vec::new(),
            written: 0,
            hosts_rate: 0,
            undisturbed: None,
            looked_at: None,
            probing: 0,
            held_back_at: None,
        }
    }

    /// Sets the most that the core may give from now on; `None`: no limit.
    pub fn set_budget(&mut self, budget: Option<Budget>) {
        self.budget = budget;
    }

    /// A host's write of `bytes` bytes begins.
    pub fn begin_write(&mut self, bytes: u64) {
        self.writing += 1;
        self.written += bytes;
    }

    /// A host's write has ended after `took`, whether done or not.
    pub fn end_write(&mut self, took: Duration) {
        self.writing -= 1;
        if self.latencies.len() < SAMPLES_MAX {
            self.latencies.push(took);
        }
    }

    /// How many bytes may be given now.
    pub fn available(&mut self, now: Instant) -> u64 {
        if now.since(self.period_from) >= PERIOD {
            self.think(now);
        }
        if self.probing > 0 {
            self.filled_at = now;
            return 0;
        }
        let rate = self.bytes_per_second();
        let micros = now.since(self.filled_at).as_micros().min(1_000_000);
        let more = (u128::from(rate) * micros / 1_000_000) as i64;
        // Fractions of a byte are not lost.
        if more > 0 {
            self.filled_at = now;
            self.tokens = (self.tokens + more).min((rate / BURSTS_PER_SECOND).max(BURST_MIN) as i64);
        }
        self.tokens.max(0) as u64
    }

    /// How long to wait until something may be given (again), or the rate is adjusted.
    pub fn wait(&self, now: Instant) -> Duration {
        let adjusted = PERIOD.saturating_sub(now.since(self.period_from));
        if self.probing > 0 {
            return adjusted;
        }
        let missing = u64::try_from(1 - self.tokens).unwrap_or(0);
        let micros = (missing * 1_000_000).div_ceil(self.bytes_per_second().max(1));
        Duration::from_micros(micros).min(adjusted)
    }

    /// Notes that bytes are given.
    pub fn spend(&mut self, bytes: u64) {
        self.tokens -= bytes as i64;
        self.given[0] += bytes;
    }

    /// The rate in force.
    pub fn bytes_per_second(&self) -> u64 {
        self.rate.min(self.budget.map_or(u64::MAX, |budget| budget.bytes_per_second))
    }

    /// Notes that a resync has more to give than it may.
    pub fn hold_back(&mut self, now: Instant) {
        self.held_back_at = Some(now);
    }

    /// What has kept resyncs from going faster just now, if it was the budget or hosts' writes.
    pub fn limited_by(&self, now: Instant) -> Option<Restraint> {
        self.held_back_at.filter(|at| now.since(*at) < HELD_BACK_AGE_MAX)?;
        match self.budget {
            Some(budget) if budget.bytes_per_second <= self.rate => Some(budget.by),
            // Without hosts at work, the rate is only still growing.
            _ => (self.hosts_rate > 0 || self.writing > 0).then_some(Restraint::Hosts),
        }
    }

    fn think(&mut self, now: Instant) {
        let period = now.since(self.period_from);
        self.period_from = now;
        let seen = percentile_90(&mut self.latencies);
        self.latencies.clear();
        self.hosts_rate = (u128::from(self.written) * 1_000_000 / period.as_micros()) as u64;
        self.written = 0;
        let [given, given_before] = self.given;
        self.given = [0, given];
        let probed = self.probing > 0;
        self.probing = self.probing.saturating_sub(1);
        match seen {
            Some(seen) if given == 0 && given_before == 0 => {
                // Go up by half only, since this may be an outlier; a lower latency is believed at once.
                let known = self.undisturbed.unwrap_or(seen);
                self.undisturbed = Some(seen.min((known + seen) / 2));
                self.looked_at = Some(now);
                if !probed {
                    // The rate that a resync reached long ago says nothing about the next one.
                    self.rate = self.rate.min(RATE_FIRST);
                }
            }
            _ if given == 0 => {}
            Some(seen) if self.is_slow(seen) => self.rate /= 2,
            Some(_) => self.rate += RATE_STEP,
            // No write has ended in all this time.
            None if self.writing > 0 => self.rate /= 2,
            None => self.rate *= 2,
        }
        self.rate = self.rate.clamp(RATE_MIN.max(self.hosts_rate / HOSTS_PARTS), RATE_MAX);
        let is_old = self.looked_at.is_none_or(|at| now.since(at) >= PROBE_EVERY);
        if given > 0 && seen.is_some() && is_old {
            self.looked_at = Some(now);
            self.probing = PROBE_PERIODS;
        }
    }

    fn is_slow(&self, seen: Duration) -> bool {
        self.undisturbed.is_some_and(|known| seen > (known * 2).max(SLOW_MIN))
    }
}

/// The 90th percentile: nine of ten are no greater.
///
/// `None` if there are none.
fn percentile_90(latencies: &mut [Duration]) -> Option<Duration> {
    let at = (latencies.len() * 9).div_ceil(10).checked_sub(1)?;
    Some(*latencies.select_nth_unstable(at).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const REGION: u64 = 64 << 10;

    const WRITE: u64 = 4096;

    /// Drives a pace with a resync that takes what it may, and a host that writes one block after the other.
    struct Run {
        pace: Pace,
        now: Instant,
        given_at: Instant,
    }

    impl Run {
        fn new() -> Run {
            let now = Instant(1_000_000_000);
            Run { pace: Pace::new(now), now, given_at: Instant(0) }
        }

        /// Runs `millis` steps of a millisecond, each with `writes` writes, and returns how many bytes were
        /// given.
        ///
        /// `latency` says how long a write takes at the rate at which regions are given then.
        fn run(&mut self, millis: u64, sync: bool, writes: usize, latency: impl Fn(u64) -> Duration) -> u64 {
            let mut given = 0;
            for _ in 0..millis {
                self.now = self.now + Duration::from_millis(1);
                let mut available = self.pace.available(self.now);
                while sync && available > 0 {
                    self.pace.spend(REGION);
                    given += REGION;
                    available = available.saturating_sub(REGION);
                    self.given_at = self.now;
                }
                let felt = self.now.since(self.given_at) < Duration::from_millis(50);
                let rate = if felt { self.pace.bytes_per_second() } else { 0 };
                for _ in 0..writes {
                    self.pace.begin_write(WRITE);
                    self.pace.end_write(latency(rate));
                }
            }
            given
        }
    }

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn without_hosts_a_resync_uses_its_full_budget() {
        let mut run = Run::new();
        assert!(run.run(2000, true, 0, |_| unreachable!()) > 1 << 30);
        run.pace.set_budget(Some(Budget { bytes_per_second: 10 * MIB, by: Restraint::ClusterLimit }));
        run.run(1000, true, 0, |_| unreachable!());
        let given = run.run(10_000, true, 0, |_| unreachable!());
        assert!((99 * MIB..=101 * MIB).contains(&given), "{given}");
    }

    #[test]
    fn a_resync_waits_as_long_as_its_rate_demands() {
        let now = Instant(1_000_000_000);
        let held_back = || {
            let mut pace = Pace::new(now);
            pace.set_budget(Some(Budget { bytes_per_second: MIB, by: Restraint::ClusterLimit }));
            pace.spend(REGION);
            assert_eq!(pace.available(now), 0);
            pace
        };
        let wait = held_back().wait(now);
        assert!((62..64).contains(&wait.as_millis()), "a 16th of a second: {wait:?}");
        assert_eq!(held_back().available(now + (wait - micros(1))), 0);
        assert_eq!(held_back().available(now + wait), 1);
        let mut pace = held_back();
        pace.spend(REGION);
        assert_eq!(pace.wait(now), PERIOD, "the rate may be another one by then");
    }

    #[test]
    fn hosts_writes_take_no_more_than_twice_as_long_for_long() {
        // A disk on which 100 MiB/s of a resync double what a write takes: a fast one, and one that hosts
        // keep busy.
        for alone in [2000, 15_000] {
            let disk = |rate: u64| micros(alone + alone * rate / (100 * MIB));
            let mut run = Run::new();
            run.run(2000, false, 3, |_| micros(alone));
            run.run(5000, true, 3, disk);
            let mut slow = 0;
            let given = (0..100).map(|_| {
                let given = run.run(100, true, 3, disk);
                slow += u32::from(disk(run.pace.bytes_per_second()) > micros(alone * 41 / 20));
                given
            });
            let given: u64 = given.sum();
            assert!(slow <= 20, "in {slow} of 100 periods writes were slow");
            assert!(given > 400 * MIB, "{given} bytes in ten seconds");
        }
    }

    #[test]
    fn host_latency_without_a_resync_is_learned_during_one() {
        // No host wrote before; then the disk is busy with hosts' writes alone.
        let mut run = Run::new();
        let given = run.run(10_000, true, 3, |_| micros(30_000));
        assert!(given > 500 * MIB, "{given} bytes in ten seconds");
        // The load becomes a light one, which the resync disturbs.
        run.run(6000, true, 3, |rate| micros(200 + rate / 10_000));
        let rate = run.pace.bytes_per_second();
        assert!(rate < 16 * MIB, "{rate}");
    }

    #[test]
    fn a_sync_always_ends() {
        let heavy = |rate: u64| micros(if rate == 0 { 300 } else { 50_000 });
        let mut run = Run::new();
        run.run(1000, false, 1, |_| micros(300));
        run.run(5000, true, 1, heavy);
        let given = run.run(10_000, true, 1, heavy);
        assert!((38 * MIB..=41 * MIB).contains(&given), "{given}");
        // Hosts that write much must not stop its progress: 160 KiB a millisecond, a quarter of which is 39
        // MiB/s.
        let given = run.run(10_000, true, 40, heavy);
        assert!((370 * MIB..=400 * MIB).contains(&given), "{given}");
        // The rate grows when hosts feel nothing any more, or are gone.
        run.run(5000, true, 1, |_| micros(900));
        assert!(run.pace.bytes_per_second() > 150 * MIB);
        run.run(5000, true, 1, heavy);
        run.run(1000, true, 0, |_| unreachable!());
        assert!(run.pace.bytes_per_second() > 1 << 30);
    }

    #[test]
    fn writes_that_do_not_end_are_slow() {
        let mut run = Run::new();
        run.run(1000, false, 1, |_| micros(300));
        run.pace.begin_write(WRITE);
        run.run(3000, true, 0, |_| unreachable!());
        assert_eq!(run.pace.bytes_per_second(), RATE_MIN);
    }

    #[test]
    fn few_writes_do_not_make_it_stop_again_and_again() {
        let mut run = Run::new();
        let mut given = 0;
        for _ in 0..30 {
            given += run.run(300, true, 0, |_| unreachable!());
            given += run.run(1, true, 1, |_| micros(500));
        }
        assert!(given > 4 << 30, "{given} bytes in nine seconds");
    }

    #[test]
    fn nine_of_ten() {
        let mut latencies: Vec<Duration> = (1..=20).rev().map(micros).collect();
        assert_eq!(percentile_90(&mut latencies), Some(micros(18)));
        assert_eq!((percentile_90(&mut [micros(7)]), percentile_90(&mut [])), (Some(micros(7)), None));
    }
}
