//! Calls for the cluster of a node.

use super::path::segment;
use super::{Client, Result};
use crate::{
    ClusterInit, ClusterJoin, ClusterNode, JoinToken, Link, LinkFor, List, Maintenance, Preference,
    SyncLimit, TokenCreate, VerifySchedule,
};

/// The node's cluster.
impl Client {
    /// Its nodes, by number.
    pub fn cluster_nodes(&self) -> Result<Vec<ClusterNode>> {
        self.list("/v1/nodes")
    }

    /// Lets other nodes join this one.
    pub fn init_cluster(&self, init: &ClusterInit) -> Result<Vec<ClusterNode>> {
        self.post("/v1/cluster", init).map(|list: List<ClusterNode>| list.items)
    }

    /// Creates a token that lets one more node join.
    pub fn create_token(&self, token: &TokenCreate) -> Result<JoinToken> {
        self.post("/v1/cluster/tokens", token)
    }

    /// Makes the node join a cluster.
    pub fn join_cluster(&self, join: &ClusterJoin) -> Result<()> {
        let url = self.address("/v1/cluster/join");
        self.done(self.authorized(self.agent.post(url)).send_json(join))
    }

    /// Sets the preferred node, which continues alone if two nodes without a witness lose each other.
    pub fn prefer_node(&self, node: Option<u16>) -> Result<()> {
        self.put("/v1/cluster/preferred", &Preference { node })
    }

    /// Reserves an address of a node for one kind of links, or makes it available to all.
    pub fn keep_link_for(&self, node: u16, link: &LinkFor) -> Result<()> {
        self.put(&format!("/v1/nodes/{node}/links"), link)
    }

    /// The links of the node with this number to each other node; or, with `all`, of all nodes.
    pub fn links_of(&self, node: &str) -> Result<List<Link>> {
        self.get(&format!("/v1/links?node={}", segment(node)))
    }

    /// The limit for the resync traffic of all nodes together.
    pub fn sync_limit(&self) -> Result<SyncLimit> {
        self.get("/v1/cluster/resync-limit")
    }

    /// Sets that limit.
    pub fn limit_syncs(&self, limit: &SyncLimit) -> Result<()> {
        self.put("/v1/cluster/resync-limit", limit)
    }

    /// The schedule for comparing copies automatically.
    pub fn verify_schedule(&self) -> Result<VerifySchedule> {
        self.get("/v1/cluster/verify-schedule")
    }

    /// Sets that schedule.
    pub fn set_verify_schedule(&self, schedule: &VerifySchedule) -> Result<()> {
        self.put("/v1/cluster/verify-schedule", schedule)
    }

    /// Makes the node a cluster of its own at its next start.
    pub fn force_new_cluster(&self) -> Result<()> {
        self.done(self.authorized(self.agent.post(self.address("/v1/cluster/force-new"))).send_empty())
    }

    /// Makes the node leave its cluster at its next start.
    pub fn leave_cluster(&self) -> Result<()> {
        self.done(self.authorized(self.agent.post(self.address("/v1/cluster/leave"))).send_empty())
    }

    /// Begins or ends a node's maintenance.
    pub fn maintain_node(&self, node: u16, on: bool) -> Result<()> {
        self.put(&format!("/v1/nodes/{node}/maintenance"), &Maintenance { on })
    }

    /// Removes another node from the cluster permanently.
    pub fn remove_node(&self, id: u16) -> Result<()> {
        self.delete(&format!("/v1/nodes/{id}"))
    }
}
