//! NOP-Out and NOP-In (RFC 7143 11.18, 11.19).

use super::header::{Field, pdu, start};
use super::{HEADER_LEN, HeaderError, InitiatorTag, Opcode, Serial, SerialNumbers, TargetTag};

pdu! {
    /// A ping of the initiator, or its answer to a ping of the target.
    NopOut = NopOut(data_len) | 0x80 {
        immediate: bool = (0, 0x40),
        /// The LUN of the NOP-In that this PDU answers.
        lun: [u8; 8] = 8,
        /// If reserved, the initiator wants no answer.
        initiator_tag: InitiatorTag = 16,
        /// The tag of the NOP-In that this PDU answers, else reserved.
        target_tag: TargetTag = 20,
        cmd_sn: Serial = 24,
        exp_stat_sn: Serial = 28,
    }
}

pdu! {
    /// A ping of the target, or its answer to a ping of the initiator.
    NopIn = NopIn(data_len) | 0x80 {
        /// Must be returned with the answer.
        lun: [u8; 8] = 8,
        /// The tag of the NOP-Out that this PDU answers, else reserved.
        initiator_tag: InitiatorTag = 16,
        /// If reserved, the target wants no answer.
        target_tag: TargetTag = 20,
        /// The target's sequence numbers. A ping of the target does not advance StatSN.
        numbers: SerialNumbers = 24,
    }
}
