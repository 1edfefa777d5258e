//! One connection of a session: its sequence numbers, the PDU it is receiving, its queue of output.

use std::collections::VecDeque;
use std::time::Duration;

use base::Instant;

use super::receive::Body;
use super::text::TextExchange;
use super::transmit::Output;
use super::{ConnectionId, Counters, Negotiated, TRANSMIT_BYTES_MAX};
use crate::iscsi::wire::{Framing, Serial};

/// The states of a connection. Before these it is expected: its login is about to finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Requests are served.
    Open,
    /// The initiator has logged it out and waits for our response; nothing more is received.
    Leaving,
    /// The connection has ended; queued output can still be sent.
    Closed,
}

pub(super) struct Connection {
    pub(super) id: ConnectionId,
    state: State,
    pub(super) negotiated: Negotiated,
    pub(super) framing: Framing,
    /// The next StatSN.
    pub(super) stat_sn: Serial,
    /// The beginning of a PDU whose headers have not arrived completely.
    pub(super) partial: Vec<u8>,
    /// The PDU whose data is arriving.
    pub(super) body: Option<Body>,
    pub(super) queue: VecDeque<Output>,
    /// Bytes of data in `queue`, without headers.
    pub(super) queued_bytes: usize,
    pub(super) text: Option<TextExchange>,
    pub(super) counters: Counters,
    /// When the last byte arrived.
    pub(super) heard: Instant,
    /// When a ping was sent, if nothing has arrived since.
    pub(super) pinged: Option<Instant>,
    /// Something was sent since the deadlines were last checked: the initiator reads, even if it sends
    /// nothing.
    pub(super) has_moved: bool,
}

impl Connection {
    pub(super) fn new(id: ConnectionId, negotiated: Negotiated, stat_sn: Serial, now: Instant) -> Connection {
        Connection {
            id,
            state: State::Open,
            framing: Framing {
                header_digest: negotiated.header_digest,
                data_digest: negotiated.data_digest,
                data_max: negotiated.max_receive,
            },
            negotiated,
            stat_sn,
            partial: Vec::new(),
            body: None,
            queue: VecDeque::new(),
            queued_bytes: 0,
            text: None,
            counters: Counters::default(),
            heard: now,
            pinged: None,
            has_moved: false,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Stops receiving.
    pub(super) fn leave(&mut self) {
        self.state = State::Leaving;
        self.partial = Vec::new();
        self.body = None;
        self.text = None;
    }

    /// Closes the connection. Queued output can still be sent.
    pub(super) fn close(&mut self) {
        self.leave();
        self.state = State::Closed;
    }

    pub(super) fn heard(&mut self, now: Instant, bytes: usize) {
        self.heard = now;
        self.pinged = None;
        self.counters.bytes_received += bytes as u64;
    }

    pub(super) fn wants_bytes(&self) -> bool {
        self.queued_bytes < TRANSMIT_BYTES_MAX && !self.body.as_ref().is_some_and(Body::is_lent)
    }

    /// When to send a ping because of silence, or, after a ping, drop the connection.
    pub(super) fn deadline(&self, nop_interval: Duration) -> Instant {
        self.pinged.unwrap_or(self.heard) + nop_interval
    }

    /// The StatSN of a PDU that carries status.
    #[inline]
    pub(super) fn take_stat_sn(&mut self) -> Serial {
        let number = self.stat_sn;
        self.stat_sn = number.next();
        number
    }

    pub(super) fn queue(&mut self, output: Output) {
        self.queued_bytes += output.queued_bytes();
        self.queue.push_back(output);
    }

    /// Queues `output` before everything that waits.
    pub(super) fn queue_first(&mut self, output: Output) {
        self.queued_bytes += output.queued_bytes();
        self.queue.push_front(output);
    }
}
