//! Logical unit numbers (SAM-5), REPORT LUNS, and commands to a LUN without a unit.

use super::operations::{Operation, always};
use super::sense::{Sense, SenseFormat, code};
use super::{Cdb, Identity, LogicalUnit, Outcome, Request, Step, inquiry, vpd};

/// A logical unit number. The single-level formats allow numbers up to 16383.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lun(u16);

impl Lun {
    /// The most units of one target.
    pub const COUNT: u16 = 1 << 14;

    /// The LUN with this number, if it is below [`Lun::COUNT`].
    pub fn new(number: u16) -> Option<Lun> {
        (number < Lun::COUNT).then_some(Lun(number))
    }

    /// The number.
    pub fn number(self) -> u16 {
        self.0
    }

    /// Decodes the eight bytes of a command: peripheral device addressing on bus 0 or flat space addressing.
    pub fn decode(bytes: [u8; 8]) -> Option<Lun> {
        let [high, low, rest @ ..] = bytes;
        match high >> 6 {
            0b00 if high == 0 && rest == [0; 6] => Some(Lun(u16::from(low))),
            0b01 if rest == [0; 6] => Some(Lun(u16::from_be_bytes([high & 0x3f, low]))),
            _ => None,
        }
    }

    /// Encodes the eight bytes: peripheral device addressing below 256, flat space addressing above.
    pub fn encode(self) -> [u8; 8] {
        let format = if self.0 < 256 { 0 } else { 0x40 };
        let [high, low] = self.0.to_be_bytes();
        [format | high, low, 0, 0, 0, 0, 0, 0]
    }
}

pub(super) const REPORT_LUNS: Operation =
    always("REPORT LUNS", report_luns, &[0xa0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0x04]);

/// A REPORT LUNS that waits for the list of units (SPC-4).
#[derive(Clone, Copy, Debug)]
pub struct ReportLuns {
    /// Only well-known units are requested, and there are none.
    empty: bool,
    allocation: u32,
}

impl ReportLuns {
    fn parse(cdb: &Cdb) -> Result<ReportLuns, Sense> {
        let empty = match cdb.u8(2) {
            0x00 | 0x02 => false,
            0x01 => true,
            _ => return Err(Sense::invalid_field_in_cdb(2, 7)),
        };
        Ok(ReportLuns { empty, allocation: cdb.u32(6) })
    }

    /// The response, given the units that the nexus may see, in ascending order.
    pub fn answer(&self, luns: &[Lun]) -> Outcome {
        let luns = if self.empty { &[] } else { luns };
        let mut bytes = Vec::with_capacity(8 + luns.len() * 8);
        bytes.extend_from_slice(&(luns.len() as u32 * 8).to_be_bytes());
        bytes.extend_from_slice(&[0; 4]);
        luns.iter().for_each(|lun| bytes.extend_from_slice(&lun.encode()));
        Outcome::parameters(&bytes, self.allocation as usize)
    }
}

fn report_luns(_: &mut LogicalUnit, request: Request) -> Result<Step, Sense> {
    ReportLuns::parse(&request.cdb).map(Step::ReportLuns)
}

/// Answers a command to a LUN that has no unit (SPC-4, INQUIRY, REPORT LUNS and REQUEST SENSE; SAM-5).
pub fn absent(cdb: &Cdb) -> Step {
    let not_supported = Sense::illegal(code::LOGICAL_UNIT_NOT_SUPPORTED);
    let answer = match cdb.opcode() {
        0x12 => match inquiry::page(cdb) {
            Ok(None) => {
                let bytes = inquiry::standard(&nobody(), inquiry::NO_UNIT);
                Ok(Outcome::parameters(&bytes, inquiry::allocation(cdb)))
            }
            Ok(Some(0)) => {
                let bytes = vpd::pages_without_unit(inquiry::NO_UNIT);
                Ok(Outcome::parameters(&bytes, inquiry::allocation(cdb)))
            }
            Ok(Some(_)) => Err(Sense::invalid_field_in_cdb(2, 7)),
            Err(sense) => Err(sense),
        },
        0xa0 => match ReportLuns::parse(cdb) {
            Ok(report) => return Step::ReportLuns(report),
            Err(sense) => Err(sense),
        },
        0x03 => {
            let format = if cdb.bit(1, 0) { SenseFormat::Descriptor } else { SenseFormat::Fixed };
            let bytes = Sense { format, ..not_supported }.encode();
            Ok(Outcome::parameters(&bytes, usize::from(cdb.u8(4))))
        }
        _ => Err(not_supported),
    };
    Step::Done(answer.unwrap_or_else(Outcome::check))
}

/// The names in INQUIRY data of a LUN without a unit.
fn nobody() -> Identity {
    Identity {
        vendor: "URSA".into(),
        product: "VOLUME".into(),
        revision: String::new(),
        serial: String::new(),
        naa: [0; 16],
        eui64: [0; 8],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cdb(bytes: &[u8]) -> Cdb {
        let mut cdb = [0; 16];
        cdb[..bytes.len()].copy_from_slice(bytes);
        Cdb(cdb)
    }

    #[test]
    fn numbers() {
        assert_eq!(Lun(255).encode(), [0, 255, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Lun(256).encode(), [0x41, 0, 0, 0, 0, 0, 0, 0]);
        for number in [0, 1, 255, 256, 16383] {
            assert_eq!(Lun::decode(Lun(number).encode()), Some(Lun(number)));
        }
        assert_eq!(Lun::decode([0x40, 7, 0, 0, 0, 0, 0, 0]), Some(Lun(7)));
        assert_eq!(Lun::decode([0, 1, 0, 1, 0, 0, 0, 0]), None);
        assert_eq!(Lun::decode([0xc1, 1, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(Lun::new(16384), None);
    }

    #[test]
    fn unknown_luns_do_not_answer() {
        let Step::Done(outcome) = absent(&cdb(&[0x12, 0, 0, 0, 36, 0])) else { panic!() };
        assert_eq!(
            outcome.data_in.to_vec()[..8],
            [0x7f, 0, 6, 0x12, 91, outcome.data_in.to_vec()[5], 0x10, 2]
        );
        let Step::Done(outcome) = absent(&cdb(&[0x00])) else { panic!() };
        assert_eq!(outcome.sense.unwrap().code, 0x2500);
        let Step::Done(outcome) = absent(&cdb(&[0x03, 0, 0, 0, 252, 0])) else { panic!() };
        assert_eq!(outcome.data_in.to_vec()[..14], [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x25, 0]);
        let Step::ReportLuns(report) = absent(&cdb(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0])) else {
            panic!()
        };
        let bytes = report.answer(&[Lun(0), Lun(300)]).data_in.to_vec();
        assert_eq!(bytes, [0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0x2c, 0, 0, 0, 0, 0, 0]);
    }
}
