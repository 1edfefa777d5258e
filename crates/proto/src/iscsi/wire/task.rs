//! Task management function request and response (RFC 7143 11.5, 11.6).

use super::header::{Field, pdu, start};
use super::{HEADER_LEN, HeaderError, InitiatorTag, Opcode, Serial, SerialNumbers};

/// A task management function (RFC 7143 11.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskManagementFunction {
    AbortTask,
    AbortTaskSet,
    ClearAca,
    ClearTaskSet,
    LogicalUnitReset,
    TargetWarmReset,
    TargetColdReset,
    TaskReassign,
    /// Reserved, or defined by another document (RFC 7144).
    Unknown(u8),
}

impl Field<(usize, u8)> for TaskManagementFunction {
    fn get(
        header: &[u8; HEADER_LEN],
        (at, mask): (usize, u8),
    ) -> Result<TaskManagementFunction, HeaderError> {
        Ok(match header[at] & mask {
            1 => TaskManagementFunction::AbortTask,
            2 => TaskManagementFunction::AbortTaskSet,
            3 => TaskManagementFunction::ClearAca,
            4 => TaskManagementFunction::ClearTaskSet,
            5 => TaskManagementFunction::LogicalUnitReset,
            6 => TaskManagementFunction::TargetWarmReset,
            7 => TaskManagementFunction::TargetColdReset,
            8 => TaskManagementFunction::TaskReassign,
            unknown => TaskManagementFunction::Unknown(unknown),
        })
    }

    fn put(self, header: &mut [u8; HEADER_LEN], (at, mask): (usize, u8)) {
        header[at] |= match self {
            TaskManagementFunction::AbortTask => 1,
            TaskManagementFunction::AbortTaskSet => 2,
            TaskManagementFunction::ClearAca => 3,
            TaskManagementFunction::ClearTaskSet => 4,
            TaskManagementFunction::LogicalUnitReset => 5,
            TaskManagementFunction::TargetWarmReset => 6,
            TaskManagementFunction::TargetColdReset => 7,
            TaskManagementFunction::TaskReassign => 8,
            TaskManagementFunction::Unknown(number) => number & mask,
        };
    }
}

pdu! {
    /// A task management request.
    TaskRequest = TaskRequest() | 0x80 {
        immediate: bool = (0, 0x40),
        function: TaskManagementFunction = (1, 0x7f),
        /// The unit; reserved for target resets.
        lun: [u8; 8] = 8,
        /// This request's own tag.
        initiator_tag: InitiatorTag = 16,
        /// The task to abort or reassign, else reserved.
        referenced_tag: InitiatorTag = 20,
        cmd_sn: Serial = 24,
        exp_stat_sn: Serial = 28,
        referenced_cmd_sn: Serial = 32,
        /// For TASK REASSIGN.
        exp_data_sn: u32 = 36,
    }
}

pdu! {
    /// The response to a task management request.
    TaskResponsePdu = TaskResponse() | 0x80 {
        /// RFC 7143 11.6.1: 0 is "function complete".
        response: u8 = 2,
        initiator_tag: InitiatorTag = 16,
        numbers: SerialNumbers = 24,
    }
}
