//! The paths to a volume: through this node, and through others that have a copy of it.
//!
//! Two things must hold. All nodes report the same groups and ports, whichever is asked; and a node executes
//! commands to a volume through its own ports only if it may. So the groups are derived from what all nodes
//! know alike, the targets and the numbers and portal groups of nodes, and a node always reports its own
//! access state to the volume.

use std::collections::BTreeMap;

use proto::scsi::{AccessState, LuConfig, PortGroup, TargetPort};

use crate::attach::access::{Access, Target};
use crate::attach::port_numbers::NodeNumber;
use crate::data::VolumeId;
use crate::shard::Shard;

/// How a volume can be used through the ports of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The access state of these ports.
    pub state: AccessState,
    /// Whether an administrator prefers these ports.
    pub preferred: bool,
}

impl Way {
    /// A path in this state that is not preferred.
    pub fn new(state: AccessState) -> Way {
        Way { state, preferred: false }
    }
}

/// All paths to a volume, as far as this node knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The path through this node.
    pub own: Way,
    /// The paths through the other nodes that have a copy.
    pub others: BTreeMap<NodeNumber, Way>,
}

impl Paths {
    /// The path to a volume that only this node has.
    pub fn only() -> Paths {
        Paths { own: Way::new(AccessState::ActiveOptimized), others: BTreeMap::new() }
    }

    /// The path to a copy of a volume while its state is unknown.
    pub fn not_known() -> Paths {
        Paths { own: Way::new(AccessState::Unavailable), others: BTreeMap::new() }
    }

    /// `config` with the port groups of these paths, as this core knows the nodes.
    pub fn in_config(&self, volume: VolumeId, access: &Access, shard: &Shard, config: &LuConfig) -> LuConfig {
        let port_groups = self.port_groups(volume, access, shard);
        LuConfig { port_groups, unlisted: self.own.state, ..config.clone() }
    }

    /// The target port groups: one per node, with a port for each target that leads to the volume. A group
    /// without a port is left out, so without targets there are none.
    fn port_groups(&self, volume: VolumeId, access: &Access, shard: &Shard) -> Vec<PortGroup> {
        let number = shard.number();
        let others = self.others.iter().map(|(node, way)| (*node, *way));
        let others = others.filter(|(node, _)| *node != number);
        let mut groups: Vec<PortGroup> = std::iter::once((number, self.own))
            .chain(others)
            .map(|(node, way)| PortGroup {
                id: node.port_group(),
                state: way.state,
                preferred: way.preferred,
                ports: ports(volume, access, node, shard.portal_group_of(node)),
            })
            .collect();
        groups.retain(|group| !group.ports.is_empty());
        groups.sort_by_key(|group| group.id);
        groups
    }
}

/// The ports of one node that lead to the volume: one per target.
fn ports(volume: VolumeId, access: &Access, node: NodeNumber, portal_group: Option<u16>) -> Vec<TargetPort> {
    let port = |target: &Target| TargetPort {
        relative: node.port(target.port),
        target: target.name.to_string(),
        portal_group,
    };
    let mut ports: Vec<TargetPort> = access.targets_of(volume).map(port).collect();
    ports.sort_by_key(|port| port.relative);
    ports
}
