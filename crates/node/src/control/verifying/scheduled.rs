//! Verifications by schedule. Any node with a copy in sync can run one; it first takes the cluster's turn.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use replica::{NodeId, Revision};
use store::VolumeKind;

use super::super::{Control, ControlError, Fault, FaultKind, Result};
use super::schedule::{Candidate, Quiet, next, pause};
use super::{Differing, VerificationState, Verifying};
use crate::copies::{
    CopyEntry, DIFFERING, DifferingEntry, NodeEntry, StandingEntry, VERIFICATION_TURN, VERIFY_EVERY_MIN,
    VerificationEntry, VerificationProgress, VerificationTurn, Verified, VolumeEntry, differing_key,
    node_key, verification_key,
};
use crate::data::VolumeId;
use crate::member::{ClusterError, Reconciler, json};
use crate::shard::Shard;

/// How often a node checks whether a verification is due.
const LOOK_EVERY: Duration = Duration::from_secs(20);
/// How often it searches all volumes although nothing seems to have changed.
const SEARCH_ANYWAY: Duration = Duration::from_secs(600);
/// How often progress is saved in the record. A restart repeats at most this much.
const SAVE_EVERY: Duration = Duration::from_secs(60);
/// How many times noting a result is tried while other changes of the same entry interfere.
const NOTE_TRIES_MAX: usize = 5;

/// A search through all volumes that has found none that is due. To read what the record says of a thousand
/// takes milliseconds.
struct Searched {
    began: Instant,
    /// What the result depends on, besides the time: the revision by which this node acts, and
    /// [`Reconciler::activations`].
    known: (Revision, u64),
    quiet: Quiet,
}

impl Searched {
    fn holds(&self, known: (Revision, u64), unix_now: u64) -> bool {
        self.known == known && self.quiet.has(unix_now) && rt::now().since(self.began) < SEARCH_ANYWAY
    }
}

/// The additional state of a verification that the schedule started.
pub(super) struct Scheduled {
    /// How many bytes earlier runs have compared.
    pub(super) from: u64,
    /// When it began, in seconds since 1970.
    began: u64,
    /// The kind of the volume.
    kind: VolumeKind,
    /// The revision of the turn that this node has taken.
    turn: cluster::Revision,
    saved_at: Cell<Instant>,
    /// Somebody has requested this verification meanwhile.
    pub(super) is_asked_for: Cell<bool>,
    /// It continues later, here or on another node.
    pub(super) is_interrupted: Cell<bool>,
}

impl Control {
    /// Verifies volumes when they are due, until the node stops.
    pub(in crate::control) async fn verify_by_schedule(self: Rc<Control>, reconciler: Rc<Reconciler>) {
        let mut searched = None;
        while !reconciler.until(LOOK_EVERY, || reconciler.is_stopping()).await {
            self.give_turn_back(&reconciler).await;
            if let Some(id) = self.due_volume(&reconciler, &mut searched).await {
                self.verify_in_turn(&reconciler, id).await;
            }
        }
    }

    /// The volume that is due, if this node can compare it and no other node is comparing.
    async fn due_volume(
        &self,
        reconciler: &Rc<Reconciler>,
        searched: &mut Option<Searched>,
    ) -> Option<VolumeId> {
        let every = reconciler.verify_every()?;
        if is_taken(reconciler) {
            return None;
        }
        // Read first: what changes during the search counts as changed after it.
        let (began, known) = (rt::now(), (reconciler.acts_by(), reconciler.activations()));
        let unix_now = || (Shard::current().config().unix_now)();
        if searched.as_ref().is_some_and(|searched| searched.holds(known, unix_now())) {
            return None;
        }
        let mut candidates = Vec::new();
        reconciler.for_each_entry(|entry| candidates.extend(self.candidate(reconciler, &entry))).await;
        let now = unix_now();
        let due = next(now, every, &candidates);
        let quiet = Quiet::of(now, every, &candidates);
        *searched = due.is_none().then_some(Searched { began, known, quiet });
        due
    }

    fn candidate(&self, reconciler: &Reconciler, entry: &VolumeEntry) -> Option<Candidate> {
        let id = VolumeId::parse(&entry.id)?;
        if self.verifications.of.borrow().get(&id).is_some_and(|verifying| verifying.is_running()) {
            return None;
        }
        let (_, info) = self.current_of(self.copies_of(id))?;
        if !is_fit(reconciler, entry, info.kind) {
            return None;
        }
        Some(Candidate { id, created: info.created, entry: reconciler.verification(id) })
    }

    /// Takes the turn, compares, and releases the turn.
    async fn verify_in_turn(self: &Rc<Control>, reconciler: &Rc<Reconciler>, id: VolumeId) {
        let turn = VerificationTurn {
            node: reconciler.me().0,
            life: reconciler.incarnation().0,
            volume: id.to_string(),
        };
        let taken = Reconciler::transaction()
            .expect(VERIFICATION_TURN, reconciler.revision_of(VERIFICATION_TURN))
            .put(VERIFICATION_TURN, json(&turn));
        if let Err(error) = reconciler.commit(taken).await {
            return tracing::debug!(%error, "another node is verifying copies, or the record does not respond");
        }
        let mine = reconciler.get::<VerificationTurn>(VERIFICATION_TURN).filter(|(found, _)| *found == turn);
        if let Some((_, revision)) = mine {
            match self.begin_by_schedule(reconciler, id, revision) {
                Ok(verifying) => Rc::clone(self).verify(Rc::clone(reconciler), id, verifying).await,
                Err(error) => tracing::debug!(%error, "copies due for verification could not be compared"),
            }
        }
        self.give_turn_back(reconciler).await;
    }

    /// Releases the turn if this node has it. The caller has no verification by schedule running.
    async fn give_turn_back(&self, reconciler: &Reconciler) {
        let Some((turn, revision)) = reconciler.get::<VerificationTurn>(VERIFICATION_TURN) else { return };
        if NodeId(turn.node) == reconciler.me() && turn.life == reconciler.incarnation().0 {
            let back =
                Reconciler::transaction().expect(VERIFICATION_TURN, Some(revision)).delete(VERIFICATION_TURN);
            if let Err(error) = reconciler.commit(back).await {
                tracing::debug!(%error, "the turn to verify copies was not released; retrying");
            }
        }
    }

    fn begin_by_schedule(
        &self,
        reconciler: &Rc<Reconciler>,
        id: VolumeId,
        turn: cluster::Revision,
    ) -> Result<Rc<Verifying>> {
        let now = (Shard::current().config().unix_now)();
        let volume = self.volume(&id.to_string())?;
        // Progress on a volume of another size does not count.
        let progress =
            reconciler.verification(id).progress.filter(|progress| progress.size == volume.info.capacity.0);
        let scheduled = Scheduled {
            kind: volume.info.kind,
            from: progress.as_ref().map_or(0, |progress| progress.done),
            began: progress.as_ref().map_or(now, |progress| progress.began),
            turn,
            saved_at: Cell::new(rt::now()),
            is_asked_for: Cell::new(false),
            is_interrupted: Cell::new(false),
        };
        let verifying = self.new_verification(reconciler, volume, Some(scheduled))?;
        if let Some(progress) = progress {
            let mut found = verifying.found.borrow_mut();
            (found.done, found.different, found.unchecked) =
                (progress.done, progress.different, progress.unchecked);
            found.nodes.retain(|node| progress.nodes.contains(node));
        }
        Ok(verifying)
    }

    /// Pauses after a part of `bytes` bytes that took `took`, to leave time to hosts; returns whether the
    /// verification may continue.
    pub(super) async fn may_continue(
        &self,
        reconciler: &Rc<Reconciler>,
        id: VolumeId,
        verifying: &Verifying,
        (took, bytes): (Duration, u64),
    ) -> bool {
        let Some(scheduled) = &verifying.scheduled else {
            // Half of the time is left to hosts.
            rt::sleep(took).await;
            return true;
        };
        rt::sleep(if scheduled.is_asked_for.get() { took } else { pause(took, bytes) }).await;
        let is_wanted = scheduled.is_asked_for.get() || reconciler.verify_every().is_some();
        let is_fit =
            reconciler.volume(id).is_some_and(|volume| is_fit(reconciler, &volume.entry, scheduled.kind));
        let mut continues = is_wanted && is_fit && !reconciler.is_stopping();
        if !continues || rt::now().since(scheduled.saved_at.get()) >= SAVE_EVERY {
            continues &= self.save_progress(reconciler, id, verifying, scheduled).await;
        }
        scheduled.is_interrupted.set(!continues);
        continues
    }

    /// Saves the progress; `false` if another node has the turn, or it is not known which one has.
    async fn save_progress(
        &self,
        reconciler: &Rc<Reconciler>,
        id: VolumeId,
        verifying: &Verifying,
        scheduled: &Scheduled,
    ) -> bool {
        let found = verifying.shown();
        let progress = VerificationProgress {
            began: scheduled.began,
            size: found.total,
            done: found.done,
            different: found.different,
            unchecked: found.unchecked,
            nodes: found.nodes,
        };
        scheduled.saved_at.set(rt::now());
        let entry = VerificationEntry { progress: Some(progress), ..reconciler.verification(id) };
        let transaction = note(reconciler, id, &entry, &verifying.differing())
            .expect(VERIFICATION_TURN, Some(scheduled.turn));
        reconciler.has(id) && reconciler.commit(transaction).await.is_ok()
    }

    /// Stores the result in the cluster's record: what differs, and when it ended, if everything was compared
    /// or the schedule had started it.
    pub(super) async fn remember(&self, reconciler: &Rc<Reconciler>, id: VolumeId, verifying: &Verifying) {
        let found = verifying.shown();
        let is_done = found.state == VerificationState::Done && found.unchecked == 0;
        // One that was stopped does not start again at once.
        let counts = is_done || verifying.scheduled.is_some();
        let last = counts.then(|| Verified {
            at: (Shard::current().config().unix_now)(),
            node: reconciler.me().0,
            stopped: found.state == VerificationState::Stopped,
            different: found.different,
            unchecked: found.unchecked,
        });
        for _ in 0..NOTE_TRIES_MAX {
            if !reconciler.has(id) {
                return;
            }
            let key = verification_key(id);
            let before = reconciler.revision_of(&key);
            let entry = match &last {
                Some(last) => VerificationEntry { last: Some(last.clone()), progress: None },
                None => reconciler.verification(id),
            };
            match reconciler.commit(note(reconciler, id, &entry, &verifying.differing())).await {
                Ok(()) => return verifying.is_remembered.set(true),
                Err(ClusterError::Conflict(_)) => {
                    reconciler.until_changed(LOOK_EVERY, &key, before).await;
                }
                Err(error) => {
                    return tracing::warn!(volume = %id, %error, "the result of a verify run could not be written to the record");
                }
            }
        }
    }

    /// The differences that the record remembers, by volume. A volume with only one copy left has none.
    pub(super) fn remembered_to_differ(&self) -> BTreeMap<VolumeId, DifferingEntry> {
        let Ok(reconciler) = self.reconciler() else { return BTreeMap::new() };
        let found = reconciler.list::<DifferingEntry>(DIFFERING).into_iter();
        let several =
            |id: VolumeId| reconciler.volume(id).is_some_and(|volume| volume.entry.copies.len() > 1);
        let known = found.filter_map(|entry| Some((VolumeId::parse(&entry.id)?, entry)));
        known.filter(|(id, _)| several(*id)).collect()
    }

    /// Volumes whose copies were found to differ.
    ///
    /// Only one node of the cluster reports each: the first node that is up and has a copy.
    pub(in crate::control) fn differing_copies(&self) -> Vec<Fault> {
        let Ok(reconciler) = self.reconciler() else { return Vec::new() };
        let fault = |(id, differing): (VolumeId, DifferingEntry)| {
            let entry = reconciler.volume(id)?.entry;
            let nodes = entry.copies.iter().map(|copy| NodeId(copy.node));
            let first = nodes.filter(|node| reconciler.hears(*node)).min();
            let DifferingEntry { bytes, nodes, .. } = differing;
            let kind = FaultKind::CopiesMismatch { id: id.to_string(), volume: entry.name, bytes, nodes };
            (first == Some(reconciler.me())).then(|| kind.into())
        };
        self.remembered_to_differ().into_iter().filter_map(fault).collect()
    }

    /// Sets how often volumes are verified by schedule; `None` for never.
    ///
    /// # Errors
    /// The interval is too short; errors of the record.
    pub async fn set_verify_every(&self, every: Option<Duration>) -> Result<()> {
        if every.is_some_and(|every| every < VERIFY_EVERY_MIN) {
            let reason = "the shortest interval is one hour";
            return Err(ControlError::Invalid { field: "seconds", reason });
        }
        Ok(self.reconciler()?.set_verify_every(every).await?)
    }

    /// How often volumes are verified by schedule; `None` for never.
    ///
    /// # Errors
    /// [`ControlError::ClusterFailed`].
    pub fn verify_every(&self) -> Result<Option<Duration>> {
        Ok(self.reconciler()?.verify_every())
    }
}

/// The transaction that stores the state of a volume's verification and what is known to differ.
fn note(
    reconciler: &Reconciler,
    id: VolumeId,
    entry: &VerificationEntry,
    differing: &Differing,
) -> cluster::Transaction {
    let (key, differs) = (verification_key(id), differing_key(id));
    let (revision, known) = (reconciler.revision_of(&key), reconciler.revision_of(&differs));
    let transaction = Reconciler::transaction().expect(&key, revision).put(&key, json(entry));
    let transaction = transaction.expect(&differs, known);
    match (differing.bytes, known) {
        (0, None) => transaction,
        (0, Some(_)) => transaction.delete(&differs),
        (bytes, _) => {
            let found = DifferingEntry { id: id.to_string(), bytes, nodes: differing.nodes.clone() };
            transaction.put(&differs, json(&found))
        }
    }
}

/// Whether another node that may be working has the turn.
fn is_taken(reconciler: &Reconciler) -> bool {
    let Some((turn, _)) = reconciler.get::<VerificationTurn>(VERIFICATION_TURN) else { return false };
    let node = NodeId(turn.node);
    let known = reconciler.get::<NodeEntry>(&node_key(node));
    let is_that_life = known.is_some_and(|(entry, _)| entry.incarnation == turn.life);
    // This node has released its own turn.
    node != reconciler.me() && is_that_life && reconciler.hears(node)
}

/// Whether this node can verify a volume: all copies are in sync, and none is being removed.
///
/// A single copy is verified only if each of its blocks has a checksum.
fn is_fit(reconciler: &Reconciler, entry: &VolumeEntry, kind: VolumeKind) -> bool {
    let in_sync = |copy: &CopyEntry| copy.standing == StandingEntry::InSync && copy.leaves.is_none();
    (entry.copies.len() > 1 || kind.has_checksums())
        && entry.copies.iter().all(in_sync)
        && entry.copy_on(reconciler.me()).is_some()
        && reconciler.fork_of(entry).is_none()
}
