//! What hosts do: log in, work until the session is lost, and log in again, without end.

mod exchange;
mod fence;
pub(crate) mod hot;
mod own;
mod registrant;
mod rights;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use base::Rng;
use initiator::Lun;
use rt::CoreId;

pub(crate) use self::fence::{is_conflict, is_conflict_error};
pub use self::rights::KINDS;
use self::rights::Rights;
use crate::cluster::Cluster;
use crate::history::History;
use crate::layout::{Layout, own};
use crate::plan::{Load, Plan};

/// How often each thing happened.
#[derive(Clone, Default)]
pub struct Counts(Rc<RefCell<BTreeMap<&'static str, u64>>>);

impl Counts {
    /// Adds one.
    pub fn count(&self, what: &'static str) {
        *self.0.borrow_mut().entry(what).or_default() += 1;
    }

    /// All counts.
    pub fn all(&self) -> BTreeMap<&'static str, u64> {
        self.0.borrow().clone()
    }
}

/// Whether hosts hurry.
///
/// Only hosts that do I/O at the moment of a fault see its effect, and constant I/O would cost too much.
#[derive(Clone, Default)]
pub struct Hurry(Rc<Cell<Option<usize>>>);

impl Hurry {
    /// Hosts hurry from now on.
    ///
    /// Of the hosts that share blocks, only those of node `writer` (an index) write. Writes of the others
    /// would wait for what the fault holds up, and their hosts with them, so that no host would read.
    pub fn begin(&self, writer: usize) {
        self.0.set(Some(writer));
    }

    /// Hosts have time again.
    pub fn end(&self) {
        self.0.set(None);
    }
}

/// What all hosts share.
#[derive(Clone)]
struct Common {
    portals: Vec<SocketAddr>,
    /// The unit, and how it is used.
    lun: Lun,
    layout: Layout,
    size: base::BlockSize,
    history: History,
    counts: Counts,
    pause: Duration,
    hurry: Hurry,
    narrow: bool,
    /// The volume may grow.
    grows: bool,
}

/// Longest pause of a host that hurries.
const HURRIED_MAX: Duration = Duration::from_millis(2);
/// How often a host that pauses checks whether to hurry.
const LOOK_UP: Duration = Duration::from_millis(10);
/// Between two attempts to log in.
const LOG_IN_AGAIN: Duration = Duration::from_millis(100);

impl Common {
    fn hurries(&self) -> bool {
        self.hurry.0.get().is_some()
    }

    /// Whether hosts of this node may only read.
    fn only_look(&self, portal: SocketAddr) -> bool {
        self.hurry.0.get().is_some_and(|writer| self.portals.get(writer) != Some(&portal))
    }

    /// Waits before the next command.
    async fn think(&self, rng: &mut Rng) {
        self.wait(self.pause, rng).await;
    }

    /// Waits before the next session, since the last one failed: a node that accepts logins and no commands
    /// would be busy with logins alone.
    async fn recover(&self, rng: &mut Rng) {
        self.wait(LOG_IN_AGAIN, rng).await;
    }

    /// Waits for `average`, on average; almost not at all while hosts hurry.
    async fn wait(&self, average: Duration, rng: &mut Rng) {
        let mut left = Duration::from_micros(rng.below(average.as_micros() as u64 * 2));
        while !left.is_zero() && !self.hurries() {
            rt::sleep(left.min(LOOK_UP)).await;
            left = left.saturating_sub(LOOK_UP);
        }
        if self.hurries() {
            rt::sleep(Duration::from_micros(rng.below(HURRIED_MAX.as_micros() as u64))).await;
        }
    }
}

/// Starts all hosts of a plan, each on a machine of its own; returns the machines.
pub fn start(
    cluster: &Cluster,
    plan: &Plan,
    histories: &[History],
    counts: &Counts,
    hurry: &Hurry,
) -> Vec<rt::sim::NodeId> {
    let Load { pause, single, narrow, owners, exchangers, writers, registrants, .. } = plan.load;
    let portals: Vec<SocketAddr> = cluster.servers.iter().map(|server| server.portal).collect();
    let common = |volume: usize| Common {
        portals: portals.clone(),
        lun: cluster.volumes[volume].lun,
        layout: cluster.volumes[volume].layout,
        size: plan.block,
        history: histories[volume].clone(),
        counts: counts.clone(),
        pause,
        hurry: hurry.clone(),
        narrow,
        grows: plan.grows(),
    };
    let mut rng = Rng::new(plan.seed ^ 0x10ad);
    let (mut machines, rights) = (Vec::new(), Rights::default());
    let mut host = |volume: usize, kind: &str, number: u64| {
        let name = format!("{kind}-{number}");
        let machine = cluster.add_host(&name);
        machines.push(machine);
        (machine, name, portals[number as usize % portals.len()], common(volume), rng.fork())
    };
    for number in 0..single {
        let (machine, name, portal, common, rng) = host(0, "single", number);
        drop(cluster.world.spawn_on(machine, CoreId(0), move || hot::run(common, portal, name, rng)));
    }
    for number in 0..owners {
        let (machine, name, _, common, rng) = host(0, "owner", number);
        drop(cluster.world.spawn_on(machine, CoreId(0), move || own::run(common, own(number), name, rng)));
    }
    for number in 0..exchangers {
        let (machine, name, portal, common, rng) = host(0, "exchanger", number);
        let run = move || exchange::run(common, portal, number, name, rng);
        drop(cluster.world.spawn_on(machine, CoreId(0), run));
    }
    for number in 0..writers {
        let (machine, name, portal, common, rng) = host(0, "writer", number);
        let rights = rights.clone();
        let run = move || fence::write(common, rights, portal, name, rng);
        drop(cluster.world.spawn_on(machine, CoreId(0), run));
    }
    for number in 0..registrants {
        let (machine, name, portal, common, rng) = host(0, "registrant", number);
        let run = move || registrant::run(common, portal, number, name, rng);
        drop(cluster.world.spawn_on(machine, CoreId(0), run));
    }
    if writers > 0 {
        let (machine, name, _, common, rng) = host(0, "fencer", 0);
        let (rights, kinds) = (rights.clone(), plan.reservations.clone());
        drop(
            cluster.world.spawn_on(machine, CoreId(0), move || fence::run(common, rights, kinds, name, rng)),
        );
    }
    if plan.beside.is_some() {
        let (machine, name, _, common, rng) = host(1, "beside", 0);
        drop(cluster.world.spawn_on(machine, CoreId(0), move || own::run(common, own(0), name, rng)));
        for number in 0..plan.load.beside {
            let (machine, name, portal, common, rng) = host(1, "single-beside", number);
            drop(cluster.world.spawn_on(machine, CoreId(0), move || hot::run(common, portal, name, rng)));
        }
    }
    machines
}
