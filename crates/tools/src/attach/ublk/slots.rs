//! Serves a block device: one task per slot, on the core that has the unit.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use rt::uring::ublk::{Operation, Queue, Request};
use rustix::io::Errno;
use rustix::process::configure_io_flusher_behavior;
use tokio::sync::oneshot::Sender;

use crate::attach::disk::{Disk, DiskError};

/// How often the unit's size is checked.
const SIZE_LOOK: Duration = Duration::from_secs(1);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Its data could not be exchanged with the kernel.
    #[error("cannot exchange data with the kernel: {0}")]
    Copy(#[from] io::Error),
    #[error("the kernel sent operation {0}, which was not offered")]
    Unknown(u32),
}

impl RequestError {
    fn told(&self, doing: &str) -> Errno {
        match self {
            RequestError::Disk(error) => error.told(doing),
            RequestError::Copy(_) => {
                tracing::error!(error = %self, "{doing} failed");
                Errno::IO
            }
            RequestError::Unknown(_) => {
                tracing::error!(error = %self, "request refused");
                Errno::OPNOTSUPP
            }
        }
    }
}

/// Starts to serve requests in all slots of a device.
///
/// `over` receives the result when the device is gone or a slot failed. Until then, `resized` receives the
/// unit's size in bytes whenever it changes; the kernel starts with `size`.
pub(super) fn serve(
    disk: &Rc<Disk>,
    device: u32,
    slots: u16,
    size: u64,
    over: Sender<io::Result<()>>,
    resized: mpsc::Sender<u64>,
) -> io::Result<()> {
    let queue = Rc::new(Queue::open(device, slots)?);
    // If this thread needs memory, the kernel must not free it by writing to the device that the thread
    // serves (prctl(2)). Without CAP_SYS_RESOURCE this fails, and the device is no worse off than a FUSE
    // file.
    let _ = configure_io_flusher_behavior(true);
    let over = Rc::new(RefCell::new(Some(over)));
    let tell = move |result| {
        if let Some(over) = over.take() {
            // The receiver may be gone.
            let _ = over.send(result);
        }
    };
    let sizes = rt::spawn(follow_size(Rc::clone(disk), size, resized));
    let tasks: Vec<_> = queue
        .slots()
        .map(|slot| {
            let (queue, disk, tell) = (Rc::clone(&queue), Rc::clone(disk), tell.clone());
            rt::spawn(async move {
                if let Err(error) = serve_slot(&queue, &disk, slot).await {
                    tell(Err(error));
                }
            })
        })
        .collect();
    rt::spawn(async move {
        rt::join_all(tasks).await;
        drop((sizes, queue));
        tell(Ok(()));
    })
    .detach();
    Ok(())
}

async fn serve_slot(queue: &Queue, disk: &Disk, slot: u16) -> io::Result<()> {
    let mut next = queue.first(slot).await?;
    while let Some(request) = next {
        let result = carry_out(queue, disk, &request).await;
        next = queue.answer(request, result).await?;
    }
    Ok(())
}

/// Executes a request; returns the bytes read or written, or a negative error number.
async fn carry_out(queue: &Queue, disk: &Disk, request: &Request) -> i32 {
    let (offset, len) = (request.offset, request.len);
    let (doing, done) = match request.operation {
        Operation::Read => ("read", read(queue, disk, request).await),
        Operation::Write { durable } => ("write", write(queue, disk, request, durable).await),
        Operation::Flush => ("flush", nothing(disk.flush().await)),
        Operation::Discard => ("discard", nothing(disk.zero(offset, len, true).await)),
        Operation::WriteZeros { unmap } => ("zeroing", nothing(disk.write_zeros(offset, len, unmap).await)),
        Operation::Unknown(operation) => ("request", Err(RequestError::Unknown(operation))),
    };
    done.unwrap_or_else(|error| -error.told(doing).raw_os_error())
}

/// The result of an operation that transfers no bytes.
fn nothing(done: Result<(), DiskError>) -> Result<i32, RequestError> {
    Ok(done.map(|()| 0)?)
}

async fn read(queue: &Queue, disk: &Disk, request: &Request) -> Result<i32, RequestError> {
    let data = disk.read(request.offset, request.len as u32).await?;
    queue.give_data(request, &data)?;
    Ok(data.len() as i32)
}

async fn write(queue: &Queue, disk: &Disk, request: &Request, durable: bool) -> Result<i32, RequestError> {
    let data = queue.take_data(request)?;
    let len = data.len() as i32;
    disk.write(request.offset, data, durable).await?;
    Ok(len)
}

/// Sends the unit's size whenever it differs from the known one, until the receiver is dropped.
async fn follow_size(disk: Rc<Disk>, mut known: u64, resized: mpsc::Sender<u64>) {
    loop {
        rt::sleep(SIZE_LOOK).await;
        let size = disk.size();
        if size != known && resized.send(size).is_err() {
            return;
        }
        known = size;
    }
}
