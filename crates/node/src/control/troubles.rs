//! What somebody should look after on this node, in sentences.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use replica::NodeId;
use store::MetadataState;

use super::cluster::TRY_EVERY;
use super::status::RecordStatus;
use super::{Control, FailedDisk, PoolStatus};
use crate::copies::{Expelled, Keeper};
use crate::events::code::{
    CLUSTER_FAILED, DISK_FAILED, LOGINS_REFUSED, POOL_CLOSED, POOL_READ_ONLY, RECORD_LOST, RECORD_STALLED,
};
use crate::record::RecordError;
use crate::shard::Shard;

/// Something that somebody should look after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What kind of thing; that of its event, if it has one.
    pub code: &'static str,
    /// What it is about: with the code the same for as long as it is the same trouble.
    pub subject: String,
    /// What is the matter and what to do, in a sentence.
    pub text: String,
    /// How long it has been so, if that is known.
    pub age: Option<Duration>,
}

impl Trouble {
    /// One of which nobody knows when it began.
    pub fn new(code: &'static str, subject: impl Into<String>, text: impl Into<String>) -> Trouble {
        Trouble { code, subject: subject.into(), text: text.into(), age: None }
    }

    /// One that has been so for that long.
    #[must_use]
    pub fn lasting(self, age: Duration) -> Trouble {
        Trouble { age: Some(age), ..self }
    }
}

/// One of the two copies of the node's record was lost before this start.
const RECORD_FAULT: &str = "record_fault";
/// The node's record takes no changes.
const RECORD_LATCHED: &str = "record_latched";
/// A later version has written entries of the cluster's record.
const ENTRIES_UNREADABLE: &str = "record_entries_unreadable";
/// The node was removed from its cluster, or given up.
pub const EXPELLED: &str = "removed_from_cluster";
/// An address for other nodes is not there.
const LINK_ADDRESS_MISSING: &str = "link_address_missing";
/// A node is up and is not reached.
pub const NODE_CUT_OFF: &str = "node_cut_off";

impl Control {
    /// What somebody should look after now.
    pub fn troubles(&self) -> Vec<Trouble> {
        let RecordStatus { fault, latched } = self.record();
        let fault = fault.map(|fault| Trouble::new(RECORD_FAULT, "", fault.to_string()));
        let latched = latched.then(|| Trouble::new(RECORD_LATCHED, "", RecordError::Latched.to_string()));
        let pools = self.pools().into_iter().flat_map(|pool| of_pool(&pool));
        let failed =
            self.expelled().into_iter().chain(self.failed_in_cluster()).chain(self.unreadable_entries());
        let stalled =
            failed.chain(self.missing_addresses()).chain(self.record_stalled()).chain(self.logins_refused());
        let cluster =
            self.record_lost().into_iter().chain(stalled).chain(self.cut_off()).chain(self.lost_addresses());
        let set_back = self.set_back().into_iter().chain(self.life_used());
        fault
            .into_iter()
            .chain(latched)
            .chain(cluster)
            .chain(pools)
            .chain(self.read_troubles())
            .chain(set_back)
            .chain(self.differing_copies())
            .chain(self.unrecorded())
            .collect()
    }

    /// What is the matter with etcd, where it has the cluster's record.
    fn record_lost(&self) -> Option<Trouble> {
        let why = self.keeper()?.record_trouble()?;
        let text = format!(
            "etcd, which holds the cluster's record, cannot be used ({why}): volumes keep running with the copies that are in sync, but nothing can be changed, a lost node cannot be excluded, and a node that starts cannot serve volumes with copies; bring etcd back, or correct the `etcd` setting"
        );
        Some(Trouble::new(RECORD_LOST.as_str(), "", text))
    }

    /// Entries of the cluster's record that a later version has written.
    fn unreadable_entries(&self) -> Option<Trouble> {
        const SHOWN: usize = 5;
        let keys = self.keeper()?.unreadable_keys();
        let more = match keys.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let shown = keys.get(..SHOWN.min(keys.len()))?.join(", ");
        let text = format!(
            "this node cannot read entries of the cluster's record that were written by a later version of Ursa ({shown}{more}): it uses their previous content and does not change them. If the entry of a volume's copies is among them, only the other nodes serve that volume; update Ursa on this node"
        );
        (!keys.is_empty()).then(|| Trouble::new(ENTRIES_UNREADABLE, "", text))
    }

    /// Whether the node was removed from its cluster, or given up.
    fn expelled(&self) -> Option<Trouble> {
        let what = match self.keeper()?.expelled()? {
            Expelled::Removed => "this node was removed from the cluster: the other nodes refuse it",
            Expelled::GivenUp => {
                "this node was left behind: a surviving node was forced into a new cluster, which refuses it"
            }
        };
        let text = format!(
            "{what}. It serves volumes that only it has ever had a copy of. To let it join the cluster again, run `ursa node leave --forget` and restart it"
        );
        Some(Trouble::new(EXPELLED, "", text))
    }

    /// What keeps the node from taking part in its cluster.
    fn failed_in_cluster(&self) -> Option<Trouble> {
        let failure = self.cluster_failure()?;
        let text = format!(
            "cluster failed: {}. This node does not take part in its cluster. It serves volumes that only it has ever had a copy of; its copies of cluster volumes are closed, and the cluster cannot be changed from here. The node retries every {} seconds; if it cannot be repaired, `ursa node leave --forget` makes it a standalone node that can join again",
            failure.why,
            TRY_EVERY.as_secs()
        );
        Some(Trouble::new(CLUSTER_FAILED.as_str(), "", text).lasting(rt::now().since(failure.since)))
    }

    /// Addresses for other nodes that are not there.
    fn missing_addresses(&self) -> Vec<Trouble> {
        let missing = self.keeper().map(|keeper| keeper.links().missing_addresses()).unwrap_or_default();
        let trouble = |(address, why): (SocketAddr, String)| {
            let text = format!(
                "this node cannot listen for other nodes at {address} ({why}): bring up the interface with this address. The node keeps trying; its other addresses work"
            );
            Trouble::new(LINK_ADDRESS_MISSING, address.to_string(), text)
        };
        missing.into_iter().map(trouble).collect()
    }

    /// What keeps this node's copy of the cluster's record from being written.
    fn record_stalled(&self) -> Option<Trouble> {
        let (stall, age) = self.keeper()?.stalled()?;
        let text = format!(
            "this node's copy of the cluster's record cannot be written: {stall}. Its vote is missing, and it does not see changes. Check the disk and the free space of {}; the node then recovers automatically",
            Shard::current().config().data_dir.display()
        );
        Some(Trouble::new(RECORD_STALLED.as_str(), "", text).lasting(age))
    }

    /// Whether hosts cannot log in for that.
    fn logins_refused(&self) -> Option<Trouble> {
        self.keeper()?.refuses_logins().then(|| {
            let text =
                "this node refuses new logins: its access rules may be outdated. Hosts use their other paths";
            Trouble::new(LOGINS_REFUSED.as_str(), "", text)
        })
    }

    /// Which nodes are up and not reached from here. A node of which nobody hears is none of them: that is said of it already. Each is about one node, by its number:
    /// where the asked node says so with its nodes (`reached_by`), people are told once.
    fn cut_off(&self) -> Vec<Trouble> {
        let Some(keeper) = self.keeper() else { return Vec::new() };
        let cuts = keeper.cuts();
        if cuts.is_empty() {
            return Vec::new();
        }
        let names = self.node_names();
        let trouble = |(node, lasts): (NodeId, Duration)| {
            let (name, seconds) = (names.get(&node.0)?, lasts.as_secs());
            let known = if keeper.hears(node) {
                format!("is up, but this node has had no replication link to it for {seconds} seconds")
            } else {
                let by = reached(&keeper, node, &names);
                format!("has not responded to this node on any link for {seconds} seconds{by}")
            };
            let text = format!(
                "node {} ({name}) {known}: a volume with copies on both can have only one of them in sync; check the network between the two nodes (cables, switches, firewalls, port 3270): `ursa node links` shows which links are down and why",
                node.0
            );
            Some(Trouble::new(NODE_CUT_OFF, node.0.to_string(), text).lasting(lasts))
        };
        cuts.into_iter().filter_map(trouble).collect()
    }
}

/// `, and node 2 (san2) reaches it`.
fn reached(keeper: &Keeper, node: NodeId, names: &BTreeMap<u16, String>) -> String {
    let by = keeper.reached_by(node);
    let named = |node: &NodeId| {
        let name = names.get(&node.0).map(|name| format!(" ({name})")).unwrap_or_default();
        format!("node {}{name}", node.0)
    };
    let by: Vec<String> = by.iter().map(named).collect();
    match by.as_slice() {
        [] => String::new(),
        [one] => format!(", and {one} reaches it"),
        several => format!(", and {} reach it", several.join(", ")),
    }
}

fn of_pool(pool: &PoolStatus) -> Vec<Trouble> {
    let name = &pool.name;
    let open = match &pool.state {
        Ok(open) => open,
        Err(reason) => {
            let text = format!("pool {name} is not open: {reason}");
            return vec![Trouble::new(POOL_CLOSED.as_str(), name, text)];
        }
    };
    let disk = |disk: &FailedDisk| {
        let (path, error, age) = (disk.path.display(), &disk.error, disk.age.as_secs());
        let text = format!(
            "disk {path} of pool {name} is out of service: a write or flush failed {age} seconds ago ({error}); check the disk, then run `ursa pool reopen {name}`"
        );
        Trouble::new(DISK_FAILED.as_str(), path.to_string(), text).lasting(disk.age)
    };
    let read_only = (open.metadata == MetadataState::Failed).then(|| {
        let text = format!("pool {name} is locked: a metadata write failed. I/O continues");
        Trouble::new(POOL_READ_ONLY.as_str(), name, text)
    });
    open.failed.iter().map(disk).chain(read_only).collect()
}
