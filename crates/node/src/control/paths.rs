//! What the cluster says of the ways to volumes, brought to all cores.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::Control;
use crate::port_numbers::NodeNumber;
use crate::shard::{Shard, on_all_cores};
use crate::unit::Paths;
use crate::volume::VolumeId;

impl Control {
    /// From now on these ways lead to a volume, on every core: when this returns, nothing is admitted any
    /// more that they do not allow. What was admitted before goes on. A volume that is not open here has no
    /// ways; when it is opened they are to be said again.
    pub async fn set_paths(&self, volume: VolumeId, paths: Paths) {
        on_all_cores(move || {
            let paths = paths.clone();
            async move {
                if let Some(unit) = Shard::current().unit(volume) {
                    unit.set_paths(paths);
                }
            }
        })
        .await;
    }

    /// Where the other nodes of the cluster listen, for initiators that ask which portals a target has.
    pub async fn set_peer_portals(&self, portals: BTreeMap<NodeNumber, Vec<SocketAddr>>) {
        on_all_cores(move || {
            let portals = portals.clone();
            async move { Shard::current().set_peer_portals(portals) }
        })
        .await;
    }
}
