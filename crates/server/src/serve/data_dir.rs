//! The node's data directory, and the size of its first pool.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base::ByteLen;
use rustix::fs::{Mode, statvfs};
use store::DISK_BYTES_MIN;

/// The directory of pools that are created without a path.
pub const POOLS: &str = "pools";

/// The node's record file. If it exists, the directory has a node's state.
const RECORD: &str = "record";

/// For the owner alone: the directory contains secrets.
const MODE: u32 = 0o700;

const OF_ROOT: &str = "/var/lib/ursa";

/// Why the data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("cannot use {path} for the node's state: choose another directory with --data-dir")]
    Make {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "{path} has no node state, but {marker} says that this node keeps its state there: is its file system mounted? Nothing was created. To start as a new node, delete {marker}"
    )]
    StateMissing { path: PathBuf, marker: PathBuf },
    #[error("cannot read or write the state marker {path} (--state-marker)")]
    Marker {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "only {free} is free at {path}, too little for a first pool: free some space, choose another directory with --data-dir, or start without a pool (--pool-size 0)"
    )]
    Full { path: PathBuf, free: ByteLen },
}

/// The default data directory: for root, where services keep their state; for other users, in their home.
pub fn default() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() && make(Path::new(OF_ROOT)).is_ok() {
        return Some(OF_ROOT.into());
    }
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local/share")));
    data.map(|data| data.join("ursa"))
}

/// Makes all files that a node creates private to its user, whatever umask it was started with.
pub fn keep_private() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

/// Creates the directory and its subdirectories, for the owner alone.
pub fn prepare(path: &Path) -> Result<(), DataDirError> {
    let was_there = path.exists();
    let pools = path.join(POOLS);
    make(&pools).map_err(|source| DataDirError::Make { path: path.to_owned(), source })?;
    if was_there {
        tighten(path);
    }
    Ok(())
}

/// A node's directories in its data directory. Service managers and administrators may have created them
/// readable for all.
const OWN: [&str; 5] = [POOLS, "cluster", "history", "audit", "api"];

/// Removes other users' permissions from a data directory that existed before.
///
/// A directory that is not known to be a node's is only reported: it may be `/srv` or `/tmp`.
fn tighten(path: &Path) {
    let is_own = path.join(RECORD).exists();
    for (directory, may) in
        std::iter::once((path.to_owned(), is_own)).chain(OWN.map(|name| (path.join(name), true)))
    {
        let Ok(metadata) = fs::symlink_metadata(&directory) else { continue };
        let mode = metadata.mode() & 0o7777;
        if !metadata.is_dir() || mode & 0o077 == 0 {
            continue;
        }
        let may = may && mode & 0o1000 == 0 && metadata.uid() == rustix::process::geteuid().as_raw();
        let tightened = may && fs::set_permissions(&directory, fs::Permissions::from_mode(MODE)).is_ok();
        let (path, mode) = (directory.display(), format!("{mode:o}"));
        match tightened {
            true => {
                tracing::info!(%path, mode, "this directory was accessible to other users; its mode is now 700")
            }
            false => {
                tracing::warn!(%path, mode, "this directory is accessible to other users: set its mode to 700")
            }
        }
    }
}

/// Rejects a data directory that has lost its state: if the marker exists, there was one.
///
/// # Errors
/// [`DataDirError::StateMissing`], [`DataDirError::Marker`].
pub fn check_marker(marker: &Path, data_dir: &Path) -> Result<(), DataDirError> {
    let is_there =
        marker.try_exists().map_err(|source| DataDirError::Marker { path: marker.to_owned(), source })?;
    match is_there && !data_dir.join(RECORD).exists() {
        true => Err(DataDirError::StateMissing { path: data_dir.to_owned(), marker: marker.to_owned() }),
        false => Ok(()),
    }
}

/// Writes the marker durably: the data directory has a node's state.
pub fn write_marker(marker: &Path, data_dir: &Path) -> Result<(), DataDirError> {
    if marker.exists() {
        return Ok(());
    }
    let text = format!(
        "The state of this Ursa node is in {}. While this file exists, ursa serve does not start as a new node if that directory has no state.\n",
        data_dir.display()
    );
    let write = || {
        let mut file = File::create(marker)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        let directory = marker.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    };
    write().map_err(|source| DataDirError::Marker { path: marker.to_owned(), source })
}

fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(MODE).create(path)?;
    // The directory may have existed before; what matters is whether a file can be created in it.
    let probe = path.join(".probe");
    fs::write(&probe, [])?;
    fs::remove_file(probe)
}

/// The size of a first pool: half of the free space, in whole GiB if that is 1 GiB or more.
pub fn first_pool_size(data_dir: &Path) -> Result<ByteLen, DataDirError> {
    let space = statvfs(data_dir)
        .map_err(|error| DataDirError::Make { path: data_dir.to_owned(), source: error.into() })?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    half_of(free).ok_or(DataDirError::Full { path: data_dir.to_owned(), free: ByteLen(free) })
}

fn half_of(free: u64) -> Option<ByteLen> {
    let half = free / 2;
    let unit = if half >= 1 << 30 { 1 << 30 } else { 1 << 20 };
    let size = half / unit * unit;
    (size >= DISK_BYTES_MIN).then_some(ByteLen(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_data_directory_is_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        let (own, shared) = (dir.path().join("own"), dir.path().join("shared"));
        prepare(&own).unwrap();
        assert_eq!((mode(&own), mode(&own.join(POOLS))), (0o700, 0o700));
        fs::write(own.join("record"), []).unwrap();
        fs::create_dir(own.join("cluster")).unwrap();
        fs::create_dir(own.join("theirs")).unwrap();
        for path in [&own, &own.join("cluster"), &own.join(POOLS), &own.join("theirs")] {
            open(path);
        }
        prepare(&own).unwrap();
        assert_eq!([&own, &own.join("cluster"), &own.join(POOLS)].map(|path| mode(path)), [0o700; 3]);
        assert_eq!(mode(&own.join("theirs")), 0o755, "no directory of a node");
        // Not a node's directory: other programs may use it.
        fs::create_dir(&shared).unwrap();
        open(&shared);
        prepare(&shared).unwrap();
        assert_eq!((mode(&shared), mode(&shared.join(POOLS))), (0o755, 0o700));
    }

    #[test]
    fn a_first_pool_takes_half_of_the_free_space() {
        assert_eq!(half_of(100 << 30), Some(ByteLen(50 << 30)));
        assert_eq!(half_of((7 << 30) + 5), Some(ByteLen(3 << 30)));
        assert_eq!(half_of((1 << 30) + 5), Some(ByteLen(512 << 20)));
        assert_eq!(half_of(4 << 20), Some(ByteLen(2 << 20)));
        assert_eq!(half_of(3 << 20), None);
    }
}
