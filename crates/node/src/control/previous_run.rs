//! Waiting for the remains of a killed node: the kernel ends its io_uring rings in the background.
//!
//! Until then its disks are locked and its ports are taken. A node that is started again at once waits for
//! that.

use std::io::ErrorKind;
use std::time::Duration;

use rt::OpenError;
use store::StoreError;

use crate::record::RecordError;

/// The kernel takes milliseconds, and longer only while requests of the dead process hang in a disk.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// An error that may mean that another process holds the resource, perhaps only for a moment.
pub(super) trait Held {
    /// Whether that is the reason for the error.
    fn is_held(&self) -> bool;
}

impl Held for OpenError {
    fn is_held(&self) -> bool {
        matches!(self, OpenError::InUse(_))
    }
}

impl Held for StoreError {
    fn is_held(&self) -> bool {
        matches!(self, StoreError::Open(error) if error.is_held())
    }
}

impl Held for RecordError {
    fn is_held(&self) -> bool {
        matches!(self, RecordError::Open(error) if error.is_held())
    }
}

impl Held for std::io::Error {
    fn is_held(&self) -> bool {
        self.kind() == ErrorKind::AddrInUse
    }
}

/// Repeats `attempt` until no other process holds the resource, for at most five seconds.
pub(super) async fn retry_while_held<T, E: Held>(attempt: impl AsyncFn() -> Result<T, E>) -> Result<T, E> {
    let deadline = rt::now() + PATIENCE;
    loop {
        match attempt().await {
            Err(error) if error.is_held() && rt::now() < deadline => rt::sleep(PAUSE).await,
            done => return done,
        }
    }
}
