//! Sense data: why a command failed (SPC-4 4.5). Fixed or descriptor format is chosen when it is encoded (D_SENSE).

/// SPC-4 table 48.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum SenseKey {
    NoSense = 0x0,
    RecoveredError = 0x1,
    NotReady = 0x2,
    MediumError = 0x3,
    HardwareError = 0x4,
    IllegalRequest = 0x5,
    UnitAttention = 0x6,
    DataProtect = 0x7,
    CopyAborted = 0xa,
    AbortedCommand = 0xb,
    Miscompare = 0xe,
}

/// A reason with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// The class of the reason.
    pub key: SenseKey,
    /// Additional sense code and qualifier, as in `0x2400`.
    pub code: u16,
    /// The INFORMATION field: an LBA, or the offset of a miscompare.
    pub information: Option<u64>,
    // The scsi work adds what else is needed: sense-key specific field pointer, deferred flag.
}
