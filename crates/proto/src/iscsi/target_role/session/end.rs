//! How connections and sessions end.

use base::Instant;

use super::connection::Connection;
use super::task::{TaskKey, TaskState};
use super::transmit::Output;
use super::{CloseReason, ConnectionId, Event, Phase, Session};
use crate::iscsi::wire::AsyncEvent;

impl Session {
    /// Ends the session because of reinstatement, drain, an administrator or a reset.
    pub(super) fn end_from_above(&mut self, reason: CloseReason, now: Instant) {
        match (self.phase, reason) {
            (Phase::Over, _) => {}
            (Phase::Draining(_), CloseReason::Drained) => {}
            (Phase::Active, CloseReason::Drained) if self.connections_open() > 0 => {
                let time = self.config.drain_time;
                // 11.9.1: whole seconds. Round down, so that the initiator is not promised more time than it
                // has.
                let within = u16::try_from(time.as_secs()).unwrap_or(u16::MAX);
                self.notify(|_| AsyncEvent::LogoutRequested { within });
                self.phase = Phase::Draining(now + time);
            }
            // The initiator has replaced this session and forgotten its connections.
            (_, CloseReason::Reinstated | CloseReason::PeerClosed) => self.over(reason),
            _ => self.drop_all(reason),
        }
    }

    /// Notifies the initiator that its connections are being dropped, and drops them.
    pub(super) fn drop_all(&mut self, reason: CloseReason) {
        self.notify(|(time2wait, time2retain)| AsyncEvent::SessionDropped { time2wait, time2retain });
        self.over(reason);
    }

    fn notify(&mut self, event: impl Fn((u16, u16)) -> AsyncEvent) {
        for connection in self.connections.iter_mut().filter(|connection| connection.is_open()) {
            let times = (connection.negotiated.time2wait, connection.negotiated.time2retain);
            connection.queue(Output::Async(event(times)));
        }
    }

    /// Ends the session: level 0 cannot recover a connection, so the session is lost with any of them
    /// (7.1.4.4).
    pub(super) fn connection_lost(&mut self, id: ConnectionId, reason: CloseReason) {
        if self.open_connection(id).is_some() {
            self.over(reason);
        }
    }

    /// Ends the session. Queued responses can still be sent.
    pub(super) fn over(&mut self, reason: CloseReason) {
        if self.phase == Phase::Over {
            return;
        }
        self.phase = Phase::Over;
        self.expected.clear();
        for connection in self.connections.iter_mut().filter(|connection| !connection.is_closed()) {
            connection.close();
            self.events.push_back(Event::Close { id: connection.id, reason });
        }
        self.starved.clear();
        self.forget_tasks(|_| true);
        self.management.clear();
        self.early_management.clear();
        self.logouts.clear();
        self.events.push_back(Event::End);
    }

    /// Ends the session if it has no connections left and expects none.
    pub(super) fn over_if_alone(&mut self, reason: CloseReason) {
        if self.expected.is_empty() && self.connections.iter().all(Connection::is_closed) {
            self.over(reason);
        }
    }

    /// Stops receiving on a connection, and forgets its requests.
    pub(super) fn silence(&mut self, at: usize) {
        let id = self.connections[at].id;
        self.connections[at].leave();
        self.window.void(id);
        self.early_management.retain(|(from, _)| *from != id);
        let aborted = self.forget_tasks(|of| of == id);
        self.connections[at].counters.aborts += aborted;
        // Requests that were held back by one of this connection may be due now.
        self.carry_out_early();
    }

    /// Ends one connection of a session that continues.
    pub(super) fn close_connection(&mut self, at: usize, reason: CloseReason) {
        if self.connections[at].is_open() {
            self.silence(at);
        }
        self.connections[at].close();
        self.events.push_back(Event::Close { id: self.connections[at].id, reason });
    }

    /// Forgets a connection and its responses: they can no longer be sent.
    pub(super) fn retire(&mut self, at: usize) {
        let id = self.connections[at].id;
        let answering: Vec<TaskKey> =
            self.tasks.iter().filter(|(_, task)| task.connection == id).map(|(key, _)| key).collect();
        for key in answering {
            self.remove_task(key);
        }
        let retired = self.connections.remove(at);
        self.retired = [self.retired, retired.counters].into_iter().sum();
    }

    /// Forgets tasks that have not been answered. Returns how many of them the driver has.
    fn forget_tasks(&mut self, is_of: impl Fn(ConnectionId) -> bool) -> u64 {
        let is_affected = |state: &TaskState| !matches!(state, TaskState::Answering(_));
        let gone: Vec<TaskKey> = self
            .tasks
            .iter()
            .filter(|(_, task)| is_of(task.connection) && is_affected(&task.state))
            .map(|(key, _)| key)
            .collect();
        gone.into_iter().filter(|key| self.remove_task(*key)).count() as u64
    }
}
