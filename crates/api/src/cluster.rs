//! Clusters and their nodes.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{AddrParseError, IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::since::Since;

/// Default port for connections between nodes. It is near the API's 3280; IANA has not assigned it to
/// anything that would run on such a machine.
pub const LINK_PORT: u16 = 3270;

/// Longest validity of a join token: seven days. A token found later is useless.
pub const TOKEN_SECONDS_MAX: u64 = 7 * 24 * 3_600;

/// Default validity of a join token: one hour.
pub const TOKEN_SECONDS: u64 = 3_600;

/// Parses an address on which nodes listen for each other: `10.0.0.1:3270`, or `10.0.0.1`, which means
/// [`LINK_PORT`].
///
/// # Errors
/// If the text has neither form. Host names are not accepted, since other nodes receive the address as it is.
pub fn link_address(text: &str) -> Result<SocketAddr, AddrParseError> {
    let without_brackets = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    match without_brackets.parse::<IpAddr>() {
        Ok(address) => Ok(SocketAddr::new(address, LINK_PORT)),
        Err(_) => text.parse(),
    }
}

/// A node of a cluster, as the queried node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterNode {
    /// Node number. Never reused for another node.
    pub id: u16,
    /// Node name.
    pub name: String,
    /// This is the queried node.
    pub here: bool,
    /// A heartbeat arrived within the last half second.
    pub up: bool,
    /// Numbers of nodes that report that they reach it, although the queried node does not: it is not down;
    /// the network between the two nodes is cut. Absent if it is up, or no node reaches it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reached_by: Vec<u16>,
    /// Unreachable since; absent: it is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_since: Option<Since>,
    /// Version of Ursa that it runs, or ran when it was last reachable; absent: it was never reachable, or
    /// its version does not report this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0.1.0")]
    pub version: Option<String>,
    /// Number of cores that it runs on, or ran on when it was last reachable; absent: it was never reachable,
    /// or its version does not report this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u16>,
    /// Seconds since it was started, by its own clock and that of the queried node; absent: it is not up, or
    /// its version does not report this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime: Option<u64>,
    /// It holds the cluster CA key, which join tokens are created with. It is the node that created the
    /// cluster.
    #[serde(default)]
    pub authority: bool,
    /// It is a voter: its vote counts in the cluster's record.
    pub votes: bool,
    /// Why its copy of the record accepts no changes: its vote is missing until it does. Absent: it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_stalled: Option<RecordStall>,
    /// It is the leader of the record.
    pub leads: bool,
    /// It is a witness: it may vote, and never has volumes.
    pub witness: bool,
    /// Number of copies of volumes on it.
    pub copies: u64,
    /// Number of these copies that are in sync.
    pub in_sync: u64,
    /// It is in maintenance and can be stopped: none of its copies is in sync, and no volume waits for it.
    #[serde(default)]
    pub maintenance: bool,
    /// In maintenance since, in seconds since 1970; absent: it is not in maintenance, or a version of Ursa
    /// that did not record the time put it there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance_since: Option<u64>,
    /// It is the preferred node of two nodes without a witness.
    #[serde(default)]
    pub preferred: bool,
    /// Addresses at which other nodes reach it.
    #[schema(example = json!(["10.0.0.1:3270"]))]
    pub addresses: Vec<String>,
    /// Addresses dedicated to one kind of traffic; an address that is not listed is for all links.
    #[serde(default)]
    #[schema(example = json!({"10.0.0.1:3270": "replication"}))]
    pub link_roles: BTreeMap<String, LinkRole>,
    /// Its iSCSI portals.
    #[schema(example = json!(["0.0.0.0:3260"]))]
    pub portals: Vec<String>,
}

/// Why a node's copy of the cluster's record accepts no changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecordStall {
    /// The file system of its data directory is full.
    NoSpace,
    /// The disk of its data directory is failing.
    Disk,
    /// A software defect ended it: restart the node.
    Defect,
    /// Other nodes run a later version of Ursa, and this one cannot read their changes: update it.
    NeedsUpdate,
    /// A reason that only later versions know.
    Other,
}

impl fmt::Display for RecordStall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RecordStall::NoSpace => "no space",
            RecordStall::Disk => "disk fails",
            RecordStall::Defect => "restart it",
            RecordStall::NeedsUpdate => "update it",
            RecordStall::Other => "stalled",
        })
    }
}

impl ClusterNode {
    /// Whether its vote can be counted on: it is a voter, it is up, and it can write its copy of the record.
    pub fn can_vote(&self) -> bool {
        self.votes && self.up && self.record_stalled.is_none()
    }
}

/// Where a cluster keeps its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecordPlace {
    /// On its nodes: a majority of the voters decides.
    #[default]
    Nodes,
    /// In etcd: no node votes.
    Etcd,
}

/// The record of a cluster, as the queried node reaches it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterRecord {
    /// Where it is kept.
    pub place: RecordPlace,
    /// It has quorum and can be changed. Without quorum volumes keep serving, but nothing in the record can
    /// change and no lost node is failed over.
    pub answers: bool,
    /// The etcd endpoints, if it is kept in etcd.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(example = json!(["https://10.0.0.9:2379"]))]
    pub endpoints: Vec<String>,
}

/// The traffic that an address of a node is dedicated to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LinkRole {
    /// The data of volumes.
    Replication,
    /// Heartbeats, leases and the cluster's record. If none of these addresses answers, this traffic uses the
    /// data addresses.
    Heartbeat,
}

/// What to dedicate an address of a node to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkFor {
    /// An address on which the node listens for other nodes. Default port: 3270.
    #[schema(example = "10.0.0.1:3270")]
    pub address: String,
    /// Null: for all links.
    pub role: Option<LinkRole>,
}

/// The preferred node of two nodes without a witness.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Preference {
    /// Its number; null: no preference.
    pub node: Option<u16>,
}

/// Limit for the resync traffic of all nodes together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SyncLimit {
    /// Bytes per second, 1 MiB to 1 TiB; null: no cluster limit, each node follows its own setting.
    #[schema(minimum = 1_048_576, maximum = 1_099_511_627_776_u64)]
    pub bytes_per_second: Option<u64>,
}

/// Schedule for comparing the copies of volumes automatically.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VerifySchedule {
    /// Interval in seconds, at least an hour; null: never.
    #[schema(minimum = 3_600)]
    pub seconds: Option<u64>,
}

/// Whether a node is in maintenance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Maintenance {
    /// True: enter maintenance; false: leave it.
    pub on: bool,
}

/// How the node listens for other nodes, so that they can join it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterInit {
    /// Addresses on which to listen for other nodes, which must be able to reach them. Default port: 3270.
    #[schema(min_items = 1, example = json!(["10.0.0.1:3270"]))]
    pub listen: Vec<String>,
}

/// A join token to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenCreate {
    /// Validity in seconds; seven days at most.
    #[serde(default = "token_seconds")]
    #[schema(default = 3600, minimum = 1, maximum = 604_800)]
    pub valid_seconds: u64,
}

impl Default for TokenCreate {
    fn default() -> TokenCreate {
        TokenCreate { valid_seconds: TOKEN_SECONDS }
    }
}

fn token_seconds() -> u64 {
    TOKEN_SECONDS
}

/// A secret that lets one node join, once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JoinToken {
    /// The token.
    pub token: String,
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinToken(not shown)")
    }
}

/// A cluster for this node to join.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterJoin {
    /// A join token from the cluster. It lets one node join, once.
    #[schema(write_only, format = Password)]
    pub token: String,
    /// Addresses on which to listen for other nodes, which must be able to reach them. Default port: 3270.
    #[schema(min_items = 1, example = json!(["10.0.0.2:3270"]))]
    pub listen: Vec<String>,
    /// Join as a witness: it may vote, and never has volumes. Meant for the third of three machines, which
    /// may be small.
    #[serde(default)]
    pub witness: bool,
}

impl fmt::Debug for ClusterJoin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClusterJoin { token: _, listen, witness } = self;
        write!(f, "ClusterJoin(listen: {listen:?}, witness: {witness}, token not shown)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_need_not_be_named() {
        for (text, address) in [
            ("10.0.0.1", "10.0.0.1:3270"),
            ("10.0.0.1:4000", "10.0.0.1:4000"),
            ("fd00::1", "[fd00::1]:3270"),
            ("[fd00::1]", "[fd00::1]:3270"),
            ("[fd00::1]:4000", "[fd00::1]:4000"),
        ] {
            assert_eq!(link_address(text).map(|found| found.to_string()), Ok(address.to_owned()), "{text}");
        }
        for text in ["", "server1", "server1:3270", "10.0.0.1:", "10.0.0.1:70000", "10.0.0"] {
            assert!(link_address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn debug_hides_tokens() {
        let token = "ursa1-secret";
        let made = JoinToken { token: token.into() };
        let join = ClusterJoin { token: token.into(), listen: vec!["10.0.0.2".into()], witness: true };
        assert_eq!(format!("{made:?}"), "JoinToken(not shown)");
        assert_eq!(
            format!("{join:?}"),
            r#"ClusterJoin(listen: ["10.0.0.2"], witness: true, token not shown)"#
        );
    }
}
