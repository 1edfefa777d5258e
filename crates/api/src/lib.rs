//! The types of a node's HTTP interface: requests, responses, and a [`Client`] for it.
//!
//! Everything is JSON under `/v1`. Sizes are in bytes, times in seconds. A request with an unknown field is
//! refused, so that a misspelled setting is not silently ignored. A response may get additional fields, which
//! clients must ignore. Lists are objects with `items`. Errors are [`Problem`] documents (RFC 9457).
//!
//! This crate does not depend on how a node works: it is all that a client needs.

mod access;
mod address;
mod chap;
mod client;
mod cluster;
mod counters;
mod disk;
mod event;
mod finding;
mod history;
mod host;
mod job;
mod link;
mod list;
mod live;
mod local;
mod node;
mod pool;
mod problem;
mod scrub;
mod session;
mod severity;
mod since;
mod snapshot;
mod snapshot_schedule;
mod split_brain;
mod target;
mod volume;

pub use self::access::{
    AccessState, ApiToken, ApiTokenCreate, ApiTokenMade, AuditEntry, AuditQuery, LoggedIn, Login,
    PASSWORD_CHARACTERS_MAX, PASSWORD_CHARACTERS_MIN, PasswordChange, ProvedBy, REQUEST_HEADER, Role,
    SECURE_SESSION_COOKIE, SESSION_COOKIE, SetUp, User, UserChange, UserCreate, WhoAmI,
};
pub use self::address::{AddressState, AddressTrouble, FloatingAddress, FloatingAddressAdd};
pub use self::chap::Chap;
pub use self::client::{Client, ClientError, Fingerprint, Trust, TrustError};
pub use self::cluster::{
    ClusterInit, ClusterJoin, ClusterNode, ClusterRecord, JoinToken, LINK_PORT, LinkFor, LinkRole,
    Maintenance, Preference, RecordPlace, RecordStall, SyncLimit, TOKEN_SECONDS, TOKEN_SECONDS_MAX,
    TokenCreate, VerifySchedule, link_address,
};
pub use self::counters::{FlowCounters, LatencyBucket, VolumeCounters};
pub use self::disk::BlockDevice;
pub use self::event::{DiskRange, Event, EventIdentity, Events, EventsQuery, MapChange};
pub use self::finding::{Finding, FindingCode, Subject, SubjectKind};
pub use self::history::{Forecast, History, HistoryQuery, HistorySeries, HistoryUnit};
pub use self::host::{Host, HostChange, HostCreate, HostSetup, HostSystem};
pub use self::job::{Job, JobEnd, JobFound, JobKind, JobState, SyncPaused};
pub use self::link::{Link, LinkState, RoleLinks};
pub use self::list::{List, Missing};
pub use self::live::{LiveCore, LiveFlow, LiveSample, LiveVolume};
pub use self::local::LocalCredential;
pub use self::node::{Change, Health, HypervisorSign, MapMemory, Node, ReadConfirm, ReadConfirmSetting};
pub use self::pool::{
    DiskFailure, DiskLeaving, NewDisk, Overcommit, Pool, PoolAddDisk, PoolCreate, PoolDisk, PoolForget,
    PoolImport, PoolLogs, PoolRemains, PoolRemoveDisk, PoolState, RemainingDisk, RemainingMap,
    RemainingVolume,
};
pub use self::problem::{Candidate, DryRun, Problem};
pub use self::scrub::{PoolScrub, Scrub, ScrubState, VolumeScrub};
pub use self::session::Session;
pub use self::severity::Severity;
pub use self::since::Since;
pub use self::snapshot::{
    ChangedRange, ClonedVolume, SNAPSHOT_READ_BYTES_MAX, Snapshot, SnapshotChange, SnapshotClone,
    SnapshotCloned, SnapshotCopy, SnapshotCopyState, SnapshotCreate, SnapshotDataQuery, SnapshotDiff,
    SnapshotDiffQuery, SnapshotRestore, SnapshotRestored, SnapshotState, SnapshotVolume,
};
pub use self::snapshot_schedule::{SnapshotSchedule, SnapshotScheduleChange, SnapshotScheduleCreate};
pub use self::split_brain::{
    ChosenPolicy, ForkResolution, PolicyChoice, PolicyChosen, SplitBrainPolicy, VolumeFork,
};
pub use self::target::{MapCreate, Target, TargetChange, TargetCreate, TargetMap};
pub use self::volume::{
    CloneOf, Comparison, Compression, CopyCreate, CopyState, CopySync, Difference, Loss, LossOutcome,
    SyncRestraint, Verification, VerificationState, Volume, VolumeChange, VolumeConvert, VolumeCopy,
    VolumeCreate, VolumeHealth, VolumeKind, VolumeMap, WhenFull,
};

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// The default address on which a node listens for HTTP. Other machines reach the node only if it is
/// configured to listen on another address.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:3280";

/// The default host group for the map of a new volume: this machine.
pub const DEFAULT_HOST: &str = "local";

/// The default target for the map of a new volume: our prefix and the volume's name, in the characters that
/// iSCSI names allow.
pub fn default_target(volume: &str) -> String {
    let letter = |c: char| match c.to_ascii_lowercase() {
        '_' => '-',
        c => c,
    };
    format!("iqn.2026-11.io.ursa:{}", volume.chars().map(letter).collect::<String>())
}

/// Shows each value as JSON has it.
macro_rules! display_as_in_json {
    ($($word:ty),+) => {
        $(impl fmt::Display for $word {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.serialize(f)
            }
        })+
    };
}

display_as_in_json!(JobKind, JobState, LinkRole, ProvedBy, ReadConfirmSetting, Severity);
display_as_in_json!(Compression, CopyState, SplitBrainPolicy, VolumeKind, WhenFull);

/// Distinguishes absent fields from `null`: with `default`, an absent field is `None`, and `null` is
/// `Some(None)`.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_target_is_named_like_its_volume() {
        assert_eq!(super::default_target("db"), "iqn.2026-11.io.ursa:db");
        assert_eq!(super::default_target("Mail_2.a"), "iqn.2026-11.io.ursa:mail-2.a");
    }
}
