//! `ursa drill`: a cluster of processes of our own, a load whose data is checked, a fault, and what came of
//! it.
//!
//! Three parties: processes of nodes ([`fleet`]), a core that has the load ([`load`]), and threads that ask
//! nodes what they see ([`watch`]). The main thread does harm and undoes it ([`scenario`]), writes down what
//! happens ([`timeline`]) and judges ([`verdict`]). The load, the watch, the time line and the verdict know
//! nothing of processes: they would do for a cluster that is not our own, too.

mod fleet;
mod gate;
mod load;
mod moved;
mod patience;
mod scenario;
mod timeline;
mod verdict;
mod watch;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use api::{ClientError, Verification};
use base::Instant;
use initiator::Policy;
use initiator::load::{LoadError, Report, Stall};
use serde::Serialize;

pub use self::fleet::Shape;
use self::fleet::{Fleet, VOLUME};
use self::load::{Load, Wanted};
use self::moved::Before;
pub use self::moved::Moved;
use self::patience::Patience;
use self::scenario::Harmed;
pub use self::scenario::Scenario;
use self::timeline::Timeline;
pub use self::timeline::{Event, Kind};
use self::verdict::Found;
pub use self::verdict::{Check, Limits, NO_STALL};
use self::watch::{Watch, now};
use crate::cli::Outcome;

/// Until the load's first request is answered.
const LOAD_LIMIT: Duration = Duration::from_secs(20);
/// The load goes on for so long before harm is done, and after all is undone.
const CALM: Duration = Duration::from_secs(1);
/// From the return of what was lost until all copies are in sync.
const SYNC_LIMIT: Duration = Duration::from_secs(120);
/// What is known by then of an event's time is all that there will be: later ones are told after it.
const TELL_AFTER: Duration = Duration::from_millis(300);
/// A time without any answer that is worth an event of its own.
const SILENCE_MIN: Duration = Duration::from_millis(100);

/// A drill cannot be carried out. That it was, and the cluster has failed, is none of these.
#[derive(Debug, thiserror::Error)]
pub enum DrillError {
    /// For the nodes' data.
    #[error("cannot create the directory {0} for the nodes; name one that does not exist yet with --dir")]
    Directory(PathBuf, #[source] io::Error),
    /// A process.
    #[error("cannot start node {0}")]
    Process(u16, #[source] io::Error),
    /// Ports.
    #[error("no free port from 20000 to 32000 on 127.0.0.1")]
    NoPort,
    /// Between nodes.
    #[error("cannot set up a proxy between two nodes")]
    Gate(#[source] io::Error),
    /// The load's core.
    #[error(transparent)]
    Core(rt::uring::StartError),
    /// Signals.
    #[error("cannot wait for signals")]
    Signals(#[source] io::Error),
    /// A node refused something, or does not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// It did not happen.
    #[error("timed out after {1:?} waiting for {0}; see the nodes' logs")]
    Late(String, Duration),
    /// The copy was not made anew.
    #[error("`ursa volume copy rebuild` failed: {0}")]
    Replace(String),
    /// The load did not begin.
    #[error("the load did not start")]
    Load(#[from] LoadError),
    /// A signal.
    #[error("interrupted; nodes stopped, their data removed")]
    Interrupted,
    /// The data of a volume in memory does not outlive that.
    #[error("a RAM volume does not survive the loss of all nodes; omit --ram for {0}")]
    InMemory(Scenario),
    /// It is done to one kind of cluster only.
    #[error("{0} has a fixed set of nodes; omit --nodes, --node and --witness")]
    OwnCluster(Scenario),
    /// There is no such node.
    #[error("node {0} has no copy; nodes 1 to {1} have one")]
    NoNode(u16, u8),
}

impl Outcome for DrillError {
    fn code(&self) -> u8 {
        match self {
            DrillError::InMemory(_) | DrillError::NoNode(..) | DrillError::OwnCluster(_) => 2,
            _ => 1,
        }
    }
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The harm.
    pub scenario: Scenario,
    /// To what cluster.
    pub shape: Shape,
    /// How long the harm lasts.
    pub harm: Duration,
    /// How often, for each policy.
    pub cycles: u32,
    /// How the load chooses paths: one after the other.
    pub policies: Vec<(String, Policy)>,
    /// Requests under way for each path.
    pub depth: usize,
    /// Of a hundred requests, so many are reads.
    pub read_percent: u8,
    /// The node that harm is done to.
    pub node: u16,
    /// What is good enough.
    pub limits: Limits,
    /// Of what the load reads and writes.
    pub seed: u64,
}

/// What came of a drill.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// The harm.
    pub scenario: Scenario,
    /// One after the other.
    pub cycles: Vec<Cycle>,
    /// All checks of all cycles went well.
    pub passed: bool,
    /// Where the nodes' logs are, if it did not pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<PathBuf>,
}

/// What came of one time.
#[derive(Clone, Debug, Serialize)]
pub struct Cycle {
    /// Counts from 1.
    pub number: u32,
    /// How the load chose paths.
    pub policy: String,
    /// The longest time without any answer, in milliseconds.
    pub silence_ms: u64,
    /// The longest that one request waited, in milliseconds.
    pub stall_ms: u64,
    /// From the fault until the nodes' record says that the copy is out; absent if it never did.
    pub out_ms: Option<i64>,
    /// From the end of the harm until all copies are in sync; absent if they were not in time.
    pub sync_ms: Option<i64>,
    /// Requests that were answered.
    pub requests: u64,
    /// What was to be brought up to date, and what was brought.
    pub moved: Moved,
    /// What happened.
    pub events: Vec<Event>,
    /// What was demanded, and whether it was so.
    pub checks: Vec<Check>,
}

impl Cycle {
    /// All checks went well.
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.passed)
    }
}

/// Something to tell while it goes on.
pub enum News<'a> {
    /// A cluster is being made, or taken away.
    Stage(&'a str),
    /// Something happened.
    Event(&'a Event),
    /// A cycle is over.
    Cycle(&'a Cycle),
}

impl Plan {
    /// Carries it out.
    ///
    /// # Errors
    /// It could not be.
    pub fn carry_out(&self, tell: &mut dyn FnMut(News<'_>)) -> Result<Record, DrillError> {
        if self.shape.ram && self.scenario.is_of_all() {
            return Err(DrillError::InMemory(self.scenario));
        }
        if self.node == 0 || self.node > self.shape.copies.into() {
            return Err(DrillError::NoNode(self.node, self.shape.copies));
        }
        let patience = Patience::until_a_signal()?;
        tell(News::Stage("starting the nodes and creating the volume"));
        let mut fleet = Fleet::start(self.shape.clone(), &patience)?;
        let mut cycles = Vec::new();
        for number in 1..=self.cycles {
            for policy in &self.policies {
                let cycle = self.cycle(&mut fleet, (number, policy), &patience, tell)?;
                tell(News::Cycle(&cycle));
                cycles.push(cycle);
            }
        }
        let passed = cycles.iter().all(Cycle::passed);
        let kept = (!passed).then(|| fleet.keep().to_owned());
        Ok(Record { scenario: self.scenario, cycles, passed, kept })
    }

    fn cycle(
        &self,
        fleet: &mut Fleet,
        (number, (name, policy)): (u32, &(String, Policy)),
        patience: &Patience,
        tell: &mut dyn FnMut(News<'_>),
    ) -> Result<Cycle, DrillError> {
        fleet.wait_for_beats_apart(patience)?;
        let load = Load::start(Wanted {
            portals: fleet.with_copies().iter().map(|node| node.portal).collect(),
            target: api::default_target(VOLUME),
            depth: self.depth,
            read_percent: self.read_percent,
            policy: *policy,
            seed: self.seed.wrapping_add(number.into()),
        })?;
        let watch = Watch::start(fleet.with_copies());
        let begun =
            patience.wait(LOAD_LIMIT, "the load to start", || load.pulse().answers() > 0 || load.is_over());
        if load.is_over() {
            return Err(load.stop().map_or_else(DrillError::Load, |_| DrillError::Interrupted));
        }
        begun?;
        patience.pass(CALM)?;
        load.pulse().take_stall();
        load.pulse().take_events();

        let (done, undone) = self.scenario.told(self.node, self.shape.copies);
        let mut course = Course::begin(fleet, &load, &watch, tell);
        let one = (!self.harmed().nodes().is_empty()).then_some(self.node);
        course.timeline.add(course.timeline.zero(), Kind::Fault, one, done);
        self.scenario.strike(fleet, self.node)?;
        course.follow(self.harm, patience, || false)?;
        let before = self.look(fleet);
        let back = now();
        course.timeline.missed(back, &before);
        course.timeline.add(back, Kind::Undone, one, undone);
        if let Some(replaced) = self.scenario.undo(fleet, self.node, patience)? {
            course.timeline.replaced(self.node, replaced);
        }
        let whole = course.follow(SYNC_LIMIT, patience, || fleet.is_whole())?;
        let synced = whole.then(now);
        let moved = before.until_now(fleet.with_copies());
        course.timeline.synced(now(), &moved);
        course.follow(CALM, patience, || false)?;
        let (timeline, stall) = course.end();

        let report = load.stop();
        drop(watch);
        let verification = fleet.with_copies()[0].client.verify_volume(VOLUME, None, |_| ());
        Ok(self.judge(number, name, timeline, Outcomes { stall, report, back, synced, moved, verification }))
    }

    /// What is missed just before the harm is undone.
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
        let Outcomes { stall, report, back, synced, moved, verification } = outcomes;
        let checks = verdict::judge(
            &self.limits,
            &Found {
                // Nobody can serve while all are gone.
                outage: self.scenario.is_of_all().then(|| back.since(timeline.zero())),
                stall: stall.request.max(stall.silence),
                report: &report,
                sync: synced.map(|at| at.since(back)),
                moved: &moved,
                all_of: self.scenario.takes_the_copy().then_some(self.shape.size),
                spared: self.scenario.spares_copies().then(|| timeline.first(Kind::Out)),
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
            events: timeline.into_events(),
            checks,
        }
    }
}

/// What is known in the end.
struct Outcomes {
    stall: Stall,
    report: Result<Report, LoadError>,
    /// When the harm was undone.
    back: Instant,
    /// When all was in sync; `None`: it was not in time.
    synced: Option<Instant>,
    moved: Moved,
    verification: Result<Verification, ClientError>,
}

/// From the fault on: whatever happens goes on the time line, and is told soon after.
struct Course<'a> {
    timeline: Timeline,
    portals: Vec<(std::net::SocketAddr, u16)>,
    load: &'a Load,
    watch: &'a Watch,
    tell: &'a mut dyn FnMut(News<'_>),
    /// The end of the longest silence that was told.
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

    /// Writes down what happens, for so long or until it is done; says whether it was.
    fn follow(
        &mut self,
        limit: Duration,
        patience: &Patience,
        mut done: impl FnMut() -> bool,
    ) -> Result<bool, DrillError> {
        let mut is_done = false;
        let look = || {
            self.look();
            is_done = done();
            is_done
        };
        match patience.wait(limit, "", look) {
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
