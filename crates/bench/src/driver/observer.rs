//! What the calling thread does during a run.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rt::{CoreId, Handle};

use super::snapshot::{Between, Snapshot, Threads, threads};
use super::{Progress, Watch};
use crate::engine::{Count, Gauge};
use crate::machine::utc_now;
use crate::record::CpuSample;
use crate::recorder::interval_of;
use crate::{Phase, Workload};

/// How often it looks, at least.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How often it reports progress.
const SHOW_INTERVAL: Duration = Duration::from_secs(1);

/// Observes a run from outside.
pub(super) struct Observer {
    gauge: Arc<Gauge>,
    phases: Receiver<Phase>,
    pub(super) servers: Vec<u32>,
    /// Date and time of the start.
    pub(super) started: String,
    warm_up: Duration,
    duration: Duration,
    phase: Phase,
    phase_began: Instant,
    /// When the first request was sent.
    began: Option<Instant>,
    /// When progress was last reported, and the count at that time.
    shown: (Instant, Count),
    /// The last sample of the series of CPU times.
    sampled: Option<Snapshot>,
    pub(super) series: Vec<CpuSample>,
    /// The two ends of the measurement.
    pub(super) from: Option<(Snapshot, Threads)>,
    pub(super) to: Option<(Snapshot, Threads)>,
}

impl Observer {
    pub(super) fn new(
        gauge: Arc<Gauge>,
        phases: Receiver<Phase>,
        servers: &[u32],
        workload: &Workload,
    ) -> Observer {
        let now = Instant::now();
        Observer {
            gauge,
            phases,
            servers: servers.to_vec(),
            started: utc_now(),
            warm_up: workload.warm_up,
            duration: workload.duration,
            phase: Phase::Preparing,
            phase_began: now,
            began: None,
            shown: (now, Count::default()),
            sampled: None,
            series: Vec::new(),
            from: None,
            to: None,
        }
    }

    pub(super) fn gauge(&self) -> Arc<Gauge> {
        Arc::clone(&self.gauge)
    }

    /// Waits a moment and looks; returns whether the run has ended.
    pub(super) fn look(&mut self, watch: Watch<'_>, cores: &Handle) -> bool {
        match self.phases.recv_timeout(LOOK_INTERVAL) {
            Ok(phase) => self.enter(phase),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return true,
        }
        self.sample();
        if self.shown.0.elapsed() >= SHOW_INTERVAL && self.show(watch).is_break() {
            let gauge = self.gauge();
            // The run is stopped by the clock of its cores; nothing waits for the call.
            drop(cores.call(CoreId(0), move || async move { gauge.stop(rt::now()) }));
        }
        self.phase == Phase::Over
    }

    fn enter(&mut self, phase: Phase) {
        if phase == self.phase {
            return;
        }
        (self.phase, self.phase_began) = (phase, Instant::now());
        match phase {
            Phase::WarmUp => {
                self.began = Some(self.phase_began);
                self.sampled = Some(self.snapshot());
            }
            Phase::Measuring => self.from = Some((self.snapshot(), threads(&self.servers))),
            Phase::Draining => self.to = Some((self.snapshot(), threads(&self.servers))),
            Phase::Preparing | Phase::Filling | Phase::Over => {}
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::take(self.gauge.count(), &self.servers)
    }

    /// Adds to the series of CPU times, once per interval while requests are sent.
    fn sample(&mut self) {
        let (Some(began), Some(last)) = (self.began, &self.sampled) else { return };
        // CPU times of processes advance in steps of 10 ms: an interval has some tens of them.
        let interval = interval_of(self.warm_up + self.duration).max(5 * LOOK_INTERVAL);
        if !matches!(self.phase, Phase::WarmUp | Phase::Measuring) || last.at.elapsed() < interval {
            return;
        }
        let now = self.snapshot();
        let between = Between { from: last, to: &now };
        self.series.push(CpuSample {
            at: (now.at - began).as_secs_f64(),
            client: between.percent(between.client()),
            servers: between.percent(between.servers()),
            others: between.percent(between.others().unwrap_or_default()),
        });
        self.sampled = Some(now);
    }

    fn show(&mut self, watch: Watch<'_>) -> ControlFlow<()> {
        let (now, count) = (Instant::now(), self.gauge.count());
        let (before, earlier) = std::mem::replace(&mut self.shown, (now, count));
        let seconds = (now - before).as_secs_f64();
        let more = |of: fn(&Count) -> [u64; 2]| [0, 1].map(|at| (of(&count)[at] - of(&earlier)[at]) as f64);
        let [read_bytes, written_bytes] = more(|count| count.bytes);
        watch(&Progress {
            phase: self.phase,
            elapsed: self.phase_began.elapsed(),
            of: match self.phase {
                Phase::WarmUp => Some(self.warm_up),
                Phase::Measuring => Some(self.duration),
                Phase::Preparing | Phase::Filling | Phase::Draining | Phase::Over => None,
            },
            fill: self.gauge.fill(),
            iops: more(|count| count.requests).map(|requests| requests / seconds),
            mb_per_s: (read_bytes + written_bytes) / seconds / 1e6,
        })
    }
}
