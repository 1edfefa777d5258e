//! GET LBA STATUS (SBC-3 5.6): which blocks are mapped.

use base::{BlockCount, Buf, Lba, LbaRange};
use proto::iscsi::initiator::Transfer;
use proto::scsi::Cdb;

use super::{Command, Effect, block_cdb, u32_at, u64_at};
use crate::{Error, Lun, Session};

/// Room for this many descriptors of 16 bytes.
const DESCRIPTORS_MAX: u32 = 256;
const HEADER_LEN: u32 = 8;
const LEN: u32 = HEADER_LEN + DESCRIPTORS_MAX * 16;

/// Asks for the status of the blocks from one on.
///
/// The unit decides how many blocks an answer covers; ask again from its end.
#[derive(Clone, Copy, Debug)]
pub struct GetLbaStatus {
    /// The first block.
    pub lba: Lba,
}

/// Blocks with the same status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbaStatus {
    /// The blocks.
    pub blocks: LbaRange,
    /// Their status.
    pub provisioning: Provisioning,
}

/// Whether blocks are mapped (SBC-3 4.7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provisioning {
    /// Mapped, or unknown.
    Mapped,
    /// Not mapped.
    Deallocated,
    /// Space is reserved for them, but they hold no data.
    Anchored,
}

impl Command for GetLbaStatus {
    type Answer = Vec<LbaStatus>;
    const NAME: &'static str = "GET LBA STATUS";

    fn cdb(&self) -> Cdb {
        let mut cdb = block_cdb(0x9e, self.lba, BlockCount(u64::from(LEN)));
        cdb.0[1] = 0x12;
        cdb
    }

    fn transfer(&self) -> Transfer {
        Transfer::In(LEN)
    }

    fn effect(&self) -> Effect {
        Effect::None
    }

    fn answer(&self, data: Option<Buf>) -> Option<Vec<LbaStatus>> {
        parse(&data?)
    }
}

/// SBC-3 5.6.2.
fn parse(data: &[u8]) -> Option<Vec<LbaStatus>> {
    // PARAMETER DATA LENGTH does not count its own field.
    let len = (u32_at(data, 0)? as usize).saturating_sub(4);
    let descriptors = data.get(HEADER_LEN as usize..)?;
    let descriptors = &descriptors[..len.min(descriptors.len())];
    let status = |bytes: &[u8; 16]| {
        let count = BlockCount(u64::from(u32_at(bytes, 8)?));
        let provisioning = match bytes[12] & 0x0f {
            0 => Provisioning::Mapped,
            1 => Provisioning::Deallocated,
            2 => Provisioning::Anchored,
            _ => return None,
        };
        Some(LbaStatus { blocks: LbaRange::new(Lba(u64_at(bytes, 0)?), count)?, provisioning })
    };
    descriptors.as_chunks().0.iter().map(status).collect()
}

impl Session {
    /// Which blocks from `lba` on are mapped.
    pub async fn lba_status(&self, lun: Lun, lba: Lba) -> Result<Vec<LbaStatus>, Error> {
        self.send(lun, &GetLbaStatus { lba }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_extents() {
        let mut data = vec![0, 0, 0, 36, 0, 0, 0, 0];
        data.extend([0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0, 0, 0]);
        data.extend([0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 1, 0, 1, 0, 0, 0]);
        let expected = [(8, 4, Provisioning::Mapped), (12, 256, Provisioning::Deallocated)].map(
            |(start, count, provisioning)| LbaStatus {
                blocks: LbaRange::new(Lba(start), BlockCount(count)).unwrap(),
                provisioning,
            },
        );
        assert_eq!(parse(&data).unwrap(), expected);
        data[8] = 0xff;
        data[9..16].fill(0xff);
        assert_eq!(parse(&data), None, "blocks behind the last number");
        let cdb = GetLbaStatus { lba: Lba(8) }.cdb();
        assert_eq!(cdb.0, [0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0x10, 0x08, 0, 0]);
    }
}
