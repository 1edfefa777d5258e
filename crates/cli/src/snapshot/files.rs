//! Files of exports and imports.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

/// Locks a file for this process, as long as it is open. Returns whether no other process has locked it. On a
/// file system without locks, none has.
pub(super) fn lock(file: &File) -> bool {
    !matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

/// Makes the entry of a file in its directory durable.
pub(super) fn sync_directory_of(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
