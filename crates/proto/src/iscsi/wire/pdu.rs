//! Any PDU of one direction, decoded by its opcode.

use super::{
    AsyncMessage, DataIn, DataOut, HEADER_LEN, HeaderError, LoginRequestPdu, LoginResponsePdu, LogoutRequest,
    LogoutResponse, NopIn, NopOut, Opcode, R2t, Reject, ScsiCommand, ScsiResponse, Snack, TaskRequest,
    TaskResponsePdu, TextRequest, TextResponse, opcode,
};

/// A PDU that an initiator sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPdu {
    NopOut(NopOut),
    ScsiCommand(ScsiCommand),
    Task(TaskRequest),
    Login(LoginRequestPdu),
    Text(TextRequest),
    DataOut(DataOut),
    Logout(LogoutRequest),
    Snack(Snack),
}

impl RequestPdu {
    /// Decodes any header.
    ///
    /// # Errors
    /// An opcode that no initiator sends, or a field with an undefined value.
    #[inline]
    pub fn decode(header: &[u8; HEADER_LEN]) -> Result<RequestPdu, HeaderError> {
        Ok(match Opcode::from_number(opcode(header)) {
            Some(Opcode::ScsiCommand) => RequestPdu::ScsiCommand(ScsiCommand::decode(header)?),
            Some(Opcode::DataOut) => RequestPdu::DataOut(DataOut::decode(header)?),
            Some(Opcode::NopOut) => RequestPdu::NopOut(NopOut::decode(header)?),
            Some(Opcode::TaskRequest) => RequestPdu::Task(TaskRequest::decode(header)?),
            Some(Opcode::LoginRequest) => RequestPdu::Login(LoginRequestPdu::decode(header)?),
            Some(Opcode::TextRequest) => RequestPdu::Text(TextRequest::decode(header)?),
            Some(Opcode::LogoutRequest) => RequestPdu::Logout(LogoutRequest::decode(header)?),
            Some(Opcode::Snack) => RequestPdu::Snack(Snack::decode(header)?),
            _ => return Err(HeaderError::Opcode(opcode(header))),
        })
    }
}

/// A PDU that a target sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponsePdu {
    NopIn(NopIn),
    ScsiResponse(ScsiResponse),
    Task(TaskResponsePdu),
    Login(LoginResponsePdu),
    Text(TextResponse),
    DataIn(DataIn),
    Logout(LogoutResponse),
    R2t(R2t),
    Async(AsyncMessage),
    Reject(Reject),
}

impl ResponsePdu {
    /// Decodes any header.
    ///
    /// # Errors
    /// An opcode that no target sends, or a field with an undefined value.
    #[inline]
    pub fn decode(header: &[u8; HEADER_LEN]) -> Result<ResponsePdu, HeaderError> {
        Ok(match Opcode::from_number(opcode(header)) {
            Some(Opcode::ScsiResponse) => ResponsePdu::ScsiResponse(ScsiResponse::decode(header)?),
            Some(Opcode::DataIn) => ResponsePdu::DataIn(DataIn::decode(header)?),
            Some(Opcode::R2t) => ResponsePdu::R2t(R2t::decode(header)?),
            Some(Opcode::NopIn) => ResponsePdu::NopIn(NopIn::decode(header)?),
            Some(Opcode::TaskResponse) => ResponsePdu::Task(TaskResponsePdu::decode(header)?),
            Some(Opcode::LoginResponse) => ResponsePdu::Login(LoginResponsePdu::decode(header)?),
            Some(Opcode::TextResponse) => ResponsePdu::Text(TextResponse::decode(header)?),
            Some(Opcode::LogoutResponse) => ResponsePdu::Logout(LogoutResponse::decode(header)?),
            Some(Opcode::AsyncMessage) => ResponsePdu::Async(AsyncMessage::decode(header)?),
            Some(Opcode::Reject) => ResponsePdu::Reject(Reject::decode(header)?),
            _ => return Err(HeaderError::Opcode(opcode(header))),
        })
    }
}
