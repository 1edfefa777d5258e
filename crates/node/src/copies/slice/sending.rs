//! What a copy says to the others, in order.

use std::rc::Rc;

use replica::{Envelope, Message, Slot, wire};

use super::super::core::{Copies, SLICE};
use super::SliceCopy;

impl SliceCopy {
    /// Sends in order. Acknowledgements wait for others to the end of the core's turn: for a write that is
    /// one of many they cost less then.
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

    /// Sends the acknowledgements that wait, and what reads of this turn ask.
    pub(in crate::copies) fn send_owed(self: &Rc<Self>) {
        Slot::all().for_each(|slot| self.acknowledge_to(slot));
        self.send_probes();
    }

    /// They were for the other end of a link that is no more.
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
