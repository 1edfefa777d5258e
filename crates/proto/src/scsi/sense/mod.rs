//! Sense data: why a command failed (SPC-4, Sense data).

pub mod code;

use smallvec::SmallVec;

use super::Status;

/// The class of a reason (SPC-4, sense key and additional sense code).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum SenseKey {
    NoSense = 0x0,
    RecoveredError = 0x1,
    NotReady = 0x2,
    MediumError = 0x3,
    HardwareError = 0x4,
    IllegalRequest = 0x5,
    UnitAttention = 0x6,
    DataProtect = 0x7,
    CopyAborted = 0xa,
    AbortedCommand = 0xb,
    Miscompare = 0xe,
}

/// Why a command failed, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// The class of the reason.
    pub key: SenseKey,
    /// Additional sense code and qualifier, one of those in [`code`].
    pub code: u16,
    /// The INFORMATION field: an LBA, or the offset of a miscompare.
    pub information: Option<u64>,
    /// Details that depend on the key.
    pub specific: Specific,
    /// COPY ABORTED: where the copy stopped.
    pub copied: Option<Copied>,
    /// The encoding: the unit's D_SENSE, set when the command's outcome leaves the unit.
    pub format: SenseFormat,
}

/// The sense-key specific bytes (SPC-4, sense key specific).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Specific {
    /// None.
    #[default]
    None,
    /// ILLEGAL REQUEST: the field in error.
    Field {
        /// Whether the field is in the CDB, or else in the data.
        in_cdb: bool,
        /// The first byte of the field.
        byte: u16,
        /// The most significant bit of the field, if it is not the whole byte.
        bit: Option<u8>,
    },
    /// NO SENSE or NOT READY: the progress of an operation, in 65536ths.
    Progress(u16),
    /// COPY ABORTED: the byte of the parameter list in error.
    Segment {
        /// Whether the byte is relative to the segment descriptor, or else to the parameter list.
        in_segment: bool,
        /// The first byte of the field.
        byte: u16,
        /// The most significant bit of the field, if it is not the whole byte.
        bit: Option<u8>,
    },
}

/// COMMAND-SPECIFIC INFORMATION about a copy (SPC-4, EXTENDED COPY).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The segment that failed, counted from zero.
    pub segment: u16,
    /// The response of the source or the target.
    pub forwarded: Option<Forwarded>,
}

/// The response of a unit to a copy that read or wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// The unit that responded.
    pub side: Side,
    /// Its status.
    pub status: Status,
    /// With CHECK CONDITION, its sense: key, and additional sense code and qualifier.
    pub sense: Option<(SenseKey, u16)>,
}

/// A unit that takes part in a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[repr(u8)]
pub enum Side {
    Source = 1,
    Target = 2,
}

/// The format of sense data (D_SENSE of the control mode page).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SenseFormat {
    /// 70h, the default.
    #[default]
    Fixed,
    /// 72h.
    Descriptor,
}

/// Encoded sense data.
pub type SenseBytes = SmallVec<[u8; 32]>;

impl Sense {
    /// A reason without details.
    pub const fn new(key: SenseKey, code: u16) -> Sense {
        Sense {
            key,
            code,
            information: None,
            specific: Specific::None,
            copied: None,
            format: SenseFormat::Fixed,
        }
    }

    /// Nothing to report.
    pub const NOTHING: Sense = Sense::new(SenseKey::NoSense, code::NO_ADDITIONAL_SENSE_INFORMATION);

    /// Task management aborted the command.
    pub const ABORTED: Sense = Sense::new(SenseKey::AbortedCommand, code::NO_ADDITIONAL_SENSE_INFORMATION);

    /// ILLEGAL REQUEST without details.
    pub const fn illegal(code: u16) -> Sense {
        Sense::new(SenseKey::IllegalRequest, code)
    }

    /// A field of the CDB is wrong. `bit` is its most significant bit.
    pub const fn invalid_field_in_cdb(byte: u16, bit: u8) -> Sense {
        let specific = Specific::Field { in_cdb: true, byte, bit: Some(bit) };
        Sense { specific, ..Sense::illegal(code::INVALID_FIELD_IN_CDB) }
    }

    /// A field of the parameter list is wrong. `bit` is its most significant bit.
    pub const fn invalid_field_in_parameter_list(byte: u16, bit: u8) -> Sense {
        let specific = Specific::Field { in_cdb: false, byte, bit: Some(bit) };
        Sense { specific, ..Sense::illegal(code::INVALID_FIELD_IN_PARAMETER_LIST) }
    }

    /// The parameter list is too short or too long.
    pub const fn parameter_list_length_error() -> Sense {
        Sense::illegal(code::PARAMETER_LIST_LENGTH_ERROR)
    }

    /// The command does not exist.
    pub const fn invalid_opcode() -> Sense {
        let specific = Specific::Field { in_cdb: true, byte: 0, bit: Some(7) };
        Sense { specific, ..Sense::illegal(code::INVALID_COMMAND_OPERATION_CODE) }
    }

    /// Some of the blocks are beyond the end of the unit.
    pub const fn lba_out_of_range(lba: u64) -> Sense {
        Sense { information: Some(lba), ..Sense::illegal(code::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE) }
    }

    /// Sets the INFORMATION field.
    pub const fn with_information(self, information: u64) -> Sense {
        Sense { information: Some(information), ..self }
    }

    /// Encodes the sense data in the format of [`Sense::format`].
    pub fn encode(&self) -> SenseBytes {
        match self.format {
            SenseFormat::Fixed => self.encode_fixed(),
            SenseFormat::Descriptor => self.encode_descriptor(),
        }
    }

    /// Encodes fixed format sense data (SPC-4). An INFORMATION value of more than 32 bits does not fit and is
    /// left out (VALID 0).
    fn encode_fixed(&self) -> SenseBytes {
        let mut bytes = [0; 18];
        bytes[0] = 0x70;
        bytes[2] = self.key as u8;
        if let Some(information) = self.information.and_then(|information| u32::try_from(information).ok()) {
            bytes[0] |= 0x80;
            bytes[3..7].copy_from_slice(&information.to_be_bytes());
        }
        bytes[7] = 10;
        bytes[12..14].copy_from_slice(&self.code.to_be_bytes());
        if let Some(specific) = self.specific.encode() {
            bytes[15..18].copy_from_slice(&specific);
        }
        let mut bytes = SenseBytes::from_slice(&bytes);
        if let Some(copied) = self.copied {
            bytes[10..12].copy_from_slice(&copied.segment.to_be_bytes());
            if let Some(forwarded) = copied.forwarded {
                let at = match forwarded.side {
                    Side::Source => 8,
                    Side::Target => 9,
                };
                bytes[at] = bytes.len() as u8;
                bytes.extend(forwarded.encode(SenseFormat::Fixed));
                bytes[7] = (bytes.len() - 8) as u8;
            }
        }
        bytes
    }

    /// Encodes descriptor format sense data (SPC-4): the header, then the information, sense-key specific,
    /// command-specific and forwarded sense descriptors that are present.
    fn encode_descriptor(&self) -> SenseBytes {
        let [asc, ascq] = self.code.to_be_bytes();
        let mut bytes = SenseBytes::from_slice(&[0x72, self.key as u8, asc, ascq, 0, 0, 0, 0]);
        if let Some(information) = self.information {
            bytes.extend_from_slice(&[0x00, 0x0a, 0x80, 0x00]);
            bytes.extend_from_slice(&information.to_be_bytes());
        }
        if let Some([a, b, c]) = self.specific.encode() {
            bytes.extend_from_slice(&[0x02, 0x06, 0, 0, a, b, c, 0]);
        }
        if let Some(copied) = self.copied {
            let [high, low] = copied.segment.to_be_bytes();
            bytes.extend_from_slice(&[0x01, 0x0a, 0, 0, 0, 0, high, low, 0, 0, 0, 0]);
            if let Some(forwarded) = copied.forwarded {
                let answer = forwarded.encode(SenseFormat::Descriptor);
                bytes.extend_from_slice(&[0x0c, 1 + answer.len() as u8, forwarded.side as u8]);
                bytes.extend(answer);
            }
        }
        bytes[7] = (bytes.len() - 8) as u8;
        bytes
    }
}

impl Forwarded {
    /// The status byte and the sense data.
    fn encode(self, format: SenseFormat) -> SenseBytes {
        let mut bytes = SenseBytes::from_slice(&[self.status as u8]);
        if let Some((key, code)) = self.sense {
            bytes.extend(Sense { format, ..Sense::new(key, code) }.encode());
        }
        bytes
    }
}

impl Specific {
    /// The three bytes, starting with SKSV.
    fn encode(self) -> Option<[u8; 3]> {
        let (flags, number) = match self {
            Specific::None => return None,
            Specific::Field { in_cdb, byte, bit } => (u8::from(in_cdb) << 6 | bit_pointer(bit), byte),
            Specific::Progress(progress) => (0, progress),
            Specific::Segment { in_segment, byte, bit } => {
                (u8::from(in_segment) << 5 | bit_pointer(bit), byte)
            }
        };
        let [high, low] = number.to_be_bytes();
        Some([0x80 | flags, high, low])
    }
}

/// BPV and BIT POINTER.
fn bit_pointer(bit: Option<u8>) -> u8 {
    bit.map_or(0, |bit| 0x08 | bit & 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_format() {
        let sense = Sense::new(SenseKey::MediumError, code::UNRECOVERED_READ_ERROR).with_information(0x1234);
        #[rustfmt::skip]
        assert_eq!(sense.encode().as_slice(), [
            0xf0, 0, 0x03, 0, 0, 0x12, 0x34, 10, // valid, current; MEDIUM ERROR; LBA; ten more bytes
            0, 0, 0, 0, 0x11, 0x00, 0, 0, 0, 0, // UNRECOVERED READ ERROR
        ]);
        // An LBA beyond 32 bits is left out.
        assert_eq!(sense.with_information(1 << 32).encode()[..7], [0x70, 0, 0x03, 0, 0, 0, 0]);
    }

    #[test]
    fn field_pointers() {
        // SKSV, C/D, BPV, bit 4 of byte 1.
        let bytes = Sense::invalid_field_in_cdb(1, 4).encode();
        assert_eq!(bytes[12..], [0x24, 0x00, 0, 0xcc, 0x00, 0x01]);
        let bytes = Sense::invalid_field_in_parameter_list(0x0102, 7).encode();
        assert_eq!(bytes[12..], [0x26, 0x00, 0, 0x8f, 0x01, 0x02]);
        assert_eq!(
            Sense::invalid_opcode().encode()[2..],
            [0x05, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x20, 0x00, 0, 0xcf, 0, 0]
        );
    }

    #[test]
    fn descriptor_format() {
        let sense =
            Sense { format: SenseFormat::Descriptor, ..Sense::lba_out_of_range(0x0102_0304_0506_0708) };
        #[rustfmt::skip]
        assert_eq!(sense.encode().as_slice(), [
            0x72, 0x05, 0x21, 0x00, 0, 0, 0, 12, // ILLEGAL REQUEST, LBA OUT OF RANGE
            0x00, 0x0a, 0x80, 0x00, 1, 2, 3, 4, 5, 6, 7, 8, // information descriptor
        ]);
        let sense = Sense { format: SenseFormat::Descriptor, ..Sense::invalid_field_in_cdb(2, 7) };
        #[rustfmt::skip]
        assert_eq!(sense.encode().as_slice(), [
            0x72, 0x05, 0x24, 0x00, 0, 0, 0, 8,
            0x02, 0x06, 0x00, 0x00, 0xcf, 0x00, 0x02, 0x00, // sense-key specific descriptor
        ]);
    }

    /// SPC-4, EXTENDED COPY command errors detected during processing of segment descriptors.
    #[test]
    fn a_copy_reports_the_response_of_its_source_or_target() {
        let stopped = (SenseKey::NotReady, code::LOGICAL_UNIT_NOT_READY_INITIALIZING_COMMAND_REQUIRED);
        let forwarded =
            Forwarded { side: Side::Source, status: Status::CheckCondition, sense: Some(stopped) };
        let copied = Some(Copied { segment: 0x0102, forwarded: Some(forwarded) });
        let sense = Sense::new(SenseKey::CopyAborted, code::THIRD_PARTY_DEVICE_FAILURE).with_information(5);
        let sense = Sense { copied, ..sense };
        #[rustfmt::skip]
        assert_eq!(sense.encode().as_slice(), [
            0xf0, 0, 0x0a, 0, 0, 0, 5, 29, // five blocks were not written
            18, 0, 1, 2, 0x0d, 0x01, 0, 0, 0, 0, // the source's answer is at byte 18; the segment
            0x02, 0x70, 0, 0x02, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x04, 0x02, 0, 0, 0, 0,
        ]);
        let sense = Sense { format: SenseFormat::Descriptor, ..sense };
        #[rustfmt::skip]
        assert_eq!(sense.encode().as_slice(), [
            0x72, 0x0a, 0x0d, 0x01, 0, 0, 0, 36,
            0x00, 0x0a, 0x80, 0x00, 0, 0, 0, 0, 0, 0, 0, 5, // information
            0x01, 0x0a, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, // command-specific information
            0x0c, 10, 0x01, 0x02, 0x72, 0x02, 0x04, 0x02, 0, 0, 0, 0, // forwarded sense data
        ]);
        let forwarded = Forwarded { side: Side::Target, status: Status::ReservationConflict, sense: None };
        let copied = Some(Copied { segment: 3, forwarded: Some(forwarded) });
        let bytes = Sense { copied, information: None, format: SenseFormat::Fixed, ..sense }.encode();
        assert_eq!(bytes[7..12], [11, 0, 18, 0, 3]);
        assert_eq!(bytes[18..], [0x18]);
    }

    #[test]
    fn progress_is_a_fraction() {
        let sense = Sense {
            specific: Specific::Progress(0x8000),
            ..Sense::new(SenseKey::NotReady, code::LOGICAL_UNIT_NOT_READY_BECOMING_READY)
        };
        assert_eq!(sense.encode()[12..], [0x04, 0x01, 0, 0x80, 0x80, 0x00]);
    }
}
