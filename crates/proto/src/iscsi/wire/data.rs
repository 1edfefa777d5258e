//! SCSI Data-Out and Data-In (RFC 7143 11.7).

use super::header::{
    get_initiator_tag, get_lun, get_serial, get_serial_numbers, get_target_tag, get_u32, put_lun,
    put_serial_numbers, put_u32, start,
};
use super::{HEADER_LEN, HeaderError, InitiatorTag, Opcode, Residual, Serial, SerialNumbers, TargetTag};

/// Data of a write, solicited by an R2T or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataOut {
    /// The F bit: the last PDU of the sequence that an R2T or FirstBurstLength allows.
    pub is_final: bool,
    /// The LUN of the R2T.
    pub lun: [u8; 8],
    pub initiator_tag: InitiatorTag,
    /// The tag of the R2T; reserved for unsolicited data.
    pub target_tag: TargetTag,
    pub exp_stat_sn: Serial,
    /// The PDU's number in its sequence.
    pub data_sn: u32,
    /// The offset of this PDU's data in the command's data.
    pub buffer_offset: u32,
}

impl DataOut {
    pub fn decode(header: &[u8; HEADER_LEN]) -> DataOut {
        DataOut {
            is_final: header[1] & 0x80 != 0,
            lun: get_lun(header),
            initiator_tag: get_initiator_tag(header),
            target_tag: get_target_tag(header),
            exp_stat_sn: get_serial(header, 28),
            data_sn: get_u32(header, 36),
            buffer_offset: get_u32(header, 40),
        }
    }

    pub fn encode(&self, data_len: u32) -> [u8; HEADER_LEN] {
        let mut header = start(Opcode::DataOut, false, u8::from(self.is_final) << 7, data_len);
        put_lun(&mut header, self.lun);
        put_u32(&mut header, 16, self.initiator_tag.0);
        put_u32(&mut header, 20, self.target_tag.0);
        put_u32(&mut header, 28, self.exp_stat_sn.0);
        put_u32(&mut header, 36, self.data_sn);
        put_u32(&mut header, 40, self.buffer_offset);
        header
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

/// Data of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataIn {
    /// The F bit: the last PDU of a sequence.
    pub is_final: bool,
    /// The A bit: the target requests an acknowledgement (not at error recovery level 0).
    pub acknowledge: bool,
    /// Present in the last PDU if no response follows. `numbers.stat_sn` is valid only then.
    pub status: Option<DataInStatus>,
    /// Set with the A bit, else reserved.
    pub lun: [u8; 8],
    pub initiator_tag: InitiatorTag,
    /// Set with the A bit, else reserved.
    pub target_tag: TargetTag,
    pub numbers: SerialNumbers,
    /// The PDU's number in the command.
    pub data_sn: u32,
    /// The offset of this PDU's data in the command's data.
    pub buffer_offset: u32,
}

impl DataIn {
    /// # Errors
    /// Underflow and overflow at once, or status before the final PDU.
    pub fn decode(header: &[u8; HEADER_LEN]) -> Result<DataIn, HeaderError> {
        let is_final = header[1] & 0x80 != 0;
        let status = match header[1] & 0x01 {
            0 => None,
            _ if !is_final => return Err(HeaderError::Field("S bit")),
            _ => Some(DataInStatus {
                status: header[3],
                residual: Residual::from_flags(header[1], get_u32(header, 44))?,
            }),
        };
        Ok(DataIn {
            is_final,
            acknowledge: header[1] & 0x40 != 0,
            status,
            lun: get_lun(header),
            initiator_tag: get_initiator_tag(header),
            target_tag: get_target_tag(header),
            numbers: get_serial_numbers(header),
            data_sn: get_u32(header, 36),
            buffer_offset: get_u32(header, 40),
        })
    }

    pub fn encode(&self, data_len: u32) -> [u8; HEADER_LEN] {
        let mut flags = (u8::from(self.is_final) << 7) | (u8::from(self.acknowledge) << 6);
        if let Some(status) = self.status {
            flags |= 0x01 | status.residual.flags();
        }
        let mut header = start(Opcode::DataIn, false, flags, data_len);
        put_lun(&mut header, self.lun);
        put_u32(&mut header, 16, self.initiator_tag.0);
        put_u32(&mut header, 20, self.target_tag.0);
        put_serial_numbers(&mut header, self.numbers);
        put_u32(&mut header, 36, self.data_sn);
        put_u32(&mut header, 40, self.buffer_offset);
        if let Some(status) = self.status {
            header[3] = status.status;
            put_u32(&mut header, 44, status.residual.count());
        }
        header
    }
}
