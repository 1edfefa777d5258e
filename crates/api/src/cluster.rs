//! Clusters: nodes that know each other.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{AddrParseError, IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::since::Since;

/// Where nodes listen for each other unless they are told otherwise. Next to the API's 3280; IANA lists it for nothing that
/// would be on such a machine.
pub const LINK_PORT: u16 = 3270;

/// How long a token may be valid at most: seven days. Who finds it later lets nobody in.
pub const TOKEN_SECONDS_MAX: u64 = 7 * 24 * 3_600;

/// How long a token is valid unless told otherwise: an hour.
pub const TOKEN_SECONDS: u64 = 3_600;

/// An address that nodes listen at for each other: `10.0.0.1:3270`, or `10.0.0.1`, which means [`LINK_PORT`].
///
/// # Errors
/// What is no address of either form. Names of machines are none: other nodes get to know the address as it is.
pub fn link_address(text: &str) -> Result<SocketAddr, AddrParseError> {
    let without_brackets = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    match without_brackets.parse::<IpAddr>() {
        Ok(address) => Ok(SocketAddr::new(address, LINK_PORT)),
        Err(_) => text.parse(),
    }
}

/// A node of a cluster, as the node that was asked sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterNode {
    /// Its number. Never given to another node.
    pub id: u16,
    /// Its name, for people.
    pub name: String,
    /// It is the one that was asked.
    pub here: bool,
    /// It was heard of within the last half second.
    pub up: bool,
    /// The numbers of nodes that reach it, as they say themselves, though the node that was asked does not hear of it: then it is not down, but the network between the
    /// two is cut. Absent if it is up, or nobody reaches it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reached_by: Vec<u16>,
    /// Since when it was not heard of; absent: it is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_since: Option<Since>,
    /// The version of Ursa that it runs, or ran when it was last there; absent: it was never there, or is older than this was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0.1.0")]
    pub version: Option<String>,
    /// How many cores it runs on, or ran on when it was last there; absent: it was never there, or is older than this was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u16>,
    /// Seconds since it was started, by its own clock and that of the node that was asked; absent: it is not up, or is older than this was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime: Option<u64>,
    /// It has the cluster's authority: by it, tokens are made for nodes that join. It is the node that made the cluster.
    #[serde(default)]
    pub authority: bool,
    /// Its word counts in the cluster's record.
    pub votes: bool,
    /// Why its copy of the record cannot be written: its vote is missing until it can. Absent: it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_stalled: Option<RecordStall>,
    /// It leads the record.
    pub leads: bool,
    /// It has a vote at most, and never a volume.
    pub witness: bool,
    /// How many copies of volumes it has.
    pub copies: u64,
    /// How many of them are in sync.
    pub in_sync: u64,
    /// It is to be stopped: none of its copies is in sync, and no volume waits for it.
    #[serde(default)]
    pub maintenance: bool,
    /// Since when, in seconds since 1970; absent: it is not, or a version of Ursa began it that did not note the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance_since: Option<u64>,
    /// It decides alone while two nodes without a witness are the cluster.
    #[serde(default)]
    pub preferred: bool,
    /// Where other nodes reach it.
    #[schema(example = json!(["10.0.0.1:3270"]))]
    pub addresses: Vec<String>,
    /// What some of these are kept for; one that is not here is for all links.
    #[serde(default)]
    #[schema(example = json!({"10.0.0.1:3270": "replication"}))]
    pub link_roles: BTreeMap<String, LinkRole>,
    /// Where it listens for iSCSI.
    #[schema(example = json!(["0.0.0.0:3260"]))]
    pub portals: Vec<String>,
}

/// Why a node's copy of the cluster's record cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecordStall {
    /// The file system of its data directory is full.
    NoSpace,
    /// The disk of its data directory fails.
    Disk,
    /// A defect of the program ended it: the node has to be restarted.
    Defect,
    /// A reason that only later versions know.
    Other,
}

impl fmt::Display for RecordStall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RecordStall::NoSpace => "no space",
            RecordStall::Disk => "disk fails",
            RecordStall::Defect => "restart it",
            RecordStall::Other => "stalled",
        })
    }
}

impl ClusterNode {
    /// Whether its vote can be counted on: it has one, is heard of, and can write down what it votes for.
    pub fn can_vote(&self) -> bool {
        self.votes && self.up && self.record_stalled.is_none()
    }
}

/// Where a cluster has its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecordPlace {
    /// In its nodes: a majority of those that vote decides.
    #[default]
    Nodes,
    /// In a site's etcd: no node votes.
    Etcd,
}

/// The record of a cluster, as the node that was asked reaches it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterRecord {
    /// Where it is.
    pub place: RecordPlace,
    /// It can be changed: a majority of what keeps it was heard of just now. Without it volumes go on, but nothing is changed and no lost node is given up.
    pub answers: bool,
    /// Where the node finds etcd, if it is there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(example = json!(["https://10.0.0.9:2379"]))]
    pub endpoints: Vec<String>,
}

/// What an address of a node is kept for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LinkRole {
    /// The data of volumes.
    Replication,
    /// Heartbeats, leases and the cluster's record. If none of these addresses answers they go where data goes.
    Heartbeat,
}

impl fmt::Display for LinkRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinkRole::Replication => "replication",
            LinkRole::Heartbeat => "heartbeat",
        })
    }
}

/// What an address of a node is to be kept for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkFor {
    /// One that the node listens at for others. Without a port: 3270.
    #[schema(example = "10.0.0.1:3270")]
    pub address: String,
    /// Null: for all links.
    pub role: Option<LinkRole>,
}

/// Which node decides alone while two nodes without a witness are the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Preference {
    /// Its number; null: whichever does.
    pub node: Option<u16>,
}

/// What all nodes together may give to bring copies up to date.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SyncLimit {
    /// Bytes a second, 1 MiB to 1 TiB; null: each node as much as its own settings say.
    #[schema(minimum = 1_048_576, maximum = 1_099_511_627_776_u64)]
    pub bytes_per_second: Option<u64>,
}

/// How often the copies of volumes are compared without anybody asking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VerifySchedule {
    /// Every so many seconds, an hour at least; null: never.
    #[schema(minimum = 3_600)]
    pub seconds: Option<u64>,
}

/// Whether a node is in maintenance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Maintenance {
    /// It is.
    pub on: bool,
}

/// A cluster to be made, of this node alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterInit {
    /// Where to listen for other nodes: addresses that they reach. Without a port: 3270.
    #[schema(min_items = 1, example = json!(["10.0.0.1:3270"]))]
    pub listen: Vec<String>,
}

/// A token to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenCreate {
    /// For how many seconds it lets a node in; seven days at most.
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

/// What lets one node in, once. A secret: `Debug` hides it.
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

/// A cluster that this node is to join.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterJoin {
    /// What the cluster's first node has made. It is good for one node, once.
    #[schema(write_only, format = Password)]
    pub token: String,
    /// Where to listen for other nodes: addresses that they reach. Without a port: 3270.
    #[schema(min_items = 1, example = json!(["10.0.0.2:3270"]))]
    pub listen: Vec<String>,
    /// Have a vote at most, and never a volume: for the third of three machines, which may be small.
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
