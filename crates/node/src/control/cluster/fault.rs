//! Why a node does not take part in its cluster: codes and facts that nodes send each other, and their words
//! for whoever shows them. What a library says beyond that is only in the log of the node.

use std::io::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use cluster::embedded::{self, FileError, ForceError};
use cluster::etcd::{self, AccessError, EtcdTrouble};
use link::{CredentialsError, DeathNoticeError};
use serde::{Deserialize, Serialize};

use super::EnterError;
use crate::control::ControlError;
use crate::record::RecordError;

/// Why a node does not take part in its cluster. Nodes report it to each other as JSON.
///
/// `errno` is an error number of the system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
#[serde(rename_all = "kebab-case")]
pub enum ClusterFault {
    #[error("it is still joining")]
    Starting,
    #[error("it is moving to another cluster")]
    Moving,
    #[error("a task that began in this node's former cluster has not ended")]
    FormerCluster,
    #[error("a step of its start has not finished in time: see `ursa job list`")]
    Slow,
    #[error(
        "this node's cluster keeps its record in its nodes, but `etcd` is set: remove `etcd` from the node's settings (a cluster's record cannot be moved: to keep it in etcd, create a new cluster)"
    )]
    NotInEtcd,
    #[error(
        "this node's cluster keeps its record in etcd, but `etcd` is not set: add it, and its files, to the node's settings"
    )]
    InEtcd,
    #[error("{0}")]
    EtcdSettings(AccessError),
    #[error("{} for etcd cannot be used: check that it exists and is valid", path.display())]
    EtcdFile { path: PathBuf },
    #[error("etcd cannot hold the cluster's record: {0}")]
    Etcd(EtcdTrouble),
    #[error(
        "the node's certificates cannot be used: {}: {}. They must be owned by the user that runs Ursa; if one is lost, restore it from a backup, or let this node join a cluster",
        path.display(), Error::from_raw_os_error(*errno)
    )]
    CertificateFile { path: PathBuf, errno: i32 },
    #[error(
        "the node's certificates cannot be used: its key, its certificate or that of the cluster CA is not valid, or they do not match: restore them from one backup, or let the node join the cluster again"
    )]
    Certificates,
    #[error("the cluster's record cannot be opened: {} is in use: is another `ursa serve` running on this data directory?", path.display())]
    RecordInUse { path: PathBuf },
    #[error("the cluster's record cannot be opened: {} is damaged: remove this node from the cluster and add it again under a new number", path.display())]
    RecordDamaged { path: PathBuf },
    #[error("the cluster's record cannot be opened: {} is not one, or has a version that this version of Ursa does not know", path.display())]
    RecordForeign { path: PathBuf },
    #[error("the cluster's record cannot be opened: SQLite cannot use {}", path.display())]
    RecordUnusable { path: PathBuf },
    #[error("the cluster's record cannot be opened: {} cannot be written: {}", path.display(), Error::from_raw_os_error(*errno))]
    RecordUnwritable { path: PathBuf, errno: i32 },
    #[error("the cluster's record cannot be opened: the node's log says why")]
    RecordFailed,
    #[error("the cluster's record cannot be followed: it does not respond")]
    RecordSilent,
    #[error("it cannot listen for other nodes at {address}: {}", Error::from_raw_os_error(*errno))]
    Listen { address: SocketAddr, errno: i32 },
    #[error(
        "{} is missing or empty: this node keeps its certificates and its copy of the cluster's record there. If it is on a separate file system, mount that; if it was deleted, let the node join again with a token (`ursa node join`), or leave its cluster (`ursa node leave --forget`)",
        path.display()
    )]
    DirectoryGone { path: PathBuf },
    #[error("cannot create the directory {}: {}", path.display(), Error::from_raw_os_error(*errno))]
    DirectoryUnmade { path: PathBuf, errno: i32 },
    /// `entry` is the part of the node's record that cannot be read.
    #[error("this version cannot read the entry about the node's cluster in the node's record: {entry}")]
    PlaceUnreadable { entry: String },
    #[error(
        "the node's own record cannot be written: check the disk and the free space of its data directory"
    )]
    OwnRecord,
    #[error("the node's own record is full: delete unused targets or host groups")]
    OwnRecordFull,
    #[error("the node's log says why")]
    Other,
}

impl ClusterFault {
    /// The kind of fault, as events have it.
    pub fn code(&self) -> &'static str {
        use ClusterFault as F;
        match self {
            F::CertificateFile { .. } | F::Certificates => "credentials",
            F::RecordInUse { .. }
            | F::RecordDamaged { .. }
            | F::RecordForeign { .. }
            | F::RecordUnusable { .. }
            | F::RecordUnwritable { .. }
            | F::RecordFailed => "record",
            F::NotInEtcd | F::InEtcd | F::EtcdSettings(_) | F::EtcdFile { .. } | F::Etcd(_) => "etcd",
            F::RecordSilent => "record_silent",
            F::DirectoryGone { .. } => "directory_gone",
            F::Listen { .. } => "links",
            F::OwnRecord | F::OwnRecordFull => "own_record",
            F::Starting
            | F::Moving
            | F::FormerCluster
            | F::Slow
            | F::DirectoryUnmade { .. }
            | F::PlaceUnreadable { .. }
            | F::Other => "other",
        }
    }

    pub(super) fn gone(path: &Path) -> ClusterFault {
        ClusterFault::DirectoryGone { path: path.to_owned() }
    }

    pub(super) fn unreadable(entry: &str) -> ClusterFault {
        ClusterFault::PlaceUnreadable { entry: entry.to_owned() }
    }
}

impl From<&ControlError> for ClusterFault {
    fn from(error: &ControlError) -> ClusterFault {
        match error {
            ControlError::Enter(error) => ClusterFault::from(&**error),
            ControlError::Record(RecordError::Full(_)) => ClusterFault::OwnRecordFull,
            ControlError::Record(_) => ClusterFault::OwnRecord,
            ControlError::Busy { .. } | ControlError::Unfinished(_) => ClusterFault::Slow,
            ControlError::ClusterFailed(fault) => fault.clone(),
            _ => ClusterFault::Other,
        }
    }
}

impl From<&EnterError> for ClusterFault {
    fn from(error: &EnterError) -> ClusterFault {
        match error {
            EnterError::FormerCluster => ClusterFault::FormerCluster,
            EnterError::NotInEtcd => ClusterFault::NotInEtcd,
            EnterError::InEtcd => ClusterFault::InEtcd,
            EnterError::Etcd(error) => of_etcd(error),
            EnterError::Credentials(CredentialsError::File(error)) => {
                ClusterFault::CertificateFile { path: error.path().to_owned(), errno: error.errno() }
            }
            EnterError::Credentials(CredentialsError::Invalid { .. } | CredentialsError::Mismatch(_))
            | EnterError::DeathNotice(DeathNoticeError::Tls(_))
            | EnterError::Links(link::StartError::Credentials | link::StartError::Tls(_)) => {
                ClusterFault::Certificates
            }
            EnterError::Links(link::StartError::Listen { address, source }) => {
                ClusterFault::Listen { address: *address, errno: rt::errno(source) }
            }
            EnterError::Record(embedded::StartError::File(error))
            | EnterError::File(error)
            | EnterError::Force(ForceError::File(error)) => of_file(error),
            EnterError::Record(embedded::StartError::Thread(_))
            | EnterError::Force(ForceError::Unforceable(_)) => ClusterFault::RecordFailed,
            EnterError::Follow(_) => ClusterFault::RecordSilent,
            EnterError::Malformed(entry) => ClusterFault::unreadable(entry),
            EnterError::Lost(path) => ClusterFault::gone(path),
            EnterError::Directory(path, error) => {
                ClusterFault::DirectoryUnmade { path: path.clone(), errno: rt::errno(error) }
            }
            EnterError::Already
            | EnterError::NotAlone
            | EnterError::NotInPool(_)
            | EnterError::AddressGoing(_)
            | EnterError::HasSnapshots(_)
            | EnterError::HasSchedules(_)
            | EnterError::Credentials(CredentialsError::Make { .. })
            | EnterError::DeathNotice(_) => ClusterFault::Other,
        }
    }
}

fn of_file(error: &FileError) -> ClusterFault {
    match error {
        FileError::InUse(path) => ClusterFault::RecordInUse { path: path.clone() },
        FileError::Damaged { path, .. } => ClusterFault::RecordDamaged { path: path.clone() },
        FileError::Foreign(path) => ClusterFault::RecordForeign { path: path.clone() },
        FileError::Exists(path) | FileError::Sqlite { path, .. } => {
            ClusterFault::RecordUnusable { path: path.clone() }
        }
        FileError::Writing { path, source } | FileError::Making { path, source } => {
            ClusterFault::RecordUnwritable { path: path.clone(), errno: rt::errno(source) }
        }
    }
}

fn of_etcd(error: &etcd::StartError) -> ClusterFault {
    match error {
        etcd::StartError::Access(error) => ClusterFault::EtcdSettings(*error),
        etcd::StartError::Password(path, _) | etcd::StartError::NoPassword(path) => {
            ClusterFault::EtcdFile { path: path.clone() }
        }
        etcd::StartError::Authorities(error) => ClusterFault::EtcdFile { path: error.path().to_owned() },
        etcd::StartError::Identity(error) => ClusterFault::EtcdFile { path: error.path().to_owned() },
        etcd::StartError::Refused(trouble) => ClusterFault::Etcd(trouble.clone()),
        etcd::StartError::Prefix | etcd::StartError::Thread(_) => ClusterFault::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(error: EnterError) -> ClusterFault {
        let fault = ClusterFault::from(&ControlError::from(error));
        let sent = serde_json::to_string(&fault).unwrap();
        assert_eq!(serde_json::from_str::<ClusterFault>(&sent).unwrap(), fault);
        fault
    }

    #[test]
    fn facts_are_kept_and_sent() {
        let path = PathBuf::from("/var/lib/ursa/cluster/ab-1/record.sqlite");
        let damaged = fault(FileError::Damaged { path: path.clone(), what: "a page" }.into());
        assert_eq!((damaged.code(), &damaged), ("record", &ClusterFault::RecordDamaged { path }));
        let address: SocketAddr = "192.0.2.1:3262".parse().unwrap();
        let source = Error::from_raw_os_error(99); // EADDRNOTAVAIL
        let listen = fault(link::StartError::Listen { address, source }.into());
        assert_eq!((listen.code(), &listen), ("links", &ClusterFault::Listen { address, errno: 99 }));
        let etcd = fault(etcd::StartError::Access(AccessError::NoAuthorities).into());
        assert_eq!(serde_json::to_string(&etcd).unwrap(), r#"{"etcd-settings":"no-authorities"}"#);
        let invalid = fault(CredentialsError::Invalid { what: "the node's key" }.into());
        assert_eq!((invalid.code(), &invalid), ("credentials", &ClusterFault::Certificates));
    }

    #[test]
    fn no_sentence_of_an_unforeseen_failure_is_sent() {
        let fault = ClusterFault::from(&ControlError::Internal("something that nobody has thought of"));
        assert_eq!(serde_json::to_string(&fault).unwrap(), r#""other""#);
    }
}
