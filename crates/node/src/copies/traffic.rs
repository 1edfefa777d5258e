//! Bytes of payload that nodes send each other, counted separately for hosts' writes and for resyncs.

use std::collections::BTreeMap;

use replica::{Envelope, Message, NodeId, Payload};

/// Bytes of payload to and from one node, in this life of this node.
///
/// A write that is sent again counts again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Hosts' writes that were sent to the node.
    pub writes_sent: u64,
    /// Hosts' writes that came from the node.
    pub writes_received: u64,
    /// Resync data that was sent to the node.
    pub sync_sent: u64,
    /// Resync data that came from the node.
    pub sync_received: u64,
}

impl Traffic {
    /// Counts a message to the node.
    pub fn count_sent(&mut self, envelope: &Envelope) {
        match &envelope.message {
            Message::Invalidate { payload, .. } => self.writes_sent += bytes(payload),
            Message::SyncRegion { payload, .. } => self.sync_sent += bytes(payload),
            _ => {}
        }
    }

    /// Counts a message from the node.
    pub fn count_received(&mut self, envelope: &Envelope) {
        match &envelope.message {
            Message::Invalidate { payload, .. } => self.writes_received += bytes(payload),
            Message::SyncRegion { payload, .. } => self.sync_received += bytes(payload),
            _ => {}
        }
    }

    fn add(&mut self, other: Traffic) {
        self.writes_sent += other.writes_sent;
        self.writes_received += other.writes_received;
        self.sync_sent += other.sync_sent;
        self.sync_received += other.sync_received;
    }
}

/// The traffic of all cores together.
pub fn sum(by_core: impl IntoIterator<Item = BTreeMap<NodeId, Traffic>>) -> BTreeMap<NodeId, Traffic> {
    let mut all: BTreeMap<NodeId, Traffic> = BTreeMap::new();
    for (node, traffic) in by_core.into_iter().flatten() {
        all.entry(node).or_default().add(traffic);
    }
    all
}

fn bytes(payload: &Payload) -> u64 {
    payload.bytes() as u64
}
