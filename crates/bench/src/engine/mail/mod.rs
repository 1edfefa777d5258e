//! A simulated mail server: workers that execute tasks when they are due, databases that are read and written
//! page by page, and logs.
//!
//! The latency of a task counts from when it was due until the log has all of it on stable storage. Pages
//! that it changed are written later; at most [`database::CHANGED_MAX`] pages wait for that, beyond which
//! tasks wait. A run always ends, as a [lane](super::lane) does: each request has a timeout, and a failure
//! ends the run.

mod database;
mod log;
mod notes;
#[cfg(test)]
mod tests;
mod volume;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::{Instant, Rng};
use rt::Task;

use super::lane::{Ground, all, either};
use super::{Gauge, Outcome, Phase, Plan, RunError, grounds, tell_phases};
use crate::arrivals::Poisson;
use crate::device::{Device, Way};
use crate::mail::{KINDS, MailProfile, Part, WORKERS, parts, task};
use crate::recorder::Window;
use crate::sequence::Region;
use database::Database;
use log::Log;
use notes::Notes;
pub(crate) use notes::{MailWindow, TaskNotes};
use volume::{Stopped, Volume};

/// How often the server checks whether the run was stopped.
const GUARD_INTERVAL: Duration = Duration::from_millis(100);

/// The result of a run.
pub(crate) struct MailOutcome {
    /// The same as for every run.
    pub(crate) outcome: Outcome,
    /// The run in [`WINDOWS`](crate::mail::WINDOWS) equal parts.
    pub(crate) windows: Vec<MailWindow>,
    pub(crate) parts: [Part; 3],
}

struct Server {
    plan: Plan,
    gauge: Arc<Gauge>,
    window: Window,
    databases: [(Database, Log); 2],
    /// When tasks are due; `drawing` decides which they are.
    arrivals: RefCell<Poisson>,
    drawing: RefCell<Rng>,
    notes: Rc<Notes>,
    never_begun: Cell<u64>,
}

/// Executes a profile on the current core. The targets are as [`prepare`](super::prepare()) left them.
///
/// # Errors
/// See [`RunError`]. Once the server runs, there are figures, whatever fails.
pub(crate) async fn conduct_mail(
    plan: Plan,
    profile: MailProfile,
    gauge: Arc<Gauge>,
) -> Result<MailOutcome, RunError> {
    let grounds = grounds(&plan).await?;
    let regions: Vec<Region> = grounds.iter().map(|ground| ground.region).collect();
    let parts = parts(&regions).map_err(|(place, misfit)| RunError::Misfit { place, misfit })?;
    let devices = open(&plan, &grounds).await?;
    let window = Window::new(rt::now() + super::LEAD, Duration::ZERO, profile.duration);
    let _phases = rt::spawn(tell_phases(window, Arc::clone(&gauge)));
    let notes = Rc::new(Notes::new(window, Arc::clone(&gauge)));
    let mut rng = Rng::new(profile.seed);
    let volume =
        |part: &Part| Volume::new(*part, devices[part.place].clone(), Rc::clone(&notes), plan.timeout);
    let [log_1, log_2] = log::halves(&parts[2]).map(|half| volume(&half));
    let mut database =
        |part: &Part, log| (Database::new(volume(part), &plan, rng.fork()), Log::new(log, &plan, rng.fork()));
    let databases = [database(&parts[0], log_1), database(&parts[1], log_2)];
    let server = Rc::new(Server {
        window,
        databases,
        arrivals: RefCell::new(Poisson::new(window.start, profile.rate(), rng.fork())),
        drawing: RefCell::new(rng.fork()),
        notes: Rc::clone(&notes),
        never_begun: Cell::new(0),
        plan,
        gauge,
    });
    rt::sleep_until(window.start).await;
    server.serve().await;
    server.gauge.enter(Phase::Draining);
    let clean = server.notes.is_clean();
    let never_begun = server.never_begun.get();
    let (checked, unchecked) = server.checks();
    drop(server);
    let ended = window.until.min(notes.stopped_at());
    let Ok(notes) = Rc::try_unwrap(notes).map_err(drop) else {
        unreachable!("the server is gone, and nobody else takes notes");
    };
    let end = notes.end();
    if clean {
        close(devices).await;
    }
    let outcome = Outcome {
        window,
        ended,
        recorder: end.recorder,
        losses: end.loss.into_iter().collect(),
        unanswered: end.unanswered,
        checked,
        unchecked,
        never_begun,
    };
    Ok(MailOutcome { outcome, windows: end.windows, parts })
}

/// The devices of each target, used in turn.
type Devices = Rc<Vec<Device>>;

async fn open(plan: &Plan, grounds: &[Ground]) -> Result<Vec<Devices>, RunError> {
    let mut all = Vec::new();
    for (place, ground) in grounds.iter().enumerate() {
        let sessions = if matches!(ground.way, Way::Unit(_)) { plan.sessions } else { 1 };
        let mut devices = Vec::new();
        for _ in 0..sessions {
            let device = Device::reach(&ground.way).await;
            devices.push(device.map_err(|error| RunError::Connect { place, error })?);
        }
        all.push(Rc::new(devices));
    }
    Ok(all)
}

async fn close(devices: Vec<Devices>) {
    for device in devices.into_iter().filter_map(Rc::into_inner).flatten() {
        device.close().await;
    }
}

impl Server {
    /// Serves until the end of the run or its first failure.
    async fn serve(self: &Rc<Server>) {
        let mut behind = Vec::new();
        for database in 0..self.databases.len() {
            let server = Rc::clone(self);
            behind.push(rt::spawn(async move { server.databases[database].1.write_all().await }));
            for _ in 0..database::WRITERS {
                let server = Rc::clone(self);
                behind.push(rt::spawn(async move { server.databases[database].0.write_changed().await }));
            }
        }
        let mut workers: Vec<Task<()>> = (0..WORKERS).map(|_| rt::spawn(Rc::clone(self).work())).collect();
        either(all(&mut workers), self.guard()).await;
        for worker in workers {
            worker.cancel().await;
        }
        // Changed pages that are still waiting are dropped; requests under way are completed.
        let finish = async {
            self.databases.iter().for_each(|(database, log)| {
                database.close();
                log.close();
            });
            all(&mut behind).await;
        };
        either(finish, self.guard()).await;
        for task in behind {
            task.cancel().await;
        }
    }

    async fn work(self: Rc<Server>) {
        while let Some((due, kind)) = self.next().await {
            let Ok(()) = self.carry_out(kind).await else { return };
            self.notes.task(kind, due, rt::now());
        }
    }

    /// The next task and when it was due; `None` when the run has ended.
    async fn next(&self) -> Option<(Instant, usize)> {
        let mut due = self.draw_due()?;
        let now = rt::now();
        if now > self.window.until + self.plan.timeout {
            // The server has not kept up: record the remaining tasks as never started, so that the run ends.
            loop {
                self.never_begun.set(self.never_begun.get() + 1);
                self.notes.never_begun(self.draw_kind(), due, now);
                due = self.draw_due()?;
            }
        }
        if due > now {
            rt::sleep_until(due).await;
        }
        Some((due, self.draw_kind())).filter(|_| !self.gauge.is_stopped())
    }

    fn draw_due(&self) -> Option<Instant> {
        let due = self.arrivals.borrow_mut().next();
        (due < self.window.until && !self.gauge.is_stopped()).then_some(due)
    }

    fn draw_kind(&self) -> usize {
        task::drawn(self.drawing.borrow_mut().below(u64::from(task::PUBLISHED)))
    }

    /// Reads what the task needs, and commits its changes to the log.
    async fn carry_out(&self, kind: usize) -> Result<(), Stopped> {
        let kind = &KINDS[kind];
        let (database, log) = &self.databases[self.drawing.borrow_mut().below(2) as usize];
        for _ in 0..kind.reads {
            database.read_page().await?;
        }
        if kind.log_kib > 0 {
            database.make_room(kind.writes).await;
            log.commit(kind.log_kib << 10).await?;
            database.change(kind.writes);
        }
        Ok(())
    }

    /// Ends when the run was stopped and nothing is under way.
    async fn guard(&self) {
        loop {
            rt::sleep(GUARD_INTERVAL).await;
            if self.gauge.is_stopped() && !self.notes.is_busy() {
                return;
            }
        }
    }

    /// Pages that were checked, and pages that could not be checked.
    fn checks(&self) -> (u64, u64) {
        let of = |database: &Database| database.checks();
        let [(one, _), (other, _)] = &self.databases;
        let ((checked, unchecked), (more_checked, more_unchecked)) = (of(one), of(other));
        (checked + more_checked, unchecked + more_unchecked)
    }
}
