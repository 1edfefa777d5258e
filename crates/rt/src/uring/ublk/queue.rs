//! `/dev/ublkcN`: a device's requests and their answers.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::Arc;

use base::Buf;
use io_uring::opcode;
use io_uring::types::Fd;

use super::abi::{self, Descriptor};
use crate::uring::driver::{self, Kept};

/// The queue of a device, on the core that serves it. When it is dropped, the kernel fails its requests.
pub struct Queue {
    file: Arc<File>,
    /// One descriptor per slot.
    descriptors: Shared,
    slots: u16,
}

/// A request's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// [`Queue::give_data`] passes the data.
    Read,
    /// [`Queue::take_data`] returns the data.
    Write {
        /// The data must be on stable storage before the answer.
        durable: bool,
    },
    /// Everything that was answered must be on stable storage.
    Flush,
    /// The range is no longer needed.
    Discard,
    /// The range must read as zeros.
    WriteZeros {
        /// The range may lose its space.
        unmap: bool,
    },
    /// An operation that we did not offer.
    Unknown(u32),
}

/// A request. It must be answered, because its slot waits for that.
#[derive(Debug)]
pub struct Request {
    slot: u16,
    /// The operation.
    pub operation: Operation,
    /// The offset of the first byte.
    pub offset: u64,
    /// The number of bytes.
    pub len: u64,
}

impl Queue {
    /// Serves a device that was created with `slots` slots. A device has one server at a time.
    ///
    /// # Errors
    /// The system's; `ResourceBusy`: it has another server.
    pub fn open(device: u32, slots: u16) -> io::Result<Queue> {
        let file = File::options().read(true).write(true).open(path(device))?;
        let descriptors = Shared::map(&file, slots)?;
        Ok(Queue { file: Arc::new(file), descriptors, slots })
    }

    /// Whether the device has no server.
    pub fn is_free(device: u32) -> bool {
        File::options().read(true).write(true).open(path(device)).is_ok()
    }

    /// The slots, by number.
    pub fn slots(&self) -> std::ops::Range<u16> {
        0..self.slots
    }

    /// Waits for the first request of a slot. `None`: the device is gone.
    ///
    /// # Errors
    /// The kernel's: the slot is lost.
    pub async fn first(&self, slot: u16) -> io::Result<Option<Request>> {
        self.next(abi::FETCH, slot, 0).await
    }

    /// Answers a request, and waits for the slot's next one.
    ///
    /// The result is a number of bytes for reads and writes, 0 for others, or a negative error number.
    ///
    /// # Errors
    /// The kernel's: the slot is lost.
    pub async fn answer(&self, request: Request, result: i32) -> io::Result<Option<Request>> {
        self.next(abi::COMMIT_AND_FETCH, request.slot, result).await
    }

    /// The data of a write.
    pub fn take_data(&self, request: &Request) -> io::Result<Buf> {
        let mut data = Buf::uncleared(request.len.min(u64::from(abi::REQUEST_BYTES_MAX)) as usize);
        self.file.read_exact_at(&mut data, abi::data_offset(request.slot))?;
        Ok(data)
    }

    /// Passes the data of a read.
    pub fn give_data(&self, request: &Request, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, abi::data_offset(request.slot))
    }

    async fn next(&self, code: u32, slot: u16, result: i32) -> io::Result<Option<Request>> {
        let command = abi::queue_command(slot, result);
        let entry = opcode::UringCmd16::new(Fd(self.file.as_raw_fd()), code).cmd(command).build();
        let kept = Kept::Command(Arc::clone(&self.file));
        // SAFETY: the command has no address, so the kernel touches no memory of ours; the file is kept.
        let (result, _) = unsafe { driver::current().start(entry, kept) }.await;
        match -result {
            0 => Ok(Some(Request::new(slot, self.descriptors.get(slot)))),
            libc::ENODEV => Ok(None),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

impl Request {
    fn new(slot: u16, descriptor: Descriptor) -> Request {
        let flag = |flag| descriptor.operation & flag != 0;
        let operation = match descriptor.operation & 0xff {
            abi::OP_READ => Operation::Read,
            abi::OP_WRITE => Operation::Write { durable: flag(abi::FLAG_FUA) },
            abi::OP_FLUSH => Operation::Flush,
            abi::OP_DISCARD => Operation::Discard,
            abi::OP_WRITE_ZEROES => Operation::WriteZeros { unmap: !flag(abi::FLAG_NOUNMAP) },
            other => Operation::Unknown(other),
        };
        // The offset of a flush has no meaning: its sector is the last of 64 bits.
        let is_flush = operation == Operation::Flush;
        let offset = if is_flush { 0 } else { descriptor.start.saturating_mul(abi::SECTOR_BYTES) };
        let len = u64::from(descriptor.sectors) * abi::SECTOR_BYTES;
        Request { slot, operation, offset, len }
    }
}

fn path(device: u32) -> String {
    format!("/dev/ublkc{device}")
}

/// The descriptors, in memory that the kernel writes to.
struct Shared {
    memory: NonNull<Descriptor>,
    /// The number of mapped bytes: whole pages.
    len: usize,
    slots: u16,
}

impl Shared {
    fn map(file: &File, slots: u16) -> io::Result<Shared> {
        // SAFETY: no memory is passed.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).map_err(|_| io::Error::last_os_error())?;
        let len = (usize::from(slots) * size_of::<Descriptor>()).next_multiple_of(page);
        // SAFETY: the kernel chooses the address, so nothing of ours is replaced.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                file.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).expect("nothing is mapped at address 0 unasked");
        Ok(Shared { memory, len, slots })
    }

    /// The descriptor that the kernel has written. It writes before it completes the command of the slot, and
    /// not again before the next one.
    fn get(&self, slot: u16) -> Descriptor {
        assert!(slot < self.slots, "a slot of this queue");
        // SAFETY: the slot is inside the mapping, which is aligned to pages; any bytes are a valid
        // descriptor.
        unsafe { self.memory.as_ptr().add(usize::from(slot)).read_volatile() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing has a reference into it.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_what_the_kernel_describes() {
        let request =
            |operation| Request::new(5, Descriptor { operation, sectors: 8, start: 16, _address: 0 });
        let write = request(0x2001);
        assert_eq!(write.operation, Operation::Write { durable: true });
        assert_eq!((write.slot, write.offset, write.len), (5, 8192, 4096));
        assert_eq!(request(0x0000).operation, Operation::Read);
        // REQ_META.
        assert_eq!(request(0x0801).operation, Operation::Write { durable: false });
        let flush = Request::new(5, Descriptor { operation: 2, sectors: 0, start: u64::MAX, _address: 0 });
        assert_eq!((flush.operation, flush.offset, flush.len), (Operation::Flush, 0, 0));
        assert_eq!(request(0x0003).operation, Operation::Discard);
        assert_eq!(request(0x0005).operation, Operation::WriteZeros { unmap: true });
        assert_eq!(request(0x8005).operation, Operation::WriteZeros { unmap: false });
        assert_eq!(request(0x000d).operation, Operation::Unknown(13));
    }
}
