//! What one send puts on a connection: many small headers and many payloads, in order. Payloads are not
//! copied.

use std::ops::Range;

use crate::{Chain, SharedBuf};

/// The memory for small pieces that an empty batch keeps at most. A batch of large pieces is seldom followed
/// by another.
const SMALL_KEPT_MAX: usize = 1 << 20;

enum Part {
    /// A range of `SendBatch::small`.
    Small(Range<usize>),
    Shared(SharedBuf),
}

/// Bytes to send, in order. Small pieces are copied into one buffer; shared buffers are referenced.
#[derive(Default)]
pub struct SendBatch {
    small: Vec<u8>,
    parts: Vec<Part>,
    len: usize,
}

impl SendBatch {
    /// An empty batch.
    pub fn new() -> SendBatch {
        SendBatch::default()
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the batch has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of pieces that `iter` returns. One scatter-gather send has a limit of pieces.
    pub fn pieces(&self) -> usize {
        self.parts.len()
    }

    /// Adds a copy of `bytes`.
    pub fn push(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let start = self.small.len();
        self.small.extend_from_slice(bytes);
        self.len += bytes.len();
        match self.parts.last_mut() {
            Some(Part::Small(range)) if range.end == start => range.end += bytes.len(),
            _ => self.parts.push(Part::Small(start..start + bytes.len())),
        }
    }

    /// The last `len` bytes, to be changed in place (for example encrypted).
    ///
    /// # Panics
    /// If they include anything but copies.
    pub fn last_mut(&mut self, len: usize) -> &mut [u8] {
        match self.parts.last() {
            Some(Part::Small(range)) if range.len() >= len => &mut self.small[range.end - len..range.end],
            _ => panic!("the last {len} bytes are not copies"),
        }
    }

    /// Adds a reference to `data`.
    pub fn push_shared(&mut self, data: SharedBuf) {
        if !data.is_empty() {
            self.len += data.len();
            self.parts.push(Part::Shared(data));
        }
    }

    /// Adds references to all of `chain`.
    pub fn push_chain(&mut self, chain: &Chain) {
        for part in chain.parts() {
            self.push_shared(part.clone());
        }
    }

    /// The pieces in order. Their addresses stay the same until the batch is changed.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|part| match part {
            Part::Small(range) => &self.small[range.clone()],
            Part::Shared(data) => data,
        })
    }

    /// Empties the batch. It keeps its memory, unless that is unusually large.
    pub fn clear(&mut self) {
        self.small.clear();
        self.small.shrink_to(SMALL_KEPT_MAX);
        self.parts.clear();
        self.len = 0;
    }

    /// A copy of all bytes: for tests.
    pub fn to_vec(&self) -> Vec<u8> {
        self.iter().flatten().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buf;

    #[test]
    fn neighbours_are_joined_and_order_is_kept() {
        let mut batch = SendBatch::new();
        batch.push(b"ab");
        batch.push(b"cd");
        batch.push_shared(Buf::copy_of(b"DATA").share());
        batch.push(b"ef");
        assert_eq!(batch.pieces(), 3);
        assert_eq!(batch.len(), 10);
        assert_eq!(batch.to_vec(), b"abcdDATAef");
        batch.clear();
        assert!(batch.is_empty() && batch.iter().next().is_none());
    }

    #[test]
    fn the_last_copies_can_be_changed() {
        let mut batch = SendBatch::new();
        batch.push_shared(Buf::copy_of(b"DATA").share());
        batch.push(b"abc");
        batch.push(b"def");
        batch.last_mut(4).fill(b'x');
        batch.push(b"g");
        assert_eq!(batch.to_vec(), b"DATAabxxxxg");
        assert_eq!(batch.last_mut(7), b"abxxxxg");
    }

    #[test]
    #[should_panic(expected = "not copies")]
    fn referenced_bytes_cannot_be_changed() {
        let mut batch = SendBatch::new();
        batch.push_shared(Buf::copy_of(b"DATA").share());
        batch.push(b"abc");
        batch.last_mut(4);
    }

    #[test]
    fn an_empty_batch_keeps_memory_but_not_much() {
        let mut batch = SendBatch::new();
        batch.push(&[1; 1000]);
        batch.clear();
        assert!(batch.small.capacity() >= 1000);
        batch.push(&vec![1; 100 << 20]);
        batch.clear();
        assert!(batch.small.capacity() <= SMALL_KEPT_MAX);
    }
}
