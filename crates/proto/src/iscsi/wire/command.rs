//! SCSI Command and SCSI Response (RFC 7143 11.3, 11.4).

use super::header::{Field, pdu, start};
use super::{Ahs, AhsSegments, HEADER_LEN, HeaderError, InitiatorTag, Opcode, Serial, SerialNumbers};

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

pdu! {
    /// A SCSI command.
    ScsiCommand = ScsiCommand(data_len) | 0 {
        immediate: bool = (0, 0x40),
        /// The F bit: no unsolicited data follows in Data-Out PDUs.
        is_final: bool = (1, 0x80),
        /// The R bit: data to the initiator is expected.
        read: bool = (1, 0x40),
        /// The W bit: data to the target is expected.
        write: bool = (1, 0x20),
        attribute: TaskAttribute = (1, 0x07, "ATTR"),
        lun: [u8; 8] = 8,
        initiator_tag: InitiatorTag = 16,
        /// Expected bytes of data: to the target if `write`, else from it.
        expected_length: u32 = 20,
        cmd_sn: Serial = 24,
        exp_stat_sn: Serial = 28,
        /// The CDB, or its first 16 bytes.
        cdb: [u8; 16] = 32,
    }
}

impl ScsiCommand {
    /// Iterates over the additional header segments of a command.
    pub fn ahs(bytes: &[u8]) -> AhsSegments<'_> {
        AhsSegments(bytes)
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

/// Their place: how far the flags are shifted in byte 1, and the count.
impl Field<(u8, usize)> for Residual {
    fn get(header: &[u8; HEADER_LEN], (shift, at): (u8, usize)) -> Result<Residual, HeaderError> {
        let count = <u32 as Field<usize>>::get(header, at)?;
        match (header[1] >> shift) & 0x06 {
            0x00 => Ok(Residual::None),
            0x02 => Ok(Residual::Underflow(count)),
            0x04 => Ok(Residual::Overflow(count)),
            _ => Err(HeaderError::Field("O and U bits")),
        }
    }

    fn put(self, header: &mut [u8; HEADER_LEN], (shift, at): (u8, usize)) {
        let (flags, count): (u8, u32) = match self {
            Residual::None => (0x00, 0),
            Residual::Underflow(count) => (0x02, count),
            Residual::Overflow(count) => (0x04, count),
        };
        header[1] |= flags << shift;
        count.put(header, at);
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

pdu! {
    /// The response to a command.
    ScsiResponse = ScsiResponse(data_len) | 0x80 {
        response: ServiceResponse = (),
        /// The residual of the command, or of the write direction if it is bidirectional.
        residual: Residual = (0, 44),
        /// The residual of a bidirectional command's read direction.
        read_residual: Residual = (2, 40),
        initiator_tag: InitiatorTag = 16,
        /// Copied from a SNACK; zero at error recovery level 0.
        snack_tag: u32 = 20,
        numbers: SerialNumbers = 24,
        /// How many Data-In PDUs were sent (and R2Ts, for a bidirectional command).
        exp_data_sn: u32 = 36,
    }
}

impl Field<()> for ServiceResponse {
    fn get(header: &[u8; HEADER_LEN], (): ()) -> Result<ServiceResponse, HeaderError> {
        match header[2] {
            0x00 => Ok(ServiceResponse::Completed { status: header[3] }),
            0x01 | 0x80..=0xff => Ok(ServiceResponse::TargetFailure(header[2])),
            _ => Err(HeaderError::Field("Response")),
        }
    }

    fn put(self, header: &mut [u8; HEADER_LEN], (): ()) {
        (header[2], header[3]) = match self {
            ServiceResponse::Completed { status } => (0, status),
            ServiceResponse::TargetFailure(response) => (response, 0),
        };
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
