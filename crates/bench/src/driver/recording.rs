//! Creates a record from the measurements.

use base::Instant;

use super::snapshot::{Between, Snapshot};
use super::{Driver, Observer};
use crate::device::Failure;
use crate::engine::{self, Outcome};
use crate::machine::own_pid;
use crate::record::{Check, Cpu, Direction, Ending, Loss, Noise, OpenLoop, Process, Run, Sample, Thread};
use crate::recorder;
use crate::{Target, Workload};

/// Other processes may use this much of a processor before a note says so: on a machine with few processors a
/// quarter of one matters.
const OTHERS_PERCENT_MAX: f64 = 25.0;

pub(super) fn record(driver: &Driver, workload: &Workload, outcome: &Outcome, observer: Observer) -> Run {
    let window = outcome.window;
    let measured = outcome.ended - window.from;
    let directions = &outcome.recorder.directions;
    let mut both = directions[0].clone();
    both.merge(&directions[1]);
    let [reads, writes, total] =
        [&directions[0], &directions[1], &both].map(|direction| Direction::new(direction, measured));
    let series = series(outcome);
    let measured_from = (window.from - window.start).div_duration_f64(window.interval).ceil() as usize;
    let mut noise = noise(&observer);
    noise.rate_deviation_percent = rate_deviation(series.get(measured_from..).unwrap_or_default());
    let notes = notes(driver, workload, outcome, &noise);
    let losses = outcome.losses.iter();
    let started = observer.started.clone();
    Run {
        name: workload.title(),
        workload: workload.clone(),
        letters: workload.letters(),
        subjects: driver.subjects(),
        started,
        seconds: measured.as_secs_f64(),
        reads,
        writes,
        total,
        interval: window.interval.as_secs_f64(),
        series,
        cpu: cpu(observer),
        noise,
        check: workload.verify.then_some(Check { checked: outcome.checked, unchecked: outcome.unchecked }),
        open_loop: workload.rate.map(|rate| OpenLoop { rate, never_begun: outcome.never_begun }),
        ceiling: None,
        ending: Ending {
            complete: outcome.ended == window.until,
            losses: losses.map(|loss| record_loss(loss, &driver.setup.targets, window.start)).collect(),
            unanswered_reads: outcome.unanswered[0],
            unanswered_writes: outcome.unanswered[1],
        },
        notes,
    }
}

/// The complete intervals.
fn series(outcome: &Outcome) -> Vec<Sample> {
    let window = outcome.window;
    let whole = (outcome.ended - window.start).as_nanos() / window.interval.as_nanos();
    // Intervals at the very end without any answer have no slot; they count all the same.
    let empty = recorder::Slot::default();
    let padded = outcome.recorder.series.iter().chain(std::iter::repeat(&empty)).take(whole as usize);
    padded.map(|slot| Sample::new(slot, window.interval)).collect()
}

/// The standard deviation of the rates, in percent of their average.
fn rate_deviation(series: &[Sample]) -> Option<f64> {
    let rates: Vec<f64> = series.iter().map(|sample| sample.reads + sample.writes).collect();
    let count = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / count;
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (rates.len() > 1 && mean > 0.0).then(|| 100.0 * variance.sqrt() / mean)
}

pub(super) fn noise(observer: &Observer) -> Noise {
    let (Some((from, _)), Some((to, _))) = (&observer.from, &observer.to) else { return Noise::default() };
    let between = Between { from, to };
    Noise {
        others_percent: between.others().map(|others| between.percent(others)),
        stolen_percent: between.stolen().map(|stolen| between.percent(stolen)),
        rate_deviation_percent: None,
    }
}

pub(super) fn cpu(observer: Observer) -> Option<Cpu> {
    let ((from, before), (to, after)) = (observer.from?, observer.to?);
    let between = Between { from: &from, to: &to };
    let threads = |process: usize| between.threads(&before[process], &after[process]);
    let client = between.process(own_pid(), between.client(), threads(0));
    let servers = observer.servers.iter().enumerate();
    let servers =
        servers.filter_map(|(number, pid)| server(&between, number, *pid, threads(number + 1))).collect();
    Some(Cpu { client, servers, series: observer.series })
}

/// A server that existed at both ends of the measurement.
fn server(between: &Between<'_>, number: usize, pid: u32, threads: Vec<Thread>) -> Option<Process> {
    let cpu = |snapshot: &Snapshot| snapshot.servers.get(number).copied().flatten();
    let used = cpu(between.to)?.saturating_sub(cpu(between.from)?);
    Some(Process { disk: between.disk(number), ..between.process(pid, used, threads) })
}

pub(super) fn record_loss(loss: &engine::Loss, targets: &[Target], start: Instant) -> Loss {
    let since = |at: Instant| (at - start).as_secs_f64();
    let direction = if loss.read { "read" } else { "write" };
    Loss {
        target: targets[loss.place].clone(),
        at: since(loss.at),
        last_answer: loss.last_answer.map(since),
        request: format!("{direction} at byte {}", loss.offset),
        reason: with_causes(&loss.failure),
        wrong_data: matches!(loss.failure, Failure::WrongData(_)),
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", with_causes(source)),
        None => error.to_string(),
    }
}

/// What a reader of the figures should know.
fn notes(driver: &Driver, workload: &Workload, outcome: &Outcome, noise: &Noise) -> Vec<String> {
    let mut notes = Vec::new();
    let units = driver.setup.targets.iter().any(|target| matches!(target, Target::Unit(_)));
    if workload.reads() && driver.found.iter().any(|found| found.empty == Some(true)) {
        notes.push(
            "The target looks empty. Blocks that were never written may be cheaper to read; --precondition random writes them first.".to_owned(),
        );
    }
    if units && driver.servers.is_empty() {
        notes.push(
            "The server's CPU time is unknown: no process on this machine listens at the portal. Use --server-pid to name one.".to_owned(),
        );
    }
    if let Some(percent) = noise.others_percent.filter(|percent| *percent > OTHERS_PERCENT_MAX) {
        // A server that was not found counts as one of the other processes.
        if !units || !driver.servers.is_empty() {
            notes.push(format!(
                "Other processes used {percent:.0} % of a CPU during the run, so figures may not repeat. `ursa bench compare --rounds` alternates the runs."
            ));
        }
    }
    if outcome.never_begun > 0 {
        notes.push(format!(
            "The target cannot keep up with the rate: {} requests were due and never sent. They count with the time they had waited.",
            crate::grouped(outcome.never_begun as f64)
        ));
    }
    if outcome.unchecked > 0 {
        notes.push(
            "Reads of blocks that this run had not written could not be checked; --precondition random writes all of them first.".to_owned(),
        );
    }
    if workload.thread_stride == 0 && workload.threads > 1 && is_own_sequence(workload) {
        notes.push(
            "All threads access the same blocks from the start, as with DISKSPD: -T spaces them apart, -si makes them share one sequence.".to_owned(),
        );
    }
    notes
}

fn is_own_sequence(workload: &Workload) -> bool {
    matches!(workload.access, crate::Access::Sequential { interlocked: false, .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_deviate() {
        let sample = |reads| Sample { reads, ..Sample::default() };
        assert_eq!(rate_deviation(&[sample(100.0)]), None);
        assert_eq!(rate_deviation(&[sample(0.0), sample(0.0)]), None);
        let deviation = rate_deviation(&[sample(90.0), sample(110.0)]).unwrap();
        assert!((deviation - 14.14).abs() < 0.01, "{deviation}");
    }
}
