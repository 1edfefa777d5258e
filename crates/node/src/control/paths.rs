//! Gives all cores what the cluster knows about the paths to volumes.

use std::collections::BTreeMap;

use super::Control;
use crate::attach::port_numbers::NodeNumber;
use crate::attach::unit::Paths;
use crate::data::VolumeId;
use crate::shard::{NodePortals, Shard, on_all_cores};

impl Control {
    /// Sets the paths to a volume on every core.
    ///
    /// When this returns, no core admits anything that these paths do not allow; what was admitted before
    /// continues. If the volume is not open here, nothing happens: the caller sets the paths again when the
    /// volume is opened.
    pub async fn set_paths(&self, volume: VolumeId, paths: Paths) {
        on_all_cores(move || async move {
            if let Some(unit) = Shard::current().unit(volume) {
                unit.set_paths(paths);
            }
        })
        .await;
    }

    /// Sets the portals of the other nodes of the cluster, for initiators that ask for a target's portals or
    /// for the names of a volume's ports.
    pub async fn set_peer_portals(&self, portals: BTreeMap<NodeNumber, NodePortals>) {
        on_all_cores(move || async move { Shard::current().set_peer_portals(portals) }).await;
    }
}
