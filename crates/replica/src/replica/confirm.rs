//! Reads that every other member has confirmed (R24).
//!
//! A lease counts on this node's clock. On nodes whose clocks may stop, a read is answered only when each
//! other member has said, after the read arrived, that it still acts in this epoch: then no node had
//! continued without this copy by then, whatever the clocks did. Reads that arrive while such a question is
//! under way share the next one.

use super::Replica;
use crate::canary::{Canary, makes};
use crate::message::{Message, ProbeId};
use crate::{Epoch, Slot, Standing};

/// What a read waits for: answers to this question, or a later one, in this epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmation {
    epoch: Epoch,
    probe: ProbeId,
}

/// The state of a [`Confirmation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmed {
    /// All other members have answered.
    Yes,
    /// Some members have not answered yet.
    NotYet,
    /// The epoch is over: the read must be repeated.
    Void,
}

/// The questions to the other members.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// The question that new reads wait for: the last one that was sent, or the next.
    wanted: ProbeId,
    /// The last question that was sent to any member.
    sent: ProbeId,
    members: [Member; Slot::MAX],
}

#[derive(Clone, Copy, Debug, Default)]
struct Member {
    /// The last question to this member in this epoch and over this link.
    sent: ProbeId,
    answered: ProbeId,
}

impl Replica {
    /// Whether reads here need the confirmation of other members.
    pub fn has_other_members(&self) -> bool {
        self.config.as_ref().is_some_and(|config| !config.members().without(self.me).is_empty())
    }

    /// A read has arrived.
    ///
    /// The question that it waits for is sent by [`Replica::send_probes`], which the driver calls when no
    /// more reads arrive in the same moment.
    pub fn ask_confirmation(&mut self) -> Confirmation {
        // Answers to earlier questions do not count for a read that arrives now.
        self.probes.wanted = self.probes.wanted.max(ProbeId(self.probes.sent.0 + 1));
        Confirmation { epoch: self.epoch(), probe: self.probes.wanted }
    }

    /// The state of what a read waits for.
    pub fn confirmation(&self, of: Confirmation) -> Confirmed {
        let Some(config) = self.config.as_ref().filter(|config| config.epoch == of.epoch) else {
            return Confirmed::Void;
        };
        if !matches!(self.standing(), Standing::InSync(_)) {
            return Confirmed::Void;
        }
        let answered = |slot: Slot| self.probes.members[slot.index()].answered >= of.probe;
        let all = config.members().without(self.me).iter().all(answered);
        if all || makes(Canary::Unconfirmed) { Confirmed::Yes } else { Confirmed::NotYet }
    }

    /// Sends members the question that reads wait for, except those that have not answered the last one yet.
    pub fn send_probes(&mut self) {
        let Some(config) = &self.config else { return };
        for slot in config.members().without(self.me).iter() {
            self.send_probe(slot);
        }
    }

    fn send_probe(&mut self, to: Slot) {
        let wanted = self.probes.wanted;
        let member = &mut self.probes.members[to.index()];
        if member.answered < member.sent || member.answered >= wanted {
            return;
        }
        member.sent = wanted;
        self.probes.sent = self.probes.sent.max(wanted);
        self.send(to, Message::ConfirmReads { probe: wanted });
    }

    /// In a new epoch: voids what reads have waited for.
    pub(super) fn void_confirmations(&mut self) {
        self.probes.members = Default::default();
        let last = self.probes.sent.max(self.probes.wanted);
        (self.probes.wanted, self.probes.sent) = (last, last);
        for member in &mut self.probes.members {
            (member.sent, member.answered) = (last, last);
        }
    }

    /// Asks the member again: it did not take the question, or what was on its way is lost.
    pub(super) fn probe_again(&mut self, to: Slot) {
        let member = &mut self.probes.members[to.index()];
        member.sent = member.answered;
        if self.config.as_ref().is_some_and(|config| config.members().without(self.me).contains(to)) {
            self.send_probe(to);
        }
    }

    /// A member asks. The epoch of the answer is what it wants to know.
    pub(super) fn handle_confirm_reads(&mut self, from: Slot, probe: ProbeId) {
        self.send(from, Message::ReadsConfirmed { probe });
    }

    pub(super) fn handle_reads_confirmed(&mut self, from: Slot, probe: ProbeId) {
        let member = &mut self.probes.members[from.index()];
        if probe <= member.sent {
            member.answered = member.answered.max(probe);
        }
        self.send_probe(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Envelope;
    use crate::{Activation, Config, DirtyMap, Geometry, Incarnation, NodeId, Output, Revision};

    const GEOMETRY: Geometry = Geometry { blocks: 8, block_bytes: 8, region_blocks: 4 };
    const LIFE: Incarnation = Incarnation(1);

    fn slot(index: usize) -> Slot {
        Slot::new(index).unwrap()
    }

    fn config() -> Config {
        Config::initial(&[(NodeId(1), LIFE), (NodeId(2), LIFE), (NodeId(3), LIFE)], Revision(1))
    }

    fn replica(me: usize, config: &Config) -> Replica {
        let mut replica = Replica::new(slot(me), LIFE, GEOMETRY, DirtyMap::new(GEOMETRY.regions()));
        replica.activate(Activation { config: config.clone(), kept: false });
        while replica.poll().is_some() {}
        replica
    }

    /// The slots to which it sends questions, and the numbers of these.
    fn asked(replica: &mut Replica) -> Vec<(usize, u64)> {
        let mut asked = Vec::new();
        while let Some(output) = replica.poll() {
            if let Output::Send(to, Envelope { message: Message::ConfirmReads { probe }, .. }) = output {
                asked.push((to.index(), probe.0));
            }
        }
        asked
    }

    fn answer(replica: &mut Replica, from: usize, epoch: u64, probe: u64) {
        let message = Message::ReadsConfirmed { probe: ProbeId(probe) };
        replica.handle_message(slot(from), Envelope { epoch: Epoch(epoch), incarnation: LIFE, message });
    }

    #[test]
    fn a_read_waits_for_answers_to_what_was_asked_after_it_came() {
        let mut me = replica(0, &config());
        let first = me.ask_confirmation();
        assert_eq!(asked(&mut me), [], "others may come in the same moment");
        assert_eq!(me.ask_confirmation(), first);
        me.send_probes();
        assert_eq!(asked(&mut me), [(1, 1), (2, 1)]);
        let second = me.ask_confirmation();
        me.send_probes();
        assert_eq!(asked(&mut me), [], "one question at a time");
        answer(&mut me, 1, 1, 1);
        assert_eq!(asked(&mut me), [(1, 2)]);
        assert_eq!(me.confirmation(first), Confirmed::NotYet, "slot 2 has said nothing");
        answer(&mut me, 2, 1, 1);
        assert_eq!((me.confirmation(first), me.confirmation(second)), (Confirmed::Yes, Confirmed::NotYet));
        answer(&mut me, 1, 1, 2);
        answer(&mut me, 2, 1, 2);
        assert_eq!(me.confirmation(second), Confirmed::Yes);
        assert_eq!(asked(&mut me), [(2, 2)]);
    }

    #[test]
    fn answers_of_other_epochs_and_other_lives_count_for_nothing() {
        let mut me = replica(0, &config());
        let read = me.ask_confirmation();
        me.send_probes();
        answer(&mut me, 1, 1, 1);
        answer(&mut me, 2, 2, 1);
        let message = Message::ReadsConfirmed { probe: ProbeId(1) };
        me.handle_message(slot(2), Envelope { epoch: Epoch(1), incarnation: Incarnation(2), message });
        answer(&mut me, 2, 1, 7);
        assert_eq!(me.confirmation(read), Confirmed::NotYet);
        answer(&mut me, 2, 1, 1);
        assert_eq!(me.confirmation(read), Confirmed::Yes);
        me.activate(Activation { config: config().remove(slot(2)).unwrap(), kept: true });
        assert_eq!(me.confirmation(read), Confirmed::Void);
        let _ = asked(&mut me);
        let next = me.ask_confirmation();
        me.send_probes();
        assert_eq!(asked(&mut me), [(1, 2)]);
        answer(&mut me, 1, 1, 2);
        assert_eq!(me.confirmation(next), Confirmed::NotYet, "it has not heard of the removal");
        answer(&mut me, 1, 2, 2);
        assert_eq!(me.confirmation(next), Confirmed::Yes);
    }

    #[test]
    fn requests_lost_with_a_link_are_repeated() {
        let pair = config().remove(slot(2)).unwrap();
        let mut me = replica(0, &pair);
        let read = me.ask_confirmation();
        me.send_probes();
        assert_eq!(asked(&mut me), [(1, 1)]);
        let later = me.ask_confirmation();
        me.handle_link_down(slot(1));
        me.handle_link_up(slot(1));
        assert_eq!(asked(&mut me), [(1, 2)]);
        answer(&mut me, 1, 2, 2);
        assert_eq!((me.confirmation(read), me.confirmation(later)), (Confirmed::Yes, Confirmed::Yes));
        let Standing::InSync(_) = me.standing() else { panic!("it is in sync") };
    }

    #[test]
    fn only_members_of_the_epoch_answer_even_with_a_failed_disk() {
        let ask = |other: &mut Replica, epoch: u64| {
            let message = Message::ConfirmReads { probe: ProbeId(5) };
            other.handle_message(slot(0), Envelope { epoch: Epoch(epoch), incarnation: LIFE, message });
            std::iter::from_fn(|| other.poll())
                .filter(|output| {
                    matches!(
                        output,
                        Output::Send(_, Envelope { message: Message::ReadsConfirmed { .. }, .. })
                    )
                })
                .count()
        };
        let mut other = replica(1, &config());
        assert_eq!((ask(&mut other, 1), ask(&mut other, 2)), (1, 0));
        other.fail(crate::DiskFault::Write);
        assert_eq!(ask(&mut other, 1), 1);
        other.activate(Activation { config: config().remove(slot(0)).unwrap(), kept: true });
        assert_eq!(ask(&mut other, 1), 0, "it has gone on without the one who asks");
    }

    #[test]
    fn a_sole_member_asks_nobody() {
        let alone = config().remove(slot(1)).unwrap().remove(slot(2)).unwrap();
        let mut me = replica(0, &alone);
        assert!(!me.has_other_members());
        let read = me.ask_confirmation();
        me.send_probes();
        assert_eq!((me.confirmation(read), asked(&mut me)), (Confirmed::Yes, Vec::new()));
    }
}
