//! Verification: compares the copies of a volume part by part, by SHA-256, while hosts use it.
//!
//! Each part is locked on all nodes, as COMPARE AND WRITE locks its blocks, so that nothing writes to it
//! while the nodes read it. Only hosts that access this part wait meanwhile. A difference is checked again
//! before it is reported.

mod schedule;
mod scheduled;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use base::{ByteLen, ByteOffset, Instant};
use replica::NodeId;
use rt::sync::Semaphore;
use serde::{Deserialize, Serialize};
use store::VolumeId;

pub use self::schedule::due;
pub(super) use self::schedule::{due_at, pause};
use self::scheduled::Scheduled;
use super::{Control, ControlError, EndedJob, EndedWork, JobOutcome, Result, VolumeStatus};
use crate::canary::{Canary, makes};
use crate::copies::{
    Answer, Ask, DIGEST_BYTES, DifferingEntry, Refused, StandingEntry, VolumeEntry, differing_key,
};
use crate::events::code::COPIES_MISMATCH;
use crate::events::{Event, tell};
use crate::member::{ClusterError, Reconciler};
use crate::shard::Shard;

/// The size of a part. Hosts that access it wait for a few milliseconds.
const PART_BYTES: u64 = 1 << 20;
/// How often a part is tried that differs or cannot be compared, and the pause between attempts.
const ATTEMPTS: usize = 3;
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// How long a node may take for its digests of a part. Hosts that access the part wait meanwhile, and give up
/// a write after two seconds.
const DIGESTS_MAX: Duration = Duration::from_millis(1500);
/// How many differences are listed individually.
const TOLD_MAX: usize = 256;
/// How many volumes are compared at the same time; others wait.
const AT_ONCE: usize = 2;

/// The state of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerificationState {
    /// It is running.
    Running,
    /// The whole volume was looked at.
    Done,
    /// It was stopped.
    Stopped,
}

/// A part of a volume that is not equal in all copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Where it begins in the volume, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub len: u64,
    /// The nodes whose copies differ from the majority; all nodes if there is no majority.
    pub nodes: BTreeSet<u16>,
}

/// The progress or result of a verification.
#[derive(Clone, Debug)]
pub struct Verification {
    /// The volume's name when it began.
    pub volume: String,
    /// Its state.
    pub state: VerificationState,
    /// How long ago it began.
    pub age: Duration,
    /// How long it has taken so far.
    pub took: Duration,
    /// Size of the volume in bytes.
    pub total: u64,
    /// Bytes processed so far.
    pub done: u64,
    /// Those of them that could not be compared, in bytes.
    pub unchecked: u64,
    /// Why the last of these could not be compared.
    pub problem: Option<Uncompared>,
    /// Bytes that differ.
    pub different: u64,
    /// The first differences.
    pub differences: Vec<Difference>,
    /// The nodes whose copies were part of all comparisons.
    pub nodes: BTreeSet<u16>,
}

impl Verification {
    /// Whether everything was compared and is equal.
    pub fn is_equal(&self) -> bool {
        self.state == VerificationState::Done && self.different == 0 && self.unchecked == 0
    }

    /// Whether it ended before it had looked at everything, although nobody stopped it: the volume no longer
    /// has a copy on this node.
    pub fn is_cut_short(&self) -> bool {
        self.state == VerificationState::Done && self.done < self.total
    }

    /// How it ended.
    fn outcome(&self) -> JobOutcome {
        match self.state {
            VerificationState::Stopped => JobOutcome::Cancelled,
            _ if self.is_cut_short() || self.unchecked >= self.total => JobOutcome::Failed,
            _ => JobOutcome::Done,
        }
    }
}

/// Why a part of a volume could not be compared. Nodes report it to each other as JSON.
///
/// `node` is the number of a node; `at` is in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // The messages say it.
pub enum Uncompared {
    #[error("the copy on this node is out of sync: run the command on a node whose copy is in sync")]
    OutOfSyncHere,
    #[error("the copy on this node is not open")]
    NotOpenHere,
    #[error("host writes to it could not be paused")]
    NotPaused,
    #[error("the volume was deleted")]
    VolumeDeleted,
    #[error("node {node} cannot read LBA {lba} of its copy (byte {at} of its disk {disk})")]
    Unreadable { node: u16, lba: u64, disk: String, at: u64 },
    #[error("LBA {lba} is lost on node {node}: a host must write it first")]
    Lost { node: u16, lba: u64 },
    #[error("the copy on node {node} is shorter than the others")]
    Shorter { node: u16 },
    #[error("node {node} gave an unexpected answer: the nodes may run different versions")]
    Strange { node: u16 },
    /// A node did not answer.
    #[error(transparent)]
    Unanswered(Refused),
}

impl From<ClusterError> for Uncompared {
    fn from(error: ClusterError) -> Uncompared {
        match error {
            ClusterError::Strange(node) => Uncompared::Strange { node: node.0 },
            error => Uncompared::Unanswered(Refused::of(&error.into()).unwrap_or(Refused::Failed)),
        }
    }
}

/// The last verification of each volume in this life of the node.
pub(super) struct Verifications {
    of: RefCell<BTreeMap<VolumeId, Rc<Verifying>>>,
    turns: Rc<Semaphore>,
}

struct Verifying {
    /// What earlier verifications had found when this one began.
    before: Differing,
    began: Instant,
    ended: Cell<Option<Instant>>,
    stopped: Cell<bool>,
    found: RefCell<Verification>,
    /// The nodes whose copies differ, including in differences that are not listed.
    odd: RefCell<BTreeSet<u16>>,
    /// `None` if somebody requested it.
    scheduled: Option<Scheduled>,
    /// The cluster's record has its result.
    is_remembered: Cell<bool>,
}

/// What is known to differ.
///
/// Only a complete comparison can show that copies no longer differ: not one that has only begun, was
/// stopped, or left something out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Differing {
    bytes: u64,
    /// The nodes whose copies differ from others.
    nodes: BTreeSet<u16>,
}

impl Differing {
    /// This knowledge together with what a comparison has found so far, on these nodes.
    fn after(&self, found: &Verification, nodes: &BTreeSet<u16>) -> Differing {
        let is_whole = found.state == VerificationState::Done && found.unchecked == 0;
        if is_whole && self.nodes.is_subset(&found.nodes) {
            return Differing { bytes: found.different, nodes: nodes.clone() };
        }
        Differing { bytes: self.bytes.max(found.different), nodes: &self.nodes | nodes }
    }
}

impl From<Option<DifferingEntry>> for Differing {
    fn from(known: Option<DifferingEntry>) -> Differing {
        known
            .map_or_else(Differing::default, |DifferingEntry { bytes, nodes, .. }| Differing { bytes, nodes })
    }
}

impl Default for Verifications {
    fn default() -> Verifications {
        Verifications { of: RefCell::default(), turns: Rc::new(Semaphore::new(AT_ONCE)) }
    }
}

impl Verifying {
    fn shown(&self) -> Verification {
        let now = rt::now();
        let took = self.ended.get().unwrap_or(now).since(self.began);
        Verification { age: now.since(self.began), took, ..self.found.borrow().clone() }
    }

    fn differing(&self) -> Differing {
        self.before.after(&self.found.borrow(), &self.odd.borrow())
    }

    fn is_running(&self) -> bool {
        self.ended.get().is_none()
    }

    fn note(&self, found: Result<Vec<Difference>, Uncompared>, len: u64) {
        let mut all = self.found.borrow_mut();
        all.done += len;
        match found {
            Ok(differences) => {
                all.different += differences.iter().map(|found| found.len).sum::<u64>();
                self.odd
                    .borrow_mut()
                    .extend(differences.iter().flat_map(|found| found.nodes.iter().copied()));
                let room = TOLD_MAX - all.differences.len().min(TOLD_MAX);
                all.differences.extend(differences.into_iter().take(room));
            }
            Err(problem) => {
                all.unchecked += len;
                all.problem = Some(problem);
            }
        }
    }

    fn end(&self) {
        self.ended.set(Some(rt::now()));
        let mut found = self.found.borrow_mut();
        found.state = if self.stopped.get() { VerificationState::Stopped } else { VerificationState::Done };
    }
}

impl Control {
    /// Starts to compare the copies of a volume, unless that is already running. This node must have a copy
    /// in sync.
    ///
    /// # Errors
    /// The volume does not exist, or is only on this node.
    pub fn begin_verification(self: &Rc<Control>, name: &str) -> Result<Verification> {
        let volume = self.volume(name)?;
        let reconciler = match self.reconciler() {
            Ok(_) if volume.copies.is_none() => {
                return Err(ControlError::NotReplicated(volume.info.name));
            }
            reconciler => reconciler?,
        };
        let id = volume.info.id;
        let running = self.verifications.of.borrow().get(&id).filter(|it| it.is_running()).map(Rc::clone);
        if let Some(running) = running {
            // A verification that the schedule started no longer slows itself down.
            running.scheduled.iter().for_each(|scheduled| scheduled.is_asked_for.set(true));
            return Ok(running.shown());
        }
        let verifying = self.new_verification(&reconciler, volume, None)?;
        let shown = verifying.shown();
        rt::spawn(Rc::clone(self).verify(reconciler, id, verifying)).detach();
        Ok(shown)
    }

    fn new_verification(
        &self,
        reconciler: &Reconciler,
        volume: VolumeStatus,
        scheduled: Option<Scheduled>,
    ) -> Result<Rc<Verifying>> {
        let VolumeStatus { info, copies, .. } = volume;
        let Some(copies) = copies else { return Err(ControlError::NotReplicated(info.name)) };
        let mut all = self.verifications.of.borrow_mut();
        all.retain(|id, verifying| verifying.is_running() || reconciler.volume(*id).is_some());
        let in_sync = copies.entry.copies.iter().filter(|copy| copy.standing == StandingEntry::InSync);
        let found = Verification {
            volume: info.name,
            state: VerificationState::Running,
            age: Duration::ZERO,
            took: Duration::ZERO,
            // Not the size of the copy here: an incomplete growth may have left one copy longer than the
            // others.
            total: copies.entry.size,
            done: 0,
            unchecked: 0,
            problem: None,
            different: 0,
            differences: Vec::new(),
            nodes: in_sync.map(|copy| copy.node).collect(),
        };
        let unremembered = all.get(&info.id).filter(|last| !last.is_remembered.get());
        let mut before = match unremembered {
            Some(last) => last.differing(),
            None => reconciler.get::<DifferingEntry>(&differing_key(info.id)).map(|(known, _)| known).into(),
        };
        // A copy that was removed will never be compared again.
        before.nodes.retain(|node| copies.entry.copies.iter().any(|copy| copy.node == *node));
        let verifying = Rc::new(Verifying {
            before,
            began: rt::now(),
            ended: Cell::new(None),
            stopped: Cell::new(false),
            found: RefCell::new(found),
            odd: RefCell::default(),
            scheduled,
            is_remembered: Cell::new(false),
        });
        all.insert(info.id, Rc::clone(&verifying));
        Ok(verifying)
    }

    /// The last verification of a volume's copies in this life of the node, if any.
    pub fn verification(&self, name: &str) -> Result<Option<Verification>> {
        let id = self.volume(name)?.info.id;
        Ok(self.verifications.of.borrow().get(&id).map(|verifying| verifying.shown()))
    }

    /// In how many bytes copies are known to differ, by volume.
    ///
    /// Covers volumes that were compared in this life of the node or that the record remembers. The last
    /// result counts until a complete comparison finds something else.
    pub fn known_to_differ(&self) -> BTreeMap<VolumeId, u64> {
        let remembered = self.remembered_to_differ();
        let bytes = |id: &VolumeId| remembered.get(id).map_or(0, |known| known.bytes);
        let all = self.verifications.of.borrow();
        let here = all
            .iter()
            .map(|(id, it)| (*id, if it.is_remembered.get() { bytes(id) } else { it.differing().bytes }));
        remembered.iter().map(|(id, known)| (*id, known.bytes)).chain(here).collect()
    }

    /// The running verifications.
    pub fn verifications(&self) -> Vec<(VolumeId, Verification)> {
        let all = self.verifications.of.borrow();
        let running = all.iter().filter(|(_, verifying)| verifying.is_running());
        running.map(|(id, verifying)| (*id, verifying.shown())).collect()
    }

    /// Stops a verification before its next part.
    pub fn stop_verification(&self, id: VolumeId) {
        if let Some(verifying) = self.verifications.of.borrow().get(&id) {
            verifying.stopped.set(true);
        }
    }

    async fn verify(self: Rc<Control>, reconciler: Rc<Reconciler>, id: VolumeId, verifying: Rc<Verifying>) {
        let turns = Rc::clone(&self.verifications.turns);
        turns.acquire(1).await;
        let Ok(VolumeStatus { info, .. }) = self.volume(&id.to_string()) else {
            turns.release(1);
            verifying.end();
            return self.note_compared(id, verifying.shown());
        };
        let size = ByteLen(verifying.found.borrow().total);
        let slices = (0..info.stripe.slices()).map(|slice| (slice, info.stripe.slice_len(slice, size)));
        let parts = slices.flat_map(|(slice, len)| {
            (0..len.0).step_by(PART_BYTES as usize).map(move |at| (slice, at, PART_BYTES.min(len.0 - at)))
        });
        let mut end = 0;
        for (slice, at, len) in parts {
            end += len;
            if verifying.scheduled.as_ref().is_some_and(|scheduled| end <= scheduled.from) {
                continue;
            }
            if verifying.stopped.get() || reconciler.is_stopping() {
                let scheduled = verifying.scheduled.iter();
                scheduled.for_each(|it| it.is_interrupted.set(!verifying.stopped.get()));
                verifying.stopped.set(true);
                break;
            }
            let began = rt::now();
            let found = self.compare_part(&reconciler, &verifying, id, slice, (at, len)).await;
            let found = found.map(|found| {
                let place = |(at, len, nodes)| {
                    let ByteOffset(offset) = info.stripe.volume_offset(slice, ByteOffset(at));
                    Difference { offset, len, nodes }
                };
                found.into_iter().map(place).collect()
            });
            verifying.note(found, len);
            if !self.may_continue(&reconciler, id, &verifying, (rt::now().since(began), len)).await {
                verifying.stopped.set(true);
                break;
            }
            // Lets other tasks run even if each part takes no time.
            rt::next_turn().await;
        }
        turns.release(1);
        verifying.end();
        if verifying.scheduled.as_ref().is_some_and(|scheduled| scheduled.is_interrupted.get()) {
            // It continues later, so its end is not reported.
            return;
        }
        let found = verifying.shown();
        if found.different > 0 {
            let text = format!("copies of volume {} differ in {}", found.volume, ByteLen(found.different));
            tell(Event::new(COPIES_MISMATCH, &found.volume, text).of_volume(id));
        }
        self.note_compared(id, found);
        self.remember(&reconciler, id, &verifying).await;
    }

    /// Notes how a verification has ended.
    fn note_compared(&self, volume: VolumeId, found: Verification) {
        let (outcome, subject, took) = (found.outcome(), found.volume.clone(), Some(found.took));
        // The list of differences is not kept twice.
        let found = Box::new(Verification { differences: Vec::new(), ..found });
        self.note_end(EndedJob { work: EndedWork::Verification { volume, found }, subject, outcome, took });
    }

    /// What differs in a part of a slice (offset in the slice, length, nodes), or why that is not known.
    async fn compare_part(
        &self,
        reconciler: &Rc<Reconciler>,
        verifying: &Verifying,
        id: VolumeId,
        slice: u16,
        part: (u64, u64),
    ) -> Result<Vec<(u64, u64, BTreeSet<u16>)>, Uncompared> {
        if !is_in_sync_here(reconciler, id) {
            return Err(Uncompared::OutOfSyncHere);
        }
        for _ in 1..ATTEMPTS {
            let found = compare_once(reconciler, verifying, id, slice, part).await;
            if found.as_ref().is_ok_and(Vec::is_empty) {
                return found;
            }
            rt::sleep(AGAIN_AFTER).await;
        }
        compare_once(reconciler, verifying, id, slice, part).await
    }
}

pub(super) fn is_in_sync_here(reconciler: &Reconciler, id: VolumeId) -> bool {
    let here = reconciler
        .volume(id)
        .and_then(|volume| volume.entry.copy_on(reconciler.me()).map(|(_, copy)| copy.standing));
    here == Some(StandingEntry::InSync)
}

async fn compare_once(
    reconciler: &Rc<Reconciler>,
    verifying: &Verifying,
    id: VolumeId,
    slice: u16,
    (at, len): (u64, u64),
) -> Result<Vec<(u64, u64, BTreeSet<u16>)>, Uncompared> {
    let volume = Shard::current().volume(id).ok_or(Uncompared::NotOpenHere)?;
    let taken = volume.take_part(slice, ByteOffset(at), ByteLen(len)).await;
    let taken = taken.map_err(|_| Uncompared::NotPaused)?;
    let entry = reconciler.volume(id).ok_or(Uncompared::VolumeDeleted)?.entry;
    let in_sync = entry.copies.iter().filter(|copy| copy.standing == StandingEntry::InSync);
    let nodes: BTreeSet<u16> = in_sync.map(|copy| copy.node).collect();
    let asked = nodes.iter().map(|node| async {
        let ask = Ask::Digests { id: id.to_string(), slice, offset: at, len };
        match reconciler.ask_within(NodeId(*node), ask, DIGESTS_MAX).await {
            Ok(Answer::Digests(digests)) => Ok((*node, digests)),
            Ok(Answer::Unreadable { offset, disk }) => {
                let at = volume.volume_offset(slice, ByteOffset(offset));
                let lba = at.0 / u64::from(volume.block_size().bytes());
                let node = *node;
                Err(match disk {
                    Some((disk, at)) => Uncompared::Unreadable { node, lba, disk, at },
                    None => Uncompared::Lost { node, lba },
                })
            }
            Ok(_) => Err(ClusterError::Strange(NodeId(*node)).into()),
            Err(error) => Err(error.into()),
        }
    });
    let found = rt::join_all(asked).await;
    drop(taken);
    // The copies are restored one after the other, when all of their nodes know that hosts are stopped.
    let restores = |entry: VolumeEntry| (entry.restoring, entry.restored);
    let now = reconciler.volume(id).ok_or(Uncompared::VolumeDeleted)?.entry;
    let is_restoring = entry.restoring.is_some() || now.restoring.is_some();
    if is_restoring || restores(entry) != restores(now) {
        return Err(Uncompared::NotPaused);
    }
    let found: Vec<(u16, Vec<[u8; 32]>)> = found.into_iter().collect::<Result<_, Uncompared>>()?;
    verifying.found.borrow_mut().nodes.retain(|node| nodes.contains(node));
    let count = len.div_ceil(DIGEST_BYTES) as usize;
    if let Some((node, _)) = found.iter().find(|(_, digests)| digests.len() != count) {
        return Err(Uncompared::Shorter { node: *node });
    }
    let differing = (0..count).filter_map(|index| {
        let of: Vec<(u16, &[u8; 32])> =
            found.iter().map(|(node, digests)| (*node, &digests[index])).collect();
        let nodes = odd_ones(&of);
        let from = index as u64 * DIGEST_BYTES;
        let differs = !nodes.is_empty() && !makes(Canary::RotUnseen);
        differs.then(|| (at + from, DIGEST_BYTES.min(len - from), nodes))
    });
    Ok(differing.collect())
}

/// The nodes whose value differs from that of more than half of all; all nodes if there is no such value.
fn odd_ones<T: Ord>(found: &[(u16, T)]) -> BTreeSet<u16> {
    let mut counts: BTreeMap<&T, usize> = BTreeMap::new();
    found.iter().for_each(|(_, value)| *counts.entry(value).or_default() += 1);
    let most = counts.iter().find(|(_, count)| **count * 2 > found.len()).map(|(value, _)| *value);
    found.iter().filter(|(_, value)| Some(value) != most).map(|(node, _)| *node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_differs_from_the_majority_is_named_and_all_if_there_is_none() {
        assert_eq!(odd_ones(&[(1, 'a'), (2, 'a'), (3, 'a')]), BTreeSet::new());
        assert_eq!(odd_ones(&[(1, 'a'), (2, 'b'), (3, 'a')]), BTreeSet::from([2]));
        assert_eq!(odd_ones(&[(1, 'a'), (2, 'b')]), BTreeSet::from([1, 2]));
        assert_eq!(odd_ones(&[(1, 'a'), (2, 'b'), (3, 'a'), (4, 'b')]), BTreeSet::from([1, 2, 3, 4]));
        assert_eq!(odd_ones(&[(1, 'a')]), BTreeSet::new());
    }

    /// A comparison of the copies on these nodes that found a difference on `different`.
    fn compared(state: VerificationState, nodes: &[u16], different: &[u16]) -> Verification {
        let len = 65_536;
        let differences = match different {
            [] => Vec::new(),
            different => vec![Difference { offset: 0, len, nodes: different.iter().copied().collect() }],
        };
        Verification {
            volume: "db".into(),
            state,
            age: Duration::ZERO,
            took: Duration::ZERO,
            total: 1 << 20,
            done: 1 << 20,
            unchecked: 0,
            problem: None,
            different: differences.len() as u64 * len,
            differences,
            nodes: nodes.iter().copied().collect(),
        }
    }

    #[test]
    fn a_verify_that_compared_nothing_has_failed() {
        use VerificationState::{Done, Stopped};
        assert_eq!(compared(Done, &[1, 2], &[2]).outcome(), JobOutcome::Done);
        assert_eq!(compared(Stopped, &[1, 2], &[2]).outcome(), JobOutcome::Cancelled);
        let silent = |unchecked| Verification { unchecked, ..compared(Done, &[1, 2], &[]) };
        assert_eq!(silent(512).outcome(), JobOutcome::Done);
        assert_eq!(silent(1 << 20).outcome(), JobOutcome::Failed);
        let gone = Verification { done: 0, ..compared(Done, &[1, 2], &[]) };
        assert_eq!(gone.outcome(), JobOutcome::Failed);
    }

    #[test]
    fn mismatches_are_kept_until_a_complete_verify_finds_otherwise() {
        use VerificationState::{Done, Running, Stopped};
        let unknown = Differing::default();
        let after = |before: &Differing, found: &Verification| {
            before.after(found, &found.differences.iter().flat_map(|it| it.nodes.iter().copied()).collect())
        };
        let known = after(&unknown, &compared(Done, &[1, 2, 3], &[2]));
        assert_eq!(known, Differing { bytes: 65_536, nodes: [2].into() });
        // It has only begun, was stopped, or did not look at everything, or not at the copy that differed.
        assert_eq!(after(&known, &compared(Running, &[1, 2, 3], &[])), known);
        assert_eq!(after(&known, &compared(Stopped, &[1, 2, 3], &[])), known);
        let unchecked = Verification { unchecked: 512, ..compared(Done, &[1, 2, 3], &[]) };
        assert_eq!(after(&known, &unchecked), known);
        assert_eq!(after(&known, &compared(Done, &[1, 3], &[])), known);
        // Differences count as soon as they are found.
        let two = Differing { bytes: 65_536, nodes: [2, 3].into() };
        assert_eq!(after(&known, &compared(Running, &[1, 2, 3], &[3])), two);
        assert_eq!(after(&known, &compared(Done, &[1, 2, 3], &[])), unknown);
    }
}
