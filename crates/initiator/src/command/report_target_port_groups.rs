//! REPORT TARGET PORT GROUPS (SPC-4 6.37): the unit's access state through each group of ports (ALUA).

use std::fmt;

use base::Buf;
use proto::iscsi::initiator::Transfer;
use proto::scsi::Cdb;

use super::{Command, Effect, u16_at, u32_at};
use crate::{Error, Lun, Session};

/// Room for 64 groups of 255 ports each.
const LEN: u32 = 4 + 64 * (8 + 255 * 4);

/// Asks for the states of all target port groups.
#[derive(Clone, Copy, Debug)]
pub struct ReportTargetPortGroups;

/// A unit's access state through a group of ports (SPC-4 table 278).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessState {
    /// The best way to the unit.
    ActiveOptimized,
    /// Usable, by a detour.
    ActiveNonOptimized,
    /// Optimized for some blocks only.
    LogicalBlockDependent,
    /// No I/O, unless the group is activated.
    Standby,
    /// No I/O; only queries about the unit are answered.
    Unavailable,
    /// Not accessible at all.
    Offline,
    /// Changing from one state to another.
    Transitioning,
}

impl AccessState {
    fn from_number(number: u8) -> Option<AccessState> {
        Some(match number {
            0x0 => AccessState::ActiveOptimized,
            0x1 => AccessState::ActiveNonOptimized,
            0x2 => AccessState::Standby,
            0x3 => AccessState::Unavailable,
            0x4 => AccessState::LogicalBlockDependent,
            0xe => AccessState::Offline,
            0xf => AccessState::Transitioning,
            _ => return None,
        })
    }
}

impl fmt::Display for AccessState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AccessState::ActiveOptimized => "active/optimized",
            AccessState::ActiveNonOptimized => "active/non-optimized",
            AccessState::LogicalBlockDependent => "logical block dependent",
            AccessState::Standby => "standby",
            AccessState::Unavailable => "unavailable",
            AccessState::Offline => "offline",
            AccessState::Transitioning => "transitioning",
        })
    }
}

/// A group of ports that share a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortGroup {
    /// Its number.
    pub id: u16,
    /// Its state.
    pub state: AccessState,
    /// Whether the target prefers this group.
    pub preferred: bool,
    /// The relative identifiers of its ports.
    pub ports: Vec<u16>,
}

impl Command for ReportTargetPortGroups {
    type Answer = Vec<PortGroup>;
    const NAME: &'static str = "REPORT TARGET PORT GROUPS";

    fn cdb(&self) -> Cdb {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1]) = (0xa3, 0x0a);
        cdb[6..10].copy_from_slice(&LEN.to_be_bytes());
        Cdb(cdb)
    }

    fn transfer(&self) -> Transfer {
        Transfer::In(LEN)
    }

    fn effect(&self) -> Effect {
        Effect::None
    }

    fn answer(&self, data: Option<Buf>) -> Option<Vec<PortGroup>> {
        parse(&data?)
    }
}

/// Ignores groups in a state that the standard does not define.
fn parse(data: &[u8]) -> Option<Vec<PortGroup>> {
    let len = u32_at(data, 0)? as usize;
    let mut rest = data.get(4..)?;
    rest = &rest[..len.min(rest.len())];
    let mut groups = Vec::new();
    while let Some(header) = rest.first_chunk::<8>() {
        let ports = rest.get(8..8 + usize::from(header[7]) * 4)?;
        if let Some(state) = AccessState::from_number(header[0] & 0x0f) {
            groups.push(PortGroup {
                id: u16::from_be_bytes([header[2], header[3]]),
                state,
                preferred: header[0] & 0x80 != 0,
                ports: ports.as_chunks::<4>().0.iter().filter_map(|port| u16_at(port, 2)).collect(),
            });
        }
        rest = &rest[8 + ports.len()..];
    }
    Some(groups)
}

impl Session {
    /// The states of all target port groups.
    pub async fn target_port_groups(&self, lun: Lun) -> Result<Vec<PortGroup>, Error> {
        self.send(lun, &ReportTargetPortGroups).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_groups() {
        let mut data = vec![0, 0, 0, 28];
        data.extend([0x80, 0xcf, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2]);
        data.extend([0x0f, 0xcf, 1, 2, 0, 0, 0, 1, 0, 0, 0, 3]);
        let expected = [
            PortGroup { id: 1, state: AccessState::ActiveOptimized, preferred: true, ports: vec![1, 2] },
            PortGroup { id: 0x102, state: AccessState::Transitioning, preferred: false, ports: vec![3] },
        ];
        assert_eq!(parse(&data).unwrap(), expected);
        assert_eq!(parse(&data[..20]).unwrap(), expected[..1]);
        assert_eq!(parse(&data[..30]), None, "a group that is cut short");
        data[4] = 0x07;
        assert_eq!(parse(&data).unwrap(), expected[1..], "an unknown state");
    }
}
