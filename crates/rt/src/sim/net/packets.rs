//! How packets travel, and what they do when they arrive.

use std::io;
use std::task::Waker;
use std::time::Duration;

use super::connection::{Connection, Packet, Side, State};
use super::network::{ConnectionId, Net, NetDue};
use crate::sim::disk::draw;
use crate::sim::fault::Fault;
use crate::sim::ledger::{Due, Ledger};
use crate::sim::log::{Arrival, Event};

/// The most connections that wait to be accepted: the value that production uses.
const BACKLOG_MAX: usize = 4096;

/// How often a client asks, after 1, 2, 4 … s. Linux gives up after 127 s.
const CONNECT_ATTEMPTS_MAX: u32 = 7;

impl Net {
    pub(in crate::sim) fn act(&mut self, due: NetDue, ledger: &mut Ledger) {
        match due {
            NetDue::Ask { connection, attempt } => self.ask(connection, attempt, ledger),
            NetDue::Deliver { connection, from } => self.deliver(connection, from, ledger),
            NetDue::GiveUp { connection: id, side, progress } => {
                let Some(connection) = self.connections.get_mut(&id) else { return };
                let pipe = &mut connection.pipes[side];
                pipe.timing = false;
                if !pipe.is_stalled() {
                    return;
                }
                if pipe.progress == progress {
                    self.time_out(id, side, ledger);
                } else {
                    self.time_stall(id, side, ledger);
                }
            }
            NetDue::KeepAlive { connection: id, side, cut_since } => {
                let still = self.connections.get(&id).is_some_and(|it| it.cut_since == Some(cut_since));
                if still {
                    self.time_out(id, side, ledger);
                }
            }
            NetDue::Probe { connection: id, side } => {
                if self.end(id, side).is_some_and(|end| end.state == State::Open) {
                    self.put(id, side, Packet::Probe, ledger);
                }
            }
        }
    }

    fn ask(&mut self, id: ConnectionId, attempt: u32, ledger: &mut Ledger) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (client, server) = (&mut connection.ends.client, &connection.ends.server);
        if client.state != State::Connecting {
            return self.forget_if_over(id);
        }
        let to = server.address;
        let node = server.place.node.filter(|_| !self.links.is_blocked(client.place, server.place));
        let Some(node) = node else {
            if attempt == 0 {
                ledger.fault(Fault::LinkHold);
            }
            return self.ask_again(id, attempt, ledger);
        };
        let listener = self.listeners.iter_mut().find(|(_, listening)| {
            let ip = listening.address.ip();
            listening.node == node
                && listening.address.port() == to.port()
                && (ip == to.ip() || ip.is_unspecified() && (ip.is_ipv6() || to.is_ipv4()))
        });
        match listener {
            Some((_, listening)) if listening.queue.len() >= BACKLOG_MAX => {
                self.ask_again(id, attempt, ledger)
            }
            Some((listener, _)) => {
                connection.listener = Some(*listener);
                self.put(id, Side::Server, Packet::Open, ledger);
            }
            None => {
                ledger.fault(Fault::ConnectionRefused);
                connection.ends.server.state = State::Closed;
                self.put(id, Side::Server, Packet::Reset, ledger);
            }
        }
    }

    fn ask_again(&mut self, id: ConnectionId, attempt: u32, ledger: &mut Ledger) {
        if attempt + 1 == CONNECT_ATTEMPTS_MAX {
            return self.time_out(id, Side::Client, ledger);
        }
        let due = NetDue::Ask { connection: id, attempt: attempt + 1 };
        ledger.schedule_in(Duration::from_secs(1 << attempt), Due::Net(due));
    }

    /// Sends a packet.
    pub(super) fn put(&mut self, id: ConnectionId, from: Side, packet: Packet, ledger: &mut Ledger) {
        let mut time = draw(&mut self.rng, &self.profile.delay);
        if self.profile.spike_one_in > 0 && self.rng.one_in(self.profile.spike_one_in) {
            ledger.fault(Fault::NetSpike);
            time += draw(&mut self.rng, &self.profile.spike);
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (sender, receiver) = (connection.ends[from].place, connection.ends[from.other()].place);
        if matches!(packet, Packet::Reset) && self.links.is_blocked(sender, receiver) {
            return;
        }
        let on_the_wire = match &packet {
            Packet::Data(data) if self.profile.bandwidth > 0 => {
                data.len() as u64 * 1_000_000_000 / self.profile.bandwidth
            }
            _ => 0,
        };
        let pipe = &mut connection.pipes[from];
        let arrival = (ledger.now() + time).max(pipe.last_arrival) + on_the_wire;
        pipe.last_arrival = arrival;
        pipe.packets.push_back((arrival, packet));
        if !pipe.scheduled && !pipe.blocked {
            pipe.scheduled = true;
            ledger.schedule(arrival, Due::Net(NetDue::Deliver { connection: id, from }));
        }
    }

    fn deliver(&mut self, id: ConnectionId, from: Side, ledger: &mut Ledger) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.pipes[from].scheduled = false;
        }
        while let Some(connection) = self.connections.get_mut(&id) {
            let (sender, receiver) = (connection.ends[from].place, connection.ends[from.other()].place);
            let pipe = &mut connection.pipes[from];
            let Some((arrival, packet)) = pipe.packets.front() else { break };
            if *arrival > ledger.now() {
                pipe.scheduled = true;
                return ledger.schedule(*arrival, Due::Net(NetDue::Deliver { connection: id, from }));
            }
            if self.links.is_blocked(sender, receiver) {
                if matches!(packet, Packet::Reset) {
                    pipe.packets.pop_front();
                    continue;
                }
                // An aborted connection does not retransmit what was lost.
                if matches!(connection.ends[from].state, State::Failed(_)) {
                    connection.pipes[from].packets.clear();
                    break;
                }
                pipe.blocked = true;
                ledger.fault(Fault::LinkHold);
                return self.time_stall(id, from, ledger);
            }
            let (_, packet) = pipe.packets.pop_front().expect("just seen");
            if self.links.is_blocked(receiver, sender) {
                pipe.unacknowledged = true;
                self.time_stall(id, from, ledger);
            } else {
                pipe.progress += 1;
            }
            self.arrive(id, from, packet, ledger);
        }
        self.forget_if_over(id);
    }

    fn arrive(&mut self, id: ConnectionId, from: Side, packet: Packet, ledger: &mut Ledger) {
        let to = from.other();
        let connection = self.connections.get_mut(&id).expect("the caller has it");
        let what = match &packet {
            Packet::Open | Packet::Probe => Arrival::Open,
            Packet::Data(data) => Arrival::Data(data.len()),
            Packet::End => Arrival::End,
            Packet::Reset => Arrival::Reset,
        };
        ledger.log(Event::Arrived { connection: id, to_client: to == Side::Client, what });
        let end = &mut connection.ends[to];
        match (end.state, packet) {
            (State::Connecting, Packet::Reset) => self.fail(id, to, io::ErrorKind::ConnectionRefused),
            (State::Connecting, _) => {
                end.state = State::Open;
                end.wake();
                self.put(id, to, Packet::Open, ledger);
            }
            (State::Open, Packet::Open) => self.establish(id, ledger),
            (State::Open, Packet::Data(data)) => {
                end.arrived.extend(data);
                end.receiver.take().into_iter().for_each(Waker::wake);
            }
            (State::Open, Packet::End) => {
                end.ended = true;
                end.receiver.take().into_iter().for_each(Waker::wake);
            }
            (State::Open, Packet::Reset) => self.fail(id, to, io::ErrorKind::ConnectionReset),
            (State::Open, Packet::Probe) | (_, Packet::Reset) | (State::Closed, Packet::End) => {}
            // This machine no longer knows the connection.
            (State::Closed | State::Failed(_) | State::Vanished, _) => {
                self.put(id, to, Packet::Reset, ledger);
            }
        }
    }

    /// The handshake is complete: the connection can be accepted.
    fn establish(&mut self, id: ConnectionId, ledger: &mut Ledger) {
        let connection = self.connections.get_mut(&id).expect("the caller has it");
        connection.established = true;
        match connection.listener.and_then(|listener| self.listeners.get_mut(&listener)) {
            Some(listening) => {
                connection.ends.server.held = true;
                listening.queue.push_back(id);
                if let Some(waker) = listening.waiting.take() {
                    waker.wake();
                }
            }
            None => {
                connection.ends.server.state = State::Closed;
                self.put(id, Side::Server, Packet::Reset, ledger);
            }
        }
    }

    pub(super) fn fail(&mut self, id: ConnectionId, side: Side, kind: io::ErrorKind) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.ends[side].state = State::Failed(kind);
        connection.pipes[side].packets.clear();
        connection.ends[side].wake();
        self.forget_if_over(id);
    }

    pub(super) fn time_out(&mut self, id: ConnectionId, side: Side, ledger: &mut Ledger) {
        if self.end(id, side).is_some_and(|end| end.is_live()) {
            ledger.fault(Fault::ConnectionTimeout);
            let to_client = side == Side::Client;
            ledger.log(Event::Arrived { connection: id, to_client, what: Arrival::TimedOut });
            self.fail(id, side, io::ErrorKind::TimedOut);
        } else if let Some(connection) = self.connections.get_mut(&id) {
            // The connection is closed, and the rest cannot be delivered.
            connection.pipes[side].packets.clear();
            self.forget_if_over(id);
        }
    }

    /// Makes a sender without acknowledgments give up in time.
    fn time_stall(&mut self, id: ConnectionId, side: Side, ledger: &mut Ledger) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let pipe = &mut connection.pipes[side];
        if !std::mem::replace(&mut pipe.timing, true) {
            let due = NetDue::GiveUp { connection: id, side, progress: pipe.progress };
            ledger.schedule_in(self.profile.user_timeout, Due::Net(due));
        }
    }

    /// Loses the last part of what `side` has sent.
    pub(super) fn lose_some(&mut self, id: ConnectionId, side: Side) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let packets = &mut connection.pipes[side].packets;
        packets.truncate(self.rng.below(packets.len() as u64 + 1) as usize);
    }

    /// One side finds the connection broken, and informs the other if it can.
    pub(super) fn break_connection(&mut self, id: ConnectionId, ledger: &mut Ledger) {
        let side = if self.rng.one_in(2) { Side::Client } else { Side::Server };
        ledger.fault(Fault::ConnectionBreak);
        self.lose_some(id, side);
        self.put(id, side, Packet::Reset, ledger);
        if let Some(end) = self.end(id, side) {
            end.state = State::Failed(io::ErrorKind::ConnectionReset);
            end.wake();
        }
    }

    pub(super) fn forget_if_over(&mut self, id: ConnectionId) {
        if self.connections.get(&id).is_some_and(Connection::is_over) {
            self.connections.remove(&id);
        }
    }
}
