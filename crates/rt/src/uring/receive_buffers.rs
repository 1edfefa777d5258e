//! The memory that a core's connections receive into.
//!
//! A receive does not name its buffer: when data has come, the kernel takes the next free buffer of a ring
//! that it shares with us. So thousands of idle connections need no memory, and a burst on one can use it
//! all. A buffer returns to the ring when its [`Received`] is dropped. When few are left, data is copied out
//! of the ring ([`Received::unpinned`]), so that slow readers cannot keep the buffers from the others.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{BufRingEntry, Fd};
use io_uring::{IoUring, opcode, squeue};

/// Buffers of a core; the kernel requires a power of two. If more connections than this have data in the same
/// turn, they receive one after the other.
const COUNT: u16 = 128;
const _: () = assert!(COUNT.is_power_of_two());
/// Bytes of each buffer: a batch of 32 writes of 4 KiB. Measured with 4 connections, 32 KiB took three
/// receives where this takes one, and up to twice the CPU time. A small command wastes most of a buffer, but
/// only while it is processed. 128 buffers of 128 KiB are 16 MiB per core; only pages that were used once are
/// resident.
const SIZE: usize = 128 << 10;
/// With fewer free buffers than this, data is copied out at once.
const SCARCE: u16 = COUNT / 4;
/// Buffers that the kernel gets at first. It uses them in turn, so all that it has pass through the
/// processor's cache; with few connections, few buffers stay warm in it. Each time the kernel finds none, the
/// number doubles.
const OFFER_MIN: u16 = 8;
/// The ring's number; each core has one ring.
const GROUP: u16 = 0;

/// The buffers, and the ring that passes them to the kernel.
pub(super) struct ReceiveBuffers {
    /// `COUNT` entries, shared with the kernel; the tail lies inside the first.
    entries: Mapping,
    /// `COUNT` times `SIZE` bytes.
    memory: Mapping,
    /// How many buffers the kernel has received so far, wrapping.
    tail: Cell<u16>,
    /// How many of those it has not used yet.
    offered: Cell<u16>,
    /// How many it should have, if enough are free.
    offer: Cell<u16>,
    /// Free buffers that the kernel does not have. The last one used, which is warm, goes first.
    spare: RefCell<Vec<u16>>,
}

impl ReceiveBuffers {
    /// Allocates the buffers and registers them with `ring`.
    pub(super) fn new(ring: &IoUring) -> io::Result<Rc<ReceiveBuffers>> {
        let buffers = ReceiveBuffers {
            entries: Mapping::new(COUNT as usize * size_of::<BufRingEntry>())?,
            memory: Mapping::new(COUNT as usize * SIZE)?,
            tail: Cell::new(0),
            offered: Cell::new(0),
            offer: Cell::new(OFFER_MIN),
            spare: RefCell::new((0..COUNT).collect()),
        };
        let address = buffers.entries.start.as_ptr() as u64;
        // SAFETY: the driver keeps the entries and the memory until the kernel has no request that uses them.
        unsafe { ring.submitter().register_buf_ring_with_flags(address, COUNT, GROUP, 0) }?;
        buffers.fill();
        Ok(Rc::new(buffers))
    }

    /// A request that receives into these buffers.
    pub(super) fn receive_entry(&self, socket: Fd, multishot: bool) -> squeue::Entry {
        if multishot {
            opcode::RecvMulti::new(socket, GROUP).build()
        } else {
            opcode::Recv::new(socket, std::ptr::null_mut(), SIZE as u32)
                .buf_group(GROUP)
                .build()
                .flags(squeue::Flags::BUFFER_SELECT)
        }
    }

    /// Whether no buffer is free.
    pub(super) fn is_empty(&self) -> bool {
        self.free() == 0
    }

    /// The kernel found no buffer: it had too few, or all are in use.
    pub(super) fn ran_out(&self) {
        self.offer.set((self.offer.get() * 2).min(COUNT));
        self.fill();
    }

    fn free(&self) -> u16 {
        self.offered.get() + self.spare.borrow().len() as u16
    }

    /// Whether few buffers are free.
    pub(super) fn is_scarce(&self) -> bool {
        self.free() < SCARCE
    }

    /// The kernel has put `len` bytes into `buffer`.
    pub(super) fn taken(self: &Rc<ReceiveBuffers>, buffer: u16, len: usize) -> Received {
        assert!(buffer < COUNT && len <= SIZE, "the kernel fills a buffer that it was given");
        self.offered.set(self.offered.get() - 1);
        self.fill();
        Received { start: 0, end: len, memory: Memory::Ring { buffers: Rc::clone(self), buffer } }
    }

    /// Takes back a buffer whose data was processed.
    fn give_back(&self, buffer: u16) {
        self.spare.borrow_mut().push(buffer);
        self.fill();
    }

    /// Gives the kernel as many buffers as it should have.
    fn fill(&self) {
        while self.offered.get() < self.offer.get() {
            let Some(buffer) = self.spare.borrow_mut().pop() else { return };
            self.give(buffer);
        }
    }

    /// Gives `buffer` to the kernel.
    fn give(&self, buffer: u16) {
        let tail = self.tail.get();
        let first = self.entries.start.as_ptr().cast::<BufRingEntry>();
        // SAFETY: the index is below COUNT, and the kernel does not read an entry behind the tail.
        let entry = unsafe { &mut *first.add((tail & (COUNT - 1)) as usize) };
        entry.set_addr(self.address(buffer) as u64);
        entry.set_len(SIZE as u32);
        entry.set_bid(buffer);
        self.tail.set(tail.wrapping_add(1));
        self.offered.set(self.offered.get() + 1);
        // SAFETY: `first` is the ring's first entry, whose unused field is the tail; it is aligned for a u16
        // and shared with the kernel, which reads it atomically.
        let shared = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(first).cast_mut()) };
        shared.store(tail.wrapping_add(1), Ordering::Release);
    }

    fn address(&self, buffer: u16) -> *mut u8 {
        // SAFETY: a buffer's number is below COUNT, so this stays inside the memory.
        unsafe { self.memory.start.as_ptr().add(buffer as usize * SIZE) }
    }
}

/// Bytes that arrived.
pub struct Received {
    start: usize,
    end: usize,
    memory: Memory,
}

enum Memory {
    /// A buffer that returns to the ring.
    Ring { buffers: Rc<ReceiveBuffers>, buffer: u16 },
    /// Memory of its own.
    Own(Box<[u8]>),
}

impl Received {
    /// Bytes that do not come from the ring. Without bytes: the other side has closed.
    pub(super) fn own(bytes: Vec<u8>) -> Received {
        Received { start: 0, end: bytes.len(), memory: Memory::Own(bytes.into()) }
    }

    /// The same bytes in memory of their own.
    pub(super) fn unpinned(self) -> Received {
        if self.is_pinned() { Received::own(self.to_vec()) } else { self }
    }

    /// Whether it occupies a buffer of the ring.
    pub(super) fn is_pinned(&self) -> bool {
        matches!(self.memory, Memory::Ring { .. })
    }

    /// Skips the first `count` bytes.
    pub(super) fn advance(&mut self, count: usize) {
        assert!(count <= self.end - self.start);
        self.start += count;
    }
}

impl Deref for Received {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Ring { buffers, buffer } => {
                // SAFETY: the kernel has filled the buffer up to `end`, and does not touch it before it is
                // returned.
                unsafe {
                    let first = buffers.address(*buffer).add(self.start);
                    std::slice::from_raw_parts(first, self.end - self.start)
                }
            }
            Memory::Own(bytes) => &bytes[self.start..self.end],
        }
    }
}

impl DerefMut for Received {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Ring { buffers, buffer } => {
                // SAFETY: as for `deref`; and a filled buffer belongs to one `Received` until it is returned,
                // which this borrows mutably: nothing else has these bytes.
                unsafe {
                    let first = buffers.address(*buffer).add(self.start);
                    std::slice::from_raw_parts_mut(first, self.end - self.start)
                }
            }
            Memory::Own(bytes) => &mut bytes[self.start..self.end],
        }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if let Memory::Ring { buffers, buffer } = &self.memory {
            buffers.give_back(*buffer);
        }
    }
}

/// Pages of memory, zero at first, and resident only once they are used.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    fn new(len: usize) -> io::Result<Mapping> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("the kernel does not map at zero");
        Ok(Mapping { start, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
