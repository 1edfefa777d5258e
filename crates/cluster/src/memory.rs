//! The simulator's engine: one record in the process, which all nodes share. Only the order of the calls
//! decides what happens. A node can be cut off, its answers can get lost, and its watches can be held up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::error::Error;
use crate::limits::{CALLS_MAX, WATCHES_MAX};
use crate::members::Members;
use crate::node_id::NodeId;
use crate::record::{Applied, Record};
use crate::store::{Request, Status, Store};
use crate::transaction::{Outcome, Transaction};
use crate::watch::{Change, Everything, Watches};

/// The record of a simulated cluster. Cheap to clone.
#[derive(Clone)]
pub struct Memory(Arc<Mutex<Shared>>);

base::shows!(Debug for Memory, |it| "Memory at {:?}", it.lock().record.revision());

struct Shared {
    record: Record,
    members: Members,
    nodes: BTreeMap<NodeId, Node>,
}

/// The record's view of a node.
struct Node {
    watches: Watches,
    /// The record as its watches know it.
    told: Everything,
    /// Changes that its watches have not received yet.
    held: Vec<Change>,
    faults: BTreeSet<Fault>,
    /// Calls that it made while it was cut off.
    parked: Vec<Request>,
}

/// A fault between a node and the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Only calls that the node itself can answer are answered, and its watches see nothing new. Calls whose
    /// callers have given up may take effect when the fault ends.
    Unreachable,
    /// Transactions take effect, but their callers never learn of it.
    AnswersLost,
    /// Transactions never take effect, and their callers never learn of it. Not for nodes with files.
    RequestsLost,
    /// Calls are answered, but watches see nothing until the fault ends.
    WatchHeld,
    /// The file of the node's copy accepts no writes: its file system is full. Only for nodes with files.
    DiskFull,
}

impl Memory {
    /// An empty record, and a cluster of `nodes`, which all vote.
    pub fn new(nodes: impl IntoIterator<Item = NodeId>) -> Memory {
        let members = Members { voters: nodes.into_iter().collect(), ..Members::default() };
        let shared = Shared { record: Record::default(), members, nodes: BTreeMap::new() };
        Memory(Arc::new(Mutex::new(shared)))
    }

    /// Another record, with the present contents of this one, for a world that goes on from here.
    #[must_use]
    pub fn copied(&self) -> Memory {
        let shared = self.lock();
        let (record, members) = (shared.record.clone(), shared.members.clone());
        Memory(Arc::new(Mutex::new(Shared { record, members, nodes: BTreeMap::new() })))
    }

    /// The calls of `node`.
    pub fn store(&self, node: NodeId) -> Store {
        self.lock().node(node);
        let memory = self.clone();
        Store::new(move |request| memory.lock().request(node, request))
    }

    /// Starts a fault of `node`.
    pub fn begin(&self, node: NodeId, fault: Fault) {
        self.lock().node(node).faults.insert(fault);
    }

    /// Ends a fault of `node`: what it held up happens now.
    pub fn end(&self, node: NodeId, fault: Fault) {
        let mut shared = self.lock();
        shared.node(node).faults.remove(&fault);
        shared.tell(node);
        if !shared.node(node).faults.contains(&Fault::Unreachable) {
            let parked = std::mem::take(&mut shared.node(node).parked);
            parked.into_iter().for_each(|request| shared.request(node, request));
        }
    }

    /// The record's current value at `key`, for an observer outside of all nodes.
    pub fn value(&self, key: &str) -> Option<Arc<[u8]>> {
        self.lock().record.get(key).map(|entry| Arc::clone(&entry.value))
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().expect("no code panics while it holds the record")
    }
}

impl Shared {
    fn node(&mut self, id: NodeId) -> &mut Node {
        let now = self.record.everything();
        self.nodes.entry(id).or_insert_with(|| Node {
            watches: Watches::new(now.revision),
            told: now.clone(),
            held: Vec::new(),
            faults: BTreeSet::new(),
            parked: Vec::new(),
        })
    }

    fn request(&mut self, id: NodeId, request: Request) {
        let node = self.node(id);
        let local = matches!(request, Request::Status { .. } | Request::Watch { .. });
        if node.faults.contains(&Fault::RequestsLost) && matches!(request, Request::Cas { .. }) {
            // Dropping it would report the loss; the caller must only find out at its deadline.
            return std::mem::forget(request);
        }
        if node.faults.contains(&Fault::Unreachable) && !local {
            // The caller gives up at its deadline.
            return if node.parked.len() < CALLS_MAX {
                node.parked.push(request);
            } else {
                request.refuse(&Error::Busy);
            };
        }
        match request {
            Request::Get { key, answer, .. } => answer.send(Ok(self.record.get(&key).cloned())),
            Request::List { prefix, answer, .. } => {
                let entries = self.record.list(&prefix).map(|(key, it)| (key.clone(), it.clone())).collect();
                answer.send(Ok(Everything { revision: self.record.revision(), entries }));
            }
            Request::Cas { transaction, answer, .. } => {
                let result = self.cas(&transaction);
                let lost = self.node(id).faults.contains(&Fault::AnswersLost);
                // Dropping `answer` would report the loss; the caller must only find out at its deadline.
                if lost { std::mem::forget(answer) } else { answer.send(result) }
            }
            Request::Watch { after, answer } => {
                let node = self.node(id);
                let full = node.watches.count() >= WATCHES_MAX;
                answer.send(if full { Err(Error::Busy) } else { Ok(node.watches.watch(after, &node.told)) });
            }
            Request::Status { answer, .. } => answer.send(Ok(self.status(id))),
            Request::Members { change, answer, .. } => {
                let after = self.members.after(change);
                answer.send(after.map(|after| self.members = after).map_err(Error::from));
            }
        }
    }

    fn cas(&mut self, transaction: &Transaction) -> Result<Outcome, Error> {
        let seen = self.record.sequence();
        match self.record.apply(transaction, seen) {
            Applied::Done { outcome, again } => {
                if let (Outcome::Committed(revision), false) = (&outcome, again) {
                    let written = |key: &String| self.record.get(key).map(|entry| entry.value.clone());
                    let keys = transaction.writes.iter().map(|(key, _)| key);
                    let writes = keys.map(|key| (key.clone(), written(key))).collect();
                    let change = Change { revision: *revision, writes };
                    self.nodes.values_mut().for_each(|node| node.held.push(change.clone()));
                    let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
                    nodes.into_iter().for_each(|node| self.tell(node));
                }
                Ok(outcome)
            }
            Applied::Full => Err(Error::Full),
            Applied::TooOld => Err(Error::OutcomeUnknown),
        }
    }

    /// Sends the watches of `id` the changes they have not received, unless a fault holds them up.
    fn tell(&mut self, id: NodeId) {
        let node = self.node(id);
        if !node.faults.contains(&Fault::Unreachable) && !node.faults.contains(&Fault::WatchHeld) {
            for change in std::mem::take(&mut node.held) {
                node.told.change(&change);
                node.watches.change(change, &node.told);
            }
        }
    }

    fn status(&mut self, id: NodeId) -> Status {
        let reachable = !self.node(id).faults.contains(&Fault::Unreachable);
        let numbers = |nodes: &BTreeSet<NodeId>| nodes.iter().map(|node| node.raft()).collect();
        let leader = self.members.voters.first().filter(|_| reachable).map(|node| node.raft());
        Status {
            node: Some(id),
            leader,
            term: 1,
            quorum: leader.is_some(),
            forgotten: false,
            revision: self.nodes[&id].told.revision,
            generation: 1,
            voters: numbers(&self.members.voters),
            learners: numbers(&self.members.learners),
            trouble: None,
            stalled: None,
        }
    }
}
