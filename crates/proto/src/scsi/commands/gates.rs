//! Checks that the commands of the medium share.

use base::{BlockSize, LbaRange};

use crate::scsi::limits::{self, blocks_of};
use crate::scsi::sense::code;
use crate::scsi::{Cdb, LogicalUnit, LuConfig, Sense, SenseKey};

/// Checks that writes are not refused by configuration or by SWP (SPC-4, control mode page).
pub(in crate::scsi) fn writable(unit: &LogicalUnit) -> Result<(), Sense> {
    if unit.config().read_only {
        return Err(Sense::new(SenseKey::DataProtect, code::WRITE_PROTECTED));
    }
    if unit.state().write_protected() {
        return Err(Sense::new(SenseKey::DataProtect, code::SOFTWARE_WRITE_PROTECTED));
    }
    Ok(())
}

/// Checks that RDPROTECT, WRPROTECT, VRPROTECT or ORPROTECT is zero: protection information is not supported
/// (SBC-3 clause 5, READ (10) and WRITE (10)).
pub(super) fn no_protection(cdb: &Cdb) -> Result<(), Sense> {
    if cdb.u8(1) >> 5 != 0 {
        return Err(Sense::invalid_field_in_cdb(1, 7));
    }
    Ok(())
}

/// FUA. DPO is a hint about caches, and FUA_NV is obsolete: both are ignored.
pub(super) fn fua(cdb: &Cdb) -> bool {
    cdb.bit(1, 3)
}

/// Whether a write must be durable before it is answered: with FUA, and always if there is no write cache
/// (SBC-3 clause 4, caches).
pub(super) fn durable(unit: &LogicalUnit, fua: bool) -> bool {
    fua || !unit.state().write_cache()
}

/// MAXIMUM TRANSFER LENGTH in blocks.
pub(super) fn transfer_max(config: &LuConfig) -> u64 {
    blocks_of(limits::TRANSFER_BYTES_MAX, config.block_size).0
}

/// The length of a range in bytes.
pub(super) fn bytes_of(range: LbaRange, size: BlockSize) -> u64 {
    (range.count * size).0
}
