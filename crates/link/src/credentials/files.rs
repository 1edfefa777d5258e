//! Credentials as PEM files that only their owner can read.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Why a credentials file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {hint}", path.display())]
pub struct FileError {
    action: &'static str,
    path: PathBuf,
    hint: &'static str,
    #[source]
    source: io::Error,
}

impl FileError {
    fn new(action: &'static str, path: &Path, source: io::Error) -> FileError {
        let hint = match source.kind() {
            io::ErrorKind::NotFound => {
                "it is missing; let this node join a cluster, or restore it from a backup"
            }
            io::ErrorKind::PermissionDenied => "it must be owned by the user that runs Ursa",
            _ => "see the system's message",
        };
        FileError { action, path: path.to_owned(), hint, source }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The error number of the system.
    pub fn errno(&self) -> i32 {
        rt::errno(&self.source)
    }
}

pub(super) fn read(path: &Path) -> Result<String, FileError> {
    fs::read_to_string(path).map_err(|source| FileError::new("read", path, source))
}

/// Writes a file of mode 0600, atomically and durably.
pub(super) fn write(path: &Path, content: &str) -> Result<(), FileError> {
    let new = path.with_extension("new");
    let written = (|| {
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        fs::File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    })();
    written.map_err(|source| FileError::new("write", path, source))
}
