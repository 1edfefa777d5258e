//! Logical units: a volume with its SCSI interface, on one core.
//!
//! [`Unit::execute`] is the path of every command. The SCSI brain answers it or returns a step; this module
//! executes the step, and the brain builds the response. Steps that change what all cores agree on go through
//! [`change`].

mod change;
mod copy;
mod identity;
mod paths;
mod stats;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use proto::block::{BlockError, BlockOp};
use proto::scsi::{
    ItNexus, LogicalUnit, LuConfig, LuState, NexusId, Notice, Outcome, RelativePort, Request, Step,
};
use rt::sync::{Notify, Sender, oneshot};

pub use self::change::{install_on_all_cores, until_orphans_ended, until_written};
pub use self::identity::{identity, naa};
pub use self::paths::{Paths, Way};
pub use self::stats::{Operation, UnitStats};
use crate::attach::access::Access;
use crate::data::{Volume, VolumeId};
use crate::iscsi::session::{Aborted, Caller};
use crate::shard::Shard;

/// How many commands of one nexus and kind, begun in the same epoch, are at the volume.
struct Presence {
    nexus: NexusId,
    epoch: u64,
    /// The commands write, or may.
    writes: bool,
    count: u32,
}

/// Which commands at the volume to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// All.
    All,
    /// Those of one nexus.
    Of(NexusId),
    /// Those that write. They do not depend on the initiator, while a read may wait for an initiator that
    /// receives its data slowly.
    Writes,
}

/// A logical unit on one core.
pub struct Unit {
    volume: Rc<Volume>,
    brain: RefCell<LogicalUnit>,
    /// Whether the nodes with copies, present or future, agree on its mode pages and reservations.
    replicated: Cell<bool>,
    /// The paths from which, with the targets, its port groups are made.
    paths: RefCell<Paths>,
    /// Commands of this core's sessions that are at the volume, by nexus. Commands that wait for a change are
    /// not counted: otherwise a change that aborts them would wait for itself.
    at_volume: RefCell<Vec<Presence>>,
    /// Grows with each [`Unit::drained`], so that a drain does not wait for commands that began after it.
    epoch: Cell<u64>,
    /// Notified when a count drops to zero.
    quiet: Notify,
    /// Receives the last state when the unit is dropped; [`Unit::gone`] waits for it.
    end: RefCell<Option<Sender<LuState>>>,
    stats: RefCell<UnitStats>,
}

impl Unit {
    /// A unit of `volume` with these `paths`, which must be in `config`, too.
    pub fn new(volume: Rc<Volume>, config: LuConfig, paths: Paths, state: LuState) -> Unit {
        Unit {
            volume,
            replicated: Cell::new(false),
            paths: RefCell::new(paths),
            brain: RefCell::new(LogicalUnit::new(config, state)),
            at_volume: RefCell::default(),
            epoch: Cell::new(0),
            quiet: Notify::new(),
            end: RefCell::default(),
            stats: RefCell::default(),
        }
    }

    /// The identity of the volume and of the unit.
    pub fn id(&self) -> VolumeId {
        self.volume.id()
    }

    /// The volume on this core.
    pub fn volume(&self) -> &Rc<Volume> {
        &self.volume
    }

    /// The SCSI brain on this core. Borrow it only for a moment, never across an `await`.
    pub fn brain(&self) -> &RefCell<LogicalUnit> {
        &self.brain
    }

    /// Whether several nodes agree on its mode pages and reservations.
    pub fn is_replicated(&self) -> bool {
        self.replicated.get()
    }

    /// See [`Unit::is_replicated`].
    pub fn set_replicated(&self, replicated: bool) {
        self.replicated.set(replicated);
    }

    /// The paths to the volume.
    pub fn paths(&self) -> Paths {
        self.paths.borrow().clone()
    }

    /// Sets the paths to the volume, or their states.
    ///
    /// From here on this core executes and reports commands accordingly. Each initiator is informed once of a
    /// changed state. Commands that were admitted before continue.
    pub fn set_paths(&self, paths: Paths) {
        self.paths.replace(paths);
        self.look_at_targets(&Shard::current().access());
    }

    /// Updates the unit after other targets may lead to it, or after portal groups have changed.
    pub fn look_at_targets(&self, access: &Access) {
        let (paths, shard) = (self.paths.borrow(), Shard::current());
        let mut brain = self.brain.borrow_mut();
        let config = paths.in_config(self.id(), access, &shard, brain.config());
        if *brain.config() != config {
            brain.reconfigure(config);
        }
    }

    /// Gives the ports of this node the numbers that they have now.
    pub fn renumber(&self) {
        let shard = Shard::current();
        let number = shard.number();
        let is_sole = !self.is_replicated();
        self.brain.borrow_mut().renumber(|port| number.same_port(port), is_sole);
        self.look_at_targets(&shard.access());
    }

    /// The present number of a target port in the name of one of this unit's nexuses.
    ///
    /// The port of a sole volume is always one of the node that serves it, whatever number that node had when
    /// the name was stored, or was sent to this core. If others have copies, their ports are their own.
    pub fn up_to_date(&self) -> impl Fn(RelativePort) -> RelativePort + Copy + use<> {
        let number = (!self.is_replicated()).then(|| Shard::current().number());
        move |port| number.map_or(port, |number| number.same_port(port))
    }

    /// Installs on this core what has been decided.
    fn install(&self, state: Option<LuState>, notices: Vec<Notice>) {
        let up_to_date = self.up_to_date();
        let state = state.map(|state| state.renumbered(up_to_date));
        let notices: Vec<Notice> = notices.into_iter().map(|notice| notice.renumbered(up_to_date)).collect();
        self.brain.borrow_mut().install(state, &notices);
    }

    /// The counters of this core.
    pub fn stats(&self) -> UnitStats {
        self.stats.borrow().clone()
    }

    /// Adds the counters of this core to `sum`.
    pub fn add_stats_to(&self, sum: &mut UnitStats) {
        sum.add(&self.stats.borrow());
    }

    /// Adds the nexus of a session that sees this unit.
    pub fn attach(&self, nexus: NexusId, name: ItNexus, again: bool) {
        self.brain.borrow_mut().attach_nexus(nexus, name, again);
    }

    /// Removes the nexus of a session that no longer sees this unit.
    ///
    /// What ends with it (a RESERVE) has ended on all cores when this returns.
    pub async fn detach(&self, nexus: NexusId) {
        let change = self.brain.borrow_mut().detach_nexus(nexus);
        self.at_volume.borrow_mut().retain(|presence| presence.nexus != nexus || presence.count > 0);
        if let Some(change) = change {
            self.change(change).await;
        }
    }

    /// Executes one command.
    pub async fn execute(&self, caller: &Caller, request: Request) -> Outcome {
        let nexus = request.nexus;
        let began = rt::now();
        let step = self.brain.borrow_mut().start(request);
        let (operation, bytes, outcome) = match step {
            Step::Done(outcome) => (Operation::Other, 0, outcome),
            Step::Block(pending, op) => {
                let (operation, bytes) = self.measure(&op);
                let at_volume = AtVolume::enter(self, nexus, !op.is_read_only());
                // A write that waits for room ends when somebody waits for the end of commands here, and when
                // a reservation fences its initiator off.
                let may_wait = || {
                    let is_asked_to_end = at_volume.epoch != self.epoch.get() || !self.is_open();
                    !is_asked_to_end && self.brain.borrow().may_still_write(nexus)
                };
                let room = match self.volume.working_bytes(&op) {
                    0 => Ok(None),
                    bytes => caller.admit(bytes).await.map(Some),
                };
                let result = match room {
                    Ok(_held) => self.volume.perform(op, caller.came(), || caller.word(), may_wait).await,
                    Err(Aborted) => Err(BlockError::Aborted),
                };
                (operation, bytes, self.brain.borrow_mut().finish(pending, result))
            }
            Step::ReportLuns(report) => (Operation::Other, 0, caller.view().report(nexus, &report)),
            Step::Change(change) => (Operation::Other, 0, self.change_for(caller, change).await),
            Step::Copy(pending, segments) => {
                let result = copy::copy(caller, nexus, &segments).await;
                (Operation::Copy, 0, self.brain.borrow_mut().finish_copy(pending, result))
            }
        };
        self.stats.borrow_mut().record(operation, bytes, rt::now().since(began), &outcome);
        outcome
    }

    /// Whether commands reach this unit: it is not about to be closed.
    fn is_open(&self) -> bool {
        Shard::current().unit(self.id()).is_some_and(|unit| std::ptr::eq(&*unit, self))
    }

    fn measure(&self, op: &BlockOp) -> (Operation, u64) {
        let bytes = op.range().map_or(0, |range| (range.count * self.volume.block_size()).0);
        (Operation::of(op), bytes)
    }

    /// Waits until none of these commands that began before the call is at the volume.
    pub async fn drained(&self, which: Waiting) {
        let epoch = self.epoch.get() + 1;
        self.epoch.set(epoch);
        self.at_volume.borrow_mut().retain(|presence| presence.count > 0);
        let waited_for = |presence: &Presence| {
            presence.count > 0
                && presence.epoch < epoch
                && match which {
                    Waiting::All => true,
                    Waiting::Of(nexus) => nexus == presence.nexus,
                    Waiting::Writes => presence.writes,
                }
        };
        self.quiet.until(|| !self.at_volume.borrow().iter().any(waited_for)).await;
    }

    /// Releases the unit, waits until all other owners have, and returns its final state; `None` if another
    /// caller waits for that.
    pub async fn gone(self: Rc<Unit>) -> Option<LuState> {
        let (end, ended) = oneshot();
        self.end.replace(Some(end));
        drop(self);
        ended.await.ok()
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end.send(self.brain.get_mut().state().clone());
        }
    }
}

/// Counts a command while it is at the volume.
struct AtVolume<'a> {
    unit: &'a Unit,
    nexus: NexusId,
    epoch: u64,
    writes: bool,
}

impl<'a> AtVolume<'a> {
    fn enter(unit: &'a Unit, nexus: NexusId, writes: bool) -> AtVolume<'a> {
        let epoch = unit.epoch.get();
        let mut at_volume = unit.at_volume.borrow_mut();
        // Few nexuses use one unit on one core: a list is quicker than a map.
        match at_volume.iter_mut().find(|presence| presence.is(nexus, epoch, writes)) {
            Some(presence) => presence.count += 1,
            None => at_volume.push(Presence { nexus, epoch, writes, count: 1 }),
        }
        AtVolume { unit, nexus, epoch, writes }
    }
}

impl Presence {
    fn is(&self, nexus: NexusId, epoch: u64, writes: bool) -> bool {
        self.nexus == nexus && self.epoch == epoch && self.writes == writes
    }
}

impl Drop for AtVolume<'_> {
    fn drop(&mut self) {
        let mut at_volume = self.unit.at_volume.borrow_mut();
        let is_own = |presence: &&mut Presence| presence.is(self.nexus, self.epoch, self.writes);
        if let Some(presence) = at_volume.iter_mut().find(is_own) {
            presence.count -= 1;
            if presence.count == 0 {
                self.unit.quiet.notify();
            }
        }
    }
}
