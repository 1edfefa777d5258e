//! The blocks in a CDB (SBC-3 clause 5): decodes them, and checks that the volume has them.

use base::{BlockCount, Lba, LbaRange};

use crate::scsi::{Cdb, LuConfig, Sense};

/// LOGICAL BLOCK ADDRESS and TRANSFER LENGTH (or NUMBER OF BLOCKS, PREFETCH LENGTH, VERIFICATION LENGTH) as
/// received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) lba: u64,
    pub(super) count: u64,
    /// The first byte of the count's field, for the field pointer.
    pub(super) count_at: u16,
}

impl Extent {
    /// Decodes a six-byte CDB: an LBA of 21 bits; a count of zero means 256 (SBC-2, READ (6)).
    pub(super) fn of_six(cdb: &Cdb) -> Extent {
        let count = match cdb.u8(4) {
            0 => 256,
            count => u64::from(count),
        };
        Extent { lba: u64::from(cdb.u24(1) & 0x1f_ffff), count, count_at: 4 }
    }

    /// Decodes a longer CDB, by the group of its operation code (SPC-4 clause 4, OPERATION CODE).
    pub(super) fn of(cdb: &Cdb) -> Extent {
        match cdb.opcode() >> 5 {
            4 => Extent { lba: cdb.u64(2), count: u64::from(cdb.u32(10)), count_at: 10 },
            5 => Extent { lba: u64::from(cdb.u32(2)), count: u64::from(cdb.u32(6)), count_at: 6 },
            _ => Extent { lba: u64::from(cdb.u32(2)), count: u64::from(cdb.u16(7)), count_at: 7 },
        }
    }

    /// The blocks, if the volume has them all. A count of zero is allowed, but the address must not be beyond
    /// the end.
    pub(super) fn inside(self, config: &LuConfig) -> Result<LbaRange, Sense> {
        let capacity = config.blocks.0;
        LbaRange::new(Lba(self.lba), BlockCount(self.count))
            .filter(|range| range.end().0 <= capacity)
            .ok_or(Sense::lba_out_of_range(self.lba.max(capacity)))
    }

    /// The blocks, if the volume has them all and they do not exceed one command's limit; `None` if the count
    /// is zero.
    pub(super) fn within(self, config: &LuConfig, count_max: u64) -> Result<Option<LbaRange>, Sense> {
        let range = self.inside(config)?;
        if self.count > count_max {
            return Err(Sense::invalid_field_in_cdb(self.count_at, 7));
        }
        Ok((self.count > 0).then_some(range))
    }

    /// The blocks from the address on; up to the end of the volume if the count is zero.
    pub(super) fn or_rest(self, config: &LuConfig) -> Result<LbaRange, Sense> {
        let range = self.inside(config)?;
        if self.count > 0 {
            return Ok(range);
        }
        Ok(LbaRange { start: range.start, count: BlockCount(config.blocks.0 - range.start.0) })
    }
}
