//! UNMAP (SBC-3 5.28).

use base::{BlockCount, Buf, Chain, Lba, LbaRange};
use proto::iscsi::initiator::Transfer;
use proto::scsi::Cdb;

use super::{Command, Effect, blocks};
use crate::{Error, Lun, Session};

/// The most descriptors of one list: its length has 16 bits, the header takes 8 bytes, each descriptor 16.
const RANGES_MAX: usize = (u16::MAX as usize - 8) / 16;

/// Unmaps blocks: afterwards they read as zeros, if the unit says so (LBPRZ).
#[derive(Clone, Debug)]
pub struct Unmap<'a> {
    /// The blocks.
    pub ranges: &'a [LbaRange],
}

impl Unmap<'_> {
    fn list(&self) -> Vec<u8> {
        assert!(self.ranges.len() <= RANGES_MAX, "one UNMAP has at most {RANGES_MAX} ranges");
        let descriptors = self.ranges.len() as u16 * 16;
        let mut list = (descriptors + 6).to_be_bytes().to_vec();
        list.extend(descriptors.to_be_bytes());
        list.extend([0; 4]);
        for range in self.ranges {
            let count = u32::try_from(range.count.0).expect("a range of one UNMAP has less than 2^32 blocks");
            list.extend(range.start.0.to_be_bytes());
            list.extend(count.to_be_bytes());
            list.extend([0; 4]);
        }
        list
    }
}

impl Command for Unmap<'_> {
    type Answer = ();
    const NAME: &'static str = "UNMAP";

    fn cdb(&self) -> Cdb {
        let mut cdb = [0; 16];
        cdb[0] = 0x42;
        cdb[7..9].copy_from_slice(&(self.ranges.len() as u16 * 16 + 8).to_be_bytes());
        Cdb(cdb)
    }

    fn transfer(&self) -> Transfer {
        Transfer::Out(Chain::copy_of(&self.list()))
    }

    /// From the first to the last block, including the blocks in between.
    fn effect(&self) -> Effect {
        let start = self.ranges.iter().map(|range| range.start).min().unwrap_or(Lba(0));
        let end = self.ranges.iter().map(|range| range.end()).max().unwrap_or(start);
        Effect::Sets(blocks(start, BlockCount(end.0 - start.0)))
    }

    fn answer(&self, _: Option<Buf>) -> Option<()> {
        Some(())
    }
}

impl Session {
    /// Unmaps blocks.
    pub async fn unmap(&self, lun: Lun, ranges: &[LbaRange]) -> Result<(), Error> {
        self.send(lun, &Unmap { ranges }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ranges() {
        let ranges = [blocks(Lba(9), BlockCount(1)), blocks(Lba(2), BlockCount(3))];
        let unmap = Unmap { ranges: &ranges };
        assert_eq!(unmap.cdb().0[..10], [0x42, 0, 0, 0, 0, 0, 0, 0, 40, 0]);
        let mut expected = vec![0, 38, 0, 32, 0, 0, 0, 0];
        expected.extend([0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0]);
        expected.extend([0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0]);
        assert_eq!(unmap.list(), expected);
        assert_eq!(unmap.effect(), Effect::Sets(blocks(Lba(2), BlockCount(8))));
    }
}
