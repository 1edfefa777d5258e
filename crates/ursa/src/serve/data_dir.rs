//! Where a node keeps its state, and how large its first pool may be.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use base::ByteLen;
use rustix::fs::statvfs;
use store::DISK_BYTES_MIN;

/// Where pools made without a path lie.
pub const POOLS: &str = "pools";

/// Secrets are in there.
const MODE: u32 = 0o700;

const OF_ROOT: &str = "/var/lib/ursa";

/// The state cannot be kept there.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// It could not be made.
    #[error("cannot use {path} for the node's state: name another directory with --data-dir")]
    Make {
        /// Which directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// There is no space for a pool.
    #[error(
        "only {free} bytes are free at {path}, too few for a first pool: free some, name another directory with --data-dir, or start without one (--pool-size 0)"
    )]
    Full {
        /// Where.
        path: PathBuf,
        /// Bytes.
        free: u64,
    },
}

/// Where state is kept when nothing is said: for root, where services keep it; for others, where theirs belongs.
pub fn default() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() && make(Path::new(OF_ROOT)).is_ok() {
        return Some(OF_ROOT.into());
    }
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local/share")));
    data.map(|data| data.join("ursa"))
}

/// Makes the directory and what is in it, for the owner alone.
///
/// # Errors
/// [`DataDirError::Make`].
pub fn prepare(path: &Path) -> Result<(), DataDirError> {
    let pools = path.join(POOLS);
    make(&pools).map_err(|source| DataDirError::Make { path: path.to_owned(), source })
}

fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(MODE).create(path)?;
    // It may have been there before: what counts is whether something can be made in it.
    let probe = path.join(".probe");
    fs::write(&probe, [])?;
    fs::remove_file(probe)
}

/// The size of a first pool: half of what is free, in whole GiB where there are some.
///
/// # Errors
/// [`DataDirError`].
pub fn first_pool_size(data_dir: &Path) -> Result<ByteLen, DataDirError> {
    let space = statvfs(data_dir)
        .map_err(|error| DataDirError::Make { path: data_dir.to_owned(), source: error.into() })?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    half_of(free).ok_or(DataDirError::Full { path: data_dir.to_owned(), free })
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
    fn a_first_pool_takes_half_of_the_free_space() {
        assert_eq!(half_of(100 << 30), Some(ByteLen(50 << 30)));
        assert_eq!(half_of((7 << 30) + 5), Some(ByteLen(3 << 30)));
        assert_eq!(half_of((1 << 30) + 5), Some(ByteLen(512 << 20)));
        assert_eq!(half_of(4 << 20), Some(ByteLen(2 << 20)));
        assert_eq!(half_of(3 << 20), None);
    }
}
