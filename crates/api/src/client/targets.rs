//! Calls for targets, LUN maps, host groups and sessions.

use super::path::{of_node, segment};
use super::{Client, Result};
use crate::{
    Host, HostChange, HostCreate, List, MapCreate, Session, Target, TargetChange, TargetCreate, TargetMap,
};

/// Targets and LUN maps.
impl Client {
    /// All targets, by name.
    pub fn targets(&self) -> Result<Vec<Target>> {
        self.list("/v1/targets")
    }

    /// One target.
    pub fn target(&self, name: &str) -> Result<Target> {
        self.get(&format!("/v1/targets/{}", segment(name)))
    }

    /// Creates a target.
    pub fn create_target(&self, target: &TargetCreate) -> Result<Target> {
        self.post("/v1/targets", target)
    }

    /// Changes a target's alias or CHAP credentials. Its sessions continue.
    pub fn change_target(&self, name: &str, change: &TargetChange) -> Result<Target> {
        self.patch(&format!("/v1/targets/{}", segment(name)), change)
    }

    /// Deletes a target; with `force`, also its maps.
    pub fn delete_target(&self, name: &str, force: bool) -> Result<()> {
        self.delete(&format!("/v1/targets/{}?force={force}", segment(name)))
    }

    /// Maps a volume as a LUN of a target.
    pub fn create_map(&self, target: &str, map: &MapCreate) -> Result<TargetMap> {
        self.post(&format!("/v1/targets/{}/maps", segment(target)), map)
    }

    /// Unmaps a LUN from one host group, or from all.
    pub fn delete_map(&self, target: &str, lun: u16, host: Option<&str>) -> Result<()> {
        let host = host.map_or(String::new(), |host| format!("?host={}", segment(host)));
        self.delete(&format!("/v1/targets/{}/maps/{lun}{host}", segment(target)))
    }
}

/// Host groups.
impl Client {
    /// All host groups, by name.
    pub fn hosts(&self) -> Result<Vec<Host>> {
        self.list("/v1/hosts")
    }

    /// One host group.
    pub fn host(&self, name: &str) -> Result<Host> {
        self.get(&format!("/v1/hosts/{}", segment(name)))
    }

    /// Creates a host group.
    pub fn create_host(&self, host: &HostCreate) -> Result<Host> {
        self.post("/v1/hosts", host)
    }

    /// Changes a host group.
    pub fn change_host(&self, name: &str, change: &HostChange) -> Result<Host> {
        self.put_json(&format!("/v1/hosts/{}", segment(name)), change)
    }

    /// Deletes a host group.
    pub fn delete_host(&self, name: &str) -> Result<()> {
        self.delete(&format!("/v1/hosts/{}", segment(name)))
    }
}

/// Sessions.
impl Client {
    /// All sessions, by number.
    pub fn sessions(&self) -> Result<Vec<Session>> {
        self.list("/v1/sessions")
    }

    /// The sessions of another node of the cluster, by its number, or of `all`.
    pub fn sessions_of(&self, node: &str) -> Result<List<Session>> {
        self.get(&format!("/v1/sessions?node={}", segment(node)))
    }

    /// Ends a session on the node with this number; `None` means the queried node. The initiator may log in
    /// again.
    pub fn end_session(&self, tsih: u16, node: Option<u16>) -> Result<()> {
        self.delete(&of_node(format!("/v1/sessions/{tsih}"), node))
    }
}
