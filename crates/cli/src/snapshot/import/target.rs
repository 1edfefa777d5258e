//! What an import writes to: a file or a block device.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use ::export::Header;
use rustix::fs::{FallocateFlags, OFlags, fallocate};

use super::super::files::{lock, sync_directory_of};
use super::ImportError;

/// Only the owner may read what a volume contains.
const MODE: u32 = 0o600;
/// How many zeros are written at a time, where a hole cannot be made.
const ZEROS_BYTES: u64 = 1 << 20;

/// A file or a block device.
pub(super) struct Target {
    file: File,
    is_device: bool,
    /// It has nothing yet: all of it is zeros.
    is_blank: bool,
}

impl Target {
    /// Whether there is a regular file at the path, or can be one.
    pub(super) fn is_file(path: &Path) -> bool {
        match fs::metadata(path) {
            Ok(metadata) => metadata.is_file(),
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }

    /// Whether there is nothing at the path, or an empty file.
    pub(super) fn is_blank_at(path: &Path) -> bool {
        match fs::metadata(path) {
            Ok(metadata) => metadata.is_file() && metadata.len() == 0,
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }

    /// Whether there is nothing at the path.
    pub(super) fn is_missing(path: &Path) -> bool {
        fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
    }

    /// Opens the target of a volume of this size. Creates a file if there is nothing.
    pub(super) fn open(path: &Path, size: u64) -> Result<Target, ImportError> {
        let unopened = |error| ImportError::Unopened(path.to_owned(), error);
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(MODE);
        if fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device()) {
            // Fails if the device is mounted, or in use by another driver or import.
            options.custom_flags(OFlags::EXCL.bits() as i32);
        }
        // A device that is not there does not become a file in memory.
        let creates = Target::is_missing(path) && !path.starts_with("/dev");
        let mut file = options.create_new(creates).open(path).map_err(unopened)?;
        if creates {
            sync_directory_of(path).map_err(unopened)?;
        }
        let metadata = file.metadata().map_err(unopened)?;
        if metadata.is_file() {
            if !lock(&file) {
                return Err(ImportError::InUse(path.to_owned()));
            }
            return Ok(Target { file, is_device: false, is_blank: metadata.len() == 0 });
        }
        if !metadata.file_type().is_block_device() {
            return Err(ImportError::Kind(path.to_owned()));
        }
        let has = file.seek(SeekFrom::End(0)).map_err(unopened)?;
        if has < size {
            return Err(ImportError::TooSmall { to: path.to_owned(), has, wanted: size });
        }
        Ok(Target { file, is_device: true, is_blank: false })
    }

    pub(super) fn is_blank(&self) -> bool {
        self.is_blank
    }

    /// Gives a file the size that the volume has in the snapshot. What the volume has got since the earlier
    /// snapshot is zeros then, on a device too.
    pub(super) fn make_as_long_as(&self, header: &Header) -> io::Result<()> {
        let size = header.snapshot.size;
        let len = self.file.metadata()?.len();
        if !self.is_device && len != size {
            let resized = self.file.set_len(size);
            // The file of an attached LUN may be longer, and cannot be cut.
            if len < size {
                resized?;
            }
        }
        match &header.since {
            Some(since) if since.size < size => self.zero(since.size, size - since.size),
            _ => Ok(()),
        }
    }

    pub(super) fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    /// Makes a range zeros; if possible, a hole, which takes no space.
    pub(super) fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if fallocate(&self.file, hole, offset, len).is_ok() {
            return Ok(());
        }
        let (zeros, end) = (vec![0; ZEROS_BYTES.min(len) as usize], offset + len);
        for at in (offset..end).step_by(ZEROS_BYTES as usize) {
            self.file.write_all_at(&zeros[..ZEROS_BYTES.min(end - at) as usize], at)?;
        }
        Ok(())
    }

    /// Makes everything durable.
    pub(super) fn flush(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}
