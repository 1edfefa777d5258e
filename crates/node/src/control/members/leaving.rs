//! Nodes that are to be stopped for a while (maintenance), or leave the cluster for good.

use std::time::Duration;

use cluster::MemberChange;
use replica::NodeId;

use super::super::copies::forget_sole;
use super::super::{Control, ControlError, Result};
use super::{MEMBERS_DEADLINE, node_entry};
use crate::copies::{
    CopyEntry, NodeEntry, StandingEntry, VolumeEntry, link_roles_key, maintenance_key, node_key,
};
use crate::data::VolumeId;
use crate::member::{Reconciler, json};
use crate::shard::Shard;

/// How long to wait until a node's copies are out of sync; after that, this continues automatically.
const OUT_DEADLINE: Duration = Duration::from_secs(10);

/// What the removal of a node from the cluster would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Its name.
    pub name: String,
    /// Volumes that go with it, because it has their sole copies.
    pub sole: Vec<(VolumeId, String)>,
    /// If it votes: the number of voters that would be left.
    pub voters_left: Option<usize>,
    /// No other node is known to have the cluster's authority.
    pub has_only_authority: bool,
    /// It has the authority's key. A person who has its disk can sign a certificate for any member.
    pub has_authority: bool,
}

impl Control {
    /// Begins or ends a node's maintenance.
    ///
    /// At the beginning, its copies are taken out of sync, so that it can be stopped without a stall; at the
    /// end, they resync. `Ok(false)`: it still has copies in sync, and it takes longer until it has none.
    ///
    /// # Errors
    /// [`ControlError::OnlyInSync`]: a volume would not be served.
    pub async fn maintain_node(&self, number: u16, on: bool) -> Result<bool> {
        let reconciler = self.reconciler()?;
        let node = NodeId(number);
        node_entry(&reconciler, number)?;
        let key = maintenance_key(node);
        let revision = reconciler.revision_of(&key);
        let in_sync = |entry: &VolumeEntry| {
            let all = entry.copies.iter().filter(|copy| copy.standing == StandingEntry::InSync);
            all.map(|copy| copy.node).collect::<Vec<_>>()
        };
        if on {
            self.check_maintenance(number)?;
        }
        let transaction = Reconciler::transaction().expect(&key, revision);
        match (on, revision) {
            (true, None) => {
                let began = (Shard::current().config().unix_now)();
                reconciler.commit(transaction.put(&key, json(&began))).await?;
            }
            (false, Some(_)) => reconciler.commit(transaction.delete(&key)).await?,
            _ => {}
        }
        let is_out = |entry: &VolumeEntry| entry.sole || !in_sync(entry).contains(&number);
        let out = || reconciler.volumes().iter().all(|volume| is_out(&volume.entry));
        Ok(!on || reconciler.until(OUT_DEADLINE, out).await)
    }

    /// Checks whether a node could begin maintenance now; returns the volumes with a copy in sync there.
    ///
    /// Each volume comes with its name and the number of copies in sync that would be left. That number is 0
    /// for a sole copy, which is not served while its node is down.
    ///
    /// # Errors
    /// As [`Control::maintain_node`].
    pub fn check_maintenance(&self, number: u16) -> Result<Vec<(String, usize)>> {
        let reconciler = self.reconciler()?;
        node_entry(&reconciler, number)?;
        let mut left = Vec::new();
        for VolumeEntry { name, copies, sole, .. } in
            reconciler.volumes().into_iter().map(|volume| volume.entry)
        {
            let in_sync = || copies.iter().filter(|copy| copy.standing == StandingEntry::InSync);
            let stays =
                |copy: &&CopyEntry| copy.node != number && !reconciler.is_in_maintenance(NodeId(copy.node));
            if !in_sync().any(|copy| copy.node == number) {
                continue;
            }
            match in_sync().filter(stays).count() {
                0 if !sole => return Err(ControlError::OnlyInSync { volume: name, node: number }),
                count => left.push((name, count)),
            }
        }
        Ok(left)
    }

    /// Removes a node from the cluster for good. It must have no copies, except sole copies if it is down.
    ///
    /// # Errors
    /// The node does not exist, has copies, or is the one that executes this.
    pub async fn remove_node(&self, number: u16) -> Result<()> {
        let reconciler = self.reconciler()?;
        let key = node_key(NodeId(number));
        // Read before the checks, so that a change in between is detected.
        let revision = reconciler.revision_of(&key);
        // The volumes are added to the record again when the node is back, as a new one or because it was not
        // removed after all, or when another node has its pools.
        for (id, _) in self.check_removal(number).await?.sole {
            forget_sole(&reconciler, id).await?;
        }
        let id = cluster::NodeId::new(number).ok_or(ControlError::Internal("node number 0"))?;
        reconciler.change_members(MemberChange::Remove(id), MEMBERS_DEADLINE).await?;
        let mut transaction = Reconciler::transaction().expect(&key, revision).delete(&key);
        for noted in [maintenance_key(NodeId(number)), link_roles_key(NodeId(number))] {
            if let Some(revision) = reconciler.revision_of(&noted) {
                transaction = transaction.expect(&noted, Some(revision)).delete(&noted);
            }
        }
        Ok(reconciler.commit(transaction).await?)
    }

    /// Checks whether a node could be removed from the cluster now; returns what would go with it.
    ///
    /// # Errors
    /// As [`Control::remove_node`], except those of the record.
    pub async fn check_removal(&self, number: u16) -> Result<Removal> {
        let reconciler = self.reconciler()?;
        let NodeEntry { name, authority, .. } = node_entry(&reconciler, number)?;
        if NodeId(number) == reconciler.me() {
            return Err(ControlError::Invalid {
                field: "node",
                reason: "a node cannot remove itself: run the command on another node",
            });
        }
        let has_copy = |entry: &VolumeEntry| entry.copies.iter().any(|copy| copy.node == number);
        // A node that is down cannot move its volumes elsewhere. They are served again when it has joined
        // again.
        let may_go = |entry: &VolumeEntry| entry.sole && !reconciler.hears(NodeId(number));
        let mut sole = Vec::new();
        for entry in reconciler.volumes().into_iter().map(|volume| volume.entry).filter(has_copy) {
            match may_go(&entry) {
                true => sole.extend(VolumeId::parse(&entry.id).map(|id| (id, entry.name))),
                false => return Err(ControlError::NodeHasCopies { node: number, volume: entry.name }),
            }
        }
        let voters = self.nodes().await?.into_iter().filter(|node| node.votes);
        let voters: Vec<(u16, bool)> = voters.map(|node| (node.entry.id, node.can_vote())).collect();
        if reconciler.nodes_vote() && !decides_without(number, &voters) {
            return Err(ControlError::NodeNeeded(number));
        }
        let votes = voters.iter().any(|(id, _)| *id == number);
        let is_elsewhere = || reconciler.nodes().iter().any(|(node, _)| node.id != number && node.authority);
        let has_only_authority = authority && !is_elsewhere();
        Ok(Removal {
            name,
            sole,
            voters_left: votes.then(|| voters.len() - 1),
            has_only_authority,
            has_authority: authority,
        })
    }
}

/// Whether the voters that can vote are a majority without this node. Each voter: its number, and whether its
/// vote can be counted on.
fn decides_without(removed: u16, voters: &[(u16, bool)]) -> bool {
    let left = || voters.iter().filter(|(id, _)| *id != removed);
    2 * left().filter(|(_, can_vote)| *can_vote).count() > left().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_node_is_removed_whose_vote_is_needed() {
        let all = [(1, true), (2, true), (3, true)];
        assert!(decides_without(3, &all));
        // The failed node may be removed. Of the other two, none may be: the last one would be half of two.
        let one_down = [(1, false), (2, true), (3, true)];
        assert!(decides_without(1, &one_down));
        assert!(!decides_without(3, &one_down));
        assert!(decides_without(4, &one_down), "it has no vote");
    }
}
