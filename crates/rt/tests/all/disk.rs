//! Disks on real files.

use std::path::{Path, PathBuf};

use base::Buf;
use rt::{Disk, Durability, OpenOptions};

use crate::run;

/// A directory of its own, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Directory(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Options to make a file of `size` bytes.
fn create(size: u64) -> OpenOptions {
    OpenOptions { create: Some(size), ..OpenOptions::default() }
}

#[test]
fn what_was_written_is_read() {
    run(|| async {
        let directory = Directory::new("written");
        let path = directory.join("disk");
        let disk = Disk::open(&path, create(1 << 20)).await.unwrap();
        assert_eq!(disk.size(), 1 << 20);
        assert!(disk.block() == 512 || disk.block() == 4096);
        let mut data = Buf::zeroed(8192);
        data.iter_mut().enumerate().for_each(|(n, byte)| *byte = (n % 251) as u8);
        let data = data.share();
        disk.write(4096, data.clone(), Durability::Cached).await.unwrap();
        disk.flush().await.unwrap();
        drop(disk);
        let disk = Disk::open(&path, OpenOptions::default()).await.unwrap();
        assert_eq!(*disk.read(4096, Buf::zeroed(8192)).await.unwrap(), *data);
        disk.zero(4096, 4096).await.unwrap();
        assert!(disk.read(4096, Buf::uncleared(4096)).await.unwrap().iter().all(|byte| *byte == 0));
    });
}
