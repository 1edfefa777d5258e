//! A node that is alone moves its record into a site's etcd, as it creates the cluster that others can join.
//!
//! It leaves the cluster of its own for the new one, as it would for another node's
//! ([`switching`](super::switching)). The new record gets what nobody else knows before the node takes its
//! place there. So if the node crashes, it is in its own cluster as before, or it is in the new one, which
//! has everything.

use std::net::SocketAddr;
use std::rc::Rc;

use cluster::{Store, Transaction, Versioned};

use super::super::change::{Changing, WaitsFor};
use super::super::record_place::RecordPlace;
use super::super::turns::Thing;
use super::super::{Control, Result};
use super::{CLUSTER, EnterError, KNOWN_ACCESS, Place, begin_record, discard_record, try_to_listen};
use crate::copies::node_key;
use crate::member::{RECORD_DEADLINE, Reconciler};
use crate::record::set;

/// The prefixes of the keys that stay behind: the node announces itself, its links and its pools in the new
/// record, holds its floating addresses again, and adds its volumes there, under new numbers.
const LEFT_BEHIND: [&str; 8] = [
    "node/",
    "link-roles/",
    "maintenance/",
    "pool-mark/",
    "volume/",
    "volume-name/",
    "next-",
    "address-holder/",
];

/// How many entries one transaction moves. A transaction takes a hundred, of 1 MiB together, and a large host
/// group has 20 KiB.
pub(super) const MOVED_AT_ONCE: usize = 50;

impl Control {
    /// Creates a cluster with its record in etcd, and takes everything there that this node has.
    ///
    /// # Errors
    /// The node is in a cluster that others can join; etcd cannot be used.
    pub(super) async fn move_to_etcd(
        self: &Rc<Control>,
        changing: &Changing,
        listen: Vec<SocketAddr>,
    ) -> Result<()> {
        // The record of the cluster that the node leaves takes part in all changes of its volumes.
        let volumes = changing.hold(self.pools_and_volumes()).await?;
        let record = changing.hold([Thing::Record]).await?;
        if !self.place().is_some_and(|place| place.is_private()) {
            return Err(EnterError::Already.into());
        }
        let frozen = self.freeze_record().await?;
        let place = Place::founding(RecordPlace::Etcd, listen);
        let former = self.cluster_to_leave(&place.cluster).await?.ok_or(EnterError::Already)?;
        try_to_listen(&place.listen, &[]).await?;
        changing.waits_for(WaitsFor::ClusterRecord);
        let filled = async {
            begin_record(&place).await?;
            let begun = self.open_record(&place)?;
            fill(&begun.store, &former).await
        };
        if let Err(error) = filled.await {
            discard_record(&place).await;
            return Err(error.into());
        }
        // If the node restarts before it has read the new record, it acts by what it knows.
        let known = set(KNOWN_ACCESS.into(), &self.all_rules());
        // If this fails, the node may be in the new cluster after its next start, so the record stays.
        self.leave_for(changing, former, vec![set(CLUSTER.into(), &place), known]).await?;
        // Changes that wait for their turn may still have the former reconciler.
        drop((volumes, record, frozen));
        let begun = self.begin_elsewhere().await;
        self.begun_in_cluster(begun).await?;
        // Callers expect to find the node in the new cluster.
        if let Ok(reconciler) = self.reconciler() {
            reconciler.until_known(&node_key(reconciler.me())).await;
        }
        Ok(())
    }
}

/// Copies the record of the former cluster into a new one, which no other node knows yet. Nothing changes in
/// the former one meanwhile.
async fn fill(store: &Store, former: &Reconciler) -> Result<(), EnterError> {
    let all = former.store().list("", RECORD_DEADLINE).await?;
    let moves = |key: &str| !LEFT_BEHIND.iter().any(|prefix| key.starts_with(prefix));
    let moved: Vec<(&String, &Versioned)> = all.entries.iter().filter(|(key, _)| moves(key)).collect();
    for some in moved.chunks(MOVED_AT_ONCE) {
        let put = |transaction: Transaction, (key, entry): &(&String, &Versioned)| {
            transaction.put(key, entry.value.to_vec())
        };
        // It has no preconditions, so nothing can conflict.
        store.cas(some.iter().fold(Reconciler::transaction(), put), RECORD_DEADLINE).await?;
    }
    Ok(())
}
