//! Calls for pools.

use super::path::{of_node, segment};
use super::{Client, Result};
use crate::{
    BlockDevice, Forecast, Job, List, Pool, PoolAddDisk, PoolCreate, PoolForget, PoolImport, PoolRemoveDisk,
};

/// Pools: those of the node with this number; `None` means the queried node.
impl Client {
    /// All pools, by name.
    pub fn pools(&self) -> Result<Vec<Pool>> {
        self.list("/v1/pools")
    }

    /// The pools of another node of the cluster, by its number, or of `all`.
    pub fn pools_of(&self, node: &str) -> Result<List<Pool>> {
        self.get(&format!("/v1/pools?node={}", segment(node)))
    }

    /// The block devices of a node's machine, by name.
    pub fn disks(&self, node: Option<u16>) -> Result<Vec<BlockDevice>> {
        self.list(&of_node("/v1/disks".into(), node))
    }

    /// One pool.
    pub fn pool(&self, name: &str, node: Option<u16>) -> Result<Pool> {
        self.get(&of_node(format!("/v1/pools/{}", segment(name)), node))
    }

    /// When the pools of a node will be full if they fill up as in the last days.
    ///
    /// `node` is a node number or `all`; `None` means the queried node.
    pub fn forecasts(&self, node: Option<&str>) -> Result<List<Forecast>> {
        match node {
            Some(node) => self.get(&format!("/v1/forecasts?node={}", segment(node))),
            None => self.get("/v1/forecasts"),
        }
    }

    /// Creates a pool.
    pub fn create_pool(&self, pool: &PoolCreate, node: Option<u16>) -> Result<Pool> {
        self.post(&of_node("/v1/pools".into(), node), pool)
    }

    /// Imports a pool that was created elsewhere or earlier.
    pub fn import_pool(&self, import: &PoolImport, node: Option<u16>) -> Result<Pool> {
        self.post(&of_node("/v1/pools/import".into(), node), import)
    }

    /// Exports a pool, so that another server can import it.
    pub fn export_pool(&self, name: &str, node: Option<u16>) -> Result<()> {
        let url = self.address(&of_node(format!("/v1/pools/{}/export", segment(name)), node));
        self.done(self.authorized(self.agent.post(url)).send_empty())
    }

    /// Adds a disk to a pool.
    pub fn add_disk(&self, pool: &str, disk: &PoolAddDisk, node: Option<u16>) -> Result<Pool> {
        self.post(&of_node(format!("/v1/pools/{}/disks", segment(pool)), node), disk)
    }

    /// Removes a disk from a pool, or cancels that.
    pub fn remove_disk(&self, pool: &str, disk: &PoolRemoveDisk, node: Option<u16>) -> Result<Pool> {
        self.post(&of_node(format!("/v1/pools/{}/remove-disk", segment(pool)), node), disk)
    }

    /// Grows a pool whose disks have become larger.
    pub fn grow_pool(&self, name: &str, node: Option<u16>) -> Result<Pool> {
        self.post_empty(&of_node(format!("/v1/pools/{}/grow", segment(name)), node))
    }

    /// Closes a pool that has failed, and opens it again.
    pub fn reopen_pool(&self, name: &str, node: Option<u16>) -> Result<Pool> {
        self.post_empty(&of_node(format!("/v1/pools/{}/reopen", segment(name)), node))
    }

    /// Scrubs the volumes of a pool; returns the jobs.
    pub fn scrub_pool(&self, name: &str, node: Option<u16>) -> Result<List<Job>> {
        self.post_empty(&of_node(format!("/v1/pools/{}/scrub", segment(name)), node))
    }

    /// Acknowledges read errors of the pool's disks.
    pub fn acknowledge_pool(&self, name: &str, node: Option<u16>) -> Result<Pool> {
        self.post_empty(&of_node(format!("/v1/pools/{}/acknowledge", segment(name)), node))
    }

    /// Accepts the older data of a pool that was set back.
    pub fn accept_older_pool(&self, name: &str, node: Option<u16>) -> Result<Pool> {
        self.post_empty(&of_node(format!("/v1/pools/{}/accept-older", segment(name)), node))
    }

    /// Forgets a pool that cannot be used.
    pub fn forget_pool(&self, name: &str, how: &PoolForget, node: Option<u16>) -> Result<()> {
        let url = self.address(&of_node(format!("/v1/pools/{}/forget", segment(name)), node));
        self.done(self.authorized(self.agent.post(url)).send_json(how))
    }
}
