//! The content of a disk: sparse, and cheap to copy, because copies share everything until one is changed.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Content is stored, and space is counted, in chunks of this many bytes: the block of a usual file system.
pub(super) const CHUNK: u64 = 4096;

/// The bytes of a disk. Parts that were never written read as zeros and take no memory.
#[derive(Clone, PartialEq, Eq)]
pub struct DiskImage {
    size: u64,
    block: u32,
    chunks: Arc<BTreeMap<u64, Arc<[u8; CHUNK as usize]>>>,
}

impl DiskImage {
    /// An empty disk of `size` bytes with blocks of `block` bytes.
    pub fn new(size: u64, block: u32) -> DiskImage {
        assert!(block.is_power_of_two() && block >= 512, "{block} is no block size");
        assert!(size.is_multiple_of(u64::from(block)), "{size} bytes are no whole blocks");
        DiskImage { size, block, chunks: Arc::default() }
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Makes the disk larger; the new part reads as zeros.
    ///
    /// # Panics
    /// If `size` is smaller than before, or not a multiple of the block size.
    pub fn grow(&mut self, size: u64) {
        assert!(size >= self.size && size.is_multiple_of(u64::from(self.block)), "{size} is no larger size");
        self.size = size;
    }

    /// The logical block size in bytes.
    pub fn block(&self) -> u32 {
        self.block
    }

    /// Copies the bytes at `offset` into `target`.
    ///
    /// # Panics
    /// If they are outside the disk.
    pub fn read(&self, offset: u64, target: &mut [u8]) {
        self.assert_inside(offset, target.len() as u64);
        for (at, chunk, within) in pieces(offset, target.len()) {
            match self.chunks.get(&chunk) {
                Some(bytes) => target[at..at + within.len()].copy_from_slice(&bytes[within]),
                None => target[at..at + within.len()].fill(0),
            }
        }
    }

    /// Replaces the bytes at `offset`.
    ///
    /// # Panics
    /// If they are outside the disk.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.assert_inside(offset, bytes.len() as u64);
        let chunks = Arc::make_mut(&mut self.chunks);
        for (at, chunk, within) in pieces(offset, bytes.len()) {
            let target = chunks.entry(chunk).or_insert_with(|| Arc::new([0; CHUNK as usize]));
            let piece = &bytes[at..at + within.len()];
            Arc::make_mut(target)[within].copy_from_slice(piece);
        }
    }

    /// Makes the range read as zeros; chunks that are completely inside give back their space.
    ///
    /// # Panics
    /// If the range is outside the disk.
    pub fn zero(&mut self, offset: u64, len: u64) {
        self.assert_inside(offset, len);
        let end = offset + len;
        let (first, last) = (offset.div_ceil(CHUNK), end / CHUNK);
        let chunks = Arc::make_mut(&mut self.chunks);
        if first < last {
            let behind = chunks.split_off(&last);
            drop(chunks.split_off(&first));
            chunks.extend(behind);
        }
        let mut clear = |from: u64, to: u64| {
            if let Some(chunk) = chunks.get_mut(&(from / CHUNK)).filter(|_| from < to) {
                let start = (from % CHUNK) as usize;
                Arc::make_mut(chunk)[start..start + (to - from) as usize].fill(0);
            }
        };
        clear(offset, end.min(first * CHUNK));
        if first <= last {
            clear(last * CHUNK, end);
        }
    }

    /// Gives the range memory without changing its bytes.
    pub(super) fn allocate(&mut self, offset: u64, len: u64) {
        let chunks = Arc::make_mut(&mut self.chunks);
        for chunk in offset / CHUNK..(offset + len).div_ceil(CHUNK) {
            chunks.entry(chunk).or_insert_with(|| Arc::new([0; CHUNK as usize]));
        }
    }

    /// The parts of the range that take memory, as (offset, length) in order.
    pub fn allocated(&self, offset: u64, len: u64) -> Vec<(u64, u64)> {
        let end = offset + len;
        let mut parts: Vec<(u64, u64)> = Vec::new();
        for chunk in self.chunks.range(offset / CHUNK..end.div_ceil(CHUNK)).map(|(chunk, _)| *chunk) {
            let (from, to) = ((chunk * CHUNK).max(offset), ((chunk + 1) * CHUNK).min(end));
            match parts.last_mut() {
                Some((start, len)) if *start + *len == from => *len += to - from,
                _ => parts.push((from, to - from)),
            }
        }
        parts
    }

    /// The number of allocated bytes.
    pub fn allocated_bytes(&self) -> u64 {
        self.chunks.len() as u64 * CHUNK
    }

    /// The number of bytes that a write of the range would allocate.
    pub(super) fn missing_bytes(&self, offset: u64, len: u64) -> u64 {
        let chunks = offset / CHUNK..(offset + len).div_ceil(CHUNK);
        (chunks.end - chunks.start - self.chunks.range(chunks).count() as u64) * CHUNK
    }

    fn assert_inside(&self, offset: u64, len: u64) {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.size);
        assert!(inside, "{len} bytes at {offset} are not inside a disk of {} bytes", self.size);
    }
}

base::shows!(Debug for DiskImage, |it| "DiskImage({} bytes, {} allocated)", it.size, it.allocated_bytes());

/// Splits `len` bytes at `offset` at the boundaries of chunks: (position in the bytes, chunk, range within
/// the chunk).
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (usize, u64, std::ops::Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == len {
            return None;
        }
        let here = offset + at as u64;
        let start = (here % CHUNK) as usize;
        let count = (CHUNK as usize - start).min(len - at);
        let piece = (at, here / CHUNK, start..start + count);
        at += count;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;

    #[test]
    fn equals_a_plain_array() {
        const SIZE: usize = 10 * 4096;
        let mut rng = Rng::new(1);
        let mut image = DiskImage::new(SIZE as u64, 512);
        let mut plain = vec![0; SIZE];
        for round in 0..2000 {
            let offset = rng.below(SIZE as u64) as usize;
            let len = rng.below((SIZE - offset) as u64 + 1) as usize;
            if rng.one_in(2) {
                image.zero(offset as u64, len as u64);
                plain[offset..offset + len].fill(0);
            } else {
                let bytes = vec![round as u8 | 1; len.min(700)];
                image.write(offset as u64, &bytes);
                plain[offset..offset + bytes.len()].copy_from_slice(&bytes);
            }
            let mut all = vec![1; SIZE];
            image.read(0, &mut all);
            assert!(all == plain, "after round {round}");
            for (byte, value) in plain.iter().enumerate().filter(|(_, value)| **value != 0).take(50) {
                assert_eq!(image.allocated(byte as u64, 1), [(byte as u64, 1)], "{value}");
            }
        }
    }

    #[test]
    fn whole_chunks_are_released() {
        let mut image = DiskImage::new(1 << 40, 512);
        image.write(0, &[1; 12288]);
        image.write(1 << 39, &[1; 512]);
        assert_eq!(image.allocated(512, 1 << 39), [(512, 11776), (1 << 39, 512)]);
        assert_eq!(image.missing_bytes(8192, 8192), 4096);
        image.zero(100, 8192);
        assert_eq!(image.allocated(0, 1 << 40), [(0, 4096), (8192, 4096), (1 << 39, 4096)]);
        let copy = image.clone();
        image.zero(0, 1 << 40);
        assert_eq!(image.allocated_bytes(), 0);
        assert_eq!(copy.allocated_bytes(), 12288);
    }
}
