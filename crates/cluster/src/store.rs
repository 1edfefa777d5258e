//! The calls of the cluster's record, the same for every engine.

use std::sync::Arc;
use std::time::Duration;

use crate::call::{Answer, Call, call};
use crate::error::Error;
use crate::members::MemberChange;
use crate::node_id::NodeId;
use crate::transaction::{Outcome, Revision, Transaction, Versioned};
use crate::watch::{Everything, Watch};

/// The cluster's record as one node reaches it. Cheap to clone; any thread may use it.
///
/// Reads are linearizable: they see every transaction whose outcome anybody was told before the read began. A
/// call has an answer or an error at its deadline at the latest, which is at most
/// [`DEADLINE_MAX`](crate::limits::DEADLINE_MAX).
#[derive(Clone)]
pub struct Store {
    take: Arc<dyn Fn(Request) + Send + Sync>,
}

/// What an engine is asked for.
pub(crate) enum Request {
    Get { key: String, deadline: Duration, answer: Answer<Option<Versioned>> },
    List { prefix: String, deadline: Duration, answer: Answer<Everything> },
    Cas { transaction: Transaction, deadline: Duration, answer: Answer<Outcome> },
    Watch { after: Revision, answer: Answer<Watch> },
    Status { answer: Answer<Status> },
    Members { change: MemberChange, deadline: Duration, answer: Answer<()> },
}

/// How the record is doing, as this node sees it without asking anybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// This node; of etcd: nobody.
    pub node: Option<NodeId>,
    /// Which node leads, if one does; with etcd none does.
    pub leader: Option<u64>,
    /// Of the leader; grows with each election.
    pub term: u64,
    /// A leader is known and was heard of within an election's time, so that there was a quorum then; or etcd
    /// has just answered what only its majority can.
    pub quorum: bool,
    /// This node's file was set back: it has forgotten what it had confirmed to others, and so has no part in
    /// the record any more.
    pub forgotten: bool,
    /// Of the last change that this node knows of.
    pub revision: Revision,
    /// Grows with each `force_new_cluster`.
    pub generation: u64,
    /// Nodes whose words count; with etcd none's does.
    pub voters: Vec<u64>,
    /// Nodes that follow besides; with etcd they follow unknown to it.
    pub learners: Vec<u64>,
    /// Why etcd cannot be used, where it cannot.
    pub trouble: Option<String>,
    /// Why this node's copy takes no changes, where it does not.
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

    /// All keys that begin with `prefix`, and the revision at which they were so, to watch from.
    pub fn list(&self, prefix: &str, deadline: Duration) -> Call<Everything> {
        let (answer, call, deadline) = call(deadline, Error::NoQuorum);
        (self.take)(Request::List { prefix: prefix.to_owned(), deadline, answer });
        call
    }

    /// Carries out `transaction`, once.
    pub fn cas(&self, transaction: Transaction, deadline: Duration) -> Call<Outcome> {
        let (answer, call, deadline) = call(deadline, Error::OutcomeUnknown);
        match transaction.check() {
            Ok(()) => (self.take)(Request::Cas { transaction, deadline, answer }),
            Err(invalid) => answer.send(Err(invalid.into())),
        }
        call
    }

    /// Follows all changes after `after`, as this node learns of them. It may lag behind what others were
    /// told; it never reorders or skips. `Revision(0)`: from the beginning, or from all there is.
    pub fn watch(&self, after: Revision, deadline: Duration) -> Call<Watch> {
        let (answer, call, _) = call(deadline, Error::NoLeader);
        (self.take)(Request::Watch { after, answer });
        call
    }

    /// How the record is doing.
    pub fn status(&self, deadline: Duration) -> Call<Status> {
        let (answer, call, _) = call(deadline, Error::NoLeader);
        (self.take)(Request::Status { answer });
        call
    }

    /// Changes who follows the record and who votes; from any node. What is so already is done. A promotion
    /// waits until the node has caught up.
    pub fn change_members(&self, change: MemberChange, deadline: Duration) -> Call<()> {
        let (answer, call, deadline) = call(deadline, Error::OutcomeUnknown);
        (self.take)(Request::Members { change, deadline, answer });
        call
    }
}

impl Request {
    /// Answers with `error`.
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
