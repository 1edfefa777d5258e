//! Task management function request and response (RFC 7143 11.5, 11.6).

use super::header::{
    get_initiator_tag, get_lun, get_serial, get_serial_numbers, get_u32, put_lun, put_serial_numbers,
    put_u32, start,
};
use super::{HEADER_LEN, InitiatorTag, Opcode, Serial, SerialNumbers, is_immediate};

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

impl TaskManagementFunction {
    fn from_number(number: u8) -> TaskManagementFunction {
        match number {
            1 => TaskManagementFunction::AbortTask,
            2 => TaskManagementFunction::AbortTaskSet,
            3 => TaskManagementFunction::ClearAca,
            4 => TaskManagementFunction::ClearTaskSet,
            5 => TaskManagementFunction::LogicalUnitReset,
            6 => TaskManagementFunction::TargetWarmReset,
            7 => TaskManagementFunction::TargetColdReset,
            8 => TaskManagementFunction::TaskReassign,
            unknown => TaskManagementFunction::Unknown(unknown),
        }
    }

    fn number(self) -> u8 {
        match self {
            TaskManagementFunction::AbortTask => 1,
            TaskManagementFunction::AbortTaskSet => 2,
            TaskManagementFunction::ClearAca => 3,
            TaskManagementFunction::ClearTaskSet => 4,
            TaskManagementFunction::LogicalUnitReset => 5,
            TaskManagementFunction::TargetWarmReset => 6,
            TaskManagementFunction::TargetColdReset => 7,
            TaskManagementFunction::TaskReassign => 8,
            TaskManagementFunction::Unknown(number) => number & 0x7f,
        }
    }
}

/// A task management request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRequest {
    pub immediate: bool,
    pub function: TaskManagementFunction,
    /// The unit; reserved for target resets.
    pub lun: [u8; 8],
    /// This request's own tag.
    pub initiator_tag: InitiatorTag,
    /// The task to abort or reassign, else reserved.
    pub referenced_tag: InitiatorTag,
    pub cmd_sn: Serial,
    pub exp_stat_sn: Serial,
    pub referenced_cmd_sn: Serial,
    /// For TASK REASSIGN.
    pub exp_data_sn: u32,
}

impl TaskRequest {
    pub fn decode(header: &[u8; HEADER_LEN]) -> TaskRequest {
        TaskRequest {
            immediate: is_immediate(header),
            function: TaskManagementFunction::from_number(header[1] & 0x7f),
            lun: get_lun(header),
            initiator_tag: get_initiator_tag(header),
            referenced_tag: InitiatorTag(get_u32(header, 20)),
            cmd_sn: get_serial(header, 24),
            exp_stat_sn: get_serial(header, 28),
            referenced_cmd_sn: get_serial(header, 32),
            exp_data_sn: get_u32(header, 36),
        }
    }

    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut header = start(Opcode::TaskRequest, self.immediate, 0x80 | self.function.number(), 0);
        put_lun(&mut header, self.lun);
        put_u32(&mut header, 16, self.initiator_tag.0);
        put_u32(&mut header, 20, self.referenced_tag.0);
        put_u32(&mut header, 24, self.cmd_sn.0);
        put_u32(&mut header, 28, self.exp_stat_sn.0);
        put_u32(&mut header, 32, self.referenced_cmd_sn.0);
        put_u32(&mut header, 36, self.exp_data_sn);
        header
    }
}

/// The response to a task management request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskResponsePdu {
    /// RFC 7143 11.6.1: 0 is "function complete".
    pub response: u8,
    pub initiator_tag: InitiatorTag,
    pub numbers: SerialNumbers,
}

impl TaskResponsePdu {
    pub fn decode(header: &[u8; HEADER_LEN]) -> TaskResponsePdu {
        TaskResponsePdu {
            response: header[2],
            initiator_tag: get_initiator_tag(header),
            numbers: get_serial_numbers(header),
        }
    }

    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut header = start(Opcode::TaskResponse, false, 0x80, 0);
        header[2] = self.response;
        put_u32(&mut header, 16, self.initiator_tag.0);
        put_serial_numbers(&mut header, self.numbers);
        header
    }
}
