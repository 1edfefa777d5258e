//! Where the record of a cluster is: in its nodes, or in a site's etcd.

use cluster::etcd::{Access, Settings};
use link::ClusterId;
use serde::{Deserialize, Serialize};

use crate::config::RecordEngine;
use crate::shard::Shard;

/// What our keys in etcd begin with, before the cluster's identity.
const ETCD_PREFIX: &str = "ursa/";

/// Where a cluster has its record. That is chosen when it is made, and stays.
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
    /// Where this node is set to have it.
    pub(super) fn configured() -> RecordPlace {
        match Shard::current().config().record {
            RecordEngine::Etcd(_) => RecordPlace::Etcd,
            _ => RecordPlace::Nodes,
        }
    }
}

/// One etcd may have the records of several clusters.
pub(super) fn etcd_settings(access: &Access, cluster: ClusterId) -> Settings {
    Settings { access: access.clone(), prefix: format!("{ETCD_PREFIX}{cluster}/") }
}
