//! The operations of a copy on its disk.

use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use base::{ByteLen, ByteOffset, Chain};
use replica::{
    Apply, DirtyMap, DiskFailed, Geometry, PAGE_BYTES, PageWrite, Payload, RegionCompare, RegionRead,
    Replica, Slots,
};
use rt::Durability;
use store::{BadBlock, SliceError, Stripe};

use super::super::Address;
use super::super::core::Copies;
use super::super::fetch::HOST_WAITS;
use super::SliceCopy;
use crate::canary::{Canary, makes};
use crate::control::note_bad_block_of_copy;

/// How often a page of the dirty map that cannot be read is tried, and after which pause.
///
/// A path to a disk may be changing.
const MAP_READS_MAX: u32 = 4;
const MAP_READ_AGAIN: Duration = Duration::from_millis(250);

/// The size of what is written at once where room is scarce: a block of a log.
const SCARCE_BYTES: u64 = 4096;

/// How often the list of lost blocks is tried: nothing can replace it.
const LIST_READS_MAX: u32 = 20;

impl SliceCopy {
    pub(super) fn apply(self: &Rc<Self>, Apply { id, blocks, payload, .. }: Apply) {
        Copies::current().count_write();
        let (offset, len) = self.bytes(blocks);
        let turn = self.applies.queue(offset.0..offset.0 + len.0);
        let copy = Rc::clone(self);
        let work = async move {
            turn.come().await;
            let written = copy.write_merged(id, offset, len, payload).await;
            if makes(Canary::FaultIgnored) { Ok(()) } else { written }
        };
        self.work(work, move |replica, result| replica.handle_applied(id, result));
    }

    /// Starts an operation of the disk, and tells the protocol when it has ended.
    ///
    /// An operation that need not wait (memory) ends at once.
    pub(super) fn work<T: 'static>(
        self: &Rc<Self>,
        work: impl Future<Output = Result<T, SliceError>> + 'static,
        then: impl FnOnce(&mut Replica, Result<T, DiskFailed>) + 'static,
    ) {
        self.wake();
        let mut work = Box::pin(work);
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => then(&mut self.replica.borrow_mut(), self.judge(result)),
            Poll::Pending => {
                let copy = Rc::clone(self);
                rt::spawn(async move {
                    let result = work.await;
                    copy.tell(|replica| then(replica, copy.judge(result)));
                })
                .detach();
            }
        }
    }

    pub(super) async fn write_durably(
        &self,
        offset: ByteOffset,
        len: ByteLen,
        payload: Payload,
    ) -> Result<(), SliceError> {
        match payload {
            Payload::Data(data) if makes(Canary::NotDurable) => {
                self.layout.write(offset, data, Durability::Cached).await
            }
            Payload::Data(data) => self.layout.write(offset, data, Durability::Durable).await,
            Payload::Zeros => {
                // Unallocated space reads as zeros already. If the part of a log's map that says what is
                // allocated cannot be read, zeroing does without it.
                let allocated = self.layout.allocated(offset, len, 1).await;
                if !allocated.is_ok_and(|found| found.is_empty()) {
                    self.layout.zero(offset, len).await?;
                }
                self.layout.flush().await
            }
        }
    }

    /// Writes as much as there is room for, durably: first the zeros, which make room, then one block after
    /// the other.
    ///
    /// # Errors
    /// Errors of the layout. After [`SliceError::Full`] some blocks have been written.
    pub(super) async fn write_what_fits(&self, offset: ByteOffset, data: &Chain) -> Result<(), SliceError> {
        let (zeros, others): (Vec<_>, Vec<_>) = parts(offset, data).partition(|(_, part)| is_zeros(part));
        for (at, part) in zeros {
            self.write_durably(at, ByteLen(part.len() as u64), Payload::Zeros).await?;
        }
        for (at, part) in others {
            self.write_durably(at, ByteLen(part.len() as u64), Payload::Data(part)).await?;
        }
        Ok(())
    }

    pub(super) fn write_page(self: &Rc<Self>, PageWrite { page, image }: PageWrite) {
        let copy = Rc::clone(self);
        let image: Box<[u8; PAGE_BYTES]> = image.try_into().expect("a page has its length");
        let work = async move { copy.with_room(|| copy.layout.write_map_page(page, &image[..])).await };
        self.work(work, move |replica, result| replica.handle_page_written(page, result));
    }

    pub(super) fn read_region(self: &Rc<Self>, read: RegionRead) {
        if read.by_block {
            return self.read_region_by_block(read);
        }
        let (offset, len) = self.bytes(read.blocks);
        let copy = Rc::clone(self);
        let work = async move {
            let range = offset.0..offset.0 + len.0;
            let mut local = pin!(read_or_zeros(&copy.layout, offset, len));
            let read = match copy.unless_late(range.clone(), local.as_mut()).await {
                Some(read) => read,
                None => {
                    let mut fetched = pin!(copy.fetch(range, HOST_WAITS));
                    // The read continues meanwhile: writes may wait for it.
                    let first = std::future::poll_fn(|context| {
                        if let Poll::Ready(read) = local.as_mut().poll(context) {
                            return Poll::Ready(Ok(read));
                        }
                        fetched.as_mut().poll(context).map(Err)
                    });
                    let first = first.await;
                    match first {
                        Ok(Ok(read)) => Ok(read),
                        Ok(Err(error)) => fetched.await.map(Payload::Data).map_err(|_| error),
                        Err(Ok(data)) => Ok(Payload::Data(data)),
                        Err(Err(_)) => local.await,
                    }
                }
            };
            let result = match read {
                // If another copy has it, this one will in a moment, too.
                Err(SliceError::Unreadable(bad)) => {
                    copy.read_repaired(bad, offset, len).await.map(Payload::Data)
                }
                read => read,
            };
            Ok(result.map_err(|_| DiskFailed))
        };
        self.work(work, move |replica, result| {
            replica.handle_region_read(read, result.and_then(std::convert::identity));
        });
    }

    pub(super) fn compare_region(self: &Rc<Self>, compare: RegionCompare) {
        let (offset, len) = self.bytes(compare.blocks);
        let copy = Rc::clone(self);
        let layout = Rc::clone(&self.layout);
        let work = async move {
            // Writes of an earlier life may not be durable yet. From the second time on this costs nothing.
            layout.flush().await?;
            let here = read_or_zeros(&layout, offset, len).await;
            Ok(here.inspect_err(|error| copy.note_uncompared(error)).ok())
        };
        self.work(work, move |replica, result| replica.handle_region_compared(compare, result));
    }

    fn judge<T>(&self, result: Result<T, SliceError>) -> Result<T, DiskFailed> {
        result.map_err(|error| {
            let error = &error as &dyn std::error::Error;
            tracing::error!(copy = %self.address, error, "the disk of a copy failed: other copies, if any, continue without it");
            DiskFailed
        })
    }
}

/// Reads a range.
///
/// What takes no space is not read. It, and what holds nothing but zeros, is returned as [`Payload::Zeros`]:
/// it is not sent as data.
async fn read_or_zeros(
    layout: &store::Slice,
    offset: ByteOffset,
    len: ByteLen,
) -> Result<Payload, SliceError> {
    if layout.allocated(offset, len, 1).await?.is_empty() {
        return Ok(Payload::Zeros);
    }
    let data = layout.read(offset, len).await?;
    Ok(if is_zeros(&data) { Payload::Zeros } else { Payload::Data(data) })
}

fn is_zeros(data: &Chain) -> bool {
    data.parts().iter().all(|part| part.iter().all(|byte| *byte == 0))
}

/// The data in parts that end at multiples of [`SCARCE_BYTES`], and where each of them lies.
fn parts(offset: ByteOffset, data: &Chain) -> impl Iterator<Item = (ByteOffset, Chain)> {
    let end = offset.0 + data.len() as u64;
    let mut next = offset.0;
    std::iter::from_fn(move || {
        let start = next;
        next = ((start / SCARCE_BYTES + 1) * SCARCE_BYTES).min(end);
        let part = || data.slice((start - offset.0) as usize..(next - offset.0) as usize);
        (start < end).then(|| (ByteOffset(start), part()))
    })
}

pub(super) async fn read_map(
    layout: &store::Slice,
    geometry: &Geometry,
    (address, stripe): (Address, Stripe),
    blank: bool,
) -> Result<DirtyMap, SliceError> {
    let regions = geometry.regions();
    let mut map = DirtyMap::new(regions);
    if blank {
        map.mark(0..regions, Slots::ALL);
        return Ok(map);
    }
    for page in 0..map.pages() {
        let image = read_map_page(layout, page).await?;
        if let Err(bad) = image {
            note_bad_block_of_copy(
                address.volume,
                stripe.volume_offset(address.slice, bad.offset),
                bad,
                None,
            );
        }
        if image.map_or(true, |image| map.load(page, &image).is_err()) {
            tracing::error!(copy = %address, page, "a page of the dirty map is damaged: everything that it covers is resynced");
            let first = page as u64 * replica::PAGE_REGIONS;
            map.mark(first..(first + replica::PAGE_REGIONS).min(regions), Slots::ALL);
        }
    }
    Ok(map)
}

/// Reads which blocks of the slice are lost.
///
/// Without that list the copy is not served: lost blocks would pass for data.
pub(super) async fn know_lost(
    layout: &store::Slice,
    (address, stripe): (Address, Stripe),
) -> Result<(), SliceError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match layout.know_lost().await {
            Err(SliceError::Unreadable(_)) if attempts < LIST_READS_MAX => rt::sleep(MAP_READ_AGAIN).await,
            read => {
                if let Err(SliceError::Unreadable(bad)) = read {
                    tracing::error!(copy = %address, "the list of lost blocks cannot be read: the copy is not served");
                    note_bad_block_of_copy(
                        address.volume,
                        stripe.volume_offset(address.slice, bad.offset),
                        bad,
                        None,
                    );
                }
                return read;
            }
        }
    }
}

/// Reads a page of the dirty map; a [`BadBlock`] if the disk cannot read it.
///
/// It is better to resync too much than to have no copy of the slice here until an administrator restarts the
/// node.
async fn read_map_page(
    layout: &store::Slice,
    page: usize,
) -> Result<Result<[u8; PAGE_BYTES], BadBlock>, SliceError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match layout.read_map_page(page).await {
            Err(SliceError::Unreadable(_)) if attempts < MAP_READS_MAX => rt::sleep(MAP_READ_AGAIN).await,
            Err(SliceError::Unreadable(bad)) => return Ok(Err(bad)),
            read => return read.map(Ok),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scarce_data_is_written_in_whole_blocks() {
        let of = |offset: u64, len: usize| -> Vec<(u64, usize)> {
            let data = Chain::copy_of(&vec![7; len]);
            parts(ByteOffset(offset), &data).map(|(at, part)| (at.0, part.len())).collect()
        };
        assert_eq!(of(65_536, 8192), [(65_536, 4096), (69_632, 4096)]);
        assert_eq!(of(512, 8192), [(512, 3584), (4096, 4096), (8192, 512)]);
        assert_eq!(of(512, 512), [(512, 512)]);
        assert_eq!(of(0, 0), []);
    }
}
