//! A unit as bytes: turns byte ranges into the commands that the unit accepts.
//!
//! Nothing is cached here: a write completes when the unit has it, and each read asks the unit. A change of
//! part of a block is a read, a change and a write; `turns` keeps other changes of that block out meanwhile.

use base::{BlockCount, BlockSize, Buf, Chain, Lba, LbaRange};
use initiator::Multipath;
use initiator::command::{Inquiry, Provisioning, Write, WriteSame};
use initiator::multipath::Failure;
use rustix::io::Errno;

use super::turns::Turns;

/// The most bytes in one command, even if the unit accepts more: the kernel's requests are no longer.
pub(super) const COMMAND_BYTES_MAX: u32 = 1 << 20;

/// The most blocks in one WRITE SAME if the unit reports no limit: the 16-bit field, which all targets
/// accept.
const WRITE_SAME_BLOCKS_MAX: u64 = 65_535;

/// VPD pages Block Limits and Logical Block Provisioning (SBC-3 6.6.4, 6.6.5).
const BLOCK_LIMITS: u8 = 0xb0;
const PROVISIONING: u8 = 0xb2;
const PAGE_LEN: u16 = 64;

/// Sense key DATA PROTECT: with this additional sense code, no space is left for a write (SBC-3 4.7.3.6);
/// otherwise the unit is write-protected.
const DATA_PROTECT: u8 = 0x07;
const SPACE_ALLOCATION_FAILED: u16 = 0x2707;

/// A unit that is addressed in bytes.
pub(super) struct Disk {
    unit: Multipath,
    limits: Limits,
    turns: Turns,
}

/// What the unit reports in its VPD pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    /// The most bytes of a read or a write: whole blocks.
    transfer: u64,
    /// The most blocks of a WRITE SAME.
    write_same: u64,
    /// Unmapped blocks read as zeros.
    unmapped_reads_zeros: bool,
    /// WRITE SAME can unmap.
    unmaps: bool,
    /// Granularity and optimal length of a transfer, and granularity of unmapping, in blocks; 0: not
    /// reported.
    granularity: u64,
    optimal: u64,
    unmap_granularity: u64,
}

/// The unit's sizes as a block device needs them.
///
/// All are in bytes, and powers of two except `size`, `transfer` and `write_same`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// The capacity that the unit reported last.
    pub(super) size: u64,
    pub(super) block: u32,
    /// Requests should be a multiple of `io_min`, and `io_opt` long.
    pub(super) io_min: u32,
    pub(super) io_opt: u32,
    /// The most that one command reads or writes: whole blocks.
    pub(super) transfer: u32,
    /// The most that one command zeroes: whole blocks.
    pub(super) write_same: u64,
    /// The granularity of unmapping; `None`: the unit does not unmap.
    pub(super) unmap: Option<u32>,
}

/// Why an operation on the unit failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiskError {
    #[error(transparent)]
    Failed(#[from] Failure),
    #[error("not supported by the LUN")]
    Unsupported,
    #[error("beyond the end of the LUN")]
    BehindEnd,
}

impl DiskError {
    /// The error number for the caller; also logs the cause.
    pub(super) fn told(&self, doing: &str) -> Errno {
        let failure = match self {
            DiskError::Unsupported => return Errno::OPNOTSUPP,
            DiskError::BehindEnd => return Errno::NOSPC,
            DiskError::Failed(failure) => failure,
        };
        tracing::error!(error = %failure, "{doing} failed");
        match failure.answer().and_then(initiator::Error::sense) {
            Some((DATA_PROTECT, SPACE_ALLOCATION_FAILED)) => Errno::NOSPC,
            Some((DATA_PROTECT, _)) => Errno::ROFS,
            _ => Errno::IO,
        }
    }
}

impl Disk {
    pub(super) async fn new(unit: Multipath) -> Disk {
        // A unit without one of the pages reports no limits there.
        let page = async |page| {
            let inquiry = Inquiry { page: Some(page), len: PAGE_LEN };
            unit.send(&inquiry).await.unwrap_or_default()
        };
        let limits =
            Limits::parse(&page(BLOCK_LIMITS).await, &page(PROVISIONING).await, unit.capacity().block_size);
        Disk { unit, limits, turns: Turns::default() }
    }

    /// The size in bytes that the unit reported last.
    pub(super) fn size(&self) -> u64 {
        let capacity = self.unit.capacity();
        (capacity.blocks * capacity.block_size).0
    }

    /// The block size in bytes.
    pub(super) fn block(&self) -> u32 {
        self.block_size().bytes()
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.limits.geometry(self.size(), self.block_size())
    }

    fn block_size(&self) -> BlockSize {
        self.unit.capacity().block_size
    }

    /// Reads up to `len` bytes; fewer at the unit's end.
    pub(super) async fn read(&self, offset: u64, len: u32) -> Result<Buf, DiskError> {
        let end = offset.saturating_add(u64::from(len)).min(self.size());
        if offset >= end {
            return Ok(Buf::zeroed(0));
        }
        let blocks = self.blocks_around(offset, end);
        let start = (blocks.start * self.block_size()).0;
        let whole = self.read_blocks(blocks).await?;
        let wanted = (offset - start) as usize..(end - start) as usize;
        Ok(if wanted == (0..whole.len()) { whole } else { Buf::copy_of(&whole[wanted]) })
    }

    async fn read_blocks(&self, blocks: LbaRange) -> Result<Buf, DiskError> {
        let size = self.block_size();
        let step = self.limits.transfer >> size.shift();
        if blocks.count.0 <= step {
            return Ok(self.unit.read(blocks.start, blocks.count).await?);
        }
        let mut all = Buf::uncleared((blocks.count * size).0 as usize);
        let mut at = 0;
        for piece in pieces(blocks, step) {
            let data = self.unit.read(piece.start, piece.count).await?;
            all[at..at + data.len()].copy_from_slice(&data);
            at += data.len();
        }
        Ok(all)
    }

    /// Writes; with `durable`, the data is on stable storage on return.
    pub(super) async fn write(&self, offset: u64, data: Buf, durable: bool) -> Result<(), DiskError> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= self.size());
        let end = end.ok_or(DiskError::BehindEnd)?;
        if data.is_empty() {
            return Ok(());
        }
        let blocks = self.blocks_around(offset, end);
        let _turn = self.turns.take(blocks).await;
        let data = match self.is_whole(offset, end) {
            true => data,
            false => self.with_surroundings(blocks, offset, &data).await?,
        };
        self.write_blocks(blocks, data.into(), durable).await
    }

    async fn write_blocks(&self, blocks: LbaRange, data: Chain, durable: bool) -> Result<(), DiskError> {
        let size = self.block_size();
        let mut at = 0;
        for piece in pieces(blocks, self.limits.transfer >> size.shift()) {
            let len = (piece.count * size).0 as usize;
            let data = data.slice(at..at + len);
            self.unit.send(&Write { lba: piece.start, data, size, durable }).await?;
            at += len;
        }
        Ok(())
    }

    /// The whole blocks that hold `data` at `offset`; their other bytes are read from the unit.
    ///
    /// The caller must have the blocks' turn.
    async fn with_surroundings(&self, blocks: LbaRange, offset: u64, data: &[u8]) -> Result<Buf, DiskError> {
        let size = self.block_size();
        let (start, block) = ((blocks.start * size).0, size.bytes() as usize);
        let head = (offset - start) as usize;
        let mut whole = Buf::uncleared((blocks.count * size).0 as usize);
        let (first, last) = (blocks.start, Lba(blocks.end().0 - 1));
        let tail_is_whole = (head + data.len()).is_multiple_of(block);
        if head > 0 || (first == last && !tail_is_whole) {
            let before = self.unit.read(first, BlockCount(1)).await?;
            whole[..block].copy_from_slice(&before);
        }
        if first != last && !tail_is_whole {
            let before = self.unit.read(last, BlockCount(1)).await?;
            let at = whole.len() - block;
            whole[at..].copy_from_slice(&before);
        }
        whole[head..head + data.len()].copy_from_slice(data);
        Ok(whole)
    }

    /// Zeroes a range; with `unmap` the unit may free the space.
    ///
    /// Uses WRITE SAME, not UNMAP, which is only a hint: after WRITE SAME the blocks read as zeros whether
    /// the unit frees the space or not (SBC-3 4.7.3.4.4).
    pub(super) async fn zero(&self, offset: u64, len: u64, unmap: bool) -> Result<(), DiskError> {
        let size = self.block_size();
        let block = u64::from(size.bytes());
        let end = offset.checked_add(len).filter(|end| *end <= self.size()).ok_or(DiskError::BehindEnd)?;
        let (inner_start, inner_end) = (offset.next_multiple_of(block), end - end % block);
        if inner_start >= inner_end {
            return self.write(offset, Buf::zeroed(len as usize), false).await;
        }
        if offset < inner_start {
            self.write(offset, Buf::zeroed((inner_start - offset) as usize), false).await?;
        }
        if inner_end < end {
            self.write(inner_end, Buf::zeroed((end - inner_end) as usize), false).await?;
        }
        let blocks = self.blocks_around(inner_start, inner_end);
        let _turn = self.turns.take(blocks).await;
        for piece in pieces(blocks, self.limits.write_same) {
            let zeros = Buf::zeroed(size.bytes() as usize).into();
            let command = WriteSame { lba: piece.start, count: piece.count, block: zeros, unmap };
            self.unit.write_same(&command).await.map_err(unsupported)?;
        }
        Ok(())
    }

    /// Like [`Disk::zero`], but writes zeros if the unit does not support WRITE SAME.
    pub(super) async fn write_zeros(&self, offset: u64, len: u64, unmap: bool) -> Result<(), DiskError> {
        match self.zero(offset, len, unmap && self.limits.unmaps).await {
            Err(DiskError::Unsupported) => {}
            result => return result,
        }
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(u64::from(COMMAND_BYTES_MAX));
            self.write(offset + done, Buf::zeroed(piece as usize), false).await?;
            done += piece;
        }
        Ok(())
    }

    /// Makes earlier writes durable.
    pub(super) async fn flush(&self) -> Result<(), DiskError> {
        Ok(self.unit.flush().await?)
    }

    /// The first byte from `offset` on that is data, or that is in a hole.
    ///
    /// The unit's end counts as a hole: it is where the last data ends.
    pub(super) async fn seek(&self, offset: u64, data: bool) -> Result<Option<u64>, DiskError> {
        let (size, block) = (self.size(), self.block_size());
        if offset >= size {
            return Ok(None);
        }
        let anywhere = if data { Some(offset) } else { Some(size) };
        if !self.limits.unmapped_reads_zeros {
            return Ok(anywhere);
        }
        let mut at = offset;
        while at < size {
            let answer = self.unit.lba_status(Lba(at >> block.shift())).await;
            let extents = match answer {
                Ok(extents) => extents,
                Err(failure) if is_unsupported(&failure) => return Ok(anywhere),
                Err(failure) => return Err(failure.into()),
            };
            let before = at;
            for extent in extents {
                let is_data = extent.provisioning != Provisioning::Deallocated;
                let end = (extent.blocks.end() * block).0;
                if end > at && is_data == data {
                    return Ok(Some(at.min(size)));
                }
                at = at.max(end);
            }
            if at == before {
                // The unit's response is of no use.
                return Ok(anywhere);
            }
        }
        Ok((!data).then_some(size))
    }

    /// Logs out.
    pub(super) async fn close(self) {
        self.unit.close().await;
    }

    fn is_whole(&self, offset: u64, end: u64) -> bool {
        let block = u64::from(self.block());
        offset.is_multiple_of(block) && end.is_multiple_of(block)
    }

    /// The blocks that contain the bytes from `start` to `end`.
    fn blocks_around(&self, start: u64, end: u64) -> LbaRange {
        let size = self.block_size();
        let (first, last) = (start >> size.shift(), end.div_ceil(u64::from(size.bytes())));
        LbaRange::new(Lba(first), BlockCount(last - first)).expect("they are before the unit's end")
    }
}

impl Limits {
    fn parse(limits: &[u8], provisioning: &[u8], size: BlockSize) -> Limits {
        let number = |field: std::ops::Range<usize>| {
            let bytes = limits.get(field).unwrap_or_default();
            bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let or = |limit: u64, none: u64| if limit == 0 { none } else { limit.min(none) };
        let transfer = or(number(8..12), u64::from(COMMAND_BYTES_MAX) >> size.shift());
        Limits {
            transfer: transfer << size.shift(),
            write_same: or(number(36..44), WRITE_SAME_BLOCKS_MAX),
            // LBPRZ, LBPWS.
            unmapped_reads_zeros: provisioning.get(5).is_some_and(|byte| byte & 0x04 != 0),
            unmaps: provisioning.get(5).is_some_and(|byte| byte & 0x40 != 0),
            granularity: number(6..8),
            optimal: number(12..16),
            unmap_granularity: number(28..32),
        }
    }

    fn geometry(&self, size: u64, block: BlockSize) -> Geometry {
        let one = block.bytes();
        // Blocks as bytes: rounded down to a power of two, at most what a command carries, at least one
        // block.
        let rounded = |blocks: u64| {
            let most = u64::from(COMMAND_BYTES_MAX);
            let bytes = blocks.saturating_mul(u64::from(one)).clamp(u64::from(one), most);
            1 << bytes.ilog2()
        };
        let io_min = rounded(self.granularity);
        Geometry {
            size,
            block: one,
            io_min,
            io_opt: rounded(self.optimal).max(io_min),
            transfer: self.transfer as u32,
            write_same: self.write_same << block.shift(),
            unmap: self.unmaps.then(|| rounded(self.unmap_granularity)),
        }
    }
}

/// Splits a range into pieces of at most `step` blocks.
fn pieces(blocks: LbaRange, step: u64) -> impl Iterator<Item = LbaRange> {
    let (start, end) = (blocks.start.0, blocks.end().0);
    (start..end)
        .step_by(usize::try_from(step).unwrap_or(usize::MAX))
        .map(move |at| LbaRange::new(Lba(at), BlockCount(step.min(end - at))).expect("it is a part of one"))
}

fn is_unsupported(failure: &Failure) -> bool {
    failure.answer().is_some_and(initiator::Error::is_illegal_request)
}

fn unsupported(failure: Failure) -> DiskError {
    if is_unsupported(&failure) { DiskError::Unsupported } else { DiskError::Failed(failure) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_says_what_it_takes() {
        let mut page = [0; 64];
        let open = Limits {
            transfer: 1 << 20,
            write_same: 65_535,
            unmapped_reads_zeros: false,
            unmaps: false,
            granularity: 0,
            optimal: 0,
            unmap_granularity: 0,
        };
        assert_eq!(Limits::parse(&page, &[], BlockSize::B512), open);
        // 8, 256, 8 and 4096 blocks.
        (page[7], page[10], page[31], page[42], page[43]) = (8, 1, 8, 0x10, 0x00);
        let tight = Limits {
            transfer: 131_072,
            write_same: 4096,
            unmapped_reads_zeros: true,
            unmaps: true,
            granularity: 8,
            optimal: 0,
            unmap_granularity: 8,
        };
        assert_eq!(Limits::parse(&page, &[0, 0xb2, 0, 4, 0, 0xe4, 2, 0], BlockSize::B512), tight);
        page[8] = 0x7f;
        assert_eq!(Limits::parse(&page, &[], BlockSize::B4096).transfer, 1 << 20);
    }

    #[test]
    fn the_size_of_a_block_device_is_in_bytes() {
        let mut page = [0; 64];
        let open = Limits::parse(&page, &[], BlockSize::B4096).geometry(1 << 30, BlockSize::B4096);
        let expected = Geometry {
            size: 1 << 30,
            block: 4096,
            io_min: 4096,
            io_opt: 4096,
            transfer: 1 << 20,
            write_same: 65_535 * 4096,
            unmap: None,
        };
        assert_eq!(open, expected);
        // 8, 136 and 48 blocks: those that are no power of two are rounded down.
        (page[7], page[15], page[31]) = (8, 136, 48);
        let told = Limits::parse(&page, &[0, 0xb2, 0, 4, 0, 0x40, 2, 0], BlockSize::B512);
        let told = told.geometry(1 << 30, BlockSize::B512);
        assert_eq!((told.io_min, told.io_opt, told.unmap), (4096, 65_536, Some(16_384)));
    }

    #[test]
    fn ranges_are_cut() {
        let range = |start, count| LbaRange::new(Lba(start), BlockCount(count)).unwrap();
        assert_eq!(pieces(range(3, 10), 4).collect::<Vec<_>>(), [range(3, 4), range(7, 4), range(11, 2)]);
        assert_eq!(pieces(range(3, 4), 4).collect::<Vec<_>>(), [range(3, 4)]);
    }
}
