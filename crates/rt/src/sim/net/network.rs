//! All connections of a world.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use base::{Rng, crc32c};

use super::connection::{Both, Connection, End, Packet, Pipe, Side, State};
use super::links::{Links, NetProfile};
use crate::sim::disk::draw;
use crate::sim::fault::Fault;
use crate::sim::ledger::{Due, Ledger};
use crate::sim::log::{Arrival, Event};
use crate::sim::node::NodeId;

/// Connections that wait to be accepted, at most; what production asks for.
const BACKLOG_MAX: usize = 4096;

/// A client asks so often, after 1, 2, 4 … s: Linux gives up after 127 s.
const CONNECT_ATTEMPTS_MAX: u32 = 7;

/// A sender that hears nothing tries again after a time that doubles from the first to the second of these.
const RETRY_NANOS: (u64, u64) = (200_000_000, 120_000_000_000);

/// The largest piece that one packet carries, and the largest that one receive gives.
const PIECE_MAX: u64 = 64 << 10;

/// The first port that is given out when none is asked for.
const EPHEMERAL_PORTS: std::ops::Range<u16> = 32_768..61_000;

/// The number of a connection in its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::sim) struct ConnectionId(u64);

/// The number of a listener in its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ListenerId(u64);

/// What the network will do at some time.
#[derive(Clone, Copy, Debug)]
pub(in crate::sim) enum NetDue {
    /// A client asks for its connection.
    Ask { connection: ConnectionId, attempt: u32 },
    /// Packets of `from` arrive.
    Deliver { connection: ConnectionId, from: Side },
    /// The end has waited long enough for acknowledgements.
    GiveUp { connection: ConnectionId, side: Side, progress: u64 },
    /// The end was idle and cut off for long enough.
    KeepAlive { connection: ConnectionId, side: Side, cut_since: u64 },
    /// The end asks whether the other one still knows the connection.
    Probe { connection: ConnectionId, side: Side },
}

/// What a task holds; when it is dropped, the network closes what it stands for.
pub(super) struct Token {
    pub(super) what: Held,
    dropped: Dropped,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    Listener(ListenerId),
    End(ConnectionId, Side),
}

/// What was dropped and is still to be closed. Shared, because a stream may be dropped anywhere.
type Dropped = Arc<Mutex<Vec<Held>>>;

impl Drop for Token {
    fn drop(&mut self) {
        self.dropped.lock().expect("no code panics while it holds the list").push(self.what);
    }
}

struct Listening {
    node: NodeId,
    address: SocketAddr,
    queue: VecDeque<ConnectionId>,
    waiting: Option<Waker>,
}

pub(in crate::sim) struct Net {
    pub(super) profile: NetProfile,
    pub(super) links: Links,
    connections: BTreeMap<ConnectionId, Connection>,
    listeners: BTreeMap<ListenerId, Listening>,
    dropped: Dropped,
    rng: Rng,
    next: u64,
    next_port: u16,
}

impl Net {
    pub(in crate::sim) fn new(rng: Rng) -> Net {
        Net {
            profile: NetProfile::default(),
            links: Links::default(),
            connections: BTreeMap::new(),
            listeners: BTreeMap::new(),
            dropped: Dropped::default(),
            rng,
            next: 0,
            next_port: EPHEMERAL_PORTS.start,
        }
    }

    fn token(&self, what: Held) -> Token {
        Token { what, dropped: Arc::clone(&self.dropped) }
    }

    /// Closes what tasks have dropped.
    pub(in crate::sim) fn close_dropped(&mut self, ledger: &mut Ledger) {
        let dropped =
            std::mem::take(&mut *self.dropped.lock().expect("no code panics while it holds the list"));
        for held in dropped {
            match held {
                Held::Listener(listener) => self.close_listener(listener, ledger),
                Held::End(connection, side) => self.close(connection, side, ledger),
            }
        }
    }

    // What tasks do.

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

    fn free_port(&mut self, node: NodeId) -> u16 {
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
        let client_place = super::links::Place { node: Some(node), address: source };
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

    /// Gives what has arrived, some of it at least, to `take`.
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
        // Usually all there is, sometimes a part, sometimes a few bytes.
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

    /// Tells the sender of `from` that `len` bytes were received, if it can be told.
    fn credit(&mut self, id: ConnectionId, from: Side, len: u64) {
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

    /// Sends from `bytes[*sent..]` what the connection takes.
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

    /// The holder is gone. As with Linux, the other side may get a reset if there are bytes that nobody received;
    /// it does not if the holder's runtime had taken them from the kernel already.
    fn close(&mut self, id: ConnectionId, side: Side, ledger: &mut Ledger) {
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

    fn close_listener(&mut self, id: ListenerId, ledger: &mut Ledger) {
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

    // What the network does.

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

    /// Puts a packet on its way.
    fn put(&mut self, id: ConnectionId, from: Side, packet: Packet, ledger: &mut Ledger) {
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
            // Nobody here knows this connection any more.
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

    fn fail(&mut self, id: ConnectionId, side: Side, kind: io::ErrorKind) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.ends[side].state = State::Failed(kind);
        connection.pipes[side].packets.clear();
        connection.ends[side].wake();
        self.forget_if_over(id);
    }

    fn time_out(&mut self, id: ConnectionId, side: Side, ledger: &mut Ledger) {
        if self.end(id, side).is_some_and(|end| end.is_live()) {
            ledger.fault(Fault::ConnectionTimeout);
            let to_client = side == Side::Client;
            ledger.log(Event::Arrived { connection: id, to_client, what: Arrival::TimedOut });
            self.fail(id, side, io::ErrorKind::TimedOut);
        } else if let Some(connection) = self.connections.get_mut(&id) {
            // Closed, and the rest cannot be delivered.
            connection.pipes[side].packets.clear();
            self.forget_if_over(id);
        }
    }

    /// Sees to it that a sender that hears nothing gives up in time.
    fn time_stall(&mut self, id: ConnectionId, side: Side, ledger: &mut Ledger) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let pipe = &mut connection.pipes[side];
        if !std::mem::replace(&mut pipe.timing, true) {
            let due = NetDue::GiveUp { connection: id, side, progress: pipe.progress };
            ledger.schedule_in(self.profile.user_timeout, Due::Net(due));
        }
    }

    /// The last of what `side` has sent is lost.
    fn lose_some(&mut self, id: ConnectionId, side: Side) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let packets = &mut connection.pipes[side].packets;
        packets.truncate(self.rng.below(packets.len() as u64 + 1) as usize);
    }

    /// One side finds the connection broken, and tells the other if it can.
    fn break_connection(&mut self, id: ConnectionId, ledger: &mut Ledger) {
        let side = if self.rng.one_in(2) { Side::Client } else { Side::Server };
        ledger.fault(Fault::ConnectionBreak);
        self.lose_some(id, side);
        self.put(id, side, Packet::Reset, ledger);
        if let Some(end) = self.end(id, side) {
            end.state = State::Failed(io::ErrorKind::ConnectionReset);
            end.wake();
        }
    }

    fn forget_if_over(&mut self, id: ConnectionId) {
        if self.connections.get(&id).is_some_and(Connection::is_over) {
            self.connections.remove(&id);
        }
    }

    // What scenarios and machines do.

    /// Breaks all connections between two nodes; returns how many there were.
    pub(in crate::sim) fn break_between(&mut self, a: NodeId, b: NodeId, ledger: &mut Ledger) -> usize {
        let between: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, connection)| {
                let (client, server) = (&connection.ends.client, &connection.ends.server);
                connection.established
                    && (client.is_on(a) && server.is_on(b) || client.is_on(b) && server.is_on(a))
            })
            .map(|(id, _)| *id)
            .collect();
        between.iter().for_each(|id| self.break_connection(*id, ledger));
        between.len()
    }

    pub(in crate::sim) fn set_profile(&mut self, profile: NetProfile) {
        assert!(profile.window.start > 0, "a connection without a window carries nothing");
        self.profile = profile;
    }

    pub(in crate::sim) fn add_address(&mut self, node: NodeId, address: IpAddr) {
        self.links.add_address(node, address);
    }

    pub(in crate::sim) fn set_cut(&mut self, from: NodeId, to: NodeId, cut: bool, ledger: &mut Ledger) {
        ledger.log(if cut { Event::Cut(from, to) } else { Event::Healed(from, to) });
        self.links.set_cut(from, to, cut);
        self.paths_changed(ledger);
    }

    pub(in crate::sim) fn set_address_cut(
        &mut self,
        from: IpAddr,
        to: IpAddr,
        cut: bool,
        ledger: &mut Ledger,
    ) {
        self.links.set_address_cut(from, to, cut);
        self.paths_changed(ledger);
    }

    pub(in crate::sim) fn heal_all(&mut self, ledger: &mut Ledger) {
        self.links.heal_all();
        self.paths_changed(ledger);
    }

    /// The process of `node` is gone: its kernel closes everything.
    pub(in crate::sim) fn end_process(&mut self, node: NodeId, ledger: &mut Ledger) {
        self.close_dropped(ledger);
        for listener in self.listeners_of(node) {
            self.close_listener(listener, ledger);
        }
        for (id, side) in self.ends_of(node) {
            self.close(id, side, ledger);
        }
    }

    /// The machine of `node` is without power: it says nothing more and forgets everything.
    pub(in crate::sim) fn power_off(&mut self, node: NodeId, ledger: &mut Ledger) {
        self.close_dropped(ledger);
        for listener in self.listeners_of(node) {
            self.listeners.remove(&listener);
        }
        self.links.set_power(node, false);
        for (id, side) in self.ends_of(node) {
            self.lose_some(id, side);
            // Gone already if both of its ends were on this machine.
            let Some(end) = self.end(id, side) else { continue };
            end.state = State::Vanished;
            end.held = false;
            end.wake();
            self.forget_if_over(id);
        }
        self.paths_changed(ledger);
    }

    pub(in crate::sim) fn power_on(&mut self, node: NodeId, ledger: &mut Ledger) {
        self.links.set_power(node, true);
        self.paths_changed(ledger);
    }

    /// Something was cut or healed: looks after every connection that it concerns.
    fn paths_changed(&mut self, ledger: &mut Ledger) {
        let ids: Vec<_> = self.connections.keys().copied().collect();
        for id in ids {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            let (client, server) = (connection.ends.client.place, connection.ends.server.place);
            let there = self.links.is_blocked(client, server);
            let back = self.links.is_blocked(server, client);
            for (from, blocked, deaf) in [(Side::Client, there, back), (Side::Server, back, there)] {
                let pipe = &mut connection.pipes[from];
                if !blocked && std::mem::take(&mut pipe.blocked) {
                    pipe.scheduled = true;
                    // The time between two attempts is about as long as it has tried.
                    let tried = ledger.now() - connection.cut_since.unwrap_or(ledger.now());
                    let again = ledger.now() + self.rng.below(tried.clamp(RETRY_NANOS.0, RETRY_NANOS.1));
                    ledger.schedule(again, Due::Net(NetDue::Deliver { connection: id, from }));
                }
                if !deaf && std::mem::take(&mut pipe.unacknowledged) {
                    pipe.progress += 1;
                }
                if !deaf && pipe.owed > 0 {
                    pipe.used = pipe.used.saturating_sub(std::mem::take(&mut pipe.owed));
                    if let Some(waker) = connection.ends[from].sender.take() {
                        waker.wake();
                    }
                }
            }
            match (there || back, connection.cut_since) {
                (true, None) => {
                    let cut_since = ledger.now();
                    connection.cut_since = Some(cut_since);
                    for side in Side::BOTH {
                        let jitter = Duration::from_nanos(self.rng.below(1_000_000_000));
                        let due = NetDue::KeepAlive { connection: id, side, cut_since };
                        ledger.schedule_in(self.profile.keep_alive + jitter, Due::Net(due));
                    }
                }
                (false, Some(_)) => {
                    connection.cut_since = None;
                    for side in Side::BOTH {
                        let wait = self.rng.below(self.profile.keep_alive.as_nanos() as u64 + 1);
                        let due = NetDue::Probe { connection: id, side };
                        ledger.schedule_in(Duration::from_nanos(wait), Due::Net(due));
                    }
                }
                _ => {}
            }
        }
    }

    fn window_spread(&self) -> u64 {
        (self.profile.window.end.saturating_sub(self.profile.window.start)).max(1)
    }

    fn end(&mut self, id: ConnectionId, side: Side) -> Option<&mut End> {
        self.connections.get_mut(&id).map(|connection| &mut connection.ends[side])
    }

    fn listeners_of(&self, node: NodeId) -> Vec<ListenerId> {
        self.listeners.iter().filter(|(_, listening)| listening.node == node).map(|(id, _)| *id).collect()
    }

    fn ends_of(&self, node: NodeId) -> Vec<(ConnectionId, Side)> {
        let of = |id: &ConnectionId, connection: &Connection| {
            let (id, on) = (*id, Side::BOTH.map(|side| connection.ends[side].is_on(node)));
            Side::BOTH.into_iter().zip(on).filter(|(_, on)| *on).map(move |(side, _)| (id, side))
        };
        self.connections.iter().flat_map(|(id, connection)| of(id, connection)).collect()
    }
}

/// A new connection, for the task that accepts it.
pub(super) struct Accepted {
    pub(super) token: Token,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
}

/// A listener at `[::]` sees IPv4 addresses as mapped ones.
fn as_seen_by(listening: SocketAddr, address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if listening.is_ipv6() => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        _ => address,
    }
}

fn reset() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}
