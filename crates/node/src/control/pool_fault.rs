//! Why a pool is not open, as codes and facts for other nodes. The words come from the node that shows them.

use std::io::Error;
use std::path::PathBuf;

use base::ByteLen;
use rt::OpenError;
use serde::{Deserialize, Serialize};
use store::StoreError;

use super::pools::NotOpen;

/// Why a pool is not open. Nodes report it to each other as JSON.
///
/// `errno` is an error number of the system; `expected` and `found` of a disk are bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // The messages say it.
pub enum PoolFault {
    #[error("its disks have not responded for {seconds} seconds; it opens when they do")]
    Silent { seconds: u64 },
    #[error("{} cannot be opened: {}", path.display(), Error::from_raw_os_error(*errno))]
    DiskUnopened { path: PathBuf, errno: i32 },
    #[error("{} is in use by another process: stop that process", path.display())]
    DiskInUse { path: PathBuf },
    #[error("{} cannot be opened with O_DIRECT", path.display())]
    NoDirect { path: PathBuf },
    #[error("{} failed: {}", path.display(), Error::from_raw_os_error(*errno))]
    DiskFailed { path: PathBuf, errno: i32 },
    #[error("{} of its {disks} disks are missing (number {})", missing.len(), list(missing))]
    DisksMissing {
        /// How many disks the pool has.
        disks: u16,
        /// The numbers of those that are missing, from 0.
        missing: Vec<u16>,
    },
    #[error("{} is not the disk of the pool that it was: check the path", path.display())]
    OtherDisk { path: PathBuf },
    #[error(
        "{} had {} and now has {}: it was truncated; restore it from a copy",
        path.display(), ByteLen(*expected), ByteLen(*found)
    )]
    DiskShrunk { path: PathBuf, expected: u64, found: u64 },
    #[error(
        "{} has format version {found}, and that node knows version {known}: update Ursa there", path.display()
    )]
    LaterVersion { path: PathBuf, found: u16, known: u16 },
    #[error("every copy of the superblock of {} is damaged: restore the disk from a copy", path.display())]
    SuperblockDamaged { path: PathBuf },
    #[error("its metadata is damaged: restore a disk from a copy")]
    MetadataDamaged,
    #[error("it was last used by {host} and was not exported there")]
    UsedElsewhere {
        /// That server's name.
        host: String,
    },
    #[error("the node's log says why")]
    Other,
}

impl From<&NotOpen> for PoolFault {
    fn from(why: &NotOpen) -> PoolFault {
        match why {
            NotOpen::Silent(since) => PoolFault::Silent { seconds: since.as_secs() },
            NotOpen::Failed(error) => PoolFault::from(&**error),
        }
    }
}

impl From<&StoreError> for PoolFault {
    fn from(error: &StoreError) -> PoolFault {
        match error {
            StoreError::Open(error) => of_opening(error),
            StoreError::Disk { path, source } => {
                PoolFault::DiskFailed { path: path.clone(), errno: source.errno() }
            }
            StoreError::DisksMissing { count, missing, .. } => PoolFault::DisksMissing {
                disks: *count,
                missing: missing.iter().map(|disk| disk.index).collect(),
            },
            StoreError::NotAPool { path, .. }
            | StoreError::OtherPool { path, .. }
            | StoreError::ReplacedDisk { path, .. }
            | StoreError::NotInPool { path }
            | StoreError::DuplicateDisk { second: path, .. } => PoolFault::OtherDisk { path: path.clone() },
            StoreError::DiskShrunk { path, expected, found } => {
                PoolFault::DiskShrunk { path: path.clone(), expected: *expected, found: *found }
            }
            StoreError::Version { path, found, known } => {
                PoolFault::LaterVersion { path: path.clone(), found: *found, known: *known }
            }
            StoreError::SuperblockDamaged { path } => PoolFault::SuperblockDamaged { path: path.clone() },
            StoreError::MetadataDamaged { .. } => PoolFault::MetadataDamaged,
            StoreError::UsedElsewhere { host, .. } => PoolFault::UsedElsewhere { host: host.name.clone() },
            _ => PoolFault::Other,
        }
    }
}

fn of_opening(error: &OpenError) -> PoolFault {
    match error {
        OpenError::InUse(path) => PoolFault::DiskInUse { path: path.clone() },
        OpenError::NoDirect(path) => PoolFault::NoDirect { path: path.clone() },
        OpenError::NotADisk(path) => PoolFault::OtherDisk { path: path.clone() },
        OpenError::System { path, source } => {
            PoolFault::DiskUnopened { path: path.clone(), errno: rt::errno(source) }
        }
    }
}

fn list(numbers: &[u16]) -> String {
    numbers.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use store::{MissingDisk, PoolId};

    use super::*;

    fn sent(error: StoreError) -> String {
        let fault = PoolFault::from(&NotOpen::Failed(Arc::new(error)));
        let sent = serde_json::to_string(&fault).unwrap();
        assert_eq!(serde_json::from_str::<PoolFault>(&sent).unwrap(), fault);
        sent
    }

    #[test]
    fn codes_and_facts_are_sent() {
        let source = Error::from_raw_os_error(2); // ENOENT
        let gone = StoreError::Open(OpenError::System { path: "/dev/sdb".into(), source });
        assert_eq!(sent(gone), r#"{"disk-unopened":{"path":"/dev/sdb","errno":2}}"#);
        let missing = vec![MissingDisk { index: 1, disk: None }];
        let missing = StoreError::DisksMissing { pool: PoolId([1; 16]), count: 3, missing };
        assert_eq!(sent(missing), r#"{"disks-missing":{"disks":3,"missing":[1]}}"#);
        assert_eq!(sent(StoreError::NoDisks), r#""other""#, "no sentence of an unforeseen error");
        let silent = PoolFault::from(&NotOpen::Silent(Duration::from_millis(61_500)));
        assert_eq!(silent, PoolFault::Silent { seconds: 61 });
    }

    #[test]
    fn words_say_which_disk_it_is() {
        let missing = PoolFault::DisksMissing { disks: 3, missing: vec![0, 2] };
        assert_eq!(missing.to_string(), "2 of its 3 disks are missing (number 0, 2)");
        let gone = PoolFault::DiskUnopened { path: "/dev/sdb".into(), errno: 2 };
        assert_eq!(gone.to_string(), "/dev/sdb cannot be opened: No such file or directory (os error 2)");
    }
}
