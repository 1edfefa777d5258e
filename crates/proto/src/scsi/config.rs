//! The properties of a unit: set by the node, and changed only by an administrator.

use base::{BlockCount, BlockSize};

use super::RelativePort;
use super::limits::AtomicWrites;
use super::operations::Reach;
use super::sense::{Sense, SenseKey, code};

/// Names that never change during a unit's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// At most eight characters. SPC-4's field sizes limit this and the next two.
    pub vendor: String,
    /// At most sixteen characters.
    pub product: String,
    /// At most four characters.
    pub revision: String,
    /// The unit serial number (VPD 80h).
    pub serial: String,
    /// NAA 6 (IEEE registered extended), 16 bytes.
    pub naa: [u8; 16],
    /// EUI-64 based, 8 bytes.
    pub eui64: [u8; 8],
}

/// The properties of a unit. Only an administrator's action changes them (resize, a new portal group).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LuConfig {
    /// The unit's names.
    pub identity: Identity,
    /// The size of a logical block.
    pub block_size: BlockSize,
    /// log2 of logical blocks per physical block: 3 for 512e.
    pub physical_exponent: u8,
    /// The capacity in logical blocks.
    pub blocks: BlockCount,
    /// Whether UNMAP releases space.
    pub unmap: bool,
    /// Whether the unit reports no spindle (rotation rate 1).
    pub solid_state: bool,
    /// Whether the configuration refuses writes.
    pub read_only: bool,
    /// The guarantees of WRITE ATOMIC.
    pub atomic: AtomicWrites,
    /// At which shares of available space initiators are warned, if the unit may run out of space; such a
    /// unit has `unmap`.
    pub thresholds: Option<Thresholds>,
    /// The ports through which the unit can be reached, in groups, by ascending number.
    pub port_groups: Vec<PortGroup>,
    /// The access state through a port that is in no group, because it is being removed.
    pub unlisted: AccessState,
}

impl LuConfig {
    /// The port with this number, and its group.
    pub fn port(&self, port: RelativePort) -> Option<(&PortGroup, &TargetPort)> {
        self.port_groups
            .iter()
            .find_map(|group| group.ports.iter().find(|p| p.relative == port).map(|port| (group, port)))
    }

    pub(super) fn access_state(&self, port: RelativePort) -> AccessState {
        self.port(port).map_or(self.unlisted, |(group, _)| group.state)
    }

    /// Whether initiators at `port` must be notified that access states have changed since `old`: the state
    /// of a group has changed, or the port has moved to another group. A port or group that was added or
    /// removed changes no state.
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

/// When initiators are warned that a unit is running out of space: its logical block provisioning thresholds
/// (SBC-4 clause 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// The share of the space that is available at each threshold, in percent, in descending order.
    pub available: &'static [u8],
    /// A threshold that was reached can be reached again after the available share has exceeded it by more
    /// than this, in percent of the space.
    pub margin: u8,
}

impl Thresholds {
    /// Bytes of a threshold set, in which the space is counted.
    ///
    /// The number of a volume's sets must fit into 32 bits (SBC-4, Logical Block Provisioning VPD page). With
    /// this size it does for every volume, so the exponent stays the same when a volume grows.
    pub const SET_BYTES: u64 = 32 << 20;

    /// THRESHOLD EXPONENT: log2 of the number of blocks in a threshold set.
    pub(super) const fn exponent(size: BlockSize) -> u8 {
        (Thresholds::SET_BYTES.trailing_zeros() - size.shift()) as u8
    }

    /// THRESHOLD PERCENTAGE: how wide the range is whose center is a threshold, in tenths of a percent.
    pub(super) const fn range(&self) -> u8 {
        self.margin.saturating_mul(2 * 10)
    }
}

/// Target ports that share an access state (SPC-4, asymmetric logical unit access).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortGroup {
    /// The target port group's number.
    pub id: u16,
    /// The access state through the group.
    pub state: AccessState,
    /// Whether the administrator prefers this group.
    pub preferred: bool,
    /// The ports of the group, by ascending number; at least one.
    pub ports: Vec<TargetPort>,
}

/// A target port: in iSCSI, a portal group of a target (RFC 7143 4.4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetPort {
    /// Its number.
    pub relative: RelativePort,
    /// The target's iSCSI name.
    pub target: String,
    /// The portal group tag; `None`: a port of another node, whose tag is not known here.
    pub portal_group: Option<u16>,
}

impl TargetPort {
    /// The SCSI port name: "iqn.…,t,0x0001".
    pub fn name(&self) -> Option<String> {
        self.portal_group.map(|tag| format!("{},t,0x{tag:04x}", self.target))
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
    /// Whether a command of this reach is executed in this access state.
    ///
    /// # Errors
    /// The sense data with which the command is answered if not.
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
