//! The state of this node's links with the other nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use link::LinkTrouble;
use replica::NodeId;

use super::{Control, QUERY_DEADLINE, Result};
use crate::copies::{Copies, Linked};
use crate::shard::ask_each_core;

/// How long a core may take to report its links, which only means reading a few counters.
///
/// With this deadline, the response names a core that hangs, and shows the links of the others, before a node
/// that asks gives up.
const LINKS_DEADLINE: Duration = Duration::from_secs(1);

const _: () = assert!(LINKS_DEADLINE.as_millis() < QUERY_DEADLINE.as_millis());

/// The links with another node, as seen from this one.
#[derive(Clone, Debug)]
pub struct LinkStatus {
    /// The other node's number.
    pub peer: u16,
    /// Its name.
    pub peer_name: String,
    /// The link for heartbeats, leases and the cluster's record.
    pub control: Linked,
    /// The links for the data of volumes.
    pub replication: Linked,
    /// They are encrypted, and both sides authenticate.
    pub encrypted: bool,
    /// Why the last attempt to connect failed, if none has succeeded since.
    pub trouble: Option<LinkTrouble>,
    /// Cores of this node that have not responded. Links of theirs that are up are not counted.
    pub silent_cores: Vec<u16>,
}

impl Control {
    /// The links with each of the other nodes, by number. A core that does not respond is skipped.
    ///
    /// # Errors
    /// [`super::ControlError::ClusterFailed`].
    pub async fn links(&self) -> Result<Vec<LinkStatus>> {
        let reconciler = self.reconciler()?;
        let by_core = ask_each_core(LINKS_DEADLINE, || async { Copies::current().linked() }).await;
        let silent = by_core.iter().filter(|(_, answer)| answer.is_none());
        let silent_cores: Vec<u16> = silent.map(|(core, _)| core.0).collect();
        let mut replication: BTreeMap<NodeId, Linked> = BTreeMap::new();
        for (node, of_core) in by_core.into_iter().filter_map(|(_, answer)| answer).flatten() {
            replication.entry(node).or_default().merge(of_core);
        }
        let peers = reconciler.links().peers();
        let mut trouble: BTreeMap<NodeId, Option<LinkTrouble>> =
            peers.into_iter().map(|peer| (peer.id, peer.trouble)).collect();
        let encrypted = reconciler.links().are_encrypted();
        let others = self.node_names().into_iter().filter(|(node, _)| *node != reconciler.me().0);
        let status = |(peer, peer_name): (u16, String)| {
            let node = NodeId(peer);
            let mut replication = replication.remove(&node).unwrap_or_default();
            if let Some(of) = reconciler.replication_links(node) {
                replication.of = of.into();
            }
            LinkStatus {
                peer,
                peer_name,
                control: reconciler.linked(node),
                replication,
                encrypted,
                trouble: trouble.remove(&node).flatten(),
                silent_cores: silent_cores.clone(),
            }
        };
        Ok(others.map(status).collect())
    }
}
