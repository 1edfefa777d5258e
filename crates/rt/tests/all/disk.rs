//! Disks on real files, and on whatever else this machine allows us to create.

use std::cell::Cell;
use std::ffi::CString;
use std::future::poll_fn;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Command;
use std::task::Poll;
use std::time::Duration;

use base::{Buf, Chain};
use rt::{CoreId, Disk, DiskError, Durability, OpenError, OpenOptions};

use crate::{run, run_on};

/// A directory for one test, removed at the end.
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

/// Options to create a file of `size` bytes.
fn create(size: u64) -> OpenOptions {
    OpenOptions { create: Some(size), ..OpenOptions::default() }
}

fn pattern(len: usize) -> Buf {
    let mut buf = Buf::uncleared(len);
    buf.iter_mut().enumerate().for_each(|(n, byte)| *byte = (n % 251) as u8 + 1);
    buf
}

async fn is_zero(disk: &Disk, offset: u64, len: usize) -> bool {
    disk.read(offset, pattern(len)).await.unwrap().iter().all(|byte| *byte == 0)
}

#[test]
fn writes_are_read_back_after_reopening() {
    run(|| async {
        let directory = Directory::new("written");
        let path = directory.join("disk");
        let disk = Disk::open(&path, create(8 << 20)).await.unwrap();
        assert_eq!(disk.size(), 8 << 20);
        assert!(matches!(disk.block(), 512 | 4096));
        assert!(is_zero(&disk, 0, 1 << 20).await);
        let block = u64::from(disk.block());
        let data = pattern(3 << 20).share();
        disk.write(block, data.clone(), Durability::Cached).await.unwrap();
        disk.flush().await.unwrap();
        disk.write((8 << 20) - 4096, data.slice(0..4096), Durability::Durable).await.unwrap();
        drop(disk);
        let disk = Disk::open(&path, OpenOptions::default()).await.unwrap();
        assert!(disk.read(block, Buf::zeroed(3 << 20)).await.unwrap()[..] == data[..]);
        assert!(disk.read((8 << 20) - 4096, Buf::zeroed(4096)).await.unwrap()[..] == data[..4096]);
        assert!(is_zero(&disk, 0, block as usize).await);
    });
}

#[test]
fn data_that_is_not_aligned_in_memory_is_copied() {
    run(|| async {
        let directory = Directory::new("unaligned");
        let disk = Disk::open(&directory.join("disk"), create(1 << 20)).await.unwrap();
        let data = pattern(20_000).share();
        for start in [1, 48, 511, 513, 4095] {
            disk.write(8192, data.slice(start..start + 8192), Durability::Cached).await.unwrap();
            let read = disk.read(8192, Buf::zeroed(8192)).await.unwrap();
            assert!(read[..] == data[start..start + 8192], "from {start}");
        }
    });
}

/// Parts that are not adjacent in memory: a few, one of them not aligned, and more than one request takes.
#[test]
fn data_in_parts_is_written_in_order() {
    run(|| async {
        let directory = Directory::new("parts");
        let disk = Disk::open(&directory.join("disk"), create(8 << 20)).await.unwrap();
        let data = pattern(5 << 20).share();
        let block = |at: usize| data.slice(at..at + 4096);
        let several = [3, 1, 0].map(|number| block(number * 4096));
        let unaligned = [block(8192), block(1), block(4096)];
        let many = (0..1100).rev().map(|number| block(number * 4096));
        for parts in [several.to_vec(), unaligned.to_vec(), many.collect()] {
            let mut chain = Chain::new();
            parts.into_iter().for_each(|part| chain.push(part));
            for durability in [Durability::Cached, Durability::Durable] {
                disk.zero(4096, chain.len() as u64).await.unwrap();
                disk.write(4096, chain.clone(), durability).await.unwrap();
                let read = disk.read(4096, Buf::zeroed(chain.len())).await.unwrap();
                assert!(read[..] == chain.to_vec()[..], "{} parts", chain.parts().len());
            }
        }
    });
}

#[test]
fn ranges_are_checked() {
    run(|| async {
        let directory = Directory::new("ranges");
        let disk = Disk::open(&directory.join("disk"), create(1 << 20)).await.unwrap();
        let size = disk.size();
        for (offset, len) in [(size, 4096), (size - 4096, 8192), (1, 4096), (0, 100), (u64::MAX - 4095, 8192)]
        {
            let refused =
                |error| matches!(error, DiskError::Range { offset: o, len: l } if (o, l) == (offset, len));
            let buf = Buf::zeroed(len as usize);
            assert!(disk.read(offset, Buf::zeroed(len as usize)).await.is_err_and(refused));
            assert!(disk.write(offset, buf.share(), Durability::Cached).await.is_err_and(refused));
            assert!(disk.zero(offset, len).await.is_err_and(refused));
            let outside = offset.checked_add(len).is_none_or(|end| end > size);
            assert!(!outside || disk.allocated(offset, len, 9).await.is_err_and(refused));
        }
        disk.read(size, Buf::zeroed(0)).await.unwrap();
        disk.zero(0, 0).await.unwrap();
    });
}

#[test]
fn a_disk_has_one_user() {
    run_on(2, || async {
        let directory = Directory::new("lock");
        let path = directory.join("disk");
        let disk = Disk::open(&path, create(1 << 20)).await.unwrap();
        let second = Disk::open(&path, OpenOptions::default()).await;
        assert!(matches!(second, Err(OpenError::InUse(busy)) if busy == path));
        let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
        assert!(matches!(Disk::open(&path, read_only).await, Err(OpenError::InUse(_))));
        // Another core shares the disk, and keeps it locked.
        let share = disk.share();
        rt::call(CoreId(1), move || async move {
            let disk = share();
            disk.write(0, pattern(4096).share(), Durability::Cached).await.unwrap();
            rt::set_local(std::rc::Rc::new(Cell::new(Some(disk))));
        })
        .await;
        assert!(disk.read(0, Buf::zeroed(4096)).await.unwrap()[..] == pattern(4096)[..]);
        drop(disk);
        assert!(matches!(Disk::open(&path, OpenOptions::default()).await, Err(OpenError::InUse(_))));
        rt::call(CoreId(1), || async { drop(rt::local::<Cell<Option<Disk>>>().unwrap().take()) }).await;
        Disk::open(&path, OpenOptions::default()).await.unwrap();
    });
}

/// Another reference to the file that was opened at `path` for I/O. A worker thread of the kernel has one
/// until a moment after its request.
fn reference(path: &Path) -> OwnedFd {
    let mut ours = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| {
        let entry = entry.ok()?;
        let number: i32 = entry.file_name().to_str()?.parse().ok()?;
        (std::fs::read_link(entry.path()).ok()? == path).then_some(number)
    });
    // SAFETY: no memory is passed.
    let direct = |number: &i32| unsafe { libc::fcntl(*number, libc::F_GETFL) } & libc::O_DIRECT != 0;
    let number = ours.find(direct).expect("it is open");
    // SAFETY: nothing else owns the new descriptor.
    unsafe { OwnedFd::from_raw_fd(libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0)) }
}

#[test]
fn a_closed_disk_can_be_opened_at_once() {
    run(|| async {
        let directory = Directory::new("closed");
        let path = directory.join("disk");
        let disk = Disk::open(&path, create(1 << 20)).await.unwrap();
        let kernel = reference(&path);
        drop(disk);
        let again = Disk::open(&path, OpenOptions::default()).await;
        assert!(again.is_ok(), "{:?}", again.err());
        drop(kernel);
    });
}

#[test]
fn a_failed_open_says_why() {
    run(|| async {
        let directory = Directory::new("open");
        let open = async |path: &Path| Disk::open(path, OpenOptions::default()).await.err().unwrap();
        assert!(matches!(open(&directory.0).await, OpenError::NotADisk(_)));
        assert!(matches!(open(Path::new("/dev/null")).await, OpenError::NotADisk(_)));
        let missing = open(&directory.join("missing")).await;
        assert!(
            matches!(missing, OpenError::System { source, .. } if source.raw_os_error() == Some(libc::ENOENT))
        );
        let path = directory.join("there");
        std::fs::write(&path, [7; 5000]).unwrap();
        let exists = Disk::open(&path, create(1 << 20)).await.err().unwrap();
        assert!(
            matches!(exists, OpenError::System { source, .. } if source.raw_os_error() == Some(libc::EEXIST))
        );
        assert_eq!(std::fs::read(&path).unwrap(), [7; 5000], "a file that exists is left alone");
        let disk = Disk::open(&path, OpenOptions::default()).await.unwrap();
        assert!(disk.size() < 5000 && disk.size().is_multiple_of(u64::from(disk.block())));
    });
}

#[test]
fn read_only_refuses_writes() {
    run(|| async {
        let directory = Directory::new("read-only");
        let path = directory.join("disk");
        drop(Disk::open(&path, create(1 << 20)).await.unwrap());
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let disk = Disk::open(&path, options).await.unwrap();
        assert!(is_zero(&disk, 0, 4096).await);
        let write = disk.write(0, pattern(4096).share(), Durability::Cached).await;
        assert!(matches!(write, Err(DiskError::ReadOnly)));
        assert!(matches!(disk.zero(0, 4096).await, Err(DiskError::ReadOnly)));
    });
}

#[test]
fn zeroing_gives_space_back_and_allocated_tells() {
    run(|| async {
        let directory = Directory::new("zero");
        let disk = Disk::open(&directory.join("disk"), create(16 << 20)).await.unwrap();
        if !disk.knows_holes() {
            assert_eq!(disk.allocated(0, disk.size(), 9).await.unwrap(), [(0, disk.size())]);
            return println!("skipped: the word of this file system on holes is not believed");
        }
        let whole = disk.size();
        assert_eq!(disk.allocated(0, whole, 9).await.unwrap(), []);
        let mib = 1 << 20;
        disk.write(mib, pattern(4 << 20).share(), Durability::Cached).await.unwrap();
        assert_eq!(disk.allocated(0, whole, 9).await.unwrap(), [(mib, 4 * mib)]);
        disk.zero(2 * mib, mib).await.unwrap();
        assert_eq!(disk.allocated(0, whole, 9).await.unwrap(), [(mib, mib), (3 * mib, 2 * mib)]);
        // A part of the range, cut at both ends.
        assert_eq!(
            disk.allocated(mib + 4096, 3 * mib, 9).await.unwrap(),
            [(mib + 4096, mib - 4096), (3 * mib, mib + 4096)]
        );
        assert!(is_zero(&disk, 2 * mib, 1 << 20).await);
        // This may be smaller than a block of the file system: the range is zeroed all the same, and nothing
        // next to it.
        let block = u64::from(disk.block());
        disk.zero(mib + block, block).await.unwrap();
        assert!(is_zero(&disk, mib + block, block as usize).await);
        let before = disk.read(mib, Buf::zeroed(block as usize)).await.unwrap();
        assert!(before[..] == pattern(block as usize)[..]);
        assert!(!is_zero(&disk, mib + 2 * block, block as usize).await);
    });
}

#[test]
fn many_extents_are_listed() {
    run(|| async {
        let directory = Directory::new("extents");
        let disk = Disk::open(&directory.join("disk"), create(64 << 20)).await.unwrap();
        if !disk.knows_holes() {
            assert_eq!(disk.allocated(0, disk.size(), 9).await.unwrap(), [(0, disk.size())]);
            return println!("skipped: the word of this file system on holes is not believed");
        }
        let wanted: Vec<(u64, u64)> = (0..300).map(|n| ((n * 128) << 10, 64 << 10)).collect();
        for (offset, len) in &wanted {
            disk.write(*offset, pattern(*len as usize).share(), Durability::Cached).await.unwrap();
        }
        for max in [0, 1, 64, 299, 300, 301] {
            let found = disk.allocated(0, disk.size(), max).await.unwrap();
            assert_eq!(found, wanted[..max.min(300)]);
        }
    });
}

#[test]
fn reserved_space_is_taken_and_reads_zero() {
    run(|| async {
        let directory = Directory::new("reserve");
        let path = directory.join("disk");
        let disk = Disk::open(&path, OpenOptions { reserve: true, ..create(8 << 20) }).await.unwrap();
        assert!(is_zero(&disk, 0, 1 << 20).await);
        let blocks = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap());
        assert!(blocks * 512 >= 8 << 20);
        // Zeroing does not give the space back, neither now nor when the file is opened again.
        disk.write(0, pattern(1 << 20).share(), Durability::Durable).await.unwrap();
        disk.zero(0, 1 << 20).await.unwrap();
        drop(disk);
        let disk = Disk::open(&path, OpenOptions::default()).await.unwrap();
        disk.write(1 << 20, pattern(1 << 20).share(), Durability::Durable).await.unwrap();
        disk.zero(1 << 20, 1 << 20).await.unwrap();
        disk.flush().await.unwrap();
        assert!(is_zero(&disk, 0, 2 << 20).await);
        let blocks = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap());
        assert!(blocks * 512 >= 8 << 20, "{blocks} blocks are left");
        // Larger than a file can be: refused, and nothing is left behind.
        let path = directory.join("huge");
        assert!(matches!(Disk::check_new(&path, 1 << 62, true), Err(OpenError::System { .. })));
        let nowhere = Disk::check_new(&directory.join("no/such"), 0, false);
        assert!(matches!(nowhere, Err(OpenError::System { .. })));
        Disk::check_new(&path, 1 << 62, false).unwrap();
        let refused = Disk::open(&path, OpenOptions { reserve: true, ..create(1 << 62) }).await;
        assert!(matches!(refused, Err(OpenError::System { .. })));
        assert!(!path.exists());
    });
}

#[test]
fn impossible_reservations_of_space_are_refused() {
    run(|| async {
        let Some(mounted) = Mounted::new("refused", "size=1m") else {
            return println!("skipped: this process may not mount a file system");
        };
        let path = mounted.0.join("disk");
        let refused =
            Disk::open(&path, OpenOptions { reserve: true, ..create(4 << 20) }).await.err().unwrap();
        assert!(
            matches!(&refused, OpenError::System { source, .. } if source.raw_os_error() == Some(libc::ENOSPC))
                || matches!(&refused, OpenError::NoDirect(_)),
            "{refused:?}"
        );
        assert!(!path.exists());
    });
}

/// A file that the kernel stops writing to: memory that is sealed after it was opened.
#[test]
fn a_failed_write_latches_the_disk_for_all_its_users() {
    run_on(2, || async {
        // SAFETY: the name is terminated.
        let fd = unsafe { libc::memfd_create(c"disk".as_ptr(), libc::MFD_ALLOW_SEALING | libc::MFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: it was just opened and nothing else owns it.
        let memory = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        memory.set_len(1 << 20).unwrap();
        let path = PathBuf::from(format!("/proc/self/fd/{fd}"));
        let disk = match Disk::open(&path, OpenOptions::default()).await {
            Err(OpenError::NoDirect(_)) => {
                return println!("skipped: no O_DIRECT on memory before Linux 6.6");
            }
            opened => opened.unwrap(),
        };
        let share = disk.share();
        disk.write(0, pattern(4096).share(), Durability::Cached).await.unwrap();
        disk.flush().await.unwrap();
        // SAFETY: no memory is passed.
        assert_eq!(unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_WRITE) }, 0);
        let write = async |disk: &Disk| disk.write(4096, pattern(4096).share(), Durability::Cached).await;
        // A flush that is under way at that time may have been meant to cover that write.
        let mut flush = pin!(disk.flush());
        let has_begun = poll_fn(|context| Poll::Ready(flush.as_mut().poll(context).is_pending())).await;
        assert!(has_begun);
        assert!(matches!(write(&disk).await, Err(DiskError::Media(_))));
        assert!(matches!(flush.await, Err(DiskError::Latched)));
        assert!(matches!(write(&disk).await, Err(DiskError::Latched)));
        assert!(matches!(disk.flush().await, Err(DiskError::Latched)));
        assert!(matches!(disk.zero(0, 4096).await, Err(DiskError::Latched)));
        rt::call(CoreId(1), move || async move {
            let disk = share();
            let write = disk.write(8192, pattern(4096).share(), Durability::Cached).await;
            assert!(matches!(write, Err(DiskError::Latched)));
            assert!(matches!(disk.flush().await, Err(DiskError::Latched)));
        })
        .await;
        // Readable data can still be read; reopening the disk ends the failure.
        assert!(disk.read(0, Buf::zeroed(4096)).await.unwrap()[..] == pattern(4096)[..]);
    });
}

#[test]
fn a_file_that_was_cut_short_is_a_media_error() {
    run(|| async {
        let directory = Directory::new("short");
        let path = directory.join("disk");
        let disk = Disk::open(&path, create(1 << 20)).await.unwrap();
        let cut = |len| std::fs::File::options().write(true).open(&path).unwrap().set_len(len).unwrap();
        cut(8192);
        assert!(is_zero(&disk, 0, 8192).await);
        assert!(matches!(disk.read(4096, Buf::zeroed(8192)).await, Err(DiskError::Media(_))));
        // Inside a block: the rest of it is not a block, however often it is read.
        cut(8192 - 100);
        let read = rt::timeout(Duration::from_secs(10), disk.read(4096, Buf::zeroed(4096))).await;
        assert!(matches!(read, Ok(Err(DiskError::Media(_)))));
    });
}

/// The missing part before the write would read as zeros.
#[test]
fn a_file_that_was_cut_short_does_not_grow_again() {
    run(|| async {
        let directory = Directory::new("short-and-longer");
        for change in 0..4 {
            let path = directory.join(&format!("disk-{change}"));
            let disk = Disk::open(&path, create(1 << 20)).await.unwrap();
            std::fs::File::options().write(true).open(&path).unwrap().set_len(8192).unwrap();
            let data = Buf::zeroed(4096).share();
            let changed = match change {
                0 => disk.write(65536, data, Durability::Durable).await,
                1 => disk.rewrite(65536, data).await,
                2 => disk.zero(65536, 4096).await,
                _ => disk.allocated(65536, 4096, 1).await.map(drop),
            };
            assert!(matches!(changed, Err(DiskError::Media(_))), "{changed:?}");
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 8192);
            assert!(matches!(
                disk.write(0, pattern(4096).share(), Durability::Cached).await,
                Err(DiskError::Latched)
            ));
            assert!(disk.failure().is_some());
        }
    });
}

/// A mounted file system in memory, if this user may mount.
struct Mounted(Directory);

impl Mounted {
    fn new(name: &str, options: &str) -> Option<Mounted> {
        let directory = Directory::new(name);
        let (target, options) =
            (CString::new(directory.0.to_str().unwrap()).unwrap(), CString::new(options).unwrap());
        // SAFETY: all strings are terminated.
        let result = unsafe {
            libc::mount(c"tmpfs".as_ptr(), target.as_ptr(), c"tmpfs".as_ptr(), 0, options.as_ptr().cast())
        };
        (result == 0).then_some(Mounted(directory))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let target = CString::new(self.0.0.to_str().unwrap()).unwrap();
        // SAFETY: the string is terminated.
        unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    }
}

#[test]
fn a_full_file_system_is_reported_and_recovers() {
    run(|| async {
        let Some(mounted) = Mounted::new("full", "size=1m") else {
            return println!("skipped: this process may not mount a file system");
        };
        let disk = match Disk::open(&mounted.0.join("disk"), create(4 << 20)).await {
            Err(OpenError::NoDirect(_)) => return println!("skipped: no O_DIRECT on tmpfs before Linux 6.6"),
            opened => opened.unwrap(),
        };
        let data = pattern(256 << 10).share();
        let mut full = false;
        for n in 0..8 {
            match disk.write(n * (256 << 10), data.clone(), Durability::Cached).await {
                Ok(()) => assert!(n < 4),
                Err(DiskError::Full) => full = true,
                Err(other) => panic!("{other}"),
            }
        }
        assert!(full);
        // A durable write fails in the same way: it was this data that had no room.
        let durable = disk.write(2 << 20, data.clone(), Durability::Durable).await;
        assert!(matches!(durable, Err(DiskError::Full)), "{durable:?}");
        let room = disk.room().expect("a sparse file");
        assert_eq!((room.total, room.free), (1 << 20, 0));
        assert!(room.promised >= 3 << 20, "{room:?}");
        assert!(matches!(disk.allocate(2 << 20, 512 << 10).await, Err(DiskError::Full)));
        // The disk is not out of service: space that is given back can be used.
        disk.zero(0, 512 << 10).await.unwrap();
        disk.write(1 << 20, data.clone(), Durability::Cached).await.unwrap();
        disk.flush().await.unwrap();
        // Reserved space is available when the rest is used up.
        let aside = 3 << 20;
        disk.allocate(aside, 64 << 10).await.unwrap();
        disk.allocate(2 << 20, disk.room().unwrap().free).await.unwrap();
        assert_eq!(disk.room().unwrap().free, 0);
        assert!(matches!(
            disk.write(5 << 19, pattern(512 << 10).share(), Durability::Cached).await,
            Err(DiskError::Full)
        ));
        assert!(is_zero(&disk, aside, 4096).await);
        disk.write(aside, pattern(64 << 10).share(), Durability::Cached).await.unwrap();
    });
}

/// A loop device, if this user may have one.
struct Loop(PathBuf);

impl Loop {
    fn new(file: &Path) -> Option<Loop> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok()?;
        made.status.success().then(|| Loop(String::from_utf8(made.stdout).unwrap().trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn block_devices_work() {
    run(|| async {
        let directory = Directory::new("device");
        let file = directory.join("backing");
        std::fs::File::create(&file).unwrap().set_len(4 << 20).unwrap();
        let Some(device) = Loop::new(&file) else {
            return println!("skipped: this process may not make a loop device");
        };
        let disk = Disk::open(&device.0, OpenOptions::default()).await.unwrap();
        assert_eq!((disk.size(), disk.block()), (4 << 20, 512));
        assert!(matches!(Disk::open(&device.0, OpenOptions::default()).await, Err(OpenError::InUse(_))));
        disk.write(512, pattern(1 << 20).share(), Durability::Durable).await.unwrap();
        disk.flush().await.unwrap();
        assert!(disk.read(512, Buf::zeroed(1 << 20)).await.unwrap()[..] == pattern(1 << 20)[..]);
        disk.zero(4096, 64 << 10).await.unwrap();
        assert!(is_zero(&disk, 4096, 64 << 10).await);
        assert_eq!(disk.allocated(8192, 4096, 9).await.unwrap(), [(8192, 4096)]);
        // Closed, and opened again while the kernel still has a reference.
        let kernel = reference(&device.0);
        drop(disk);
        let release = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            drop(kernel);
        });
        let again = Disk::open(&device.0, OpenOptions::default()).await;
        assert!(again.is_ok(), "{:?}", again.err());
        release.join().unwrap();
    });
}

#[test]
fn a_dropped_operation_keeps_its_memory() {
    run(|| async {
        let directory = Directory::new("dropped");
        let disk = Disk::open(&directory.join("disk"), create(8 << 20)).await.unwrap();
        for n in 0..200u64 {
            let wait = std::time::Duration::from_micros(n % 20);
            let _ =
                rt::timeout(wait, disk.write(n * 4096, pattern(65_536).share(), Durability::Cached)).await;
            let _ = rt::timeout(wait, disk.read(n * 4096, Buf::uncleared(65_536))).await;
            // The next user of this memory must not find it overwritten.
            let fresh = Buf::zeroed(65_536);
            rt::yield_now().await;
            assert!(fresh.iter().all(|byte| *byte == 0));
        }
    });
}

#[test]
fn many_operations_run_at_once() {
    run(|| async {
        let directory = Directory::new("many");
        let disk = std::rc::Rc::new(Disk::open(&directory.join("disk"), create(16 << 20)).await.unwrap());
        // More than the submission queue can hold.
        let tasks: Vec<_> = (0..2000u64)
            .map(|n| {
                let disk = std::rc::Rc::clone(&disk);
                rt::spawn(async move {
                    let mut data = Buf::zeroed(4096);
                    data[..8].copy_from_slice(&n.to_le_bytes());
                    disk.write(n * 4096, data.share(), Durability::Cached).await.unwrap();
                    let read = disk.read(n * 4096, Buf::zeroed(4096)).await.unwrap();
                    assert_eq!(read[..8], n.to_le_bytes());
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
    });
}
