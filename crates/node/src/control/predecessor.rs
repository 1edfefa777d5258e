//! What a killed node leaves behind for a moment: the kernel ends its rings in the background, and until then
//! its disks are locked and its ports are taken. A node that is started again at once waits for that.

use std::io::ErrorKind;
use std::time::Duration;

use rt::OpenError;
use store::StoreError;

use crate::record::RecordError;

/// The kernel takes milliseconds, and longer only while requests of the dead hang in a disk.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// Somebody else has it: perhaps only for a moment.
pub(super) trait Held {
    /// Whether that is the reason.
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

/// Tries until it is not held by somebody else, for five seconds at most.
pub(super) async fn outlive<T, E: Held>(attempt: impl AsyncFn() -> Result<T, E>) -> Result<T, E> {
    let deadline = rt::now() + PATIENCE;
    loop {
        match attempt().await {
            Err(error) if error.is_held() && rt::now() < deadline => rt::sleep(PAUSE).await,
            done => return done,
        }
    }
}
