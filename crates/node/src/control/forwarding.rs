//! Forwarded requests: about a volume of which this node has no copy, and about another node's own objects.
//!
//! A request about a volume goes to a node that has a copy. If that node has not begun it, it goes to the
//! next one. If that is not known, because the link was lost or no answer came, the response says so: what
//! may have been done must not be done twice, nor be reported as not done. Links authenticate nodes, and any
//! node of the cluster may send such a request, as it may also write the cluster's record.

use std::rc::Rc;
use std::time::Duration;

use replica::{NodeId, Revision};

use super::relocation::entry_named;
use super::{CHANGE_DEADLINE, Control, ControlError, QUERY_DEADLINE, Result};
use crate::copies::{Answer, Ask, CarriedOut, CopyEntry, NodeEntry, Refused, StandingEntry, node_key};
use crate::data::VolumeId;
use crate::member::{ClusterError, Reconciler};
use crate::shard::Shard;

/// How long another node may take for a forwarded change: a request makes at most two.
pub const FORWARD_DEADLINE: Duration = Duration::from_secs(105);

const _: () = assert!(2 * CHANGE_DEADLINE.as_secs() < FORWARD_DEADLINE.as_secs());

/// How long to wait if the executing node is behind the requesting one in the record, or the other way round
/// afterwards, so that the next request finds what was done.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(2);

/// A request that another node is to execute. Only
/// [`Config::peer_requests`](crate::Config::peer_requests) interprets it.
#[derive(Clone, Debug)]
pub struct Request {
    /// The request, in the form that the other node reads.
    pub text: String,
    /// Whether it changes something. A request that only reads has the deadline of a question, and goes to
    /// the next node if one does not respond.
    pub changes: bool,
}

impl Request {
    fn deadline(&self) -> Duration {
        if self.changes { FORWARD_DEADLINE } else { QUERY_DEADLINE }
    }
}

/// The result of forwarding a request.
#[derive(Clone, Debug)]
pub enum ForwardOutcome {
    /// This node must execute it: it has the volume, or no node has; or it is the node that the request
    /// names.
    Stays,
    /// A node has executed or refused it: its answer.
    Answered(String),
    /// No node has begun it: why, by node number.
    Refused(Vec<(u16, NotBegun)>),
    /// It is not known whether this node has executed it.
    #[allow(missing_docs)] // It names the node, and what went wrong.
    Unknown { node: u16, reason: ClusterError },
}

/// Why a node has not begun a forwarded request.
#[derive(Clone, Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum NotBegun {
    #[error("the pool of the copy on this node is not open")]
    ClosedHere,
    #[error("it is unreachable")]
    Unreached,
    /// It refused.
    #[error(transparent)]
    Refused(Refused),
    /// It did not answer a request that changes nothing.
    #[error(transparent)]
    Silent(ClusterError),
}

impl Control {
    /// Forwards a request about a volume, by name or identity, to a node that has a copy, unless this node
    /// has one.
    pub async fn forward(&self, volume: &str, request: &Request) -> ForwardOutcome {
        let Ok(reconciler) = self.reconciler() else { return ForwardOutcome::Stays };
        if self.has_here(&reconciler, volume) {
            return ForwardOutcome::Stays;
        }
        let Ok((_, entry)) = entry_named(&reconciler, volume) else { return ForwardOutcome::Stays };
        forward_to_one_of(&reconciler, &entry.id, entry.copies, request).await
    }

    /// Forwards a request about a node's own objects to that node, unless it is this one.
    ///
    /// # Errors
    /// This node does not take part in its cluster; the other node is not in it.
    pub async fn forward_to(&self, node: u16, request: &Request) -> Result<ForwardOutcome> {
        if self.is_me(node) {
            return Ok(ForwardOutcome::Stays);
        }
        let (reconciler, number) = (self.reconciler()?, NodeId(node));
        if reconciler.get::<NodeEntry>(&node_key(number)).is_none() {
            return Err(ControlError::not_found("node", &node.to_string()));
        }
        Ok(try_node(&reconciler, number, None, request).await)
    }

    /// Checks that a request names this node, or none: a request for another node should have been forwarded.
    ///
    /// # Errors
    /// The request names another node.
    pub fn check_is_here(&self, node: Option<u16>) -> Result<()> {
        match node.is_none_or(|node| self.is_me(node)) {
            true => Ok(()),
            false => Err(ControlError::Internal("a request for another node was not forwarded")),
        }
    }

    /// Whether this is the number of this node. The number of a node whose place cannot be read is a guess,
    /// by which nothing must be changed.
    fn is_me(&self, node: u16) -> bool {
        self.place().is_some_and(|place| place.node == node)
    }

    /// Executes a request of another node ([`Ask::CarryOut`]).
    ///
    /// # Errors
    /// Why it was not begun.
    pub(super) async fn execute_for(
        self: &Rc<Control>,
        reconciler: &Reconciler,
        volume: Option<&str>,
        revision: u64,
        request: String,
    ) -> Result<CarriedOut, Refused> {
        if volume.is_some_and(|volume| VolumeId::parse(volume).is_none()) {
            return Err(Refused::NoVolumeId);
        }
        // What the sender has just created or renamed must be found.
        if !follow_to(reconciler, revision).await {
            return Err(Refused::RecordBehind);
        }
        if volume.is_some_and(|volume| !self.has_here(reconciler, volume)) {
            return Err(Refused::CopyGone);
        }
        let requests = Shard::current().config().peer_requests.clone();
        let answer = requests.answer(Rc::clone(self), request).await?;
        Ok(CarriedOut { answer, revision: reconciler.acts_by().0 })
    }

    /// Whether this node has usable data of the volume. What is left of a removed copy does not count.
    fn has_here(&self, reconciler: &Reconciler, volume: &str) -> bool {
        let Ok((_, info)) = self.volume_named(volume) else { return false };
        let entry = reconciler.volume(info.id).map(|volume| volume.entry);
        entry.is_none_or(|entry| entry.copy_on(reconciler.me()).is_some())
    }
}

/// Waits until this node acts by a revision of the record. Returns whether it does.
pub(super) async fn follow_to(reconciler: &Reconciler, revision: u64) -> bool {
    reconciler.until(FOLLOWED_WITHIN, || reconciler.acts_by() >= Revision(revision)).await
}

/// Forwards a request about a volume to the node of one of these copies: of those that refuse it, to the next
/// one.
pub(super) async fn forward_to_one_of(
    reconciler: &Rc<Reconciler>,
    volume: &str,
    mut copies: Vec<CopyEntry>,
    request: &Request,
) -> ForwardOutcome {
    // A node whose copy is in sync has it open.
    let worth = |copy: &CopyEntry| {
        (!reconciler.hears(NodeId(copy.node)), copy.standing != StandingEntry::InSync, copy.slot)
    };
    copies.sort_by_key(worth);
    let mut refused = Vec::new();
    for copy in copies {
        match try_node(reconciler, NodeId(copy.node), Some(volume), request).await {
            ForwardOutcome::Refused(by) => refused.extend(by),
            passage => return passage,
        }
    }
    ForwardOutcome::Refused(refused)
}

/// The result at one node; `volume` is the identity of the volume that the request is about, if any.
async fn try_node(
    reconciler: &Rc<Reconciler>,
    node: NodeId,
    volume: Option<&str>,
    request: &Request,
) -> ForwardOutcome {
    let not_begun = |reason| ForwardOutcome::Refused(vec![(node.0, reason)]);
    let unknown = |reason| ForwardOutcome::Unknown { node: node.0, reason };
    if node == reconciler.me() {
        return not_begun(NotBegun::ClosedHere);
    }
    // Nothing runs between this check and the sending of the request.
    if !reconciler.hears(node) || !reconciler.reaches(node) {
        return not_begun(NotBegun::Unreached);
    }
    let ask = Ask::CarryOut {
        volume: volume.map(str::to_owned),
        revision: reconciler.acts_by().0,
        request: request.text.clone(),
    };
    match reconciler.ask_within(node, ask, request.deadline()).await {
        Ok(Answer::CarriedOut(Ok(CarriedOut { answer, revision }))) => {
            follow_to(reconciler, revision).await;
            ForwardOutcome::Answered(answer)
        }
        Ok(Answer::CarriedOut(Err(refused))) => not_begun(NotBegun::Refused(refused)),
        Ok(_) => unknown(ClusterError::Strange(node)),
        // The node could not read the request, or is starting.
        Err(ClusterError::Refused { reason, .. }) => not_begun(NotBegun::Refused(reason)),
        Err(error) if request.changes => unknown(error),
        Err(error) => not_begun(NotBegun::Silent(error)),
    }
}
