//! Pings in both directions, and deadlines (RFC 7143 11.18, 11.19).

use base::Instant;

use super::transmit::Output;
use super::window::Sequenced;
use super::{CloseReason, ConnectionId, Phase, Session};
use crate::iscsi::wire::{HEADER_LEN, InitiatorTag, NopOut};

impl Session {
    pub(super) fn handle_nop(&mut self, at: usize, header: &[u8; HEADER_LEN], nop: NopOut, data: Vec<u8>) {
        if nop.initiator_tag == InitiatorTag::RESERVED {
            // An answer to our ping, or a ping that wants no answer: only its arrival matters. It does not
            // advance CmdSN.
            return;
        }
        self.sequence(at, header, nop.cmd_sn, Sequenced::Nop(nop, data));
    }

    pub(super) fn answer_nop(&mut self, id: ConnectionId, nop: NopOut, mut data: Vec<u8>) {
        let Some(at) = self.open_connection(id) else { return };
        let connection = &mut self.connections[at];
        // 11.19.3: return as much of the data as the initiator accepts.
        data.truncate(connection.negotiated.max_transmit as usize);
        connection.queue(Output::Pong { tag: nop.initiator_tag, lun: nop.lun, data });
    }

    /// When the last byte arrived on the connection with this CID; `None`: there is no such connection.
    pub fn last_word(&self, cid: u16) -> Option<Instant> {
        self.of_cid(cid).map(|at| self.connections[at].heard)
    }

    /// Pings the connection with this CID, unless a ping is outstanding. [`Session::last_word`] shows when an
    /// answer arrives.
    pub fn ask_for_word(&mut self, cid: u16, now: Instant) {
        let Some(at) = self.of_cid(cid).filter(|at| self.connections[*at].pinged.is_none()) else { return };
        self.connections[at].pinged = Some(now);
        // As in `handle_deadlines`.
        self.connections[at].queue_first(Output::Ping);
    }

    fn of_cid(&self, cid: u16) -> Option<usize> {
        self.connections.iter().position(|connection| connection.id.cid == cid && connection.is_open())
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Over => None,
            Phase::Draining(until) => {
                Some(self.silence_deadline().map_or(until, |silence| silence.min(until)))
            }
            Phase::Active => self.silence_deadline(),
        }
    }

    /// The earliest time at which a connection has been silent for too long.
    fn silence_deadline(&self) -> Option<Instant> {
        let interval = self.config.nop_interval;
        if interval.is_zero() {
            return None;
        }
        self.connections
            .iter()
            .filter(|connection| connection.is_open())
            .map(|connection| connection.deadline(interval))
            .min()
    }

    pub(super) fn handle_deadlines(&mut self, now: Instant) {
        if let Phase::Draining(until) = self.phase
            && until <= now
        {
            return self.drop_all(CloseReason::Drained);
        }
        let interval = self.config.nop_interval;
        if interval.is_zero() {
            return;
        }
        let discovery = self.discovery;
        let mut is_dead = false;
        for connection in &mut self.connections {
            if !connection.is_open() || connection.deadline(interval) > now {
                continue;
            }
            let has_moved = std::mem::take(&mut connection.has_moved);
            if connection.pinged.is_none() {
                connection.pinged = Some(now);
                // Discovery sessions have no pings (4.3): they get the same time, without one.
                if !discovery {
                    // Before all other output, so that a slow reader can answer in time.
                    connection.queue_first(Output::Ping);
                }
            } else if has_moved {
                connection.pinged = Some(now);
            } else {
                is_dead = true;
            }
        }
        if is_dead {
            self.over(CloseReason::NopTimeout);
        }
    }
}
