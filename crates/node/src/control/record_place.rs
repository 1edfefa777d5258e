//! Where a cluster's record is: in its nodes, or in a site's etcd.

use cluster::etcd::{Access, Settings};
use link::ClusterId;
use serde::{Deserialize, Serialize};

use crate::config::RecordEngine;
use crate::shard::Shard;

/// The prefix of our keys in etcd, before the cluster's identity.
const ETCD_PREFIX: &str = "ursa/";

/// Where a cluster keeps its record. This is chosen when the cluster is created, and does not change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordPlace {
    /// In its nodes.
    #[default]
    Nodes,
    /// In a site's etcd.
    Etcd,
}

impl RecordPlace {
    /// The place that this node's settings name.
    pub(super) fn configured() -> RecordPlace {
        match Shard::current().config().record {
            RecordEngine::Etcd(_) => RecordPlace::Etcd,
            _ => RecordPlace::Nodes,
        }
    }
}

/// The settings for this cluster's record in etcd. One etcd may have the records of several clusters.
pub(super) fn etcd_settings(access: &Access, cluster: ClusterId) -> Settings {
    Settings { access: access.clone(), prefix: format!("{ETCD_PREFIX}{cluster}/") }
}
