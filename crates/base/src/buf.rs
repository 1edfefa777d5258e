//! Buffers for data on its way between a socket and a disk.
//!
//! A [`Buf`] is owned memory, aligned for O_DIRECT. A [`SharedBuf`] is an immutable part of a buffer; it is
//! cheap to clone and to slice. A [`Chain`] is a sequence of a few of those: what one read returns.
//!
//! Each thread recycles memory through a pool, because the allocator is slow for these sizes and a new page
//! costs a fault. A buffer that is freed on another core than the one that allocated it stays there; there
//! are few sizes, so the pools even out. The pool is a cache with a limit, not the memory budget: the code
//! that admits commands decides how much data may be in flight.

use std::alloc::Layout;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use smallvec::SmallVec;

/// The alignment in memory of every buffer: what O_DIRECT requires on any disk.
pub const ALIGNMENT: usize = 4096;

/// Capacities are powers of two from 4 KiB to 1 MiB; larger buffers are allocated exactly and not recycled.
const CLASS_SHIFT_MIN: u32 = 12;
const CLASS_SHIFT_MAX: u32 = 20;
const CLASSES: usize = (CLASS_SHIFT_MAX - CLASS_SHIFT_MIN + 1) as usize;

/// The most that a thread's pool keeps: enough for a core that moves 4 GB/s in 1 MiB requests at depth 32.
const POOL_BYTES_MAX: usize = 32 << 20;

struct Pool {
    free: [Vec<NonNull<u8>>; CLASSES],
    held: usize,
}

impl Drop for Pool {
    fn drop(&mut self) {
        for (class, list) in self.free.iter_mut().enumerate() {
            for pointer in list.drain(..) {
                // SAFETY: `allocate` allocated this memory with this capacity, and only the pool has it.
                unsafe { std::alloc::dealloc(pointer.as_ptr(), layout(class_capacity(class))) }
            }
        }
    }
}

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { free: [const { Vec::new() }; CLASSES], held: 0 }) };
}

/// The bytes that this thread's pool keeps for reuse.
pub fn pool_bytes() -> usize {
    POOL.with(|pool| pool.borrow().held)
}

fn class_capacity(class: usize) -> usize {
    1 << (CLASS_SHIFT_MIN as usize + class)
}

/// The size class of `len` bytes, or `None` if it is too large for one.
fn class_of(len: usize) -> Option<usize> {
    let shift = len.next_power_of_two().trailing_zeros().max(CLASS_SHIFT_MIN);
    (shift <= CLASS_SHIFT_MAX).then(|| (shift - CLASS_SHIFT_MIN) as usize)
}

fn capacity_of(len: usize) -> usize {
    match class_of(len) {
        Some(class) => class_capacity(class),
        None => len.next_multiple_of(ALIGNMENT),
    }
}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, ALIGNMENT).expect("a capacity is below isize::MAX")
}

fn allocate(capacity: usize) -> NonNull<u8> {
    let layout = layout(capacity);
    // SAFETY: the capacity is never zero.
    let pointer = unsafe { std::alloc::alloc_zeroed(layout) };
    NonNull::new(pointer).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
}

/// Owned, aligned memory of a fixed length.
pub struct Buf {
    pointer: NonNull<u8>,
    len: usize,
    /// The allocated size: `capacity_of(len at creation)`.
    capacity: usize,
}

// SAFETY: a Buf owns its memory like a Box<[u8]> does.
unsafe impl Send for Buf {}
// SAFETY: a shared Buf only gives out `&[u8]`.
unsafe impl Sync for Buf {}

impl Buf {
    /// A buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> Buf {
        let mut buf = Buf::uncleared(len);
        buf.fill(0);
        buf
    }

    /// A buffer of `len` bytes that may hold data of an earlier user.
    ///
    /// The caller overwrites all of it before anything else reads it.
    pub fn uncleared(len: usize) -> Buf {
        let capacity = capacity_of(len);
        let recycled = class_of(len).and_then(|class| {
            POOL.try_with(|pool| {
                let mut pool = pool.borrow_mut();
                let pointer = pool.free[class].pop()?;
                pool.held -= capacity;
                Some(pointer)
            })
            .ok()
            .flatten()
        });
        Buf { pointer: recycled.unwrap_or_else(|| allocate(capacity)), len, capacity }
    }

    /// A buffer with a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Buf {
        let mut buf = Buf::uncleared(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Shortens the buffer to `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Undoes a `truncate`: the bytes up to `len` are the same as before.
    ///
    /// # Panics
    /// If fewer than `len` bytes were allocated.
    pub fn restore_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "{len} bytes are more than the {} that were allocated", self.capacity);
        self.len = len;
    }

    /// The address of the first byte, for the kernel.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.pointer.as_ptr()
    }

    /// Makes the buffer immutable.
    pub fn share(self) -> SharedBuf {
        let len = self.len;
        SharedBuf { buf: Arc::new(self), start: 0, len }
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        let pointer = self.pointer;
        let kept = (self.capacity <= 1 << CLASS_SHIFT_MAX)
            && POOL
                .try_with(|pool| {
                    let mut pool = pool.borrow_mut();
                    if pool.held + self.capacity > POOL_BYTES_MAX {
                        return false;
                    }
                    let class = class_of(self.capacity).expect("checked above");
                    pool.free[class].push(pointer);
                    pool.held += self.capacity;
                    true
                })
                .unwrap_or(false);
        if !kept {
            // SAFETY: `allocate` allocated it with this capacity, and we own it.
            unsafe { std::alloc::dealloc(pointer.as_ptr(), layout(self.capacity)) }
        }
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len <= capacity` bytes are allocated and were initialized by `alloc_zeroed`.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.len) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.len) }
    }
}

crate::shows!(Debug for Buf, |it| "Buf({} bytes)", it.len);

/// An immutable part of a buffer.
///
/// Clones share the memory, which returns to the pool when the last one is dropped.
#[derive(Clone)]
pub struct SharedBuf {
    buf: Arc<Buf>,
    start: usize,
    len: usize,
}

impl SharedBuf {
    /// The bytes `range` of this part.
    ///
    /// # Panics
    /// If `range` is out of bounds: ranges come from our own arithmetic, never from a wire.
    pub fn slice(&self, range: Range<usize>) -> SharedBuf {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "{range:?} is not inside {} bytes",
            self.len
        );
        SharedBuf { buf: Arc::clone(&self.buf), start: self.start + range.start, len: range.len() }
    }

    /// The bytes, to be changed.
    ///
    /// If another part of the buffer exists, this part becomes a copy first, so that the owners of the others
    /// see no change.
    pub fn make_mut(&mut self) -> &mut [u8] {
        if Arc::get_mut(&mut self.buf).is_none() {
            *self = Buf::copy_of(self).share();
        }
        let range = self.start..self.start + self.len;
        &mut Arc::get_mut(&mut self.buf).expect("nobody else has it, or it was just made")[range]
    }

    fn is_followed_by(&self, next: &SharedBuf) -> bool {
        Arc::ptr_eq(&self.buf, &next.buf) && self.start + self.len == next.start
    }

    /// Whether the address in memory and the length are multiples of `alignment`.
    pub fn is_aligned(&self, alignment: usize) -> bool {
        self.start.is_multiple_of(alignment) && self.len.is_multiple_of(alignment)
    }
}

/// Tells the processor that the bytes will be read or overwritten soon, so that it can load them from memory
/// meanwhile.
pub fn prefetch(bytes: &[u8]) {
    /// Behind these bytes the processor prefetches on its own, up to the end of the page.
    const LEN: usize = 512;
    const CACHE_LINE: usize = 64;
    #[cfg(target_arch = "x86_64")]
    for line in bytes[..bytes.len().min(LEN)].chunks(CACHE_LINE) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch has no effect that a program can see, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) }
    }
}

impl Deref for SharedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buf[self.start..self.start + self.len]
    }
}

crate::shows!(Debug for SharedBuf, |it| "SharedBuf({} bytes)", it.len);

impl From<Buf> for SharedBuf {
    fn from(buf: Buf) -> SharedBuf {
        buf.share()
    }
}

/// A few shared buffers in sequence, read as one. No part is empty.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    parts: SmallVec<[SharedBuf; 1]>,
    len: usize,
}

impl Chain {
    /// An empty chain.
    pub fn new() -> Chain {
        Chain::default()
    }

    /// A chain with a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Chain {
        Buf::copy_of(bytes).into()
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the chain has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds `part` at the end. A part that directly follows the last one in the same buffer is merged with
    /// it.
    pub fn push(&mut self, part: SharedBuf) {
        if part.is_empty() {
            return;
        }
        self.len += part.len();
        match self.parts.last_mut() {
            Some(last) if last.is_followed_by(&part) => last.len += part.len,
            _ => self.parts.push(part),
        }
    }

    /// Adds all parts of `other` at the end.
    pub fn append(&mut self, other: Chain) {
        other.parts.into_iter().for_each(|part| self.push(part));
    }

    /// The parts in order.
    pub fn parts(&self) -> &[SharedBuf] {
        &self.parts
    }

    /// The bytes `range` as a chain over the same memory.
    ///
    /// # Panics
    /// If `range` is out of bounds.
    pub fn slice(&self, range: Range<usize>) -> Chain {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "{range:?} is not inside {} bytes",
            self.len
        );
        let mut sliced = Chain::new();
        let mut at = 0;
        for part in &self.parts {
            let from = range.start.clamp(at, at + part.len()) - at;
            let to = range.end.clamp(at, at + part.len()) - at;
            sliced.push(part.slice(from..to));
            at += part.len();
        }
        sliced
    }

    /// One buffer with all the bytes: the only part itself if there is just one, otherwise a copy.
    pub fn contiguous(&self) -> SharedBuf {
        match self.parts.as_slice() {
            [only] => only.clone(),
            _ => {
                let mut buf = Buf::uncleared(self.len);
                self.copy_to(&mut buf);
                buf.share()
            }
        }
    }

    /// Copies all the bytes to `target`, which must have the same length.
    pub fn copy_to(&self, target: &mut [u8]) {
        assert_eq!(target.len(), self.len);
        let mut rest = target;
        for part in &self.parts {
            let (head, tail) = rest.split_at_mut(part.len());
            head.copy_from_slice(part);
            rest = tail;
        }
    }

    /// A copy of all bytes: for tests and small answers.
    pub fn to_vec(&self) -> Vec<u8> {
        self.parts.iter().flat_map(|part| part.iter().copied()).collect()
    }
}

impl From<SharedBuf> for Chain {
    fn from(part: SharedBuf) -> Chain {
        let mut chain = Chain::new();
        chain.push(part);
        chain
    }
}

impl From<Buf> for Chain {
    fn from(buf: Buf) -> Chain {
        buf.share().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_recycled() {
        let before = pool_bytes();
        let mut buf = Buf::zeroed(5000);
        assert_eq!(buf.as_mut_ptr() as usize % ALIGNMENT, 0);
        assert_eq!(buf.len(), 5000);
        drop(buf);
        assert_eq!(pool_bytes(), before + 8192);
        let again = Buf::zeroed(8000);
        assert_eq!(pool_bytes(), before);
        assert!(again.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn large_and_empty_buffers_work() {
        let large = Buf::zeroed((1 << 20) + 1);
        assert_eq!(large.len(), (1 << 20) + 1);
        drop(large);
        assert!(Buf::zeroed(0).is_empty());
    }

    #[test]
    fn a_change_is_not_seen_through_a_shared_part() {
        let mut shared = Buf::copy_of(b"hello world").share();
        let before = shared.as_ptr();
        shared.make_mut()[0] = b'H';
        assert_eq!(shared.as_ptr(), before, "nobody else had it");
        let part = shared.slice(0..5);
        shared.make_mut()[0] = b'J';
        assert_eq!((&*part, &*shared), (&b"Hello"[..], &b"Jello world"[..]));
    }

    #[test]
    fn a_cut_can_be_undone() {
        let mut buf = Buf::copy_of(b"hello world");
        buf.truncate(5);
        assert_eq!(&*buf, b"hello");
        buf.restore_len(11);
        assert_eq!(&*buf, b"hello world");
    }

    #[test]
    fn the_pool_is_bounded() {
        let many: Vec<Buf> = (0..64).map(|_| Buf::zeroed(1 << 20)).collect();
        drop(many);
        assert!(pool_bytes() <= POOL_BYTES_MAX);
    }

    #[test]
    fn a_chain_is_cut_over_the_same_memory() {
        let mut chain = Chain::copy_of(b"hello ");
        chain.append(Chain::copy_of(b"wide "));
        chain.append(Chain::copy_of(b"world"));
        for from in 0..=chain.len() {
            for to in from..=chain.len() {
                assert_eq!(chain.slice(from..to).to_vec(), b"hello wide world"[from..to]);
            }
        }
        assert_eq!(&*chain.contiguous(), b"hello wide world");
        let mut joined = chain.slice(0..8);
        joined.append(chain.slice(8..16));
        assert_eq!((joined.to_vec(), joined.parts().len()), (chain.to_vec(), 3));
        assert_eq!(chain.slice(3..8).parts().len(), 2);
    }
}
