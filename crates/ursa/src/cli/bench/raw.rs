//! A raw disk to measure: a device, or a file that is there, or one that is made for it and taken away again.

use std::path::{Path, PathBuf};

use bench::{Setup, Target};

/// A file that was made to be measured.
pub struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left behind is in nobody's way but its own: the next attempt says that it is there.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// How the disk at a path is reached, in all else like `like`. What is not there is made, of `size` bytes,
/// and goes away with what is given back.
pub fn raw_disk(path: &Path, size: u64, like: &Setup) -> (Setup, Option<Scratch>) {
    let scratch = (!path.exists()).then(|| Scratch(path.to_owned()));
    let setup = Setup {
        targets: vec![Target::Disk(path.to_owned())],
        create: scratch.is_some().then_some(size),
        ..like.clone()
    };
    (setup, scratch)
}
