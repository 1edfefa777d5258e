//! Sends a copy's messages to the other copies, in order.

use std::rc::Rc;

use replica::{Envelope, Message, Slot, wire};

use super::super::core::Copies;
use super::super::message::replication::SLICE;
use super::SliceCopy;

impl SliceCopy {
    /// Sends a message, in order.
    ///
    /// Acknowledgements are collected until the end of the core's turn: with many writes under way, each
    /// costs less then.
    pub(super) fn send(self: &Rc<Self>, slot: Slot, envelope: Envelope) {
        let Message::Acknowledge { rounds } = &envelope.message else {
            self.acknowledge_to(slot);
            return self.send_now(slot, &envelope);
        };
        let mut waiting = self.acknowledgements.borrow_mut();
        let is_first = waiting.iter().all(Option::is_none);
        match &mut waiting[slot.index()] {
            Some(Envelope { epoch, message: Message::Acknowledge { rounds: before }, .. })
                if *epoch == envelope.epoch =>
            {
                before.extend(rounds);
            }
            other => {
                if let Some(before) = other.replace(envelope) {
                    self.send_now(slot, &before);
                }
            }
        }
        if is_first {
            Copies::current().will_send(Rc::clone(self));
        }
    }

    /// Sends the collected acknowledgements, and the questions of this turn's reads.
    pub(in crate::copies) fn send_owed(self: &Rc<Self>) {
        Slot::all().for_each(|slot| self.acknowledge_to(slot));
        self.send_probes();
    }

    /// Drops the collected acknowledgements for a slot: they were for the other end of a link that has
    /// broken.
    pub(super) fn forget_acknowledgements(&self, slot: Slot) {
        self.acknowledgements.borrow_mut()[slot.index()] = None;
    }

    fn acknowledge_to(&self, slot: Slot) {
        let waiting = self.acknowledgements.borrow_mut()[slot.index()].take();
        if let Some(envelope) = waiting {
            self.send_now(slot, &envelope);
        }
    }

    fn send_now(&self, slot: Slot, envelope: &Envelope) {
        if let Some(node) = self.node_of(slot).filter(|_| !self.detached.get()) {
            let copies = Copies::current();
            if copies.reaches(node, self.address.slice) {
                copies.count(node, |traffic| traffic.count_sent(envelope));
                let (head, payload) = wire::encode(envelope);
                copies.send(node, SLICE, self.address, head, payload);
            }
        }
    }
}
