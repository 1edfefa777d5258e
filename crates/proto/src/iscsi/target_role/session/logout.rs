//! Logout (RFC 7143 11.14, 11.15).
//!
//! The response promises that no command of what was logged out takes effect any more: once it has arrived,
//! the initiator may write through another connection, and other initiators may write. So the driver ends the
//! commands first.

use super::task::TaskKey;
use super::transmit::Output;
use super::{CloseReason, CommandId, ConnectionId, Event, Session};
use crate::iscsi::wire::{InitiatorTag, LogoutReason, LogoutRequest, LogoutResult};

/// The most logouts that the driver may have: one for every connection, and some repeated ones.
const LOGOUTS_MAX: usize = 32;

/// A logout that the driver is working on.
#[derive(Debug)]
pub(super) struct Logout {
    generation: u32,
    /// The connection that asked, and that gets the response.
    asker: ConnectionId,
    tag: InitiatorTag,
    /// The connection that leaves; `None`: all of them.
    leaving: Option<ConnectionId>,
}

impl Session {
    pub(super) fn carry_out_logout(&mut self, asker: ConnectionId, request: LogoutRequest) {
        let Some(at) = self.open_connection(asker) else { return };
        let tag = request.initiator_tag;
        let named = self
            .connections
            .iter()
            .position(|connection| connection.id.cid == request.cid && !connection.is_closed());
        let leaving = match (request.reason, named) {
            (LogoutReason::CloseSession, _) => None,
            (LogoutReason::CloseConnection, Some(named)) => Some(self.connections[named].id),
            (LogoutReason::CloseConnection, None) => {
                return self.answer_logout(at, tag, LogoutResult::CidNotFound);
            }
            (LogoutReason::RemoveForRecovery, _) => {
                return self.answer_logout(at, tag, LogoutResult::RecoveryNotSupported);
            }
        };
        if self.logouts.len() >= LOGOUTS_MAX {
            return self.answer_logout(at, tag, LogoutResult::CleanupFailed);
        }
        for at in 0..self.connections.len() {
            let connection = &self.connections[at];
            if connection.is_open() && leaving.is_none_or(|leaving| leaving == connection.id) {
                self.silence(at);
            }
        }
        let generation = self.tasks.next_generation();
        let slot = self.logouts.insert(Logout { generation, asker, tag, leaving }) as u32;
        let id = CommandId::from(TaskKey { slot, generation });
        self.events.push_back(Event::Logout { id, cid: leaving.map(|leaving| leaving.cid) });
    }

    /// Takes the driver's answer.
    pub(super) fn finish_logout(&mut self, key: TaskKey, is_clean: bool) {
        let slot = key.slot as usize;
        if self.logouts.get(slot).is_none_or(|logout| logout.generation != key.generation) {
            return;
        }
        let Logout { asker, tag, leaving, .. } = self.logouts.remove(slot);
        if let Some(at) = self.connection(asker).filter(|at| !self.connections[*at].is_closed()) {
            let result = if is_clean { LogoutResult::Closed } else { LogoutResult::CleanupFailed };
            self.answer_logout(at, tag, result);
        }
        let Some(leaving) = leaving else { return self.over(CloseReason::LoggedOut) };
        if let Some(at) = self.connection(leaving).filter(|at| !self.connections[*at].is_closed()) {
            self.close_connection(at, CloseReason::LoggedOut);
        }
        self.over_if_alone(CloseReason::LoggedOut);
    }

    fn answer_logout(&mut self, at: usize, tag: InitiatorTag, result: LogoutResult) {
        self.connections[at].queue(Output::Logout { tag, result });
    }
}
