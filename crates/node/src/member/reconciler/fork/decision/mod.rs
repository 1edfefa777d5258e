//! What a node does about a fork, given what it sees. No I/O and no clock: the driver looks, carries out one
//! step, and reports what came of it. The rules F1 to F13 are in `docs/why/forks.md`.

use base::Instant;
use replica::Epoch;

use super::FORK_SILENCE;
use crate::canary::{Canary, makes};
use crate::copies::split_brain::ForkRecord;

#[cfg(test)]
mod tests;

/// What a node knows before it continues alone (F1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Grounds {
    /// The other node is the record's only voter, and the record has no quorum.
    pub(super) gone: bool,
    /// When anything at all was last heard from the other node.
    pub(super) heard: Instant,
    /// When this copy last had the other node's lease.
    pub(super) led: Option<Instant>,
    /// All slices of the copy here are open, and their disks work.
    pub(super) well: bool,
    /// This node has asked the record to take its own copy out of sync, and does not know whether it has.
    pub(super) may_have_left: bool,
}

impl Grounds {
    /// Whether the node may continue alone.
    pub(super) fn hold(&self, now: Instant) -> bool {
        // This copy had the other node's lease when that node fell silent: until then no copy had continued
        // without this one.
        let led = self.led.is_some_and(|led| led >= self.heard) || makes(Canary::ForkUnled);
        self.gone && led && is_silent(now, self.heard) && self.well && !self.may_have_left
    }
}

/// Whether the other node has been silent for long enough.
pub(super) fn is_silent(now: Instant, heard: Instant) -> bool {
    now.since(heard) >= FORK_SILENCE
}

/// A fork of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fork {
    record: ForkRecord,
    phase: Phase,
    /// Hosts may have been served in it, by an earlier life or by this one.
    acted: bool,
    /// It was acted in by an earlier life, or before the copy was closed: it is unknown what was served then.
    inherited: bool,
}

/// How far a fork has come, in this life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is being written to the node's record.
    Begun,
    /// Writing it failed, so a later life may find it or not. No life has acted in it, and this one does not.
    Void,
    /// The node acts in it, or is about to.
    Going,
    /// It is written down, and this life does not act in it.
    Dormant,
    /// The other node has continued, too: this node serves no hosts.
    Frozen,
    /// The record no longer has this copy: the node serves no hosts, and keeps the data until an
    /// administrator decides.
    Left,
}

/// What the record says about the fork as a split brain, as far as this node follows the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordedSplit {
    /// Nothing.
    Nothing,
    /// It is one, and an administrator has to decide.
    Undecided,
    /// The data of this node is kept.
    Keep(u16),
}

/// What a node sees of the record before it asks for the newest entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// The record has a quorum.
    pub(super) quorum: bool,
    /// It says that the fork is void.
    pub(super) void: bool,
    /// What it says about the fork as a split brain.
    pub(super) said: RecordedSplit,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Wait,
    /// Forget the fork: the record has it that no life has acted in it.
    ForgetVoid,
    /// Write that to the record.
    SayVoid,
    /// Continue alone again, if the other node is still silent.
    Resume,
    /// Ask the record for the volume's newest entry, and settle the fork by it.
    Settle,
}

/// What the newest entry of the record says about this copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Newest {
    /// The volume was deleted.
    Deleted {
        /// There is no data of it here, either.
        gone: bool,
    },
    /// The volume has no such copy.
    Removed,
    /// The copy is in sync in this epoch.
    InSync(Epoch),
    /// The copy is not in sync.
    Outside,
}

/// How a fork is settled, or what must come before that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The record has the outcome: forget the fork once this node acts by it (F9).
    End,
    /// Make this copy the only one in sync.
    Win,
    /// Discard what was written here, as an administrator has decided.
    GiveUp,
    /// Serve no host any more, then ask [`Fork::judge`].
    Freeze,
    /// Forget the fork: there is nothing to keep.
    Drop,
    /// The copy was removed by someone who did not know what was written to it: keep it, and let the record
    /// say that it is a split brain (F11).
    Leave,
    /// The volume was deleted by someone who did not know that: keep the data, without serving it.
    Outlive,
}

/// What becomes of a fork that serves no host any more, because the other node has continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// No host has seen anything of it: discard it.
    Unused,
    /// The record says that it is a split brain: write that to this node's own record, too.
    WriteSplit,
    /// Write to the record that it is a split brain.
    SaySplit,
}

impl Fork {
    /// One that is about to be written to this node's record (F2).
    pub(super) fn begun(record: ForkRecord) -> Fork {
        Fork { record, phase: Phase::Begun, acted: false, inherited: false }
    }

    /// One that was found in this node's record, or in the cluster's.
    pub(super) fn found(record: ForkRecord) -> Fork {
        Fork { record, phase: Phase::Dormant, acted: true, inherited: true }
    }

    /// As it is written to this node's record.
    pub(super) fn record(&self) -> &ForkRecord {
        &self.record
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether hosts may have been served in it by a life, or before a closing of the copy, of which nobody
    /// knows what it has served.
    pub(super) fn is_inherited(&self) -> bool {
        self.inherited
    }

    /// Whether the copy may act in a configuration of the record, in this epoch (F5).
    pub(super) fn allows(&self, epoch: Epoch, in_sync: bool) -> bool {
        epoch.0 > self.record.epoch && in_sync || makes(Canary::ForkFollowsRecord)
    }

    /// Whether this node has all that it has written alone at rest, so that the other one may stop (F10).
    pub(super) fn rests(&self, epoch: u64) -> bool {
        self.record.epoch == epoch && self.record.split && self.phase == Phase::Frozen
    }

    /// It could not be written to this node's record, or it is unknown whether it was (F3).
    pub(super) fn handle_unwritten(&mut self) {
        self.phase = Phase::Void;
    }

    /// It is in this node's record. `heard`: the other node was heard meanwhile; `named`: the record still
    /// has this copy in sync, as far as this node has followed it. Returns whether the node acts in it (F2).
    pub(super) fn handle_written(&mut self, heard: bool, named: bool) -> bool {
        let goes = (!heard || makes(Canary::ForkThoughHeard)) && named;
        if !goes {
            // The other node is back, or by the record it has continued without this copy. No host was served
            // here.
            self.phase = Phase::Dormant;
        }
        goes
    }

    /// This node acts in it from now on.
    pub(super) fn go(&mut self) {
        (self.phase, self.acted) = (Phase::Going, true);
    }

    /// The copy is closed: its slices know whether they have served hosts, and the next ones do not.
    pub(super) fn handle_closed(&mut self) {
        self.inherited |= self.acted;
    }

    /// This node serves no host any more.
    pub(super) fn freeze(&mut self) {
        self.phase = Phase::Frozen;
    }

    /// The record no longer has this copy.
    pub(super) fn leave(&mut self) {
        self.phase = Phase::Left;
    }

    /// This node's own record says that it is a split brain: no later life serves hosts in it.
    pub(super) fn handle_split_written(&mut self) {
        self.record.split = true;
    }

    /// What to do next.
    pub(super) fn look(&self, look: Look) -> Step {
        match self.phase {
            Phase::Begun => Step::Wait,
            _ if look.void => Step::ForgetVoid,
            Phase::Void if look.quorum => Step::SayVoid,
            Phase::Void => Step::Wait,
            Phase::Dormant if !look.quorum && !self.record.split => Step::Resume,
            _ if !look.quorum || self.awaits_decision(look.said) => Step::Wait,
            _ => Step::Settle,
        }
    }

    /// Whether the fork is a split, and no administrator has decided on it yet.
    fn awaits_decision(&self, said: RecordedSplit) -> bool {
        let rests = self.phase == Phase::Left || self.phase == Phase::Frozen && self.record.split;
        rests && said == RecordedSplit::Undecided
    }

    /// How the fork is settled by the newest entry of the record (F7).
    pub(super) fn settle(&self, newest: Newest, said: RecordedSplit) -> Verdict {
        let is_decided = matches!(said, RecordedSplit::Keep(_)) && self.record.split;
        match newest {
            Newest::Deleted { gone } if !self.acted || gone => Verdict::Drop,
            Newest::Deleted { .. } => Verdict::Outlive,
            Newest::Removed if !self.acted || is_decided => Verdict::Drop,
            Newest::Removed => Verdict::Leave,
            Newest::InSync(epoch) if epoch.0 > self.record.epoch => Verdict::End,
            Newest::InSync(_) => Verdict::Win,
            // A decision made while hosts may still have been served here does not cover what they have
            // written since (F10).
            Newest::Outside if said == RecordedSplit::Keep(self.record.without) => {
                let covers = self.record.split || makes(Canary::ForkWordEarly);
                if covers { Verdict::GiveUp } else { Verdict::Freeze }
            }
            Newest::Outside => Verdict::Freeze,
        }
    }

    /// What becomes of it, now that it serves no host any more. `served`: a host was served in this life;
    /// `decided_in`: the epoch of the last change of reservations here (F8).
    pub(super) fn judge(&self, served: bool, decided_in: Epoch, said: RecordedSplit) -> Judgement {
        let used = self.inherited || self.acted && (served || decided_in.0 >= self.record.epoch);
        if !used || makes(Canary::ForkUnused) {
            return Judgement::Unused;
        }
        match said {
            RecordedSplit::Undecided => Judgement::WriteSplit,
            RecordedSplit::Nothing | RecordedSplit::Keep(_) => Judgement::SaySplit,
        }
    }
}
