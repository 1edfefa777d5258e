//! The device identification page (SPC-4 7.8.6): the unit's name, and the port through which we see it.

use std::fmt;

use base::Buf;
use proto::iscsi::initiator::Transfer;
use proto::scsi::Cdb;

use super::{Command, Effect, Inquiry, u16_at};
use crate::{Error, Lun, Session};

/// The page.
const PAGE: u8 = 0x83;

/// Real pages are some hundred bytes long.
const LEN: u16 = 4096;

/// Asks for the unit's name.
#[derive(Clone, Copy, Debug)]
pub struct Identification;

/// The content of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The unit's name: the best that the page has.
    pub unit: UnitName,
    /// The relative identifier of the port that received the command, if the page has it.
    pub port: Option<u16>,
    /// The target port group of that port, if the page has it.
    pub port_group: Option<u16>,
    /// The vendor: the start of the T10 vendor identification, without trailing blanks.
    pub vendor: Option<String>,
}

/// A name that no other unit in the world has, the same through every path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitName {
    /// DESIGNATOR TYPE: 3 for NAA, 2 for EUI-64, 8 for a SCSI name string, 1 for a T10 vendor identification.
    kind: u8,
    designator: Vec<u8>,
}

/// Designator types with worldwide unique names, the best first: NAA, EUI-64, SCSI name string, and then the
/// T10 vendor identification, which is unique if the vendor ensures it.
const KINDS: [u8; 4] = [3, 2, 8, T10_VENDOR];
const T10_VENDOR: u8 = 1;

impl UnitName {
    /// The 16 bytes of an NAA name of that length: the name that [`super::ExtendedCopy`] uses.
    pub fn naa(&self) -> Option<[u8; 16]> {
        self.designator.as_slice().try_into().ok().filter(|_| self.kind == 3)
    }
}

impl fmt::Display for UnitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex =
            |f: &mut fmt::Formatter<'_>| self.designator.iter().try_for_each(|byte| write!(f, "{byte:02x}"));
        match self.kind {
            3 => f.write_str("naa.").and_then(|()| hex(f)),
            2 => f.write_str("eui.").and_then(|()| hex(f)),
            _ => f.write_str(String::from_utf8_lossy(&self.designator).trim_end_matches(['\0', ' '])),
        }
    }
}

impl Command for Identification {
    type Answer = Identity;
    const NAME: &'static str = "INQUIRY of the device identification page";

    fn cdb(&self) -> Cdb {
        Inquiry { page: Some(PAGE), len: LEN }.cdb()
    }

    fn transfer(&self) -> Transfer {
        Transfer::In(u32::from(LEN))
    }

    fn effect(&self) -> Effect {
        Effect::None
    }

    fn answer(&self, data: Option<Buf>) -> Option<Identity> {
        parse(&data?)
    }
}

fn parse(page: &[u8]) -> Option<Identity> {
    // PERIPHERAL QUALIFIER 0: there is a unit behind this LUN.
    if page.first()? >> 5 != 0 || *page.get(1)? != PAGE {
        return None;
    }
    let len = usize::from(u16_at(page, 2)?);
    let mut rest = page.get(4..)?;
    rest = &rest[..len.min(rest.len())];
    let (mut best, mut port, mut port_group, mut vendor) = (None, None, None, None);
    while let Some(header) = rest.first_chunk::<4>() {
        let designator = rest.get(4..4 + usize::from(header[3]))?;
        let (association, kind) = (header[1] >> 4 & 0x03, header[1] & 0x0f);
        match (association, kind) {
            (0, _) => {
                if kind == T10_VENDOR {
                    let name = String::from_utf8_lossy(&designator[..designator.len().min(8)]);
                    vendor = Some(name.trim_end().to_owned());
                }
                let rank = KINDS.iter().position(|known| *known == kind);
                let better = rank.is_some_and(|rank| best.as_ref().is_none_or(|(worst, _)| rank < *worst));
                if let Some(rank) = rank.filter(|_| better && !designator.is_empty()) {
                    best = Some((rank, UnitName { kind, designator: designator.to_vec() }));
                }
            }
            (1, 4) => port = u16_at(designator, 2),
            (1, 5) => port_group = u16_at(designator, 2),
            _ => {}
        }
        rest = &rest[4 + designator.len()..];
    }
    best.map(|(_, unit)| Identity { unit, port, port_group, vendor })
}

impl Session {
    /// The unit's identity.
    ///
    /// # Errors
    /// As for [`Session::send`]; [`Error::BadAnswer`] if there is no unit, or the unit has no name.
    pub async fn identify(&self, lun: Lun) -> Result<Identity, Error> {
        self.send(lun, &Identification).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T10 vendor identification, EUI-64, NAA 6, relative port 3, port group 2.
    const EXAMPLE: &[u8] = &[
        0, 0x83, 0, 0x3c, 2, 0x01, 0, 4, b'U', b'R', b'S', b'A', 1, 0x02, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1,
        0x03, 0, 16, 0x60, 0x25, 0x55, 0x23, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0x51, 0x94, 0, 4, 0,
        0, 0, 3, 0x51, 0x95, 0, 4, 0, 0, 0, 2,
    ];

    #[test]
    fn the_best_name_counts() {
        let identity = parse(EXAMPLE).unwrap();
        assert_eq!(identity.unit.to_string(), "naa.60255523".to_owned() + "0405060708090a0b0c0d0e0f");
        assert_eq!((identity.port, identity.port_group), (Some(3), Some(2)));
        assert_eq!(identity.vendor.as_deref(), Some("URSA"));
        let mut eui = EXAMPLE.to_vec();
        eui[25] = 0x00; // the NAA name becomes the vendor's own
        assert_eq!(parse(&eui).unwrap().unit.to_string(), "eui.0102030405060708");
        eui[13] = 0x00;
        assert_eq!(parse(&eui).unwrap().unit.to_string(), "URSA");
    }

    #[test]
    fn an_invalid_page_has_no_name() {
        let mut absent = EXAMPLE.to_vec();
        absent[0] = 0x7f;
        assert_eq!(parse(&absent), None, "no unit behind this LUN");
        assert_eq!(parse(&EXAMPLE[..3]), None);
        assert_eq!(parse(&EXAMPLE[..40]), None, "cut short");
        assert_eq!(parse(&[0, 0x83, 0, 0]), None, "no name");
        for len in 0..EXAMPLE.len() {
            let _ = parse(&EXAMPLE[..len]);
        }
    }
}
