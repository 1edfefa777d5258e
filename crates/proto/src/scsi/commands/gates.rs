//! What the commands of the medium check in the same way.

use base::{BlockCount, BlockSize, Chain, LbaRange};

use crate::scsi::limits::{self, blocks_of};
use crate::scsi::sense::code;
use crate::scsi::{Cdb, LogicalUnit, LuConfig, Outcome, Sense, SenseKey};

/// Writes are not refused, by configuration or by SWP (SPC-4, Control mode page).
pub(in crate::scsi) fn writable(unit: &LogicalUnit) -> Result<(), Sense> {
    if unit.config().read_only {
        return Err(Sense::new(SenseKey::DataProtect, code::WRITE_PROTECTED));
    }
    if unit.state().write_protected() {
        return Err(Sense::new(SenseKey::DataProtect, code::SOFTWARE_WRITE_PROTECTED));
    }
    Ok(())
}

/// RDPROTECT, WRPROTECT, VRPROTECT or ORPROTECT is zero: there is no protection information (SBC-3 clause 5, READ (10) and WRITE (10)).
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

/// Whether a write must be durable before it is answered: with FUA, and without a write cache always (SBC-3 clause 4, caches).
pub(super) fn durable(unit: &LogicalUnit, fua: bool) -> bool {
    fua || !unit.state().write_cache()
}

/// MAXIMUM TRANSFER LENGTH.
pub(super) fn transfer_max(config: &LuConfig) -> u64 {
    blocks_of(limits::TRANSFER_BYTES_MAX, config.block_size).0
}

/// The bytes of a range.
pub(super) fn bytes_of(range: LbaRange, size: BlockSize) -> u64 {
    (range.count * size).0
}

/// The blocks that came of a write's range, and their data. There are fewer than the CDB says if the initiator expects to
/// transfer less: then those are written that came whole, and the rest shows as overflow in the residual count (RFC 7143
/// 11.4.5.1). Initiators rely on it, and those that made a mistake learn it from the count.
pub(super) fn whole_blocks(data: Chain, range: LbaRange, size: BlockSize) -> (LbaRange, Chain) {
    let came = (data.len() as u64) >> size.shift();
    let range = LbaRange { count: BlockCount(came.min(range.count.0)), ..range };
    (range, data.slice(0..bytes_of(range, size) as usize))
}

/// The first `need` bytes of the data. If there are fewer, because the initiator said so to the transport, nothing is
/// done: half of what changes or compares is not what anybody meant. FCP-4 names this answer where it defines FCP_DL; RFC
/// 7143 leaves it open, and the overflow shows in the residual count.
pub(super) fn take(data: Chain, need: u64) -> Result<Chain, Outcome> {
    let have = data.len() as u64;
    if have == need {
        Ok(data)
    } else if have > need {
        Ok(data.slice(0..need as usize))
    } else {
        Err(wrong_length(need))
    }
}

/// Exactly `need` bytes, of commands where more or less means that the initiator thinks of another block size.
pub(super) fn take_exactly(data: Chain, need: u64) -> Result<Chain, Outcome> {
    if data.len() as u64 == need { Ok(data) } else { Err(wrong_length(need)) }
}

/// The data is not as long as the CDB says.
fn wrong_length(need: u64) -> Outcome {
    let sense = Sense::illegal(code::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT);
    Outcome { transfer: need, ..Outcome::check(sense) }
}
