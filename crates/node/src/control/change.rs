//! Changes: each one runs to its end, and no caller waits for one without a deadline.
//!
//! A change is a task of its own. If it ended when its caller stopped waiting, it could be left half done: a
//! volume without its target, or space that belongs to nobody. The caller waits for [`CHANGE_DEADLINE`]. If a
//! disk has not responded by then, the change continues and keeps what it holds ([`Thing`]); changes of other
//! things are not affected.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use base::{ByteLen, Instant};
use serde::{Deserialize, Serialize};
use store::{Zeroing, ZeroingWatch};

use super::doing::Doing;
use super::turns::{Held, Thing, Turns};
use super::{ChangeFailure, Control, ControlError, EndedJob, EndedWork, JobOutcome, Result};
use crate::data::VolumeId;
use crate::events::code::{
    CHANGE_FAILED, CHANGE_SLOW, CLUSTER_CREATED, CLUSTER_FORCED, CLUSTER_JOINED, HOST_CHANGED, HOST_CREATED,
    HOST_DELETED, MAPS_CHANGED, POOL_CREATED, POOL_EXPORTED, POOL_EXTENDED, POOL_FORGOTTEN, POOL_IMPORTED,
    POOL_REDUCED, POOL_REOPENED, SNAPSHOT_CREATED, SNAPSHOT_DELETED, SNAPSHOT_RESTORED, TARGET_CHANGED,
    TARGET_CREATED, TARGET_DELETED, VOLUME_CREATED, VOLUME_DELETED, VOLUME_RESIZED, VOLUME_SPACE_CHANGED,
};
use crate::events::{Code, Event};

/// How long a caller waits for a change.
///
/// One request makes at most two changes (a new name and a new size), and the HTTP interface gives up after
/// two minutes.
pub const CHANGE_DEADLINE: Duration = Duration::from_secs(45);

/// How long a change waits for earlier ones. At this deadline it has not done anything yet.
pub const TURN_DEADLINE: Duration = Duration::from_secs(15);

/// Only changes that took this long are kept in the list of ended jobs. Nobody saw shorter ones under way,
/// and they would displace those that users ask about.
const NOTED_FROM: Duration = Duration::from_secs(1);

/// How long a disk may take for one piece of the zeroing before the zeroing counts as stalled.
const ZEROING_STALLS: Duration = Duration::from_secs(10);

/// How many change numbers each second since 1970 reserves. A life's numbers begin at its start time. No node
/// makes changes this fast, so the next life's numbers are always larger.
const NUMBERS_PER_SECOND: u64 = 1 << 16;

/// What a change does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// The kind of change.
    pub doing: Doing,
    /// The name of the object that it changes.
    pub name: String,
}

impl Doing {
    /// This change of the object of this name.
    pub(super) fn of(self, name: &str) -> Work {
        Work { doing: self, name: name.to_owned() }
    }
}

base::shows!(Display for Work, |it| "{} {:?}", it.doing, it.name);

/// What a change waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitsFor {
    /// For another change to end.
    Turn(Work),
    /// For these disks of a pool to respond.
    Disks(Vec<PathBuf>),
    /// For initiators' commands on a volume to return from these disks.
    Commands(Vec<PathBuf>),
    /// For the disk that holds the node's record.
    Record(PathBuf),
    /// For the node's cores.
    Cores,
    /// For the cluster's record.
    ClusterRecord,
    /// For other nodes, by number.
    Nodes(Vec<u16>),
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |disks: &[PathBuf]| {
            disks.iter().map(|disk| disk.display().to_string()).collect::<Vec<_>>().join(", ")
        };
        match self {
            WaitsFor::Turn(work) => write!(f, "{work} to finish"),
            WaitsFor::Disks(disks) => write!(f, "a response from {}", list(disks)),
            WaitsFor::Commands(disks) => {
                write!(f, "host commands to return from {}", list(disks))
            }
            WaitsFor::Record(path) => write!(f, "a response from the disk of {}", path.display()),
            WaitsFor::Cores => f.write_str("the node's cores"),
            WaitsFor::ClusterRecord => f.write_str("quorum for the cluster's record"),
            WaitsFor::Nodes(nodes) => {
                let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
                write!(f, "a response from nodes {}", nodes.join(", "))
            }
        }
    }
}

/// A change under way, as administrators see it.
#[derive(Clone, Debug)]
pub struct ChangeStatus {
    /// Its number, unique across all lives of the node.
    pub number: u64,
    /// The number of the node in its cluster.
    pub node: u16,
    /// What it does.
    pub work: Work,
    /// How long it has been under way.
    pub age: Duration,
    /// What it waits for.
    pub waits_for: WaitsFor,
    /// How far the zeroing of the volume's new or freed space has come. `None` if there is nothing to zero,
    /// or it has not begun.
    pub zeroed: Option<Zeroed>,
}

impl ChangeStatus {
    /// How far it is, or what it waits for.
    pub(super) fn stage(&self) -> String {
        match self.zeroed.filter(|zeroed| zeroed.gets_on) {
            Some(Zeroed { done, total, .. }) => format!("{done} of {total} zeroed"),
            None => format!("it waits for {}", self.waits_for),
        }
    }
}

/// The progress of zeroing a volume's space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zeroed {
    /// How much reads as zeros so far.
    pub done: ByteLen,
    /// How much is to be zeroed; never 0.
    pub total: ByteLen,
    /// Time since it began.
    pub took: Duration,
    /// It is not done, and has made progress recently.
    pub gets_on: bool,
}

impl Zeroed {
    fn at(now: Instant, zeroing: Zeroing) -> Zeroed {
        let Zeroing { done, total, began, moved } = zeroing;
        let gets_on = done < total && now.since(moved) < ZEROING_STALLS;
        Zeroed { done, total, took: now.since(began), gets_on }
    }
}

/// All changes under way.
#[derive(Default)]
pub(super) struct Changes {
    turns: Turns,
    /// The number of the last change.
    last: Cell<u64>,
    /// Oldest first.
    under_way: RefCell<Vec<Rc<Changing>>>,
}

impl Changes {
    /// The changes of a life that begins at `now`, in seconds since 1970.
    pub(super) fn of_life(now: u64) -> Changes {
        Changes { last: Cell::new(now * NUMBERS_PER_SECOND), ..Changes::default() }
    }

    fn next_number(&self) -> u64 {
        let number = self.last.get() + 1;
        self.last.set(number);
        number
    }
}

/// A change under way.
pub(super) struct Changing {
    control: Rc<Control>,
    number: u64,
    work: Work,
    began: Instant,
    waits_for: RefCell<WaitsFor>,
    /// Updated by the pool that creates, grows or deletes a volume for this change.
    zeroing: ZeroingWatch,
    /// The caller has stopped waiting.
    late: Cell<bool>,
    /// The volume that it changes, once known; `None` if it changes something else.
    volume: Cell<Option<VolumeId>>,
}

impl Control {
    /// The changes under way, oldest first.
    pub fn changes(&self) -> Vec<ChangeStatus> {
        self.changes.under_way.borrow().iter().map(|change| change.status()).collect()
    }

    /// Whether a change of this volume is under way.
    pub(super) fn is_being_changed(&self, id: VolumeId) -> bool {
        self.changes.under_way.borrow().iter().any(|change| change.volume.get() == Some(id))
    }

    /// Carries out a change, which holds these things from its turn to its end. The volume among them is what
    /// the change is about.
    pub(super) async fn change<T: 'static, F: Future<Output = Result<T>> + 'static>(
        self: &Rc<Control>,
        work: Work,
        holds: impl Into<Vec<Thing>>,
        body: impl FnOnce(Rc<Control>, Rc<Changing>) -> F,
    ) -> Result<T> {
        self.change_within(CHANGE_DEADLINE, work, holds, body).await
    }

    /// As [`Control::change`], with another deadline.
    pub(super) async fn change_within<T: 'static, F: Future<Output = Result<T>> + 'static>(
        self: &Rc<Control>,
        deadline: Duration,
        work: Work,
        holds: impl Into<Vec<Thing>>,
        body: impl FnOnce(Rc<Control>, Rc<Changing>) -> F,
    ) -> Result<T> {
        let holds: Vec<Thing> = holds.into();
        let number = self.changes.next_number();
        let changing = Rc::new(Changing {
            control: Rc::clone(self),
            number,
            work,
            began: rt::now(),
            waits_for: RefCell::new(WaitsFor::Cores),
            zeroing: ZeroingWatch::default(),
            late: Cell::new(false),
            volume: Cell::new(holds.iter().find_map(Thing::as_volume)),
        });
        self.changes.under_way.borrow_mut().push(Rc::clone(&changing));
        let (ended, result) = rt::sync::oneshot();
        let (body, itself) = (body(Rc::clone(self), Rc::clone(&changing)), Rc::clone(&changing));
        rt::spawn(async move {
            let result = async {
                let _held = if holds.is_empty() { None } else { Some(itself.hold(holds).await?) };
                body.await
            };
            let result = result.await;
            itself.ended(result.as_ref().err());
            ended.send(result);
        })
        .detach();
        match rt::timeout(deadline, result).await {
            Ok(Ok(result)) => result,
            // The core is being torn down; so is the caller.
            Ok(Err(rt::sync::Closed)) => std::future::pending().await,
            Err(rt::Elapsed) => Err(changing.unfinished()),
        }
    }
}

impl Changing {
    /// Notes what the change waits for from now on.
    pub(super) fn waits_for(&self, what: WaitsFor) {
        self.waits_for.replace(what);
    }

    /// Notes which volume the change is about. Its events then carry the volume's identity.
    pub(super) fn concerns(&self, volume: VolumeId) {
        self.volume.set(Some(volume));
    }

    /// The watch through which the pool reports the progress of the zeroing for this change.
    pub(super) fn zeroing(&self) -> ZeroingWatch {
        self.zeroing.clone()
    }

    /// Waits until no earlier change holds any of these things, then holds them.
    ///
    /// # Errors
    /// [`ControlError::Busy`].
    pub(super) async fn hold(&self, things: impl Into<Vec<Thing>>) -> Result<Held<'_>> {
        let held = self.control.changes.turns.claim(things.into(), self.work.clone());
        let turn = held.turn(|first| self.waits_for(WaitsFor::Turn(first)));
        let turn = rt::timeout(TURN_DEADLINE, turn).await;
        match (turn, held.waits_for()) {
            (Err(rt::Elapsed), Some(first)) => Err(self.busy(first)),
            _ => {
                self.waits_for(WaitsFor::Cores);
                Ok(held)
            }
        }
    }

    fn unfinished(&self) -> ControlError {
        self.late.set(true);
        let status = self.status();
        tracing::warn!(work = %status.work, waits_for = %status.waits_for, "a change is taking a long time; it continues");
        let text =
            format!("{} is taking a long time and continues: it waits for {}", status.work, status.waits_for);
        self.control.events().tell(self.event(CHANGE_SLOW, text));
        ControlError::Unfinished(Box::new(status))
    }

    fn ended(&self, error: Option<&ControlError>) {
        let mut under_way = self.control.changes.under_way.borrow_mut();
        under_way.retain(|change| !std::ptr::eq(&**change, self));
        self.note_end(error);
        match error {
            None if !self.late.get() => self.tell(),
            Some(_) if !self.late.get() => {}
            None => {
                tracing::info!(work = %self.work, "a long-running change has finished");
                self.tell();
            }
            Some(error) => {
                let text = format!("{} took a long time and failed: {}", self.work, error.with_hint());
                let error = error as &dyn std::error::Error;
                tracing::error!(work = %self.work, error, "a long-running change has failed");
                self.control.events().tell(self.event(CHANGE_FAILED, text));
            }
        }
    }

    /// Notes how the change has ended, if somebody may have seen it under way.
    fn note_end(&self, error: Option<&ControlError>) {
        let took = rt::now().since(self.began);
        if took < NOTED_FROM && !self.late.get() {
            return;
        }
        if let Some(error) = error
            && !self.late.get()
        {
            // The caller gets the whole error; the list of ended jobs only has its code.
            let error = error as &dyn std::error::Error;
            tracing::info!(work = %self.work, error, "a change has failed");
        }
        self.control.note_end(EndedJob {
            work: EndedWork::Change {
                number: self.number,
                doing: self.work.doing,
                failure: error.map(ChangeFailure::from),
            },
            subject: self.work.name.clone(),
            outcome: if error.is_none() { JobOutcome::Done } else { JobOutcome::Failed },
            took: Some(took),
        });
    }

    /// Emits the event that the change is done, unless the cluster's record emits it.
    fn tell(&self) {
        let Some((code, is_shared, text)) = told_as(&self.work) else { return };
        let events = self.control.events();
        match self.control.reconciler() {
            Ok(_) if is_shared => {}
            // The record may have emitted it already.
            Ok(_) => events.tell_unless_told(self.began, self.event(code, text)),
            Err(_) => events.tell(self.event(code, text)),
        }
    }

    /// An event about this change.
    fn event(&self, code: Code, text: String) -> Event {
        Event { volume: self.volume.get(), ..Event::new(code, &self.work.name, text) }
    }

    fn busy(&self, first: Work) -> ControlError {
        // The oldest, if several do the same.
        let status = self.control.changes().into_iter().find(|change| change.work == first);
        let ended = || ChangeStatus {
            number: 0,
            node: self.control.number(),
            work: first,
            age: Duration::ZERO,
            waits_for: WaitsFor::Cores,
            zeroed: None,
        };
        ControlError::Busy { work: self.work.clone(), first: Box::new(status.unwrap_or_else(ended)) }
    }

    fn status(&self) -> ChangeStatus {
        ChangeStatus {
            number: self.number,
            node: self.control.number(),
            work: self.work.clone(),
            age: rt::now().since(self.began),
            waits_for: self.waits_for.borrow().clone(),
            zeroed: self.zeroing.now().map(|zeroing| Zeroed::at(rt::now(), zeroing)),
        }
    }
}

/// The event for a finished change: its code, whether the cluster's record emits it, and its text.
fn told_as(work: &Work) -> Option<(Code, bool, String)> {
    let name = &work.name;
    let (code, is_shared, text) = match work.doing {
        Doing::MakeVolume => (VOLUME_CREATED, false, format!("volume {name} created")),
        Doing::GrowVolume => (VOLUME_RESIZED, false, format!("volume {name} grown")),
        Doing::SetSpace => (VOLUME_SPACE_CHANGED, true, format!("space policy of volume {name} changed")),
        Doing::DeleteVolume => (VOLUME_DELETED, false, format!("volume {name} deleted")),
        Doing::TakeSnapshot => (SNAPSHOT_CREATED, false, format!("snapshot {name} created")),
        Doing::DeleteSnapshot => (SNAPSHOT_DELETED, false, format!("snapshot {name} deleted")),
        Doing::RestoreSnapshot => (SNAPSHOT_RESTORED, false, format!("volumes restored to snapshot {name}")),
        Doing::MakeTarget => (TARGET_CREATED, true, format!("target {name} created")),
        Doing::ChangeTarget => (TARGET_CHANGED, true, format!("target {name} changed")),
        Doing::DeleteTarget => (TARGET_DELETED, true, format!("target {name} deleted")),
        Doing::MapVolume => (MAPS_CHANGED, true, format!("volume {name} mapped")),
        Doing::Unmap => (MAPS_CHANGED, true, format!("LUN unmapped from target {name}")),
        Doing::MakeHost => (HOST_CREATED, true, format!("host group {name} created")),
        Doing::ChangeHost => (HOST_CHANGED, true, format!("host group {name} changed")),
        Doing::DeleteHost => (HOST_DELETED, true, format!("host group {name} deleted")),
        Doing::MakePool => (POOL_CREATED, false, format!("pool {name} created")),
        Doing::ImportPool => (POOL_IMPORTED, false, format!("pool on {name} imported")),
        Doing::GrowPool => (POOL_EXTENDED, false, format!("disk added to pool {name}")),
        Doing::ShrinkPool => (POOL_REDUCED, false, format!("disk removed from pool {name}")),
        Doing::GrowDisks => (POOL_EXTENDED, false, format!("pool {name} grown with its disks")),
        Doing::ExportPool => (POOL_EXPORTED, false, format!("pool {name} exported")),
        Doing::ReopenPool => (POOL_REOPENED, false, format!("pool {name} reopened")),
        Doing::ForgetPool => (POOL_FORGOTTEN, false, format!("pool {name} forgotten, with everything on it")),
        Doing::MakeCluster => (CLUSTER_CREATED, false, format!("node {name} created a cluster")),
        Doing::JoinCluster => (CLUSTER_JOINED, false, format!("node {name} joined a cluster")),
        Doing::ForceCluster => (
            CLUSTER_FORCED,
            false,
            format!("node {name} was forced into a cluster of its own, without the other nodes"),
        ),
        // Steps of other changes, changes whose events are emitted elsewhere, and what viewers must not see.
        Doing::RenameVolume
        | Doing::SetCompression
        | Doing::ConvertVolume
        | Doing::BeginConversion
        | Doing::SwitchLayout
        | Doing::FreeLayout
        | Doing::AdoptVolume
        | Doing::MakeCopy
        | Doing::GrowCopy
        | Doing::RenameCopy
        | Doing::SetSpaceOfCopy
        | Doing::SetCompressionOfCopy
        | Doing::CloseCopy
        | Doing::TakeScheduledSnapshot
        | Doing::ChangeSnapshot
        | Doing::CloneSnapshot
        | Doing::DeleteCopy
        | Doing::DropCopy
        | Doing::ResyncCopies
        | Doing::WriteFork
        | Doing::ChangeUser
        | Doing::MakeToken
        | Doing::DeleteToken
        | Doing::LookAtDisks
        | Doing::LetDiskLeave
        | Doing::EmptyDisk
        | Doing::KeepDisk
        | Doing::OpenPool
        | Doing::PrepareToJoin
        | Doing::ReturnToCluster
        | Doing::LeaveCluster
        | Doing::KeepAccess
        | Doing::TakeAccessOver
        | Doing::WriteIdentity
        | Doing::EndLife
        | Doing::WriteReadErrors
        | Doing::WriteScrubs
        | Doing::AcknowledgeReadErrors
        | Doing::RepairRecord => return None,
    };
    Some((code, is_shared, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_life_of_a_node_numbers_a_change_as_an_earlier_one_has() {
        let (first, next) = (Changes::of_life(1_800_000_000), Changes::of_life(1_800_000_001));
        let numbers: Vec<u64> = (0..1000).map(|_| first.next_number()).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b));
        assert!(next.next_number() > numbers[numbers.len() - 1]);
    }

    #[test]
    fn zeroing_progresses_until_done_or_its_disk_stops_answering() {
        let second = |at: u64| Instant(at * 1_000_000_000);
        let zeroing = Zeroing { done: ByteLen(5), total: ByteLen(9), began: second(100), moved: second(103) };
        let zeroed = Zeroed::at(second(104), zeroing);
        assert_eq!((zeroed.took, zeroed.gets_on), (Duration::from_secs(4), true));
        assert!(!Zeroed::at(second(113), zeroing).gets_on, "its disk is waited for");
        assert!(!Zeroed::at(second(104), Zeroing { done: ByteLen(9), ..zeroing }).gets_on);
    }
}
