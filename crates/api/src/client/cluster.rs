//! What is asked of the cluster that a node is in.

use super::path::segment;
use super::{Client, Result};
use crate::{
    ClusterInit, ClusterJoin, ClusterNode, DryRun, JoinToken, Link, LinkFor, List, Maintenance, Preference,
    SyncLimit, TokenCreate, VerifySchedule,
};

/// The cluster that the node is in.
impl Client {
    /// Its nodes, by number. A node that is in no cluster refuses with `no_cluster`.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn cluster_nodes(&self) -> Result<Vec<ClusterNode>> {
        self.list("/v1/nodes")
    }

    /// Makes a cluster of the node alone.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn init_cluster(&self, init: &ClusterInit) -> Result<Vec<ClusterNode>> {
        self.post("/v1/cluster", init).map(|list: List<ClusterNode>| list.items)
    }

    /// Makes a token that lets one more node in.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn create_token(&self, token: &TokenCreate) -> Result<JoinToken> {
        self.post("/v1/cluster/tokens", token)
    }

    /// Has the node join a cluster.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn join_cluster(&self, join: &ClusterJoin) -> Result<()> {
        let url = self.address("/v1/cluster/join");
        self.done(self.authorized(self.agent.post(url)).send_json(join))
    }

    /// Says which node decides alone while two nodes are the cluster.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn prefer_node(&self, node: Option<u16>) -> Result<()> {
        self.put("/v1/cluster/preferred", &Preference { node })
    }

    /// Keeps an address of a node for one kind of links, or for all.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn keep_link_for(&self, node: u16, link: &LinkFor) -> Result<()> {
        self.put(&format!("/v1/nodes/{node}/links"), link)
    }

    /// The links of a node with each other one, by its number; or, with `all`, of all nodes.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn links_of(&self, node: &str) -> Result<List<Link>> {
        self.get(&format!("/v1/links?node={}", segment(node)))
    }

    /// What all nodes together may give to bring copies up to date.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn sync_limit(&self) -> Result<SyncLimit> {
        self.get("/v1/cluster/resync-limit")
    }

    /// Limits it.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn limit_syncs(&self, limit: &SyncLimit) -> Result<()> {
        self.put("/v1/cluster/resync-limit", limit)
    }

    /// How often copies are compared without anybody asking.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn verify_schedule(&self) -> Result<VerifySchedule> {
        self.get("/v1/cluster/verify-schedule")
    }

    /// Sets how often.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn set_verify_schedule(&self, schedule: &VerifySchedule) -> Result<()> {
        self.put("/v1/cluster/verify-schedule", schedule)
    }

    /// Makes the node a cluster of its own with its next start.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn force_new_cluster(&self) -> Result<()> {
        self.done(self.authorized(self.agent.post(self.address("/v1/cluster/force-new"))).send_empty())
    }

    /// What making the node a cluster of its own would do.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError): as it would be refused.
    pub fn would_force_new_cluster(&self) -> Result<DryRun> {
        self.would_post("/v1/cluster/force-new?dry_run=true")
    }

    /// Has the node leave its cluster with its next start.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn leave_cluster(&self) -> Result<()> {
        self.done(self.authorized(self.agent.post(self.address("/v1/cluster/leave"))).send_empty())
    }

    /// What leaving the cluster would do.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError): as it would be refused.
    pub fn would_leave_cluster(&self) -> Result<DryRun> {
        self.would_post("/v1/cluster/leave?dry_run=true")
    }

    /// Begins or ends a node's maintenance.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn maintain_node(&self, node: u16, on: bool) -> Result<()> {
        self.put(&format!("/v1/nodes/{node}/maintenance"), &Maintenance { on })
    }

    /// What beginning or ending a node's maintenance would do.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError): as it would be refused.
    pub fn would_maintain_node(&self, node: u16, on: bool) -> Result<DryRun> {
        let url = self.address(&format!("/v1/nodes/{node}/maintenance?dry_run=true"));
        self.json(self.authorized(self.agent.put(url)).send_json(Maintenance { on }))
    }

    /// Takes another node out of the cluster for good.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn remove_node(&self, id: u16) -> Result<()> {
        self.delete(&format!("/v1/nodes/{id}"))
    }

    /// What taking a node out of the cluster would do.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError): as it would be refused.
    pub fn would_remove_node(&self, id: u16) -> Result<DryRun> {
        self.would_delete(&format!("/v1/nodes/{id}?dry_run=true"))
    }
}
