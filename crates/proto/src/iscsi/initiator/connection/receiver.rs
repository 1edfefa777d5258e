//! Cuts received bytes into PDUs, and places the data of reads while it arrives.

use base::{Buf, Crc32c};
use slab::Slab;

use super::command::{Data, Kind, Task};
use super::{ConnectionError, slot_of};
use crate::iscsi::target_role::InPlace;
use crate::iscsi::wire::{DataIn, FrameError, Framing, HEADER_LEN, ResponsePdu, padding};

/// If at least this many bytes are missing, data is received in place. Below, copying costs less than a
/// receive of its own.
const IN_PLACE_MIN: usize = 16 << 10;

/// The longest padding and data digest, in bytes.
const TAIL_MAX: usize = 3 + 4;

pub(super) struct Receiver {
    framing: Framing,
    /// Headers that have not arrived completely.
    head: Vec<u8>,
    /// The PDU whose headers have arrived.
    current: Option<Current>,
    /// The data of the last PDU, unless it was read data.
    segment: Vec<u8>,
}

struct Current {
    pdu: ResponsePdu,
    place: Place,
    data_len: usize,
    /// Data bytes that have arrived.
    data_done: usize,
    /// The driver has the command's buffer.
    lent: bool,
    crc: Crc32c,
    tail: [u8; TAIL_MAX],
    tail_len: usize,
    tail_done: usize,
}

#[derive(Clone, Copy)]
enum Place {
    Segment,
    /// The buffer of the command in this slot, from this offset on.
    Command {
        slot: usize,
        at: usize,
    },
    /// Dropped: the command is no longer known.
    Nowhere,
}

impl Receiver {
    pub(super) fn new(framing: Framing) -> Receiver {
        Receiver { framing, head: Vec::new(), current: None, segment: Vec::new() }
    }

    /// The data of the PDU that `next` returned last.
    pub(super) fn segment(&self) -> &[u8] {
        &self.segment
    }

    /// Returns the next complete PDU and consumes its bytes; `None` if there are too few.
    #[inline]
    pub(super) fn next(
        &mut self,
        bytes: &mut &[u8],
        tasks: &mut Slab<Task>,
    ) -> Result<Option<ResponsePdu>, ConnectionError> {
        if self.current.is_none() && !self.take_header(bytes, tasks)? {
            return Ok(None);
        }
        let Some(current) = &mut self.current else { return Ok(None) };
        if current.data_len > 0 {
            current.take_data(bytes, tasks, &mut self.segment, self.framing.data_digest);
            if !current.take_tail(bytes) {
                return Ok(None);
            }
            if self.framing.data_digest && !current.is_intact() {
                return Err(ConnectionError::DataDigest);
            }
            if let Place::Command { slot, .. } = current.place
                && let Some(Task { kind: Kind::Command(running), .. }) = tasks.get_mut(slot)
                && let Data::In { received, .. } = &mut running.data
            {
                *received += current.data_len;
            }
        }
        Ok(self.current.take().map(|current| current.pdu))
    }

    /// Whether the driver has the buffer into which the next bytes belong.
    pub(super) fn is_lent(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.lent)
    }

    /// Lends the driver the buffer into which the next bytes belong, if they are many.
    pub(super) fn lend(&mut self, tasks: &mut Slab<Task>) -> Option<InPlace> {
        let current = self.current.as_mut()?;
        if current.lent || current.data_len - current.data_done < IN_PLACE_MIN {
            return None;
        }
        let Place::Command { slot, at } = current.place else { return None };
        let Kind::Command(running) = &mut tasks.get_mut(slot)?.kind else { return None };
        let Data::In { buf, received } = &running.data else { return None };
        let lent = Data::Lent { len: buf.len(), received: *received };
        let Data::In { mut buf, .. } = std::mem::replace(&mut running.data, lent) else { return None };
        current.lent = true;
        buf.truncate(at + current.data_len);
        Some(InPlace { buf, filled: at + current.data_done })
    }

    /// Takes the filled buffer back.
    pub(super) fn take_back(&mut self, mut buf: Buf, tasks: &mut Slab<Task>) {
        let Some(current) = self.current.as_mut().filter(|current| current.lent) else { return };
        let Place::Command { slot, at } = current.place else { return };
        if self.framing.data_digest {
            current.crc.update(&buf[at + current.data_done..at + current.data_len]);
        }
        current.lent = false;
        current.data_done = current.data_len;
        if let Some(Task { kind: Kind::Command(running), .. }) = tasks.get_mut(slot)
            && let Data::Lent { len, received } = running.data
        {
            buf.restore_len(len);
            running.data = Data::In { buf, received };
        }
    }

    fn take_header(&mut self, bytes: &mut &[u8], tasks: &Slab<Task>) -> Result<bool, ConnectionError> {
        if bytes.is_empty() {
            return Ok(false);
        }
        // Usually all headers have arrived at once, and are decoded in the receive buffer.
        let whole =
            if self.head.is_empty() { self.framing.check_header(bytes).map_err(damaged)? } else { None };
        if let Some(extent) = whole {
            let (head, rest) = bytes.split_at(extent.data_start);
            *bytes = rest;
            let header = head.first_chunk().expect("headers are 48 bytes and more");
            self.begin(header, extent.data_end - extent.data_start, tasks)?;
            return Ok(true);
        }
        loop {
            let wanted = match self.head.first_chunk::<HEADER_LEN>() {
                None => HEADER_LEN,
                Some(header) => self.framing.extent(header).data_start,
            };
            let taken = (wanted - self.head.len()).min(bytes.len());
            self.head.extend_from_slice(&bytes[..taken]);
            *bytes = &bytes[taken..];
            if let Some(extent) = self.framing.check_header(&self.head).map_err(damaged)? {
                let header = *self.head.first_chunk().expect("headers are 48 bytes and more");
                self.head.clear();
                self.begin(&header, extent.data_end - extent.data_start, tasks)?;
                return Ok(true);
            }
            if bytes.is_empty() {
                return Ok(false);
            }
        }
    }

    fn begin(
        &mut self,
        header: &[u8; HEADER_LEN],
        data_len: usize,
        tasks: &Slab<Task>,
    ) -> Result<(), ConnectionError> {
        let pdu = ResponsePdu::decode(header).map_err(|_| ConnectionError::Protocol("an invalid header"))?;
        let place = match &pdu {
            ResponsePdu::DataIn(data_in) => place(data_in, data_len, tasks)?,
            _ => Place::Segment,
        };
        self.segment.clear();
        let digest_len = if self.framing.data_digest { 4 } else { 0 };
        self.current = Some(Current {
            pdu,
            place,
            data_len,
            data_done: 0,
            lent: false,
            crc: Crc32c::new(),
            tail: [0; TAIL_MAX],
            tail_len: padding(data_len) + digest_len,
            tail_done: 0,
        });
        Ok(())
    }
}

/// Where read data belongs. We negotiated data in order, so it begins where the previous data ended.
fn place(data_in: &DataIn, data_len: usize, tasks: &Slab<Task>) -> Result<Place, ConnectionError> {
    let slot = slot_of(data_in.initiator_tag);
    let Some(task) = tasks.get(slot).filter(|task| task.tag == data_in.initiator_tag) else {
        return Ok(Place::Nowhere);
    };
    let Kind::Command(running) = &task.kind else {
        return Err(ConnectionError::Protocol("data for a task without data"));
    };
    let Data::In { buf, received } = &running.data else {
        return Err(ConnectionError::Protocol("data for a command that does not read"));
    };
    if data_in.buffer_offset as usize != *received || data_len > buf.len() - received {
        return Err(ConnectionError::Protocol("data out of order, or more than requested"));
    }
    Ok(Place::Command { slot, at: *received })
}

impl Current {
    #[inline]
    fn take_data(&mut self, bytes: &mut &[u8], tasks: &mut Slab<Task>, segment: &mut Vec<u8>, digest: bool) {
        let taken = (self.data_len - self.data_done).min(bytes.len());
        let (data, rest) = bytes.split_at(taken);
        *bytes = rest;
        match self.place {
            Place::Segment => segment.extend_from_slice(data),
            Place::Nowhere => {}
            Place::Command { slot, at } => {
                // Only we end commands, and not while their data arrives.
                if let Some(Task { kind: Kind::Command(running), .. }) = tasks.get_mut(slot)
                    && let Data::In { buf, .. } = &mut running.data
                    && let Some(target) = buf.get_mut(at + self.data_done..at + self.data_done + taken)
                {
                    target.copy_from_slice(data);
                }
            }
        }
        if digest {
            self.crc.update(data);
        }
        self.data_done += taken;
    }

    /// Consumes padding and digest. Returns whether the PDU is complete.
    #[inline]
    fn take_tail(&mut self, bytes: &mut &[u8]) -> bool {
        let taken = (self.tail_len - self.tail_done).min(bytes.len());
        if taken > 0 {
            self.tail[self.tail_done..self.tail_done + taken].copy_from_slice(&bytes[..taken]);
            *bytes = &bytes[taken..];
            self.tail_done += taken;
        }
        self.data_done == self.data_len && self.tail_done == self.tail_len
    }

    fn is_intact(&mut self) -> bool {
        let (padding, digest) = self.tail[..self.tail_len].split_at(self.tail_len - 4);
        self.crc.update(padding);
        self.crc.value().to_le_bytes() == digest
    }
}

fn damaged(error: FrameError) -> ConnectionError {
    match error {
        FrameError::HeaderDigest => ConnectionError::HeaderDigest,
        FrameError::DataTooLong { .. } => ConnectionError::Protocol("more data in a PDU than we declared"),
    }
}
