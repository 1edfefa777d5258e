//! Fields that all basic header segments share (RFC 7143 11.2.1).

use thiserror::Error;

use super::{LogoutReason, LogoutResult, RejectReason, Serial, TaskAttribute};

/// The length of a basic header segment.
pub const HEADER_LEN: usize = 48;

/// The tag that an initiator assigns to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InitiatorTag(pub u32);

impl InitiatorTag {
    /// No task.
    pub const RESERVED: InitiatorTag = InitiatorTag(0xffff_ffff);
}

/// The tag that a target assigns to a transfer, a ping or a text exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TargetTag(pub u32);

impl TargetTag {
    /// No tag.
    pub const RESERVED: TargetTag = TargetTag(0xffff_ffff);
}

/// The sequence numbers that nearly every PDU of a target carries in bytes 24 to 35.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SerialNumbers {
    pub stat_sn: Serial,
    pub exp_cmd_sn: Serial,
    pub max_cmd_sn: Serial,
}

base::numbered! {
    /// What a PDU is (RFC 7143 11.2.1.2).
    #[derive(PartialOrd, Ord)]
    pub enum Opcode: u8 {
        NopOut = 0x00,
        ScsiCommand = 0x01,
        TaskRequest = 0x02,
        LoginRequest = 0x03,
        TextRequest = 0x04,
        DataOut = 0x05,
        LogoutRequest = 0x06,
        Snack = 0x10,
        NopIn = 0x20,
        ScsiResponse = 0x21,
        TaskResponse = 0x22,
        LoginResponse = 0x23,
        TextResponse = 0x24,
        DataIn = 0x25,
        LogoutResponse = 0x26,
        R2t = 0x31,
        AsyncMessage = 0x32,
        Reject = 0x3f,
    }
}

/// Why a header cannot be decoded.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum HeaderError {
    /// RFC 7143 11.17.1: command not supported.
    #[error("unexpected opcode {0:#04x}")]
    Opcode(u8),
    /// RFC 7143 11.17.1: invalid PDU field.
    #[error("{0} has a value that the standard does not define")]
    Field(&'static str),
}

pub const fn opcode(header: &[u8; HEADER_LEN]) -> u8 {
    header[0] & 0x3f
}

/// The I bit: the request is executed at once and does not count in CmdSN.
pub const fn is_immediate(header: &[u8; HEADER_LEN]) -> bool {
    header[0] & 0x40 != 0
}

/// DataSegmentLength, without padding.
pub const fn data_segment_length(header: &[u8; HEADER_LEN]) -> u32 {
    u32::from_be_bytes([0, header[5], header[6], header[7]])
}

/// TotalAHSLength in bytes.
pub(super) const fn ahs_length(header: &[u8; HEADER_LEN]) -> usize {
    header[4] as usize * 4
}

/// Starts a header: opcode, fixed flags and data segment length; the rest is zero.
pub(super) fn start(opcode: Opcode, flags: u8, data_len: u32) -> [u8; HEADER_LEN] {
    assert!(data_len < 1 << 24, "a data segment's length has 24 bits");
    let mut header = [0; HEADER_LEN];
    header[0] = opcode as u8;
    header[1] = flags;
    data_len.put(&mut header, 4);
    if matches!(opcode, Opcode::AsyncMessage | Opcode::Reject) {
        InitiatorTag::RESERVED.put(&mut header, 16);
    }
    header
}

/// What a field of a header says. `Place` is its first byte, or a byte and a mask of its bits; `()` if its
/// type has one place only.
pub(super) trait Field<Place>: Sized {
    fn get(header: &[u8; HEADER_LEN], place: Place) -> Result<Self, HeaderError>;

    /// All its bits are zero before.
    fn put(self, header: &mut [u8; HEADER_LEN], place: Place);
}

impl<const N: usize> Field<usize> for [u8; N] {
    fn get(header: &[u8; HEADER_LEN], at: usize) -> Result<[u8; N], HeaderError> {
        Ok(std::array::from_fn(|i| header[at + i]))
    }

    fn put(self, header: &mut [u8; HEADER_LEN], at: usize) {
        header[at..at + N].copy_from_slice(&self);
    }
}

impl Field<(usize, u8)> for bool {
    fn get(header: &[u8; HEADER_LEN], (at, mask): (usize, u8)) -> Result<bool, HeaderError> {
        Ok(header[at] & mask != 0)
    }

    fn put(self, header: &mut [u8; HEADER_LEN], (at, mask): (usize, u8)) {
        header[at] |= if self { mask } else { 0 };
    }
}

macro_rules! numbers {
    ($($type:ident)+) => { $(
        impl Field<usize> for $type {
            fn get(header: &[u8; HEADER_LEN], at: usize) -> Result<$type, HeaderError> {
                Field::<usize>::get(header, at).map($type::from_be_bytes)
            }

            fn put(self, header: &mut [u8; HEADER_LEN], at: usize) {
                Field::<usize>::put(self.to_be_bytes(), header, at);
            }
        }
    )+ };
}

numbers!(u8 u16 u32);

macro_rules! named_numbers {
    ($($type:ident)+) => { $(
        impl Field<usize> for $type {
            fn get(header: &[u8; HEADER_LEN], at: usize) -> Result<$type, HeaderError> {
                <u32 as Field<usize>>::get(header, at).map($type)
            }

            fn put(self, header: &mut [u8; HEADER_LEN], at: usize) {
                <u32 as Field<usize>>::put(self.0, header, at);
            }
        }
    )+ };
}

named_numbers!(InitiatorTag TargetTag Serial);

/// Numbers of which not all are defined. Their place names the field, too.
macro_rules! enums {
    ($($type:ident)+) => { $(
        impl Field<(usize, u8, &'static str)> for $type {
            fn get(
                header: &[u8; HEADER_LEN],
                (at, mask, name): (usize, u8, &'static str),
            ) -> Result<$type, HeaderError> {
                $type::from_number(header[at] & mask).ok_or(HeaderError::Field(name))
            }

            fn put(self, header: &mut [u8; HEADER_LEN], (at, _, _): (usize, u8, &'static str)) {
                header[at] |= self as u8;
            }
        }
    )+ };
}

enums!(TaskAttribute LogoutReason LogoutResult RejectReason);

impl Field<usize> for SerialNumbers {
    fn get(header: &[u8; HEADER_LEN], at: usize) -> Result<SerialNumbers, HeaderError> {
        Ok(SerialNumbers {
            stat_sn: Field::get(header, at)?,
            exp_cmd_sn: Field::get(header, at + 4)?,
            max_cmd_sn: Field::get(header, at + 8)?,
        })
    }

    fn put(self, header: &mut [u8; HEADER_LEN], at: usize) {
        self.stat_sn.put(header, at);
        self.exp_cmd_sn.put(header, at + 4);
        self.max_cmd_sn.put(header, at + 8);
    }
}

/// Defines a PDU by its opcode, whether it has data, its fixed flags, and the places of its fields.
macro_rules! pdu {
    (@encode $opcode:ident $flags:literal) => {
        pub fn encode(&self) -> [u8; HEADER_LEN] {
            self.put(start(Opcode::$opcode, $flags, 0))
        }
    };
    (@encode $opcode:ident $flags:literal $data_len:ident) => {
        pub fn encode(&self, $data_len: u32) -> [u8; HEADER_LEN] {
            self.put(start(Opcode::$opcode, $flags, $data_len))
        }
    };
    (
        $(#[$doc:meta])*
        $name:ident = $opcode:ident($($data_len:ident)?) | $flags:literal {
            $($(#[$field_doc:meta])* $field:ident: $type:ty = $place:expr,)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)+
        }

        impl $name {
            /// # Errors
            /// A field has a value that the standard does not define.
            pub fn decode(header: &[u8; HEADER_LEN]) -> Result<$name, HeaderError> {
                Ok($name { $($field: Field::get(header, $place)?,)+ })
            }

            pdu!(@encode $opcode $flags $($data_len)?);

            fn put(&self, mut header: [u8; HEADER_LEN]) -> [u8; HEADER_LEN] {
                $(Field::put(self.$field, &mut header, $place);)+
                header
            }
        }
    };
}

pub(super) use pdu;
