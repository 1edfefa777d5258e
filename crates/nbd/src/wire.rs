//! Numbers of the protocol (section *Values*). All are sent in network byte order.

/// `NBDMAGIC`, with which the server begins.
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`, in front of each option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// In front of each reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// In front of each request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// In front of each simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// In front of each chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// The longest string (section *Conventions*).
pub const STRING_BYTES_MAX: usize = 4096;
/// Zeros at the end of the reply to `NBD_OPT_EXPORT_NAME`.
pub const EXPORT_NAME_ZEROES: usize = 124;

/// Flags of the server, and those of the client with the same meaning.
pub mod handshake {
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    pub const NO_ZEROES: u16 = 1 << 1;
    pub const CLIENT_FIXED_NEWSTYLE: u32 = 1 << 0;
    pub const CLIENT_NO_ZEROES: u32 = 1 << 1;
}

/// Options.
pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of replies to options.
pub mod option_reply {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    pub const ERR_UNSUP: u32 = 1 << 31 | 1;
    pub const ERR_POLICY: u32 = 1 << 31 | 2;
    pub const ERR_INVALID: u32 = 1 << 31 | 3;
    pub const ERR_TLS_REQD: u32 = 1 << 31 | 5;
    pub const ERR_UNKNOWN: u32 = 1 << 31 | 6;
    pub const ERR_TOO_BIG: u32 = 1 << 31 | 9;
}

/// Types of information about an export.
pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags.
pub mod transmission {
    pub const HAS_FLAGS: u16 = 1 << 0;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
}

/// Request types.
pub mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const TRIM: u16 = 4;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

/// Command flags.
pub mod command_flag {
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
}

/// Flags and types of chunks of structured replies.
pub mod chunk {
    pub const DONE: u16 = 1 << 0;
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const OFFSET_HOLE: u16 = 2;
    pub const BLOCK_STATUS: u16 = 5;
    pub const ERROR: u16 = 1 << 15 | 1;
    pub const ERROR_OFFSET: u16 = 1 << 15 | 2;
}

/// Status flags of extents.
pub mod status {
    /// In `base:allocation`: a hole that reads as zeros.
    pub const HOLE_AND_ZERO: u32 = 1 << 0 | 1 << 1;
    /// In `qemu:dirty-bitmap:NAME` (<https://www.qemu.org/docs/master/interop/nbd.html>): it has changed.
    pub const DIRTY: u32 = 1 << 0;
}

/// Error values.
pub mod error {
    pub const EPERM: u32 = 1;
    pub const EIO: u32 = 5;
    pub const EINVAL: u32 = 22;
    pub const EOVERFLOW: u32 = 75;
}
