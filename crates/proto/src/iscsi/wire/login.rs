//! Login request and response (RFC 7143 11.12, 11.13).

use super::header::{Field, start};
use super::{HEADER_LEN, HeaderError, InitiatorTag, Opcode, Serial, SerialNumbers};

base::numbered! {
    /// A stage of the login: the values of CSG and NSG (11.12.3).
    #[derive(PartialOrd, Ord)]
    pub enum Stage: u8 {
        SecurityNegotiation = 0,
        OperationalNegotiation = 1,
        FullFeaturePhase = 3,
    }
}

/// Decodes the T, C, CSG and NSG fields: next stage, whether text continues, current stage.
fn decode_flags(header: &[u8; HEADER_LEN]) -> Result<(Option<Stage>, bool, Stage), HeaderError> {
    let more = header[1] & 0x40 != 0;
    let stage = |bits: u8, field| Stage::from_number(bits & 0x03).ok_or(HeaderError::Field(field));
    let current = stage(header[1] >> 2, "CSG")?;
    let transit = match header[1] & 0x80 {
        0 => None,
        _ if more => return Err(HeaderError::Field("T and C bits")),
        _ => Some(stage(header[1], "NSG")?),
    };
    if current == Stage::FullFeaturePhase || transit.is_some_and(|next| next <= current) {
        return Err(HeaderError::Field("CSG and NSG"));
    }
    Ok((transit, more, current))
}

fn encode_flags(transit: Option<Stage>, more: bool, current: Stage) -> u8 {
    let next = transit.map_or(0, |next| 0x80 | next as u8);
    next | (u8::from(more) << 6) | ((current as u8) << 2)
}

/// A login request. It is always immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginRequestPdu {
    /// The T bit with NSG: the next stage.
    pub transit: Option<Stage>,
    /// The C bit: the key=value pairs continue in the next request.
    pub more: bool,
    pub stage: Stage,
    /// The highest version that the initiator supports.
    pub version_max: u8,
    /// The lowest version that the initiator supports.
    pub version_min: u8,
    /// The initiator's part of the session's identity.
    pub isid: [u8; 6],
    /// The target's part; zero for a new session.
    pub tsih: u16,
    /// The task's tag, the same in all requests of a login.
    pub initiator_tag: InitiatorTag,
    pub cid: u16,
    /// The first CmdSN of the session, or the current one.
    pub cmd_sn: Serial,
    pub exp_stat_sn: Serial,
}

impl LoginRequestPdu {
    /// # Errors
    /// A stage that does not exist, a step back, or the T and the C bit at once.
    pub fn decode(header: &[u8; HEADER_LEN]) -> Result<LoginRequestPdu, HeaderError> {
        let (transit, more, stage) = decode_flags(header)?;
        Ok(LoginRequestPdu {
            transit,
            more,
            stage,
            version_max: header[2],
            version_min: header[3],
            isid: Field::get(header, 8)?,
            tsih: Field::get(header, 14)?,
            initiator_tag: Field::get(header, 16)?,
            cid: Field::get(header, 20)?,
            cmd_sn: Field::get(header, 24)?,
            exp_stat_sn: Field::get(header, 28)?,
        })
    }

    pub fn encode(&self, data_len: u32) -> [u8; HEADER_LEN] {
        let flags = encode_flags(self.transit, self.more, self.stage);
        let mut header = start(Opcode::LoginRequest, flags, data_len);
        header[0] |= 0x40;
        header[2] = self.version_max;
        header[3] = self.version_min;
        self.isid.put(&mut header, 8);
        self.tsih.put(&mut header, 14);
        self.initiator_tag.put(&mut header, 16);
        self.cid.put(&mut header, 20);
        self.cmd_sn.put(&mut header, 24);
        self.exp_stat_sn.put(&mut header, 28);
        header
    }
}

/// A login response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginResponsePdu {
    /// The T bit with NSG: the stage that begins now.
    pub transit: Option<Stage>,
    /// The C bit: the key=value pairs continue in the next response.
    pub more: bool,
    pub stage: Stage,
    /// The highest version that the target supports.
    pub version_max: u8,
    pub version_active: u8,
    /// As in the request.
    pub isid: [u8; 6],
    /// The session's TSIH, in the final response.
    pub tsih: u16,
    pub initiator_tag: InitiatorTag,
    /// The target's sequence numbers. StatSN is valid only with a status of success.
    pub numbers: SerialNumbers,
    /// Status-Class and Status-Detail: 0 is success.
    pub status: u16,
}

impl LoginResponsePdu {
    /// # Errors
    /// As for a request. The stages of a response without success are not checked.
    pub fn decode(header: &[u8; HEADER_LEN]) -> Result<LoginResponsePdu, HeaderError> {
        let status: u16 = Field::get(header, 36)?;
        let (transit, more, stage) = match decode_flags(header) {
            Err(_) if status != 0 => (None, false, Stage::SecurityNegotiation),
            other => other?,
        };
        Ok(LoginResponsePdu {
            transit,
            more,
            stage,
            version_max: header[2],
            version_active: header[3],
            isid: Field::get(header, 8)?,
            tsih: Field::get(header, 14)?,
            initiator_tag: Field::get(header, 16)?,
            numbers: Field::get(header, 24)?,
            status,
        })
    }

    pub fn encode(&self, data_len: u32) -> [u8; HEADER_LEN] {
        let flags = encode_flags(self.transit, self.more, self.stage);
        let mut header = start(Opcode::LoginResponse, flags, data_len);
        header[2] = self.version_max;
        header[3] = self.version_active;
        self.isid.put(&mut header, 8);
        self.tsih.put(&mut header, 14);
        self.initiator_tag.put(&mut header, 16);
        self.numbers.put(&mut header, 24);
        self.status.put(&mut header, 36);
        header
    }
}
