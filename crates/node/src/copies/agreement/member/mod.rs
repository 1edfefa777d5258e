//! A member's part in the agreement: what it tells, what it takes, and what it does before it says so (U7 to
//! U12).

use proto::scsi::{Abort, LuState, Notice};
use replica::{DiskFault, Epoch, Slot};

use super::super::SILENT_MAX;
use super::{Agreed, MemberReport, Offer, Version};
use crate::canary::{Canary, makes};

#[cfg(test)]
mod tests;

/// What a member's node is at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Here {
    /// The epoch that it acts in as a member; `None`: it does not, or its copy is not open or is held.
    pub epoch: Option<Epoch>,
    /// The state that is installed.
    pub state: LuState,
    /// Its pool has stored the part of the last state that must survive.
    pub stored: bool,
}

/// What became of [`Work::Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// It is on the disks.
    Done,
    /// The pool has not taken it, and no disk is to blame.
    Refused,
    /// A disk has failed.
    DiskFailed {
        /// No other copy is in sync.
        alone: bool,
    },
}

/// What the driver does for a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Store this in the pool; report the end with [`Member::handle_stored`], and each second before that
    /// with [`Member::handle_second`]. If [`Member::is_storing`] is false then, wait for it no longer.
    Store(Vec<u8>),
    /// Install this on all cores, notify the initiators, and abort the commands. Report the end, as that of
    /// all that follows, with [`Member::handle_done`].
    Install(Box<News>),
    /// Wait until all commands that have begun and may write have ended.
    AwaitWrites,
    /// Wait until no write that lost its host can take effect any more.
    AwaitOrphans,
    /// Make the slices of this copy give up their disk.
    GiveUpDisk(DiskFault),
    /// Answer the offer: whether this member has it.
    Answer(bool),
}

/// What takes effect on a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// The new state.
    pub state: LuState,
    /// The unit attentions that are raised.
    pub notices: Vec<Notice>,
    /// The commands that are aborted.
    pub abort: Abort,
}

/// What a node knows of the agreement on one unit, and the offer that it is taking.
///
/// The driver hands in one offer at a time, does what [`Member::poll`] returns, and reports back, until that
/// is the answer. It answers questions at any time, by [`Member::tell`].
#[derive(Debug)]
pub struct Member {
    slot: Slot,
    version: Version,
    notices: Vec<Notice>,
    abort: Abort,
    /// See [`Agreed`].
    contains: Vec<Version>,
    /// Whether the state here is what the members agreed on: a new member has to ask them first (U11).
    known: bool,
    /// The state before the change that is being installed. Others get this one until the installation is
    /// complete, since part of the new state is in effect already (U10).
    before: Option<Agreed>,
    taking: Option<Taking>,
    /// The pool here, which has the only copy in sync, did not store the last change (U12).
    unstored: bool,
    work: Option<Work>,
}

/// An offer that a member is taking.
#[derive(Debug)]
struct Taking {
    offer: Offer,
    /// What the member knew before.
    before: MemberReport,
    step: Step,
    /// For how many seconds it has been being stored.
    seconds: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// What must survive is being stored.
    Stores,
    /// The state takes effect, and commands are aborted.
    Installs,
    /// Commands that were admitted under an older state have not all ended.
    AwaitsWrites,
    /// The change is here; what lost nodes have left of the commands that it aborts has not ended.
    AwaitsOrphans,
    /// The pool does not store it, and others continue without this copy.
    GivesUp,
}

impl Member {
    /// A node that knows nothing yet, with the copy in this slot.
    pub fn new(slot: Slot) -> Member {
        Member {
            slot,
            version: Version::default(),
            notices: Vec::new(),
            abort: Abort::NONE,
            contains: Vec::new(),
            known: false,
            before: None,
            taking: None,
            unstored: false,
            work: None,
        }
    }

    /// Whether it knows what the members agreed on.
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// The epoch in which the last change was decided.
    pub fn decided_in(&self) -> Epoch {
        Epoch(self.version.epoch)
    }

    /// The version of the state that is installed; `None`: another one is being installed.
    pub fn installed(&self) -> Option<Version> {
        self.before.is_none().then_some(self.version)
    }

    /// Whether the pool is still to store something.
    pub fn is_storing(&self) -> bool {
        self.taking.as_ref().is_some_and(|taking| taking.step == Step::Stores)
    }

    /// Returns, and resets, whether the only copy in sync has failed to store a change.
    pub fn take_unstored(&mut self) -> bool {
        std::mem::take(&mut self.unstored)
    }

    /// What this node knows of the unit, if it is a member in this epoch (U7).
    pub fn tell(&self, here: &Here, epoch: Epoch) -> Option<MemberReport> {
        if here.epoch != Some(epoch) {
            return None;
        }
        let installed = || Agreed {
            version: self.version,
            state: here.state.clone(),
            notices: self.notices.clone(),
            abort: self.abort.clone(),
            contains: self.contains.clone(),
        };
        let agreed = self.before.clone().unwrap_or_else(installed);
        Some(MemberReport { agreed, known: self.known, stored: here.stored })
    }

    /// What to do next; `None`: that has to end first.
    pub fn poll(&mut self) -> Option<Work> {
        self.work.take()
    }

    /// The copy was opened. All copies of a new volume begin with the same state.
    pub fn handle_open(&mut self, is_new: bool) {
        self.known = is_new;
    }

    /// This node acts in another configuration. What a copy knew as a member earlier is outdated (U11).
    pub fn handle_membership(&mut self, is_member: bool) {
        self.known &= is_member;
    }

    /// This node acts in a configuration after another one. `kept`: it was a member all the time between them
    /// ([`replica::Activation::kept`]).
    ///
    /// If it learns of several at once, it may be a member in the first and the last one only.
    pub fn handle_activation(&mut self, kept: bool) {
        self.known &= kept;
    }

    /// A node, which may be this one, offers a change or the newest state.
    pub fn handle_offer(&mut self, here: &Here, offer: Offer) {
        let Some(before) = self.tell(here, offer.epoch) else { return self.answer(false) };
        let (ours, offered) = (before.agreed.version, offer.agreed.version);
        let unexpected = offer.expected.is_some_and(|expected| !before.known || expected != ours);
        if unexpected && !makes(Canary::InstallUnexpected) {
            return self.answer(false);
        }
        if before.known && offered < ours {
            // It was decided without the state here, or that one on top of it. The node that brings it will
            // find out (U8).
            return self.answer(makes(Canary::TakeOlder));
        }
        let is_here = before.known && offered == ours;
        let waits = offer.agreed.abort != Abort::NONE && !makes(Canary::OrphansOnce);
        let durable = offer.agreed.state.to_durable();
        let is_stored = durable == before.agreed.state.to_durable() && before.stored;
        self.taking = Some(Taking { offer, before, step: Step::Stores, seconds: 0 });
        if is_here && waits {
            self.go(Step::AwaitsOrphans, Work::AwaitOrphans);
        } else if is_here {
            self.answer(true);
        } else if is_stored || makes(Canary::NotStored) {
            self.install();
        } else {
            self.go(Step::Stores, Work::Store(durable));
        }
    }

    /// The pool has stored what it was to store, or has failed to.
    pub fn handle_stored(&mut self, stored: Stored) {
        if !self.is_storing() {
            return;
        }
        match stored {
            Stored::Done => self.install(),
            Stored::Refused => self.answer(false),
            Stored::DiskFailed { alone } => {
                self.unstored = alone;
                self.go(Step::GivesUp, Work::GiveUpDisk(DiskFault::Write));
            }
        }
    }

    /// The pool has been storing for another second. `last`: no other copy is in sync.
    ///
    /// If others are, they do not wait for a disk that hangs. Slots give up at different times: if something
    /// blocks all disks, one copy must stay in sync.
    pub fn handle_second(&mut self, last: bool) {
        let seconds_max = SILENT_MAX.as_secs() + self.slot.index() as u64;
        let Some(taking) = self.taking.as_mut().filter(|taking| taking.step == Step::Stores) else { return };
        taking.seconds += 1;
        if taking.seconds >= seconds_max && !last {
            self.go(Step::GivesUp, Work::GiveUpDisk(DiskFault::Silent));
        }
    }

    /// The last piece of work has ended, in this epoch that the node acts in as a member.
    pub fn handle_done(&mut self, epoch: Option<Epoch>) {
        let Some(taking) = &self.taking else { return };
        let (step, was_known) = (taking.step, taking.before.known);
        let is_member = epoch == Some(taking.offer.epoch);
        match step {
            Step::Stores => {}
            // Wait for what was admitted under older reservations, before the others continued without this
            // node or just when it learned of that.
            Step::Installs if !was_known && !makes(Canary::GoOnAfterLoss) => {
                self.go(Step::AwaitsWrites, Work::AwaitWrites);
            }
            Step::Installs | Step::AwaitsWrites => self.finish(is_member),
            // A copy that is no longer a member has forgotten what it waited for: other members may still
            // complete that.
            Step::AwaitsOrphans => self.answer(is_member),
            Step::GivesUp => self.answer(false),
        }
    }

    /// Puts the offered state into effect.
    fn install(&mut self) {
        let Some(Taking { offer, before, .. }) = &self.taking else { return };
        let Agreed { state, notices, abort, .. } = offer.agreed.clone();
        // A node that only learns of an old agreement has no news for initiators.
        let (notices, abort) = if before.known { (notices, abort) } else { (Vec::new(), Abort::NONE) };
        self.before = Some(before.agreed.clone());
        self.go(Step::Installs, Work::Install(Box::new(News { state, notices, abort })));
    }

    /// The offered state is in effect, even if the copy acts in another epoch by now. It gets its version, so
    /// that this node can report it and the members bring it to all or forget it.
    fn finish(&mut self, is_member: bool) {
        let Some(Taking { offer, .. }) = self.taking.take() else { return };
        self.before = None;
        if is_member || !makes(Canary::InstallUnnamed) {
            let Agreed { version, state: _, notices, abort, contains } = offer.agreed;
            (self.version, self.contains) = (version, contains);
            (self.notices, self.abort) = (notices, abort);
            self.known |= is_member;
        }
        self.answer(is_member);
    }

    fn go(&mut self, step: Step, work: Work) {
        if let Some(taking) = &mut self.taking {
            taking.step = step;
        }
        self.work = Some(work);
    }

    fn answer(&mut self, taken: bool) {
        self.taking = None;
        self.work = Some(Work::Answer(taken));
    }
}
