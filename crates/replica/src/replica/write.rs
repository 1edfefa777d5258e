//! Writes: rounds of invalidation, acknowledgement and validation (R1 to R7, R15).

use crate::canary::{Canary, makes};
use crate::message::{Message, RoundId};
use crate::table::Entry;
use crate::{ApplyKind, Blocks, Payload, Slot, Slots, Standing, Timestamp};

use super::pending_acks::PendingAck;
use super::{Command, Outcome, Output, Replica, Unwritable};

/// After this many ticks an acknowledgement is overdue: 2 seconds. No working disk takes that long, and
/// initiators wait five seconds or more.
const OVERDUE_TICKS: u32 = 8;

/// The maximum number of validations that wait.
const VALIDATIONS_MAX: usize = 64;

/// A write on its way to all members, in this epoch.
#[derive(Debug)]
pub(super) struct Round {
    pub ts: Timestamp,
    pub blocks: Blocks,
    pub payload: Payload,
    /// The members that have not acknowledged it yet.
    pub waiting: Slots,
    /// The tick in which it began in this epoch.
    pub since: u32,
    /// The host's command that waits for it; none if this copy completes another coordinator's write (R7).
    pub command: Option<Command>,
}

impl Replica {
    /// Begins a host's write (R1). [`Output::Complete`] ends it.
    ///
    /// `clock` is the cluster's time in nanoseconds, as far as this node knows it: of two writes that do not
    /// know of each other, the one that began later gets the later place (G1). Nothing else depends on it.
    ///
    /// # Errors
    /// Why the write is refused; then nothing of it has happened.
    pub fn write(
        &mut self,
        command: Command,
        blocks: Blocks,
        payload: Payload,
        clock: u64,
    ) -> Result<(), Unwritable> {
        if self.failed.is_some() {
            return Err(Unwritable::Failed);
        }
        if !matches!(self.standing(), Standing::InSync(_)) {
            return Err(Unwritable::NotInSync);
        }
        self.clock = (self.clock + 1).max(clock);
        let ts = Timestamp { epoch: self.epoch(), counter: self.clock, slot: self.me };
        self.take(blocks, ts, &payload);
        self.begin(ts, blocks, payload, Some(command));
        Ok(())
    }

    /// Takes a write where it is newer than what this copy has, and brings that to the disk.
    fn take(&mut self, blocks: Blocks, ts: Timestamp, payload: &Payload) {
        let taken = self.table.write(blocks, ts, payload);
        let intents = match () {
            () if makes(Canary::NoIntent) => Slots::NONE,
            () if makes(Canary::CoordinatorIntent) && ts.slot != self.me => Slots::NONE,
            () => self.others(),
        };
        for part in &taken {
            let regions = self.geometry.regions_of(*part);
            for region in regions.clone() {
                self.warm.insert(region, self.ticks);
                self.note_dirtied(region);
            }
            self.map.mark(regions, intents);
            let payload = payload.part(blocks, *part, &self.geometry);
            let apply = self.media.submit(*part, payload, intents, ApplyKind::Write);
            self.table.applying(*part, apply);
        }
    }

    fn begin(&mut self, ts: Timestamp, blocks: Blocks, payload: Payload, command: Option<Command>) {
        let Some(config) = &self.config else { return };
        let members = config.members();
        let waiting =
            if makes(Canary::NoJoinerAck) { members.minus(config.joining()).with(self.me) } else { members };
        // Sent on their own, validations would wake the other nodes once more for each write.
        self.validate();
        self.last_round += 1;
        let round = RoundId(self.last_round);
        for slot in members.without(self.me).iter() {
            self.send(slot, Message::Invalidate { round, ts, blocks, payload: payload.clone() });
        }
        self.rounds.insert(round, Round { ts, blocks, payload, waiting, since: self.ticks, command });
        self.ack_when_written(blocks, ts, PendingAck::Own(round));
    }

    pub(super) fn handle_invalidate(
        &mut self,
        from: Slot,
        round: RoundId,
        ts: Timestamp,
        blocks: Blocks,
        payload: Payload,
    ) {
        if !matches!(self.standing(), Standing::InSync(_) | Standing::Joining(_)) {
            return;
        }
        if self.joiner.defers(ts) && !makes(Canary::OldWriteFresh) {
            self.joiner.defer(from, round, ts, blocks, payload);
            return;
        }
        if ts.epoch == self.epoch() {
            self.clock = self.clock.max(ts.counter);
        }
        self.take(blocks, ts, &payload);
        self.ack_when_written(blocks, ts, PendingAck::Peer(from, round));
        self.owe_regions();
    }

    /// Answers all hosts that the outcome of their writes is unknown. The writes are completed nevertheless.
    pub fn answer_unknown(&mut self) {
        for round in self.rounds.values_mut() {
            if let Some(command) = round.command.take() {
                self.outputs.push_back(Output::Complete(command, Outcome::Unknown));
            }
        }
    }

    /// The latest write that may still take effect from here without a host that waits for it.
    ///
    /// Such are the writes of lost coordinators (R7), and those that [`Replica::answer_unknown`] has
    /// answered.
    pub fn last_orphan(&self) -> Option<Timestamp> {
        let orphans = self.rounds.values().filter(|round| round.command.is_none() && self.failed.is_none());
        orphans.map(|round| round.ts).max()
    }

    /// Whether such a write is left up to that place in the order.
    pub fn has_orphans_until(&self, last: Timestamp) -> bool {
        self.failed.is_none() && self.rounds.values().any(|round| round.command.is_none() && round.ts <= last)
    }

    /// Members that have owed acknowledgements for too long (R20).
    ///
    /// This counts only writes that this copy's own disk has finished: if it hangs as well, the fault may be
    /// here.
    pub fn overdue(&self) -> Slots {
        if makes(Canary::NoOverdue) {
            return Slots::NONE;
        }
        let is_old = |round: &&Round| self.ticks.saturating_sub(round.since) > OVERDUE_TICKS;
        // Rounds began in the order of their numbers.
        let old = self.rounds.values().take_while(is_old).map(|round| round.waiting);
        old.filter(|waiting| !waiting.contains(self.me)).fold(Slots::NONE, Slots::or)
    }

    pub(super) fn handle_acknowledge(&mut self, from: Slot, round: RoundId) {
        let Some(state) = self.rounds.get_mut(&round) else { return };
        state.waiting = state.waiting.without(from);
        if !state.waiting.is_empty() {
            return;
        }
        let Round { ts, blocks, command, .. } = self.rounds.remove(&round).expect("just seen");
        // R5: every member of this epoch has it on its disk.
        self.table.settle(blocks, ts);
        self.validations.push((blocks, ts));
        if self.asked_validation || self.validations.len() == VALIDATIONS_MAX {
            self.validate();
            self.asked_validation &= !self.rounds.is_empty();
        }
        if let Some(command) = command {
            self.outputs.push_back(Output::Complete(command, Outcome::Done));
        }
    }

    /// Whether members have not been told yet of writes that are everywhere.
    ///
    /// [`Replica::validate`] tells them within [`super::VALIDATE_AFTER`], or the next write does.
    pub fn has_validations(&self) -> bool {
        !self.validations.is_empty()
    }

    /// Tells members which writes all of them have.
    pub fn validate(&mut self) {
        if !self.validations.is_empty() {
            let writes = std::mem::take(&mut self.validations);
            self.send_to_members(&Message::Validate { writes });
        }
    }

    /// Called when something waits for the blocks to be valid: where another copy's write makes them invalid,
    /// asks about it.
    pub fn ask_validation(&mut self, blocks: Blocks) {
        let is_told = |entry: &Entry| entry.is_valid() || entry.ts.slot == self.me;
        let all_told = self.table.within(blocks).all(|(_, entry)| is_told(entry));
        if !all_told {
            self.send_to_members(&Message::AskValidation);
        }
    }

    pub(super) fn handle_ask_validation(&mut self) {
        self.validate();
        self.asked_validation = !self.rounds.is_empty();
    }

    /// In a new epoch, sends again what is not known to be everywhere: own writes, and what others left here
    /// (R7).
    pub(super) fn replay(&mut self) {
        let own = std::mem::take(&mut self.rounds);
        for round in own.into_values().filter(|round| round.command.is_some()) {
            self.begin(round.ts, round.blocks, round.payload, round.command);
        }
        self.replay_invalid(u64::MAX);
    }

    /// Completes writes whose coordinator has not reported for a while that they are everywhere: the message
    /// may be lost, or the coordinator.
    pub(super) fn replay_orphans(&mut self) {
        self.replay_invalid(self.last_mark);
        self.last_mark = self.table.mark();
    }

    fn replay_invalid(&mut self, mark: u64) {
        let orphans: Vec<(Blocks, Timestamp, Payload)> = self
            .table
            .invalid_since_before(mark)
            .filter(|(blocks, ts, _)| {
                self.joiner.may_replay(*ts)
                    && !self.rounds.values().any(|round| round.ts == *ts && round.blocks.overlaps(*blocks))
            })
            .map(|(blocks, ts, payload)| (blocks, ts, payload.clone()))
            .collect();
        for (blocks, ts, payload) in orphans {
            self.begin(ts, blocks, payload, None);
        }
    }

    pub(super) fn send_rounds_again(&mut self, to: Slot) {
        let again: Vec<Message> = self
            .rounds
            .iter()
            .filter(|(_, state)| state.waiting.contains(to))
            .map(|(round, state)| Message::Invalidate {
                round: *round,
                ts: state.ts,
                blocks: state.blocks,
                payload: state.payload.clone(),
            })
            .collect();
        for message in again {
            self.send(to, message);
        }
    }

    /// Reports the timestamp below which this copy has nothing to finish (R15).
    pub(super) fn say_floor(&mut self) {
        let floor = self.own_floor();
        self.floors[self.me.index()] = Some(floor);
        if self.said_floor != Some(floor) {
            self.said_floor = Some(floor);
            self.send_to_members(&Message::Floor { floor });
        }
    }

    fn own_floor(&self) -> Timestamp {
        let unfinished = self.rounds.values().map(|round| round.ts).chain(self.table.oldest_invalid()).min();
        let next = Timestamp { counter: self.clock + 1, ..Timestamp::first_of(self.epoch()) };
        unfinished.unwrap_or(next)
    }

    /// The least floor of these copies; `None`: one of them has reported none in this epoch.
    pub(super) fn floor_of(&self, copies: Slots) -> Option<Timestamp> {
        copies.iter().map(|slot| self.floors[slot.index()]).min().flatten()
    }

    /// Whether all members know this copy's floor, this copy knows theirs, and it has forgotten what is below
    /// all of them.
    pub(super) fn has_settled_floors(&self, members: Slots) -> bool {
        let floor = self.floor_of(members);
        self.said_floor == Some(self.own_floor()) && floor.is_some() && self.table.floor() >= floor
    }
}
