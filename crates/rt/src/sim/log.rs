//! The event log: the last events for people, and a hash of all events to compare two runs.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;

use base::Instant;

use super::disk::DiskNumber;
use super::fault::Fault;
use super::net::ConnectionId;
use super::node::NodeId;
use crate::CoreId;

/// The number of events kept for printing: some milliseconds of a busy world.
const EVENTS_MAX: usize = 4096;

/// Something that happened.
#[derive(Clone, Debug, Hash)]
pub(super) enum Event {
    Started(NodeId),
    Stopped(NodeId),
    Resumed(NodeId),
    /// A core ran this many tasks.
    Turn(NodeId, CoreId, usize),
    Fault(Fault),
    Opened(NodeId, DiskNumber),
    DiskOp {
        disk: DiskNumber,
        op: u64,
        what: DiskOp,
        offset: u64,
        len: u64,
    },
    DiskDone {
        disk: DiskNumber,
        op: u64,
        ok: bool,
        sum: u32,
    },
    Listening(NodeId, SocketAddr),
    Connecting(ConnectionId, SocketAddr, SocketAddr),
    Sent {
        connection: ConnectionId,
        from_client: bool,
        len: usize,
        sum: u32,
    },
    Arrived {
        connection: ConnectionId,
        to_client: bool,
        what: Arrival,
    },
    Received {
        connection: ConnectionId,
        by_client: bool,
        len: usize,
    },
    Cut(NodeId, NodeId),
    Healed(NodeId, NodeId),
    /// A note from the scenario.
    Note(String),
}

#[derive(Clone, Copy, Debug, Hash)]
pub(super) enum DiskOp {
    Read,
    Write,
    DurableWrite,
    Zero,
    Flush,
}

#[derive(Clone, Copy, Debug, Hash)]
pub(super) enum Arrival {
    Open,
    Data(usize),
    End,
    Reset,
    TimedOut,
}

pub(super) struct Log {
    last: VecDeque<(u64, Event)>,
    hash: Fnv,
    count: u64,
}

impl Log {
    pub(super) fn new(seed: u64) -> Log {
        let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
        seed.hash(&mut hash);
        Log { last: VecDeque::with_capacity(EVENTS_MAX), hash, count: 0 }
    }

    pub(super) fn add(&mut self, time: u64, event: Event) {
        (time, &event).hash(&mut self.hash);
        self.count += 1;
        if self.last.len() == EVENTS_MAX {
            self.last.pop_front();
        }
        self.last.push_back((time, event));
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash.finish()
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The last `count` events, one per line.
    pub(super) fn tail(&self, count: usize) -> impl fmt::Display + '_ {
        fmt::from_fn(move |f| {
            let skipped = self.last.len().saturating_sub(count);
            for (time, event) in self.last.iter().skip(skipped) {
                writeln!(f, "{} {event:?}", Instant(*time))?;
            }
            Ok(())
        })
    }
}

/// FNV-1a. The standard library's hasher does not guarantee to stay the same.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
