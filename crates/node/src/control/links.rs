//! How this node's links with the others are.

use std::collections::BTreeMap;
use std::time::Duration;

use replica::NodeId;

use super::{Control, ControlError};
use crate::copies::{Copies, Linked};
use crate::shard::ask_all_cores;

/// The links with another node, as this one sees them.
#[derive(Clone, Debug)]
pub struct LinkStatus {
    /// The other node's number.
    pub peer: u16,
    /// Its name.
    pub peer_name: String,
    /// The link for heartbeats, leases and the cluster's record.
    pub control: Linked,
    /// Those for the data of volumes.
    pub replication: Linked,
    /// They are encrypted, and both sides prove who they are.
    pub encrypted: bool,
    /// Why the last attempt to make one failed, if none has succeeded since.
    pub trouble: Option<String>,
}

impl Control {
    /// The links with each of the other nodes, by number. Each core is asked for a few figures of its own.
    ///
    /// # Errors
    /// [`ControlError::NoCluster`], [`ControlError::Core`].
    pub async fn links(&self) -> Result<Vec<LinkStatus>, ControlError> {
        let keeper = self.keeper_or_why_not()?;
        let by_core = ask_all_cores(|| async { Copies::current().linked() }).await?;
        let mut replication: BTreeMap<NodeId, Linked> = BTreeMap::new();
        for (node, of_core) in by_core.into_iter().flatten() {
            replication.entry(node).or_default().merge(of_core);
        }
        let peers = keeper.links().peers();
        let mut trouble: BTreeMap<NodeId, Option<String>> =
            peers.into_iter().map(|peer| (peer.id, peer.trouble)).collect();
        let encrypted = keeper.links().are_encrypted();
        let others = self.node_names().into_iter().filter(|(node, _)| *node != keeper.me().0);
        let status = |(peer, peer_name): (u16, String)| {
            let node = NodeId(peer);
            let mut replication = replication.remove(&node).unwrap_or_default();
            if let Some(of) = keeper.replication_links(node) {
                replication.of = of.into();
            }
            LinkStatus {
                peer,
                peer_name,
                control: keeper.linked(node),
                replication,
                encrypted,
                trouble: trouble.remove(&node).flatten(),
            }
        };
        Ok(others.map(status).collect())
    }

    /// Which nodes are up and not reached from here, in sentences. A node that is down is none of them: that is said of it already.
    pub(super) fn link_problems(&self) -> Vec<String> {
        let Some(keeper) = self.keeper() else { return Vec::new() };
        let cuts = keeper.cuts();
        if cuts.is_empty() {
            return Vec::new();
        }
        let names = self.node_names();
        let sentence = |(node, lasts): (NodeId, Duration)| {
            let (name, seconds) = (names.get(&node.0)?, lasts.as_secs());
            let who_says = if keeper.hears(node) { "" } else { ", as other nodes say" };
            Some(format!(
                "node {} ({name}) is up{who_says}, but this node has not reached it for replication for {seconds} seconds: of a volume with copies on both, only one of \
                 these can be in sync; look after the network between the two (cables, switches, firewalls, port 3270): `ursa node links` says which links are down and why",
                node.0
            ))
        };
        cuts.into_iter().filter_map(sentence).collect()
    }
}
