//! The record of the simulated cluster, as seen from outside of all nodes.

use std::sync::Arc;
use std::time::Duration;

use cluster::embedded::Files;
use cluster::memory::{Fault, Memory};
use cluster::{Revision, Watch};
use node::config::RecordEngine;

/// A number that no node has.
const ONLOOKER: u16 = 60;
/// The simulated record answers at once.
const DEADLINE: Duration = Duration::from_secs(1);

/// Where the record is kept.
pub enum Record {
    /// In the simulator: [`Fault::Unreachable`] determines which nodes reach it.
    Memory(Memory),
    /// On the nodes themselves, by Raft, whose messages take the same links as all others.
    Raft(Files),
}

impl Record {
    /// The engine by which nodes reach the record.
    pub fn engine(&self) -> RecordEngine {
        match self {
            Record::Memory(memory) => RecordEngine::Memory(memory.clone()),
            Record::Raft(files) => RecordEngine::Simulated(files.clone()),
        }
    }

    /// The present value of `key`.
    pub fn value(&self, key: &str) -> Option<Arc<[u8]>> {
        match self {
            Record::Memory(memory) => memory.value(key),
            Record::Raft(files) => files.value(key),
        }
    }

    /// Begins a fault of a node.
    pub fn begin(&self, node: cluster::NodeId, fault: Fault) {
        match self {
            Record::Memory(memory) => memory.begin(node, fault),
            Record::Raft(files) => files.begin(node, fault),
        }
    }

    /// Ends a fault of a node.
    pub fn end(&self, node: cluster::NodeId, fault: Fault) {
        match self {
            Record::Memory(memory) => memory.end(node, fault),
            Record::Raft(files) => files.end(node, fault),
        }
    }

    /// Follows all changes.
    pub async fn watch(&self) -> Watch {
        match self {
            Record::Memory(memory) => {
                let store = memory.store(cluster::NodeId::new(ONLOOKER).expect("not 0"));
                let watch = store.watch(Revision(0), DEADLINE).await;
                watch.expect("nothing is wrong between it and the record")
            }
            Record::Raft(files) => files.watch(Revision(0)),
        }
    }
}
