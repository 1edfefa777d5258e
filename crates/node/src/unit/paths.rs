//! The ways to a volume: through this node, and through others that have a copy of it.
//!
//! What must hold: all nodes tell the same groups and ports, whichever is asked; and a node carries out
//! nothing for a volume through its own ports unless it may. So the groups are made from what all nodes know
//! alike, the targets and the numbers of nodes, and how well this node reaches the volume is always said.

use std::collections::BTreeMap;

use proto::scsi::{AccessState, LuConfig, PortGroup, TargetPort};

use crate::access::{Access, Target};
use crate::port_numbers::{NodeNumber, PortNumbers};
use crate::volume::VolumeId;

/// How a volume can be used through the ports of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// What is carried out through them.
    pub state: AccessState,
    /// An administrator prefers them.
    pub preferred: bool,
}

impl Way {
    /// A way in this state, which nobody prefers.
    pub fn new(state: AccessState) -> Way {
        Way { state, preferred: false }
    }
}

/// All ways to a volume, as far as this node knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Through this node.
    pub own: Way,
    /// Through the other nodes that have a copy. Only a node with a number knows others.
    pub others: BTreeMap<NodeNumber, Way>,
}

impl Paths {
    /// To a volume that only this node has.
    pub fn only() -> Paths {
        Paths { own: Way::new(AccessState::ActiveOptimized), others: BTreeMap::new() }
    }

    /// To a copy of a volume, before anybody has said whether it may be used.
    pub fn not_known() -> Paths {
        Paths { own: Way::new(AccessState::Unavailable), others: BTreeMap::new() }
    }

    /// `config` with the port groups of these ways.
    pub fn in_config(
        &self,
        volume: VolumeId,
        access: &Access,
        numbers: PortNumbers,
        config: &LuConfig,
    ) -> LuConfig {
        let port_groups = self.port_groups(volume, access, numbers);
        LuConfig { port_groups, unlisted: self.own.state, ..config.clone() }
    }

    /// The target port groups: one a node, with a port for each target that leads to the volume. No targets,
    /// no groups: a group has a port.
    fn port_groups(&self, volume: VolumeId, access: &Access, numbers: PortNumbers) -> Vec<PortGroup> {
        assert!(
            numbers != PortNumbers::Alone || self.others.is_empty(),
            "a node without a number knows no others"
        );
        let others = self.others.iter().map(|(node, way)| (PortNumbers::Member(*node), *way));
        let others = others.filter(|(others, _)| *others != numbers);
        let mut groups: Vec<PortGroup> = std::iter::once((numbers, self.own))
            .chain(others)
            .map(|(numbers, way)| PortGroup {
                id: numbers.port_group(),
                state: way.state,
                preferred: way.preferred,
                ports: ports(volume, access, numbers),
            })
            .collect();
        groups.retain(|group| !group.ports.is_empty());
        groups.sort_by_key(|group| group.id);
        groups
    }
}

/// The ports of one node that lead to the volume: one a target.
fn ports(volume: VolumeId, access: &Access, numbers: PortNumbers) -> Vec<TargetPort> {
    let port = |target: &Target| TargetPort {
        relative: numbers.port(target.port),
        target: target.name.to_string(),
        portal_group: numbers.portal_group(),
    };
    let mut ports: Vec<TargetPort> = access.targets_of(volume).map(port).collect();
    ports.sort_by_key(|port| port.relative);
    ports
}
