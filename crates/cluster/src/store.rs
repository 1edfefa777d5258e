//! The calls of the cluster's record, the same for every engine.

use std::sync::Arc;
use std::time::Duration;

use crate::call::{Answer, Call, call};
use crate::error::Error;
use crate::etcd::EtcdTrouble;
use crate::members::MemberChange;
use crate::node_id::NodeId;
use crate::transaction::{Outcome, Revision, Transaction, Versioned};
use crate::watch::{Everything, Watch};

/// One node's access to the cluster's record. Cheap to clone; any thread may use it.
///
/// Reads are linearizable: they see every transaction whose outcome was reported to anyone before the read
/// began. A call returns an answer or an error by its deadline, which is at most
/// [`DEADLINE_MAX`](crate::limits::DEADLINE_MAX).
#[derive(Clone)]
pub struct Store {
    take: Arc<dyn Fn(Request) + Send + Sync>,
}

/// A request to an engine.
pub(crate) enum Request {
    Get { key: String, deadline: Duration, answer: Answer<Option<Versioned>> },
    List { prefix: String, deadline: Duration, answer: Answer<Everything> },
    Cas { transaction: Transaction, deadline: Duration, answer: Answer<Outcome> },
    Watch { after: Revision, answer: Answer<Watch> },
    Status { answer: Answer<Status> },
    Members { change: MemberChange, deadline: Duration, answer: Answer<()> },
}

/// The state of the record, as this node knows it without asking another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// This node; `None` with etcd.
    pub node: Option<NodeId>,
    /// The node that leads, if one does; `None` with etcd.
    pub leader: Option<u64>,
    /// The leader's term; grows with each election.
    pub term: u64,
    /// There was a quorum a short time ago: a leader is known, and this node has heard from it within an
    /// election timeout. With etcd: it has just answered a read that needs a majority.
    pub quorum: bool,
    /// This node's file was set back: it has lost what it had confirmed to others, so it no longer takes part
    /// in the record.
    pub forgotten: bool,
    /// The last change that this node knows.
    pub revision: Revision,
    /// Grows with each `force_new_cluster`.
    pub generation: u64,
    /// The nodes that vote; empty with etcd.
    pub voters: Vec<u64>,
    /// The nodes that follow without a vote; empty with etcd, which does not know its followers.
    pub learners: Vec<u64>,
    /// Why etcd cannot be used; `None`: it can.
    pub trouble: Option<EtcdTrouble>,
    /// Why this node's copy accepts no changes; `None`: it does.
    pub stalled: Option<crate::Stall>,
}

impl Store {
    pub(crate) fn new(take: impl Fn(Request) + Send + Sync + 'static) -> Store {
        Store { take: Arc::new(take) }
    }

    /// The value at `key`.
    pub fn get(&self, key: &str, deadline: Duration) -> Call<Option<Versioned>> {
        let (answer, call, deadline) = call(deadline, Error::NoQuorum);
        (self.take)(Request::Get { key: key.to_owned(), deadline, answer });
        call
    }

    /// All keys that begin with `prefix`, and the revision of this state, for a watch to start from.
    pub fn list(&self, prefix: &str, deadline: Duration) -> Call<Everything> {
        let (answer, call, deadline) = call(deadline, Error::NoQuorum);
        (self.take)(Request::List { prefix: prefix.to_owned(), deadline, answer });
        call
    }

    /// Executes `transaction` exactly once.
    pub fn cas(&self, transaction: Transaction, deadline: Duration) -> Call<Outcome> {
        let (answer, call, deadline) = call(deadline, Error::OutcomeUnknown);
        match transaction.check() {
            Ok(()) => (self.take)(Request::Cas { transaction, deadline, answer }),
            Err(invalid) => answer.send(Err(invalid.into())),
        }
        call
    }

    /// Follows all changes after `after`, as this node learns of them.
    ///
    /// A watch may lag behind the outcomes that others have received, but never reorders or skips a change.
    /// `Revision(0)`: from the beginning, or from the whole current state.
    pub fn watch(&self, after: Revision, deadline: Duration) -> Call<Watch> {
        let (answer, call, _) = call(deadline, Error::NoLeader);
        (self.take)(Request::Watch { after, answer });
        call
    }

    /// The state of the record.
    pub fn status(&self, deadline: Duration) -> Call<Status> {
        let (answer, call, _) = call(deadline, Error::NoLeader);
        (self.take)(Request::Status { answer });
        call
    }

    /// Changes which nodes follow the record and which vote; any node may be asked.
    ///
    /// A change that is already in effect succeeds. A promotion waits until the node has caught up.
    pub fn change_members(&self, change: MemberChange, deadline: Duration) -> Call<()> {
        let (answer, call, deadline) = call(deadline, Error::OutcomeUnknown);
        (self.take)(Request::Members { change, deadline, answer });
        call
    }
}

impl Request {
    /// Answers the request with `error`.
    pub(crate) fn refuse(self, error: &Error) {
        let error = error.clone();
        match self {
            Request::Get { answer, .. } => answer.send(Err(error)),
            Request::List { answer, .. } => answer.send(Err(error)),
            Request::Cas { answer, .. } => answer.send(Err(error)),
            Request::Watch { answer, .. } => answer.send(Err(error)),
            Request::Status { answer, .. } => answer.send(Err(error)),
            Request::Members { answer, .. } => answer.send(Err(error)),
        }
    }
}
