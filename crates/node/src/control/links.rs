//! How this node's links with the others are.

use std::collections::BTreeMap;
use std::time::Duration;

use replica::NodeId;

use super::{Control, ControlError, SHOW_DEADLINE};
use crate::copies::{Copies, Linked};
use crate::shard::ask_each_core;

/// How long a core may take to say how its links are: it looks at a few figures. One that hangs is named, and
/// what the others have is said, before another node that asks gives up.
const LINKS_DEADLINE: Duration = Duration::from_secs(1);

const _: () = assert!(LINKS_DEADLINE.as_millis() < SHOW_DEADLINE.as_millis());

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
    /// Cores of this node that have not said how their links are: some may be up that are not counted.
    pub silent_cores: Vec<u16>,
}

impl Control {
    /// The links with each of the other nodes, by number. Each core is asked for a few figures of its own,
    /// and not waited for if it does not answer.
    ///
    /// # Errors
    /// [`ControlError::NoCluster`].
    pub async fn links(&self) -> Result<Vec<LinkStatus>, ControlError> {
        let keeper = self.keeper_or_why_not()?;
        let by_core = ask_each_core(LINKS_DEADLINE, || async { Copies::current().linked() }).await;
        let silent = by_core.iter().filter(|(_, answer)| answer.is_none());
        let silent_cores: Vec<u16> = silent.map(|(core, _)| core.0).collect();
        let mut replication: BTreeMap<NodeId, Linked> = BTreeMap::new();
        for (node, of_core) in by_core.into_iter().filter_map(|(_, answer)| answer).flatten() {
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
                silent_cores: silent_cores.clone(),
            }
        };
        Ok(others.map(status).collect())
    }
}
