//! What a watcher of this process tells the other nodes when the process is dead (R11 of
//! `docs/why/replication.md`).
//!
//! The process itself hands it to the watcher, again whenever something of it changes; the watcher is a
//! process of its own.

use std::path::PathBuf;
use std::time::Duration;

use base::Instant;
use link::{Limits, NodeCredentials, Obituary};
use replica::{Incarnation, NodeId};
use serde::{Deserialize, Serialize};

use super::Control;
use super::cluster::{EnterError, Member, Place, cluster_id, cluster_path};
use crate::copies::{NODES, NodeEntry};
use crate::floating::AddressOn;

/// Between two attempts to reach a node that did not answer.
const AGAIN: Duration = Duration::from_millis(50);

/// Whose life it is, and who is to be told of its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastWill {
    /// The node in this life, and the other nodes.
    place: Place,
    /// Where its credentials are.
    directory: PathBuf,
    /// The floating addresses that are on the machine.
    addresses: Vec<AddressOn>,
}

impl Control {
    /// What to tell when this process is dead; `None`: the node is in no cluster.
    pub fn last_will(&self) -> Option<LastWill> {
        let keeper = self.keeper()?;
        let place = self.place()?;
        let entries: Vec<NodeEntry> = keeper.list(NODES);
        let others = entries.into_iter().filter(|entry| entry.id != place.node);
        let members = others.map(|entry| Member { node: entry.id, addresses: entry.addresses }).collect();
        let addresses = self.addresses_on();
        Some(LastWill { place: Place { members, ..place }, directory: cluster_path(), addresses })
    }
}

impl LastWill {
    /// Reads what proves that it is the node that speaks.
    ///
    /// # Errors
    /// Files that cannot be read or are of no use.
    pub fn credentials(&self) -> Result<NodeCredentials, EnterError> {
        let cluster = cluster_id(&self.place)?;
        Ok(NodeCredentials::load(&self.directory, cluster, NodeId(self.place.node))?)
    }

    /// The floating addresses to take off the machine before anybody is told: whoever is, takes them at once.
    pub fn addresses(&self) -> &[AddressOn] {
        &self.addresses
    }

    /// Tells all other nodes that this life is over, side by side, and again for as long as they do not
    /// answer, until `limit` is over. Nobody may do this before the process is dead for certain. Gives the
    /// number of nodes that know.
    ///
    /// # Errors
    /// Credentials that are of no use. Without any nothing is proven: for simulated worlds.
    pub async fn carry_out(
        &self,
        credentials: Option<&NodeCredentials>,
        limit: Duration,
    ) -> Result<usize, EnterError> {
        let life = Incarnation(self.place.incarnation);
        let obituary = match credentials {
            Some(credentials) => Obituary::new(credentials, life)?,
            None => Obituary::unproven(cluster_id(&self.place)?, NodeId(self.place.node), life),
        };
        let until = rt::now() + limit;
        let limits = Limits { connect: limit, handshake: limit, ..Limits::default() };
        let told = self.place.members.iter().map(|member| tell(&obituary, member, &limits, until));
        Ok(rt::join_all(told).await.into_iter().filter(|told| *told).count())
    }
}

/// Whether the node knows.
async fn tell(obituary: &Obituary, to: &Member, limits: &Limits, until: Instant) -> bool {
    let attempts = async {
        for address in to.addresses.iter().cycle() {
            match obituary.tell(NodeId(to.node), *address, limits).await {
                Ok(()) => return true,
                // It has seen a later life, or knows nobody of this name: there is nothing to tell it.
                Err(link::ObituaryError::Refused(_)) => return false,
                Err(_) => rt::sleep(AGAIN).await,
            }
        }
        false
    };
    rt::timeout(until.since(rt::now()), attempts).await.unwrap_or(false)
}
