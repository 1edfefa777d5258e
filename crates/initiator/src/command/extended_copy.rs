//! EXTENDED COPY (LID1) (SPC-4 6.4): the target itself copies blocks from unit to unit.

use base::{BlockCount, BlockSize, Buf, Chain, Lba};
use proto::iscsi::initiator::Transfer;
use proto::scsi::Cdb;

use super::{ALL_BLOCKS, Command, Effect};
use crate::{Error, Lun, Session};

const HEADER_LEN: usize = 16;
const TARGET_LEN: usize = 32;
const SEGMENT_LEN: usize = 28;

/// The most blocks of one segment: its field has 16 bits.
pub const SEGMENT_BLOCKS_MAX: u64 = u16::MAX as u64;

/// Copies from one unit to another, or within one. It may be sent to either unit.
#[derive(Clone, Debug)]
pub struct ExtendedCopy<'a> {
    /// The NAA name of the unit to copy from.
    pub source: [u8; 16],
    /// The NAA name of the unit to copy to.
    pub destination: [u8; 16],
    /// The block size of both units.
    pub size: BlockSize,
    /// What to copy.
    pub segments: &'a [CopySegment],
}

/// One run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopySegment {
    /// The first block to copy.
    pub source: Lba,
    /// Where it goes.
    pub destination: Lba,
    /// How many, at most [`SEGMENT_BLOCKS_MAX`].
    pub count: BlockCount,
}

impl ExtendedCopy<'_> {
    /// # Panics
    /// If there are more than a thousand segments, or one is too long.
    fn list(&self) -> Vec<u8> {
        let segments_len = u32::try_from(self.segments.len() * SEGMENT_LEN).expect("a thousand at most");
        let mut list = vec![0; HEADER_LEN];
        // LIST ID USAGE 11b: the results will not be queried.
        list[1] = 0x18;
        list[2..4].copy_from_slice(&(2 * TARGET_LEN as u16).to_be_bytes());
        list[8..12].copy_from_slice(&segments_len.to_be_bytes());
        list.extend(self.target(self.source));
        list.extend(self.target(self.destination));
        self.segments.iter().for_each(|segment| list.extend(segment.encode()));
        list
    }

    /// An identification descriptor of a direct access device (SPC-4 6.4.5.3): binary, NAA, 16 bytes.
    fn target(&self, naa: [u8; 16]) -> [u8; TARGET_LEN] {
        let mut target = [0; TARGET_LEN];
        (target[0], target[4], target[5], target[7]) = (0xe4, 1, 3, 16);
        target[8..24].copy_from_slice(&naa);
        target[28..32].copy_from_slice(&self.size.bytes().to_be_bytes());
        target
    }
}

impl CopySegment {
    /// Block device to block device (SPC-4 6.4.6.3), from the first target to the second.
    fn encode(&self) -> [u8; SEGMENT_LEN] {
        let count = u16::try_from(self.count.0).expect("a segment has at most 65,535 blocks");
        let mut segment = [0; SEGMENT_LEN];
        (segment[0], segment[3], segment[7]) = (0x02, (SEGMENT_LEN - 4) as u8, 1);
        segment[10..12].copy_from_slice(&count.to_be_bytes());
        segment[12..20].copy_from_slice(&self.source.0.to_be_bytes());
        segment[20..28].copy_from_slice(&self.destination.0.to_be_bytes());
        segment
    }
}

impl Command for ExtendedCopy<'_> {
    type Answer = ();
    const NAME: &'static str = "EXTENDED COPY";

    fn cdb(&self) -> Cdb {
        let len = HEADER_LEN + 2 * TARGET_LEN + self.segments.len() * SEGMENT_LEN;
        let mut cdb = [0; 16];
        cdb[0] = 0x83;
        cdb[10..14].copy_from_slice(&u32::try_from(len).expect("a thousand segments at most").to_be_bytes());
        Cdb(cdb)
    }

    fn transfer(&self) -> Transfer {
        Transfer::Out(Chain::copy_of(&self.list()))
    }

    /// The data written depends on the data read, and may go to another unit.
    fn effect(&self) -> Effect {
        Effect::Once(ALL_BLOCKS)
    }

    fn answer(&self, _: Option<Buf>) -> Option<()> {
        Some(())
    }
}

impl Session {
    /// Lets the target copy blocks itself.
    pub async fn extended_copy(&self, lun: Lun, command: ExtendedCopy<'_>) -> Result<(), Error> {
        self.send(lun, &command).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_segment() {
        let segments =
            [CopySegment { source: Lba(0x0102), destination: Lba(0x0304), count: BlockCount(0x0506) }];
        let copy = ExtendedCopy {
            source: [0x60; 16],
            destination: [0x61; 16],
            size: BlockSize::B512,
            segments: &segments,
        };
        assert_eq!(copy.cdb().0, [0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 108, 0, 0]);
        let mut expected = vec![0, 0x18, 0, 64, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0];
        for name in [0x60, 0x61] {
            expected.extend([0xe4, 0, 0, 0, 1, 3, 0, 16]);
            expected.extend([name; 16]);
            expected.extend([0, 0, 0, 0, 0, 0, 2, 0]);
        }
        expected.extend([0x02, 0, 0, 24, 0, 0, 0, 1, 0, 0, 5, 6]);
        expected.extend([0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 3, 4]);
        assert_eq!(copy.list(), expected);
    }
}
