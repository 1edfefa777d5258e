//! All connections of a world.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use base::Rng;

use super::calls::EPHEMERAL_PORTS;
use super::connection::{Connection, End, Side};
use super::links::{Links, NetProfile};
use crate::sim::ledger::Ledger;
use crate::sim::node::NodeId;

/// The number of a connection in its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::sim) struct ConnectionId(pub(super) u64);

/// The number of a listener in its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ListenerId(pub(super) u64);

/// What the network will do at some time.
#[derive(Clone, Copy, Debug)]
pub(in crate::sim) enum NetDue {
    /// A client asks for its connection.
    Ask { connection: ConnectionId, attempt: u32 },
    /// Packets of `from` arrive.
    Deliver { connection: ConnectionId, from: Side },
    /// The end has waited long enough for acknowledgments.
    GiveUp { connection: ConnectionId, side: Side, progress: u64 },
    /// The end was idle and cut off for long enough.
    KeepAlive { connection: ConnectionId, side: Side, cut_since: u64 },
    /// The end checks whether the other one still knows the connection.
    Probe { connection: ConnectionId, side: Side },
}

/// Held by a task for a listener or an end; when the task drops it, the network closes that.
pub(super) struct Token {
    pub(super) what: Held,
    dropped: Dropped,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    Listener(ListenerId),
    End(ConnectionId, Side),
}

/// Dropped listeners and ends that are still to be closed. Shared, because a stream may be dropped anywhere.
type Dropped = Arc<Mutex<Vec<Held>>>;

impl Drop for Token {
    fn drop(&mut self) {
        self.dropped.lock().expect("no code panics while it holds the list").push(self.what);
    }
}

pub(super) struct Listening {
    pub(super) node: NodeId,
    pub(super) address: SocketAddr,
    /// Connections that wait to be accepted, oldest first.
    pub(super) queue: VecDeque<ConnectionId>,
    /// The task that waits for one.
    pub(super) waiting: Option<Waker>,
}

pub(in crate::sim) struct Net {
    pub(super) profile: NetProfile,
    pub(super) links: Links,
    pub(super) connections: BTreeMap<ConnectionId, Connection>,
    pub(super) listeners: BTreeMap<ListenerId, Listening>,
    dropped: Dropped,
    pub(super) rng: Rng,
    /// The number of the next connection or listener.
    pub(super) next: u64,
    pub(super) next_port: u16,
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

    pub(super) fn token(&self, what: Held) -> Token {
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

    pub(super) fn end(&mut self, id: ConnectionId, side: Side) -> Option<&mut End> {
        self.connections.get_mut(&id).map(|connection| &mut connection.ends[side])
    }

    pub(super) fn listeners_of(&self, node: NodeId) -> Vec<ListenerId> {
        self.listeners.iter().filter(|(_, listening)| listening.node == node).map(|(id, _)| *id).collect()
    }

    pub(super) fn ends_of(&self, node: NodeId) -> Vec<(ConnectionId, Side)> {
        let of = |id: &ConnectionId, connection: &Connection| {
            let (id, on) = (*id, Side::BOTH.map(|side| connection.ends[side].is_on(node)));
            Side::BOTH.into_iter().zip(on).filter(|(_, on)| *on).map(move |(side, _)| (id, side))
        };
        self.connections.iter().flat_map(|(id, connection)| of(id, connection)).collect()
    }
}
