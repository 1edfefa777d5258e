//! Logout (RFC 7143 11.14, 11.15).

use super::transmit::Output;
use super::{CloseReason, Session};
use crate::iscsi::wire::{InitiatorTag, LogoutReason, LogoutRequest, LogoutResult};

impl Session {
    pub(super) fn carry_out_logout(&mut self, cid: u16, logout: LogoutRequest) {
        let Some(at) = self.open_connection(cid) else { return };
        match logout.reason {
            LogoutReason::CloseSession => {
                self.answer_logout(at, logout.initiator_tag, LogoutResult::Closed);
                self.over(CloseReason::LoggedOut);
            }
            LogoutReason::CloseConnection if logout.cid == cid => {
                self.answer_logout(at, logout.initiator_tag, LogoutResult::Closed);
                self.close_connection(at, CloseReason::LoggedOut);
                if self.connections_open() == 0 {
                    self.over(CloseReason::LoggedOut);
                }
            }
            LogoutReason::CloseConnection => match self.open_connection(logout.cid) {
                Some(other) => {
                    self.close_connection(other, CloseReason::LoggedOut);
                    self.answer_logout(at, logout.initiator_tag, LogoutResult::Closed);
                }
                None => self.answer_logout(at, logout.initiator_tag, LogoutResult::CidNotFound),
            },
            LogoutReason::RemoveForRecovery => {
                self.answer_logout(at, logout.initiator_tag, LogoutResult::RecoveryNotSupported);
            }
        }
    }

    fn answer_logout(&mut self, at: usize, tag: InitiatorTag, result: LogoutResult) {
        self.connections[at].queue(Output::Logout { tag, result });
    }
}
