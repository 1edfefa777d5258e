//! The command window (RFC 7143 4.2.2.1): which CmdSNs may arrive, and requests that arrived early.

use std::collections::VecDeque;

use super::ConnectionId;
use super::task::TaskKey;
use crate::iscsi::wire::{LogoutRequest, NopOut, Serial, TaskRequest, TextRequest};

/// The most data, in bytes, of all pings and texts that wait for their turn: far more than a well-behaved
/// initiator needs.
const EARLY_BYTES_MAX: usize = 256 << 10;

/// A request that takes its turn in CmdSN order.
#[derive(Debug)]
pub(super) enum Sequenced {
    /// Rejected or aborted: only its number counts.
    Void,
    Command(TaskKey),
    Nop(NopOut, Vec<u8>),
    Task(TaskRequest),
    Text(TextRequest, Vec<u8>),
    Logout(LogoutRequest),
}

impl Sequenced {
    fn data_len(&self) -> usize {
        match self {
            Sequenced::Nop(_, data) | Sequenced::Text(_, data) => data.len(),
            _ => 0,
        }
    }
}

/// What to do with a request, according to its CmdSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It is next.
    Due,
    /// It waits for earlier requests.
    Early,
    /// A duplicate or outside the window: silently dropped.
    Ignored,
}

#[derive(Debug)]
pub(super) struct Window {
    /// ExpCmdSN.
    expected: Serial,
    /// MaxCmdSN. It grows by one for each request that has ended, and never shrinks.
    max: Serial,
    /// Requests from `expected` on, with the connection that each arrived on. The first entry is always
    /// empty.
    early: VecDeque<Option<(ConnectionId, Sequenced)>>,
    early_bytes: usize,
}

impl Window {
    pub(super) fn new(expected: Serial, commands_max: u32) -> Window {
        Window { expected, max: expected.plus(commands_max).minus(1), early: VecDeque::new(), early_bytes: 0 }
    }

    pub(super) fn expected(&self) -> Serial {
        self.expected
    }

    pub(super) fn max(&self) -> Serial {
        self.max
    }

    /// Whether a request with this number is still expected.
    pub(super) fn contains(&self, cmd_sn: Serial) -> bool {
        !cmd_sn.is_before(self.expected) && (cmd_sn == self.max || cmd_sn.is_before(self.max))
    }

    #[inline]
    pub(super) fn arrival(&self, cmd_sn: Serial) -> Arrival {
        if !self.contains(cmd_sn) {
            return Arrival::Ignored;
        }
        match cmd_sn.since(self.expected) as usize {
            0 => Arrival::Due,
            ahead if self.early.get(ahead).is_some_and(Option::is_some) => Arrival::Ignored,
            _ => Arrival::Early,
        }
    }

    /// Consumes the number that is due.
    #[inline]
    pub(super) fn advance(&mut self) {
        self.expected = self.expected.next();
        self.early.pop_front();
    }

    /// Keeps an early request. Returns it as an error if there is no room for its data.
    pub(super) fn hold(
        &mut self,
        cmd_sn: Serial,
        from: ConnectionId,
        request: Sequenced,
    ) -> Result<(), Sequenced> {
        let ahead = cmd_sn.since(self.expected) as usize;
        if self.early_bytes + request.data_len() > EARLY_BYTES_MAX {
            return Err(request);
        }
        if self.early.len() <= ahead {
            self.early.resize_with(ahead + 1, || None);
        }
        self.early_bytes += request.data_len();
        self.early[ahead] = Some((from, request));
        Ok(())
    }

    /// Takes the request that is due, if it arrived early.
    pub(super) fn take_due(&mut self) -> Option<(ConnectionId, Sequenced)> {
        let due = self.early.front_mut()?.take()?;
        self.early_bytes -= due.1.data_len();
        self.advance();
        Some(due)
    }

    /// Voids the requests of a lost connection: they count as received and do nothing.
    pub(super) fn void(&mut self, gone: ConnectionId) {
        for (from, request) in self.early.iter_mut().flatten() {
            // A command's place is freed with its task.
            if *from == gone && !matches!(request, Sequenced::Command(_)) {
                self.early_bytes -= request.data_len();
                *request = Sequenced::Void;
            }
        }
    }

    /// Opens the window by one, since a counted request has ended.
    #[inline]
    pub(super) fn release(&mut self) {
        self.max = self.max.next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_take_their_turn() {
        let from = ConnectionId { cid: 7, generation: 1 };
        let mut window = Window::new(Serial(0xffff_ffff), 4);
        assert_eq!(window.max(), Serial(2));
        assert_eq!(window.arrival(Serial(0xffff_fffe)), Arrival::Ignored);
        assert_eq!(window.arrival(Serial(3)), Arrival::Ignored);
        assert_eq!(window.arrival(Serial(1)), Arrival::Early);
        window.hold(Serial(1), from, Sequenced::Void).unwrap();
        assert_eq!(window.arrival(Serial(1)), Arrival::Ignored, "a duplicate");
        assert!(window.take_due().is_none());
        assert_eq!(window.arrival(Serial(0xffff_ffff)), Arrival::Due);
        window.advance();
        assert!(window.take_due().is_none(), "0 is missing");
        window.advance();
        assert_eq!(window.take_due().unwrap().0, from);
        assert_eq!((window.expected(), window.max()), (Serial(2), Serial(2)));
        window.release();
        assert_eq!(window.max(), Serial(3));
    }

    #[test]
    fn a_full_window_takes_nothing() {
        let mut window = Window::new(Serial(5), 1);
        window.advance();
        assert_eq!(window.arrival(Serial(6)), Arrival::Ignored);
        window.release();
        assert_eq!(window.arrival(Serial(6)), Arrival::Due);
    }
}
