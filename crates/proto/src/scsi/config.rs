//! What a unit is: given by the node, changed only by an administrator's act.

use base::{BlockCount, BlockSize};

use super::RelativePort;
use super::limits::AtomicWrites;
use super::operations::Reach;
use super::sense::{Sense, SenseKey, code};

/// Names that never change over a unit's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Eight characters at most, as are those below by SPC-4's field sizes.
    pub vendor: String,
    /// Sixteen characters at most.
    pub product: String,
    /// Four characters at most.
    pub revision: String,
    /// The unit serial number (VPD 80h).
    pub serial: String,
    /// NAA 6 (IEEE registered extended), 16 bytes.
    pub naa: [u8; 16],
    /// EUI-64 based, 8 bytes.
    pub eui64: [u8; 8],
}

/// What a unit is. It changes only by an administrator's act (resize, a new portal group).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LuConfig {
    /// Who it is.
    pub identity: Identity,
    /// The logical block.
    pub block_size: BlockSize,
    /// log2 of logical blocks per physical block: 3 for 512e.
    pub physical_exponent: u8,
    /// The capacity.
    pub blocks: BlockCount,
    /// UNMAP gives space back.
    pub unmap: bool,
    /// No spindle (rotation rate 1).
    pub solid_state: bool,
    /// Writes are refused by configuration.
    pub read_only: bool,
    /// What WRITE ATOMIC promises.
    pub atomic: AtomicWrites,
    /// The ports through which it can be reached, in groups, by ascending number.
    pub port_groups: Vec<PortGroup>,
    /// How it can be used through a port that is in no group, because it is just being taken away.
    pub unlisted: AccessState,
}

impl LuConfig {
    /// A port by its number, with its group.
    pub fn port(&self, port: RelativePort) -> Option<(&PortGroup, &TargetPort)> {
        self.port_groups
            .iter()
            .find_map(|group| group.ports.iter().find(|p| p.relative == port).map(|port| (group, port)))
    }

    /// How it can be used through `port`.
    pub(super) fn access_state(&self, port: RelativePort) -> AccessState {
        self.port(port).map_or(self.unlisted, |(group, _)| group.state)
    }

    /// Whether one who comes through `port` must look again how the unit can be reached, since it was as in
    /// `old`: the state of a group has changed, or the port is in another one. A port or a group that comes
    /// or goes changes no state.
    pub(super) fn changes_access(&self, old: &LuConfig, port: RelativePort) -> bool {
        let group_of = |config: &LuConfig| config.port(port).map(|(group, _)| group.id);
        let moved = matches!((group_of(old), group_of(self)), (Some(old), Some(new)) if old != new);
        let differs = |group: &PortGroup| {
            let before = old.port_groups.iter().find(|before| before.id == group.id);
            before.is_some_and(|before| (before.state, before.preferred) != (group.state, group.preferred))
        };
        moved || self.port_groups.iter().any(differs)
    }

    /// All ports.
    pub fn ports(&self) -> impl Iterator<Item = &TargetPort> {
        self.port_groups.iter().flat_map(|group| &group.ports)
    }
}

/// Target ports that share an access state (SPC-4, Asymmetric logical unit access).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortGroup {
    /// The target port group's number.
    pub id: u16,
    /// How the unit can be used through it.
    pub state: AccessState,
    /// The administrator prefers this group.
    pub preferred: bool,
    /// Its ports: never none, by ascending number.
    pub ports: Vec<TargetPort>,
}

/// A target port: in iSCSI a portal group of a target (RFC 7143 4.4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetPort {
    /// Its number.
    pub relative: RelativePort,
    /// The target's iSCSI name.
    pub target: String,
    /// The portal group tag.
    pub portal_group: u16,
}

impl TargetPort {
    /// The SCSI port name: "iqn.…,t,0x0001".
    pub fn name(&self) -> String {
        format!("{},t,0x{:04x}", self.target, self.portal_group)
    }
}

/// ASYMMETRIC ACCESS STATE (SPC-4, REPORT TARGET PORT GROUPS).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum AccessState {
    ActiveOptimized = 0x0,
    ActiveNonOptimized = 0x1,
    Standby = 0x2,
    Unavailable = 0x3,
    Offline = 0xe,
    Transitioning = 0xf,
}

impl AccessState {
    /// Whether a command of this reach is carried out in it.
    ///
    /// # Errors
    /// What it is answered instead.
    pub(super) fn admits(self, reach: Reach) -> Result<(), Sense> {
        let code = match (self, reach) {
            (AccessState::ActiveOptimized | AccessState::ActiveNonOptimized, _)
            | (AccessState::Standby, Reach::Standby)
            | (_, Reach::Any) => return Ok(()),
            (AccessState::Standby, Reach::Active) => {
                code::LOGICAL_UNIT_NOT_ACCESSIBLE_TARGET_PORT_IN_STANDBY_STATE
            }
            (AccessState::Unavailable | AccessState::Offline, _) => {
                code::LOGICAL_UNIT_NOT_ACCESSIBLE_TARGET_PORT_IN_UNAVAILABLE_STATE
            }
            (AccessState::Transitioning, _) => {
                code::LOGICAL_UNIT_NOT_ACCESSIBLE_ASYMMETRIC_ACCESS_STATE_TRANSITION
            }
        };
        Err(Sense::new(SenseKey::NotReady, code))
    }
}
