//! Executes patterns on this machine, and observes it from outside.
//!
//! A [`Driver`] inspects its targets once, fills them if requested, and then executes runs, each on cores of
//! its own. While the cores work, the calling thread measures the CPU times of processes and processors at
//! both ends of the measurement and in between. It never interferes with the cores, except to stop them.

mod cores;
mod mail;
mod observer;
mod recording;
mod snapshot;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use initiator::{Lun, Options};
use rt::CoreId;

use crate::device::UnitAddress;
use crate::engine::{Found, Gauge, LanePlan, Place, Plan, Preparation, conduct, prepare, regions};
use crate::machine::{file_kind, is_local, listener_of, processors, resolve};
use crate::record::{Run, Subject};
use crate::{Content, Error, Phase, PortalName, Target, Workload};
use cores::{Cores, run_on};
use observer::Observer;

/// The most cores of one run; further lanes share them.
const CORES_MAX: usize = 128;

/// Settings that all runs of one command share.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The targets, which are measured at the same time.
    pub targets: Vec<Target>,
    /// Sessions of each thread with a unit.
    pub sessions: u32,
    /// How to log in.
    pub login: Options,
    /// The processors to use, with one thread pinned to each in turn; with `None`, the kernel places them.
    pub processors: Option<Vec<usize>>,
    /// How long a request may take before its target counts as lost.
    pub timeout: Duration,
    /// Create the targets, which are files, with this size.
    pub create: Option<u64>,
    /// Before the first run, fill everything that will be used.
    pub precondition: Option<Content>,
    /// Destroy existing data on the targets.
    pub overwrite: bool,
    /// The server processes, where they cannot be found as listeners at the portals.
    pub server_pids: Vec<u32>,
}

/// The progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The current phase.
    pub phase: Phase,
    /// The time since it began.
    pub elapsed: Duration,
    /// Its full length, if known.
    pub of: Option<Duration>,
    /// Bytes filled so far, and bytes to fill in total.
    pub fill: (u64, u64),
    /// Reads and writes per second since the last look.
    pub iops: [f64; 2],
    /// Millions of bytes per second since the last look.
    pub mb_per_s: f64,
}

/// Is called about once a second during a run; returning `Break` ends the run early.
pub type Watch<'a> = &'a mut dyn FnMut(&Progress) -> ControlFlow<()>;

/// Executes runs on some targets.
pub struct Driver {
    setup: Setup,
    places: Vec<Place>,
    found: Vec<Found>,
    servers: Vec<u32>,
    /// The number that identifies the data of verified runs.
    pattern: u64,
    filled: bool,
}

impl Driver {
    /// Inspects the targets, and fills them if the setup says so.
    ///
    /// The workloads are those that will run: all must fit the targets, and their writes must be permitted. A
    /// fill covers the part that the first of them uses.
    ///
    /// # Errors
    /// See [`Error`]. In that case nothing was written, except what a fill had written before it failed.
    ///
    /// # Panics
    /// If there is no workload.
    pub fn prepare(setup: Setup, workloads: &[Workload], watch: Watch<'_>) -> Result<Driver, Error> {
        workloads.iter().try_for_each(Workload::check)?;
        let first = workloads.first().expect("something is to be measured");
        let places =
            setup.targets.iter().map(|target| place(target, &setup.login)).collect::<Result<Vec<_>, _>>()?;
        let mut driver = Driver {
            servers: servers(&setup, &places),
            setup,
            places,
            found: Vec::new(),
            pattern: 0,
            filled: false,
        };
        let preparation = Preparation {
            create: driver.setup.create,
            // Reads of space that was never written cost the disk nothing.
            fill: driver.setup.precondition.or(driver.setup.create.map(|_| Content::Random)),
            overwrite: driver.setup.overwrite,
            writes: workloads.iter().any(Workload::writes),
        };
        let every = driver.places.len();
        let mut plan = driver.plan(first, Layout::new(every, 1, 1));
        let (gauge, phases) = Gauge::new(0);
        let gauge = Arc::new(gauge);
        let mut observer = Observer::new(Arc::clone(&gauge), phases, &driver.servers, first);
        let cores = Cores::new(1, driver.setup.processors.as_deref());
        let (pattern, found) = run_on(cores, &mut observer, watch, move || async move {
            plan.pattern = rt::random();
            (plan.pattern, prepare(&plan, &preparation, &gauge).await)
        })?;
        driver.pattern = pattern;
        driver.found = found.map_err(|error| Error::of_run(error, &driver.setup.targets))?;
        driver.filled = driver.setup.precondition.is_some() || driver.setup.create.is_some();
        for workload in workloads {
            let plan = driver.plan(workload, Layout::new(every, 1, 1));
            regions(&plan, &driver.found).map_err(|error| Error::of_run(error, &driver.setup.targets))?;
        }
        Ok(driver)
    }

    /// Executes one run: for each target as many threads as the pattern says, each on a core of its own.
    ///
    /// # Errors
    /// See [`Error`]. The failure of a target during the measurement is not an error: the record reports it.
    pub fn run(&mut self, workload: &Workload, watch: Watch<'_>) -> Result<Run, Error> {
        let threads = workload.threads as usize * self.places.len();
        let layout = Layout::new(self.places.len(), workload.threads, threads.min(CORES_MAX));
        self.carry_out(workload, layout, watch)
    }

    /// Executes one run on the first `clients` targets only. Their threads share as many cores as there are
    /// processors.
    ///
    /// # Errors
    /// As for [`Driver::run`].
    pub fn run_clients(
        &mut self,
        workload: &Workload,
        clients: usize,
        watch: Watch<'_>,
    ) -> Result<Run, Error> {
        let clients = clients.clamp(1, self.places.len());
        let processors = self.setup.processors.as_ref().map_or_else(processors, Vec::len);
        let layout = Layout::new(clients, workload.threads, processors.min(CORES_MAX));
        self.carry_out(workload, layout, watch)
    }

    fn carry_out(&mut self, workload: &Workload, layout: Layout, watch: Watch<'_>) -> Result<Run, Error> {
        workload.check()?;
        let places = layout.places;
        let cores = Cores::new(layout.cores, self.setup.processors.as_deref());
        let plan = self.plan(workload, layout);
        let (gauge, phases) = Gauge::new(plan.lanes.len());
        let gauge = Arc::new(gauge);
        let mut observer = Observer::new(Arc::clone(&gauge), phases, &self.servers, workload);
        let conducted = run_on(cores, &mut observer, watch, move || conduct(plan, gauge))?;
        let outcome = conducted.map_err(|error| Error::of_run(error, &self.setup.targets))?;
        let mut run = recording::record(self, workload, &outcome, observer);
        run.subjects.truncate(places);
        if workload.writes() {
            self.written();
        }
        Ok(run)
    }

    /// Notes that the content of the targets has changed.
    fn written(&mut self) {
        self.found.iter_mut().for_each(|found| found.empty = None);
        // The next verified run regards all blocks that it has not written itself as data of another run.
        self.filled = false;
        self.pattern = self.pattern.wrapping_add(1);
    }

    /// The properties of the targets.
    pub fn subjects(&self) -> Vec<Subject> {
        let subject = |(target, found): (&Target, &Found)| Subject {
            target: target.clone(),
            identity: match (target, &found.identity) {
                (_, Some(identity)) => identity.clone(),
                (Target::Disk(path), None) => file_kind(path).to_owned(),
                (Target::Unit(_), None) => String::new(),
            },
            size: found.size,
            block: found.block,
        };
        self.setup.targets.iter().zip(&self.found).map(subject).collect()
    }

    fn plan(&self, workload: &Workload, layout: Layout) -> Plan {
        Plan {
            workload: workload.clone(),
            places: self.places[..layout.places].to_vec(),
            lanes: layout.lanes,
            sessions: self.setup.sessions.max(1),
            timeout: self.setup.timeout,
            pattern: self.pattern,
            filled: self.filled,
        }
    }
}

/// Assigns lanes to cores.
struct Layout {
    /// The number of targets used, from the first on.
    places: usize,
    lanes: Vec<LanePlan>,
    cores: usize,
}

impl Layout {
    fn new(places: usize, threads: u32, cores: usize) -> Layout {
        let all = (0..places).flat_map(|place| (0..threads).map(move |thread| (place, thread)));
        let on_core =
            |(number, (place, thread))| LanePlan { place, core: CoreId((number % cores) as u16), thread };
        let lanes: Vec<LanePlan> = all.enumerate().map(on_core).collect();
        Layout { places, cores: cores.min(lanes.len()).max(1), lanes }
    }
}

fn place(target: &Target, login: &Options) -> Result<Place, Error> {
    match target {
        Target::Disk(path) => Ok(Place::Disk(path.clone())),
        Target::Unit(unit) => {
            let find = |portal: &PortalName| {
                resolve(&portal.host, portal.port).map_err(|error| Error::Resolve(portal.to_string(), error))
            };
            let portals = unit.portals.iter().map(find).collect::<Result<Vec<_>, _>>()?;
            let (name, lun) = (unit.name.clone(), Lun(unit.lun));
            let address = UnitAddress { portals, name, lun, options: login.clone() };
            Ok(Place::Unit(Arc::new(address)))
        }
    }
}

/// The local processes that serve the targets.
fn servers(setup: &Setup, places: &[Place]) -> Vec<u32> {
    let mut servers = setup.server_pids.clone();
    if servers.is_empty() {
        let portals = places.iter().flat_map(|place| match place {
            Place::Unit(address) => address.portals.clone(),
            Place::Disk(_) => Vec::new(),
        });
        servers.extend(portals.filter(|portal| is_local(portal.ip())).filter_map(listener_of));
    }
    servers.sort_unstable();
    servers.dedup();
    servers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_dealt_to_the_cores() {
        let layout = Layout::new(2, 2, 3);
        let lanes: Vec<(usize, u16, u32)> =
            layout.lanes.iter().map(|lane| (lane.place, lane.core.0, lane.thread)).collect();
        assert_eq!(lanes, [(0, 0, 0), (0, 1, 1), (1, 2, 0), (1, 0, 1)]);
    }
}
