//! A raw disk to measure: a device, an existing file, or one that is created for the measurement and then
//! deleted.

use std::path::{Path, PathBuf};

use bench::{Setup, Target};

/// A file that was created for the measurement, and is deleted when this is dropped.
pub struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // If this fails, the next attempt reports that the file exists.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The setup for the disk at a path; in all else it is like `like`.
///
/// A missing file is created with `size` bytes, and deleted with the returned value.
pub fn raw_disk(path: &Path, size: u64, like: &Setup) -> (Setup, Option<Scratch>) {
    let scratch = (!path.exists()).then(|| Scratch(path.to_owned()));
    let setup = Setup {
        targets: vec![Target::Disk(path.to_owned())],
        create: scratch.is_some().then_some(size),
        ..like.clone()
    };
    (setup, scratch)
}
