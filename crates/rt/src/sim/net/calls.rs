//! The calls of tasks to the network.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll};

use base::crc32c;

use super::connection::{Both, Connection, End, Packet, Pipe, Side, State};
use super::links::Place;
use super::network::{ConnectionId, Held, ListenerId, Listening, Net, NetDue, Token};
use crate::sim::disk::draw;
use crate::sim::ledger::{Due, Ledger};
use crate::sim::log::Event;
use crate::sim::node::NodeId;

/// The largest piece of one packet or one receive.
const PIECE_MAX: u64 = 64 << 10;

/// The ports that are assigned if none is requested.
pub(super) const EPHEMERAL_PORTS: std::ops::Range<u16> = 32_768..61_000;

/// A new connection, for the task that accepts it.
pub(super) struct Accepted {
    pub(super) token: Token,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
}

impl Net {
    pub(super) fn bind(
        &mut self,
        node: NodeId,
        address: SocketAddr,
        ledger: &mut Ledger,
    ) -> io::Result<(Token, SocketAddr)> {
        self.close_dropped(ledger);
        if !self.links.has_address(node, address.ip()) {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let mut address = address;
        if address.port() == 0 {
            address.set_port(self.free_port(node));
        }
        let clash = self.listeners.values().any(|other| {
            other.node == node
                && other.address.port() == address.port()
                && (other.address.ip() == address.ip()
                    || other.address.ip().is_unspecified()
                    || address.ip().is_unspecified())
        });
        if clash {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let id = ListenerId(self.next);
        self.next += 1;
        self.listeners.insert(id, Listening { node, address, queue: VecDeque::new(), waiting: None });
        ledger.log(Event::Listening(node, address));
        Ok((self.token(Held::Listener(id)), address))
    }

    pub(super) fn free_port(&mut self, node: NodeId) -> u16 {
        loop {
            let port = self.next_port;
            self.next_port = if port + 1 == EPHEMERAL_PORTS.end { EPHEMERAL_PORTS.start } else { port + 1 };
            let listening =
                self.listeners.values().any(|other| other.node == node && other.address.port() == port);
            let connected = self.connections.values().any(|connection| {
                let client = &connection.ends.client;
                client.is_on(node) && client.address.port() == port
            });
            if !listening && !connected {
                return port;
            }
        }
    }

    pub(super) fn connect(
        &mut self,
        node: NodeId,
        to: SocketAddr,
        ledger: &mut Ledger,
    ) -> io::Result<(Token, SocketAddr)> {
        self.close_dropped(ledger);
        let source = self.links.source(node, to.ip()).ok_or(io::ErrorKind::NetworkUnreachable)?;
        let from = SocketAddr::new(source, self.free_port(node));
        let id = ConnectionId(self.next);
        self.next += 1;
        let mut window = || self.profile.window.start + self.rng.below(self.window_spread());
        let pipes = Both { client: Pipe::new(window()), server: Pipe::new(window()) };
        let client_place = Place { node: Some(node), address: source };
        let server_place = self.links.place(node, to.ip());
        let ends = Both {
            client: End::new(client_place, from, State::Connecting),
            server: End::new(server_place, to, State::Open),
        };
        let connection = Connection { ends, pipes, listener: None, established: false, cut_since: None };
        self.connections.insert(id, connection);
        ledger.log(Event::Connecting(id, from, to));
        let delay = draw(&mut self.rng, &self.profile.delay);
        ledger.schedule(ledger.now() + delay, Due::Net(NetDue::Ask { connection: id, attempt: 0 }));
        Ok((self.token(Held::End(id, Side::Client)), from))
    }

    pub(super) fn poll_connected(
        &mut self,
        id: ConnectionId,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(end) = self.end(id, Side::Client) else { return Poll::Ready(Err(reset())) };
        match end.state {
            State::Connecting => {
                end.receiver = Some(context.waker().clone());
                Poll::Pending
            }
            State::Open => Poll::Ready(Ok(())),
            State::Failed(kind) => Poll::Ready(Err(kind.into())),
            State::Closed | State::Vanished => Poll::Ready(Err(reset())),
        }
    }

    pub(super) fn poll_accept(
        &mut self,
        id: ListenerId,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Accepted>> {
        let Some(listening) = self.listeners.get_mut(&id) else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        while let Some(id) = listening.queue.pop_front() {
            if let Some(connection) = self.connections.get(&id) {
                let [local, peer] = [&connection.ends.server, &connection.ends.client]
                    .map(|end| as_seen_by(listening.address, end.address));
                return Poll::Ready(Ok(Accepted {
                    token: self.token(Held::End(id, Side::Server)),
                    local,
                    peer,
                }));
            }
        }
        listening.waiting = Some(context.waker().clone());
        Poll::Pending
    }

    /// Passes bytes that have arrived to `take`: all, or at least one.
    pub(super) fn poll_receive<T>(
        &mut self,
        (id, side): (ConnectionId, Side),
        max: usize,
        context: &mut Context<'_>,
        ledger: &mut Ledger,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Poll<io::Result<T>> {
        let Some(end) = self.connections.get_mut(&id).map(|connection| &mut connection.ends[side]) else {
            return Poll::Ready(Err(reset()));
        };
        if end.arrived.is_empty() {
            return match end.state {
                State::Open | State::Connecting if !end.ended => {
                    end.receiver = Some(context.waker().clone());
                    Poll::Pending
                }
                State::Open | State::Connecting | State::Closed => Poll::Ready(Ok(take(&[]))),
                State::Failed(kind) => Poll::Ready(Err(kind.into())),
                State::Vanished => Poll::Ready(Err(reset())),
            };
        }
        // Usually everything, sometimes a part, sometimes a few bytes.
        let available = (end.arrived.len() as u64).min(PIECE_MAX).min(max as u64);
        let len = match self.rng.below(16) {
            0 => 1 + self.rng.below(available.min(8)),
            1..4 => 1 + self.rng.below(available),
            _ => available,
        };
        let taken = take(&end.arrived.make_contiguous()[..len as usize]);
        end.arrived.drain(..len as usize);
        ledger.log(Event::Received { connection: id, by_client: side == Side::Client, len: len as usize });
        self.credit(id, side.other(), len);
        Poll::Ready(Ok(taken))
    }

    /// Tells the sender `from` that `len` bytes were received, if it can be reached.
    pub(super) fn credit(&mut self, id: ConnectionId, from: Side, len: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let pipe = &mut connection.pipes[from];
        let (sender, receiver) = (connection.ends[from].place, connection.ends[from.other()].place);
        if self.links.is_blocked(receiver, sender) {
            pipe.owed += len;
            return;
        }
        pipe.used = pipe.used.saturating_sub(len);
        if let Some(waker) = connection.ends[from].sender.take() {
            waker.wake();
        }
    }

    /// Sends as much of `bytes[*sent..]` as the connection takes.
    pub(super) fn poll_send(
        &mut self,
        (id, side): (ConnectionId, Side),
        bytes: &[u8],
        sent: &mut usize,
        context: &mut Context<'_>,
        ledger: &mut Ledger,
    ) -> Poll<io::Result<()>> {
        loop {
            let Some(connection) = self.connections.get_mut(&id) else { return Poll::Ready(Err(reset())) };
            let (end, pipe) = (&mut connection.ends[side], &connection.pipes[side]);
            match end.state {
                State::Open => {}
                State::Failed(kind) => return Poll::Ready(Err(kind.into())),
                State::Connecting | State::Closed => {
                    return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
                }
                State::Vanished => return Poll::Ready(Err(reset())),
            }
            let rest = &bytes[*sent..];
            if rest.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let room = pipe.window.saturating_sub(pipe.used);
            if room == 0 {
                end.sender = Some(context.waker().clone());
                return Poll::Pending;
            }
            let most = room.min(rest.len() as u64).min(PIECE_MAX);
            let len = if self.rng.one_in(4) { 1 + self.rng.below(most) } else { most } as usize;
            if self.profile.break_one_in > 0 && self.rng.one_in(self.profile.break_one_in) {
                self.break_connection(id, ledger);
                continue;
            }
            let data = rest[..len].to_vec();
            let from_client = side == Side::Client;
            ledger.log(Event::Sent { connection: id, from_client, len, sum: crc32c(&data) });
            *sent += len;
            connection.pipes[side].used += len as u64;
            self.put(id, side, Packet::Data(data), ledger);
        }
    }

    /// Ends the connection in both directions, but keeps it for its holder.
    pub(super) fn shutdown(&mut self, id: ConnectionId, side: Side, ledger: &mut Ledger) {
        let Some(end) = self.end(id, side) else { return };
        if !end.is_live() {
            return;
        }
        end.state = State::Closed;
        end.wake();
        self.put(id, side, Packet::End, ledger);
    }

    /// Aborts the connection: sent data that is still on this machine is lost, and the other side is informed
    /// if it can be reached.
    pub(super) fn abort(&mut self, id: ConnectionId, side: Side, ledger: &mut Ledger) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (from, to) = (connection.ends[side].place, connection.ends[side.other()].place);
        let end = &mut connection.ends[side];
        if !matches!(end.state, State::Connecting | State::Open | State::Closed) {
            return;
        }
        end.state = State::Failed(io::ErrorKind::ConnectionReset);
        end.wake();
        if self.links.is_blocked(from, to) {
            connection.pipes[side].packets.clear();
        } else {
            self.lose_some(id, side);
            self.put(id, side, Packet::Reset, ledger);
        }
        self.forget_if_over(id);
    }

    /// Closes the end after its holder is gone. As on Linux, the other side may get a reset if there are
    /// bytes that were never received; it does not if the holder's runtime had already taken them from the
    /// kernel.
    pub(super) fn close(&mut self, id: ConnectionId, side: Side, ledger: &mut Ledger) {
        let abrupt = self.rng.one_in(2);
        let Some(end) = self.end(id, side) else { return };
        end.held = false;
        let abrupt = abrupt && !end.arrived.is_empty();
        match end.state {
            State::Connecting => end.state = State::Closed,
            State::Open => {
                end.state = State::Closed;
                if abrupt {
                    self.lose_some(id, side);
                }
                self.put(id, side, if abrupt { Packet::Reset } else { Packet::End }, ledger);
            }
            State::Closed | State::Failed(_) | State::Vanished => {}
        }
        self.forget_if_over(id);
    }

    pub(super) fn close_listener(&mut self, id: ListenerId, ledger: &mut Ledger) {
        let Some(listening) = self.listeners.remove(&id) else { return };
        if let Some(waker) = listening.waiting {
            waker.wake();
        }
        let orphans: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.listener == Some(id) && !connection.established)
            .map(|(id, _)| *id)
            .collect();
        for connection in orphans.into_iter().chain(listening.queue) {
            if let Some(end) = self.end(connection, Side::Server).filter(|end| end.is_live()) {
                end.state = State::Closed;
                end.held = false;
                self.put(connection, Side::Server, Packet::Reset, ledger);
                self.forget_if_over(connection);
            }
        }
    }

    fn window_spread(&self) -> u64 {
        (self.profile.window.end.saturating_sub(self.profile.window.start)).max(1)
    }
}

/// The address as a listener sees it: at `[::]`, IPv4 addresses are mapped ones.
fn as_seen_by(listening: SocketAddr, address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if listening.is_ipv6() => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        _ => address,
    }
}

fn reset() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}
