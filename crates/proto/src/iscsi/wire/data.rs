//! SCSI Data-Out and Data-In (RFC 7143 11.7).

use super::header::{Field, pdu, start};
use super::{HEADER_LEN, HeaderError, InitiatorTag, Opcode, Residual, Serial, SerialNumbers, TargetTag};

pdu! {
    /// Data of a write, solicited by an R2T or not.
    DataOut = DataOut(data_len) | 0 {
        /// The F bit: the last PDU of the sequence that an R2T or FirstBurstLength allows.
        is_final: bool = (1, 0x80),
        /// The LUN of the R2T.
        lun: [u8; 8] = 8,
        initiator_tag: InitiatorTag = 16,
        /// The tag of the R2T; reserved for unsolicited data.
        target_tag: TargetTag = 20,
        exp_stat_sn: Serial = 28,
        /// The PDU's number in its sequence.
        data_sn: u32 = 36,
        /// The offset of this PDU's data in the command's data.
        buffer_offset: u32 = 40,
    }
}

/// The meaning of the S bit: the command ended without sense data, and no response follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataInStatus {
    /// GOOD, or another status without sense data.
    pub status: u8,
    /// The residual against the expected length.
    pub residual: Residual,
}

pdu! {
    /// Data of a read.
    DataIn = DataIn(data_len) | 0 {
        /// The F bit: the last PDU of a sequence.
        is_final: bool = (1, 0x80),
        /// The A bit: the target requests an acknowledgement (not at error recovery level 0).
        acknowledge: bool = (1, 0x40),
        /// Present in the last PDU if no response follows. `numbers.stat_sn` is valid only then.
        status: Option<DataInStatus> = (),
        /// Set with the A bit, else reserved.
        lun: [u8; 8] = 8,
        initiator_tag: InitiatorTag = 16,
        /// Set with the A bit, else reserved.
        target_tag: TargetTag = 20,
        numbers: SerialNumbers = 24,
        /// The PDU's number in the command.
        data_sn: u32 = 36,
        /// The offset of this PDU's data in the command's data.
        buffer_offset: u32 = 40,
    }
}

impl Field<()> for Option<DataInStatus> {
    fn get(header: &[u8; HEADER_LEN], (): ()) -> Result<Option<DataInStatus>, HeaderError> {
        match (header[1] & 0x01, header[1] & 0x80) {
            (0, _) => Ok(None),
            (_, 0) => Err(HeaderError::Field("S bit")),
            _ => Ok(Some(DataInStatus { status: header[3], residual: Field::get(header, (0, 44))? })),
        }
    }

    fn put(self, header: &mut [u8; HEADER_LEN], (): ()) {
        if let Some(DataInStatus { status, residual }) = self {
            header[1] |= 0x01;
            header[3] = status;
            residual.put(header, (0, 44));
        }
    }
}
