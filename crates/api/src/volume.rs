//! Volumes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ChosenPolicy, Since, SyncPaused, VolumeFork, VolumeScrub};

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// Permanent volume ID, also its SCSI serial number.
    pub id: String,
    /// Name: unique in the cluster.
    pub name: String,
    /// Pool name. Empty if the volume is on other nodes only, and none of them has reported its pool: then
    /// `used` is unknown, too, and 0.
    pub pool: String,
    /// How its blocks are stored.
    pub kind: VolumeKind,
    /// Size in bytes.
    pub size: u64,
    /// Logical block size in bytes: 512 or 4096.
    pub block_size: u32,
    /// Physical block size in bytes.
    pub physical_block_size: u32,
    /// Number of slices, and thus cores, that it is striped over.
    pub slices: u16,
    /// Bytes of the pool that only this volume can use (thick: all of it; log: its reserve), or at most in
    /// memory (RAM).
    pub reserved: u64,
    /// Bytes that it takes now: of a log volume, what its blocks take in the pool; of others, what is
    /// reserved.
    pub used: u64,
    /// What its writes do when the pool is full; absent for volumes that are not log volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_full: Option<WhenFull>,
    /// Compression of the blocks that are written from now on; absent unless it is a log volume, and as long
    /// as no node with a copy has reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
    /// Whether every read compares blocks with their checksums: always in a log volume, and in a thick volume
    /// that was created with them. Absent for a RAM volume, and as long as no node with a copy has reported
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksums: Option<bool>,
    /// Size of its blocks in percent of the space that they take on the queried node: 250 if compression
    /// makes 2.5 bytes take one. Blocks that are all zeros do not count. Absent unless it is a log volume
    /// with blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression_ratio_percent: Option<u64>,
    /// Creation time, in seconds since 1970.
    pub created: u64,
    /// What it is a clone of, as long as it shares blocks with that volume; absent: it is not a clone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone_of: Option<CloneOf>,
    /// NAA name in hexadecimal: `/dev/disk/by-id/wwn-0x...` on Linux hosts.
    pub naa: String,
    /// Its LUN maps.
    pub maps: Vec<VolumeMap>,
    /// Why the queried node does not serve it, and what to do; absent if it does. Other nodes serve it while
    /// they have a copy in sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Its health, as the queried node sees it.
    pub health: VolumeHealth,
    /// Hosts can read and write it through this node now.
    #[serde(default = "yes")]
    pub serving: bool,
    /// Its copies, by slot; empty if the cluster's record does not list it, or is not available.
    #[serde(default)]
    pub copies: Vec<VolumeCopy>,
    /// Epoch: grows with each change of the copies that are in sync; absent without copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Reason for the last of these changes; absent without copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its split-brain policy; absent if none was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split_brain_policy: Option<ChosenPolicy>,
    /// A node has continued alone with it, and this is not resolved yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork: Option<VolumeFork>,
    /// Failure tolerance: what the loss of each node with a copy would do now; absent without copies, and
    /// where this is unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<Loss>,
    /// Last and next verify run of its copies; absent without copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
    /// Last and next scrub of the queried node's copy. Absent for RAM volumes, and if the node has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrub: Option<VolumeScrub>,
}

/// The snapshot of which a volume is a clone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CloneOf {
    /// Name of the other volume; its ID if the cluster does not have it.
    pub volume: String,
    /// ID of the other volume.
    pub volume_id: String,
    /// Name of the snapshot; the number by which pools know it if the cluster does not have it.
    pub snapshot: String,
}

/// Health of a volume: the first of these that holds, from the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeHealth {
    /// Two nodes each have writes that the other lacks.
    SplitBrain,
    /// No node serves it.
    Unavailable,
    /// A node continues alone with it, by its split-brain policy.
    ContinuedAlone,
    /// A copy is out of sync and resyncing.
    Resyncing,
    /// It is served, and a copy is out of sync, its node is down, or it has failed.
    Degraded,
    /// It is served, and all copies are in sync.
    Healthy,
}

/// Last and next verify run of a volume's copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Comparison {
    /// End of the last verify run, in seconds since 1970; absent: the copies were never verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// The node that verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
    /// It was stopped before its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// Bytes that differed.
    #[serde(default)]
    pub different_bytes: u64,
    /// Bytes that could not be compared.
    #[serde(default)]
    pub unchecked_bytes: u64,
    /// Bytes compared so far by the scheduled verify run that is running or interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_bytes: Option<u64>,
    /// When the next scheduled verify run is due, in seconds since 1970, provided all copies are in sync
    /// then; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// What the loss of a node would do to a volume now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Loss {
    /// Node number.
    pub node: u16,
    /// The outcome, for programs.
    pub outcome: LossOutcome,
    /// The same as text, without the node: `unavailable until the node returns (only copy in sync)`.
    pub text: String,
}

/// What the loss of a node does to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossOutcome {
    /// The node is down already.
    Down,
    /// Nothing changes: its copy is not in sync.
    Nothing,
    /// The volume continues after a short pause.
    Continues,
    /// The other node continues alone. If only the link is lost, both do, and the data of one of them is
    /// discarded later.
    SplitBrainRisk,
    /// The volume is unavailable until the node is back.
    Unavailable,
    /// The data is lost.
    DataLost,
}

/// A copy of a volume on a node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeCopy {
    /// Node number.
    pub node: u16,
    /// Node name; empty if the node no longer exists.
    pub node_name: String,
    /// Slot of the copy.
    pub slot: u8,
    /// State of the copy.
    pub state: CopyState,
    /// It is on the queried node.
    pub here: bool,
    /// It is removed as soon as the other copies allow it; absent: it stays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaves: bool,
    /// Progress of its resync; absent if it is in sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<CopySync>,
}

/// A copy to add to a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CopyCreate {
    /// Number of the node to create it on.
    pub node: u16,
    /// Pool on that node; absent: the only one, or the one named `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Number of the node whose copy is removed once the new one is in sync: this moves the copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead_of: Option<u16>,
}

/// Conversion of a volume to another kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeConvert {
    /// Kind to convert it to: `thick` or `log`.
    pub kind: VolumeKind,
}

/// Resync progress of a copy that is out of sync.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CopySync {
    /// Bytes to copy: what it missed when the resync began, plus what hosts have written since. Counted in
    /// regions of 64 KiB.
    pub total_bytes: u64,
    /// Bytes left to copy.
    pub left_bytes: u64,
    /// Bytes copied.
    pub copied_bytes: u64,
    /// Bytes per second, averaged over the last five seconds.
    pub bytes_per_second: u64,
    /// Estimated seconds left at this rate; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
    /// Why it missed writes.
    pub cause: String,
    /// Out of sync since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
    /// What limits the resync, other than disks and network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<SyncRestraint>,
    /// What it waits for; absent if it makes progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Who paused it, and when. It stays paused until resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<SyncPaused>,
}

/// What limits the speed of a resync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SyncRestraint {
    /// Writes of hosts, which would otherwise take too long.
    Hosts,
    /// The limit of the source node: `resync-bytes-per-second-max`.
    NodeLimit,
    /// The limit of all nodes together: `ursa node resync-limit`.
    ClusterLimit,
    /// The source node resyncs other volumes first.
    Turn,
    /// It is paused.
    Paused,
}

/// State of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CopyState {
    /// In sync: it has every acknowledged write, and serves reads.
    InSync,
    /// Catching up: it takes all new writes, and its resync is not complete.
    CatchingUp,
    /// Out of sync: it misses writes.
    OutOfSync,
}

/// Result of comparing the copies of a volume while hosts use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Verification {
    /// Progress of the verify run.
    pub state: VerificationState,
    /// All of the volume was compared, and all copies in sync are equal.
    pub equal: bool,
    /// Size of the volume in bytes.
    pub total_bytes: u64,
    /// Bytes checked.
    pub checked_bytes: u64,
    /// Bytes that could not be compared.
    pub unchecked_bytes: u64,
    /// Why the last of these could not be compared; absent if all could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Bytes that differ between copies.
    pub different_bytes: u64,
    /// The first 256 places that differ.
    pub differences: Vec<Difference>,
    /// Numbers of the nodes whose copies were compared from start to end.
    pub nodes: Vec<u16>,
    /// Seconds since it began.
    pub age_s: u64,
    /// Duration in seconds.
    pub took_s: u64,
}

/// State of a verify run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerificationState {
    /// It is running.
    Running,
    /// All was checked.
    Done,
    /// It was stopped, or the node was.
    Stopped,
}

/// A part of a volume that differs between its copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    /// Offset in the volume, in bytes.
    pub offset: u64,
    /// Length in bytes: a whole region, of which as little as one byte may differ.
    pub bytes: u64,
    /// Numbers of the nodes whose copies differ from the majority; all of them if there is no majority.
    pub nodes: Vec<u16>,
}

/// How a volume's blocks are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeKind {
    /// In the pool, with all space reserved at creation.
    #[default]
    Thick,
    /// In memory: empty after each start of the node.
    Ram,
    /// In the pool, log-structured: thin, with checksums. Takes the space of what was written.
    Log,
}

/// What distinguishes the kinds. Other crates ask for these properties, not for a kind by its name: so a new
/// kind is one variant and its properties.
impl VolumeKind {
    /// Whether its blocks are on disks, and survive a restart of the node.
    pub const fn is_durable(self) -> bool {
        match self {
            VolumeKind::Thick | VolumeKind::Log => true,
            VolumeKind::Ram => false,
        }
    }

    /// Whether it takes the space of its pool as blocks are written, and shares it with other volumes. Such a
    /// volume can have a reserve and a policy for a full pool.
    pub const fn is_thin(self) -> bool {
        match self {
            VolumeKind::Log => true,
            VolumeKind::Thick | VolumeKind::Ram => false,
        }
    }

    /// Whether its blocks can be compressed.
    pub const fn is_compressible(self) -> bool {
        match self {
            VolumeKind::Log => true,
            VolumeKind::Thick | VolumeKind::Ram => false,
        }
    }

    /// Whether each block has a checksum. A durable volume of another kind has checksums if it was created
    /// with them.
    pub const fn has_checksums(self) -> bool {
        match self {
            VolumeKind::Log => true,
            VolumeKind::Thick | VolumeKind::Ram => false,
        }
    }

    /// As in "a thick volume".
    pub const fn name(self) -> &'static str {
        match self {
            VolumeKind::Thick => "thick",
            VolumeKind::Ram => "RAM",
            VolumeKind::Log => "log",
        }
    }
}

/// What a log volume's writes do when the pool is full. Reads and UNMAP continue in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// They fail at once with SPACE ALLOCATION FAILED WRITE PROTECT (27h/07h).
    #[default]
    Fail,
    /// They wait up to 15 seconds for space first.
    Pause,
}

/// Compression of a log volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// LZ4. Blocks that do not shrink to half their size are stored uncompressed.
    #[default]
    Lz4,
    /// None.
    Off,
}

/// A LUN map as its volume shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeMap {
    /// The target's iSCSI name.
    pub target: String,
    /// LUN.
    pub lun: u16,
    /// The host group that has access.
    pub host: String,
}

/// A volume to create, with the LUN map that makes it usable. Either everything is done, or nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeCreate {
    /// Name: 1 to 63 letters, digits, `-`, `_` and `.`.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    pub name: String,
    /// Size in bytes, rounded up to whole blocks.
    #[schema(minimum = 1)]
    pub size: u64,
    /// Pool; absent: the only one, or the one named `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// How its blocks are stored.
    #[serde(default)]
    pub kind: VolumeKind,
    /// Logical block size: 512 or 4096.
    #[serde(default = "default_block_size")]
    #[schema(default = 512)]
    pub block_size: u32,
    /// Report a physical block size of 512 bytes, too. Otherwise a volume with 512-byte blocks is 512e.
    #[serde(default)]
    pub native_512: bool,
    /// Number of slices to stripe it over, a power of two; absent: one per core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<u16>,
    /// What its writes do when the pool is full: log volumes only; absent: they fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_full: Option<WhenFull>,
    /// Bytes of the pool that only this volume can use, at most its size: log volumes only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<u64>,
    /// Map it as a LUN of a target right away.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub map: bool,
    /// The target, created if it does not exist; absent: `iqn.2026-11.io.ursa:NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The host group to map it to; absent: `local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// LUN; absent: the lowest free one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 255)]
    pub lun: Option<u16>,
    /// Number of copies, each on a different node, including this one if it has room. If `copies` and `nodes`
    /// are both absent: two in a cluster of several nodes (not counting witnesses), otherwise one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 4)]
    pub copies: Option<u8>,
    /// Numbers of the nodes that get a copy; not together with `copies`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 4)]
    pub nodes: Option<Vec<u16>>,
    /// Compression, only of log volumes; absent: `lz4` for these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
    /// Checksums, which every read compares, for a thick volume. Log volumes always have them.
    #[serde(default)]
    pub checksums: bool,
}

impl VolumeCreate {
    /// A thick volume with default settings.
    pub fn new(name: impl Into<String>, size: u64) -> VolumeCreate {
        VolumeCreate {
            name: name.into(),
            size,
            pool: None,
            kind: VolumeKind::default(),
            block_size: default_block_size(),
            native_512: false,
            slices: None,
            when_full: None,
            reserve: None,
            map: true,
            target: None,
            host: None,
            lun: None,
            copies: None,
            nodes: None,
            compression: None,
            checksums: false,
        }
    }
}

/// Changes to a volume; absent fields stay the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeChange {
    /// New size in bytes, larger than now; rounded up to whole blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// New name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What its writes do when the pool is full: log volumes only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_full: Option<WhenFull>,
    /// Bytes of the pool that only this volume can use, at most its size; 0: none. Log volumes only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<u64>,
    /// Compression of the blocks that are written from now on, on all nodes with a copy; only of log volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
}

fn default_block_size() -> u32 {
    512
}

fn yes() -> bool {
    true
}
