//! The data of one write on its way in (RFC 7143 4.2.5, 4.5, 11.7, 11.8): what must come next, and where it
//! goes.
//!
//! Data comes in order (DataPDUInOrder and DataSequenceInOrder are Yes): first what is unsolicited (immediate
//! data, then Data-Out PDUs up to FirstBurstLength), then what R2Ts asked for, each sequence closed by the F
//! bit. So one number, `received`, says where the next byte belongs, and everything else is a mistake of the
//! initiator. A mistake in DataSN alone leaves it clear where the data ends, so that it can be thrown away
//! and the command refused.

use base::Buf;

use crate::iscsi::wire::{DataOut, RejectReason, TargetTag};

/// Where received bytes go.
#[derive(Debug)]
pub(super) enum Place {
    /// Nothing was allocated yet.
    None,
    /// Room for the unsolicited part only: memory was short.
    Partial(Buf),
    /// Room for all of it.
    Whole(Buf),
    /// A PDU's data is being received in place by the driver.
    Lent,
}

#[derive(Debug)]
pub(super) struct WriteData {
    /// Expected Data Transfer Length.
    pub(super) expected: u32,
    pub(super) place: Place,
    /// Bytes that came, without a gap.
    pub(super) received: u32,
    /// Unsolicited data, immediate data included, is still to come.
    pub(super) unsolicited_open: bool,
    /// Where unsolicited data must end.
    pub(super) unsolicited_max: u32,
    /// The DataSN that is due in the current sequence.
    data_sn: u32,
    /// Where the first R2T begins.
    solicited_start: u32,
    /// R2Ts that were asked to be sent.
    r2ts_sent: u32,
    /// R2Ts whose data is complete.
    r2ts_done: u32,
}

/// What is wrong with a Data-Out PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// Only its DataSN is not the next: data before it is missing (7.9). The command can be refused alone.
    Gap,
    /// It is not what must come next at all, so that nobody can say what follows.
    Broken(RejectReason),
}

/// What one R2T asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Burst {
    pub(super) start: u32,
    pub(super) length: u32,
}

impl WriteData {
    /// Of a command that brings `immediate` bytes; more unsolicited data follows it unless it `is_final`.
    pub(super) fn new(expected: u32, immediate: u32, is_final: bool, first_burst: u32) -> WriteData {
        WriteData {
            expected,
            place: Place::None,
            received: 0,
            unsolicited_open: immediate > 0 || !is_final,
            unsolicited_max: if is_final { immediate } else { first_burst.min(expected) },
            data_sn: 0,
            solicited_start: immediate,
            r2ts_sent: 0,
            r2ts_done: 0,
        }
    }

    /// All data is there.
    pub(super) fn is_complete(&self) -> bool {
        !self.unsolicited_open && self.received == self.expected
    }

    /// Data is on its way, or will be: the end of an open sequence has not come.
    pub(super) fn is_under_way(&self) -> bool {
        self.unsolicited_open || self.is_asked_for()
    }

    /// An R2T is not answered.
    pub(super) fn is_asked_for(&self) -> bool {
        self.r2ts_done < self.r2ts_sent
    }

    /// The R2T that may be sent next.
    pub(super) fn next_r2t(&mut self, max_burst: u32, outstanding_max: u16) -> Option<u32> {
        let number = self.r2ts_sent;
        let is_room = number - self.r2ts_done < u32::from(outstanding_max.max(1));
        if !is_room || self.unsolicited_open || self.burst(number, max_burst).is_none() {
            return None;
        }
        self.r2ts_sent += 1;
        Some(number)
    }

    /// The last R2T has not been sent, and will not be.
    pub(super) fn withdraw_r2t(&mut self) {
        self.r2ts_sent = self.r2ts_sent.saturating_sub(1);
    }

    /// What the R2T of this number asks for; nothing if all data comes before it.
    pub(super) fn burst(&self, number: u32, max_burst: u32) -> Option<Burst> {
        let max_burst = max_burst.max(1);
        let start = number.checked_mul(max_burst)?.checked_add(self.solicited_start)?;
        let length = self.expected.checked_sub(start)?.min(max_burst);
        (length > 0).then_some(Burst { start, length })
    }

    /// Whether a Data-Out PDU with `length` bytes is what must come next. `tag` gives an R2T's target
    /// transfer tag.
    pub(super) fn check(
        &self,
        pdu: &DataOut,
        length: u32,
        max_burst: u32,
        tag: impl Fn(u32) -> TargetTag,
    ) -> Result<(), Mistake> {
        const PROTOCOL_ERROR: Mistake = Mistake::Broken(RejectReason::ProtocolError);
        let (expected_tag, limit) = if self.unsolicited_open {
            (TargetTag::RESERVED, self.unsolicited_max)
        } else if self.is_asked_for() {
            let burst = self.burst(self.r2ts_done, max_burst).ok_or(PROTOCOL_ERROR)?;
            (tag(self.r2ts_done), burst.start + burst.length)
        } else {
            return Err(PROTOCOL_ERROR);
        };
        if pdu.target_tag != expected_tag || pdu.buffer_offset != self.received {
            return Err(Mistake::Broken(RejectReason::InvalidPduField));
        }
        let end = self.received.checked_add(length).filter(|end| *end <= limit);
        // A solicited sequence ends exactly where the R2T said; an unsolicited one at the latest at
        // FirstBurstLength.
        match end {
            None => Err(PROTOCOL_ERROR),
            Some(end) if end == limit && !pdu.is_final => Err(PROTOCOL_ERROR),
            Some(end) if end < limit && pdu.is_final && !self.unsolicited_open => Err(PROTOCOL_ERROR),
            Some(_) if pdu.data_sn != self.data_sn => Err(Mistake::Gap),
            Some(_) => Ok(()),
        }
    }

    /// The immediate data came.
    pub(super) fn immediate_arrived(&mut self, length: u32, is_final: bool) {
        self.received = self.received.saturating_add(length);
        self.unsolicited_open = !is_final;
        self.solicited_start = self.received;
    }

    /// The data of a PDU that was checked came.
    pub(super) fn arrived(&mut self, length: u32, is_final: bool) {
        // What is to be thrown away was not checked, and may be longer than anything sensible.
        self.received = self.received.saturating_add(length);
        self.data_sn = self.data_sn.wrapping_add(1);
        if is_final {
            self.data_sn = 0;
            if self.unsolicited_open {
                self.unsolicited_open = false;
                self.solicited_start = self.received;
            } else {
                self.r2ts_done += 1;
            }
        }
    }

    /// Puts `bytes` to their place from `at` on, if there is one.
    #[inline]
    pub(super) fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Place::Partial(buf) | Place::Whole(buf) = &mut self.place
            && let Some(room) = buf.get_mut(at..at.saturating_add(bytes.len()))
        {
            room.copy_from_slice(bytes);
        }
    }

    /// Makes room for all of it, and keeps what has come.
    pub(super) fn make_whole(&mut self) {
        let whole = match std::mem::replace(&mut self.place, Place::None) {
            Place::Partial(partial) => {
                let mut whole = Buf::uncleared(self.expected as usize);
                let received = (self.received as usize).min(partial.len());
                whole[..received].copy_from_slice(&partial[..received]);
                Place::Whole(whole)
            }
            Place::None => Place::Whole(Buf::uncleared(self.expected as usize)),
            other => other,
        };
        self.place = whole;
    }
}
