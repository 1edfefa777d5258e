//! Ranges that one command locks on all nodes: COMPARE AND WRITE and ORWRITE read and then write in one step.
//! No I/O and no clock: messages, configurations, completed work and time go in; messages, work and outcomes
//! come out.
//!
//! The command locks the range on every member of its epoch, its own node included, in the order of slots, so
//! that two commands cannot wait for each other. A member gives the range when no host's write through it is
//! under way there, when it knows of nothing there that it would complete should a coordinator be lost, and
//! when nothing through it begins until the range is given back. A lock holds only in its epoch, so the
//! command's write must begin in that same epoch: whatever begins elsewhere in a later epoch comes after it.
//!
//! No message is repeated. After a link broke, the taker says what it holds, and the other side releases
//! everything else that it had given to the taker.
//!
//! The driver is `slice/locking.rs`. The rules L1 to L11 and the reasons for them are in `docs/why/locks.md`;
//! rule names in comments refer to that page.

mod message;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use base::Instant;
use replica::{Config, Epoch, Incarnation, NodeId, Slot, Slots};

pub use self::message::LockMessage;
use crate::canary::{Canary, makes};

/// What the driver does.
///
/// A *claim* is a place in the order of hosts' commands on this node. Each has a number of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Send this to the copy on that node.
    Say(NodeId, LockMessage),
    /// Queue this claim to the range; report with [`Locks::handle_come`] when all older operations there have
    /// ended.
    Queue(u64, Range<u64>),
    /// Report with [`Locks::handle_settled`] when this copy has finished all that it has to finish in the
    /// range now; if [`Locks::awaits_settled`] is false before that, wait for it no longer.
    Settle {
        /// The claim to the range.
        claim: u64,
        /// The range.
        range: Range<u64>,
        /// Whether to ask first whether the writes there are done.
        asks: bool,
    },
    /// End this claim.
    Leave(u64),
}

/// How far a command of this node has come with its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Members have not given it yet. Look again when something has happened, and at this time at the latest.
    Waits(Instant),
    /// All members have given it.
    Holds,
    /// It cannot be had in this epoch: try again.
    Refused,
    /// It took too long.
    Late,
}

/// The copy on this node, as a message finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Here {
    /// The length of the slice in bytes.
    pub len: u64,
    /// The size of a logical block in bytes.
    pub block_bytes: u64,
    /// The copy is detached from the others: its node may be about to continue alone.
    pub detached: bool,
}

impl Here {
    /// Whether the range consists of whole blocks of the slice.
    fn has(&self, range: &Range<u64>) -> bool {
        let is_whole = |offset: u64| offset.is_multiple_of(self.block_bytes);
        range.end <= self.len && is_whole(range.start) && is_whole(range.end)
    }
}

/// The ranges that a slice's copy has given to commands of other nodes, and those of its own commands.
///
/// The driver does what [`Locks::poll`] returns after each call.
#[derive(Debug)]
pub struct Locks {
    me: Slot,
    config: Option<Config>,
    /// The copy has left: no range is given or taken any more.
    left: bool,
    /// By the node that has it, and its number there. All are of this epoch (L8).
    given: BTreeMap<(NodeId, u64), PeerRange>,
    /// By number, which is also the number of the claim on this node.
    own: BTreeMap<u64, Own>,
    /// The last number of a claim.
    last: u64,
    works: VecDeque<Work>,
}

/// A range that a command of another node has here, or waits for.
#[derive(Debug)]
struct PeerRange {
    claim: u64,
    range: Range<u64>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Older operations of hosts are under way in the range.
    Queued,
    /// This copy may have something to finish there.
    Unsettled,
    /// The other node has been informed that it has the range.
    Given,
}

/// A range that a command of this node has locked, or is locking.
#[derive(Debug)]
struct Own {
    epoch: Epoch,
    range: Range<u64>,
    /// When the command gives up.
    until: Instant,
    state: State,
    /// The members that are still to be asked.
    rest: Slots,
    /// The member that has not answered yet.
    waits_for: Option<Slot>,
    /// The other members that were asked.
    asked: Slots,
    /// Those of them that have given it.
    taken: Slots,
    /// There is a claim on this node.
    queued: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Members are being asked.
    Asks,
    /// It cannot be had in this epoch.
    Refused,
    /// All members have given it.
    Holds,
    /// The command has ended, and its write may still be under way.
    Ends,
}

impl Locks {
    /// A copy in this slot that knows no configuration yet.
    ///
    /// All numbers of claims that this life of the node has used for the slice are less than `first_number`:
    /// answers to a copy that was closed may still be on their way.
    pub fn new(me: Slot, first_number: u64) -> Locks {
        Locks {
            me,
            config: None,
            left: false,
            given: BTreeMap::new(),
            own: BTreeMap::new(),
            last: first_number,
            works: VecDeque::new(),
        }
    }

    /// The next thing to do, if there is one.
    pub fn poll(&mut self) -> Option<Work> {
        self.works.pop_front()
    }

    /// Whether a command holds the range on all nodes, in the epoch that this copy acts in (L2).
    pub fn holds(&self, range: &Range<u64>) -> bool {
        self.own.values().any(|own| {
            let covers = own.range.start <= range.start && range.end <= own.range.end;
            own.state == State::Holds && self.acts_in(own.epoch) && covers
        })
    }

    /// How far the command with this number has come.
    pub fn look(&self, number: u64, now: Instant) -> Look {
        match self.own.get(&number).map(|own| (own.state, own.until)) {
            Some((State::Asks, until)) if now < until => Look::Waits(until),
            Some((State::Asks, _)) => Look::Late,
            Some((State::Holds, _)) => Look::Holds,
            Some((State::Refused | State::Ends, _)) | None => Look::Refused,
        }
    }

    /// Whether something still waits until this copy has nothing to finish in the range of this claim.
    pub fn awaits_settled(&self, claim: u64) -> bool {
        self.own.get(&claim).is_some_and(|own| own.state == State::Ends)
            || self.given.values().any(|given| given.claim == claim && given.stage == Stage::Unsettled)
    }

    /// Whether no range is locked, or about to be.
    #[cfg(test)]
    fn is_idle(&self) -> bool {
        self.given.is_empty() && self.own.is_empty()
    }

    /// The copy acts in this configuration from now on.
    ///
    /// What was locked in an earlier epoch is released by that (L8).
    pub fn enter(&mut self, config: Config) {
        let before = self.epoch();
        self.config = Some(config);
        if self.epoch() == before {
            return;
        }
        self.release_given();
        self.refuse_attempts();
        self.release_ended();
    }

    /// The copy leaves: no command writes here any more, and no other node will say that it needs a range no
    /// longer (L11).
    pub fn leave(&mut self) {
        self.left = true;
        self.release_given();
        self.refuse_attempts();
        self.release_ended();
        for (number, own) in &mut self.own {
            if std::mem::take(&mut own.queued) {
                self.works.push_back(Work::Leave(*number));
            }
        }
    }

    /// A command of this node wants the range: asks the first member. Returns the command's number, which
    /// [`Locks::end`] must get; `None`: this copy acts in no epoch.
    ///
    /// The copy must serve. The command gives up at `until`.
    pub fn begin(&mut self, range: Range<u64>, until: Instant) -> Option<u64> {
        let config = self.config.as_ref().filter(|_| !self.left)?;
        let (epoch, rest) = (config.epoch, config.members());
        let number = self.next_claim();
        let own = Own {
            epoch,
            range,
            until,
            state: State::Asks,
            rest,
            waits_for: None,
            asked: Slots::NONE,
            taken: Slots::NONE,
            queued: false,
        };
        self.own.insert(number, own);
        self.ask_next(number);
        Some(number)
    }

    /// The command needs its range no longer.
    ///
    /// Its write may still be under way, if its initiator was told that the outcome is unknown (L4).
    pub fn end(&mut self, number: u64) {
        let Some(own) = self.own.get(&number) else { return };
        let (holds, epoch, range) = (own.state == State::Holds, own.epoch, own.range.clone());
        if holds && self.acts_in(epoch) && !makes(Canary::ReleaseUnsettled) {
            self.set_state(number, State::Ends);
            self.works.push_back(Work::Settle { claim: number, range, asks: false });
        } else {
            self.release(number);
        }
    }

    /// All operations that are older than the claim have ended.
    pub fn handle_come(&mut self, claim: u64) {
        if let Some(own) = self.own.get_mut(&claim) {
            if own.waits_for == Some(self.me) {
                own.waits_for = None;
                self.ask_next(claim);
            }
            return;
        }
        let mut queued = self.given.values_mut().filter(|given| given.stage == Stage::Queued);
        let Some(given) = queued.find(|given| given.claim == claim) else { return };
        given.stage = Stage::Unsettled;
        let range = given.range.clone();
        if makes(Canary::GiveUnsettled) {
            return self.handle_settled(claim);
        }
        self.works.push_back(Work::Settle { claim, range, asks: true });
    }

    /// This copy has nothing to finish in the range of the claim.
    pub fn handle_settled(&mut self, claim: u64) {
        if !self.awaits_settled(claim) {
            return;
        }
        if self.own.contains_key(&claim) {
            return self.release(claim);
        }
        let mut given = self.given.iter_mut();
        let Some(((to, number), given)) = given.find(|(_, given)| given.claim == claim) else { return };
        given.stage = Stage::Given;
        self.works.push_back(Work::Say(*to, LockMessage::Taken(*number)));
    }

    /// The link to a node is up again: says which ranges this node holds there.
    ///
    /// What that node was asked before may have been lost, so what it has not answered counts as refused
    /// (L3).
    pub fn handle_link_up(&mut self, node: NodeId) {
        let Some(slot) = self.slot_of(node) else { return };
        let Some(epoch) = self.epoch() else { return };
        let mut numbers = Vec::new();
        for (number, own) in &mut self.own {
            if own.taken.contains(slot) && own.epoch == epoch {
                numbers.push(*number);
            } else if own.asked.contains(slot) && own.state == State::Asks {
                own.state = State::Refused;
            }
        }
        self.works.push_back(Work::Say(node, LockMessage::Holds { epoch, numbers }));
    }

    /// Handles a message from node `from` in its life `life`.
    pub fn handle_message(&mut self, from: NodeId, life: Incarnation, here: Here, message: LockMessage) {
        let Some(slot) = self.slot_of(from) else { return };
        let is_member = self.config.as_ref().is_some_and(|config| config.has_member(slot, life));
        match message {
            LockMessage::Release(number) if is_member => {
                if let Some(given) = self.given.remove(&(from, number)) {
                    self.works.push_back(Work::Leave(given.claim));
                }
            }
            // What an earlier life of that node held, or an earlier copy in its life, is released by the next
            // epoch (L9).
            LockMessage::Holds { epoch, numbers } if is_member || makes(Canary::HoldsOfAnyLife) => {
                if self.acts_in(epoch) || makes(Canary::HoldsOfAnyEpoch) {
                    self.release_if(|(node, number)| *node == from && !numbers.contains(number));
                }
            }
            // Commands that wait for an answer give up in the end (L10).
            _ if here.detached => {}
            LockMessage::Take { number, .. } if !is_member => self.refuse(from, number),
            _ if !is_member => {}
            LockMessage::Take { number, epoch, range } => self.give((from, number), epoch, range, here),
            LockMessage::Taken(number) => self.handle_taken(slot, number),
            LockMessage::Refused(number) => {
                if self.own.get(&number).is_some_and(|own| own.state == State::Asks) {
                    self.set_state(number, State::Refused);
                }
            }
            LockMessage::Release(_) | LockMessage::Holds { .. } => {}
        }
    }

    /// Asks the next member for the range (L1), unless all have given it.
    fn ask_next(&mut self, number: u64) {
        let Some(own) = self.own.get_mut(&number).filter(|own| own.state == State::Asks) else { return };
        while let Some(slot) = own.rest.iter().next() {
            own.rest = own.rest.without(slot);
            if slot == self.me {
                (own.queued, own.waits_for) = (true, Some(slot));
                return self.works.push_back(Work::Queue(number, own.range.clone()));
            }
            if makes(Canary::LockHere) {
                continue;
            }
            let Some(copy) = self.config.as_ref().and_then(|config| config.copy(slot)) else { continue };
            own.asked = own.asked.with(slot);
            own.waits_for = Some(slot);
            let take = LockMessage::Take { number, epoch: own.epoch, range: own.range.clone() };
            self.works.push_back(Work::Say(copy.node, take));
            return;
        }
        own.state = State::Holds;
    }

    fn handle_taken(&mut self, slot: Slot, number: u64) {
        let Some(own) = self.own.get_mut(&number).filter(|own| own.asked.contains(slot)) else { return };
        own.taken = own.taken.with(slot);
        if own.waits_for == Some(slot) {
            own.waits_for = None;
            self.ask_next(number);
        }
    }

    /// Gives the range to a command of another node, once it is free and settled (L7).
    fn give(&mut self, to: (NodeId, u64), epoch: Epoch, range: Range<u64>, here: Here) {
        if !self.acts_in(epoch) || !here.has(&range) {
            return self.refuse(to.0, to.1);
        }
        let claim = self.next_claim();
        let given = PeerRange { claim, range: range.clone(), stage: Stage::Queued };
        if let Some(former) = self.given.insert(to, given) {
            self.works.push_back(Work::Leave(former.claim));
        }
        self.works.push_back(Work::Queue(claim, range));
    }

    fn refuse(&mut self, to: NodeId, number: u64) {
        self.works.push_back(Work::Say(to, LockMessage::Refused(number)));
    }

    fn release_given(&mut self) {
        self.release_if(|_| true);
    }

    fn release_if(&mut self, is_over: impl Fn(&(NodeId, u64)) -> bool) {
        let works = &mut self.works;
        self.given.retain(|to, given| {
            let over = is_over(to);
            if over {
                works.push_back(Work::Leave(given.claim));
            }
            !over
        });
    }

    /// Ends all attempts to lock a range: they cannot succeed any more (L3).
    fn refuse_attempts(&mut self) {
        for own in self.own.values_mut().filter(|own| own.state == State::Asks) {
            own.state = State::Refused;
        }
    }

    /// Drops the ranges of commands that have ended: their epoch is over.
    fn release_ended(&mut self) {
        let ended = self.own.iter().filter(|(_, own)| own.state == State::Ends);
        let ended: Vec<u64> = ended.map(|(number, _)| *number).collect();
        ended.into_iter().for_each(|number| self.release(number));
    }

    fn release(&mut self, number: u64) {
        let Some(own) = self.own.remove(&number) else { return };
        if own.queued {
            self.works.push_back(Work::Leave(number));
        }
        // A member that still acts in that epoch must keep the range: the command's write may be under way in
        // it (L4).
        let held = matches!(own.state, State::Holds | State::Ends);
        let is_over = held && !self.acts_in(own.epoch) && !makes(Canary::ReleaseAfterEpoch);
        if self.left || is_over {
            return;
        }
        for slot in own.asked.iter() {
            if let Some(copy) = self.config.as_ref().and_then(|config| config.copy(slot)) {
                self.works.push_back(Work::Say(copy.node, LockMessage::Release(number)));
            }
        }
    }

    fn set_state(&mut self, number: u64, state: State) {
        if let Some(own) = self.own.get_mut(&number) {
            own.state = state;
        }
    }

    fn next_claim(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn epoch(&self) -> Option<Epoch> {
        self.config.as_ref().map(|config| config.epoch)
    }

    fn acts_in(&self, epoch: Epoch) -> bool {
        !self.left && self.epoch() == Some(epoch)
    }

    fn slot_of(&self, node: NodeId) -> Option<Slot> {
        self.config.as_ref()?.slot_of(node)
    }
}
