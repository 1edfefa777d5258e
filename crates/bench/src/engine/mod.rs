//! Executes a plan on the cores of a runtime, real or simulated.
//!
//! Core 0 opens every target once ([`prepare()`]), then [`conduct`]s runs: it starts a lane for each thread
//! of the pattern on that lane's core, waits until all lanes have their sessions, starts them at the same
//! time, and collects their measurements. A mail server ([`conduct_mail`]) has tasks instead of lanes, and
//! needs only one core.

mod gauge;
mod lane;
mod mail;
mod plan;
mod prepare;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use base::Instant;
use rt::sync::{Sender, oneshot};
use rt::{CoreId, Task};

pub use gauge::Phase;
pub(crate) use gauge::{Count, Gauge};
use lane::{Ground, LaneStart};
pub(crate) use lane::{LaneEnd, Loss};
pub(crate) use mail::{MailOutcome, MailWindow, TaskNotes, conduct_mail};
pub use plan::Misfit;
pub(crate) use plan::{LanePlan, Place, Plan, Preparation};
pub(crate) use prepare::{Found, prepare, regions};
use prepare::{describe, open, way};

use crate::device::{Failure, NoWay};
use crate::ledger::{BLOCKS_MAX, Ledger};
use crate::recorder::{Recorder, Window};

/// From the start signal to the first request: by then all cores have received the signal.
const LEAD: Duration = Duration::from_millis(20);

/// Why there are no figures. Targets are identified by their number in the plan.
#[derive(Debug)]
pub(crate) enum RunError {
    Open(rt::OpenError),
    Connect {
        place: usize,
        error: NoWay,
    },
    HasData {
        place: usize,
        offset: u64,
    },
    Misfit {
        place: usize,
        misfit: Misfit,
    },
    /// The target failed while it was inspected or filled.
    Failed {
        place: usize,
        failure: Failure,
    },
    /// The caller stopped the run before there was anything to measure.
    Stopped,
}

/// The merged measurements of all lanes.
pub(crate) struct Outcome {
    pub(crate) window: Window,
    /// When the measurement ended: at its time, or when it was stopped.
    pub(crate) ended: Instant,
    pub(crate) recorder: Recorder,
    /// The first failure of each lane that had one, in order of time.
    pub(crate) losses: Vec<Loss>,
    pub(crate) unanswered: [u64; 2],
    pub(crate) checked: u64,
    pub(crate) unchecked: u64,
    pub(crate) never_begun: u64,
}

/// Executes a plan, from core 0. The targets are as [`prepare()`] left them.
///
/// # Errors
/// See [`RunError`]. Once all lanes run, there are figures, whatever fails.
pub(crate) async fn conduct(plan: Plan, gauge: Arc<Gauge>) -> Result<Outcome, RunError> {
    let plan = Arc::new(plan);
    let grounds = grounds(&plan).await?;
    let mut started = Vec::new();
    for number in 0..plan.lanes.len() {
        let ground = grounds[plan.lanes[number].place].clone();
        started.push(start(LaneStart { plan: Arc::clone(&plan), number, ground, gauge: Arc::clone(&gauge) }));
    }
    let mut lanes = Vec::new();
    for (number, (ready, lane)) in started.into_iter().enumerate() {
        let place = plan.lanes[number].place;
        // A lane that was dropped has reported its error before.
        ready.await.unwrap_or(Ok(())).map_err(|error| RunError::Connect { place, error })?;
        lanes.push(lane);
    }
    let window = Window::new(rt::now() + LEAD, plan.workload.warm_up, plan.workload.duration);
    let window = window.with_interval(plan.workload.interval());
    let _phases = rt::spawn(tell_phases(window, Arc::clone(&gauge)));
    let mut running = Vec::new();
    for (go, task) in lanes {
        go.send(window);
        running.push(task);
    }
    let mut ends = Vec::new();
    for task in running {
        ends.extend(task.await);
    }
    gauge.enter(Phase::Draining);
    Ok(merge(window, &gauge, ends))
}

/// Opens each target once, for all lanes.
async fn grounds(plan: &Plan) -> Result<Vec<Ground>, RunError> {
    let (mut ways, mut found) = (Vec::new(), Vec::new());
    for (number, place) in plan.places.iter().enumerate() {
        let device = open(place, None, !plan.workload.writes()).await.map_err(|error| error.at(number))?;
        found.push(describe(&device));
        ways.push(way(place, &device));
        device.close().await;
    }
    let mut grounds = Vec::new();
    for (number, (region, way)) in regions(plan, &found)?.into_iter().zip(ways).enumerate() {
        let blocks = region.len / u64::from(plan.workload.block);
        let ledger = match plan.workload.verify {
            true => Some(ledger(plan, blocks).map_err(|misfit| RunError::Misfit { place: number, misfit })?),
            false => None,
        };
        grounds.push(Ground { way, region, ledger, count: Arc::default() });
    }
    Ok(grounds)
}

fn ledger(plan: &Plan, blocks: u64) -> Result<Arc<Ledger>, Misfit> {
    let outstanding = plan.workload.outstanding();
    if blocks < 4 * outstanding {
        return Err(Misfit::Crowded { blocks, outstanding });
    }
    if blocks > BLOCKS_MAX {
        return Err(Misfit::TooLarge { blocks, max: BLOCKS_MAX });
    }
    Ok(Arc::new(Ledger::new(blocks, plan.filled)))
}

type Ready = rt::sync::Receiver<Result<(), NoWay>>;

/// Starts a lane on its core: it opens its devices, and waits for the start signal.
fn start(lane: LaneStart) -> (Ready, (Sender<Window>, Task<Option<LaneEnd>>)) {
    let (ready, is_ready) = oneshot();
    let (go, wait) = oneshot();
    let core: CoreId = lane.plan.lanes[lane.number].core;
    let task = rt::spawn(rt::call(core, move || lane::run(lane, ready, wait)));
    (is_ready, (go, task))
}

async fn tell_phases(window: Window, gauge: Arc<Gauge>) {
    gauge.enter(Phase::WarmUp);
    rt::sleep_until(window.from).await;
    gauge.enter(Phase::Measuring);
    rt::sleep_until(window.until).await;
    gauge.enter(Phase::Draining);
}

fn merge(window: Window, gauge: &Gauge, ends: Vec<LaneEnd>) -> Outcome {
    let mut outcome = Outcome {
        window,
        ended: window.until.min(gauge.stopped_at()),
        recorder: Recorder::new(window),
        losses: Vec::new(),
        unanswered: [0; 2],
        checked: 0,
        unchecked: 0,
        never_begun: 0,
    };
    for end in ends {
        outcome.recorder.merge(&end.recorder);
        outcome.losses.extend(end.loss);
        for at in 0..2 {
            outcome.unanswered[at] += end.unanswered[at];
        }
        outcome.checked += end.checked;
        outcome.unchecked += end.unchecked;
        outcome.never_begun += end.never_begun;
    }
    outcome.losses.sort_by_key(|loss| loss.at);
    outcome
}
