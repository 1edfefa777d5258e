//! Requests about a volume of which this node has no copy: a node that has one carries them out. And those
//! about what is another node's own: that node does.
//!
//! Only those that nobody has begun are passed on to the next node. Where that is not known, because the link
//! was lost or the answer did not come, it is said so: what has been done must not be done twice, and nobody
//! be told that it was not. Nodes know each other by their links, and a request that comes over one is taken
//! from whoever is a node of the cluster: that may write the cluster's record as well.

use std::rc::Rc;
use std::time::Duration;

use replica::{NodeId, Revision};

use super::relocation::entry_named;
use super::{CHANGE_DEADLINE, Control, ControlError, SHOW_DEADLINE};
use crate::copies::{
    Answer, Ask, CarriedOut, ClusterError, CopyEntry, Keeper, NodeEntry, StandingEntry, node_key,
};
use crate::shard::Shard;
use crate::volume::VolumeId;

/// How long a node may take for a change that was passed on to it: a request makes two at most.
pub const CARRY_DEADLINE: Duration = Duration::from_secs(105);

const _: () = assert!(2 * CHANGE_DEADLINE.as_secs() < CARRY_DEADLINE.as_secs());

/// How long the node that carries out may be behind the one that asks, or afterwards that one behind it: the
/// next question finds what was done.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(2);

/// A request that another node is to carry out. What it is only [`Config::carry`](crate::Config::carry)
/// knows.
#[derive(Clone, Debug)]
pub struct Request {
    /// As that node reads it.
    pub text: String,
    /// It changes something. What only asks is waited for as short as any question, and is asked of the next
    /// node if one does not answer.
    pub changes: bool,
}

impl Request {
    fn deadline(&self) -> Duration {
        if self.changes { CARRY_DEADLINE } else { SHOW_DEADLINE }
    }
}

/// What has become of a request about a volume, or about what is a node's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passage {
    /// It is this node's: it has the volume, or nobody has; or it is the node that was named.
    Stays,
    /// A node has carried it out, or refused it: its answer.
    Answered(String),
    /// No node has begun it; why, by number.
    Refused(Vec<(u16, String)>),
    /// Nobody knows whether this node has carried it out.
    Unknown {
        /// Its number.
        node: u16,
        /// What went wrong.
        reason: String,
    },
}

/// What has become of it at one node.
enum Tried {
    Answered(CarriedOut),
    NotBegun(String),
    Unknown(String),
}

impl Control {
    /// Has a node that has a copy of the volume of this name or identity carry out a request, unless it is
    /// this one's.
    pub async fn pass_on(&self, volume: &str, request: &Request) -> Passage {
        let Some(keeper) = self.keeper() else { return Passage::Stays };
        if self.has_here(&keeper, volume) {
            return Passage::Stays;
        }
        let Ok((_, entry)) = entry_named(&keeper, volume) else { return Passage::Stays };
        let mut copies = entry.copies.clone();
        // Who is in sync has it open.
        let worth = |copy: &CopyEntry| {
            (!keeper.hears(NodeId(copy.node)), copy.standing != StandingEntry::InSync, copy.slot)
        };
        copies.sort_by_key(worth);
        let mut refused = Vec::new();
        for copy in copies {
            let ask = Ask::CarryOut {
                volume: entry.id.clone(),
                revision: keeper.acts_by().0,
                request: request.text.clone(),
            };
            match try_node(&keeper, NodeId(copy.node), ask, request).await {
                Tried::Answered(CarriedOut { answer, revision }) => {
                    keeper.until(FOLLOWED_WITHIN, || keeper.acts_by() >= Revision(revision)).await;
                    return Passage::Answered(answer);
                }
                Tried::NotBegun(reason) => refused.push((copy.node, reason)),
                Tried::Unknown(reason) => return Passage::Unknown { node: copy.node, reason },
            }
        }
        Passage::Refused(refused)
    }

    /// Has a node of the cluster carry out a request about what is its own, unless it is this one.
    ///
    /// # Errors
    /// Without a cluster; a node that is none of it.
    pub async fn pass_on_to(&self, node: u16, request: &Request) -> Result<Passage, ControlError> {
        let keeper = self.keeper_or_why_not()?;
        let number = NodeId(node);
        if number == keeper.me() {
            return Ok(Passage::Stays);
        }
        if keeper.get::<NodeEntry>(&node_key(number)).is_none() {
            return Err(ControlError::not_found("node", &node.to_string()));
        }
        let ask = Ask::CarryOutHere { revision: keeper.acts_by().0, request: request.text.clone() };
        Ok(match try_node(&keeper, number, ask, request).await {
            Tried::Answered(CarriedOut { answer, revision }) => {
                keeper.until(FOLLOWED_WITHIN, || keeper.acts_by() >= Revision(revision)).await;
                Passage::Answered(answer)
            }
            Tried::NotBegun(reason) => Passage::Refused(vec![(node, reason)]),
            Tried::Unknown(reason) => Passage::Unknown { node, reason },
        })
    }

    /// Whether this is the node that a request names, or none is named: what is of another one has been
    /// passed on.
    ///
    /// # Errors
    /// Without a cluster; it is another one.
    pub fn check_is_here(&self, node: Option<u16>) -> Result<(), ControlError> {
        match node {
            Some(node) if NodeId(node) != self.keeper_or_why_not()?.me() => {
                Err(ControlError::Internal("a request for another node was not passed on"))
            }
            _ => Ok(()),
        }
    }

    /// Carries out what another node has passed on.
    ///
    /// # Errors
    /// Why it was not begun.
    pub(super) async fn carry_out_for(
        &self,
        keeper: &Keeper,
        volume: &str,
        revision: u64,
        request: String,
    ) -> Result<CarriedOut, String> {
        if VolumeId::parse(volume).is_none() {
            return Err("it does not know this volume ID".into());
        }
        follow(keeper, revision).await?;
        if !self.has_here(keeper, volume) {
            return Err("its copy is gone, or the copy's pool is not open".into());
        }
        carried(keeper, request).await
    }

    /// Whether there is something of the volume here that can be worked with: not what is left of a copy that
    /// was taken off this node.
    fn has_here(&self, keeper: &Keeper, volume: &str) -> bool {
        let Ok((_, info)) = self.volume_named(volume) else { return false };
        let entry = keeper.volume(info.id).map(|volume| volume.entry);
        entry.is_none_or(|entry| entry.copy_on(keeper.me()).is_some())
    }
}

/// Carries out what another node has passed on about what is this node's own.
///
/// # Errors
/// Why it was not begun.
pub(super) async fn carry_out_here(
    keeper: &Keeper,
    revision: u64,
    request: String,
) -> Result<CarriedOut, String> {
    follow(keeper, revision).await?;
    carried(keeper, request).await
}

/// Acts by the record as who asks does: else what was just made or renamed would not be found.
async fn follow(keeper: &Keeper, revision: u64) -> Result<(), String> {
    match keeper.until(FOLLOWED_WITHIN, || keeper.acts_by() >= Revision(revision)).await {
        true => Ok(()),
        false => Err("it does not follow the cluster's record now".into()),
    }
}

async fn carried(keeper: &Keeper, request: String) -> Result<CarriedOut, String> {
    let carry = Shard::current().config().carry.clone();
    let answer = carry.carry(request).await?;
    Ok(CarriedOut { answer, revision: keeper.acts_by().0 })
}

async fn try_node(keeper: &Rc<Keeper>, node: NodeId, ask: Ask, request: &Request) -> Tried {
    if node == keeper.me() {
        return Tried::NotBegun("the pool of the copy on this node is not open".into());
    }
    // From here to where it is sent nothing comes in between.
    if !keeper.hears(node) || !keeper.reaches(node) {
        return Tried::NotBegun("it is unreachable".into());
    }
    match keeper.ask_within(node, ask, request.deadline()).await {
        Ok(Answer::CarriedOut(Ok(done))) => Tried::Answered(done),
        Ok(Answer::CarriedOut(Err(reason))) => Tried::NotBegun(reason),
        Ok(_) => Tried::Unknown("it gave an unexpected answer".into()),
        // It could not read it, or is starting.
        Err(ClusterError::Refused { reason, .. }) => Tried::NotBegun(reason),
        Err(error) if request.changes => Tried::Unknown(error.to_string()),
        Err(error) => Tried::NotBegun(error.to_string()),
    }
}
