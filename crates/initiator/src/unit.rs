//! Logical units: the commands that clients need most (SPC-4, SBC-3).

use base::{BlockCount, BlockSize, Buf, Chain, Lba};
use proto::iscsi::initiator::Transfer;
use proto::scsi::Cdb;

use crate::{Error, Session};

/// How often a unit attention is taken before a command is given up: a reset, a resize and a change of reservations at
/// once would be three.
const ATTENTIONS_MAX: usize = 8;

/// The number of a logical unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lun(pub u16);

impl Lun {
    /// SAM-5 4.7: peripheral addressing below 256, flat space addressing up to 16383.
    pub fn bytes(self) -> [u8; 8] {
        let [high, low] = self.0.to_be_bytes();
        match high {
            0 => [0, low, 0, 0, 0, 0, 0, 0],
            _ => [0x40 | high & 0x3f, low, 0, 0, 0, 0, 0, 0],
        }
    }
}

/// What READ CAPACITY (16) says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// How many blocks there are.
    pub blocks: BlockCount,
    /// How large they are.
    pub block_size: BlockSize,
}

impl Session {
    /// Waits until the unit has said all its unit attentions.
    ///
    /// # Errors
    /// As for [`Session::command`].
    pub async fn make_ready(&self, lun: Lun) -> Result<(), Error> {
        let mut result = Ok(());
        for _ in 0..ATTENTIONS_MAX {
            // TEST UNIT READY
            result = self.command(lun, Cdb([0; 16]), Transfer::None).await.map(drop);
            match &result {
                Err(error) if error.is_unit_attention() => {}
                _ => break,
            }
        }
        result
    }

    /// The standard INQUIRY data, or a VPD page: at most `len` bytes.
    ///
    /// # Errors
    /// As for [`Session::command`].
    pub async fn inquiry(&self, lun: Lun, page: Option<u8>, len: u16) -> Result<Vec<u8>, Error> {
        let mut cdb = [0; 16];
        cdb[0] = 0x12;
        cdb[1] = u8::from(page.is_some());
        cdb[2] = page.unwrap_or(0);
        cdb[3..5].copy_from_slice(&len.to_be_bytes());
        let result = self.command(lun, Cdb(cdb), Transfer::In(u32::from(len))).await?;
        Ok(result.data.map(|data| data.to_vec()).unwrap_or_default())
    }

    /// READ CAPACITY (16).
    ///
    /// # Errors
    /// As for [`Session::command`]; [`Error::BadAnswer`] for a block size that we do not know.
    pub async fn read_capacity(&self, lun: Lun) -> Result<Capacity, Error> {
        const LEN: u32 = 32;
        let mut cdb = [0; 16];
        (cdb[0], cdb[1]) = (0x9e, 0x10);
        cdb[10..14].copy_from_slice(&LEN.to_be_bytes());
        let result = self.command(lun, Cdb(cdb), Transfer::In(LEN)).await?;
        let data = result.data.as_deref().unwrap_or(&[]);
        parse_capacity(data).ok_or(Error::BadAnswer("READ CAPACITY (16)"))
    }

    /// READ (16).
    ///
    /// # Errors
    /// As for [`Session::command`]; [`Error::BadAnswer`] for less data than asked for.
    pub async fn read(&self, lun: Lun, lba: Lba, count: BlockCount, size: BlockSize) -> Result<Buf, Error> {
        let bytes = transfer_len(count, size);
        let result = self.command(lun, transfer_cdb(0x88, lba, count), Transfer::In(bytes)).await?;
        result.data.filter(|data| data.len() == bytes as usize).ok_or(Error::BadAnswer("READ (16)"))
    }

    /// WRITE (16) of whole blocks.
    ///
    /// # Errors
    /// As for [`Session::command`].
    pub async fn write(&self, lun: Lun, lba: Lba, data: Chain, size: BlockSize) -> Result<(), Error> {
        let count = BlockCount(data.len() as u64 >> size.shift());
        self.command(lun, transfer_cdb(0x8a, lba, count), Transfer::Out(data)).await.map(drop)
    }

    /// SYNCHRONIZE CACHE (16) of the whole unit.
    ///
    /// # Errors
    /// As for [`Session::command`].
    pub async fn flush(&self, lun: Lun) -> Result<(), Error> {
        let mut cdb = [0; 16];
        cdb[0] = 0x91;
        self.command(lun, Cdb(cdb), Transfer::None).await.map(drop)
    }
}

/// # Panics
/// If one command is to move 4 GiB or more.
fn transfer_len(count: BlockCount, size: BlockSize) -> u32 {
    u32::try_from((count * size).0).expect("one command moves less than 4 GiB")
}

/// READ (16) and WRITE (16), and their like.
fn transfer_cdb(operation: u8, lba: Lba, count: BlockCount) -> Cdb {
    let mut cdb = [0; 16];
    cdb[0] = operation;
    cdb[2..10].copy_from_slice(&lba.0.to_be_bytes());
    let count = u32::try_from(count.0).expect("one command moves less than 4 GiB");
    cdb[10..14].copy_from_slice(&count.to_be_bytes());
    Cdb(cdb)
}

/// SBC-3 5.16.2: the last LBA and the block length.
fn parse_capacity(data: &[u8]) -> Option<Capacity> {
    let last = u64::from_be_bytes(*data.first_chunk()?);
    let size = u32::from_be_bytes(*data.get(8..12)?.first_chunk()?);
    Some(Capacity { blocks: BlockCount(last.checked_add(1)?), block_size: BlockSize::from_bytes(size)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn luns() {
        assert_eq!(Lun(0).bytes(), [0; 8]);
        assert_eq!(Lun(255).bytes(), [0, 255, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Lun(256).bytes(), [0x41, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn commands() {
        assert_eq!(
            transfer_cdb(0x8a, Lba(0x0102_0304_0506), BlockCount(0x0708)).0,
            [0x8a, 0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0, 7, 8, 0, 0]
        );
        let data = [0, 0, 0, 0, 0, 0, 0x0f, 0xff, 0, 0, 0x10, 0];
        assert_eq!(
            parse_capacity(&data),
            Some(Capacity { blocks: BlockCount(4096), block_size: BlockSize::B4096 })
        );
        assert_eq!(parse_capacity(&[0xff; 12]), None);
        assert_eq!(parse_capacity(&[0; 8]), None);
    }
}
