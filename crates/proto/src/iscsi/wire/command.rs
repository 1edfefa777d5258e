//! SCSI Command and SCSI Response (RFC 7143 11.3, 11.4).

use super::header::{
    get_initiator_tag, get_lun, get_serial, get_serial_numbers, get_u32, put_lun, put_serial_numbers,
    put_u32, start,
};
use super::{
    Ahs, AhsSegments, HEADER_LEN, HeaderError, InitiatorTag, Opcode, Serial, SerialNumbers, is_immediate,
};

base::numbered! {
    /// How a task is queued (RFC 7143 11.3.1).
    pub enum TaskAttribute: u8 {
        Untagged = 0,
        Simple = 1,
        Ordered = 2,
        HeadOfQueue = 3,
        Aca = 4,
    }
}

/// A SCSI command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiCommand {
    pub immediate: bool,
    /// The F bit: no unsolicited data follows in Data-Out PDUs.
    pub is_final: bool,
    /// The R bit: data to the initiator is expected.
    pub read: bool,
    /// The W bit: data to the target is expected.
    pub write: bool,
    pub attribute: TaskAttribute,
    pub lun: [u8; 8],
    pub initiator_tag: InitiatorTag,
    /// Expected bytes of data: to the target if `write`, else from it.
    pub expected_length: u32,
    pub cmd_sn: Serial,
    pub exp_stat_sn: Serial,
    /// The CDB, or its first 16 bytes.
    pub cdb: [u8; 16],
}

impl ScsiCommand {
    /// Decodes a header with this opcode. [`ScsiCommand::ahs`] decodes the additional header segments.
    pub fn decode(header: &[u8; HEADER_LEN]) -> Result<ScsiCommand, HeaderError> {
        Ok(ScsiCommand {
            immediate: is_immediate(header),
            is_final: header[1] & 0x80 != 0,
            read: header[1] & 0x40 != 0,
            write: header[1] & 0x20 != 0,
            attribute: TaskAttribute::from_number(header[1] & 0x07).ok_or(HeaderError::Field("ATTR"))?,
            lun: get_lun(header),
            initiator_tag: get_initiator_tag(header),
            expected_length: get_u32(header, 20),
            cmd_sn: get_serial(header, 24),
            exp_stat_sn: get_serial(header, 28),
            cdb: std::array::from_fn(|i| header[32 + i]),
        })
    }

    /// Iterates over the additional header segments of a command.
    pub fn ahs(bytes: &[u8]) -> AhsSegments<'_> {
        AhsSegments(bytes)
    }

    /// Encodes the header of a PDU with `data_len` bytes of immediate data.
    pub fn encode(&self, data_len: u32) -> [u8; HEADER_LEN] {
        let flags = (u8::from(self.is_final) << 7)
            | (u8::from(self.read) << 6)
            | (u8::from(self.write) << 5)
            | self.attribute as u8;
        let mut header = start(Opcode::ScsiCommand, self.immediate, flags, data_len);
        put_lun(&mut header, self.lun);
        put_u32(&mut header, 16, self.initiator_tag.0);
        put_u32(&mut header, 20, self.expected_length);
        put_u32(&mut header, 24, self.cmd_sn.0);
        put_u32(&mut header, 28, self.exp_stat_sn.0);
        header[32..].copy_from_slice(&self.cdb);
        header
    }

    /// Encodes the basic header and the additional header segments.
    pub fn encode_with_ahs(&self, data_len: u32, segments: &[Ahs<'_>]) -> Vec<u8> {
        let mut bytes = self.encode(data_len).to_vec();
        segments.iter().for_each(|segment| segment.encode(&mut bytes));
        bytes[4] = u8::try_from((bytes.len() - HEADER_LEN) / 4).expect("a long CDB has 260 bytes at most");
        bytes
    }
}

/// The difference between the data transferred and the data that the initiator expected (11.4.5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residual {
    #[default]
    None,
    /// N bytes were expected but not transferred.
    Underflow(u32),
    /// N bytes were not transferred because the initiator did not expect them.
    Overflow(u32),
}

impl Residual {
    pub(super) fn from_flags(flags: u8, count: u32) -> Result<Residual, HeaderError> {
        match flags & 0x06 {
            0x00 => Ok(Residual::None),
            0x02 => Ok(Residual::Underflow(count)),
            0x04 => Ok(Residual::Overflow(count)),
            _ => Err(HeaderError::Field("O and U bits")),
        }
    }

    pub(super) fn flags(self) -> u8 {
        match self {
            Residual::None => 0x00,
            Residual::Underflow(_) => 0x02,
            Residual::Overflow(_) => 0x04,
        }
    }

    pub(super) fn count(self) -> u32 {
        match self {
            Residual::None => 0,
            Residual::Underflow(count) | Residual::Overflow(count) => count,
        }
    }
}

/// Whether the target executed the command (RFC 7143 11.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceResponse {
    /// The command was executed and has a SCSI status.
    Completed { status: u8 },
    /// The target failed (0x01), or reported a vendor-specific failure (0x80 to 0xff).
    TargetFailure(u8),
}

/// The response to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiResponse {
    pub response: ServiceResponse,
    /// The residual of the command, or of the write direction if it is bidirectional.
    pub residual: Residual,
    /// The residual of a bidirectional command's read direction.
    pub read_residual: Residual,
    pub initiator_tag: InitiatorTag,
    /// Copied from a SNACK; zero at error recovery level 0.
    pub snack_tag: u32,
    pub numbers: SerialNumbers,
    /// How many Data-In PDUs were sent (and R2Ts, for a bidirectional command).
    pub exp_data_sn: u32,
}

impl ScsiResponse {
    /// # Errors
    /// Underflow and overflow at once, or a reserved response.
    pub fn decode(header: &[u8; HEADER_LEN]) -> Result<ScsiResponse, HeaderError> {
        Ok(ScsiResponse {
            response: match header[2] {
                0x00 => ServiceResponse::Completed { status: header[3] },
                0x01 | 0x80..=0xff => ServiceResponse::TargetFailure(header[2]),
                _ => return Err(HeaderError::Field("Response")),
            },
            residual: Residual::from_flags(header[1], get_u32(header, 44))?,
            read_residual: Residual::from_flags(header[1] >> 2, get_u32(header, 40))?,
            initiator_tag: get_initiator_tag(header),
            snack_tag: get_u32(header, 20),
            numbers: get_serial_numbers(header),
            exp_data_sn: get_u32(header, 36),
        })
    }

    /// Encodes the header of a PDU with `data_len` bytes of sense and response data.
    pub fn encode(&self, data_len: u32) -> [u8; HEADER_LEN] {
        let flags = 0x80 | self.residual.flags() | (self.read_residual.flags() << 2);
        let mut header = start(Opcode::ScsiResponse, false, flags, data_len);
        (header[2], header[3]) = match self.response {
            ServiceResponse::Completed { status } => (0, status),
            ServiceResponse::TargetFailure(response) => (response, 0),
        };
        put_u32(&mut header, 16, self.initiator_tag.0);
        put_u32(&mut header, 20, self.snack_tag);
        put_serial_numbers(&mut header, self.numbers);
        put_u32(&mut header, 36, self.exp_data_sn);
        put_u32(&mut header, 40, self.read_residual.count());
        put_u32(&mut header, 44, self.residual.count());
        header
    }
}

/// The sense data in a response's data segment (11.4.7): two bytes of length, the sense, then response data.
///
/// Truncated if the segment is shorter.
pub fn sense_segment(data: &[u8]) -> &[u8] {
    match data {
        [high, low, sense @ ..] => {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            sense.get(..length).unwrap_or(sense)
        }
        _ => &[],
    }
}
