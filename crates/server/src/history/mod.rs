//! What a node has done in the last seven days, for its console: two files of bounded length in its data
//! directory.
//!
//! One thread at the lowest priority reads and writes the files, since a disk may be slow. Only requests for
//! history wait for this thread. If a row cannot be kept, it is missing later and the node's log says why;
//! nothing else depends on it. Rows are not flushed: a power cut loses some of them. Each row has a checksum.
//!
//! Bounded: [`FINE`] and [`COARSE`] together take 12 MiB on the disk, whatever the node has. There is no
//! history of single volumes: for a thousand of them it would take 13 times as much space as everything else.
//! Prometheus is for that.

mod forecast;
mod ring;
mod row;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use std::{fs, io};

use rt::sync::{Sender, oneshot};
use serde::{Deserialize, Serialize};

pub use self::forecast::{Filling, Forecast, Outlook};
use self::ring::{Ring, Shape};
use self::row::Mean;
pub use self::row::{POOLS_MAX, PoolUse, Row, Value};
use crate::priority;

/// The interval between measurements, in seconds.
pub const EVERY: u32 = 10;
/// Every ten seconds for six hours: 2.1 MiB.
const FINE: Shape = Shape { step: EVERY, rows: 6 * 360 };
/// Every minute for seven days: 9.9 MiB.
const COARSE: Shape = Shape { step: 60, rows: 7 * 1440 };

const _: () = assert!(FINE.bytes() + COARSE.bytes() < 16 << 20);
const _: () = assert!(COARSE.step.is_multiple_of(FINE.step), "a minute begins and ends with ten seconds");

/// The number of points of an answer: more columns of pixels do not matter, even on a wide screen.
pub const POINTS_MIN: u32 = 2;
pub const POINTS_MAX: u32 = 1000;
/// The number of rows and requests that may wait for the thread.
const WAITING_MAX: usize = 16;
/// How long an answer may take: less than another node waits for it.
const DEADLINE: Duration = Duration::from_millis(1500);

/// The handle of the thread that keeps the history. Cheap to clone.
#[derive(Clone, Debug)]
pub struct History {
    /// `None`: the thread could not be started.
    work: Option<SyncSender<Work>>,
}

enum Work {
    Keep(Row),
    Answer(Window, Sender<Vec<Option<Row>>>),
}

/// A span of time, divided into steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The beginning, in seconds since 1970: a multiple of `step`.
    pub from: u64,
    /// The length of a step in seconds: a multiple of a ring's step.
    pub step: u32,
    /// The number of steps.
    pub points: u32,
}

impl Window {
    /// At most `points` steps that cover `from` to `to`, as finely as this time was kept; `now` is the
    /// current time.
    pub fn of(now: u64, from: u64, to: u64, points: u32) -> Window {
        let points = u64::from(points.clamp(POINTS_MIN, POINTS_MAX));
        // The future, and what is older than the history, are not known.
        let to = to.min(now);
        let from = from.max(to.saturating_sub(COARSE.seconds())).min(to.saturating_sub(1));
        let is_fine = from + FINE.seconds() >= now && to - from < points * u64::from(COARSE.step);
        let least = u64::from(if is_fine { FINE.step } else { COARSE.step });
        // Steps begin at multiples of their length, so that a repeated request gets the same steps. That may
        // take one step more.
        let step = (to - from).div_ceil(points - 1).max(1).next_multiple_of(least);
        Window {
            from: from / step * step,
            step: step as u32,
            points: (to.div_ceil(step) - from / step) as u32,
        }
    }

    /// Whether the window is valid: it may come from another node.
    fn is_sound(&self) -> bool {
        let step = u64::from(self.step);
        step > 0
            && step <= COARSE.seconds()
            && self.step.is_multiple_of(FINE.step)
            && self.from.is_multiple_of(step)
            && self.from < 1 << 48
            && self.points <= POINTS_MAX
    }
}

/// The history cannot be read now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "its history cannot be read now: the disk of its data directory is slow, or too many requests are waiting"
)]
pub struct Unavailable;

impl History {
    /// Starts the history of the node with this data directory. The thread ends when the last clone is
    /// dropped.
    pub fn start(data_dir: &Path) -> History {
        let (work, waiting) = sync_channel(WAITING_MAX);
        let mut kept = Kept::new(data_dir.join("history"));
        let started = std::thread::Builder::new().name("history".into()).spawn(move || kept.run(&waiting));
        if let Err(error) = &started {
            tracing::warn!(%error, "no history is recorded: cannot start its thread");
        }
        History { work: started.is_ok().then_some(work) }
    }

    /// Keeps a row of ten seconds. The row is lost if the thread is too far behind.
    pub fn keep(&self, row: Row) {
        if let Some(work) = &self.work
            && work.try_send(Work::Keep(row)).is_err()
        {
            tracing::debug!("a row of the history is lost: its disk is slow");
        }
    }

    /// The rows of a window, one per step; `None` where nothing was kept. To be called by tasks of the node's
    /// cores.
    pub async fn rows(&self, window: Window) -> Result<Vec<Option<Row>>, Unavailable> {
        let (answer, rows) = oneshot();
        let work = self.work.as_ref().filter(|_| window.is_sound()).ok_or(Unavailable)?;
        work.try_send(Work::Answer(window, answer)).map_err(|_| Unavailable)?;
        rt::timeout(DEADLINE, rows).await.map_err(|_| Unavailable)?.map_err(|_| Unavailable)
    }
}

/// The files, as the thread sees them.
struct Kept {
    directory: PathBuf,
    fine: Ring,
    coarse: Ring,
    /// The end of the minute in progress, and its rows.
    minute: (u64, Mean),
    /// Whether the last row could not be written.
    fails: bool,
}

impl Kept {
    fn new(directory: PathBuf) -> Kept {
        let fine = Ring::new(directory.join("10s"), FINE);
        let coarse = Ring::new(directory.join("60s"), COARSE);
        Kept { directory, fine, coarse, minute: Default::default(), fails: false }
    }

    fn run(&mut self, waiting: &Receiver<Work>) {
        priority::lower("the thread for the history");
        for work in waiting {
            match work {
                Work::Keep(row) => self.keep(&row),
                Work::Answer(window, answer) => match self.rows(window) {
                    Ok(rows) => answer.send(rows),
                    Err(error) => self.warn(&error, "read"),
                },
            }
        }
    }

    fn keep(&mut self, row: &Row) {
        match self.write(row) {
            Ok(()) if self.fails => {
                self.fails = false;
                tracing::info!("the history is recorded again");
            }
            Ok(()) => {}
            Err(error) if self.fails => tracing::debug!(%error, "the history cannot be written"),
            Err(error) => {
                self.fails = true;
                self.warn(&error, "written");
            }
        }
    }

    fn warn(&self, error: &io::Error, what: &str) {
        let directory = self.directory.display();
        tracing::warn!(%error, %directory, "the history cannot be {what}; nothing else is affected");
    }

    fn write(&mut self, row: &Row) -> io::Result<()> {
        let minute = row.at.next_multiple_of(COARSE.step.into());
        // This also ends the minute if the clock was set.
        let ended = if self.minute.0 == minute { None } else { self.end_minute() };
        self.minute.0 = minute;
        self.minute.1.add(row);
        let ends = if row.at == minute { self.end_minute() } else { None };
        fs::create_dir_all(&self.directory)?;
        // If one file cannot be written, the other still is.
        let fine = self.fine.write(row);
        for row in ended.iter().chain(&ends) {
            self.coarse.write(row)?;
        }
        fine
    }

    fn end_minute(&mut self) -> Option<Row> {
        let (at, mean) = std::mem::take(&mut self.minute);
        mean.row(at, COARSE.step)
    }

    fn rows(&mut self, window: Window) -> io::Result<Vec<Option<Row>>> {
        let ring = match window.step.is_multiple_of(COARSE.step) {
            true => &mut self.coarse,
            false => &mut self.fine,
        };
        let step = u64::from(window.step);
        let to = window.from + step * u64::from(window.points);
        let mut means: Vec<Mean> = vec![Mean::default(); window.points as usize];
        ring.read(window.from, to, |row| {
            // A row covers the time that ends at `at`.
            if let Some(mean) = means.get_mut(((row.at - 1 - window.from) / step) as usize) {
                mean.add(&row);
            }
        })?;
        Ok(means.iter().zip(1..).map(|(mean, n)| mean.row(window.from + n * step, window.step)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;
    const HOUR: u64 = 3600;

    fn kept() -> (tempfile::TempDir, Kept) {
        let dir = tempfile::tempdir().unwrap();
        let kept = Kept::new(dir.path().join("history"));
        (dir, kept)
    }

    fn row(at: u64, cpu: f64) -> Row {
        let mut row = Row { at, step: EVERY, values: Default::default(), pools: Vec::new() };
        row.values[Value::Cpu as usize] = Some(cpu);
        row
    }

    fn cpu(kept: &mut Kept, window: Window) -> Vec<Option<f64>> {
        let rows = kept.rows(window).unwrap();
        rows.iter().map(|row| row.as_ref().and_then(|row| row.value(Value::Cpu))).collect()
    }

    #[test]
    fn a_window_is_as_fine_as_what_was_kept() {
        let window = |from, to, points| {
            let window = Window::of(NOW, from, to, points);
            assert!(window.is_sound(), "{window:?}");
            assert!(window.points <= points, "{window:?}");
            let end = window.from + u64::from(window.step * window.points);
            let (from, to) = (from.max(to.min(NOW) - COARSE.seconds()), to.min(NOW));
            assert!(window.from <= from && to <= end && end < to + u64::from(window.step), "{window:?}");
            (window.step, window.points)
        };
        assert_eq!(window(NOW - HOUR, NOW, 361), (10, 360));
        assert_eq!(window(NOW - HOUR - 7, NOW - 7, 361), (10, 361));
        assert_eq!(window(NOW - HOUR, NOW, 300), (20, 180));
        assert_eq!(window(NOW - 6 * HOUR, NOW, 1000), (30, 720));
        assert_eq!(window(NOW - 6 * HOUR, NOW, 361), (60, 360));
        assert_eq!(window(NOW - 30 * HOUR, NOW - 29 * HOUR, 361), (60, 60), "of long ago there are minutes");
        assert_eq!(window(NOW - 7 * 24 * HOUR, NOW, 1000).0, 660);
        assert_eq!(window(0, NOW, 10).0, 67_200);
        assert_eq!(window(0, NOW, 2).0, 604_800);
        assert_eq!(window(NOW - 1, NOW + 500, 2), (10, 1));
        for (from, to, points) in [(NOW - 12_345, NOW - 7, 100), (NOW - 601, NOW - 1, 7), (NOW - 45, NOW, 4)]
        {
            window(from, to, points);
        }
        // Every window is sound, whatever the arguments.
        for (now, from, to) in [(5, 9, 2), (0, 0, 0), (NOW, u64::MAX, u64::MAX), (NOW, u64::MAX, 0)] {
            let window = Window::of(now, from, to, 0);
            assert!(window.is_sound() && window.points <= 2, "{window:?}");
        }
        let strange = Window { from: 0, step: 7, points: 1 };
        assert!(!strange.is_sound() && !Window { step: 0, ..strange }.is_sound());
        assert!(!Window { from: u64::MAX / 10 * 10, step: 10, points: 1 }.is_sound());
    }

    #[test]
    fn minutes_are_means_of_their_rows() {
        let (_dir, mut kept) = kept();
        let start = NOW / 60 * 60;
        (1..=18).for_each(|n| kept.keep(&row(start + 10 * n, n as f64)));
        let minutes = Window { from: start - 60, step: 60, points: 5 };
        assert_eq!(cpu(&mut kept, minutes), [None, Some(3.5), Some(9.5), Some(15.5), None]);
        let fine = Window { from: start, step: 20, points: 3 };
        assert_eq!(cpu(&mut kept, fine), [Some(1.5), Some(3.5), Some(5.5)]);
        let three = Window { from: start / 180 * 180, step: 180, points: 2 };
        let all: Vec<f64> = cpu(&mut kept, three).into_iter().flatten().collect();
        assert!(!all.is_empty(), "{all:?}");
    }

    #[test]
    fn a_clock_that_is_set_loses_nothing_but_what_it_skips() {
        let (_dir, mut kept) = kept();
        let start = NOW / 60 * 60;
        (1..=3).for_each(|n| kept.keep(&row(start + 10 * n, 1.0)));
        // An hour ahead, and back again.
        kept.keep(&row(start + HOUR + 10, 2.0));
        kept.keep(&row(start + 40, 3.0));
        kept.keep(&row(start + 130, 4.0));
        let window = Window { from: start, step: 60, points: 61 };
        let seen = cpu(&mut kept, window);
        // Of the first minute, the later row counts.
        assert_eq!((seen[0], seen[1], seen[60]), (Some(3.0), None, Some(2.0)));
        let fine = Window { from: start, step: 10, points: 5 };
        assert_eq!(cpu(&mut kept, fine), [Some(1.0), Some(1.0), Some(1.0), Some(3.0), None]);
    }

    #[test]
    fn rows_that_cannot_be_written_are_missing_and_nothing_else() {
        let (dir, mut kept) = kept();
        // A file has the directory's name.
        fs::write(dir.path().join("history"), "x").unwrap();
        kept.keep(&row(NOW, 1.0));
        assert!(kept.fails);
        assert!(kept.rows(Window { from: NOW - 10, step: 10, points: 1 }).is_err());
        fs::remove_file(dir.path().join("history")).unwrap();
        kept.keep(&row(NOW + 10, 2.0));
        assert!(!kept.fails);
        let window = Window { from: NOW - 10, step: 10, points: 2 };
        assert_eq!(cpu(&mut kept, window), [None, Some(2.0)]);
    }
}
