//! The record of a simulated mail server: its tasks, whether they were late, and the I/O of its volumes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Direction, LatencyFigures, Subject};
use crate::engine::{MailOutcome, MailWindow as Noted, TaskNotes};
use crate::mail::{KINDS, LATE, MailProfile, PAGE_BYTES, SEND, WINDOWS, steady_from};
use crate::recorder::Directions;
use crate::{Role, Target};

/// Steady state requires this many tasks per window, on average: the mean of fewer is too imprecise.
const WINDOW_TASKS_MIN: f64 = 20.0;

/// A run of a simulated mail server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mail {
    /// Number of users.
    pub users: u32,
    /// Tasks per user and day.
    pub tasks_a_day: u32,
    /// The length of a day, in seconds.
    pub day: f64,
    /// How many times faster than that a day passed.
    pub compression: f64,
    /// Tasks per second that were due.
    pub due_rate: f64,
    /// The start of steady state, in seconds from the first task; `None` if there was none.
    pub steady: Option<f64>,
    /// Why there was no steady state, if that is known.
    pub unsteady: Option<Unsteady>,
    /// The start of the time that the figures cover, in seconds from the first task.
    pub from: f64,
    /// The end of that time.
    pub to: f64,
    /// How far the mean latencies of the windows in that time are below and above their mean, in percent.
    pub band_percent: (f64, f64),
    /// Tasks of all kinds.
    pub all: TaskFigures,
    /// Tasks by kind.
    pub tasks: Vec<TaskFigures>,
    /// The whole run, in equal parts.
    pub windows: Vec<MailWindow>,
    /// The I/O of the parts of the targets.
    pub volumes: Vec<MailVolume>,
    /// Tasks that were due and never started. They count with the time that they had waited.
    pub never_begun: u64,
}

/// Why a run was not steady.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unsteady {
    /// Latency changed until the end.
    Changing,
    /// Tasks were due faster than the server could execute them.
    Overloaded,
    /// There were too few tasks.
    FewTasks,
    /// The run was stopped, or failed.
    Incomplete,
}

/// Tasks of one kind, or of all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskFigures {
    /// Its name.
    pub name: String,
    /// Tasks that ended in the time that the figures cover.
    pub tasks: u64,
    /// These tasks per second.
    pub rate: f64,
    /// Of the tasks that were due in that time, those that took longer than 1,000 ms.
    pub late: u64,
    /// Their latency from when they were due; `None` without tasks.
    pub latency: Option<LatencyFigures>,
}

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MailWindow {
    /// Its end, in seconds from the first task.
    pub until: f64,
    /// Tasks that ended, per second.
    pub rate: f64,
    /// The mean latency of the tasks that were due in it, in microseconds; `None` without tasks.
    pub mean_us: Option<f64>,
    /// Their 95th percentile.
    pub p95_us: Option<f64>,
    /// The 95th percentile of "send mail".
    pub send_p95_us: Option<f64>,
}

/// A part of a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MailVolume {
    /// Its purpose.
    pub role: Role,
    /// The target.
    pub target: Target,
    /// Its offset on the target, in bytes.
    pub start: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The reads.
    pub reads: Direction,
    /// The writes.
    pub writes: Direction,
}

impl Mail {
    /// The record of a mail server's run; and its reads and writes in the time that the figures cover.
    pub(crate) fn of(
        profile: &MailProfile,
        outcome: &MailOutcome,
        subjects: &[Subject],
    ) -> (Mail, Directions) {
        let window = profile.duration.as_secs_f64() / WINDOWS as f64;
        let run = &outcome.outcome;
        let complete = run.ended == run.window.until && run.losses.is_empty();
        let ran = (run.ended - run.window.start).as_secs_f64();
        let noted = &outcome.windows;
        let merged: Vec<TaskNotes> = noted.iter().map(|window| merge(window.tasks.iter())).collect();
        let (found, unsteady) = steadiness(&merged, complete, run.never_begun);
        let first = found.unwrap_or(((ran / window / 2.0) as usize).min(WINDOWS - 1));
        let (from, to) = (first as f64 * window, ran);
        let seconds = Duration::from_secs_f64((to - from).max(1e-9));
        let counted = &noted[first..];
        let figures = |name: &str, notes: &TaskNotes| TaskFigures::new(name, notes, seconds);
        let tasks = KINDS.iter().enumerate();
        let tasks = tasks.map(|(number, kind)| {
            figures(kind.name, &merge(counted.iter().map(|window| &window.tasks[number])))
        });
        let volumes = outcome.parts.iter().map(|part| {
            let [reads, writes] = directions(counted, part.role);
            MailVolume {
                role: part.role,
                target: subjects[part.place].target.clone(),
                start: part.region.start,
                size: part.region.len,
                reads: Direction::new(&reads, seconds),
                writes: Direction::new(&writes, seconds),
            }
        });
        let window_of = |(number, noted): (usize, &Noted)| {
            MailWindow::new((number + 1) as f64 * window, window, noted, &merged[number])
        };
        let requests = outcome.parts.iter().map(|part| directions(counted, part.role));
        let requests = requests.fold(Directions::default(), |mut all, of_part| {
            all.iter_mut().zip(&of_part).for_each(|(ours, theirs)| ours.merge(theirs));
            all
        });
        let mail = Mail {
            users: profile.users,
            tasks_a_day: profile.tasks,
            day: profile.day.as_secs_f64(),
            compression: profile.compression,
            due_rate: profile.rate(),
            steady: found.map(|first| first as f64 * window),
            unsteady,
            from,
            to,
            band_percent: band(&merged[first..]),
            all: figures("all tasks", &merge(merged[first..].iter())),
            tasks: tasks.collect(),
            windows: noted
                .iter()
                .enumerate()
                .map(window_of)
                .filter(|window| window.until <= ran + 1e-6)
                .collect(),
            volumes: volumes.collect(),
            never_begun: run.never_begun,
        };
        (mail, requests)
    }

    /// "Send mail", by which a mail server is judged.
    pub fn send(&self) -> &TaskFigures {
        &self.tasks[SEND]
    }

    /// Whether sending takes longer than 1,000 ms, on average or in one of twenty cases: to users, the server
    /// hangs.
    pub fn is_degraded(&self) -> bool {
        let late = LATE.as_secs_f64() * 1e6;
        self.send().latency.as_ref().is_some_and(|latency| latency.mean_us > late || latency.p95_us > late)
    }

    /// A sentence that judges the latency of "send mail".
    pub fn verdict(&self) -> &'static str {
        match (&self.send().latency, self.is_degraded()) {
            (None, _) => "no mail was sent in the measured time",
            (Some(_), true) => "DEGRADED: above 1,000 ms",
            (Some(_), false) => "good: below 1,000 ms",
        }
    }

    /// A sentence about how the warm-up was separated from steady state.
    pub fn steadiness(&self) -> String {
        let (below, above) = self.band_percent;
        let band = format!(
            "mean latencies of the windows were then {below:.0} % below to {above:.0} % above their mean"
        );
        let from = self.from;
        match (self.steady, self.unsteady) {
            (Some(0.0), _) => format!("from the start; {band}"),
            (Some(_), _) => format!("after {from:.1} s of warm-up; {band}"),
            (None, Some(Unsteady::FewTasks)) => format!(
                "unknown: fewer than {WINDOW_TASKS_MIN:.0} tasks per window. Figures are from {from:.1} s on; use a longer -d or a higher --compress"
            ),
            (None, Some(Unsteady::Incomplete)) => {
                format!("unknown: the run did not complete. Figures are from {from:.1} s on")
            }
            (None, Some(Unsteady::Overloaded)) => format!(
                "NOT STEADY: more tasks were due than could be completed. Figures are from {from:.1} s on"
            ),
            (None, _) => format!(
                "NOT STEADY: latency kept changing for more than half of the run. Figures are from {from:.1} s on; {band}"
            ),
        }
    }
}

/// The window from which on the run was steady, or why it was not.
fn steadiness(windows: &[TaskNotes], complete: bool, never_begun: u64) -> (Option<usize>, Option<Unsteady>) {
    if !complete {
        return (None, Some(Unsteady::Incomplete));
    }
    if never_begun > 0 {
        return (None, Some(Unsteady::Overloaded));
    }
    let tasks: u64 = windows.iter().map(|window| window.latency.count()).sum();
    let some = windows.iter().all(|window| window.latency.count() > 0);
    if !some || (tasks as f64) < WINDOW_TASKS_MIN * windows.len() as f64 {
        return (None, Some(Unsteady::FewTasks));
    }
    let means: Vec<f64> = windows.iter().map(|window| window.latency.mean_us()).collect();
    let found = steady_from(&means);
    (found, found.is_none().then_some(Unsteady::Changing))
}

/// How far the means of the windows are below and above their mean, in percent.
fn band(windows: &[TaskNotes]) -> (f64, f64) {
    let means =
        windows.iter().filter(|window| window.latency.count() > 0).map(|window| window.latency.mean_us());
    let means: Vec<f64> = means.collect();
    let mean = means.iter().sum::<f64>() / means.len().max(1) as f64;
    let far = |value: f64| if mean > 0.0 { 100.0 * (value - mean).abs() / mean } else { 0.0 };
    let below = means.iter().copied().fold(mean, f64::min);
    let above = means.iter().copied().fold(mean, f64::max);
    (far(below), far(above))
}

fn merge<'a>(notes: impl Iterator<Item = &'a TaskNotes>) -> TaskNotes {
    let mut all = TaskNotes::default();
    for notes in notes {
        all.ended += notes.ended;
        all.latency.merge(&notes.latency);
    }
    all
}

/// The I/O of a part of a target in some windows.
fn directions(windows: &[Noted], role: Role) -> Directions {
    let mut all = Directions::default();
    for window in windows {
        for (ours, theirs) in all.iter_mut().zip(&window.requests[role as usize]) {
            ours.merge(theirs);
        }
    }
    all
}

impl TaskFigures {
    fn new(name: &str, notes: &TaskNotes, seconds: Duration) -> TaskFigures {
        TaskFigures {
            name: name.to_owned(),
            tasks: notes.ended,
            rate: notes.ended as f64 / seconds.as_secs_f64(),
            late: notes.latency.count_above(LATE),
            latency: LatencyFigures::new(&notes.latency),
        }
    }
}

impl MailWindow {
    fn new(until: f64, seconds: f64, noted: &Noted, all: &TaskNotes) -> MailWindow {
        let some = |notes: &TaskNotes, figure: f64| (notes.latency.count() > 0).then_some(figure);
        let send = &noted.tasks[SEND];
        MailWindow {
            until,
            rate: all.ended as f64 / seconds,
            mean_us: some(all, all.latency.mean_us()),
            p95_us: some(all, all.latency.percentile_us(95.0)),
            send_p95_us: some(send, send.latency.percentile_us(95.0)),
        }
    }
}

impl MailVolume {
    /// A description for people.
    pub fn about(&self) -> String {
        let gib = self.size as f64 / (1u64 << 30) as f64;
        let kib = PAGE_BYTES >> 10;
        match self.role {
            Role::Log => format!("{gib:.2} GiB, written sequentially"),
            Role::Database1 | Role::Database2 => format!("{gib:.2} GiB, pages of {kib} KiB"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample;

    /// A window with this many tasks of this many milliseconds.
    fn window(tasks: u64, millis: u64) -> TaskNotes {
        let mut notes = TaskNotes { ended: tasks, ..TaskNotes::default() };
        (0..tasks).for_each(|_| notes.latency.note(Duration::from_millis(millis)));
        notes
    }

    #[test]
    fn a_run_is_steady_or_the_report_says_why_not() {
        let windows: Vec<TaskNotes> =
            (0..20).map(|at| window(30, if at < 4 { 90 } else { 10 + at % 2 })).collect();
        let (from, why) = steadiness(&windows, true, 0);
        assert!(from.is_some_and(|from| (4..=5).contains(&from)) && why.is_none(), "{from:?}");
        let (below, above) = band(&windows[4..]);
        assert!((4.0..6.0).contains(&below) && (4.0..6.0).contains(&above), "{below} {above}");
        assert_eq!(steadiness(&windows, true, 1), (None, Some(Unsteady::Overloaded)));
        assert_eq!(steadiness(&windows, false, 0), (None, Some(Unsteady::Incomplete)));
        let few = vec![window(3, 10); 20];
        assert_eq!(steadiness(&few, true, 0), (None, Some(Unsteady::FewTasks)));
        let growing: Vec<TaskNotes> = (1..=20).map(|at| window(30, 10 * at)).collect();
        assert_eq!(steadiness(&growing, true, 0), (None, Some(Unsteady::Changing)));
    }

    #[test]
    fn a_second_is_the_limit_for_sending() {
        let mut mail = sample::mail();
        assert_eq!((mail.is_degraded(), mail.verdict()), (false, "good: below 1,000 ms"));
        mail.tasks[SEND].latency.as_mut().unwrap().p95_us = 1_000_001.0;
        assert_eq!((mail.is_degraded(), mail.verdict()), (true, "DEGRADED: above 1,000 ms"));
    }
}
