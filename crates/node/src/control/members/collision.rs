//! What keeps something that a joining node has from becoming the cluster's.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// What keeps something that a joining node has from becoming the cluster's: the cluster has another one, or
/// cannot have one more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // The messages say it.
#[serde(rename_all = "kebab-case")]
pub enum Collision {
    /// Two volumes have this name.
    Volume { name: String },
    /// Two host groups have this name.
    Host { name: String },
    /// Two targets have this name, and more than their maps differs.
    Target { name: String },
    /// A LUN of a target is a different volume on either side.
    Lun { target: String, lun: u16 },
    /// A LUN of the joining node is a volume of the cluster, as after its pool has moved, or where a pool was
    /// cloned. The cluster has not granted that access.
    Foreign { target: String, lun: u16 },
    /// The cluster has the volume on a node that is down: this one, under the number that it had before.
    Elsewhere { volume: String, node: u16 },
    /// Two targets that lead to one volume would have the same port number.
    Port { target: String, other: String },
    /// A host group of one side has a CHAP secret, which hosts of the other side would need for this target.
    Chap { target: String, host: String },
    /// A target of one side and a host group of the other have the same CHAP secret.
    Secret { target: String, host: String },
    /// The member and the joining node have one pool: a machine was cloned.
    Pool { name: String },
    /// Two users have this name.
    User { name: String },
    /// The cluster has the floating address of the joining node, too, or one of its nodes is reached there.
    FloatingIp { address: IpAddr },
    /// The node would be a witness, which cannot hold its floating address.
    Witness { address: IpAddr },
    /// Both sides together have more than a cluster may have.
    TooMany { what: Counted, most: usize },
}

/// What a cluster may have a limited number of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // The names say it.
#[serde(rename_all = "kebab-case")]
pub enum Counted {
    Users,
    ApiTokens,
    FloatingIps,
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Counted::Users => "users",
            Counted::ApiTokens => "API tokens",
            Counted::FloatingIps => "floating IPs",
        })
    }
}

impl fmt::Display for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Collision::Volume { name } => {
                write!(f, "volume {name:?}: rename one of the two (`ursa volume rename {name} NEW-NAME`)")
            }
            Collision::Host { name } => write!(
                f,
                "host group {name:?}: make the two the same (`ursa host set {name}`), or use a group of another name"
            ),
            Collision::Target { name } => write!(
                f,
                "target {name}: its port number, alias or CHAP secret differs; make the two the same (`ursa target set {name}`), or use a target of another name"
            ),
            Collision::Lun { target, lun } => write!(
                f,
                "LUN {lun} of target {target}: map one of the two volumes as another LUN (`ursa map create {target} VOLUME --lun N`, then `ursa map delete {target} {lun}`)"
            ),
            Collision::Foreign { target, lun } => write!(
                f,
                "LUN {lun} of target {target} leads to a volume of the cluster: unmap it on the joining node (`ursa map delete {target} {lun}`)"
            ),
            Collision::Elsewhere { volume, node } => write!(
                f,
                "volume {volume:?}, which the cluster has on node {node}: if this machine was node {node}, remove it there first (`ursa node remove {node}` on another node); if not, export the pool here (`ursa pool export`)"
            ),
            Collision::Port { target, other } => write!(
                f,
                "targets {target} and {other} lead to the same volume, and would have the same port number: map the volume in a new target instead of one of them (`ursa map create`, then `ursa map delete`)"
            ),
            Collision::Chap { target, host } => write!(
                f,
                "target {target}: hosts that log in without a CHAP secret could be in host group {host:?}, and would need its secret; use a target of another name"
            ),
            Collision::Secret { target, host } => write!(
                f,
                "target {target} and host group {host:?} have the same CHAP secret: change one (`ursa target set`, `ursa host set`)"
            ),
            Collision::Pool { name } => write!(
                f,
                "pool {name:?}, of which the joining node has a clone: export it there (`ursa pool export {name}`), and create a pool on other disks"
            ),
            Collision::User { name } => {
                write!(f, "user {name:?}: rename one of the two (`ursa user rename {name} NEW-NAME`)")
            }
            Collision::FloatingIp { address } => write!(
                f,
                "floating IP {address} of the joining node, which the cluster uses, too (`ursa floating-ip list`, `ursa node list`): replace it on one side by another address (`ursa floating-ip add`, then `ursa floating-ip remove {address}`)"
            ),
            Collision::Witness { address } => write!(
                f,
                "floating IP {address} of the joining node, which a witness cannot hold: join without --witness, or remove it there (`ursa floating-ip remove {address}`)"
            ),
            Collision::TooMany { what, most } => write!(
                f,
                "{what}: both sides together have more than {most}, which is the limit of a cluster: delete those that are no longer needed"
            ),
        }
    }
}
