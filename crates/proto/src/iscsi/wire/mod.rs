//! The wire format (RFC 7143 section 11): one file per PDU family, every field by name, tested with literal
//! bytes.
//!
//! A PDU is a basic header segment of 48 bytes, additional header segments, an optional header digest, a data
//! segment padded to four bytes and an optional data digest. [`Framing`] cuts a byte stream into PDUs and
//! writes PDUs to a stream; [`RequestPdu`] is what an initiator sends, [`ResponsePdu`] what a target sends.
//! Decoders accept any 48 bytes without a panic, and ignore reserved bits as the RFC requires (section 11.1).
//! Values that must be answered with a status instead of being dropped (an unknown task management function,
//! say) are part of the decoded types.
//!
//! Fields have the names of the standard: `cmd_sn` is CmdSN, `initiator_tag` the task's tag, `immediate` the
//! I bit; `numbers` are the target's sequence numbers. `decode` takes a header with the type's own opcode;
//! `encode` makes one for a PDU with `data_len` bytes of data, or without data.

#![allow(missing_docs)] // The standard explains what is not explained here.

mod ahs;
mod async_message;
mod command;
mod data;
mod framing;
mod header;
mod login;
mod logout;
mod nop;
mod pdu;
mod r2t;
mod reject;
mod serial;
mod snack;
mod task;
#[cfg(test)]
mod tests;
mod text;

pub use ahs::{Ahs, AhsSegments};
pub use async_message::{AsyncEvent, AsyncMessage};
pub use command::{Residual, ScsiCommand, ScsiResponse, ServiceResponse, TaskAttribute, sense_segment};
pub use data::{DataIn, DataInStatus, DataOut};
pub use framing::{Extent, FrameError, Framing, Pdu, padding};
pub use header::{
    HEADER_LEN, HeaderError, InitiatorTag, Opcode, SerialNumbers, TargetTag, data_segment_length,
    is_immediate, opcode,
};
pub use login::{LoginRequestPdu, LoginResponsePdu, Stage};
pub use logout::{LogoutReason, LogoutRequest, LogoutResponse, LogoutResult};
pub use nop::{NopIn, NopOut};
pub use pdu::{RequestPdu, ResponsePdu};
pub use r2t::R2t;
pub use reject::{Reject, RejectReason};
pub use serial::Serial;
pub use snack::Snack;
pub use task::{TaskManagementFunction, TaskRequest, TaskResponsePdu};
pub use text::{TextRequest, TextResponse};
