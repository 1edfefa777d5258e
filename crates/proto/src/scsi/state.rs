//! The unit's state that all cores share, and the part of it that survives a restart
//! (`docs/formats/lu-state.md`).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::mode::Mode;
use super::reservations::{Kind, Reservation, Reservations};
use super::{InitiatorPort, ItNexus, RelativePort};

/// The unit's state that all cores share.
///
/// The parts that the standard requires survive a restart: saved mode parameters, and persistent reservations
/// that were made with APTPL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LuState {
    /// Whether START STOP UNIT has stopped the unit. Not durable.
    pub(super) stopped: bool,
    /// The current mode parameters. Not durable.
    pub(super) mode: Mode,
    /// The mode parameters that a reset restores. Durable.
    pub(super) saved_mode: Mode,
    /// Registrations and reservations. Durable if [`Reservations::survives`] says so.
    pub(super) reservations: Reservations,
}

impl LuState {
    /// Whether a write may be answered before it is durable (WCE of the caching mode page).
    pub fn write_cache(&self) -> bool {
        self.mode.write_cache
    }

    /// Whether MODE SELECT has write-protected the unit (SWP of the control mode page).
    pub fn write_protected(&self) -> bool {
        self.mode.write_protected
    }

    /// The state after target ports have got other numbers.
    #[must_use]
    pub fn renumbered(mut self, number: impl Fn(RelativePort) -> RelativePort) -> LuState {
        self.reservations.renumber(number);
        self
    }

    /// Encodes the part that must survive a restart, in the format of `docs/formats/lu-state.md`; empty if it
    /// is the default.
    pub fn to_durable(&self) -> Vec<u8> {
        let reservations = &self.reservations;
        let keeps_reservations = reservations.survives && !reservations.registrations.is_empty();
        if self.saved_mode == Mode::default() && !keeps_reservations {
            return Vec::new();
        }
        let empty = Reservations::default();
        let reservations = if keeps_reservations { reservations } else { &empty };
        let held = reservations.reservation.as_ref();
        let holder = held
            .and_then(|held| held.holder.as_ref())
            .and_then(|holder| reservations.registrations.keys().position(|nexus| nexus == holder));
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.push(mode_flags(&self.saved_mode));
        bytes.push(held.map_or(0, |held| held.kind as u8));
        bytes.extend_from_slice(&holder.map_or(NO_HOLDER, |index| index as u16).to_le_bytes());
        bytes.extend_from_slice(&(reservations.registrations.len() as u16).to_le_bytes());
        for (nexus, key) in &reservations.registrations {
            bytes.extend_from_slice(&key.to_le_bytes());
            bytes.extend_from_slice(&nexus.port.0.to_le_bytes());
            let InitiatorPort::Iscsi { name, isid } = &nexus.initiator;
            bytes.push(ISCSI);
            bytes.extend_from_slice(isid);
            bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
        }
        bytes.extend_from_slice(&base::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Decodes what [`LuState::to_durable`] wrote; `None` if the bytes are damaged or of an unknown version.
    pub fn from_durable(bytes: &[u8]) -> Option<LuState> {
        if bytes.is_empty() {
            return Some(LuState::default());
        }
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        if base::crc32c(body) != u32::from_le_bytes(*crc) {
            return None;
        }
        let mut reader = Reader(body);
        if reader.take::<4>()? != MAGIC || u16::from_le_bytes(reader.take()?) != VERSION {
            return None;
        }
        let [flags, kind] = reader.take()?;
        let saved_mode = mode_of(flags)?;
        let holder = u16::from_le_bytes(reader.take()?);
        let count = u16::from_le_bytes(reader.take()?);
        let mut nexuses = Vec::new();
        let mut reservations = Reservations { survives: count > 0, ..Reservations::default() };
        for _ in 0..count {
            let key = u64::from_le_bytes(reader.take()?);
            let port = RelativePort(u16::from_le_bytes(reader.take()?));
            if reader.take::<1>()? != [ISCSI] {
                return None;
            }
            let isid = reader.take()?;
            let len = usize::from(u16::from_le_bytes(reader.take()?));
            let name = Arc::from(std::str::from_utf8(reader.slice(len)?).ok()?);
            let nexus = ItNexus { initiator: InitiatorPort::Iscsi { name, isid }, port };
            if key == 0 || reservations.registrations.insert(nexus.clone(), key).is_some() {
                return None;
            }
            nexuses.push(nexus);
        }
        reservations.reservation = match (kind, holder) {
            (0, NO_HOLDER) => None,
            (code, NO_HOLDER) => {
                let kind = Kind::from_code(code).filter(|kind| kind.is_all_registrants() && count > 0)?;
                Some(Reservation { kind, holder: None })
            }
            (code, index) => {
                let kind = Kind::from_code(code).filter(|kind| !kind.is_all_registrants())?;
                Some(Reservation { kind, holder: Some(nexuses.get(usize::from(index))?.clone()) })
            }
        };
        let state = LuState { stopped: false, mode: saved_mode, saved_mode, reservations };
        reader.0.is_empty().then_some(state)
    }
}

const MAGIC: [u8; 4] = *b"ULUS";
const VERSION: u16 = 1;
const NO_HOLDER: u16 = u16::MAX;
/// The protocol of an initiator port.
const ISCSI: u8 = 1;

fn mode_flags(mode: &Mode) -> u8 {
    u8::from(mode.write_cache) | u8::from(mode.descriptor_sense) << 1 | u8::from(mode.write_protected) << 2
}

fn mode_of(flags: u8) -> Option<Mode> {
    let bit = |bit: u8| flags & (1 << bit) != 0;
    let mode = Mode { write_cache: bit(0), descriptor_sense: bit(1), write_protected: bit(2) };
    (flags < 8).then_some(mode)
}

/// Bytes that have not been read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn slice(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> LuState {
        let nexus = |name: &str, port| ItNexus {
            initiator: InitiatorPort::Iscsi { name: Arc::from(name), isid: [0, 2, 0x3d, 0, 0, 1] },
            port: RelativePort(port),
        };
        let mut state = LuState::default();
        state.saved_mode.write_protected = true;
        state.mode = state.saved_mode;
        state.reservations.survives = true;
        state.reservations.registrations =
            [(nexus("iqn.a", 1), 0x1122_3344_5566_7788), (nexus("b", 2), 7)].into();
        state.reservations.reservation =
            Some(Reservation { kind: Kind::ExclusiveAccess, holder: Some(nexus("iqn.a", 1)) });
        state
    }

    /// The byte table of docs/formats/lu-state.md.
    #[test]
    fn bytes() {
        #[rustfmt::skip]
        let mut expected = vec![
            b'U', b'L', b'U', b'S', 1, 0, // magic, version
            0x05, 3, // WCE and SWP; exclusive access
            1, 0, 2, 0, // held by the second of two
            7, 0, 0, 0, 0, 0, 0, 0, 2, 0, // a key, port 2
            1, 0x00, 0x02, 0x3d, 0x00, 0x00, 0x01, 1, 0, b'b', // iSCSI, ISID, name
            0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 1, 0,
            1, 0x00, 0x02, 0x3d, 0x00, 0x00, 0x01, 5, 0, b'i', b'q', b'n', b'.', b'a',
        ];
        expected.extend_from_slice(&base::crc32c(&expected).to_le_bytes());
        assert_eq!(state().to_durable(), expected);
        assert_eq!(LuState::from_durable(&expected), Some(state()));
    }

    #[test]
    fn an_unknown_protocol_is_refused() {
        for protocol in [0, 2, 0xff] {
            let mut bytes = state().to_durable();
            // Of the first registration, after the header, its key and its port.
            bytes[12 + 8 + 2] = protocol;
            let body = bytes.len() - 4;
            let crc = base::crc32c(&bytes[..body]);
            bytes[body..].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(LuState::from_durable(&bytes), None);
        }
    }

    #[test]
    fn damage_is_found() {
        let good = state().to_durable();
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            assert_eq!(LuState::from_durable(&bytes), None, "byte {at}");
            // An empty record is the default; any other prefix is damage.
            assert_eq!(LuState::from_durable(&good[..at]).is_some(), at == 0);
        }
    }

    #[test]
    fn volatile_state_does_not_survive() {
        assert_eq!(LuState::default().to_durable(), []);
        let mut state = state();
        state.saved_mode = Mode::default();
        state.reservations.survives = false;
        assert_eq!(state.to_durable(), []);
    }
}
