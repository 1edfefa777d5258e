//! The incoming data of one write (RFC 7143 4.2.5, 4.5, 11.7, 11.8): what must arrive next, and where it
//! goes.
//!
//! Data arrives in order (DataPDUInOrder and DataSequenceInOrder are Yes): first unsolicited data (immediate
//! data, then Data-Out PDUs up to FirstBurstLength), then the data that R2Ts requested. The F bit ends each
//! sequence. So one number, `received`, says where the next byte belongs; anything else is the initiator's
//! mistake. If only DataSN is wrong, the end of the data is still known, so that the data can be discarded
//! and the command refused.

use base::Buf;

use crate::iscsi::wire::{DataOut, RejectReason, TargetTag};

/// Where received bytes go.
#[derive(Debug)]
pub(super) enum Place {
    /// No buffer has been allocated.
    None,
    /// Memory was short: the buffer holds only the unsolicited part.
    Partial(Buf),
    /// The buffer holds all data.
    Whole(Buf),
    /// The driver is receiving a PDU's data in place.
    Lent,
}

#[derive(Debug)]
pub(super) struct WriteData {
    /// Expected Data Transfer Length.
    pub(super) expected: u32,
    pub(super) place: Place,
    /// Bytes that have arrived, without a gap.
    pub(super) received: u32,
    /// Unsolicited data (or immediate data) has not arrived completely.
    pub(super) unsolicited_open: bool,
    /// Where unsolicited data must end.
    pub(super) unsolicited_max: u32,
    /// The next DataSN of the current sequence.
    data_sn: u32,
    /// Where the first R2T begins.
    solicited_start: u32,
    /// R2Ts that have been queued for sending.
    r2ts_sent: u32,
    /// R2Ts whose data is complete.
    r2ts_done: u32,
}

/// A mistake in a Data-Out PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// Only its DataSN is wrong: earlier data is missing (7.9). It suffices to refuse the command.
    Gap,
    /// It is not what must arrive next, so what follows cannot be interpreted.
    Broken(RejectReason),
}

/// The range that one R2T requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Burst {
    pub(super) start: u32,
    pub(super) length: u32,
}

impl WriteData {
    /// The data of a command that brings `immediate` bytes; more unsolicited data follows unless it
    /// `is_final`.
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

    /// Whether all data has arrived.
    pub(super) fn is_complete(&self) -> bool {
        !self.unsolicited_open && self.received == self.expected
    }

    /// Whether the end of an open sequence has not arrived: data is on its way, or will be.
    pub(super) fn is_under_way(&self) -> bool {
        self.unsolicited_open || self.is_asked_for()
    }

    /// Whether an R2T has not been answered completely.
    pub(super) fn is_asked_for(&self) -> bool {
        self.r2ts_done < self.r2ts_sent
    }

    /// Returns the number of the R2T that may be sent next, and counts it as sent.
    pub(super) fn next_r2t(&mut self, max_burst: u32, outstanding_max: u16) -> Option<u32> {
        let number = self.r2ts_sent;
        let is_room = number - self.r2ts_done < u32::from(outstanding_max.max(1));
        if !is_room || self.unsolicited_open || self.burst(number, max_burst).is_none() {
            return None;
        }
        self.r2ts_sent += 1;
        Some(number)
    }

    /// Withdraws the last R2T, which was not sent and will not be.
    pub(super) fn withdraw_r2t(&mut self) {
        self.r2ts_sent = self.r2ts_sent.saturating_sub(1);
    }

    /// The range that the R2T with this number requests; `None` if all data comes before it.
    pub(super) fn burst(&self, number: u32, max_burst: u32) -> Option<Burst> {
        let max_burst = max_burst.max(1);
        let start = number.checked_mul(max_burst)?.checked_add(self.solicited_start)?;
        let length = self.expected.checked_sub(start)?.min(max_burst);
        (length > 0).then_some(Burst { start, length })
    }

    /// Checks that a Data-Out PDU with `length` bytes is what must arrive next. `tag` returns an R2T's target
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
        // A solicited sequence ends exactly where its R2T does; an unsolicited one at FirstBurstLength or
        // earlier.
        match end {
            None => Err(PROTOCOL_ERROR),
            Some(end) if end == limit && !pdu.is_final => Err(PROTOCOL_ERROR),
            Some(end) if end < limit && pdu.is_final && !self.unsolicited_open => Err(PROTOCOL_ERROR),
            Some(_) if pdu.data_sn != self.data_sn => Err(Mistake::Gap),
            Some(_) => Ok(()),
        }
    }

    /// Records that the immediate data has arrived.
    pub(super) fn immediate_arrived(&mut self, length: u32, is_final: bool) {
        self.received = self.received.saturating_add(length);
        self.unsolicited_open = !is_final;
        self.solicited_start = self.received;
    }

    /// Records that the data of a PDU has arrived.
    pub(super) fn arrived(&mut self, length: u32, is_final: bool) {
        // Data to be discarded has not been checked, and may have any length.
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

    /// Copies `bytes` to offset `at`, if there is a buffer for them.
    #[inline]
    pub(super) fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Place::Partial(buf) | Place::Whole(buf) = &mut self.place
            && let Some(room) = buf.get_mut(at..at.saturating_add(bytes.len()))
        {
            room.copy_from_slice(bytes);
        }
    }

    /// Allocates a buffer for all data, and keeps the data that has arrived.
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
