//! The block devices of this machine and what uses them, for administrators who create a pool without a shell
//! on the machine.
//!
//! The facts from the kernel (`/sys/class/block`, `/proc/self/mountinfo`, `/proc/swaps`) cost no access to a
//! disk. If they show no user of a device, a few KiB at its start are read as well. That read may hang, so
//! each device has its own thread for it, and callers wait only until a deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use api::BlockDevice;
use store::Content;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How long the read of a disk's start may take.
const LOOK_DEADLINE: Duration = Duration::from_secs(2);

/// The unit of sizes in sysfs, whatever the disk's sector size is (`Documentation/ABI/stable/sysfs-block`).
const SYSFS_SECTOR: u64 = 512;

/// RAM disks and removable media, which no pool can lie on.
const NOT_DISKS: [&str; 4] = ["ram", "zram", "sr", "fd"];

/// Links below `/dev/disk/by-id` that are bare numbers: a link with model and serial number is preferred.
const BARE_NUMBERS: [&str; 5] = ["wwn-", "nvme-eui.", "nvme-nvme.", "scsi-3", "dm-uuid-"];

/// Where the kernel lists its devices; tests use other places.
struct Places<'a> {
    block: &'a Path,
    by_id: &'a Path,
    mountinfo: &'a str,
    swaps: &'a str,
}

static ASKED: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// All block devices of this machine, by name.
///
/// `pools` has each disk of the node's pools with the name of its pool.
pub async fn all(pools: Vec<(PathBuf, String)>) -> io::Result<Vec<BlockDevice>> {
    // One call at a time: each of two calls would find the reads of the other one in progress.
    let _alone = ASKED.lock().await;
    let found = tokio::task::spawn_blocking(move || {
        let mountinfo = fs::read_to_string("/proc/self/mountinfo")?;
        // A kernel that cannot swap has no such file.
        let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
        let (block, by_id) = (Path::new("/sys/class/block"), Path::new("/dev/disk/by-id"));
        let pools = pools.into_iter().filter_map(|(path, pool)| Some((device_name(&path)?, pool))).collect();
        known(&Places { block, by_id, mountinfo: &mountinfo, swaps: &swaps }, &pools)
    });
    let found = found.await.map_err(io::Error::other)??;
    // All reads run at once, so that those that hang share one deadline.
    let looks: Vec<(Option<oneshot::Receiver<Held>>, BlockDevice)> =
        found.into_iter().map(|device| (is_free(&device).then(|| look(&device.name)), device)).collect();
    let end = Instant::now() + LOOK_DEADLINE;
    let mut all = Vec::new();
    for (held, device) in looks {
        all.push(match held {
            Some(held) => with_content(device, answer(held, end).await),
            None => device,
        });
    }
    Ok(all)
}

/// The content found at a device's start, or why it could not be read.
type Held = Result<Content, String>;

/// The devices with what sysfs, the mounts, the swap space in use and the node's pools say about them.
fn known(places: &Places<'_>, pools: &BTreeMap<String, String>) -> io::Result<Vec<BlockDevice>> {
    let mut all = BTreeMap::new();
    let mounts: Vec<Mount<'_>> = places.mountinfo.lines().filter_map(Mount::of).collect();
    let swapped_to = swap_devices(places.swaps);
    for entry in fs::read_dir(places.block)? {
        let entry = entry?.path();
        let Some(device) = of_sysfs(&entry) else { continue };
        let numbers = text(&entry.join("dev")).unwrap_or_default();
        let mounted_at = places_of(&mounts, &numbers, &device.name);
        let pool = pools.get(&device.name).cloned();
        let is_swapped_to = swapped_to.contains(&device.name);
        let problem = is_swapped_to.then(|| "used as swap".to_owned()).or(device.problem);
        all.insert(device.name.clone(), BlockDevice { mounted_at, pool, problem, ..device });
    }
    let parts: Vec<(String, String)> =
        all.values().filter_map(|part| Some((part.part_of.clone()?, part.name.clone()))).collect();
    for (whole, part) in parts {
        all.entry(whole).and_modify(|whole| whole.partitions.push(part));
    }
    for (name, link) in links(places.by_id) {
        all.entry(name).and_modify(|device| device.path = link);
    }
    Ok(all.into_values().collect())
}

/// A device from its directory in sysfs; `None`: no pool can lie on it.
fn of_sysfs(entry: &Path) -> Option<BlockDevice> {
    // sysfs writes a slash in a device's name as an exclamation mark.
    let name = entry.file_name()?.to_str()?.replace('!', "/");
    let kind = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let size = text(&entry.join("size"))?.parse::<u64>().ok()?.checked_mul(SYSFS_SECTOR)?;
    if size == 0 || NOT_DISKS.contains(&kind) {
        return None;
    }
    let part_of = match entry.join("partition").exists() {
        true => {
            let place = fs::canonicalize(entry).ok()?;
            Some(place.parent()?.file_name()?.to_str()?.replace('!', "/"))
        }
        false => None,
    };
    let is_read_only = text(&entry.join("ro")).is_some_and(|ro| ro == "1");
    Some(BlockDevice {
        path: format!("/dev/{name}"),
        size,
        model: text(&entry.join("device/model")).filter(|model| !model.is_empty()),
        part_of,
        used_by: names_in(&entry.join("holders")),
        problem: is_read_only.then(|| "read-only".to_owned()),
        name,
        ..BlockDevice::default()
    })
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names: BTreeSet<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.into_iter().collect()
}

/// A line of `mountinfo` (proc_pid_mountinfo(5)).
///
/// A file system on several devices, such as btrfs, has a device number of its own there; its source names
/// one of the devices.
struct Mount<'a> {
    numbers: &'a str,
    place: &'a str,
    source: Option<String>,
}

impl Mount<'_> {
    fn of(line: &str) -> Option<Mount<'_>> {
        let (mount, source) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(2);
        let (numbers, place) = (fields.next()?, fields.nth(1)?);
        let source = source.split(' ').nth(1)?;
        Some(Mount { numbers, place, source: device_name(Path::new(source)) })
    }
}

fn places_of(mounts: &[Mount<'_>], numbers: &str, name: &str) -> Vec<String> {
    let of_it =
        mounts.iter().filter(|mount| mount.numbers == numbers || mount.source.as_deref() == Some(name));
    let places: BTreeSet<String> = of_it.map(|mount| mount.place.replace("\\040", " ")).collect();
    places.into_iter().collect()
}

/// The devices with swap space in use, from `/proc/swaps` (proc(5)).
///
/// The table has a title line, then one line per swap space that begins with its path. Swap files lie on
/// mounted devices, which are in use anyway.
fn swap_devices(swaps: &str) -> BTreeSet<String> {
    let paths = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    paths.filter_map(|path| device_name(Path::new(path))).collect()
}

/// The kernel's name of the device at this path; follows links.
fn device_name(path: &Path) -> Option<String> {
    if !path.starts_with("/dev") {
        return None;
    }
    Some(fs::canonicalize(path).ok()?.strip_prefix("/dev").ok()?.to_str()?.to_owned())
}

/// The link below `/dev/disk/by-id` for each device: of several, the most descriptive one.
fn links(by_id: &Path) -> BTreeMap<String, String> {
    let mut best: BTreeMap<String, (bool, String)> = BTreeMap::new();
    for link in names_in(by_id) {
        let path = by_id.join(&link);
        let Ok(device) = fs::canonicalize(&path) else { continue };
        let Some(name) = device.file_name().and_then(|name| name.to_str()) else { continue };
        let is_bare = BARE_NUMBERS.iter().any(|bare| link.starts_with(bare));
        let candidate = (is_bare, path.display().to_string());
        let kept = best.entry(name.to_owned()).or_insert_with(|| candidate.clone());
        if candidate < *kept {
            *kept = candidate;
        }
    }
    best.into_iter().map(|(name, (_, path))| (name, path)).collect()
}

/// Whether no user of the device is known.
fn is_free(device: &BlockDevice) -> bool {
    let BlockDevice { partitions, mounted_at, used_by, pool, problem, .. } = device;
    let uses = [partitions, mounted_at, used_by];
    uses.iter().all(|uses| uses.is_empty()) && pool.is_none() && problem.is_none()
}

fn with_content(device: BlockDevice, held: Held) -> BlockDevice {
    match held {
        Ok(content) => {
            let (unused, importable) = (content == Content::Nothing, content == Content::Pool);
            BlockDevice { holds: Some(content.to_string()), unused, importable, ..device }
        }
        Err(problem) => BlockDevice { problem: Some(problem), ..device },
    }
}

/// Devices whose start is being read. One that hangs keeps its thread and gets no second one.
static LOOKED_AT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn looked_at() -> MutexGuard<'static, BTreeSet<String>> {
    LOOKED_AT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts to read what a device holds.
fn look(name: &str) -> oneshot::Receiver<Held> {
    let (sender, held) = oneshot::channel();
    if !looked_at().insert(name.to_owned()) {
        // Fails only if the receiver is gone.
        let _ = sender.send(Err("not responding".into()));
        return held;
    }
    let device = name.to_owned();
    let begun = thread::Builder::new().name("look".into()).spawn(move || {
        let found = content(&Path::new("/dev").join(&device));
        looked_at().remove(&device);
        let _ = sender.send(found);
    });
    if begun.is_err() {
        looked_at().remove(name);
    }
    held
}

async fn answer(held: oneshot::Receiver<Held>, end: Instant) -> Held {
    match tokio::time::timeout_at(end, held).await {
        Ok(Ok(held)) => held,
        Ok(Err(_)) => Err("cannot be inspected".into()),
        Err(_) => Err(format!("no response within {} s", LOOK_DEADLINE.as_secs())),
    }
}

fn content(path: &Path) -> Held {
    let unreadable = |error: io::Error| format!("cannot be read: {error}");
    // On a block device, O_EXCL without O_CREAT fails if a mount, swap space, LVM, RAID or another exclusive
    // opener has the device. Close it before the read: a program that opens it exclusively meanwhile must not
    // find it busy.
    match OpenOptions::new().read(true).custom_flags(libc::O_EXCL | libc::O_NONBLOCK).open(path) {
        Ok(file) => drop(file),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            return Err("in use by the kernel or a program".into());
        }
        Err(error) => return Err(unreadable(error)),
    }
    let mut start = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(Content::LOOKED_AT_BYTES as u64).read_to_end(&mut start).map_err(unreadable)?;
    Ok(Content::detect(&start))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Writes files into a device's directory in sysfs.
    fn put(directory: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(directory.join("holders")).unwrap();
        for (name, content) in files {
            let path = directory.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
    }

    #[test]
    fn users_of_a_device_are_found_without_touching_it() {
        let dir = tempfile::tempdir().unwrap();
        let (devices, block) = (dir.path().join("devices"), dir.path().join("class"));
        fs::create_dir_all(&block).unwrap();
        let whole = |name: &str, dev: &str, size: &str| {
            let files = [("size", size), ("dev", dev), ("ro", "0\n"), ("device/model", "DISK 9\n")];
            put(&devices.join(name), &files);
            symlink(devices.join(name), block.join(name)).unwrap();
        };
        whole("sda", "8:0\n", "2048\n");
        whole("sdb", "8:16\n", "4096\n");
        whole("sdc", "8:32\n", "4096\n");
        whole("sr0", "11:0\n", "4096\n");
        whole("loop0", "7:0\n", "0\n");
        put(&devices.join("sda/sda1"), &[("size", "1024"), ("dev", "8:1"), ("ro", "0"), ("partition", "1")]);
        symlink(devices.join("sda/sda1"), block.join("sda1")).unwrap();
        put(&devices.join("sdd"), &[("size", "8"), ("dev", "8:48"), ("ro", "1"), ("holders/dm-0", "")]);
        symlink(devices.join("sdd"), block.join("sdd")).unwrap();

        let by_id = dir.path().join("by-id");
        fs::create_dir_all(&by_id).unwrap();
        for link in ["wwn-0x5000", "ata-DISK_9"] {
            symlink(devices.join("sdb"), by_id.join(link)).unwrap();
        }
        let mountinfo = "22 1 8:1 / /a\\040b rw,relatime shared:1 - ext4 /dev/none rw\n\
                         23 1 0:21 / /proc rw - proc proc rw\n";
        let pools = [("sdc".to_owned(), "main".to_owned())].into();
        let places = Places { block: &block, by_id: &by_id, mountinfo, swaps: "" };
        let found = known(&places, &pools).unwrap();
        let names: Vec<&str> = found.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["sda", "sda1", "sdb", "sdc", "sdd"], "no media, no memory, nothing empty");
        let [sda, sda1, sdb, sdc, sdd] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((sda.size, sda.model.as_deref()), (1 << 20, Some("DISK 9")));
        assert_eq!((&sda.partitions, is_free(sda)), (&vec!["sda1".to_owned()], false));
        assert_eq!((sda1.part_of.as_deref(), &sda1.mounted_at), (Some("sda"), &vec!["/a b".to_owned()]));
        assert_eq!(sda1.path, "/dev/sda1");
        assert_eq!((sdb.path.clone(), is_free(sdb)), (by_id.join("ata-DISK_9").display().to_string(), true));
        assert_eq!((sdc.pool.as_deref(), is_free(sdc)), (Some("main"), false));
        assert_eq!((&sdd.used_by, is_free(sdd)), (&vec!["dm-0".to_owned()], false));
        assert_eq!(sdd.problem.as_deref(), Some("read-only"));
    }

    /// Mounts and swap spaces that name a path are resolved below `/dev`, so the test uses devices that every
    /// machine has there.
    #[test]
    fn a_device_that_the_kernel_names_by_path_is_in_use() {
        let dir = tempfile::tempdir().unwrap();
        for (name, dev) in [("null", "8:0"), ("zero", "8:16"), ("full", "8:32")] {
            put(&dir.path().join(name), &[("size", "2048"), ("dev", dev), ("ro", "0")]);
        }
        // A file system on several devices: it has its own device number, and its source names one device.
        let mountinfo = "22 1 0:44 / /data rw,relatime - btrfs /dev/null rw,subvol=/\n";
        let swaps = "Filename Type Size Used Priority\n\
                     /dev/zero                               partition\t8388604\t\t0\t\t-2\n\
                     /swapfile                               file\t\t8388604\t\t0\t\t-3\n";
        let by_id = dir.path().join("none");
        let places = Places { block: dir.path(), by_id: &by_id, mountinfo, swaps };
        let found = known(&places, &BTreeMap::new()).unwrap();
        let [full, null, zero] = found.as_slice() else { panic!("{found:?}") };
        assert!(is_free(full), "{full:?}");
        assert_eq!((&null.mounted_at, is_free(null)), (&vec!["/data".to_owned()], false));
        assert_eq!((zero.problem.as_deref(), is_free(zero)), (Some("used as swap"), false));
    }

    #[test]
    fn only_what_holds_nothing_is_unused() {
        let with = |held| with_content(BlockDevice::default(), held);
        let of = |device: BlockDevice| (device.unused, device.importable);
        assert_eq!(of(with(Ok(Content::Nothing))), (true, false));
        assert_eq!(of(with(Ok(Content::Pool))), (false, true));
        let known = with(Ok(Content::Known("an ext file system")));
        assert_eq!((known.holds.as_deref(), known.unused), (Some("an ext file system"), false));
        let silent = with(Err("no response within 2 s".into()));
        assert_eq!((silent.holds, silent.unused), (None, false));
        assert!(silent.problem.is_some());
    }

    #[test]
    fn the_contents_of_a_device_are_recognized() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        fs::write(&path, vec![0; 1 << 17]).unwrap();
        assert_eq!(content(&path), Ok(Content::Nothing));
        fs::write(&path, b"XFSB").unwrap();
        assert_eq!(content(&path), Ok(Content::Known("an XFS file system")));
        assert!(content(&dir.path().join("none")).unwrap_err().starts_with("cannot be read"));
    }
}
