//! How connections join a session: expected while their login finishes, then added (RFC 7143 6.3.4).

use base::Instant;

use super::connection::Connection;
use super::window::Window;
use super::{CloseReason, ConnectionId, LoginStatus, Negotiated, Phase, Session};
use crate::iscsi::wire::Serial;

impl Session {
    pub(super) fn expect(&mut self, cid: u16) -> Result<ConnectionId, LoginStatus> {
        if self.phase == Phase::Over {
            return Err(LoginStatus::SessionDoesNotExist);
        }
        if self.others(cid) >= self.connections_max() {
            return Err(LoginStatus::TooManyConnections);
        }
        self.expected.retain(|expected| expected.cid != cid);
        let id = ConnectionId { cid, generation: self.generation };
        self.generation = self.generation.wrapping_add(1);
        // Before the former connection ends; otherwise the session would end with its last connection.
        self.expected.push(id);
        while let Some(former) = self.connections.iter().position(|connection| connection.id.cid == cid) {
            if !self.connections[former].is_closed() {
                self.close_connection(former, CloseReason::Reinstated);
            }
            self.retire(former);
        }
        Ok(id)
    }

    /// The number of connections with another CID, which MaxConnections limits.
    fn others(&self, cid: u16) -> usize {
        let open = self.connections.iter().filter(|connection| !connection.is_closed());
        let there = open.map(|connection| connection.id).chain(self.expected.iter().copied());
        there.filter(|id| id.cid != cid).count()
    }

    fn connections_max(&self) -> usize {
        self.leading.as_ref().map_or(1, |leading| usize::from(leading.max_connections))
    }

    pub(super) fn add(
        &mut self,
        id: ConnectionId,
        negotiated: Negotiated,
        stat_sn: u32,
        exp_cmd_sn: u32,
        now: Instant,
    ) -> bool {
        let Some(at) = self.expected.iter().position(|expected| *expected == id) else { return false };
        self.expected.remove(at);
        let negotiated = match &self.leading {
            Some(leading) => negotiated.in_session_of(leading),
            // Later connections join the numbering of the first one.
            None => {
                self.window = Window::new(Serial(exp_cmd_sn), self.config.commands_max.max(1));
                self.leading.insert(negotiated).clone()
            }
        };
        self.connections.push(Connection::new(id, negotiated, Serial(stat_sn), now));
        true
    }

    pub(super) fn remove(&mut self, id: ConnectionId) {
        self.expected.retain(|expected| *expected != id);
        if let Some(at) = self.connection(id) {
            if !self.connections[at].is_closed() {
                return self.connection_lost(id, CloseReason::Reset);
            }
            self.retire(at);
        }
        self.over_if_alone(CloseReason::PeerClosed);
    }
}
