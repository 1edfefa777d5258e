//! From bytes to PDUs. Headers are decoded in the receive buffer. Data is copied once, into the command's
//! buffer, or the driver receives it there directly.

use base::{Buf, Crc32c, Instant};

use super::task::TaskKey;
use super::write_data::Place;
use super::{CloseReason, InPlace, Session};
use crate::iscsi::wire::{
    Extent, FrameError, HEADER_LEN, HeaderError, RejectReason, RequestPdu, data_segment_length,
};

/// If at least this many bytes are missing, data is received in place. Below, copying costs less than a
/// receive of its own.
const IN_PLACE_MIN: usize = 16 << 10;

/// The longest padding and digest, in bytes.
const TAIL_MAX: usize = 7;

/// Where a PDU's data goes.
#[derive(Debug)]
pub(super) enum Sink {
    /// Into the task's buffer, from this offset on.
    Task(TaskKey, u32),
    /// Collected until all data has arrived.
    Collect(Vec<u8>),
    /// Dropped.
    Discard,
}

/// A PDU whose headers have been processed and whose data is arriving.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) header: [u8; HEADER_LEN],
    pub(super) pdu: Result<RequestPdu, HeaderError>,
    pub(super) sink: Sink,
    /// The data's length.
    length: usize,
    /// How many bytes of it have arrived.
    done: usize,
    /// Padding, then digest.
    tail: [u8; TAIL_MAX],
    tail_length: usize,
    tail_done: usize,
    /// The driver has the buffer.
    lent: bool,
    /// CRC of the data that has arrived, if data digests are on.
    crc: Crc32c,
}

impl Body {
    pub(super) fn is_lent(&self) -> bool {
        self.lent
    }

    fn is_complete(&self) -> bool {
        self.done == self.length && self.tail_done == self.tail_length
    }
}

impl Session {
    /// Processes bytes received on an open connection.
    pub(super) fn receive(&mut self, at: usize, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.connections[at].is_open() {
            bytes = match self.connections[at].body.take() {
                Some(body) => self.receive_body(at, body, bytes),
                None => self.receive_head(at, bytes),
            };
        }
    }

    fn receive_head<'a>(&mut self, at: usize, bytes: &'a [u8]) -> &'a [u8] {
        let connection = &mut self.connections[at];
        let framing = connection.framing;
        if connection.partial.is_empty() {
            let (extent, header) = match (framing.check_header(bytes), bytes.first_chunk()) {
                (Ok(Some(extent)), Some(header)) => (extent, header),
                (Err(error), header) => return self.broken_frame(at, header, error),
                _ => {
                    connection.partial.extend_from_slice(bytes);
                    return &[];
                }
            };
            let (head, rest) = bytes.split_at(extent.data_start);
            return self.begin(at, header, &head[HEADER_LEN..extent.header_end], extent, rest);
        }
        // The head arrives in pieces: first its 48 bytes, which determine the length of the rest.
        let have = connection.partial.len();
        let need =
            connection.partial.first_chunk().map_or(HEADER_LEN, |header| framing.extent(header).data_start);
        let (piece, rest) = bytes.split_at(bytes.len().min(need - have));
        connection.partial.extend_from_slice(piece);
        match framing.check_header(&connection.partial) {
            Ok(None) => rest,
            Ok(Some(extent)) => {
                let head = std::mem::take(&mut connection.partial);
                let header = head.first_chunk().expect("a checked header is whole");
                self.begin(at, header, &head[HEADER_LEN..extent.header_end], extent, rest)
            }
            Err(error) => {
                let head = std::mem::take(&mut connection.partial);
                self.broken_frame(at, head.first_chunk(), error)
            }
        }
    }

    fn broken_frame<'a>(
        &mut self,
        at: usize,
        header: Option<&[u8; HEADER_LEN]>,
        error: FrameError,
    ) -> &'a [u8] {
        match (error, header) {
            // 7.8: if the header is damaged, nothing is known about the PDU.
            (FrameError::HeaderDigest, _) => self.over(CloseReason::HeaderDigest),
            (FrameError::DataTooLong { .. }, Some(header)) => {
                self.fail(at, RejectReason::InvalidPduField, header);
            }
            (FrameError::DataTooLong { .. }, None) => self.over(CloseReason::ProtocolError),
        }
        &[]
    }

    /// Decodes a PDU's headers, chooses where its data goes, and processes the part of the data that is in
    /// `bytes`.
    #[inline]
    fn begin<'a>(
        &mut self,
        at: usize,
        header: &[u8; HEADER_LEN],
        ahs: &[u8],
        extent: Extent,
        bytes: &'a [u8],
    ) -> &'a [u8] {
        self.connections[at].counters.pdus_received += 1;
        let length = data_segment_length(header);
        let pdu = RequestPdu::decode(header);
        let sink = match &pdu {
            Ok(RequestPdu::ScsiCommand(command)) => self.begin_command(at, header, command, ahs, length),
            Ok(RequestPdu::DataOut(data_out)) => self.begin_data_out(at, header, data_out, length),
            Ok(RequestPdu::NopOut(_) | RequestPdu::Text(_)) => Sink::Collect(Vec::new()),
            _ => Sink::Discard,
        };
        if length == 0 {
            if self.connections[at].is_open() {
                self.carry_out_pdu(at, header, pdu, sink, 0);
            }
            return bytes;
        }
        let body = Body {
            header: *header,
            pdu,
            sink,
            length: length as usize,
            done: 0,
            tail: [0; TAIL_MAX],
            tail_length: extent.end - extent.data_end,
            tail_done: 0,
            lent: false,
            crc: Crc32c::new(),
        };
        self.receive_body(at, body, bytes)
    }

    #[inline]
    fn receive_body<'a>(&mut self, at: usize, mut body: Body, bytes: &'a [u8]) -> &'a [u8] {
        // The driver's mistake: `take_in_place` forbids it, and `wants_bytes` is false.
        assert!(!body.lent, "bytes were fed while the driver receives in place");
        let (piece, rest) = bytes.split_at(bytes.len().min(body.length - body.done));
        if !piece.is_empty() {
            self.place(&mut body, piece);
            body.done += piece.len();
            if self.connections[at].framing.data_digest {
                body.crc.update(piece);
            }
        }
        let (tail, rest) = rest.split_at(rest.len().min(body.tail_length - body.tail_done));
        body.tail[body.tail_done..body.tail_done + tail.len()].copy_from_slice(tail);
        body.tail_done += tail.len();
        if body.is_complete() {
            self.finish(at, body);
        } else if self.connections[at].is_open() {
            self.connections[at].body = Some(body);
        }
        rest
    }

    /// Puts a piece of data in its place.
    #[inline]
    fn place(&mut self, body: &mut Body, piece: &[u8]) {
        match &mut body.sink {
            Sink::Task(key, start) => {
                let from = *start as usize + body.done;
                match self.tasks.get_mut(*key).and_then(|task| task.write.as_mut()) {
                    // A task that will be refused has no buffer.
                    Some(write) => write.put(from, piece),
                    // The task was aborted meanwhile.
                    None => body.sink = Sink::Discard,
                }
            }
            Sink::Collect(collected) => collected.extend_from_slice(piece),
            Sink::Discard => {}
        }
    }

    /// Processes a PDU that has arrived completely.
    #[inline]
    fn finish(&mut self, at: usize, mut body: Body) {
        if !self.connections[at].is_open() {
            return;
        }
        if self.connections[at].framing.data_digest && body.length > 0 {
            let (padding, digest) = body.tail[..body.tail_length].split_at(body.tail_length - 4);
            body.crc.update(padding);
            if body.crc.value().to_le_bytes() != digest {
                return self.damaged(at, body);
            }
        }
        let Body { header, pdu, sink, length, .. } = body;
        self.carry_out_pdu(at, &header, pdu, sink, length as u32);
    }

    /// Handles a wrong data digest (7.8). The header of a Data-Out PDU is intact, so its command is refused
    /// when all of its data has arrived. Any other PDU would have to be sent again, which level 0 does not
    /// support: the session ends.
    fn damaged(&mut self, at: usize, body: Body) {
        self.reject(at, RejectReason::DataDigestError, &body.header);
        let Body { header, pdu, sink, length, .. } = body;
        if !matches!(pdu, Ok(RequestPdu::DataOut(_))) {
            return self.over(CloseReason::DataDigest);
        }
        if let Sink::Task(key, _) = sink {
            self.give_up_data(key);
        }
        self.carry_out_pdu(at, &header, pdu, sink, length as u32);
    }

    /// Lends the driver the buffer into which the connection's next bytes belong.
    pub(super) fn lend(&mut self, at: usize) -> Option<InPlace> {
        let body = self.connections[at].body.as_mut()?;
        if body.lent || body.length - body.done < IN_PLACE_MIN {
            return None;
        }
        let Sink::Task(key, start) = body.sink else { return None };
        let write = self.tasks.get_mut(key)?.write.as_mut()?;
        let (from, to) = (start as usize + body.done, start as usize + body.length);
        match std::mem::replace(&mut write.place, Place::Lent) {
            Place::Whole(mut buf) if to <= buf.len() => {
                body.lent = true;
                buf.truncate(to);
                Some(InPlace { buf, filled: from })
            }
            other => {
                write.place = other;
                None
            }
        }
    }

    /// Takes the filled buffer back.
    pub(super) fn take_back(&mut self, at: usize, mut buf: Buf, now: Instant) {
        let Some(mut body) = self.connections[at].body.take() else { return };
        let Sink::Task(key, start) = body.sink else { return };
        assert!(body.lent, "no buffer was given out");
        let range = start as usize + body.done..start as usize + body.length;
        self.connections[at].heard(now, range.len());
        if self.connections[at].framing.data_digest {
            body.crc.update(&buf[range]);
        }
        body.lent = false;
        body.done = body.length;
        match self.tasks.get_mut(key).and_then(|task| task.write.as_mut()) {
            Some(write) if matches!(write.place, Place::Lent) => {
                buf.restore_len(write.expected as usize);
                write.place = Place::Whole(buf);
            }
            // The task's data is no longer needed.
            Some(_) => {}
            // The task was aborted meanwhile.
            None => body.sink = Sink::Discard,
        }
        if body.is_complete() {
            self.finish(at, body);
        } else {
            self.connections[at].body = Some(body);
        }
    }
}
