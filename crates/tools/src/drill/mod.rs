//! `ursa drill`: starts a cluster of processes, runs a load whose data is verified, injects a fault, and
//! judges the result.
//!
//! Three parties take part: the nodes' processes ([`fleet`]), a core that runs the load ([`load`]), and
//! threads that poll the nodes' view of the volume ([`watch`]). The main thread injects and removes the fault
//! ([`scenario`]), records what happens ([`timeline`]) and judges it ([`verdict`]). Load, watch, time line
//! and verdict do not depend on processes: they would also work with a real cluster.

mod arguments;
mod fleet;
mod full;
mod gate;
mod load;
mod moved;
mod rot;
mod scenario;
mod timeline;
mod verdict;
mod waiter;
mod watch;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use api::{ClientError, Verification, VolumeKind};
use base::Instant;
use initiator::Policy;
use initiator::load::{LoadError, Report, Stall};
use serde::Serialize;
use terms::exit::Outcome;

pub use self::arguments::{Demo, Drill};
pub use self::fleet::Shape;
use self::fleet::{Fleet, VOLUME};
pub use self::full::Filled;
use self::load::{Load, LoadSpec};
use self::moved::Before;
pub use self::moved::Moved;
pub use self::rot::Rotted;
use self::scenario::Harmed;
pub use self::scenario::Scenario;
use self::timeline::Timeline;
pub use self::timeline::{Event, Kind};
use self::verdict::Found;
pub use self::verdict::{Check, Limits};
use self::waiter::Waiter;
use self::watch::{Watch, now};

/// Limit for the load's first response.
const LOAD_LIMIT: Duration = Duration::from_secs(20);
/// How long the load runs before the fault, and after all copies are in sync again.
const CALM: Duration = Duration::from_secs(1);
/// Limit from the end of the fault until all copies are in sync.
const SYNC_LIMIT: Duration = Duration::from_secs(120);
/// An event is shown after this time, so that others with an earlier time come before it.
const TELL_AFTER: Duration = Duration::from_millis(300);
/// The shortest time without any response that is an event.
const SILENCE_MIN: Duration = Duration::from_millis(100);

/// Why a drill could not be run. A drill that ran and failed is not an error.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum DrillError {
    #[error("cannot create the directory {0} for the nodes; name one that does not exist yet with --dir")]
    Directory(PathBuf, #[source] io::Error),
    #[error("cannot start node {0}")]
    Process(u16, #[source] io::Error),
    #[error("no free port from 20000 to 32000 on 127.0.0.1")]
    NoPort,
    #[error("cannot set up a proxy between two nodes")]
    Gate(#[source] io::Error),
    #[error(transparent)]
    Core(rt::uring::StartError),
    #[error("cannot wait for signals")]
    Signals(#[source] io::Error),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("timed out after {1:?} waiting for {0}; see the nodes' logs")]
    Late(String, Duration),
    #[error("`ursa volume copy rebuild` failed: {0}")]
    Replace(String),
    #[error("the load did not start")]
    Load(#[from] LoadError),
    #[error("interrupted; nodes stopped, their data removed")]
    Interrupted,
    #[error("cannot read or change the pool file {0}")]
    PoolFile(PathBuf, #[source] io::Error),
    #[error("a RAM volume does not survive the loss of all nodes; omit --ram for {0}")]
    InMemory(Scenario),
    #[error("{0} has a fixed set of nodes; omit --nodes, --node and --witness")]
    OwnCluster(Scenario),
    #[error("{0} uses a log volume; omit --ram and --kind thick")]
    NeedsLog(Scenario),
    #[error("{0} has one cycle; omit --cycles, and name one --policy")]
    Once(Scenario),
    #[error("node {0} has no copy; nodes 1 to {1} have one")]
    NoNode(u16, u8),
}

impl Outcome for DrillError {
    fn code(&self) -> u8 {
        match self {
            DrillError::InMemory(_)
            | DrillError::NoNode(..)
            | DrillError::OwnCluster(_)
            | DrillError::NeedsLog(_)
            | DrillError::Once(_) => 2,
            _ => 1,
        }
    }
}

/// What a drill is to do.
#[derive(Clone, Debug)]
pub struct Plan {
    pub scenario: Scenario,
    pub shape: Shape,
    /// How long the fault lasts.
    pub harm: Duration,
    /// The number of cycles for each policy.
    pub cycles: u32,
    /// The load's path policies, one after the other.
    pub policies: Vec<(String, Policy)>,
    /// Requests in progress per path.
    pub depth: usize,
    pub read_percent: u8,
    /// The node that the fault affects.
    pub node: u16,
    pub limits: Limits,
    pub seed: u64,
}

/// The result of a drill.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    pub scenario: Scenario,
    /// Kind of the volume.
    pub kind: VolumeKind,
    pub cycles: Vec<Cycle>,
    pub passed: bool,
    /// The directory with the nodes' logs, if the drill failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<PathBuf>,
}

/// The result of a cycle.
#[derive(Clone, Debug, Serialize)]
pub struct Cycle {
    pub number: u32,
    pub policy: String,
    /// The longest time without any response, in milliseconds.
    pub silence_ms: u64,
    /// The longest time that one request waited, in milliseconds.
    pub stall_ms: u64,
    /// Milliseconds from the fault until the record shows the copy as out of sync; absent if that did not
    /// happen.
    pub out_ms: Option<i64>,
    /// Milliseconds from the end of the fault until all copies are in sync; absent after a timeout.
    pub sync_ms: Option<i64>,
    /// Requests that completed.
    pub requests: u64,
    pub moved: Moved,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rot: Option<Rotted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full: Option<Filled>,
    pub events: Vec<Event>,
    pub checks: Vec<Check>,
}

impl Cycle {
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.passed)
    }
}

/// A message about a drill in progress.
pub enum News<'a> {
    /// The cluster is being started or stopped.
    Stage(&'a str),
    Event(&'a Event),
    Cycle(&'a Cycle),
}

impl Plan {
    /// Runs the drill.
    pub fn carry_out(&self, tell: &mut dyn FnMut(News<'_>)) -> Result<Record, DrillError> {
        if !self.shape.kind.is_durable() && self.scenario.is_of_all() {
            return Err(DrillError::InMemory(self.scenario));
        }
        if self.scenario.needs_log() && !self.shape.kind.is_thin() {
            return Err(DrillError::NeedsLog(self.scenario));
        }
        if self.scenario.is_once() && (self.cycles > 1 || self.policies.len() > 1) {
            return Err(DrillError::Once(self.scenario));
        }
        if self.node == 0 || self.node > self.shape.copies.into() {
            return Err(DrillError::NoNode(self.node, self.shape.copies));
        }
        let waiter = Waiter::until_a_signal()?;
        tell(News::Stage("starting the nodes and creating the volume"));
        let mut fleet = Fleet::start(self.shape.clone(), &waiter)?;
        let mut cycles = Vec::new();
        for number in 1..=self.cycles {
            for policy in &self.policies {
                let cycle = self.cycle(&mut fleet, (number, policy), &waiter, tell)?;
                tell(News::Cycle(&cycle));
                cycles.push(cycle);
            }
        }
        let passed = cycles.iter().all(Cycle::passed);
        let kept = (!passed).then(|| fleet.keep().to_owned());
        Ok(Record { scenario: self.scenario, kind: self.shape.kind, cycles, passed, kept })
    }

    fn cycle(
        &self,
        fleet: &mut Fleet,
        (number, (name, policy)): (u32, &(String, Policy)),
        waiter: &Waiter,
        tell: &mut dyn FnMut(News<'_>),
    ) -> Result<Cycle, DrillError> {
        fleet.wait_for_beats_apart(waiter)?;
        let load = Load::start(LoadSpec {
            portals: fleet.with_copies().iter().map(|node| node.portal).collect(),
            target: api::default_target(VOLUME),
            depth: self.depth,
            read_percent: self.read_percent,
            span_bytes: self.shape.load_span(),
            waits_for_space: self.scenario.fills_pools(),
            policy: *policy,
            seed: self.seed.wrapping_add(number.into()),
        })?;
        let watch = Watch::start(fleet.with_copies());
        let begun =
            waiter.wait(LOAD_LIMIT, "the load to start", || load.pulse().answers() > 0 || load.is_over());
        if load.is_over() {
            return Err(load.stop().map_or_else(DrillError::Load, |_| DrillError::Interrupted));
        }
        begun?;
        waiter.pass(CALM)?;
        load.pulse().take_stall();
        load.pulse().take_events();

        let (done, undone) = self.scenario.told(self.node, self.shape.copies);
        let mut course = Course::begin(fleet, &load, &watch, tell);
        let one = (!self.harmed().nodes().is_empty()).then_some(self.node);
        course.timeline.add(course.timeline.zero(), Kind::Fault, one, done);
        let mut damage = self.scenario.strike(fleet, self.node, *policy, waiter)?;
        course.follow(self.harm, waiter, || false)?;
        let before = self.look(fleet);
        let back = now();
        course.timeline.missed(back, &before);
        course.timeline.add(back, Kind::Undone, one, undone);
        if let Some(replaced) = self.scenario.undo(fleet, self.node, &mut damage, waiter)? {
            course.timeline.replaced(self.node, replaced);
        }
        let whole = course.follow(SYNC_LIMIT, waiter, || fleet.is_whole())?;
        let synced = whole.then(now);
        let moved = before.until_now(fleet.with_copies());
        course.timeline.synced(now(), &moved);
        course.follow(CALM, waiter, || false)?;
        let (timeline, stall) = course.end();

        let refused = load.pulse().refused();
        let report = load.stop();
        drop(watch);
        let verification = fleet.with_copies()[0].client.verify_volume(VOLUME, None, |_| ());
        let (rot, full) = damage.found(refused, waiter)?;
        let outcomes = Outcomes { stall, report, back, synced, moved, verification, rot, full };
        Ok(self.judge(number, name, timeline, outcomes))
    }

    /// What copies miss just before the fault is removed.
    fn look(&self, fleet: &Fleet) -> Before {
        let mut before = Before::look(fleet.with_copies(), self.harmed());
        if self.scenario.takes_the_copy() {
            before.is_new(self.node, self.shape.size);
        }
        before
    }

    fn harmed(&self) -> Harmed {
        self.scenario.harmed(self.node, self.shape.copies)
    }

    fn judge(&self, number: u32, policy: &str, timeline: Timeline, outcomes: Outcomes) -> Cycle {
        let Outcomes { stall, report, back, synced, moved, verification, rot, full } = outcomes;
        let checks = verdict::judge(
            &self.limits,
            &Found {
                // While all nodes are down, none can serve.
                outage: self.scenario.is_of_all().then(|| back.since(timeline.zero())),
                stall: stall.request.max(stall.silence),
                report: &report,
                sync: synced.map(|at| at.since(back)),
                moved: &moved,
                all_of: self.scenario.takes_the_copy().then_some(self.shape.size),
                spared: self.scenario.spares_copies().then(|| timeline.first(Kind::Out)),
                rot: rot.as_ref(),
                full: full.as_ref(),
                verification: &verification,
            },
        );
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Cycle {
            number,
            policy: policy.to_owned(),
            silence_ms: millis(stall.silence),
            stall_ms: millis(stall.request),
            out_ms: timeline.first(Kind::Out),
            sync_ms: synced.map(|at| i64::try_from(millis(at.since(back))).unwrap_or(i64::MAX)),
            requests: report.as_ref().map_or(0, Report::requests),
            moved,
            rot,
            full,
            events: timeline.into_events(),
            checks,
        }
    }
}

/// What is known at the end of a cycle.
struct Outcomes {
    stall: Stall,
    report: Result<Report, LoadError>,
    /// When the fault was removed.
    back: Instant,
    /// When all copies were in sync; `None`: not in time.
    synced: Option<Instant>,
    moved: Moved,
    verification: Result<Verification, ClientError>,
    rot: Option<Rotted>,
    full: Option<Filled>,
}

/// A cycle from the fault on: adds what happens to the time line, and shows it soon after.
struct Course<'a> {
    timeline: Timeline,
    portals: Vec<(std::net::SocketAddr, u16)>,
    load: &'a Load,
    watch: &'a Watch,
    tell: &'a mut dyn FnMut(News<'_>),
    /// The end of the longest silence shown so far.
    silence_told: Option<Instant>,
}

impl<'a> Course<'a> {
    fn begin(
        fleet: &Fleet,
        load: &'a Load,
        watch: &'a Watch,
        tell: &'a mut dyn FnMut(News<'_>),
    ) -> Course<'a> {
        let portals = fleet.with_copies().iter().map(|node| (node.portal, node.number)).collect();
        let timeline = Timeline::new(now(), &watch.take());
        Course { timeline, portals, load, watch, tell, silence_told: None }
    }

    /// Records what happens until it is done or the limit has passed; returns whether it is done.
    fn follow(
        &mut self,
        limit: Duration,
        waiter: &Waiter,
        mut done: impl FnMut() -> bool,
    ) -> Result<bool, DrillError> {
        let mut is_done = false;
        let look = || {
            self.look();
            is_done = done();
            is_done
        };
        match waiter.wait(limit, "", look) {
            Ok(()) | Err(DrillError::Late(..)) => Ok(is_done),
            Err(error) => Err(error),
        }
    }

    fn look(&mut self) {
        for sighting in self.watch.take() {
            self.timeline.learn(sighting);
        }
        for event in self.load.pulse().take_events() {
            let node = |at| self.portals.iter().find(|(portal, _)| *portal == at).map(|(_, node)| *node);
            self.timeline.learn_path(&event, node);
        }
        let stall = self.load.pulse().stall();
        let is_news = self.silence_told != Some(stall.silence_ended);
        if stall.silence >= SILENCE_MIN && is_news {
            self.silence_told = Some(stall.silence_ended);
            let text = format!("I/O resumed after {:.3} s without a response", stall.silence.as_secs_f64());
            self.timeline.add(stall.silence_ended, Kind::Answered, None, text);
        }
        let known = now().since(Instant(0)).saturating_sub(TELL_AFTER);
        self.tell_until(Instant(0) + known);
    }

    fn tell_until(&mut self, at: Instant) {
        for event in self.timeline.untold(at) {
            (self.tell)(News::Event(&event));
        }
    }

    fn end(mut self) -> (Timeline, Stall) {
        self.look();
        self.tell_until(now());
        (self.timeline, self.load.pulse().take_stall())
    }
}
