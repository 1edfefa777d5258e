//! Mounts and unmounts the file system, with errors that say what to do.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fuser::{Config, MountOption, Session};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::geteuid;

use super::AttachError;
use super::detach::Presentation;
use super::file::File;

const DEVICE: &str = "/dev/fuse";

/// The helper that mounts for users other than root.
const HELPER: &str = "fusermount3";

/// How long the kernel may take to confirm that the mount is gone.
const GOODBYE_LIMIT: Duration = Duration::from_secs(10);

/// Why the file system cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error("cannot use directory {0}; choose another with --path")]
    Directory(PathBuf, #[source] io::Error),
    #[error("{0} is not empty; choose another directory with --path")]
    NotEmpty(PathBuf),
    #[error(
        "{DEVICE} not found; load the kernel module (`modprobe fuse`); a container needs the device (`--device {DEVICE} --cap-add SYS_ADMIN`)"
    )]
    NoDevice,
    #[error("no permission for {DEVICE}; run this as root, or give this user read and write access to it")]
    Denied(#[source] io::Error),
    #[error(
        "{HELPER} not found, and only root can mount without it; install the package fuse3, or run this as root"
    )]
    NoHelper,
    /// Any other error.
    #[error("cannot mount at {0}")]
    Mount(PathBuf, #[source] io::Error),
    #[error("cannot unmount {0}; `umount {0}` may show why")]
    Unmount(PathBuf, #[source] io::Error),
}

/// A directory to mount the file system at.
pub(super) struct Place {
    path: PathBuf,
    /// We created it, and remove it at the end.
    is_ours: bool,
}

impl Place {
    /// Creates the directory if necessary; unmounts what a killed attachment left there.
    pub(super) fn make(path: &Path) -> Result<Place, MountError> {
        let failed = |error| MountError::Directory(path.to_owned(), error);
        if is_dead(path) {
            take_away(path, UnmountFlags::DETACH)
                .map_err(|error| MountError::Unmount(path.to_owned(), error))?;
        }
        let is_ours = !path.exists();
        fs::create_dir_all(path).map_err(failed)?;
        if fs::read_dir(path).map_err(failed)?.next().is_some() {
            return Err(MountError::NotEmpty(path.to_owned()));
        }
        let path = path.canonicalize().map_err(failed)?;
        Ok(Place { path, is_ours })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn mount(&self, file: File, name: &str, read_only: bool) -> Result<Session<File>, MountError> {
        if !Path::new(DEVICE).exists() {
            return Err(MountError::NoDevice);
        }
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(source_name(name)),
            MountOption::Subtype("ursa".to_owned()),
            MountOption::DefaultPermissions,
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::NoExec,
        ];
        if read_only {
            config.mount_options.push(MountOption::RO);
        }
        Session::new(file, &self.path, &config).map_err(|error| match error.kind() {
            // The device and the directory exist, so the helper was not found.
            io::ErrorKind::NotFound if !geteuid().is_root() => MountError::NoHelper,
            io::ErrorKind::PermissionDenied => MountError::Denied(error),
            _ => MountError::Mount(self.path.clone(), error),
        })
    }
}

impl Presentation for Place {
    fn take_away(&self) -> Result<bool, AttachError> {
        match take_away(&self.path, UnmountFlags::empty()) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => Ok(false),
            // It is no longer mounted: another program unmounted it.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Ok(true),
            Err(error) => Err(MountError::Unmount(self.path.clone(), error).into()),
        }
    }

    fn give_up(&self) {
        if let Err(error) = take_away(&self.path, UnmountFlags::DETACH) {
            tracing::error!(%error, path = %self.path.display(), "cannot unmount");
        }
    }

    fn tell_in_use(&self) {
        tracing::warn!(
            path = %self.path.display(),
            "the file is in use (see `losetup -a`, `fuser -m`) and will be removed when its last user closes it; a second signal removes it now"
        );
    }

    fn goodbye_limit(&self) -> Option<Duration> {
        Some(GOODBYE_LIMIT)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_ours {
            // Fails if the directory is not empty; then it stays.
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// Whether a file system is mounted there whose process is gone.
///
/// Lists the directory, because the kernel may still have its attributes cached.
fn is_dead(path: &Path) -> bool {
    let first = fs::read_dir(path).and_then(|mut entries| entries.next().transpose());
    first.is_err_and(|error| error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()))
}

/// Unmounts: directly if this process may, else through the helper.
fn take_away(path: &Path, flags: UnmountFlags) -> io::Result<()> {
    match unmount(path, flags) {
        Err(Errno::PERM) => {}
        result => return Ok(result?),
    }
    let lazily = flags.contains(UnmountFlags::DETACH);
    let mut command = Command::new(HELPER);
    command.arg("-u").args(lazily.then_some("-z")).arg("--").arg(path);
    let output = command.output()?;
    match String::from_utf8_lossy(&output.stderr) {
        _ if output.status.success() => Ok(()),
        text if text.contains("busy") => Err(Errno::BUSY.into()),
        text => Err(io::Error::other(text.trim().to_owned())),
    }
}

/// Commas separate the options of a mount.
fn source_name(url: &str) -> String {
    url.replace(',', ";")
}
