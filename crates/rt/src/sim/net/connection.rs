//! One connection: two ends, and the bytes between them.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::ops::{Index, IndexMut};
use std::task::Waker;

use super::links::Place;
use super::network::ListenerId;
use crate::sim::node::NodeId;

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::sim) enum Side {
    Client,
    Server,
}

impl Side {
    pub(super) const BOTH: [Side; 2] = [Side::Client, Side::Server];

    pub(super) fn other(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}

/// A value for each side.
pub(super) struct Both<T> {
    pub(super) client: T,
    pub(super) server: T,
}

impl<T> Index<Side> for Both<T> {
    type Output = T;
    fn index(&self, side: Side) -> &T {
        match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }
}

impl<T> IndexMut<Side> for Both<T> {
    fn index_mut(&mut self, side: Side) -> &mut T {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }
}

/// The state of an end, as its machine's kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The client waits for an answer.
    Connecting,
    /// Bytes can be sent and received.
    Open,
    /// Shut down or closed from this side; what was sent before is still delivered.
    Closed,
    /// Reset, refused or timed out.
    Failed(io::ErrorKind),
    /// The machine was without power and has forgotten it.
    Vanished,
}

pub(super) struct End {
    pub(super) place: Place,
    pub(super) address: SocketAddr,
    pub(super) state: State,
    /// A task holds it, or it waits to be accepted.
    pub(super) held: bool,
    /// Bytes that have arrived and were not received yet.
    pub(super) arrived: VecDeque<u8>,
    /// The other side has closed its direction, and everything before that has arrived.
    pub(super) ended: bool,
    /// The task that waits for bytes to arrive, or for the connection to be established.
    pub(super) receiver: Option<Waker>,
    /// The task that waits for room to send.
    pub(super) sender: Option<Waker>,
}

impl End {
    pub(super) fn new(place: Place, address: SocketAddr, state: State) -> End {
        End {
            place,
            address,
            state,
            held: state == State::Connecting,
            arrived: VecDeque::new(),
            ended: false,
            receiver: None,
            sender: None,
        }
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self.state, State::Connecting | State::Open)
    }

    pub(super) fn is_on(&self, node: NodeId) -> bool {
        self.place.node == Some(node)
    }

    pub(super) fn wake(&mut self) {
        let wakers = [self.receiver.take(), self.sender.take()];
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

#[derive(Debug)]
pub(super) enum Packet {
    /// The answer of the handshake, and the answer to that.
    Open,
    Data(Vec<u8>),
    /// FIN: nothing follows it.
    End,
    /// RST: not repeated if it is lost.
    Reset,
    /// A keep-alive, which finds out whether the other side still knows the connection.
    Probe,
}

/// One direction of a connection: the bytes between its sender and its receiver.
#[derive(Default)]
pub(super) struct Pipe {
    /// Packets on their way, with their arrival times.
    pub(super) packets: VecDeque<(u64, Packet)>,
    /// The arrival time of the last packet: none overtakes it.
    pub(super) last_arrival: u64,
    /// The delivery of the first packet is on the agenda.
    pub(super) scheduled: bool,
    /// The first packet could not be delivered.
    pub(super) blocked: bool,
    /// Bytes that were sent and, as far as the sender knows, not received by a task.
    pub(super) used: u64,
    /// Bytes that were received while the sender could not be informed.
    pub(super) owed: u64,
    /// Packets were delivered while the sender could not be informed.
    pub(super) unacknowledged: bool,
    /// Counts acknowledgments, so that a timeout can tell whether there were any.
    pub(super) progress: u64,
    /// A timeout is on the agenda.
    pub(super) timing: bool,
    /// The limit of `used`.
    pub(super) window: u64,
}

impl Pipe {
    pub(super) fn new(window: u64) -> Pipe {
        Pipe { window, ..Pipe::default() }
    }

    pub(super) fn is_stalled(&self) -> bool {
        self.blocked || self.unacknowledged
    }
}

pub(super) struct Connection {
    pub(super) ends: Both<End>,
    /// By sender.
    pub(super) pipes: Both<Pipe>,
    pub(super) listener: Option<ListenerId>,
    /// The handshake is complete on the server's side.
    pub(super) established: bool,
    /// Since when its two machines have not been able to reach each other in both directions.
    pub(super) cut_since: Option<u64>,
}

impl Connection {
    /// Whether the connection can no longer have any effect.
    pub(super) fn is_over(&self) -> bool {
        let forgotten = |end: &End| !end.is_live() && !end.held;
        let orphan = !self.established
            && forgotten(&self.ends.client)
            && self.pipes.client.packets.is_empty()
            && self.pipes.server.packets.is_empty();
        orphan || forgotten(&self.ends.client) && forgotten(&self.ends.server)
    }
}
