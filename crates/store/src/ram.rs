//! A slice in memory.
//!
//! Blocks that were never written, or were zeroed, take no memory. The volume's whole size is reserved in the
//! [`RamBudget`](crate::RamBudget) nevertheless, so that a write cannot fail.

use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;

use base::{Buf, ByteLen, ByteOffset, Chain, SharedBuf};

use crate::copy::MAP_PAGE_BYTES;
use crate::slice::{SliceSpec, join};

/// The size of the chunks in which memory is taken.
///
/// Reads return the chunks' own memory, so a write to a chunk that is still being sent copies it first. That,
/// and the waste of scattered writes, calls for small chunks. They are large enough that the table of a 1 TiB
/// volume (64 Mi entries of 32 bytes) stays below half a percent of it.
const CHUNK_BYTES: u64 = 16 << 10;

/// How many bytes a bit of [`Chunk::mapped`] covers.
const SECTOR_BYTES: u64 = 512;

const _: () = assert!(CHUNK_BYTES / SECTOR_BYTES == u32::BITS as u64, "one bit a sector");

struct Chunk {
    bytes: SharedBuf,
    /// Sectors that were written since they were last zeroed. All others are zeros in `bytes`.
    mapped: u32,
}

/// One core's part of a RAM volume. Its operations never wait.
pub(crate) struct RamSlice {
    memory: Memory,
    /// The specification with which the slice was opened or grown. Its grants keep the memory reserved.
    spec: RefCell<SliceSpec>,
    /// The pages of the dirty map that were ever written.
    map: RefCell<BTreeMap<usize, Box<[u8; MAP_PAGE_BYTES]>>>,
}

impl RamSlice {
    pub(crate) fn new(spec: SliceSpec) -> RamSlice {
        RamSlice { memory: Memory::default(), spec: RefCell::new(spec), map: RefCell::default() }
    }

    pub(crate) fn spec(&self) -> Ref<'_, SliceSpec> {
        self.spec.borrow()
    }

    pub(crate) fn map_page(&self, page: usize) -> [u8; MAP_PAGE_BYTES] {
        self.map.borrow().get(&page).map_or([0; MAP_PAGE_BYTES], |bytes| **bytes)
    }

    pub(crate) fn set_map_page(&self, page: usize, image: &[u8]) {
        let mut map = self.map.borrow_mut();
        map.entry(page).or_insert_with(|| Box::new([0; MAP_PAGE_BYTES])).copy_from_slice(image);
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn grow(&self, spec: SliceSpec) {
        self.spec.replace(spec);
    }
}

/// How many chunks of an announced write are prefetched: the two that a small write may touch.
const PREFETCH_CHUNKS_MAX: usize = 2;

/// Bytes by offset, of unlimited length.
#[derive(Default)]
pub(crate) struct Memory {
    /// The chunk for each `CHUNK_BYTES`, up to the highest one ever written.
    chunks: RefCell<Vec<Option<Chunk>>>,
}

/// The part of one chunk that an operation touches.
struct Touched {
    chunk: usize,
    start: usize,
    end: usize,
}

impl Touched {
    /// The parts of `len` bytes from `offset` on.
    fn parts(offset: u64, len: u64) -> impl Iterator<Item = Touched> {
        let end = offset + len;
        let mut at = offset;
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let start = at % CHUNK_BYTES;
                let len = (CHUNK_BYTES - start).min(end - at);
                let touched = Touched {
                    chunk: (at / CHUNK_BYTES) as usize,
                    start: start as usize,
                    end: (start + len) as usize,
                };
                at += len;
                touched
            })
        })
    }

    fn len(&self) -> usize {
        self.end - self.start
    }

    /// The sectors' bits.
    fn bits(&self) -> u32 {
        let first = self.start as u64 / SECTOR_BYTES;
        let count = (self.end as u64).div_ceil(SECTOR_BYTES) - first;
        (u32::MAX >> (u64::from(u32::BITS) - count)) << first
    }
}

impl Memory {
    /// The present bytes. Later writes do not change the result.
    pub(crate) fn read(&self, offset: ByteOffset, len: ByteLen) -> Chain {
        let chunks = self.chunks.borrow();
        let mut data = Chain::new();
        for part in Touched::parts(offset.0, len.0) {
            let bytes = match chunks.get(part.chunk) {
                Some(Some(chunk)) => chunk.bytes.slice(part.start..part.end),
                _ => Buf::zeroed(part.len()).share(),
            };
            // The bytes are sent only after the other work that came with this command.
            base::prefetch(&bytes);
            data.push(bytes);
        }
        data
    }

    /// Announces a write to the range.
    pub(crate) fn prefetch(&self, offset: ByteOffset, len: ByteLen) {
        let chunks = self.chunks.borrow();
        // A little is enough, because the processor prefetches what follows.
        for part in Touched::parts(offset.0, len.0).take(PREFETCH_CHUNKS_MAX) {
            if let Some(Some(chunk)) = chunks.get(part.chunk) {
                base::prefetch(&chunk.bytes[part.start..part.end]);
            }
        }
    }

    pub(crate) fn write(&self, offset: ByteOffset, data: &Chain) {
        let mut at = offset.0;
        for source in data.parts() {
            self.write_bytes(at, source);
            at += source.len() as u64;
        }
    }

    fn write_bytes(&self, offset: u64, source: &[u8]) {
        let mut chunks = self.chunks.borrow_mut();
        let mut at = 0;
        for part in Touched::parts(offset, source.len() as u64) {
            if chunks.len() <= part.chunk {
                chunks.resize_with(part.chunk + 1, || None);
            }
            let chunk = chunks[part.chunk]
                .get_or_insert_with(|| Chunk { bytes: Buf::zeroed(CHUNK_BYTES as usize).share(), mapped: 0 });
            chunk.bytes.make_mut()[part.start..part.end].copy_from_slice(&source[at..at + part.len()]);
            chunk.mapped |= part.bits();
            at += part.len();
        }
    }

    pub(crate) fn zero(&self, offset: ByteOffset, len: ByteLen) {
        let mut chunks = self.chunks.borrow_mut();
        // Beyond the highest chunk ever written there is nothing to do, however long the range is.
        let end = (offset.0 + len.0).min(chunks.len() as u64 * CHUNK_BYTES);
        for part in Touched::parts(offset.0, end.saturating_sub(offset.0)) {
            let Some(chunk) = &mut chunks[part.chunk] else { continue };
            chunk.mapped &= !part.bits();
            if chunk.mapped == 0 {
                chunks[part.chunk] = None;
            } else {
                chunk.bytes.make_mut()[part.start..part.end].fill(0);
            }
        }
    }

    pub(crate) fn allocated(
        &self,
        offset: ByteOffset,
        len: ByteLen,
        max: usize,
    ) -> Vec<(ByteOffset, ByteLen)> {
        let chunks = self.chunks.borrow();
        let end = (offset.0 + len.0).min(chunks.len() as u64 * CHUNK_BYTES);
        let mut found = Vec::new();
        for part in Touched::parts(offset.0, end.saturating_sub(offset.0)) {
            let Some(chunk) = &chunks[part.chunk] else { continue };
            let base = part.chunk as u64 * CHUNK_BYTES;
            if chunk.mapped == u32::MAX {
                join(&mut found, base + part.start as u64, part.len() as u64);
                continue;
            }
            let mut mapped = chunk.mapped & part.bits();
            while mapped != 0 {
                let first = mapped.trailing_zeros();
                let count = (mapped >> first).trailing_ones();
                let start = base + u64::from(first) * SECTOR_BYTES;
                join(&mut found, start, u64::from(count) * SECTOR_BYTES);
                let run = (u32::MAX >> (u32::BITS - count)) << first;
                mapped &= !run;
            }
            // The last one may still grow.
            if found.len() > max {
                break;
            }
        }
        found.truncate(max);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Memory {
        /// The memory that is taken now.
        fn resident(&self) -> ByteLen {
            ByteLen(self.chunks.borrow().iter().flatten().count() as u64 * CHUNK_BYTES)
        }
    }

    fn written(slice: &Memory, offset: u64, len: usize, value: u8) {
        slice.write(ByteOffset(offset), &Chain::copy_of(&vec![value; len]));
    }

    fn allocated(slice: &Memory, offset: u64, len: u64) -> Vec<(u64, u64)> {
        slice
            .allocated(ByteOffset(offset), ByteLen(len), 9)
            .into_iter()
            .map(|(offset, len)| (offset.0, len.0))
            .collect()
    }

    #[test]
    fn nothing_was_written_and_nothing_is_taken() {
        let slice = Memory::default();
        assert_eq!(slice.read(ByteOffset(1 << 40), ByteLen(1024)).to_vec(), vec![0; 1024]);
        slice.zero(ByteOffset(0), ByteLen(1 << 50));
        assert!(allocated(&slice, 0, 1 << 50).is_empty());
        assert_eq!(slice.resident(), ByteLen(0));
    }

    #[test]
    fn writes_across_chunks_come_back() {
        let slice = Memory::default();
        written(&slice, CHUNK_BYTES - 512, 1024, 7);
        assert_eq!(slice.resident(), ByteLen(2 * CHUNK_BYTES));
        let read = slice.read(ByteOffset(CHUNK_BYTES - 1024), ByteLen(2048)).to_vec();
        assert_eq!(read, [vec![0; 512], vec![7; 1024], vec![0; 512]].concat());
        assert_eq!(allocated(&slice, 0, 1 << 20), [(CHUNK_BYTES - 512, 1024)]);
    }

    #[test]
    fn an_answer_keeps_what_was_read() {
        let slice = Memory::default();
        written(&slice, 0, 4096, 1);
        let before = slice.read(ByteOffset(0), ByteLen(4096));
        written(&slice, 512, 512, 2);
        slice.zero(ByteOffset(1024), ByteLen(512));
        assert_eq!(before.to_vec(), vec![1; 4096]);
        let now = slice.read(ByteOffset(0), ByteLen(2048)).to_vec();
        assert_eq!(now, [vec![1; 512], vec![2; 512], vec![0; 512], vec![1; 512]].concat());
    }

    #[test]
    fn zeroing_the_last_sector_frees_the_chunk() {
        let slice = Memory::default();
        written(&slice, 0, 1536, 9);
        slice.zero(ByteOffset(512), ByteLen(512));
        assert_eq!(allocated(&slice, 0, CHUNK_BYTES), [(0, 512), (1024, 512)]);
        assert_eq!(allocated(&slice, 512, 1024), [(1024, 512)]);
        assert_eq!(slice.read(ByteOffset(512), ByteLen(512)).to_vec(), vec![0; 512]);
        slice.zero(ByteOffset(0), ByteLen(512));
        slice.zero(ByteOffset(1024), ByteLen(512));
        assert_eq!(slice.resident(), ByteLen(0));
        // The memory is reused, but its old content must not be visible.
        written(&slice, 2048, 512, 1);
        assert_eq!(slice.read(ByteOffset(0), ByteLen(2048)).to_vec(), vec![0; 2048]);
    }

    #[test]
    fn whole_chunks_are_one_extent() {
        let slice = Memory::default();
        written(&slice, 0, 3 * CHUNK_BYTES as usize, 1);
        assert_eq!(allocated(&slice, 512, 2 * CHUNK_BYTES), [(512, 2 * CHUNK_BYTES)]);
    }
}
