//! The users of a block device: exclusive ones (file systems, LVM and the like), and processes that have it
//! open.

use std::fs::{self, DirEntry, File};
use std::io;
use std::iter;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Opens the device exclusively. `None`: it, or one of its partitions, is in use exclusively.
pub(super) fn claim(device: &Path) -> io::Result<Option<File>> {
    // O_EXCL without O_CREAT, as open(2) defines it for block devices.
    let exclusive = OFlags::EXCL.bits().cast_signed();
    match File::options().read(true).custom_flags(exclusive).open(device) {
        Ok(claim) => Ok(Some(claim)),
        Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the error means that the device is gone.
pub(super) fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::NXIO, Errno::NODEV];
    gone.iter().any(|gone| error.raw_os_error() == Some(gone.raw_os_error()))
}

/// Other users that have the device or one of its partitions open, not exclusively.
///
/// They are processes, as far as this one may see them, as `name (number)`, and loop devices.
pub(super) fn of(device: &Path) -> Vec<String> {
    // Uses the process ids of /proc, which may be those of another namespace.
    let ours = fs::read_link("/proc/self").ok();
    let others = entries("/proc").filter(|entry| ours.as_deref() != Some(Path::new(&entry.file_name())));
    let numbers = others.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has_it = |number: &u32| {
        let mut files = entries(&format!("/proc/{number}/fd"));
        files.any(|file| fs::read_link(file.path()).is_ok_and(|file| is_of(&file, device)))
    };
    let processes = numbers.filter(has_it).map(|number| format!("{} ({number})", name(number)));
    let loops = entries("/sys/block").filter(|disk| {
        let backing = fs::read_to_string(disk.path().join("loop/backing_file"));
        backing.is_ok_and(|backing| is_of(Path::new(backing.trim_end()), device))
    });
    processes.chain(loops.map(|disk| disk.file_name().to_string_lossy().into_owned())).collect()
}

/// Where file systems on the device or its partitions are mounted, in our mount namespace.
pub(super) fn mounted(device: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mount_points(&mounts, &numbers(device))
}

/// The mount points of these devices.
///
/// In a line, the third field is the device number, and the fifth the mount point (proc_pid_mountinfo(5)).
fn mount_points(mounts: &str, devices: &[String]) -> Vec<String> {
    let of_line = |line: &str| {
        let mut fields = line.split(' ').skip(2);
        let device = fields.next()?;
        let point = fields.nth(1)?;
        devices.iter().any(|one| one == device).then(|| point.to_owned())
    };
    mounts.lines().filter_map(of_line).collect()
}

/// The device numbers of the device and its partitions, as the kernel writes them: `259:1`.
fn numbers(device: &Path) -> Vec<String> {
    let name = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let disk = format!("/sys/block/{name}");
    let partitions = entries(&disk).filter(|entry| entry.file_name().to_string_lossy().starts_with(&name));
    let all = iter::once(PathBuf::from(&disk)).chain(partitions.map(|entry| entry.path()));
    let numbers = all.filter_map(|one| fs::read_to_string(one.join("dev")).ok());
    numbers.map(|number| number.trim_end().to_owned()).collect()
}

/// The entries of a directory; empty if it cannot be read, since a process may end meanwhile.
fn entries(directory: &str) -> impl Iterator<Item = DirEntry> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten()
}

fn name(number: u32) -> String {
    fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default().trim().to_owned()
}

/// Whether the file is the device or a partition of it: `/dev/ublkb0` and `/dev/ublkb0p1`.
fn is_of(file: &Path, device: &Path) -> bool {
    let (Some(file), Some(device)) = (file.to_str(), device.to_str()) else { return false };
    let Some(rest) = file.strip_prefix(device) else { return false };
    let partition = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    rest.is_empty() || rest.strip_prefix('p').is_some_and(partition)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_partition_is_of_its_device() {
        let is_of = |file: &str| is_of(Path::new(file), Path::new("/dev/ublkb1"));
        assert!(is_of("/dev/ublkb1") && is_of("/dev/ublkb1p12"));
        for other in ["/dev/ublkb12", "/dev/ublkb1p", "/dev/ublkb1px", "/dev/ublkc1"] {
            assert!(!is_of(other), "{other}");
        }
    }

    #[test]
    fn mount_points_are_found_by_the_number_of_the_device() {
        let mounts = "\
22 28 0:21 / /proc rw,nosuid,nodev shared:12 - proc proc rw
40 28 259:1 / /srv/db rw,relatime shared:20 - ext4 /dev/ublkb0p1 rw
41 28 259:12 / /srv/other rw,relatime - ext4 /dev/ublkb3 rw
42 40 259:1 /in /srv/again rw,relatime - ext4 /dev/ublkb0p1 rw
";
        let devices = ["259:0".to_owned(), "259:1".to_owned()];
        assert_eq!(mount_points(mounts, &devices), ["/srv/db", "/srv/again"]);
        assert!(mount_points(mounts, &[]).is_empty());
    }

    #[test]
    fn users_of_an_open_file_are_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().canonicalize().unwrap();
        let ours = format!("({})", std::process::id());
        assert!(!of(&path).iter().any(|user| user.ends_with(&ours)), "who asks is not told");
        let mut other = Command::new("sleep").arg("60").stdin(file.reopen().unwrap()).spawn().unwrap();
        let found = of(&path);
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(found.contains(&format!("sleep ({})", other.id())), "{found:?}");
        let gone = path.with_extension("gone");
        assert!(of(&gone).is_empty());
        assert!(is_gone(&claim(&gone).unwrap_err()));
        assert!(claim(&path).unwrap().is_some(), "a file is for nobody alone");
    }
}
