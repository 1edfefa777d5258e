//! The nodes of a cluster, and their status.
//!
//! [`joining`] lets nodes join ([`merging`]: with what they have; [`refusal`], [`collision`]: why not),
//! [`leaving`] lets them leave, and [`voters`] decides which ones vote in the cluster's record.

mod collision;
mod joining;
mod leaving;
mod merging;
mod refusal;
mod voters;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use replica::NodeId;

pub use self::collision::{Collision, Counted};
pub(super) use self::joining::Door;
pub use self::leaving::Removal;
pub(super) use self::merging::OwnEntries;
pub use self::refusal::JoinRefusal;
use super::{Control, ControlError, Result};
use crate::copies::{Lasting, LinkRole, LinkRoles, NodeEntry, SYNC_LIMIT_MIN, link_roles_key, node_key};
use crate::member::{Reconciler, json};
use crate::shard::Shard;

/// A larger limit has no effect; the caller probably used a wrong unit.
const SYNC_LIMIT_MAX: u64 = 1 << 40;

/// The key of the number that the next node gets. Numbers are never reused.
pub(crate) const NEXT_NODE: &str = "next-node-number";
/// The key of the node whose vote alone counts in a cluster of two nodes without a witness.
pub(crate) const PREFERRED: &str = "preferred-node";

/// How long a change of the record's members may take.
const MEMBERS_DEADLINE: Duration = Duration::from_secs(10);

/// A node of the cluster as administrators see it.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// Its entry in the record.
    pub entry: NodeEntry,
    /// It is the node that answers this request.
    pub here: bool,
    /// Its heartbeats arrive.
    pub up: bool,
    /// If they do not: the nodes that are up and reach it.
    pub reached_by: Vec<u16>,
    /// It votes in the cluster's record.
    pub votes: bool,
    /// Why its copy of the record accepts no changes, so that its vote is missing.
    pub stalled: Option<cluster::Stall>,
    /// It is the record's leader.
    pub leads: bool,
    /// How many copies of volumes it has.
    pub copies: usize,
    /// How many of them are in sync.
    pub in_sync: usize,
    /// How long it has been silent, if it is not up.
    pub silent: Option<Lasting>,
    /// It is in maintenance: it has no copy in sync, so that it can be stopped.
    pub maintenance: bool,
    /// Since when, in seconds since 1970, if known.
    pub maintenance_since: Option<u64>,
    /// It is the preferred node: of two nodes, it decides alone.
    pub preferred: bool,
    /// The kinds of links that its addresses are reserved for.
    pub link_roles: LinkRoles,
}

impl NodeStatus {
    /// Whether its vote can be counted on: it is a voter, it is up, and it can write its copy of the record.
    pub fn can_vote(&self) -> bool {
        self.votes && self.up && self.stalled.is_none()
    }
}

impl Control {
    /// The nodes of the cluster.
    ///
    /// # Errors
    /// [`ControlError::ClusterFailed`].
    pub async fn nodes(&self) -> Result<Vec<NodeStatus>> {
        let reconciler = self.reconciler()?;
        let status = reconciler.store().status(MEMBERS_DEADLINE).await.ok();
        let mut copies = Vec::new();
        reconciler.for_each_entry(|entry| copies.extend(entry.copies)).await;
        let preferred = reconciler.get::<u16>(PREFERRED).map(|(node, _)| node);
        let copies = |id: u16| copies.iter().filter(move |copy| copy.node == id);
        let node = |(entry, up): (NodeEntry, bool)| NodeStatus {
            here: NodeId(entry.id) == reconciler.me(),
            up,
            reached_by: match up {
                true => Vec::new(),
                false => reconciler.reached_by(NodeId(entry.id)).into_iter().map(|node| node.0).collect(),
            },
            votes: status.as_ref().is_some_and(|status| status.voters.contains(&u64::from(entry.id))),
            stalled: reconciler.stall_of(NodeId(entry.id)),
            leads: status.as_ref().is_some_and(|status| status.leader == Some(u64::from(entry.id))),
            copies: copies(entry.id).count(),
            in_sync: copies(entry.id)
                .filter(|copy| copy.standing == crate::copies::StandingEntry::InSync)
                .count(),
            silent: if up { None } else { reconciler.silence_of(NodeId(entry.id)) },
            maintenance: reconciler.is_in_maintenance(NodeId(entry.id)),
            maintenance_since: reconciler.maintenance_since(NodeId(entry.id)),
            preferred: preferred == Some(entry.id),
            link_roles: reconciler.link_roles(NodeId(entry.id)),
            entry,
        };
        Ok(reconciler.nodes().into_iter().map(node).collect())
    }

    /// The names of the cluster's nodes, by number; empty if the node does not take part in its cluster.
    pub fn node_names(&self) -> BTreeMap<u16, String> {
        let nodes = self.reconciler().map(|reconciler| reconciler.nodes()).unwrap_or_default();
        nodes.into_iter().map(|(node, _)| (node.id, node.name)).collect()
    }

    /// This node's number in its cluster, even if it does not take part in it now.
    pub fn number(&self) -> u16 {
        Shard::current().number().get().into()
    }

    /// This node's number and name.
    pub fn number_and_name(&self) -> (u16, String) {
        (self.number(), self.host.name.clone())
    }

    /// Limits the total rate at which all nodes resync copies, in bytes per second; `None` leaves each node
    /// its own limit.
    ///
    /// # Errors
    /// Less than [`SYNC_LIMIT_MIN`] or more than [`SYNC_LIMIT_MAX`].
    pub async fn limit_syncs(&self, bytes_per_second: Option<u64>) -> Result<()> {
        let reconciler = self.reconciler()?;
        if bytes_per_second.is_some_and(|limit| limit < SYNC_LIMIT_MIN) {
            return Err(ControlError::Invalid {
                field: "bytes_per_second",
                reason: "at least 1 MiB/s: with less, a resync may never complete, and its copy adds no redundancy",
            });
        }
        if bytes_per_second.is_some_and(|limit| limit > SYNC_LIMIT_MAX) {
            let reason = "at most 1 TiB/s: remove the limit instead";
            return Err(ControlError::Invalid { field: "bytes_per_second", reason });
        }
        Ok(reconciler.set_sync_limit(bytes_per_second).await?)
    }

    /// The limit on the total resync rate, in bytes per second.
    ///
    /// # Errors
    /// [`ControlError::ClusterFailed`].
    pub fn sync_limit(&self) -> Result<Option<u64>> {
        Ok(self.reconciler()?.sync_limit())
    }

    /// Reserves an address of a node for one kind of links; `None` allows all kinds. Links move within half a
    /// minute.
    ///
    /// # Errors
    /// The node does not exist, or does not have the address; or no address would be left for replication.
    pub async fn keep_link_for(
        &self,
        number: u16,
        address: SocketAddr,
        role: Option<LinkRole>,
    ) -> Result<()> {
        let reconciler = self.reconciler()?;
        let entry = node_entry(&reconciler, number)?;
        let reason = "not an address at which the node listens for other nodes: see `ursa node list`";
        let unknown = ControlError::Invalid { field: "address", reason };
        entry.addresses.contains(&address).then_some(()).ok_or(unknown)?;
        let key = link_roles_key(NodeId(number));
        let revision = reconciler.revision_of(&key);
        let mut roles = reconciler.link_roles(NodeId(number));
        match role {
            Some(role) => drop(roles.insert(address, role)),
            None => drop(roles.remove(&address)),
        }
        // Roles of addresses at which the node no longer listens are dropped.
        roles.retain(|kept, _| entry.addresses.contains(kept));
        // Heartbeats may use an address for replication, but replication may not use one for heartbeats.
        if entry.addresses.iter().all(|address| roles.get(address) == Some(&LinkRole::Heartbeat)) {
            let reason = "the node needs at least one address for replication: add another address first";
            return Err(ControlError::Invalid { field: "role", reason });
        }
        let transaction = Reconciler::transaction().expect(&key, revision).put(&key, json(&roles));
        Ok(reconciler.commit(transaction).await?)
    }
}

fn node_entry(reconciler: &Reconciler, number: u16) -> Result<NodeEntry> {
    let known = reconciler.get::<NodeEntry>(&node_key(NodeId(number)));
    known.map(|(entry, _)| entry).ok_or_else(|| ControlError::not_found("node", &number.to_string()))
}

/// The addresses of this node's portals that other nodes report to initiators.
///
/// A portal on all addresses (0.0.0.0) counts as one at each address for links, because the other nodes know
/// no other addresses of this one.
pub(super) fn told_portals(portals: &[SocketAddr], links: &[SocketAddr]) -> Vec<SocketAddr> {
    let told = portals.iter().flat_map(|portal| match portal.ip().is_unspecified() {
        false => vec![*portal],
        true => reachable(links).iter().map(|link| SocketAddr::new(link.ip(), portal.port())).collect(),
    });
    let mut all: Vec<SocketAddr> = told.collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Addresses that another machine can connect to; excludes unspecified ones such as 0.0.0.0.
fn reachable(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    addresses.iter().filter(|address| !address.ip().is_unspecified()).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn other_nodes_list_no_portal_that_is_unreachable() {
        let links = addresses(&["10.0.0.1:3270", "10.1.0.1:3270"]);
        assert_eq!(
            told_portals(&addresses(&["0.0.0.0:3260"]), &links),
            addresses(&["10.0.0.1:3260", "10.1.0.1:3260"])
        );
        let named = addresses(&["192.168.0.1:3260", "192.168.1.1:3260"]);
        assert_eq!(told_portals(&named, &links), named);
        let twice = addresses(&["0.0.0.0:3260", "10.0.0.1:3260"]);
        assert_eq!(told_portals(&twice, &links[..1]), addresses(&["10.0.0.1:3260"]));
    }
}
